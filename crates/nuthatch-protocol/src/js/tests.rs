//! The shapes that clients depend on.

use super::*;

#[test]
fn minimal_stream_config_serializes_what_go_always_writes() {
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    let json = serde_json::to_value(&config).expect("serializes");
    for field in ["name", "retention", "max_msgs", "max_age", "storage", "compression", "sealed"] {
        assert!(json.get(field).is_some(), "{field} is always written");
    }
    assert!(json.get("description").is_none(), "empty description is left out");
}

#[test]
fn consumer_config_reads_null_lists_and_go_zero_time() {
    let text = r#"{"name":"C","deliver_policy":"by_start_time",
        "opt_start_time":"2026-01-02T03:04:05.000000006Z","backoff":null,"ack_policy":"explicit"}"#;
    let config: ConsumerConfig = serde_json::from_str(text).expect("parses");
    assert_eq!(config.deliver_policy, DeliverPolicy::ByStartTime);
    let at = config.opt_start_time.expect("time");
    assert_eq!(at.to_string(), "2026-01-02T03:04:05.000000006Z");
    assert_eq!(Time::parse("0001-01-01T00:00:00Z"), Ok(Time::ZERO));
    assert_eq!(Time::ZERO.to_string(), "0001-01-01T00:00:00Z");
}

#[test]
fn consumers_have_as_many_replicas_as_they_are_kept_by() {
    let stream = |retention| StreamConfig { num_replicas: 3, retention, ..StreamConfig::default() };
    let consumer = |durable: &str, num_replicas| ConsumerConfig {
        durable_name: durable.to_owned(),
        num_replicas,
        ..ConsumerConfig::default()
    };
    let limits = stream(RetentionPolicy::Limits);
    assert_eq!(consumer("d", 0).replicas_in(&limits), 3);
    assert_eq!(consumer("d", 1).replicas_in(&limits), 1);
    assert_eq!(consumer("", 0).replicas_in(&limits), 1);
    assert_eq!(consumer("", 3).replicas_in(&limits), 3);
    assert_eq!(consumer("", 0).replicas_in(&stream(RetentionPolicy::Interest)), 3);
}
