//! Clocks that differ: each runs a little too fast or too slow and began at another time.

use crate::rng::Rng;

/// The clock of a node that runs on while the node sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    offset: u64,
    /// Parts per million, in either direction.
    drift: i64,
}

/// The most that a clock is wrong, in parts per million: two clocks that differ by twice as much are
/// less than a tenth apart, which is what leases allow for.
pub const DRIFT_MAX: i64 = 40_000;

/// The most that a clock is wrong which nothing is to rest on.
pub const DRIFT_WILD: i64 = 200_000;

impl Clock {
    /// A clock of a seed that drifts by at most `drift_max`.
    pub fn drawn(rng: &mut Rng, drift_max: i64) -> Self {
        let drift = rng.below(2 * drift_max as u64 + 1) as i64 - drift_max;
        Self { offset: rng.below(1_000_000_000) + 1_000_000, drift }
    }

    /// What it shows, in microseconds.
    #[must_use]
    pub fn at(&self, now: u64) -> u64 {
        let rate = u64::try_from(1_000_000 + self.drift).expect("time does not run backwards");
        self.offset + now.checked_mul(rate).expect("less than months") / 1_000_000
    }

    /// Lets it be ahead by `micros` more.
    pub fn jump(&mut self, micros: u64) {
        self.offset += micros;
    }
}

/// The moment at which a simulation begins, in microseconds since 1970.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// The most that a wall clock is wrong which a time server keeps, in microseconds.
pub const WALL_ERROR: u64 = 300_000;

/// A wall clock, which somebody sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClock {
    /// How far it is ahead of the true time, in microseconds.
    error: i64,
}

impl WallClock {
    /// A clock that a time server keeps.
    pub fn kept(rng: &mut Rng) -> Self {
        Self { error: rng.below(2 * WALL_ERROR + 1) as i64 - WALL_ERROR as i64 }
    }

    /// The true time.
    #[must_use]
    pub fn truth(now: u64) -> u64 {
        BEGINNING + now
    }

    /// What it shows.
    #[must_use]
    pub fn at(&self, now: u64) -> u64 {
        Self::truth(now).saturating_add_signed(self.error)
    }

    /// True if it is further from the true time than a time server lets it be.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.error.unsigned_abs() > WALL_ERROR
    }

    /// How far it is ahead of the true time, in microseconds.
    #[must_use]
    pub fn error(&self) -> i64 {
        self.error
    }

    /// Sets it ahead, or back.
    pub fn jump(&mut self, micros: i64) {
        self.error += micros;
    }
}
