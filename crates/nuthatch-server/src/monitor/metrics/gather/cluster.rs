//! The nodes of a cluster and its quorum logs, as this node knows them.

use super::super::Family;
use super::super::table as t;
use super::{put, put_all};
use crate::jetstream_port::followed::FollowedStreams;
use crate::logs::is_quorum_log;
use crate::server::Server;
use nuthatch_cluster::{KeeperSight, LogSight, MEMORY_LOG, MemoryUsage};
use std::collections::BTreeSet;

const ALL: [&t::Metric; 11] = [
    &t::CLUSTER_NODES,
    &t::CLUSTER_CONNECTED,
    &t::QUORUM_OWNED,
    &t::QUORUM_BEHIND,
    &t::QUORUM_LAG,
    &t::QUORUM_ASKED,
    &t::QUORUM_STANDBY,
    &t::DIRECT_GETS_NEAR,
    &t::QUORUM_MEMORY,
    &t::QUORUM_MEMORY_MAX,
    &t::QUORUM_ANEW,
];

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
        .map(|(log, sight)| (sight.name.clone(), sight, log.owned().is_some()))
        .collect();
    let owned = logs.iter().map(|(name, _, owned)| (vec![name.as_str()], u64::from(*owned)));
    put_all(page, &t::QUORUM_OWNED, owned);
    // The owner alone knows what the others lack.
    let told: Vec<(&str, Vec<&KeeperSight>)> =
        logs.iter().filter(|log| log.2).map(|(name, sight, _)| (&**name, others(sight))).collect();
    let owned = logs.iter().filter(|log| log.2);
    let behind = owned.map(|(name, sight, _)| (vec![name.as_str()], behind(sight)));
    put_all(page, &t::QUORUM_BEHIND, behind);
    let lags = told.iter().flat_map(|(log, all)| {
        all.iter().filter_map(|k| Some((vec![*log, k.node.name.as_str()], k.lag?)))
    });
    put_all(page, &t::QUORUM_LAG, lags);
    put_asked(page, server);
    let standby = cluster.logs().iter().map(|log| (log.name(), log.followed()));
    let standby: Vec<_> = standby.map(|(log, of)| (log, of.map_or(0, |of| of.bytes))).collect();
    let standby = standby.iter().map(|(log, bytes)| (vec![log.as_str()], *bytes));
    put_all(page, &t::QUORUM_STANDBY, standby);
    let near = server.jetstream().followed().map(FollowedStreams::answered);
    put(page, &t::DIRECT_GETS_NEAR, near.unwrap_or(0));
    let in_memory: Vec<_> = cluster.logs().iter().filter(|log| log.is_in_memory()).collect();
    let usage = |of: fn(MemoryUsage) -> u64| {
        in_memory.iter().filter_map(move |log| Some((vec![MEMORY_LOG], of(log.memory()?))))
    };
    put_all(page, &t::QUORUM_MEMORY, usage(|usage| usage.bytes));
    put_all(page, &t::QUORUM_MEMORY_MAX, usage(|usage| usage.bytes_max));
    let anew = in_memory.iter().map(|log| (vec![MEMORY_LOG], log.began_anew()));
    put_all(page, &t::QUORUM_ANEW, anew);
}

/// What clients ask of the quorum logs that this node owns, which alone of its logs are asked by those of other nodes.
fn put_asked(page: &mut Vec<Family>, server: &Server) {
    let options = server.options();
    let node = options.cluster.as_ref().map_or("", |cluster| &cluster.name);
    let logs = server.jetstream().view().logs();
    let asked = logs.iter().filter(|log| is_quorum_log(&log.name)).flat_map(|log| {
        let others = log.asked_elsewhere.iter().map(|(node, asked)| (node.as_str(), *asked));
        let all = others.chain([(node, log.asked_here)]);
        all.map(|(node, asked)| (vec![log.name.as_str(), node], asked))
    });
    put_all(page, &t::QUORUM_ASKED, asked);
}

/// The other nodes that at least one account is connected to.
fn connected(server: &Server) -> BTreeSet<String> {
    let open = server.nodes.connections.open();
    open.iter().filter_map(|conn| Some(conn.link()?.remote_name.clone())).collect()
}

fn behind(sight: &LogSight) -> u64 {
    let owner = sight.owner.as_ref().map_or("", |owner| &owner.name);
    sight.behind(owner) as u64
}

fn others(sight: &LogSight) -> Vec<&KeeperSight> {
    let owner = sight.owner.as_ref().map_or("", |owner| &owner.name);
    sight.keepers_but(owner)
}
