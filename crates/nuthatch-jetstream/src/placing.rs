//! The log that a new stream lives in, of those that the nodes of the cluster serve.

use crate::core_port::CorePort;
use crate::log_names::{LogNames, named_by_tag};
use crate::outcome::described;
use crate::placement::{TaggedNode, WantedTags, check_unique};
use crate::registry::{
    DEFAULT_LOG, LOCAL_LOG, MEMORY_LOG, is_memory_log, is_quorum_log, quorum_log_number,
};
use crate::replicas::Replicas;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::logs::QUORUM_MEMORY_LOG;
use nuthatch_server::served::Served;
use nuthatch_streams::AccountId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The log that a new stream lives in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// One that is here.
    Here(LogId),
    /// The log of just this node ([`LOCAL_LOG`]), which may have to be begun.
    Local,
    /// One of another node.
    At {
        /// The node.
        node: String,
        /// The log's name there.
        log: String,
    },
}

/// A log that a stream may live in.
#[derive(Debug)]
struct Candidate {
    home: Home,
    log: String,
    /// Streams of the account that it has.
    streams: usize,
}

impl Candidate {
    fn key(&self) -> (&str, &str) {
        match &self.home {
            Home::Here(_) | Home::Local => (&self.log, ""),
            Home::At { node, .. } => (&self.log, node),
        }
    }
}

/// Finds the log for a new stream.
pub(super) struct Placing {
    core: Arc<dyn CorePort>,
    names: Arc<LogNames>,
    streams: Arc<StreamTable>,
    replicas: Arc<Replicas>,
    /// Counts new streams for which several logs were as good.
    next: AtomicUsize,
}

impl Placing {
    pub(super) fn new(
        core: Arc<dyn CorePort>,
        names: Arc<LogNames>,
        streams: Arc<StreamTable>,
        replicas: Arc<Replicas>,
    ) -> Self {
        Self { core, names, streams, replicas, next: AtomicUsize::new(0) }
    }

    /// The log for a new stream: the one that its tag names, else of those for its storage the one with the fewest
    /// streams of the account, and of several such ones the next in turn. Where its placement has further tags, all nodes
    /// that the log is on have them; for one replica that may be a log of just one node.
    ///
    /// # Errors
    /// There is none, or not as many replicas as are asked for.
    pub(super) fn home_for(
        &self,
        account: AccountId,
        config: &StreamConfig,
    ) -> Result<Home, JsError> {
        let Some(served) = self.core.served(account) else {
            return self.here(config).map(Home::Here);
        };
        self.check_cluster(config)?;
        let tag = named_by_tag(config)?;
        let memory_log = self.memory_log(config);
        let is_fit = |name: &str| match (tag, config.storage) {
            (Some(tag), _) => name == tag && !is_memory_log(name),
            (None, StorageType::Memory) => name == memory_log,
            (None, StorageType::File) => quorum_log_number(name).is_some(),
        };
        let mut candidates = self.candidates(account, &served, is_fit);
        if candidates.is_empty() {
            if config.storage == StorageType::Memory {
                let why = format!("no node serves log {memory_log}: try again later");
                return Err(described(JsError::CLUSTER_NOT_AVAIL, why));
            }
            return Err(self.names.none_of(tag.unwrap_or(DEFAULT_LOG)));
        }
        let nodes = self.tagged(&served);
        let refusal = self.keep_admitted(&mut candidates, config, &nodes);
        let may_be_local = tag.is_none() && config.storage == StorageType::File;
        if candidates.is_empty() && may_be_local && config.num_replicas <= 1 {
            candidates = self.local_candidates(account, &served, &WantedTags::of(config), &nodes);
        }
        let Some(fewest) = candidates.iter().map(|one| one.streams).min() else {
            return Err(refusal.expect("what was there is not admitted"));
        };
        candidates.retain(|one| one.streams == fewest);
        // Every node that decides goes through them in the same order.
        candidates.sort_by(|one, other| one.key().cmp(&other.key()));
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % candidates.len();
        let chosen = candidates.remove(turn);
        self.replicas.check(config, &chosen.log)?;
        Ok(chosen.home)
    }

    /// Whether the stream may stay in this log of this node, by its placement.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn check_tags(
        &self,
        account: AccountId,
        config: &StreamConfig,
        log: &str,
    ) -> Result<(), JsError> {
        let Some(served) = self.core.served(account) else { return Ok(()) };
        self.check_cluster(config)?;
        let nodes = self.tagged(&served);
        let on = self.nodes_of(&nodes, log, None);
        check_nodes(config, &on, log, self.core.unique_tag().as_deref())
    }

    /// A placement may name this cluster only.
    fn check_cluster(&self, config: &StreamConfig) -> Result<(), JsError> {
        let asked = config.placement.as_ref().map_or("", |placement| placement.cluster.as_str());
        let cluster = self.core.cluster().map(|cluster| cluster.name).unwrap_or_default();
        if asked.is_empty() || asked == cluster {
            return Ok(());
        }
        let why = format!(
            "no suitable peers for placement: there is no cluster {asked:?}, this is {cluster:?}"
        );
        Err(JsError::CLUSTER_NO_PEERS.with_err(why))
    }

    /// This node, and those that are connected.
    fn tagged(&self, served: &Served) -> Vec<TaggedNode> {
        let own = self.names.node().unwrap_or_default().to_owned();
        let own = TaggedNode { name: own, tags: Some(self.core.server_tags()) };
        let others = served.nodes().into_iter();
        let others = others.map(|(name, state, _)| TaggedNode { name, tags: state.tags });
        std::iter::once(own).chain(others).collect()
    }

    /// Those of these nodes that a log is on: of a local log the node `at`, or this one. One that is away has tags that
    /// nobody knows, and is passed over.
    fn nodes_of(&self, nodes: &[TaggedNode], log: &str, at: Option<&str>) -> Vec<TaggedNode> {
        let own = self.names.node().unwrap_or_default();
        let keepers: Vec<String> = match is_quorum_log(log) {
            true => {
                // Whoever decides keeps the logs.
                let standing = self.core.standing(log).or_else(|| self.core.standing(DEFAULT_LOG));
                let others = standing.map(|standing| standing.others).unwrap_or_default();
                others.into_iter().map(|node| node.name).chain([own.to_owned()]).collect()
            }
            false => vec![at.unwrap_or(own).to_owned()],
        };
        nodes.iter().filter(|node| keepers.contains(&node.name)).cloned().collect()
    }

    /// Takes out the logs that are on nodes which the placement does not admit; why, of the last one.
    fn keep_admitted(
        &self,
        candidates: &mut Vec<Candidate>,
        config: &StreamConfig,
        nodes: &[TaggedNode],
    ) -> Option<JsError> {
        let unique = self.core.unique_tag();
        let mut refusal = None;
        candidates.retain(|one| {
            let at = match &one.home {
                Home::At { node, .. } => Some(node.as_str()),
                Home::Here(_) | Home::Local => None,
            };
            let on = self.nodes_of(nodes, &one.log, at);
            let checked = check_nodes(config, &on, &one.log, unique.as_deref());
            let is_admitted = checked.is_ok();
            refusal = checked.err().or(refusal.take());
            is_admitted
        });
        refusal
    }

    /// The logs of single nodes whose tags match.
    fn local_candidates(
        &self,
        account: AccountId,
        served: &Served,
        wanted: &WantedTags,
        nodes: &[TaggedNode],
    ) -> Vec<Candidate> {
        let own = self.names.node().unwrap_or_default();
        let admitted = nodes.iter().filter(|node| wanted.admits(node));
        let candidate = |node: &TaggedNode| {
            let log = LOCAL_LOG.to_owned();
            if node.name != own {
                let streams = served.count_in(&node.name, LOCAL_LOG);
                let home = Home::At { node: node.name.clone(), log: log.clone() };
                return Candidate { home, log, streams };
            }
            let here = self.names.find(LOCAL_LOG);
            let streams = here.map_or(0, |id| self.streams.read().count_in(account, id));
            Candidate { home: Home::Local, log, streams }
        };
        admitted.map(candidate).collect()
    }

    /// The memory log for a new stream: with several replicas the one that is in the memory of all nodes, if the cluster
    /// has it.
    fn memory_log(&self, config: &StreamConfig) -> &'static str {
        match config.num_replicas > 1 && self.core.has_quorum_memory() {
            true => QUORUM_MEMORY_LOG,
            false => MEMORY_LOG,
        }
    }

    /// The log of this server for a new stream.
    ///
    /// # Errors
    /// There is none, or not as many replicas as are asked for.
    pub(super) fn here(&self, config: &StreamConfig) -> Result<LogId, JsError> {
        let log = self.names.of_config(config)?;
        self.replicas.check(config, &self.names.name_of(log))?;
        Ok(log)
    }

    fn candidates(
        &self,
        account: AccountId,
        served: &Served,
        is_fit: impl Fn(&str) -> bool,
    ) -> Vec<Candidate> {
        let own = self.names.all().into_iter().filter(|(name, _)| is_fit(name));
        let mut candidates: Vec<Candidate> = own
            .map(|(log, id)| {
                let registry = self.streams.read();
                Candidate { home: Home::Here(id), log, streams: registry.count_in(account, id) }
            })
            .collect();
        let is_here = |log: &String| is_quorum_log(log) && self.names.find(log).is_some();
        for (node, state, _) in served.nodes() {
            // A former owner that hangs says that it has it still.
            for log in state.logs.into_iter().filter(|log| is_fit(log) && !is_here(log)) {
                let streams = served.count_in(&node, &log);
                let home = Home::At { node: node.clone(), log: log.clone() };
                candidates.push(Candidate { home, log, streams });
            }
        }
        candidates
    }
}

/// Whether a stream may be on these nodes.
fn check_nodes(
    config: &StreamConfig,
    nodes: &[TaggedNode],
    log: &str,
    unique: Option<&str>,
) -> Result<(), JsError> {
    let wanted = WantedTags::of(config);
    if !wanted.is_none() && !nodes.iter().all(|node| wanted.admits(node)) {
        return Err(wanted.refusal(nodes, is_quorum_log(log).then_some(log)));
    }
    match unique {
        Some(prefix) => check_unique(nodes, (config.num_replicas, &wanted), prefix),
        None => Ok(()),
    }
}
