//! `otlp`, and the words of `log_format`.

use std::time::Duration;

use super::super::*;
use super::{fails, options};

#[test]
fn where_telemetry_goes() {
    let otlp = |conf: &str| options(conf, "").otlp;
    assert_eq!(otlp("debug: false"), None);
    let found = otlp("otlp { endpoint: 'http://127.0.0.1:4318/' }").unwrap();
    assert_eq!(
        (found.endpoint.as_str(), found.interval),
        ("http://127.0.0.1:4318", Duration::from_secs(15))
    );
    assert!(found.metrics && found.traces && found.headers.is_empty());
    let conf = "otlp { endpoint: 'https://c.example/otlp', interval: 2s, traces: false
                       headers { X-Scope: birds, Authorization: 'Bearer x' } }";
    let found = otlp(conf).unwrap();
    assert_eq!(
        (found.interval, found.metrics, found.traces),
        (Duration::from_secs(2), true, false)
    );
    let headers: Vec<_> =
        found.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("X-Scope", "birds"), ("Authorization", "Bearer x")]);
    assert!(!format!("{found:?}").contains("Bearer"), "{found:?}");
}

#[test]
fn what_is_wrong_with_telemetry() {
    fails(
        "otlp { interval: 2s }",
        "t.conf:1:6: 'otlp' needs an 'endpoint', such as http://127.0.0.1:4318",
    );
    fails(
        "otlp { endpoint: '127.0.0.1:4317' }",
        "t.conf:1:18: 'endpoint' must be a URL such as http://127.0.0.1:4318",
    );
    fails(
        "otlp { endpoint: 'http://h', interval: 10ms }",
        "t.conf:1:40: 'interval' must be at least 1s",
    );
    fails("log_format: xml", "t.conf:1:13: 'log_format' must be nats or json");
    let wrong =
        super::command(Invocation::Nuthatch, "", "--log-format xml").unwrap_err().to_string();
    assert!(wrong.contains("nats or json"), "{wrong}");
}
