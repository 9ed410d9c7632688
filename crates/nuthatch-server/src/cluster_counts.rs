//! What this node has seen of its cluster since it began, for who watches by numbers.

use nuthatch_cluster::{NodesChange, Takeover};
use nuthatch_log::stats::{Latency, LatencySnapshot};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What has become of a log.
#[derive(Default)]
struct OfLog {
    after_loss: AtomicU64,
    handed_over: AtomicU64,
    takeover: Latency,
    moves: AtomicU64,
    changes_of_set: AtomicU64,
    standbys_dropped: AtomicU64,
}

/// The same at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogCounts {
    /// Takeovers by this node after the loss of the owner, or where there was none.
    pub after_loss: u64,
    /// Those where the owner handed the log over.
    pub handed_over: u64,
    /// How long all of them took.
    pub takeover: LatencySnapshot,
    /// Times that balance had this node, as its owner, give it to another one.
    pub moves: u64,
    /// Times that balance had it begin anew with other keepers.
    pub changes_of_set: u64,
    /// Times that this node has ceased to follow it because standbys took too much memory.
    pub standbys_dropped: u64,
}

/// What this node has seen of its cluster.
#[derive(Default)]
pub struct ClusterCounts {
    by_log: Mutex<BTreeMap<u8, Arc<OfLog>>>,
    change: Mutex<Option<(NodesChange, Instant)>>,
}

impl ClusterCounts {
    fn of_log(&self, number: u8) -> Arc<OfLog> {
        Arc::clone(self.by_log.lock().entry(number).or_default())
    }

    /// This node has taken a log over.
    pub fn taken_over(&self, log: u8, takeover: Takeover) {
        let of_log = self.of_log(log);
        let count = if takeover.is_after_loss { &of_log.after_loss } else { &of_log.handed_over };
        count.fetch_add(1, Ordering::Relaxed);
        of_log.takeover.record(Duration::from_micros(takeover.micros));
    }

    /// Balance gives a log that this node owns to another node, or has it begin anew with other keepers.
    pub fn balanced(&self, log: u8, to_other_node: bool) {
        let of_log = self.of_log(log);
        let count = if to_other_node { &of_log.moves } else { &of_log.changes_of_set };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A log is not followed any more because standbys took too much memory.
    pub fn standby_dropped(&self, log: u8) {
        self.of_log(log).standbys_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted of a log.
    #[must_use]
    pub fn log(&self, number: u8) -> LogCounts {
        let of_log = self.of_log(number);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LogCounts {
            after_loss: count(&of_log.after_loss),
            handed_over: count(&of_log.handed_over),
            takeover: of_log.takeover.snapshot(),
            moves: count(&of_log.moves),
            changes_of_set: count(&of_log.changes_of_set),
            standbys_dropped: count(&of_log.standbys_dropped),
        }
    }

    /// Notes which change of the nodes is under way, and gives how long it has been as this node knows: since it first saw it.
    pub fn note_change(&self, under: NodesChange, now: Instant) -> Option<Duration> {
        let mut change = self.change.lock();
        if under == NodesChange::default() {
            *change = None;
            return None;
        }
        let since = match &*change {
            Some((known, since)) if *known == under => *since,
            _ => now,
        };
        *change = Some((under, since));
        Some(now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(replacing: Option<(&str, &str)>, growing: Option<&str>) -> NodesChange {
        let replacing = replacing.map(|(old, new)| (old.to_owned(), new.to_owned()));
        (replacing, growing.map(|node| (vec![node.to_owned()], true)))
    }

    #[test]
    fn a_change_is_as_old_as_it_was_first_seen() {
        let (counts, begin) = (ClusterCounts::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let seconds = |change: &NodesChange, second| {
            counts.note_change(change.clone(), at(second)).map(|since| since.as_secs())
        };
        let (none, first) = (change(None, None), change(Some(("n1", "n4")), None));
        assert_eq!(seconds(&none, 0), None);
        assert_eq!((seconds(&first, 1), seconds(&first, 9)), (Some(0), Some(8)));
        let second = change(Some(("n2", "n5")), None);
        assert_eq!((seconds(&second, 10), seconds(&second, 12)), (Some(0), Some(2)), "another one");
        assert_eq!((seconds(&none, 13), seconds(&second, 14)), (None, Some(0)));
        let growing = change(None, Some("n4"));
        assert_eq!(seconds(&growing, 20), Some(0));
    }

    #[test]
    fn what_becomes_of_a_log_is_counted_by_log() {
        let counts = ClusterCounts::default();
        counts.taken_over(1, Takeover { is_after_loss: true, micros: 3_000 });
        counts.taken_over(1, Takeover { is_after_loss: false, micros: 5_000 });
        counts.balanced(1, true);
        counts.standby_dropped(2);
        let (one, other) = (counts.log(1), counts.log(2));
        assert_eq!((one.after_loss, one.handed_over, one.takeover.count()), (1, 1, 2));
        assert_eq!((one.moves, one.changes_of_set, one.standbys_dropped), (1, 0, 0));
        assert_eq!(one.takeover.total_nanos, 8_000_000);
        assert_eq!(other, LogCounts { standbys_dropped: 1, ..LogCounts::default() });
    }
}
