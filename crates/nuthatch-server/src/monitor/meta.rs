//! What nats-server calls the metadata group of a cluster. Here one node decides which streams there are: the owner of
//! the first quorum log; the members are that log's keepers.

use crate::nodes::peer_id;
use crate::server::Server;
use nuthatch_cluster::KeeperSight;
use serde_json::{Value, json};

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

/// True if another node of the cluster leads, or none.
pub fn is_follower(server: &Server) -> bool {
    let first = server.cluster.get().and_then(|cluster| cluster.logs().first());
    first.is_some_and(|log| log.owned().is_none())
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
