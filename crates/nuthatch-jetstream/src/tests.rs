//! The service without engines: what calls are, what bodies are, who owns a subject.

use crate::registry::{Entry, Registry};
use crate::request::{Call, is_empty, parse};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{CreateConsumerRequest, StorageType, StreamConfig, Time};
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
use std::sync::Arc;

#[test]
fn subjects_are_calls_or_silence() {
    let check = |rest, expect| assert_eq!(Call::parse(rest), expect, "{rest}");
    check("INFO", Some(Call::AccountInfo));
    check("INFO.x", None);
    check("STREAM.NAMES", Some(Call::StreamNames));
    check("STREAM.CREATE.S", Some(Call::StreamCreate("S")));
    check("STREAM.CREATE.S.T", None);
    check("STREAM.MSG.GET.S", Some(Call::MsgGet("S")));
    check("CONSUMER.CREATE.S", Some(Call::ConsumerCreateEphemeral("S")));
    check(
        "CONSUMER.CREATE.S.C.a.*.>",
        Some(Call::ConsumerCreate { stream: "S", name: "C", filter: "a.*.>" }),
    );
    check(
        "CONSUMER.DURABLE.CREATE.S.C",
        Some(Call::ConsumerCreateDurable { stream: "S", name: "C" }),
    );
    check("CONSUMER.DURABLE.CREATE.S", Some(Call::ConsumerCreateDurable { stream: "S", name: "" }));
    check("CONSUMER.DURABLE.CREATE.S.C.D", None);
    check("CONSUMER.INFO.S.C", Some(Call::ConsumerInfo("S", "C")));
    check("STREAM.LEADER.STEPDOWN.S", Some(Call::StreamStepDown("S")));
    check("STREAM.SNAPSHOT.S", Some(Call::StreamSnapshot("S")));
    check("NOSUCH.THING", None);
    check("", None);
}

#[test]
fn unknown_fields_are_errors_only_when_strict() {
    let body = br#"{"stream_name":"S","config":{"ack_policy":"explicit","colour":"red"}}"#;
    let lax: Result<CreateConsumerRequest, _> = parse(body, false);
    assert_eq!(lax.map(|request| request.stream_name), Ok("S".to_owned()));
    let strict = parse::<CreateConsumerRequest>(body, true).expect_err("unknown field");
    assert_eq!(strict.err_code, 10025);
    assert!(strict.description.contains(r#"unknown field "colour""#), "{strict}");
    let broken = parse::<CreateConsumerRequest>(b"{", true).expect_err("broken JSON");
    assert_eq!(broken.err_code, 10025);
}

#[test]
fn null_fields_are_left_alone() {
    let body = br#"{"stream_name":"S","config":{"description":null,"backoff":null,"name":"C"}}"#;
    let request: CreateConsumerRequest = parse(body, true).expect("nulls are no values");
    assert_eq!(request.config.name, "C");
    assert_eq!(request.config.description, "");
}

#[test]
fn empty_bodies() {
    for body in ["", " ", "{}", "{ }", "\n{\n}\n"] {
        assert!(is_empty(body.as_bytes()), "{body:?}");
    }
    for body in ["{\"a\":1}", "[]", "x", "null"] {
        assert!(!is_empty(body.as_bytes()), "{body:?}");
    }
}

fn entry(id: u32, name: &str, subjects: &[&str]) -> Entry {
    let config = StreamConfig {
        name: name.into(),
        subjects: subjects.iter().map(|&s| s.to_owned()).collect(),
        max_bytes: 100,
        ..StreamConfig::default()
    };
    Entry {
        id: StreamId(id),
        engine: LogId(1),
        account: AccountId::GLOBAL,
        config: Arc::new(config),
        created: Time(1),
    }
}

#[test]
fn the_registry_routes_and_refuses_overlap() {
    let account = AccountId::GLOBAL;
    let mut registry = Registry::default();
    registry.insert(entry(1, "A", &["a.*"]));
    registry.insert(entry(7, "B", &["b.>"]));
    let route = |registry: &Registry, subject: &str| {
        registry.route(account, subject.as_bytes()).map(|route| route.stream.0)
    };
    assert_eq!(route(&registry, "a.x"), Some(1));
    assert_eq!(route(&registry, "a.x.y"), None);
    assert_eq!(route(&registry, "b.x.y"), Some(7));
    assert_eq!(registry.route(AccountId(9), b"a.x"), None, "accounts are apart");

    let overlaps = |pattern: &str, except: Option<&str>| {
        let except = except.and_then(|name| registry.key_of(account, name));
        let mut search = OverlapSearch::new(pattern.as_bytes());
        match registry.overlaps(account, &mut search, &mut 100, except) {
            SearchOutcome::Found => true,
            SearchOutcome::Nothing => false,
            SearchOutcome::Interrupted => panic!("few steps are needed"),
        }
    };
    assert!(overlaps("*.x", None) && overlaps("*.x", Some("A")) && overlaps("b.>", Some("A")));
    assert!(!overlaps("a.*", Some("A")) && !overlaps("a", None) && !overlaps("c.>", None));
    assert_eq!(registry.fresh_id(), StreamId(8), "ids are never used again");
    assert_eq!(registry.reserved_bytes(account, StorageType::File), 200);

    let pattern = |registry: &Registry, subject: &str| {
        let route = registry.route(account, subject.as_bytes()).unwrap();
        registry.pattern_of(account, route, subject.as_bytes()).map(str::to_owned)
    };
    assert_eq!(pattern(&registry, "b.x.y").as_deref(), Some("b.>"));
    registry.insert(entry(3, "C", &["c.*.d", "c.x"]));
    assert_eq!((pattern(&registry, "c.y.d"), pattern(&registry, "c.x")), (None, None));
    let (key, gone) = registry.take(account, "C").expect("it is there");
    assert_eq!(route(&registry, "c.x"), None, "subjects without a stream have no route");
    registry.drop_subjects(account, key, &gone.config.subjects);
    // An update takes back what it had reserved.
    registry.insert(entry(7, "B", &["b.>"]));
    assert_eq!(registry.reserved_bytes(account, StorageType::File), 200);

    let before = registry.version();
    registry.take(account, "A");
    assert_eq!(registry.reserved_bytes(account, StorageType::File), 100);
    assert_ne!(registry.version(), before);
    assert_eq!(route(&registry, "a.x"), None);
    assert_eq!(registry.of_account(account).count(), 1);
}

#[test]
fn changes_name_the_subjects_whose_routes_are_others() {
    let account = AccountId::GLOBAL;
    let mut registry = Registry::default();
    let changes = |registry: &Registry, since: u64| {
        let mut changed = Vec::new();
        let is_known = registry.changes_since(since, account, &mut changed);
        let text = |pattern: Box<[u8]>| String::from_utf8_lossy(&pattern).into_owned();
        is_known.then(|| changed.into_iter().map(text).collect::<Vec<_>>())
    };
    registry.insert(entry(1, "A", &["a.*"]));
    let since = registry.version();
    registry.insert(entry(2, "B", &["b.>"]));
    assert_eq!(changes(&registry, since), Some(vec!["b.>".to_owned()]));
    let since = registry.version();
    registry.insert(entry(2, "B", &["b.>"]));
    assert_eq!(changes(&registry, since), Some(vec![]), "what stays is no change of routes");
    registry.insert(entry(3, "B", &["b.>"]));
    assert_eq!(changes(&registry, since), Some(vec!["b.>".to_owned(); 2]), "it is elsewhere");
    let since = registry.version();
    registry.take(account, "A").expect("it is there");
    assert_eq!(changes(&registry, since), Some(vec!["a.*".to_owned()]));
    let many: Vec<String> = (0..100).map(|number| format!("m.{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    registry.insert(entry(4, "M", &many));
    assert_eq!(changes(&registry, since), None, "many subjects count as all");
}
