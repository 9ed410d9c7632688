//! Clocks that differ: each runs a little too fast or too slow and began at another time.

use crate::rng::Rng;

/// The clock of a node that runs on while the node sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    offset: u64,
    /// Parts per million, at most [`DRIFT_MAX`] in either direction.
    drift: i64,
}

/// The most that a clock is wrong, in parts per million: two clocks that differ by twice as much are
/// less than a tenth apart, which is what leases allow for.
pub const DRIFT_MAX: i64 = 40_000;

impl Clock {
    /// A clock of a seed.
    pub fn drawn(rng: &mut Rng) -> Self {
        let drift = rng.below(2 * DRIFT_MAX as u64 + 1) as i64 - DRIFT_MAX;
        Self { offset: rng.below(1_000_000_000) + 1_000_000, drift }
    }

    /// What it shows, in microseconds.
    #[must_use]
    pub fn at(&self, now: u64) -> u64 {
        let drifted = i128::from(now) * i128::from(1_000_000 + self.drift) / 1_000_000;
        self.offset + u64::try_from(drifted).expect("time does not run backwards")
    }
}
