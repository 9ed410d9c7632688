//! How a queue of the workbench fails.

use std::fmt::Display;

/// Why a queue could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{driver}: cannot {action}: {reason}")]
pub struct QueueError {
    /// The driver, such as `redis`.
    pub driver: &'static str,
    /// What was attempted, as it follows "cannot".
    pub action: &'static str,
    /// The client library's or server's words.
    pub reason: String,
}

/// Makes a closure that wraps a client library's error.
pub fn failed<E: Display>(
    driver: &'static str,
    action: &'static str,
) -> impl Fn(E) -> QueueError + Copy {
    move |err| QueueError { driver, action, reason: err.to_string() }
}
