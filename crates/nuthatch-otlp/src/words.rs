//! Attributes, times, and who sends.

use std::time::{SystemTime, UNIX_EPOCH};

use nuthatch_server::server::Server;
use nuthatch_server::version::VERSION;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// A text attribute.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// A number attribute.
pub fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Nanoseconds since 1970.
pub fn unix_nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The server.
pub fn resource(server: &Server) -> Resource {
    let attributes = vec![
        text("service.name", "nuthatch"),
        text("service.version", VERSION),
        text("service.instance.id", &server.id),
        text("nuthatch.server.name", &server.name),
    ];
    Resource { attributes, ..Resource::default() }
}

/// What made it.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "nuthatch".to_owned(),
        version: VERSION.to_owned(),
        ..InstrumentationScope::default()
    }
}
