//! The time that all logs of a server live by: the machine's, of which large steps are doubted.

use nuthatch_streams::steady::{SteadyClock, StepEvent, TimeSource};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clocks of this machine.
pub struct Machine(Instant);

impl TimeSource for Machine {
    fn wall_nanos(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// See [`SteadyClock`].
pub type ServerClock = SteadyClock<Machine>;

/// A clock that tells `tell` what it makes of steps.
pub(super) fn steady(tell: Box<dyn Fn(StepEvent) + Send + Sync>) -> ServerClock {
    SteadyClock::new(Machine(Instant::now()), tell)
}
