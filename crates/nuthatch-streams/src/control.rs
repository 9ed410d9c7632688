//! The control plane as step machines: what goes on beside publishes and deliveries, over many
//! operations of the logs, and must come to the same end whatever fails in between.
//!
//! A machine is a value with a `step`: it is told what happened, and when, and says what is to be done
//! next. It has no tasks, clocks, sockets or entropy. What must outlive a stop of the server is in
//! records of the logs, where a new machine finds it; nothing else is kept. The server's tasks do what
//! a machine says, and so do tests with disks that fail. Moves of streams between logs are such a
//! machine too: [`crate::migration::mover`].

pub mod changes;
pub mod import;
pub mod replication;
pub mod restore;

use std::time::Duration;

/// Time since any moment that stays the same.
pub type Now = Duration;

/// Pauses after attempts that failed: each is twice as long as the one before, until an attempt has
/// lasted longer than the longest pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `min` to `max`.
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// An attempt that began at `began` has ended, however long the pause after it is to be.
    pub fn attempted(&mut self, began: Now, now: Now) {
        if now.saturating_sub(began) > self.max {
            self.next = self.min;
        }
    }

    /// The pause after an attempt. Those after it are at most `longest`.
    pub fn pause(&mut self, longest: Duration) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(longest);
        pause
    }
}
