//! How often a stream is kept, and what its infos say of that.
//!
//! The cluster's log is on all of its nodes, so a stream there is kept as often as there are nodes, however few
//! replicas were asked for; shown are those that were. Every other log is on one node only.

use crate::registry::DEFAULT_LOG;
use crate::service::JetStream;
use nuthatch_protocol::js::{ClusterInfo, ConsumerInfo, Nanos, PeerInfo, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;

/// What the names of quorum logs but the first begin with.
const QUORUM_LOG: &str = "default-";

/// The name of a quorum log of the cluster.
pub(super) fn quorum_log_name(number: u8) -> String {
    if number == 0 { DEFAULT_LOG.to_owned() } else { format!("{QUORUM_LOG}{number}") }
}

/// The number of the quorum log of this name; `None`: it is none.
pub(super) fn quorum_log_number(name: &str) -> Option<u8> {
    if name == DEFAULT_LOG {
        return Some(0);
    }
    name.strip_prefix(QUORUM_LOG)?.parse().ok()
}

/// True if the log of this name is on all nodes of a cluster.
pub(super) fn is_quorum_log(name: &str) -> bool {
    quorum_log_number(name).is_some()
}

/// Most replicas of a stream that can be asked for, of nodes of a cluster.
const CLUSTER_REPLICAS_MAX: i64 = 5;

impl JetStream {
    /// Most replicas of a stream: more than one are an error where there is one server.
    pub(super) fn replicas_max(&self) -> i64 {
        if self.core.cluster().is_some() { CLUSTER_REPLICAS_MAX } else { 1 }
    }

    /// Refuses replicas that a stream would not have in this log.
    pub(super) fn check_replicas(&self, config: &StreamConfig, log: &str) -> Result<(), JsError> {
        let Some(cluster) = self.core.cluster() else { return Ok(()) };
        let asked = usize::try_from(config.num_replicas).unwrap_or_default();
        let refuse = |why: String| {
            Err(JsError::CLUSTER_NO_PEERS
                .with_err(format!("no suitable peers for placement: {why}")))
        };
        if asked <= 1 {
            Ok(())
        } else if asked > cluster.size {
            refuse(format!("{asked} replicas are asked for and there are {} nodes", cluster.size))
        } else if !is_quorum_log(log) {
            refuse(format!(
                "log '{log}' is on one node; storage 'file' without a tag 'log:NAME' is on all"
            ))
        } else {
            Ok(())
        }
    }

    /// Fills in where a stream is kept, on a node of a cluster.
    pub(super) fn complete_cluster(&self, account: AccountId, info: &mut StreamInfo) {
        let name = &info.config.name;
        let Some(engine) = self.streams.read().get(account, name).map(|entry| entry.engine) else {
            return;
        };
        let replicas = usize::try_from(info.config.num_replicas).unwrap_or_default();
        if let Some(cluster) = self.cluster_of(engine, replicas) {
            info.cluster = Some(cluster);
        }
    }

    /// The same for a consumer in this log, which is kept as often as its stream unless it says otherwise.
    pub(super) fn complete_consumer_cluster(
        &self,
        (engine, of_stream): (LogId, i64),
        info: &mut ConsumerInfo,
    ) {
        let own = info.config.num_replicas;
        let replicas = if own > 0 { own } else { of_stream };
        info.cluster = self.cluster_of(engine, usize::try_from(replicas).unwrap_or_default());
    }

    /// The cluster part of infos about what is in this log: the leader, and the others of so many replicas.
    /// `None`: there is one server.
    pub(super) fn cluster_of(&self, engine: LogId, replicas: usize) -> Option<ClusterInfo> {
        let cluster = self.core.cluster()?;
        let keepers = self.core.keepers(&self.names.name_of(engine)).unwrap_or_default();
        let others = keepers.into_iter().take(replicas.saturating_sub(1));
        let replicas = others.map(|node| PeerInfo {
            name: node.name,
            current: node.is_current,
            offline: !node.is_connected,
            active: Nanos::try_from(node.silent.as_nanos()).unwrap_or(Nanos::MAX),
            lag: node.lag,
        });
        Some(ClusterInfo {
            name: cluster.name,
            leader: self.core.server_name().to_owned(),
            replicas: replicas.collect(),
        })
    }
}
