//! JetStream API types (nats-server 2.15 `stream.go`, `consumer.go`, `jetstream_api.go`).
//!
//! Field names are the wire's. Durations are nanoseconds (`i64`), as on the wire.

mod api;
mod consumer;
mod state;
mod stream;
mod time;
mod words;

pub use api::*;
pub use consumer::*;
pub use state::*;
pub use stream::*;
pub use time::{Time, TimeError};

/// The JetStream API level that this version implements (ADR-44): clients gate features on it, and
/// what asks for a higher one (`Nats-Required-Api-Level`) is refused. 1 promises times to live, pause
/// and priority groups, 2 counters, atomic batches, schedules and `persist_mode`, 3 the window of a
/// snapshot, 4 fast batches, resets of consumers, consumers that acknowledge by flow control, and mirrors
/// and sources that read through one, 5 the identity of a stream for those who copy it.
pub const API_LEVEL: u32 = 5;

/// True if [`API_LEVEL`] is enough for the value of a `Nats-Required-Api-Level` header (ADR-44);
/// true without one, false if it is no number.
#[must_use]
pub fn is_level_met(required: &[u8]) -> bool {
    let number = std::str::from_utf8(required).ok().and_then(|text| text.parse::<i64>().ok());
    required.is_empty() || number.is_some_and(|level| level <= i64::from(API_LEVEL))
}

/// Nanoseconds, as JetStream writes durations.
pub type Nanos = i64;

/// Metadata of a stream or a consumer, ordered so that it encodes the same every time.
pub type Metadata = std::collections::BTreeMap<String, String>;

/// For `skip_serializing_if`: Go's `omitempty` on numbers, booleans, strings and lists.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
