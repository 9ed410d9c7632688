//! How often and for how long a request is retried.

use super::{BucketShared, RETRY_MAX_MS};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often and for how long a request is retried.
pub struct RetryBudget {
    since: Duration,
    /// Attempts that failed.
    pub attempts: u32,
    /// The last attempt took as long as it might.
    pub was_slow: bool,
}

impl RetryBudget {
    /// Nothing was tried yet.
    pub fn new(shared: &BucketShared) -> Self {
        Self { since: shared.executor.monotonic(), attempts: 0, was_slow: false }
    }

    /// How long to wait before the next attempt; `None` when there is none.
    pub fn next(&mut self, shared: &BucketShared) -> Option<Duration> {
        let first_ms = shared.options.retry_first_ms;
        let pause = first_ms.saturating_mul(1 << self.attempts.min(16)).min(RETRY_MAX_MS);
        let pause = Duration::from_millis(pause);
        self.attempts += 1;
        (!self.is_over(shared, pause)).then_some(pause)
    }

    /// True if there is no further attempt, `pause` from now.
    pub fn is_over(&self, shared: &BucketShared, pause: Duration) -> bool {
        let retry_for = Duration::from_millis(shared.retry_for_ms.load(Ordering::Relaxed));
        let elapsed = shared.executor.monotonic() - self.since;
        shared.closed.load(Ordering::Relaxed) || elapsed + pause > retry_for
    }
}
