//! What the server publishes itself is stored by streams whose subjects match.

mod support;

use nuthatch_server::options::Options;
use support::{Peer, configured, eventually, login, with_jetstream};

fn create(peer: &mut Peer, name: &str, config: &str) {
    let created = peer.ask(&format!("$JS.API.STREAM.CREATE.{name}"), config);
    assert!(created.contains("did_create"), "{created}");
}

fn messages(peer: &mut Peer, stream: &str) -> u64 {
    let info = peer.ask(&format!("$JS.API.STREAM.INFO.{stream}"), "");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    info["state"]["messages"].as_u64().unwrap()
}

const REPUBLISHING: &str =
    r#"{"name":"A","subjects":["a.>"],"republish":{"src":">","dest":"copy.>"}}"#;

#[test]
fn what_is_published_again_is_stored_by_another_stream() {
    let server = with_jetstream(Options::default());
    let mut peer = server.client();
    create(&mut peer, "A", REPUBLISHING);
    create(&mut peer, "FILE", r#"{"name":"FILE","subjects":["copy.a.1"]}"#);
    create(&mut peer, "MEMORY", r#"{"name":"MEMORY","subjects":["copy.a.2"],"storage":"memory"}"#);
    for subject in ["a.1", "a.2", "a.1", "a.3"] {
        assert!(peer.ask(subject, "hello").contains("\"stream\":\"A\""));
    }
    eventually("the copies are stored", || {
        messages(&mut peer, "FILE") == 2 && messages(&mut peer, "MEMORY") == 1
    });
    let stored = peer.ask("$JS.API.DIRECT.GET.FILE.copy.a.1", "");
    assert!(!stored.contains("hello"), "not allowed: {stored}");
    let last = peer.ask("$JS.API.STREAM.MSG.GET.FILE", r#"{"last_by_subj":"copy.a.1"}"#);
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["message"]["data"], "aGVsbG8=");
    assert!(last["message"]["hdrs"].is_string(), "it says where it is from: {last}");
}

#[test]
fn what_is_published_again_is_stored_by_a_stream_of_an_importing_account() {
    let server = with_jetstream(configured(
        "accounts {
           A { jetstream: enabled, users: [{user: a, password: pw}], exports: [{stream: 'copy.>'}] }
           B { jetstream: enabled, users: [{user: b, password: pw}],
               imports: [{stream: {account: A, subject: 'copy.>'}, prefix: 'from'}] }
         }",
    ));
    let (mut a, mut b) = (server.connected(&login("a")), server.connected(&login("b")));
    create(&mut a, "A", REPUBLISHING);
    create(&mut b, "B", r#"{"name":"B","subjects":["from.copy.>"]}"#);
    assert!(a.ask("a.1", "hello").contains("\"stream\":\"A\""));
    eventually("the copy is stored", || messages(&mut b, "B") == 1);
}

#[test]
fn advisories_are_stored() {
    let server = with_jetstream(Options::default());
    let mut peer = server.client();
    let config =
        |name: &str| format!(r#"{{"name":"{name}","subjects":["$JS.EVENT.ADVISORY.{name}.>"]}}"#);
    create(&mut peer, "STREAM", &config("STREAM"));
    create(&mut peer, "CONSUMER", &config("CONSUMER"));
    let audit = r#"{"name":"API","subjects":["$JS.EVENT.ADVISORY.API"]}"#;
    create(&mut peer, "API", audit);
    create(&mut peer, "A", r#"{"name":"A","subjects":["a"]}"#);
    let consumer = r#"{"stream_name":"A","config":{"durable_name":"c","ack_policy":"explicit"}}"#;
    let created = peer.ask("$JS.API.CONSUMER.DURABLE.CREATE.A.c", consumer);
    assert!(created.contains("\"durable_name\":\"c\""), "{created}");
    for stream in ["STREAM", "CONSUMER", "API"] {
        eventually(stream, || messages(&mut peer, stream) > 0);
    }
}
