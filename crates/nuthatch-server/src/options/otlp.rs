//! Reads `otlp`: where metrics and traces are sent.

use std::time::Duration;

use nuthatch_protocol::config::{Node, Value};

use super::auth::Secret;
use super::read::ConfigReader;
use super::tables::OTLP;

/// Time between two exports of metrics unless configured.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
/// The shortest one.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Headers of a request at most.
const HEADERS_MAX: usize = 32;

/// Export of metrics and traces to a collector, by OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpOptions {
    /// URL of the collector, without a final slash.
    pub endpoint: String,
    /// Time between two exports of metrics.
    pub interval: Duration,
    /// Metrics are sent.
    pub metrics: bool,
    /// Spans are sent.
    pub traces: bool,
    /// Headers of each request: names and values.
    pub headers: Vec<(String, Secret)>,
}

/// The block of the file; `None`: something is wrong, and was noted.
pub(super) fn otlp(r: &mut ConfigReader, value: &Value) -> Option<OtlpOptions> {
    let map = r.map("otlp", value)?;
    let mut found = OtlpOptions {
        endpoint: String::new(),
        interval: DEFAULT_INTERVAL,
        metrics: true,
        traces: true,
        headers: Vec::new(),
    };
    r.walk(&OTLP, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "endpoint" => found.endpoint = endpoint(r, key, value).unwrap_or_default(),
            "interval" => found.interval = interval(r, key, value).unwrap_or(found.interval),
            "metrics" => found.metrics = r.boolean(key, value).unwrap_or(found.metrics),
            "traces" => found.traces = r.boolean(key, value).unwrap_or(found.traces),
            "headers" => found.headers = headers(r, key, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if !map.entries().iter().any(|entry| entry.key.eq_ignore_ascii_case("endpoint")) {
        r.invalid(&value.pos, "otlp", "needs an 'endpoint', such as http://127.0.0.1:4318");
    }
    (!found.endpoint.is_empty()).then_some(found)
}

fn endpoint(r: &mut ConfigReader, key: &str, value: &Value) -> Option<String> {
    let text = r.word(key, value)?.trim_end_matches('/');
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_url = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
    });
    if !is_url {
        r.invalid(&value.pos, key, "must be a URL such as http://127.0.0.1:4318");
        return None;
    }
    Some(text.to_owned())
}

fn interval(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Duration> {
    let given = r.duration(key, value)?;
    if given < MIN_INTERVAL {
        r.invalid(&value.pos, key, "must be at least 1s");
        return None;
    }
    Some(given)
}

fn headers(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<(String, Secret)> {
    let Some(map) = r.map(key, value) else { return Vec::new() };
    if map.entries().len() > HEADERS_MAX {
        r.invalid(&value.pos, key, format!("must be at most {HEADERS_MAX}"));
    }
    let mut found = Vec::new();
    for entry in map.entries() {
        let Node::Str(text) = &entry.value.node else {
            r.invalid(&entry.value.pos, &entry.key, "must be a string");
            continue;
        };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_text = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if entry.key.is_empty() || !entry.key.chars().all(is_token) || !is_text {
            r.invalid(&entry.key_pos, &entry.key, "is no header of HTTP");
            continue;
        }
        found.push((entry.key.clone(), Secret::new(text.clone())));
    }
    found
}
