//! What becomes of each quorum log.

use super::super::put_all;
use super::{Family, Log, t};
use crate::cluster_counts::LogCounts;
use crate::monitor::metrics::{Number, Sample};
use crate::server::Server;
use nuthatch_cluster::{NodeName, NodesSight, takes_majority};
use std::collections::BTreeMap;

pub(super) fn of_logs(page: &mut Vec<Family>, server: &Server, sight: &NodesSight, logs: &[Log]) {
    of_places(page, sight, logs);
    let bit = |metric, page: &mut Vec<Family>, is_so: &dyn Fn(&Log) -> bool| {
        let all = logs.iter().map(|log| (vec![log.name.as_str()], u64::from(is_so(log))));
        put_all(page, metric, all);
    };
    bit(&t::QUORUM_COUNTS, page, &|log| log.log.counts_here());
    bit(&t::QUORUM_UNOPENED, page, &|log| log.is_owned && log.log.is_unopened());
    let counts = &server.nodes.counts;
    let counted: Vec<(&str, LogCounts)> =
        logs.iter().map(|log| (&*log.name, counts.log(log.log.number().0))).collect();
    let takeovers = counted.iter().flat_map(|(log, counts)| {
        [(vec![*log, "loss"], counts.after_loss), (vec![*log, "handover"], counts.handed_over)]
    });
    put_all(page, &t::QUORUM_TAKEOVERS, takeovers);
    let took = counted.iter().map(|(log, counts)| Sample {
        labels: vec![(*log).to_owned()],
        value: Number::Latency(Box::new(counts.takeover)),
    });
    page.push(Family { metric: &t::QUORUM_TAKEOVER, samples: took.collect() });
    let moves = counted.iter().flat_map(|(log, counts)| {
        [(vec![*log, "node"], counts.moves), (vec![*log, "keepers"], counts.changes_of_set)]
    });
    put_all(page, &t::QUORUM_MOVES, moves);
    let noticed = logs.iter().flat_map(|log| {
        log.log.noticed().map(|(what, count)| (vec![log.name.as_str(), what], count))
    });
    put_all(page, &t::QUORUM_NOTICED, noticed);
    let dropped = counted.iter().map(|(log, counts)| (vec![*log], counts.standbys_dropped));
    put_all(page, &t::STANDBYS_DROPPED, dropped);
}

/// Where it is, and where it is to be.
fn of_places(page: &mut Vec<Family>, sight: &NodesSight, logs: &[Log]) {
    // What another node owns that one tells.
    let owned = || logs.iter().filter(|log| log.is_owned);
    let is_other = |log: &Log, node: Option<&NodeName>| {
        let owner = log.sight.owner.as_ref().map(|owner| owner.id);
        owner.is_some() && node.is_some_and(|node| Some(node.id) != owner)
    };
    let elsewhere = owned().flat_map(|log| {
        let sight = &log.sight;
        [
            ("place", is_other(log, Some(&sight.preferred))),
            ("move_log", is_other(log, sight.asked_owner.as_ref())),
            ("owner_zones", sight.owner_is_outside),
        ]
        .map(|(than, is_so)| (vec![&*log.name, than], u64::from(is_so)))
    });
    put_all(page, &t::QUORUM_ELSEWHERE, elsewhere);
    let zones: Vec<(&str, Zones)> =
        logs.iter().map(|log| (&*log.name, Zones::of(log, sight))).collect();
    put_all(page, &t::QUORUM_ZONES, zones.iter().map(|(log, of)| (vec![*log], of.count)));
    let risk = zones.iter().map(|(log, of)| (vec![*log], u64::from(of.is_at_risk)));
    put_all(page, &t::QUORUM_ZONE_RISK, risk);
}

/// The zones of a log's replicas.
struct Zones {
    count: u64,
    /// The loss of one leaves no majority. Replicas of which no zone is known are taken to be elsewhere.
    is_at_risk: bool,
}

impl Zones {
    fn of(log: &Log, sight: &NodesSight) -> Self {
        let zone = |name: &str| {
            let node = sight.nodes.iter().find(|node| node.name == name)?;
            node.zone.as_ref()
        };
        let keepers = &log.sight.keepers;
        Self::among(keepers.len(), keepers.iter().filter_map(|keeper| zone(&keeper.node.name)))
    }

    fn among<T: Ord>(replicas: usize, zones: impl Iterator<Item = T>) -> Self {
        let mut by_zone = BTreeMap::<T, usize>::new();
        zones.for_each(|zone| *by_zone.entry(zone).or_default() += 1);
        let is_at_risk = by_zone.values().any(|there| takes_majority(*there, replicas));
        Self { count: by_zone.len() as u64, is_at_risk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_with_half_of_the_replicas_takes_the_majority_with_it() {
        let zones = |replicas, zones: &str| {
            let of = Zones::among(replicas, zones.chars());
            (of.count, of.is_at_risk)
        };
        assert_eq!(zones(3, ""), (0, false));
        assert_eq!(zones(3, "abc"), (3, false));
        assert_eq!(zones(3, "aab"), (2, true));
        assert_eq!(zones(3, "aa"), (1, true), "of the third one no zone is known");
        assert_eq!(zones(5, "aabbc"), (3, false));
        assert_eq!(zones(5, "aaabc"), (3, true));
        assert_eq!(zones(4, "aabb"), (2, true));
    }
}
