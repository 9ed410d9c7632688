//! Reading again what is durable, a part at a time, from the newest entries to the oldest and then anew.

use crate::timing::SCRUB_MAX;
use crate::types::{Lsn, Time};

/// Where a scrub is.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Between two parts, in microseconds.
    every: u64,
    at: Time,
    /// The last entry of the next part; one that is trimmed, or 0: it begins anew.
    next: Lsn,
}

impl Scrub {
    pub(super) fn new(every: u64, now: Time) -> Self {
        Self { every, at: now, next: Lsn(0) }
    }

    /// The entries behind `base` to be read now, the first and the last, if any are due.
    pub(super) fn due(&mut self, base: Lsn, durable: Lsn, now: Time) -> Option<(Lsn, Lsn)> {
        if durable <= base || now.since(self.at) < self.every {
            return None;
        }
        self.at = now;
        let upto = if self.next <= base { durable } else { self.next.min(durable) };
        let from = Lsn(upto.0.saturating_sub(SCRUB_MAX - 1)).max(base.next());
        self.next = from.before();
        Some((from, upto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_read_once_before_any_is_read_again() {
        let mut scrub = Scrub::new(10, Time(0));
        let mut read = vec![];
        for now in (0..).map(Time).take(120) {
            if let Some((from, upto)) = scrub.due(Lsn(0), Lsn(100), now) {
                assert!(upto.0 - from.0 < SCRUB_MAX);
                read.extend(from.0..=upto.0);
            }
        }
        let mut first: Vec<u64> = read[..100].to_vec();
        first.sort_unstable();
        assert_eq!(first, (1..=100).collect::<Vec<_>>());
        assert!(read.len() > 100, "then it begins anew");
    }
}
