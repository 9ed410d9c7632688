//! The wall clock with which a majority of the nodes agrees, known without a step of the cores.

use crate::clock::{now, wall_now};
use nuthatch_quorum::timing::WALL_APART;
use nuthatch_quorum::types::{Time, WallTime};
use std::sync::atomic::{AtomicI64, Ordering};

/// No majority agrees with it.
const NOT_AGREED: i64 = i64::MIN;

/// How far the wall clock with which a majority agreed was ahead of the clock that nobody sets, in microseconds. By that the
/// wall clock as it is now can be compared: it may have been set since the cores looked at it.
pub(super) struct AgreedWall(AtomicI64);

impl Default for AgreedWall {
    fn default() -> Self {
        Self(AtomicI64::new(NOT_AGREED))
    }
}

impl AgreedWall {
    /// Notes what the cores say.
    pub(super) fn note(&self, agreed: Option<WallTime>, at: Time) {
        let ahead = agreed.map(|wall| ahead_of(wall, at));
        self.0.store(ahead.unwrap_or(NOT_AGREED), Ordering::Release);
    }

    /// True if a majority agrees with the wall clock as it is now.
    pub(super) fn is_agreed(&self) -> bool {
        self.agrees_with(wall_now(), now())
    }

    fn agrees_with(&self, wall: WallTime, at: Time) -> bool {
        let agreed = self.0.load(Ordering::Acquire);
        agreed != NOT_AGREED && ahead_of(wall, at).abs_diff(agreed) <= WALL_APART
    }
}

fn ahead_of(wall: WallTime, at: Time) -> i64 {
    wall.0.cast_signed().wrapping_sub(at.0.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_since_is_not_the_one_that_was_agreed_with() {
        const SECOND: u64 = 1_000_000;
        let agreed = AgreedWall::default();
        let (wall, at) = (WallTime(9_000 * SECOND), Time(100 * SECOND));
        assert!(!agreed.agrees_with(wall, at), "nobody has said so");
        agreed.note(Some(wall), at);
        let later = |seconds: u64| Time((100 + seconds) * SECOND);
        assert!(agreed.agrees_with(WallTime(9_010 * SECOND), later(10)));
        assert!(!agreed.agrees_with(WallTime((9_010 + 7_200) * SECOND), later(10)));
        assert!(!agreed.agrees_with(WallTime((9_010 - 7_200) * SECOND), later(10)));
        agreed.note(None, later(11));
        assert!(!agreed.agrees_with(WallTime(9_011 * SECOND), later(11)));
    }
}
