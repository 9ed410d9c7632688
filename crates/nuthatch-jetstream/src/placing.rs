//! The log that a new stream lives in, of those that the nodes of the cluster serve, and changes of streams of other
//! nodes that are checked here first.

use crate::log_names::named_by_tag;
use crate::outcome::described;
use crate::pending_changes::{Changing, ELSEWHERE, claim};
use crate::registry::{DEFAULT_LOG, MEMORY_LOG};
use crate::replicas::is_quorum_log;
use crate::service::{Answer, JetStream};
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::served::{Scope, Served};
use nuthatch_streams::AccountId;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long it is waited for whether a node has made a stream whose connection ended meanwhile.
const FOUND_OUT_WITHIN: Duration = Duration::from_secs(10);

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

impl JetStream {
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
            let log = self.names.of_config(config)?;
            self.check_replicas(config, &self.names.name_of(log))?;
            return Ok(Home::Here(log));
        };
        let tag = named_by_tag(config)?;
        let is_fit = |name: &str| match (tag, config.storage) {
            (Some(tag), _) => name == tag && name != MEMORY_LOG,
            (None, StorageType::Memory) => name == MEMORY_LOG,
            (None, StorageType::File) => is_quorum_log(name),
        };
        let mut candidates = self.candidates(account, &served, is_fit);
        let Some(fewest) = candidates.iter().map(|one| one.streams).min() else {
            return Err(self.names.none_of(tag.unwrap_or(DEFAULT_LOG)));
        };
        candidates.retain(|one| one.streams == fewest);
        // Every node that decides goes through them in the same order.
        candidates.sort_by(|one, other| one.key().cmp(&other.key()));
        let turn = self.next_home.fetch_add(1, Ordering::Relaxed) % candidates.len();
        let chosen = candidates.remove(turn);
        self.check_replicas(config, &chosen.log)?;
        Ok(chosen.home)
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
                let streams = registry.of_account(account).filter(|entry| entry.engine == id);
                Candidate { home: Home::Here(id), log, streams: streams.count() }
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

    /// Creates a stream, which was checked, in a log of another node. Its name and subjects are taken until that node's
    /// table has it.
    pub(super) async fn create_elsewhere(
        &self,
        account: AccountId,
        changing: Changing,
        (node, log): (String, String),
        (config, body): (&StreamConfig, &[u8]),
    ) -> Answer {
        let call = format!("STREAM.CREATE.{}", config.name);
        let scope = Scope::Log(log);
        let work = async {
            let answer = self.hand_on(account, (&node, &scope), (&call, b"", body)).await;
            match answer {
                Some(answer) => Some(answer),
                None if self.comes_back(account, &node).await => {
                    // A stream that was made then is found as it is.
                    self.hand_on(account, (&node, &scope), (&call, b"", body)).await
                }
                None => None,
            }
        };
        let (answer, _changing) = changing.settle(claim(ELSEWHERE, config.clone()), work).await;
        answer.ok_or_else(|| unknown(&node))
    }

    /// Updates a stream of any node.
    pub(super) async fn update_anywhere(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let is_own = || self.streams.has(account, name);
        if let Some(served) = self.core.served(account).filter(|_| !is_own()) {
            self.check_whole(account)?;
            if let Some((node, _)) = served.find(name) {
                return self.update_elsewhere(account, (node, name), body).await;
            }
        }
        self.stream_update(account, name, body).await
    }

    /// Hands an update of a stream of another node on once its subjects are known to be free.
    pub(super) async fn update_elsewhere(
        &self,
        account: AccountId,
        (node, name): (String, &str),
        body: &[u8],
    ) -> Answer {
        let changing = self.rights.lock(account, name).await?;
        // What is wrong with it otherwise the node says.
        let config = self.read_config(body).map(|(config, _)| config).unwrap_or_default();
        let config = StreamConfig { name: name.to_owned(), ..config };
        self.admission.check_overlap(account, &config, true).await?;
        let call = format!("STREAM.UPDATE.{name}");
        let work = self.hand_on(account, (&node, &Scope::Node), (&call, b"", body));
        let (answer, _changing) = changing.settle(claim(ELSEWHERE, config), work).await;
        answer.ok_or_else(|| unknown(&node))
    }

    /// Waits until a node is connected again and has told of all its streams; `false`: that takes too long.
    async fn comes_back(&self, account: AccountId, node: &str) -> bool {
        let Some(served) = self.core.served(account) else { return false };
        let (mut changes, late) = (served.changes(), Instant::now() + FOUND_OUT_WITHIN);
        while !served.nodes().iter().any(|(name, _, is_complete)| name == node && *is_complete) {
            if !matches!(timeout_at(late, changes.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }
}

fn unknown(node: &str) -> JsError {
    let text = format!("node {node} was lost before it answered: whether it was done is not known");
    described(JsError::CLUSTER_NOT_AVAIL, text)
}
