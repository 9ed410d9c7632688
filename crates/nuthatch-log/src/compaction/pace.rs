//! Compaction leaves the disk to the log most of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of the time that a compaction takes, it works one part in this many and rests otherwise: frames
/// of the log wait for one of its reads or writes at most, or for several that take no longer than
/// [`SHORTEST_REST`] together, and most find the disk free.
const REST_SHARE: u32 = 3;

/// What is due to be rested is gathered until it is as long as this: a segment of small frames is
/// thousands of steps of a few microseconds, and a rest after each of them would cost more than the
/// step itself.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// The longest rest for the sake of that share.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// The longest time that a rest goes on after it is no longer wanted.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// Rests between the steps of a compaction.
pub struct Pace {
    hurry: Arc<AtomicBool>,
    since: Instant,
    bytes_per_s: u64,
    due: Due,
}

/// The rest that was not taken yet. What is left of it at the end is not taken.
#[derive(Default)]
struct Due(Duration);

impl Pace {
    /// A pace of at most `bytes_per_s`, that rests until `hurry` says otherwise (the medium is full,
    /// the log is closed, time is simulated).
    #[must_use]
    pub fn new(hurry: Arc<AtomicBool>, bytes_per_s: u64) -> Self {
        Self { hurry, since: Instant::now(), bytes_per_s, due: Due::default() }
    }

    /// A step that read or wrote `bytes` is done: rests in proportion to what it and those since the
    /// last rest took, and until so many bytes are due.
    pub fn step(&mut self, bytes: u64) {
        let now = Instant::now();
        let worked = now.duration_since(std::mem::replace(&mut self.since, now));
        if self.hurries() {
            return;
        }
        let rest = rest_after(worked).max(rest_for(bytes, self.bytes_per_s, worked));
        if let Some(rest) = self.due.take(rest) {
            self.rest(rest);
            self.since = Instant::now();
        }
    }

    fn rest(&self, mut left: Duration) {
        while !left.is_zero() && !self.hurries() {
            let nap = left.min(LONGEST_NAP);
            std::thread::sleep(nap);
            left -= nap;
        }
    }

    fn hurries(&self) -> bool {
        self.hurry.load(Ordering::Relaxed)
    }
}

impl Due {
    /// Adds the rest of a step, and gives what is to be rested now, if that is long enough.
    fn take(&mut self, rest: Duration) -> Option<Duration> {
        self.0 += rest;
        (self.0 >= SHORTEST_REST).then(|| std::mem::take(&mut self.0))
    }
}

fn rest_after(worked: Duration) -> Duration {
    (worked * (REST_SHARE - 1)).min(LONGEST_REST)
}

fn rest_for(bytes: u64, bytes_per_s: u64, worked: Duration) -> Duration {
    let micros = bytes.saturating_mul(1_000_000) / bytes_per_s.max(1);
    Duration::from_micros(micros).saturating_sub(worked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_in_proportion_and_not_for_ever() {
        assert_eq!(rest_after(Duration::from_millis(2)), Duration::from_millis(4));
        assert_eq!(rest_after(Duration::from_secs(9)), LONGEST_REST);
    }

    #[test]
    fn small_steps_share_a_rest_and_a_long_one_has_its_own() {
        let (mut due, rest) = (Due::default(), Duration::from_micros(4));
        let rests: Vec<Duration> = (0..10_000).filter_map(|_| due.take(rest)).collect();
        assert_eq!(rests.len(), 40, "one in 250 steps");
        assert_eq!(rests.iter().sum::<Duration>(), 10_000 * rest, "nothing of it is lost");
        assert_eq!(due.take(SHORTEST_REST), Some(SHORTEST_REST));
    }

    #[test]
    fn the_rate_is_kept() {
        let second = Duration::from_secs(1);
        assert_eq!(rest_for(8 << 20, 8 << 20, Duration::ZERO), second);
        assert_eq!(rest_for(16 << 20, 8 << 20, second), second);
        assert_eq!(rest_for(1 << 20, 8 << 20, second), Duration::ZERO);
    }
}
