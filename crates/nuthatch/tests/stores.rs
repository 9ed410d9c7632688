//! The real server on stores that others wrote: a log survives `kill -9` and the loss of the
//! machine's disk, of two servers exactly one goes on, the commands that look into a bucket do, and
//! a store that lacks what a log needs is refused in plain words.
//!
//! `tests/stores.sh` installs and starts the stores and runs this for each; `NUTHATCH_TEST_STORE`
//! is the address, the store's own variables hold the rest.

mod support;

use nuthatch_client::Client;
use serde_json::json;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{
    Server, TIMEOUT, TempDir, api_ok, create_stream, fetch, position, publish_ok, read_all,
    reply_of, stream_state,
};

const STREAM: &str = "ORDERS";
/// Messages of each life of the server.
const MESSAGES: u64 = 300;
/// Exit code of a server that another has replaced.
const REPLACED: i32 = 3;
/// How long a start on a store that cannot be used may take: requests are repeated for 15 s.
const REFUSAL_LIMIT: Duration = Duration::from_secs(90);

/// The store's address, with a prefix that no other run has.
fn address(name: &str) -> String {
    let store = std::env::var("NUTHATCH_TEST_STORE")
        .expect("NUTHATCH_TEST_STORE is the address of a store; run tests/stores.sh");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
    format!("{}/{name}-{:x}", store.trim_end_matches('/'), now.as_nanos())
}

fn body(n: u64) -> Vec<u8> {
    format!("order {n} ").repeat(1 + (n % 200) as usize).into_bytes()
}

fn publish_some(client: &mut Client, from: u64) {
    for n in from..from + MESSAGES {
        assert_eq!(publish_ok(client, &format!("{STREAM}.{}", n % 7), &body(n)), n);
    }
}

/// All of it, in order, from the first message.
fn holds(client: &mut Client, last: u64) {
    let all = read_all(client, STREAM, 1);
    assert_eq!(all.len() as u64, last);
    for ((seq, message), n) in all.into_iter().zip(1..) {
        assert_eq!((seq, message.payload), (n, body(n)));
    }
}

/// Fetches and acknowledges; the sequence of the first.
fn work(client: &mut Client, count: usize) -> u64 {
    let got = fetch(client, STREAM, "work", count);
    for message in &got {
        let ack = reply_of(message).to_owned();
        client.request(&ack, b"", b"+ACK", TIMEOUT).expect("a confirmation");
    }
    position(reply_of(&got[0])).stream_seq
}

fn look(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nuthatch")).args(arguments).output();
    let output = output.expect("the command runs");
    let text = both(&output);
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
#[ignore = "needs a store: tests/stores.sh"]
fn what_was_acknowledged_outlives_the_machine_and_one_owner_goes_on() {
    let store = address("life");
    let flags = ["--store", store.as_str()];
    let machine = TempDir::new("stores-first");
    let first = Server::start(machine.path(), &flags);
    let mut client = first.connect();
    create_stream(&mut client, STREAM, &json!({}));
    let consumer = json!({"stream_name": STREAM, "config": {
        "durable_name": "work", "ack_policy": "explicit"}});
    api_ok(&mut client, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.work"), &consumer);
    publish_some(&mut client, 1);
    assert_eq!(work(&mut client, 40), 1);
    first.kill();
    // Its disk is gone with it.
    drop(machine);
    let machine = TempDir::new("stores-second");
    let second = Server::start(machine.path(), &flags);
    let mut client = second.connect();
    holds(&mut client, MESSAGES);
    assert_eq!(work(&mut client, 40), 41);
    publish_some(&mut client, MESSAGES + 1);
    let third_machine = TempDir::new("stores-third");
    let third = Server::start(third_machine.path(), &flags);
    let (code, log) = second.wait_for_end();
    assert_eq!(code, Some(REPLACED), "{log}");
    assert!(log.contains("another server has taken over the log"), "{log}");
    let mut client = third.connect();
    holds(&mut client, 2 * MESSAGES);
    publish_some(&mut client, 2 * MESSAGES + 1);
    assert_eq!(stream_state(&mut client, STREAM)["messages"], 3 * MESSAGES);
    third.stop();
    let told = look(&["doctor", "--store", &store]);
    assert!(told.contains("healthy") && told.contains("900 messages"), "{told}");
    let told = look(&["log", "report", "--store", &store]);
    assert!(told.contains("default"), "{told}");
    let last_machine = TempDir::new("stores-last");
    let last = Server::start(last_machine.path(), &flags);
    holds(&mut last.connect(), 3 * MESSAGES);
    last.stop();
}

#[test]
#[ignore = "needs a store that lacks something: tests/stores.sh"]
fn a_store_that_lacks_something_is_refused_in_plain_words() {
    let store = address("refused");
    let machine = TempDir::new("stores-refused");
    let mut server = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd"])
        .arg(machine.path())
        .args(["--store", &store])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let deadline = Instant::now() + REFUSAL_LIMIT;
    while matches!(server.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Ended already, or the next assertion fails.
    let _ = server.kill();
    let output = server.wait_with_output().expect("its output");
    let text = both(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("Can't start JetStream: {store}/default")), "{text}");
    let why = std::env::var("NUTHATCH_TEST_STORE_LACKS").expect("what the store lacks");
    assert!(text.contains(&why), "{text}");
}
