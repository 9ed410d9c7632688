//! How long one connection has a worker before others have their turn.

use std::time::{Duration, Instant};

/// Work of one connection between two turns of others. Much longer than what one read leads to
/// mostly, and short beside what a delivery may be late.
pub(crate) const SLICE: Duration = Duration::from_millis(2);

/// Operations of a connection between two looks at the clock.
pub(crate) const OPS_BETWEEN_LOOKS: u32 = 64;

/// Use of a task's time slice.
#[derive(Default)]
pub(crate) struct Slice {
    used: Duration,
}

impl Slice {
    /// Counts what was done since `began`, and lets others have their turn if that was enough. Waiting
    /// is not counted.
    pub(crate) async fn spend(&mut self, began: Instant) {
        self.used += began.elapsed();
        if self.used >= SLICE {
            self.used = Duration::ZERO;
            tokio::task::yield_now().await;
        }
    }
}

/// The end of a slice, for work that looks at the clock now and then.
pub(crate) struct Deadline {
    end: Instant,
    left: u32,
}

impl Deadline {
    /// A slice that begins now.
    pub(crate) fn new() -> Self {
        Self { end: Instant::now() + SLICE, left: OPS_BETWEEN_LOOKS }
    }

    /// One operation more was done: whether the slice is over.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = OPS_BETWEEN_LOOKS;
        Instant::now() >= self.end
    }
}
