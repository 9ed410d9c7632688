//! `nuthatch stream import --from`: streams of a running server come here with their sequences,
//! gaps, headers and consumers, over a kill of either side.
//!
//! The server that they come from is this build's own; `NATS_SERVER` names a nats-server to use
//! instead.

mod support;

use nuthatch_client::Client;
use serde_json::{Value, json};
use std::process::{Command, Output};
use support::{
    Server, TIMEOUT, TempDir, api_ok, create_stream, fetch, position, publish_ok, read_all,
    reply_of, stream_state,
};

const STREAM: &str = "ORDERS";

fn import(from: &Server, to: &Server, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["--no-context", "--timeout", "60s", "-s", &to.url, "--json"])
        .args(["stream", "import", "--from", &from.url])
        .args(flags)
        .output()
        .expect("the command runs")
}

fn import_ok(from: &Server, to: &Server, flags: &[&str]) -> Value {
    let output = import(from, to, flags);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {errors}"))
}

fn fill(client: &mut Client, from: u64, to: u64) {
    for n in from..to {
        let headers = format!("NATS/1.0\r\nNumber: {n}\r\n\r\n");
        let body = format!("order {n}");
        let ack = client
            .request(&format!("{STREAM}.{}", n % 7), headers.as_bytes(), body.as_bytes(), TIMEOUT)
            .expect("an ack");
        assert!(!String::from_utf8_lossy(&ack.payload).contains("error"));
    }
}

/// Sequence, subject, headers, payload, time of storing.
type Stored = (u64, String, Vec<u8>, Vec<u8>, String);

/// What a stream holds.
fn contents(client: &mut Client) -> Vec<Stored> {
    read_all(client, STREAM, 1)
        .into_iter()
        .map(|(seq, message)| {
            let reply = reply_of(&message).to_owned();
            let stored = reply.split('.').nth(7).expect("a time").to_owned();
            (seq, message.subject, message.headers, message.payload, stored)
        })
        .collect()
}

fn make_source(client: &mut Client) {
    create_stream(client, STREAM, &json!({"max_msgs": 100_000, "description": "all orders"}));
    fill(client, 0, 400);
    for seq in [3, 50, 51, 52, 400] {
        api_ok(client, &format!("STREAM.MSG.DELETE.{STREAM}"), &json!({"seq": seq}));
    }
    api_ok(client, &format!("STREAM.PURGE.{STREAM}"), &json!({"seq": 2}));
    for name in ["clean", "busy"] {
        let config = json!({"stream_name": STREAM, "config": {
            "durable_name": name, "ack_policy": "explicit"}});
        api_ok(client, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.{name}"), &config);
        let got = fetch(client, STREAM, name, 40);
        // One of them leaves the last ten unacknowledged.
        let acked = if name == "clean" { 40 } else { 30 };
        for message in got.iter().take(acked) {
            let ack = reply_of(message).to_owned();
            client.request(&ack, b"", b"+ACK", TIMEOUT).expect("a confirmation");
        }
    }
}

#[test]
fn a_stream_comes_here_whole_over_kills_of_either_side() {
    let (old, new) = (TempDir::new("import-old"), TempDir::new("import-new"));
    let source = Server::start(old.path(), &[]);
    let target = Server::start(new.path(), &[]);
    let mut there = source.connect();
    make_source(&mut there);
    import_ok(&source, &target, &[STREAM]);
    // Not in service: nobody finds it, and its subjects are nobody's.
    let info = support::api(&mut target.connect(), &format!("STREAM.INFO.{STREAM}"), &Value::Null);
    assert_eq!(info["error"]["err_code"], 10059, "{info}");
    fill(&mut there, 400, 500);
    target.kill();
    source.kill();
    let source = Server::start(old.path(), &[]);
    let target = Server::start(new.path(), &[]);
    let mut there = source.connect();
    let told = import_ok(&source, &target, &[STREAM]);
    assert_eq!(told[0]["last_seq"], 500, "{told}");
    // It leaves the source between copy and end.
    api_ok(&mut there, &format!("STREAM.MSG.DELETE.{STREAM}"), &json!({"seq": 120}));
    fill(&mut there, 500, 520);
    let told = import_ok(&source, &target, &["--finish", STREAM]);
    assert_eq!(told[0]["last_seq"], 520, "{told}");
    let mut here = target.connect();
    assert_eq!(contents(&mut here), contents(&mut there));
    for field in ["messages", "first_seq", "last_seq", "bytes", "num_deleted"] {
        let (ours, theirs) = (stream_state(&mut here, STREAM), stream_state(&mut there, STREAM));
        assert_eq!(ours[field], theirs[field], "{field}");
    }
    let next =
        |client: &mut Client, name: &str| position(reply_of(&fetch(client, STREAM, name, 1)[0]));
    let (clean, busy) = (next(&mut here, "clean"), next(&mut here, "busy"));
    // The first message is 2, and 3 is gone: forty are up to 42, thirty up to 32.
    assert_eq!((clean.stream_seq, clean.consumer_seq), (43, 41));
    assert_eq!((busy.stream_seq, busy.consumer_seq), (33, 31));
    assert_eq!(publish_ok(&mut here, &format!("{STREAM}.1"), b"new"), 521);
    let again = import(&source, &target, &[STREAM]);
    assert!(!again.status.success(), "it is in service already");
    source.stop();
    target.stop();
}

#[test]
fn an_import_can_be_given_up_and_a_work_queue_is_read_without_disturbing_it() {
    let (old, new) = (TempDir::new("import-work-old"), TempDir::new("import-work-new"));
    let source = Server::start(old.path(), &[]);
    let target = Server::start(new.path(), &[]);
    let mut there = source.connect();
    create_stream(&mut there, STREAM, &json!({"retention": "workqueue"}));
    fill(&mut there, 0, 30);
    let config = json!({"stream_name": STREAM, "config": {
        "durable_name": "work", "ack_policy": "explicit"}});
    api_ok(&mut there, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.work"), &config);
    import_ok(&source, &target, &[STREAM]);
    for message in fetch(&mut there, STREAM, "work", 10) {
        let ack = reply_of(&message).to_owned();
        there.request(&ack, b"", b"+ACK", TIMEOUT).expect("a confirmation");
    }
    assert_eq!(stream_state(&mut there, STREAM)["messages"], 20);
    let given_up = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["--no-context", "-s", &target.url, "stream", "import", "--cancel", STREAM])
        .output()
        .expect("the command runs");
    assert!(given_up.status.success(), "{}", String::from_utf8_lossy(&given_up.stderr));
    import_ok(&source, &target, &["--finish", STREAM]);
    let mut here = target.connect();
    let state = stream_state(&mut here, STREAM);
    assert_eq!((&state["messages"], &state["first_seq"]), (&json!(20), &json!(11)));
    let first = &fetch(&mut here, STREAM, "work", 1)[0];
    assert_eq!(position(reply_of(first)).stream_seq, 11);
    source.stop();
    target.stop();
}
