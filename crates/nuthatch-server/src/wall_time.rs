//! Times of the machine's clock as answers and events show them.

use nuthatch_protocol::js::Time;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The present time as JSON text.
#[must_use]
pub fn now() -> Value {
    time_json(SystemTime::now())
}

/// A time as JSON text, RFC 3339 in UTC.
#[must_use]
pub fn time_json(at: SystemTime) -> Value {
    let nanos = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
    serde_json::to_value(Time(nanos)).unwrap_or(Value::Null)
}
