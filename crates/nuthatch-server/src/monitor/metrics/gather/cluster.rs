//! The nodes of a cluster and its quorum logs, as this node knows them.

use super::super::Family;
use super::super::table as t;
use super::{put, put_all};
use crate::server::Server;
use nuthatch_cluster::{KeeperSight, LogNumber, LogSight};
use std::collections::BTreeSet;

const ALL: [&t::Metric; 5] =
    [&t::CLUSTER_NODES, &t::CLUSTER_CONNECTED, &t::QUORUM_OWNED, &t::QUORUM_BEHIND, &t::QUORUM_LAG];

/// Names without numbers of a server that is alone, or has not found its cluster yet.
pub(super) fn of_cluster(page: &mut Vec<Family>, server: &Server) {
    let Some(cluster) = server.cluster.get() else {
        return ALL.iter().for_each(|metric| put_all(page, metric, []));
    };
    put(page, &t::CLUSTER_NODES, cluster.count() as u64);
    put(page, &t::CLUSTER_CONNECTED, connected(server).len() as u64 + 1);
    let logs: Vec<(String, LogSight, bool)> = cluster
        .logs()
        .iter()
        .map(|log| (log, log.sight()))
        .map(|(log, sight)| (name(sight.number), sight, log.owned().is_some()))
        .collect();
    let owned = logs.iter().map(|(name, _, owned)| (vec![name.as_str()], u64::from(*owned)));
    put_all(page, &t::QUORUM_OWNED, owned);
    // The owner alone knows what the others lack.
    let told: Vec<(&str, Vec<&KeeperSight>)> =
        logs.iter().filter(|log| log.2).map(|(name, sight, _)| (&**name, others(sight))).collect();
    let behind =
        |keepers: &[&KeeperSight]| keepers.iter().filter(|k| !k.is_current()).count() as u64;
    put_all(page, &t::QUORUM_BEHIND, told.iter().map(|(log, all)| (vec![*log], behind(all))));
    let lags = told.iter().flat_map(|(log, all)| {
        all.iter().filter_map(|k| Some((vec![*log, k.node.name.as_str()], k.lag?)))
    });
    put_all(page, &t::QUORUM_LAG, lags);
}

/// The other nodes that at least one account is connected to.
fn connected(server: &Server) -> BTreeSet<String> {
    let open = server.nodes.connections.open();
    open.iter().filter_map(|conn| Some(conn.link()?.remote_name.clone())).collect()
}

/// As the JetStream service names it.
fn name(number: LogNumber) -> String {
    if number == LogNumber::FIRST { "default".to_owned() } else { format!("default-{number}") }
}

fn others(sight: &LogSight) -> Vec<&KeeperSight> {
    let owner = sight.owner.as_ref().map_or("", |owner| &owner.name);
    sight.keepers_but(owner)
}
