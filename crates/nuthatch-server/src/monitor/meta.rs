//! What nats-server calls the metadata group of a cluster. Here one node decides which streams there are: the owner of
//! the first quorum log; the members are that log's keepers.

use crate::jetstream_port::JsStream;
use crate::nodes::peer_id;
use crate::server::Server;
use nuthatch_cluster::{KeeperSight, LogSight};
use nuthatch_protocol::js::StorageType;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `meta_cluster` of `/jsz`, `meta` of `/varz` and of a server's statistics; `None`: this server is alone, or has not
/// found its cluster yet. The leader alone shows the others, as nats-server does.
pub(super) fn meta(server: &Server) -> Option<Value> {
    let (cluster, name) = (server.cluster.get()?, server.nodes.cluster()?);
    let first = cluster.logs().first()?;
    let sight = first.sight();
    let leader = sight.owner.as_ref().map_or("", |owner| &owner.name);
    let size = cluster.size();
    let mut out = json!({
        "name": name,
        "leader": leader,
        "cluster_size": size,
        "quorum_needed": size / 2 + 1,
        "pending": 0,
    });
    if !leader.is_empty() {
        out["peer"] = json!(peer_id(leader));
    }
    if first.owned().is_some() {
        let replicas: Vec<Value> = sight.keepers_but(leader).into_iter().map(replica).collect();
        out["replicas"] = Value::Array(replicas);
    }
    Some(out)
}

/// True if nobody decides about streams, and nobody can: the nodes that this one hears are no majority. While one of them is
/// about to, that is false.
pub(super) fn is_stalled(server: &Server) -> bool {
    let Some(first) = server.cluster.get().and_then(|cluster| cluster.logs().first()) else {
        return false;
    };
    let sight = first.sight();
    let near = sight.keepers.iter().filter(|keeper| keeper.connected).count();
    sight.owner.is_none() && 2 * near <= sight.keepers.len()
}

/// The name of a log of which this node, which has just started, is not one of the majority yet: if another node ended now,
/// nobody could own the log until that one is back, and one in memory would be lost.
pub(super) fn not_taken_in(server: &Server) -> Option<String> {
    let logs = server.cluster.get()?.logs();
    let new = logs.iter().find(|log| !log.counts_here());
    new.map(|log| log.name())
}

/// The name of a log that this node owns and could not open.
pub(super) fn not_opened(server: &Server) -> Option<String> {
    let logs = server.cluster.get()?.logs();
    let broken = logs.iter().find(|log| log.owned().is_some() && log.is_unopened());
    broken.map(|log| log.name())
}

/// True if another node of the cluster leads, or none.
pub fn is_follower(server: &Server) -> bool {
    let first = server.cluster.get().and_then(|cluster| cluster.logs().first());
    first.is_some_and(|log| log.owned().is_none())
}

/// The clusters of streams and consumers of this server, by log.
pub(super) struct Clusters {
    leader: String,
    name: Option<String>,
    /// The other keepers of each quorum log that this server owns.
    others: BTreeMap<String, Vec<Value>>,
    /// Groups are asked for.
    groups: bool,
}

impl Clusters {
    pub(super) fn of(server: &Server, groups: bool) -> Self {
        let logs = server.cluster.get().map_or(&[][..], |cluster| cluster.logs());
        let others_of = |sight: &LogSight| {
            let leader = sight.owner.as_ref().map_or("", |owner| &owner.name);
            sight.keepers_but(leader).into_iter().map(replica).collect()
        };
        let sights = logs.iter().filter(|log| log.owned().is_some()).map(|log| log.sight());
        let others = sights.map(|sight| (sight.name.clone(), others_of(&sight))).collect();
        let name = server.cluster.get().and(server.nodes.cluster()).map(str::to_owned);
        Self { leader: server.name.clone(), name, others, groups }
    }

    /// What keeps a stream on several servers, if that is asked for. Tools count leaders by it, so it names the stream, too: a
    /// log has many.
    pub(super) fn group_of(&self, stream: &JsStream) -> Option<String> {
        let (config, log) = (&stream.config, &stream.log);
        let replicas = config.num_replicas;
        let storage = if config.storage == StorageType::File { 'F' } else { 'M' };
        let is_shown = self.groups && replicas > 1;
        is_shown.then(|| format!("S-R{replicas}{storage}-{log}-{}", config.name))
    }

    /// `cluster` of what is in a log and has so many replicas.
    pub(super) fn show(&self, log: &str, replicas: i64) -> Value {
        let mut out = json!({ "leader": self.leader });
        if let Some(name) = &self.name {
            out["name"] = json!(name);
        }
        let count = usize::try_from(replicas - 1).unwrap_or_default();
        let others = self.others.get(log).into_iter().flatten().take(count).cloned();
        let others: Vec<Value> = others.collect();
        if !others.is_empty() {
            out["replicas"] = Value::Array(others);
        }
        out
    }
}

fn replica(keeper: &KeeperSight) -> Value {
    let silent = keeper
        .silent
        .map_or(u64::MAX >> 1, |silent| u64::try_from(silent.as_nanos()).unwrap_or(u64::MAX >> 1));
    let name = &keeper.node.name;
    let (current, peer) = (keeper.is_current(), peer_id(name));
    let mut out = json!({ "name": name, "current": current, "active": silent, "peer": peer });
    if !keeper.connected {
        out["offline"] = json!(true);
    }
    if let Some(lag) = keeper.lag.filter(|lag| *lag > 0) {
        out["lag"] = json!(lag);
    }
    out
}
