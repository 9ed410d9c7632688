//! The cluster of a server, for the console.

use nuthatch_cluster::{KeeperSight, LogSight};
use nuthatch_console::{Cluster, QuorumLog, Replica};
use nuthatch_server::server::Server;

/// What this node knows of it; `None`: it is alone, or has not found its cluster yet.
pub fn cluster(server: &Server) -> Option<Cluster> {
    let (found, name) = (server.cluster.get()?, server.nodes.cluster()?);
    let node = server.options().cluster.as_ref()?.name.clone();
    Some(Cluster {
        name: name.to_owned(),
        node,
        size: found.count(),
        logs: found.logs().iter().map(|log| quorum_log(log.sight())).collect(),
    })
}

fn quorum_log(sight: LogSight) -> QuorumLog {
    QuorumLog {
        name: sight.name,
        epoch: u64::from(sight.epoch.0),
        owner: sight.owner.map(|owner| owner.name),
        preferred: sight.preferred.name,
        replicas: sight.keepers.into_iter().map(replica).collect(),
    }
}

fn replica(keeper: KeeperSight) -> Replica {
    Replica {
        node: keeper.node.name,
        is_connected: keeper.connected,
        silent_ms: keeper
            .silent
            .map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
        lag: keeper.lag,
        is_fit: keeper.fit,
    }
}

/// What is wrong with it, one sentence each.
pub fn troubles(server: &Server) -> Vec<String> {
    let Some(cluster) = cluster(server) else { return Vec::new() };
    let mut found = Vec::new();
    let mut away: Vec<&str> = Vec::new();
    for log in &cluster.logs {
        if log.owner.is_none() {
            let name = &log.name;
            found.push(format!("Nobody owns the quorum log {name}: nothing is stored in it."));
        }
        away.extend(log.replicas.iter().filter(|r| !r.is_connected).map(|r| r.node.as_str()));
    }
    away.sort_unstable();
    away.dedup();
    found.extend(away.iter().map(|node| format!("The node {node} does not answer: see Cluster.")));
    found
}
