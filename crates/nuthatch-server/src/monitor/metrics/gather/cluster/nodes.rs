//! Who the nodes are, what changes, where they are, what they speak, and their catalog.

use super::super::{put, put_all, put_number};
use super::{Family, Log, t};
use crate::cluster_sight::{Change, all_know, may_stop};
use crate::monitor::metrics::Number;
use crate::server::Server;
use nuthatch_cluster::{BUILT_IN, Cluster, Drain, NodeSight, NodesSight};
use std::time::{Duration, Instant};

pub(super) fn of_nodes(
    page: &mut Vec<Family>,
    (server, cluster): (&Server, &Cluster),
    sight: &NodesSight,
    logs: &[Log],
) {
    let keepers = sight.nodes.iter().filter(|node| node.keeps).count();
    put(page, &t::CLUSTER_KEEPERS, keepers as u64);
    put(page, &t::CLUSTER_SPARES, (sight.nodes.len() - keepers) as u64);
    put(page, &t::CLUSTER_REMOVED, sight.removed.len() as u64);
    let known = logs.iter().map(|log| (&log.sight, log.is_owned));
    put(page, &t::CLUSTER_MAY_STOP, u64::from(may_stop(sight, known)));
    of_each(page, sight);
    of_silence(page, server, sight);
    of_change(page, server, sight);
    of_zones(page, (server, cluster), sight);
    of_catalog(page, server, sight, logs);
    // Without a majority there is nobody to agree or not.
    let heard = sight.nodes.iter().filter(|node| node.keeps && node.connected).count();
    let agreed = (heard > keepers / 2).then(|| (vec![], u64::from(cluster.clock_is_agreed())));
    put_all(page, &t::CLOCK_AGREED, agreed);
}

fn of_each(page: &mut Vec<Family>, sight: &NodesSight) {
    let mut each = |metric, value: &dyn Fn(&NodeSight) -> Option<u64>| {
        let nodes = sight.nodes.iter();
        let told = nodes.filter_map(|node| Some((vec![node.name.as_str()], value(node)?)));
        put_all(page, metric, told);
    };
    each(&t::NODE_KEEPS, &|node| Some(u64::from(node.keeps)));
    each(&t::NODE_TURNED_AWAY, &|node| Some(u64::from(node.turned_away.is_some())));
    each(&t::NODE_PROTOCOL, &|node| node.speaks.map(|speaks| u64::from(speaks.newest.0)));
    let drain = sight.nodes.iter().flat_map(|node| {
        [("draining", Drain::Draining), ("drained", Drain::Drained)]
            .map(|(name, state)| (vec![&*node.name, name], u64::from(node.drain == Some(state))))
    });
    put_all(page, &t::NODE_DRAIN, drain);
    put(page, &t::PROTOCOL, sight.active.map_or(0, |active| u64::from(active.0)));
    let available = all_know(sight);
    put_all(page, &t::PROTOCOL_AVAILABLE, available.map(|newest| (vec![], u64::from(newest))));
}

fn of_silence(page: &mut Vec<Family>, server: &Server, sight: &NodesSight) {
    let uptime = Duration::from_millis(server.uptime_ms());
    let silent = |node: &NodeSight| node.silent.unwrap_or(uptime);
    let all = sight.nodes.iter().map(|node| (vec![&*node.name], silent(node).as_secs_f64()));
    put_all(page, &t::NODE_SILENT, all);
    let options = server.options();
    let after = options.cluster.as_ref().and_then(|settings| settings.replace_after);
    let seconds = after.map_or(0.0, |after| after.as_secs_f64());
    put_number(page, &t::REPLACE_AFTER, Number::Real(seconds));
    let is_due = |node: &&NodeSight| node.keeps && !node.connected && node.drain.is_none();
    let is_free = Change::of(sight).is_none();
    let due = after.filter(|_| is_free).into_iter().flat_map(|after| {
        let away = sight.nodes.iter().filter(is_due);
        away.map(move |node| (vec![&*node.name], after.saturating_sub(silent(node)).as_secs_f64()))
    });
    put_all(page, &t::NODE_REPLACED_IN, due);
}

fn of_change(page: &mut Vec<Family>, server: &Server, sight: &NodesSight) {
    let since = server.nodes.counts.note_change(sight.change(), Instant::now());
    let (is, since) = (Change::of(sight), since.map_or(0.0, |since| since.as_secs_f64()));
    let under_way = Change::ALL.map(|one| (vec![one.name()], u64::from(is == Some(one))));
    put_all(page, &t::CHANGE_UNDER_WAY, under_way);
    let seconds = |one| if is == Some(one) { since } else { 0.0 };
    put_all(page, &t::CHANGE_SECONDS, Change::ALL.map(|one| (vec![one.name()], seconds(one))));
}

fn of_zones(page: &mut Vec<Family>, (server, cluster): (&Server, &Cluster), sight: &NodesSight) {
    let zones = &sight.zones;
    put(page, &t::ZONES, zones.keepers.len() as u64);
    put(page, &t::ZONE_RISK, u64::from(zones.risk().is_some()));
    put(page, &t::WITHOUT_ZONE, zones.without_zone.len() as u64);
    put(page, &t::OWNER_ZONES_DIFFER, u64::from(cluster.owner_zones_differ()));
    let options = server.options();
    let owner_zones = options.cluster.as_ref().map_or(&[][..], |settings| &settings.owner_zones);
    let is_empty =
        !owner_zones.is_empty() && owner_zones.iter().all(|zone| !zones.keepers.contains_key(zone));
    put(page, &t::OWNER_ZONES_EMPTY, u64::from(is_empty));
}

fn of_catalog(page: &mut Vec<Family>, server: &Server, sight: &NodesSight, logs: &[Log]) {
    let options = server.options();
    let Some(settings) = &options.cluster else { return };
    put_all(page, &t::CATALOG_INFO, [(vec![kind(&settings.catalog)], 1_u64)]);
    let leads = sight.leader.as_ref() == Some(&settings.name);
    put(page, &t::CATALOG_LEADER, u64::from(leads));
    let asked: Vec<(Duration, u64)> = logs.iter().map(|log| log.log.catalog()).collect();
    let silent = asked.iter().map(|(silent, _)| *silent).max().unwrap_or_default();
    put_number(page, &t::CATALOG_SILENT, Number::Real(silent.as_secs_f64()));
    put(page, &t::CATALOG_FAILURES, asked.iter().map(|(_, failures)| failures).sum());
}

/// Where a catalog is.
fn kind(address: &str) -> &'static str {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        _ if address == BUILT_IN => "built-in",
        Some("etcd" | "etcds") => "etcd",
        Some("file") | None => "directory",
        Some(_) => "bucket",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_is_in_one_of_four_places() {
        for (address, expected) in [
            ("built-in", "built-in"),
            ("file:///c", "directory"),
            ("FILE:/c", "directory"),
            ("S3://b/c", "bucket"),
            ("gs://b/c", "bucket"),
            ("etcds://h:2379/c", "etcd"),
        ] {
            assert_eq!(kind(address), expected, "{address}");
        }
    }
}
