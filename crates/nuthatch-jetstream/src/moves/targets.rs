//! The quorum logs that streams move to, at this node: a stream moves where both of its logs are.

use crate::log_names::{LogNames, LogPlace};
use crate::logs_port::LogsPort;
use crate::node_questions::{HandoverQuestion, NODE_HANDOVER};
use crate::other_nodes::OtherNodes;
use crate::outcome::described;
use crate::registry::{is_memory_log, quorum_log_number};
use crate::stream_table::StreamTable;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long it is waited for a quorum log that its owner hands over.
const BROUGHT_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether it is here.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Finds logs for streams that move.
pub(crate) struct Targets {
    pub(crate) logs: Arc<dyn LogsPort>,
    pub(crate) names: Arc<LogNames>,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) nodes: Arc<OtherNodes>,
    /// Names of all quorum logs on disks or in a bucket, of which this node owns some.
    pub(crate) all: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl Targets {
    /// The log of this name. A quorum log that another node owns comes here first.
    ///
    /// # Errors
    /// There is none, or its owner does not hand it over.
    pub(crate) async fn named(&self, account: AccountId, name: &str) -> Result<LogId, JsError> {
        let here = self.names.find(name).filter(|log| !self.logs.is_withdrawn(*log));
        let is_elsewhere = here.is_none()
            && quorum_log_number(name).is_some()
            && (self.all)().iter().any(|known| known == name);
        if !is_elsewhere || is_memory_log(name) {
            return self.names.chosen(name);
        }
        self.bring(account, name).await
    }

    /// A quorum log for a stream of the account: of those that are here the one with the fewest streams of the account, else
    /// the last of all, which comes here first.
    ///
    /// # Errors
    /// There is none, or its owner does not hand it over.
    pub(crate) async fn any(&self, account: AccountId) -> Result<LogId, JsError> {
        if let Some(log) = self.here(account) {
            return Ok(log);
        }
        let mut all = (self.all)();
        all.retain(|name| quorum_log_number(name).is_some());
        let last = all.into_iter().max_by_key(|name| quorum_log_number(name));
        let Some(last) = last else { return Err(self.names.none_of("default")) };
        self.bring(account, &last).await
    }

    /// Of the quorum logs that this node owns, and goes on to own, the one with the fewest streams of the account.
    pub(crate) fn here(&self, account: AccountId) -> Option<LogId> {
        let count = |log: &LogId| self.streams.read().count_in(account, *log);
        let logs = self.whole_quorum_logs().into_iter();
        logs.filter(|log| !self.logs.is_withdrawn(*log)).min_by_key(count)
    }

    fn whole_quorum_logs(&self) -> Vec<LogId> {
        let whole = self.logs.whole();
        let attached = self.names.all().into_iter();
        let quorum = attached.filter(|(name, _)| quorum_log_number(name).is_some());
        quorum.filter(|(name, _)| whole.contains(name)).map(|(_, log)| log).collect()
    }

    /// Has its owner hand a quorum log over to this node.
    async fn bring(&self, account: AccountId, name: &str) -> Result<LogId, JsError> {
        let node = self.names.node().unwrap_or_default();
        let question = HandoverQuestion { log: name.to_owned(), to: node.to_owned() };
        let body = serde_json::to_vec(&question).expect("names become JSON");
        let place = LogPlace::Quorum(name.to_owned());
        let late = Instant::now() + BROUGHT_WITHIN;
        let question = (NODE_HANDOVER, body.as_slice());
        let asked = self.nodes.ask_owner(account, &place, question, BROUGHT_WITHIN).await;
        while asked.is_some() && Instant::now() < late {
            let whole = self.logs.whole();
            let here = self.names.find(name).filter(|log| !self.logs.is_withdrawn(*log));
            if let Some(log) = here.filter(|_| whole.iter().any(|log| log == name)) {
                return Ok(log);
            }
            sleep(LOOK_PAUSE).await;
        }
        let why = format!(
            "a stream moves where both of its logs are, and the owner of quorum log {name:?} does not hand it over to node \
             {node}: try again later"
        );
        Err(described(JsError::CLUSTER_NOT_AVAIL, why))
    }
}
