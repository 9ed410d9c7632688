//! The nodes of a cluster and its quorum logs, as this node knows them.

use super::super::Family;
use super::super::table as t;
use super::{put, put_all};
use crate::jetstream_port::followed::FollowedStreams;
use crate::logs::{is_quorum_log, standby_memory_bytes};
use crate::server::Server;
use nuthatch_cluster::{KeeperSight, LogSight, MEMORY_LOG, MemoryUsage, QuorumLog};
use std::collections::BTreeSet;
use std::sync::Arc;

mod nodes;
mod quorum_logs;

/// Those that a server has no numbers of that is alone.
const ALL: &[&t::Metric] = &[
    &t::CLUSTER_NODES,
    &t::CLUSTER_CONNECTED,
    &t::CLUSTER_KEEPERS,
    &t::CLUSTER_SPARES,
    &t::CLUSTER_REMOVED,
    &t::CLUSTER_MAY_STOP,
    &t::NODE_KEEPS,
    &t::NODE_DRAIN,
    &t::NODE_SILENT,
    &t::NODE_TURNED_AWAY,
    &t::NODE_PROTOCOL,
    &t::REPLACE_AFTER,
    &t::NODE_REPLACED_IN,
    &t::CHANGE_UNDER_WAY,
    &t::CHANGE_SECONDS,
    &t::ZONES,
    &t::ZONE_RISK,
    &t::WITHOUT_ZONE,
    &t::OWNER_ZONES_DIFFER,
    &t::OWNER_ZONES_EMPTY,
    &t::CATALOG_INFO,
    &t::CATALOG_LEADER,
    &t::CATALOG_SILENT,
    &t::CATALOG_FAILURES,
    &t::PROTOCOL,
    &t::PROTOCOL_AVAILABLE,
    &t::CLOCK_AGREED,
    &t::STANDBY_BYTES,
    &t::STANDBY_MAX,
    &t::QUORUM_OWNED,
    &t::QUORUM_BEHIND,
    &t::QUORUM_LAG,
    &t::QUORUM_ASKED,
    &t::QUORUM_ELSEWHERE,
    &t::QUORUM_ZONES,
    &t::QUORUM_ZONE_RISK,
    &t::QUORUM_COUNTS,
    &t::QUORUM_UNOPENED,
    &t::QUORUM_TAKEOVERS,
    &t::QUORUM_TAKEOVER,
    &t::QUORUM_MOVES,
    &t::QUORUM_NOTICED,
    &t::STANDBYS_DROPPED,
    &t::QUORUM_STANDBY,
    &t::DIRECT_GETS_NEAR,
    &t::QUORUM_MEMORY,
    &t::QUORUM_MEMORY_MAX,
    &t::QUORUM_ANEW,
];

/// A quorum log as this node sees it.
struct Log {
    log: Arc<QuorumLog>,
    name: String,
    sight: LogSight,
    is_owned: bool,
}

/// Names without numbers of a server that is alone, or has not found its cluster yet.
pub(super) fn of_cluster(page: &mut Vec<Family>, server: &Server) {
    let Some(cluster) = server.cluster.get() else {
        return ALL.iter().for_each(|metric| put_all(page, metric, [] as [(_, u64); 0]));
    };
    put(page, &t::CLUSTER_NODES, cluster.count() as u64);
    put(page, &t::CLUSTER_CONNECTED, connected(server).len() as u64 + 1);
    let sight = cluster.nodes();
    let logs: Vec<Log> = cluster.logs().iter().map(seen).collect();
    nodes::of_nodes(page, (server, cluster), &sight, &logs);
    of_owners(page, &logs);
    put_asked(page, server);
    quorum_logs::of_logs(page, server, &sight, &logs);
    of_standbys(page, server, &logs);
    of_memory(page, &logs);
}

fn seen(log: &Arc<QuorumLog>) -> Log {
    let (sight, is_owned) = (log.sight(), log.owned().is_some());
    Log { log: Arc::clone(log), name: sight.name.clone(), sight, is_owned }
}

fn of_owners(page: &mut Vec<Family>, logs: &[Log]) {
    let all = logs.iter().map(|log| (vec![log.name.as_str()], u64::from(log.is_owned)));
    put_all(page, &t::QUORUM_OWNED, all);
    // The owner alone knows what the others lack.
    let owned = || logs.iter().filter(|log| log.is_owned);
    let behind = owned().map(|log| (vec![log.name.as_str()], behind(&log.sight)));
    put_all(page, &t::QUORUM_BEHIND, behind);
    let told: Vec<(&str, Vec<&KeeperSight>)> =
        owned().map(|log| (&*log.name, others(&log.sight))).collect();
    let lags = told.iter().flat_map(|(log, all)| {
        all.iter().filter_map(|k| Some((vec![*log, k.node.name.as_str()], k.lag?)))
    });
    put_all(page, &t::QUORUM_LAG, lags);
}

fn of_standbys(page: &mut Vec<Family>, server: &Server, logs: &[Log]) {
    let bytes = |log: &Log| log.log.followed().map_or(0, |of| of.bytes);
    let standby: Vec<_> = logs.iter().map(|log| (vec![log.name.as_str()], bytes(log))).collect();
    put(page, &t::STANDBY_BYTES, standby.iter().map(|(_, bytes)| bytes).sum());
    put(page, &t::STANDBY_MAX, standby_memory_bytes(&server.options()));
    put_all(page, &t::QUORUM_STANDBY, standby);
    let near = server.jetstream().followed().map(FollowedStreams::answered);
    put(page, &t::DIRECT_GETS_NEAR, near.unwrap_or(0));
}

fn of_memory(page: &mut Vec<Family>, logs: &[Log]) {
    let in_memory: Vec<_> = logs.iter().map(|log| &log.log).filter(|l| l.is_in_memory()).collect();
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
