//! How often a stream is kept, and what its infos say of that.
//!
//! The cluster's log is on all of its nodes, so a stream there is kept as often as there are nodes, however few
//! replicas were asked for; shown are those that were. Every other log is on one node only.

use crate::core_port::{CorePort, OtherNode};
use crate::log_names::LogNames;
use crate::registry::{MEMORY_LOG, is_quorum_log};
use nuthatch_protocol::js::{ClusterInfo, Nanos, PeerInfo, StorageType, StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::nodes::peer_id;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most replicas of a stream that can be asked for, of nodes of a cluster.
const CLUSTER_REPLICAS_MAX: i64 = 5;

/// Another node, as infos and advisories show it.
pub(super) fn peer(node: OtherNode) -> PeerInfo {
    PeerInfo {
        peer: peer_id(&node.name),
        name: node.name,
        current: node.is_current,
        offline: !node.is_connected,
        active: Nanos::try_from(node.silent.as_nanos()).unwrap_or(Nanos::MAX),
        lag: node.lag,
    }
}

/// This server, as advisories show it.
pub(super) fn own_peer(name: &str) -> PeerInfo {
    let (peer, name) = (peer_id(name), name.to_owned());
    PeerInfo { name, current: true, peer, ..PeerInfo::default() }
}

/// Which nodes keep what.
pub(super) struct Replicas {
    core: Arc<dyn CorePort>,
    names: Arc<LogNames>,
    /// Since when this node leads what is in each quorum log that it owns.
    led_since: RwLock<BTreeMap<LogId, Time>>,
}

/// What infos are of: how nats-server calls its groups begins with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InfoOf {
    /// A stream.
    Stream,
    /// A consumer.
    Consumer,
}

impl Replicas {
    pub(super) fn new(core: Arc<dyn CorePort>, names: Arc<LogNames>) -> Self {
        Self { core, names, led_since: RwLock::default() }
    }

    /// This node has come to lead what is in a log.
    pub(super) fn leads(&self, log: LogId) {
        self.led_since.write().insert(log, self.core.now());
    }

    /// Most replicas of a stream: more than one are an error where there is one server.
    pub(super) fn max(&self) -> i64 {
        if self.core.cluster().is_some() { CLUSTER_REPLICAS_MAX } else { 1 }
    }

    /// Refuses replicas that a stream would not have in this log.
    pub(super) fn check(&self, config: &StreamConfig, log: &str) -> Result<(), JsError> {
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
            let on_all = match log {
                MEMORY_LOG => "a stream of storage 'memory' that is created with several replicas",
                _ => "storage 'file' without a tag 'log:NAME'",
            };
            refuse(format!("log '{log}' is on one node; {on_all} is on all"))
        } else {
            Ok(())
        }
    }

    /// The cluster part of infos about what is in this log: the leader, and the others of so many replicas. A group in the
    /// sense of nats-server is the log: all streams in it have the same but for the number of replicas. `None`: there is one
    /// server.
    pub(super) fn cluster_of(
        &self,
        (of, storage): (InfoOf, StorageType),
        engine: LogId,
        replicas: usize,
    ) -> Option<ClusterInfo> {
        let cluster = self.core.cluster()?;
        let log = self.names.name_of(engine);
        let info = ClusterInfo {
            name: cluster.name,
            leader: self.core.server_name().to_owned(),
            ..ClusterInfo::default()
        };
        if replicas <= 1 || !is_quorum_log(&log) {
            return Some(info);
        }
        let keepers = self.core.keepers(&log).unwrap_or_default();
        Some(ClusterInfo {
            raft_group: group((of, storage), &log, replicas),
            leader_since: self.led_since.read().get(&engine).copied(),
            system_account: true,
            traffic_account: self.core.system_account(),
            replicas: keepers.into_iter().take(replicas - 1).map(peer).collect(),
            ..info
        })
    }
}

/// The name of a group, of the form of nats-server's.
fn group((of, storage): (InfoOf, StorageType), log: &str, replicas: usize) -> String {
    let of = if of == InfoOf::Stream { 'S' } else { 'C' };
    let storage = if storage == StorageType::File { 'F' } else { 'M' };
    format!("{of}-R{replicas}{storage}-{log}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_called_by_what_they_are_of() {
        let name = |of, storage| group((of, storage), "default-2", 3);
        assert_eq!(name(InfoOf::Stream, StorageType::File), "S-R3F-default-2");
        assert_eq!(name(InfoOf::Consumer, StorageType::Memory), "C-R3M-default-2");
    }
}
