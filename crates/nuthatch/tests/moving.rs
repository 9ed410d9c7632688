//! Moving a stream between logs of a running server: with publishers and consumers at work, there
//! and back, and with the server killed on the way.

mod support;

use nuthatch_client::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{
    Random, Server, TempDir, api, api_ok, create_stream, position, publish_ok, read_all, reply_of,
    stream_state,
};

/// Publishes of one client without an answer.
const WINDOW: u64 = 64;
/// How long anything may take that is waited for.
const LIMIT: Duration = Duration::from_secs(180);
const STREAM: &str = "ORDERS";

struct MovingRig {
    machine: TempDir,
    _bucket: TempDir,
    config: PathBuf,
}

impl MovingRig {
    fn new(name: &str) -> Self {
        let machine = TempDir::new(&format!("{name}-machine"));
        let bucket = TempDir::new(&format!("{name}-bucket"));
        let config = machine.path().join("server.conf");
        let address = format!("file://{}", bucket.path().display());
        let late = machine.path().join("late").display().to_string();
        let text = format!(
            "jetstream {{ logs {{ cold {{ store: {address:?} }}, \
             late {{ dir: {late:?}, sync_interval: \"2m\" }} }} }}"
        );
        std::fs::write(&config, text).expect("a file");
        Self { machine, _bucket: bucket, config }
    }

    fn start(&self) -> Server {
        let flags = ["-c", self.config.to_str().expect("a plain path")];
        Server::start(&self.machine.path().join("data"), &flags)
    }
}

/// Payloads by the sequence under which they were acknowledged.
type Acked = BTreeMap<u64, String>;

/// Publishes until told to stop, with many publishes on their way; returns what was acknowledged.
/// A server that goes away ends it, too.
struct Publisher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Acked>,
}

impl Publisher {
    fn start(server: &Server, name: &'static str) -> Self {
        let (client, stop) = (server.connect(), Arc::new(AtomicBool::new(false)));
        let seen = stop.clone();
        Self { stop, thread: thread::spawn(move || publish_until(client, name, &seen)) }
    }

    fn stop(self) -> Acked {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the publisher does not panic")
    }
}

fn publish_until(mut client: Client, name: &str, stop: &AtomicBool) -> Acked {
    let inbox = format!("{}.p", client.inbox());
    client.subscribe(&format!("{inbox}.*"), "").expect("a subscription");
    let (mut acked, mut last_seq) = (Acked::new(), 0);
    let (mut sent, mut answered) = (0, 0);
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while !stopping && sent < answered + WINDOW {
            let (reply, body) = (format!("{inbox}.{sent}"), format!("{name}-{sent}"));
            let subject = format!("{STREAM}.{name}");
            let sending = &mut client.writer;
            if sending.publish(subject.as_bytes(), reply.as_bytes(), b"", body.as_bytes()).is_err()
            {
                return acked;
            }
            sent += 1;
        }
        if stopping && sent == answered {
            return acked;
        }
        if client.writer.flush().is_err() {
            return acked;
        }
        let Ok(message) = client.next_message(Instant::now() + LIMIT) else { return acked };
        let number: u64 =
            message.subject.rsplit('.').next().and_then(|n| n.parse().ok()).expect("a number");
        let ack: Value = serde_json::from_slice(&message.payload).expect("JSON");
        assert!(ack.get("error").is_none(), "{name}-{number}: {ack}");
        let seq = ack["seq"].as_u64().expect("a sequence");
        assert!(seq > last_seq, "{name}-{number} has {seq} behind {last_seq}");
        assert_eq!(number, answered, "answers come in order");
        last_seq = seq;
        answered += 1;
        acked.insert(seq, format!("{name}-{number}"));
    }
}

/// Fetches and acknowledges until told to stop; returns first deliveries in their order.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Worker {
    fn start(server: &Server, consumer: &'static str) -> Self {
        let (client, stop) = (server.connect(), Arc::new(AtomicBool::new(false)));
        let seen = stop.clone();
        Self { stop, thread: thread::spawn(move || work_until(client, consumer, &seen)) }
    }

    fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the worker does not panic")
    }
}

fn work_until(mut client: Client, consumer: &str, stop: &AtomicBool) -> Vec<u64> {
    let inbox = format!("{}.w", client.inbox());
    client.subscribe(&inbox, "").expect("a subscription");
    let pull = json!({"batch": 50, "expires": 1_000_000_000_u64}).to_string();
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}");
    let mut first = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let sending = &mut client.writer;
        let asked = sending.publish(subject.as_bytes(), inbox.as_bytes(), b"", pull.as_bytes());
        if asked.is_err() || client.writer.flush().is_err() {
            return first;
        }
        for _ in 0..50 {
            let Ok(message) = client.next_message(Instant::now() + LIMIT) else { return first };
            if message.reply.is_none() {
                break;
            }
            let at = position(reply_of(&message));
            if at.delivered == 1 {
                first.push(at.stream_seq);
            }
            let ack = reply_of(&message).to_owned();
            if client.writer.publish(ack.as_bytes(), b"", b"", b"+ACK").is_err() {
                return first;
            }
        }
    }
    // The last acknowledgements are on their way when this is answered.
    let _ = client.writer.flush();
    let _ = client.round_trip(LIMIT);
    first
}

fn make(client: &mut Client, extra: &Value) {
    create_stream(client, STREAM, extra);
    let config = json!({"stream_name": STREAM, "config": {
        "durable_name": "work", "ack_policy": "explicit", "ack_wait": 30_000_000_000_u64,
        "max_ack_pending": 1000}});
    api_ok(client, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.work"), &config);
}

fn status(client: &mut Client) -> Value {
    api_ok(client, &format!("STREAM.MOVE.{STREAM}"), &json!({}))
}

fn begin(client: &mut Client, log: &str, max_rate: u64) {
    let body = json!({"log": log, "max_rate": max_rate});
    api_ok(client, &format!("STREAM.MOVE.{STREAM}"), &body);
}

/// Waits until no move is under way; the stream must live in `log` then.
fn wait_until_in(client: &mut Client, log: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = status(client);
        if told["moving"] == false {
            assert_eq!(told["log"], log, "{told}");
            return;
        }
        assert!(Instant::now() < deadline, "still moving: {told}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Every acknowledged message is there once, under its sequence, and nothing else.
fn check(client: &mut Client, acked: &Acked, exactly: bool) {
    let stored: Vec<(u64, String)> = read_all(client, STREAM, 1)
        .into_iter()
        .map(|(seq, message)| (seq, String::from_utf8_lossy(&message.payload).into_owned()))
        .collect();
    let by_seq: BTreeMap<u64, &String> = stored.iter().map(|(seq, body)| (*seq, body)).collect();
    assert_eq!(by_seq.len(), stored.len(), "a sequence came twice");
    for (seq, body) in acked {
        assert_eq!(by_seq.get(seq), Some(&body), "acknowledged as {seq}");
    }
    let mut bodies: Vec<&String> = by_seq.values().copied().collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), by_seq.len(), "a message is there twice");
    if exactly {
        assert_eq!(by_seq.len(), acked.len());
    }
}

fn merged(all: impl IntoIterator<Item = Acked>) -> Acked {
    let (mut merged, mut count) = (Acked::new(), 0);
    for acked in all {
        count += acked.len();
        merged.extend(acked);
    }
    assert_eq!(merged.len(), count, "a sequence was acknowledged twice");
    merged
}

#[test]
fn a_stream_moves_to_a_bucket_and_back_while_it_is_used() {
    let place = MovingRig::new("moving");
    let server = place.start();
    let mut client = server.connect();
    make(&mut client, &json!({"duplicate_window": 120_000_000_000_u64}));
    let mut acked = Acked::new();
    for n in 0..3000 {
        let body = format!("before-{n}");
        acked.insert(publish_ok(&mut client, &format!("{STREAM}.x"), body.as_bytes()), body);
    }
    let id = b"NATS/1.0\r\nNats-Msg-Id: once\r\n\r\n";
    let ack = client.request(&format!("{STREAM}.x"), id, b"once", LIMIT).expect("an ack");
    let once: Value = serde_json::from_slice(&ack.payload).expect("JSON");
    acked.insert(once["seq"].as_u64().expect("a sequence"), "once".to_owned());
    let publishers = ["a", "b", "c"].map(|name| Publisher::start(&server, name));
    let worker = Worker::start(&server, "work");
    for log in ["cold", "default", "cold"] {
        begin(&mut client, log, 0);
        wait_until_in(&mut client, log);
        let again = client.request(&format!("{STREAM}.x"), id, b"once", LIMIT).expect("an ack");
        let again: Value = serde_json::from_slice(&again.payload).expect("JSON");
        assert_eq!((&again["seq"], &again["duplicate"]), (&once["seq"], &json!(true)), "in {log}");
    }
    let all = publishers.into_iter().map(Publisher::stop).chain([acked]);
    let acked = merged(all);
    check(&mut client, &acked, true);
    drain(&mut client, acked.len() as u64);
    let first = worker.stop();
    assert!(first.is_sorted(), "deliveries come in the order of the stream");
    assert_eq!(first.len(), acked.len(), "every message is delivered first once");
    server.stop();
    // What is left in the log that it came from does not come back.
    let server = place.start();
    let mut client = server.connect();
    assert_eq!(status(&mut client)["log"], "cold");
    check(&mut client, &acked, true);
    server.stop();
}

/// Waits until the consumer has had everything.
fn drain(client: &mut Client, last: u64) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let info = api_ok(client, &format!("CONSUMER.INFO.{STREAM}.work"), &Value::Null);
        if info["ack_floor"]["stream_seq"].as_u64() == Some(last) {
            return;
        }
        assert!(Instant::now() < deadline, "{info}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_killed_in_mid_move_goes_on_with_it() {
    let place = MovingRig::new("moving-killed");
    let mut random = Random(0x5eed_1234);
    let mut server = place.start();
    let mut client = server.connect();
    make(&mut client, &json!({}));
    let mut acked = Acked::new();
    let body = "x".repeat(900);
    for n in 0..2000 {
        let body = format!("before-{n}-{body}");
        acked.insert(publish_ok(&mut client, &format!("{STREAM}.x"), body.as_bytes()), body);
    }
    let mut last_first = 0;
    for round in 0..4 {
        let log = if round % 2 == 0 { "cold" } else { "default" };
        let publisher = Publisher::start(&server, ["k0", "k1", "k2", "k3"][round]);
        let worker = Worker::start(&server, "work");
        // Slow enough that the kill comes while it copies, or fast enough that it may not.
        begin(&mut client, log, if random.next().is_multiple_of(2) { 1 << 20 } else { 64 << 20 });
        thread::sleep(Duration::from_millis(random.next() % 300));
        server.kill();
        acked = merged([acked, publisher.stop()]);
        let first = worker.stop();
        assert!(first.is_sorted(), "round {round}");
        last_first = last_first.max(first.last().copied().unwrap_or(0));
        server = place.start();
        client = server.connect();
        check(&mut client, &acked, false);
        // Without being asked again it comes to its end.
        wait_until_in(&mut client, log);
        check(&mut client, &acked, false);
    }
    let worker = Worker::start(&server, "work");
    let last = stream_state(&mut client, STREAM)["last_seq"].as_u64().expect("a sequence");
    drain(&mut client, last);
    worker.stop();
    assert!(last_first <= last, "something was delivered that is not there");
    server.stop();
}

#[test]
fn a_move_that_makes_no_sense_is_refused_and_one_that_was_begun_can_be_given_up() {
    let place = MovingRig::new("moving-refused");
    let server = place.start();
    let mut client = server.connect();
    make(&mut client, &json!({}));
    for n in 0..500 {
        publish_ok(&mut client, &format!("{STREAM}.{n}"), &[b'x'; 2000]);
    }
    let refused = api(&mut client, &format!("STREAM.MOVE.{STREAM}"), &json!({"log": "nowhere"}));
    assert!(refused["error"]["description"].as_str().is_some_and(|t| t.contains("no log")));
    let refused = api(&mut client, &format!("STREAM.MOVE.{STREAM}"), &json!({"log": "late"}));
    assert!(refused["error"]["description"].as_str().is_some_and(|t| t.contains("does not sync")));
    let refused = api(&mut client, "STREAM.MOVE.NONE", &json!({"log": "cold"}));
    assert_eq!(refused["error"]["err_code"], 10059);
    let refused = api(&mut client, &format!("STREAM.MOVE.{STREAM}"), &json!({"cancel": true}));
    assert!(refused["error"].is_object(), "{refused}");
    create_stream(&mut client, "MEM", &json!({"storage": "memory"}));
    let refused = api(&mut client, "STREAM.MOVE.MEM", &json!({"log": "cold"}));
    assert!(refused["error"]["description"].as_str().is_some_and(|t| t.contains("memory")));
    // Ten bytes a second: it will be there for a while.
    begin(&mut client, "cold", 10);
    let info = api_ok(&mut client, &format!("STREAM.INFO.{STREAM}"), &Value::Null);
    if status(&mut client)["moving"] == true {
        assert!(info["config"]["metadata"]["_nuthatch.move"].is_string(), "{info}");
        api(&mut client, &format!("STREAM.MOVE.{STREAM}"), &json!({"cancel": true}));
    }
    let deadline = Instant::now() + LIMIT;
    while status(&mut client)["moving"] == true {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(stream_state(&mut client, STREAM)["messages"], 500);
    publish_ok(&mut client, &format!("{STREAM}.more"), b"more");
    server.stop();
    let server = place.start();
    assert_eq!(stream_state(&mut server.connect(), STREAM)["messages"], 501);
    server.stop();
}
