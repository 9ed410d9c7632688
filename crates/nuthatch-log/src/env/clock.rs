//! Time and randomness, real and simulated.

use crate::types::Timestamp;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Source of time.
pub trait Clock: Send + Sync + 'static {
    /// The present, never going backwards.
    fn now(&self) -> Timestamp;

    /// How long something that lasts until `deadline` may sleep, at most.
    fn until(&self, deadline: Timestamp) -> Duration {
        let nanos = deadline.0.saturating_sub(self.now().0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

/// The wall clock, carried forward by the monotonic one: a step back of the wall clock does not
/// stop time here, a step forward is followed. If the wall clock then steps back (it had been set
/// wrong), time here goes on a little slower until the two agree again.
pub struct SystemClock {
    state: Mutex<Anchor>,
}

struct Anchor {
    nanos: i64,
    at: Instant,
    /// Ahead of the wall clock: runs slower.
    is_ahead: bool,
}

/// The wall clock is consulted again after this long.
const RESYNC: Duration = Duration::from_secs(1);

/// A difference to the wall clock below this is jitter and is not followed.
const JITTER_NANOS: i64 = 1_000_000;

/// While ahead of the wall clock, time loses one part in this many.
const SLEW_SHARE: i64 = 8;

impl Default for SystemClock {
    fn default() -> Self {
        let anchor = Anchor { nanos: wall_nanos(), at: Instant::now(), is_ahead: false };
        Self { state: Mutex::new(anchor) }
    }
}

fn wall_nanos() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Anchor {
    /// The time after so much of monotonic time.
    fn after(&self, elapsed: Duration) -> i64 {
        let elapsed = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        let lost = if self.is_ahead { elapsed / SLEW_SHARE } else { 0 };
        self.nanos.saturating_add(elapsed - lost)
    }

    /// The anchor to go on from, given what the wall clock shows.
    fn resynced(&self, at: Instant, wall: i64) -> Self {
        let nanos = self.after(at.duration_since(self.at));
        let nanos = if wall > nanos + JITTER_NANOS { wall } else { nanos };
        Self { nanos, at, is_ahead: nanos > wall + JITTER_NANOS }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut anchor = self.state.lock();
        let elapsed = anchor.at.elapsed();
        if elapsed < RESYNC {
            return Timestamp(anchor.after(elapsed));
        }
        *anchor = anchor.resynced(Instant::now(), wall_nanos());
        Timestamp(anchor.nanos)
    }
}

/// A clock that stands still until it is moved; for tests and simulation.
#[derive(Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `nanos` since the Unix epoch.
    #[must_use]
    pub const fn at(nanos: i64) -> Self {
        Self(AtomicI64::new(nanos))
    }

    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Source of randomness: segment salts, identities.
pub trait Entropy: Send + 'static {
    /// Sixty-four fresh bits.
    fn next(&mut self) -> u64;

    /// A salt that no other opening of any log has drawn.
    fn salt(&mut self) -> [u8; 16] {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&self.next().to_le_bytes());
        salt[8..].copy_from_slice(&self.next().to_le_bytes());
        salt
    }
}

/// Randomness of the process, seeded by the operating system. Not for secrets.
pub struct SystemEntropy(SeededEntropy);

impl Default for SystemEntropy {
    fn default() -> Self {
        Self(SeededEntropy::new(RandomState::new().build_hasher().finish()))
    }
}

impl Entropy for SystemEntropy {
    fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// From the operating system: 64 bits of seed would repeat among many starts.
    fn salt(&mut self) -> [u8; 16] {
        let mut salt = [0; 16];
        SystemRandom::new().fill(&mut salt).expect("the operating system gives randomness");
        salt
    }
}

/// The same numbers for the same seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct SeededEntropy(u64);

impl SeededEntropy {
    /// A generator for `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound` (0 for a bound of 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }
}

impl Entropy for SeededEntropy {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_set_wrong_for_a_while_is_found_again() {
        const SECOND: i64 = 1_000_000_000;
        let start = Instant::now();
        let mut anchor = Anchor { nanos: 0, at: start, is_ahead: false };
        let mut tick = |second: u64, wall: i64| {
            let before = anchor.nanos;
            anchor = anchor.resynced(start + Duration::from_secs(second), wall);
            assert!(anchor.nanos > before, "time never stops");
            anchor.nanos - wall
        };
        assert_eq!(tick(1, SECOND), 0);
        assert_eq!(tick(2, 102 * SECOND), 0, "a step forward is followed");
        assert!(tick(3, 3 * SECOND) > 99 * SECOND);
        let leads: Vec<i64> = (4..1000).map(|n| tick(n, n.cast_signed() * SECOND)).collect();
        assert!(leads.is_sorted_by(|a, b| a >= b) && leads.last().is_some_and(|&l| l < SECOND));
    }
}
