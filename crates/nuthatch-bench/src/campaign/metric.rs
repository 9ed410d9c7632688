//! Metrics of a campaign: their order, which end is the good one, which are drawn; and the classes
//! of guarantees, because only equals are compared.

use super::System;
use super::outcome::Group;
use crate::plot::Better;
use crate::report::Spread;

/// Guarantees of a completed send, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The disk has the message before the answer.
    Before,
    /// The disk gets it some time after the answer.
    After,
    /// It is never forced to the disk.
    Never,
    /// The system did not say.
    Unknown,
    /// Messages are not kept at all.
    NotStored,
}

impl Promise {
    /// Guarantee of a system, from the words of its driver.
    pub fn of(guarantee: &str) -> Self {
        match guarantee.split("fsync: ").nth(1) {
            Some(fsync) if fsync.starts_with("before") => Self::Before,
            Some(fsync) if fsync.starts_with("after") => Self::After,
            Some(fsync) if fsync.starts_with("no ") || fsync == "no" => Self::Never,
            _ => Self::Unknown,
        }
    }

    /// In a word, for a cell.
    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before the answer",
            Self::After => "after the answer",
            Self::Never => "no",
            Self::Unknown => "unknown",
            Self::NotStored => "not stored",
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

/// True if the messages of a workload are kept.
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

/// A system compared with another by one number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advantage {
    /// By which factor the median is better; below 1 it is worse.
    pub factor: f64,
    /// Whether the ranges of the repeats overlap, so that nothing is decided.
    pub overlap: bool,
}

impl Advantage {
    /// Of `base` over `other`.
    pub fn of(metric: &str, base: Spread, other: Spread) -> Option<Self> {
        let factor = match better(metric) {
            Better::Higher => base.median / other.median,
            Better::Lower => other.median / base.median,
        };
        let overlap = base.min <= other.max && other.min <= base.max;
        (factor.is_finite() && factor > 0.0).then_some(Self { factor, overlap })
    }

    /// For a table.
    pub fn text(self) -> String {
        format!("{}{}×", if self.overlap { "~" } else { "" }, number(self.factor))
    }

    /// True if it is a loss that the repeats agree on.
    pub fn is_loss(self) -> bool {
        self.factor < 1.0 && !self.overlap
    }
}

/// A number with three digits or more.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => crate::report::thousands(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => crate::plot::short(value),
    }
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
        "% of its storage's limit",
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
        let exactly = |value| Spread { min: value, median: value, max: value };
        let of = |metric, base, other| Advantage::of(metric, exactly(base), exactly(other));
        let factor = |metric, base, other| of(metric, base, other).map(|found| found.factor);
        assert_eq!(factor("msgs/s", 200.0, 100.0), Some(2.0));
        assert_eq!(factor("p50 µs", 200.0, 100.0), Some(0.5));
        assert_eq!(factor("cost s/op", 1.0, 4.0), Some(4.0));
        assert_eq!(factor("MB/s", 1.0, 0.0), None);
        assert!(of("p50 µs", 200.0, 100.0).is_some_and(Advantage::is_loss));
    }

    #[test]
    fn overlapping_repeats_decide_nothing() {
        let wide = Spread { min: 50.0, median: 80.0, max: 110.0 };
        let other = Spread { min: 100.0, median: 100.0, max: 100.0 };
        let found = Advantage::of("msgs/s", wide, other).unwrap();
        assert!(found.overlap && !found.is_loss());
        assert_eq!(found.text(), "~0.80×");
    }
}
