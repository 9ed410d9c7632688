//! What the report knows about the numbers of a campaign: their order, which end is the good one,
//! which are drawn; and the classes of guarantees, because only equals are compared.

use super::System;
use super::outcome::Group;
use crate::plot::Better;

/// What a completed send promises, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The disk has the message before the answer.
    Before,
    /// The disk gets it some time after the answer.
    After,
    /// Nobody forces it to the disk.
    Never,
    /// The system did not say.
    Unknown,
    /// Messages are not kept at all.
    NotStored,
}

impl Promise {
    /// What a system promises, from the words of its driver.
    pub fn of(guarantee: &str) -> Self {
        match guarantee.split("fsync: ").nth(1) {
            Some(fsync) if fsync.starts_with("before") => Self::Before,
            Some(fsync) if fsync.starts_with("after") => Self::After,
            Some(fsync) if fsync.starts_with("no ") || fsync == "no" => Self::Never,
            _ => Self::Unknown,
        }
    }

    /// For headings.
    pub fn words(self) -> &'static str {
        match self {
            Self::Before => "fsync before the answer",
            Self::After => "fsync only after the answer: an answered message can be lost",
            Self::Never => "no fsync: an answered message can be lost",
            Self::Unknown => "unknown guarantee",
            Self::NotStored => "not stored",
        }
    }
}

/// The promise of a system within a group.
pub fn promise(group: &Group, system: Option<&System>) -> Promise {
    match system {
        _ if !is_stored(group) => Promise::NotStored,
        Some(system) => Promise::of(&system.guarantee),
        None => Promise::Unknown,
    }
}

/// Whether the messages of a workload are kept.
pub fn is_stored(group: &Group) -> bool {
    !group.section.contains("core publish")
}

/// Which end of a number is the good one.
pub fn better(metric: &str) -> Better {
    let throughput = metric.contains("/s") && !metric.contains("s/op");
    match throughput || metric.starts_with('%') || metric.starts_with("publisher") {
        true => Better::Higher,
        false => Better::Lower,
    }
}

/// By which factor `base` is better than `other`; above 1 it is.
pub fn advantage(metric: &str, base: f64, other: f64) -> Option<f64> {
    let factor = match better(metric) {
        Better::Higher => base / other,
        Better::Lower => other / base,
    };
    (factor.is_finite() && factor > 0.0).then_some(factor)
}

/// The number that a group is about: the first of these that it has.
const MAIN: [&str; 4] = ["receive msgs/s", "MB/s", "msgs/s", "p50 µs"];

/// The latency that is drawn beside it.
const LATENCY: [&str; 4] = ["processing p95 ms", "single p50 µs", "ack p50 µs", "p99 µs"];

/// Costs that are drawn.
const COSTS: [&str; 3] = ["server µs CPU/msg", "client µs CPU/msg", "server peak memory MB"];

/// The number that a group is about.
pub fn main_metric(group: &Group) -> Option<&'static str> {
    MAIN.into_iter().find(|metric| has(group, metric))
}

/// The numbers that are drawn as bars.
pub fn drawn(group: &Group) -> Vec<&'static str> {
    let latency = LATENCY.into_iter().find(|metric| has(group, metric));
    let costs = COSTS.into_iter().filter(|metric| has(group, metric));
    main_metric(group).into_iter().chain(latency).chain(costs).collect()
}

fn has(group: &Group, metric: &str) -> bool {
    group.cells.iter().any(|cell| cell.metrics.contains_key(metric))
}

/// Throughput first, then latency, then cost.
pub fn rank(name: &str) -> (usize, String) {
    const ORDER: [&str; 14] = [
        "send msgs/s",
        "receive msgs/s",
        "cost s/op",
        "msgs/s",
        "MB/s",
        "% of the disk",
        "min µs",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "processing p95 ms",
        "send p95 ms",
        "single p50 µs",
        "single p99 µs",
    ];
    const LAST: [&str; 5] = [
        "server µs CPU/msg",
        "client µs CPU/msg",
        "server CPU s",
        "server peak memory MB",
        "storage MB",
    ];
    let rank = ORDER.iter().position(|known| *known == name).unwrap_or_else(|| {
        ORDER.len() + 1 + LAST.iter().position(|known| *known == name).map_or(0, |at| at + 1)
    });
    (rank, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_are_told_apart() {
        let of = |fsync: &str| Promise::of(&format!("replicated: no; fsync: {fsync}"));
        assert_eq!(of("before the ack (sync_interval always)"), Promise::Before);
        assert_eq!(of("after the ack (sync_interval 2m)"), Promise::After);
        assert_eq!(of("no (left to the page cache)"), Promise::Never);
        assert_eq!(of("nobody knows"), Promise::Unknown);
        assert!(Promise::Before < Promise::After && Promise::After < Promise::Never);
    }

    #[test]
    fn an_advantage_is_above_one_whatever_the_number() {
        assert_eq!(advantage("msgs/s", 200.0, 100.0), Some(2.0));
        assert_eq!(advantage("p50 µs", 200.0, 100.0), Some(0.5));
        assert_eq!(advantage("cost s/op", 1.0, 4.0), Some(4.0));
        assert_eq!(advantage("MB/s", 1.0, 0.0), None);
    }
}
