//! The log that a new stream lives in, of those that the nodes of the cluster serve.

use crate::core_port::CorePort;
use crate::log_names::{LogNames, named_by_tag};
use crate::outcome::described;
use crate::registry::{DEFAULT_LOG, MEMORY_LOG, is_memory_log, quorum_log_number};
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
            Home::Here(_) => (&self.log, ""),
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
    /// streams of the account, and of several such ones the next in turn.
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
        let tag = named_by_tag(config)?;
        let memory_log = self.memory_log(config);
        let is_fit = |name: &str| match (tag, config.storage) {
            (Some(tag), _) => name == tag && !is_memory_log(name),
            (None, StorageType::Memory) => name == memory_log,
            (None, StorageType::File) => quorum_log_number(name).is_some(),
        };
        let mut candidates = self.candidates(account, &served, is_fit);
        let Some(fewest) = candidates.iter().map(|one| one.streams).min() else {
            if config.storage == StorageType::Memory {
                let why = format!("no node serves log {memory_log}: try again later");
                return Err(described(JsError::CLUSTER_NOT_AVAIL, why));
            }
            return Err(self.names.none_of(tag.unwrap_or(DEFAULT_LOG)));
        };
        candidates.retain(|one| one.streams == fewest);
        // Every node that decides goes through them in the same order.
        candidates.sort_by(|one, other| one.key().cmp(&other.key()));
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % candidates.len();
        let chosen = candidates.remove(turn);
        self.replicas.check(config, &chosen.log)?;
        Ok(chosen.home)
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
        for (node, state, _) in served.nodes() {
            for log in state.logs.into_iter().filter(|name| is_fit(name)) {
                let streams = served.count_in(&node, &log);
                let home = Home::At { node: node.clone(), log: log.clone() };
                candidates.push(Candidate { home, log, streams });
            }
        }
        candidates
    }
}
