//! Compaction leaves the disk to the log most of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of the time that a compaction takes, it works one part in this many and rests otherwise: frames
/// of the log never wait for more than one of its reads or writes, and most find the disk free.
const REST_SHARE: u32 = 3;

/// The longest rest.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// Rests between the steps of a compaction.
pub struct Pace {
    hurry: Arc<AtomicBool>,
    since: Instant,
}

impl Pace {
    /// A pace that rests until `hurry` says otherwise (the medium is full, the log is closed, time
    /// is simulated).
    #[must_use]
    pub fn new(hurry: Arc<AtomicBool>) -> Self {
        Self { hurry, since: Instant::now() }
    }

    /// A step is done: rests in proportion to what it took.
    pub fn step(&mut self) {
        if !self.hurry.load(Ordering::Relaxed) {
            std::thread::sleep(rest_after(self.since.elapsed()));
        }
        self.since = Instant::now();
    }
}

fn rest_after(worked: Duration) -> Duration {
    (worked * (REST_SHARE - 1)).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_in_proportion_and_not_for_ever() {
        assert_eq!(rest_after(Duration::from_millis(2)), Duration::from_millis(4));
        assert_eq!(rest_after(Duration::from_secs(9)), LONGEST_REST);
    }
}
