//! The clocks of a node.

use nuthatch_quorum::types::{Time, WallTime};
use std::time::{SystemTime, UNIX_EPOCH};

/// The clock of the cores: it runs on while the machine sleeps.
#[must_use]
pub fn now() -> Time {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place for the answer.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut at) };
    assert_eq!(done, 0, "Linux has had this clock since 2.6.39");
    Time(at.tv_sec.cast_unsigned() * 1_000_000 + at.tv_nsec.cast_unsigned() / 1_000)
}

/// What the wall clock shows.
#[must_use]
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
