//! Times of the machine's clock as answers and events show them.

use nuthatch_protocol::js::Time;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The present time as JSON text.
#[must_use]
pub fn now() -> Value {
    time_json(SystemTime::now())
}

/// The present time, ns since 1970.
#[must_use]
pub fn now_ns() -> i64 {
    ns(SystemTime::now())
}

/// The present time, ms since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(now_ns() / 1_000_000).unwrap_or_default()
}

fn ns(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A time as JSON text, RFC 3339 in UTC.
#[must_use]
pub fn time_json(at: SystemTime) -> Value {
    serde_json::to_value(Time(ns(at))).unwrap_or(Value::Null)
}
