//! Time and randomness, real and simulated.

use crate::types::Timestamp;
use parking_lot::Mutex;
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
/// stop time here, a step forward is followed.
pub struct SystemClock {
    state: Mutex<Anchor>,
}

struct Anchor {
    wall: i64,
    at: Instant,
}

/// The wall clock is consulted again after this long.
const RESYNC: Duration = Duration::from_secs(1);

/// A lead of the wall clock below this is jitter and is not followed.
const JITTER_NANOS: i64 = 1_000_000;

impl Default for SystemClock {
    fn default() -> Self {
        Self { state: Mutex::new(Anchor { wall: wall_nanos(), at: Instant::now() }) }
    }
}

fn wall_nanos() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut anchor = self.state.lock();
        let elapsed = anchor.at.elapsed();
        let nanos = anchor.wall + i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        if elapsed < RESYNC {
            return Timestamp(nanos);
        }
        let wall = wall_nanos();
        let now = if wall > nanos + JITTER_NANOS { wall } else { nanos };
        *anchor = Anchor { wall: now, at: Instant::now() };
        Timestamp(now)
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
