//! The cluster of a server, for the console.

use nuthatch_cluster::{Drain, KeeperSight, LogSight, NodeSight, NodesSight};
use nuthatch_console::{Cluster, ClusterNode, QuorumLog, Replica};
use nuthatch_server::cluster_sight::{all_know, may_stop};
use nuthatch_server::server::Server;
use std::time::{Duration, Instant};

/// A catalog that answers nothing for so long is told: it is asked five times a second.
const CATALOG_SILENT: Duration = Duration::from_secs(3);

/// What this node knows of it; `None`: it is alone, or has not found its cluster yet.
pub fn cluster(server: &Server) -> Option<Cluster> {
    let (found, name) = (server.cluster.get()?, server.nodes.cluster()?);
    let node = server.options().cluster.as_ref()?.name.clone();
    let sight = found.nodes();
    let logs: Vec<(LogSight, bool)> =
        found.logs().iter().map(|log| (log.sight(), log.owned().is_some())).collect();
    Some(Cluster {
        name: name.to_owned(),
        node,
        size: found.count(),
        nodes: sight.nodes.iter().map(cluster_node).collect(),
        states: states(server, found, &sight),
        may_stop: may_stop(&sight, logs.iter().map(|(log, is_owned)| (log, *is_owned))),
        logs: logs.into_iter().map(|(log, _)| quorum_log(log)).collect(),
    })
}

fn cluster_node(node: &NodeSight) -> ClusterNode {
    ClusterNode {
        name: node.name.clone(),
        is_spare: !node.keeps,
        drain: node.drain.map(|drain| match drain {
            Drain::Draining => "draining",
            Drain::Drained => "drained",
        }),
        zone: node.zone.as_ref().map(ToString::to_string),
        is_connected: node.connected,
        silent_ms: node.silent.map(millis),
        turned_away: node.turned_away.clone(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What is under way, and what an operator should know of.
fn states(server: &Server, found: &nuthatch_cluster::Cluster, sight: &NodesSight) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(since) = server.nodes.counts.note_change(sight.change(), Instant::now()) {
        told.push(format!(
            "{}, for {} s as this node has seen it.",
            change(sight),
            since.as_secs()
        ));
    }
    let silent = found.logs().iter().map(|log| log.catalog().0).max().unwrap_or_default();
    if silent >= CATALOG_SILENT {
        told.push(format!(
            "The catalog has answered nothing for {} s: what is owned goes on, nothing can be taken over, handed over or changed.",
            silent.as_secs()
        ));
    }
    if let Some(risk) = sight.zones.risk() {
        let risk = risk.to_string();
        told.push(format!("{}.", risk.replacen("the loss", "The loss", 1)));
    }
    if !sight.zones.without_zone.is_empty() {
        let names = sight.zones.without_zone.join(", ");
        told.push(format!("Other nodes say their zones, and these do not: {names}."));
    }
    if found.owner_zones_differ() {
        told.push("Another node has other owner_zones than this one.".to_owned());
    }
    let newer = all_know(sight).zip(sight.active).filter(|(known, active)| *known > active.0);
    if let Some((known, active)) = newer {
        told.push(format!(
            "All nodes know protocol {known}, and speak {active}: nuthatch cluster finalize, once none is to go back."
        ));
    }
    let away = sight.nodes.iter().filter_map(|node| Some((node, node.turned_away.as_ref()?)));
    told.extend(away.map(|(node, why)| format!("The node {} is turned away: {why}.", node.name)));
    told
}

/// How the nodes that keep the logs change.
fn change(sight: &NodesSight) -> String {
    match (&sight.replacing, &sight.resizing) {
        (Some((old, new)), _) => format!("{new} takes the place of {old}"),
        (None, Some((nodes, true))) => format!("To keep the logs, too: {}", nodes.join(", ")),
        (None, Some((nodes, false))) => format!("To become spares: {}", nodes.join(", ")),
        (None, None) => String::new(),
    }
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
        silent_ms: keeper.silent.map(millis),
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
