//! A broker in this process: what it serves, and what it leaves alone. Each test has a store of its own.

mod support;

use nuthatch_embed::client::js::{PubAck, api};
use nuthatch_embed::client::{Client, ConnectOptions, Credentials};
use nuthatch_embed::{Broker, BrokerError, CloseError, Config, ConnectFailed, OpenError};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
use support::{Dir, WAIT, config, create, open, publish};

fn state(client: &mut Client, stream: &str) -> Value {
    api(client, &format!("STREAM.INFO.{stream}"), &Value::Null, WAIT).expect("info")["state"].take()
}

/// Publish, subscribe, pull and manage, through connections that no other process can have.
#[test]
fn clients_without_a_port() {
    let dir = Dir::new("clients");
    let broker = open(&dir, "");
    assert_eq!((broker.client_port(), broker.client_url()), (None, None));
    let (mut one, mut other) = (broker.connect().expect("one"), broker.connect().expect("two"));
    other.subscribe("core.>", "").expect("subscribe");
    other.round_trip(WAIT).expect("round trip");
    one.writer.publish(b"core.x", b"", b"", b"hello").expect("publish");
    one.writer.flush().expect("flush");
    let message = other.next_message(Instant::now() + WAIT).expect("a message");
    assert_eq!((message.subject.as_str(), &*message.payload), ("core.x", &b"hello"[..]));
    create(&mut one, "S");
    assert_eq!(publish(&mut one, "S.x", b"one"), PubAck::Stored(1));
    let consumer =
        json!({"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}});
    api(&mut other, "CONSUMER.CREATE.S.D", &consumer, WAIT).expect("a consumer");
    other.subscribe("pulled", "").expect("subscribe");
    other.writer.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.D", b"pulled", b"", b"1").expect("a pull");
    other.writer.flush().expect("flush");
    let pulled = other.next_message(Instant::now() + WAIT).expect("what was pulled");
    assert_eq!((pulled.subject.as_str(), &*pulled.payload), ("S.x", &b"one"[..]));
    // Large ones pass too, both ways.
    let large = vec![b'x'; 900_000];
    assert_eq!(publish(&mut one, "S.y", &large), PubAck::Stored(2));
    broker.close().expect("a clean close");
}

#[test]
fn three_brokers_in_one_process() {
    let dirs = ["three-a", "three-b", "three-c"].map(Dir::new);
    let brokers: Vec<Broker> = dirs.iter().map(|dir| open(dir, "port: -1")).collect();
    for (number, broker) in brokers.iter().enumerate() {
        let mut client = broker.connect().expect("connect");
        create(&mut client, "S");
        for _ in 0..=number {
            publish(&mut client, "S.x", b"body");
        }
    }
    for broker in &brokers {
        broker.close().expect("a clean close");
    }
    for (number, dir) in dirs.iter().enumerate() {
        let broker = open(dir, "");
        let mut client = broker.connect().expect("connect");
        assert_eq!(state(&mut client, "S")["messages"], number + 1);
    }
}

/// The port is one of the ways in; nobody who leaves it out hears of it.
#[test]
fn a_listener_if_one_is_wanted() {
    let dir = Dir::new("listener");
    let text = format!("port: -1, jetstream {{ store_dir: {:?} }}", dir.path());
    let broker = Broker::open(Config::from_text(&text).expect("a configuration")).expect("open");
    let url = broker.client_url().expect("a URL");
    let port = broker.client_port().expect("a port");
    assert_eq!(url, format!("nats://127.0.0.1:{port}"));
    assert!(port != 0);
    let mut outside = Client::connect(&ConnectOptions::new(&url).expect("URL")).expect("connect");
    let mut inside = broker.connect().expect("connect");
    create(&mut outside, "S");
    assert_eq!(publish(&mut inside, "S.x", b"x"), PubAck::Stored(1));
    // A second broker on that port does not open, and leaves the store to a third one.
    let store = Dir::new("listener-taken");
    let taken = format!("port: {port}, jetstream {{ store_dir: {:?} }}", store.path());
    let refused = Broker::open(Config::from_text(&taken).expect("a configuration"));
    let said = refused.expect_err("the port is taken").to_string();
    assert!(said.contains("client port"), "{said}");
    open(&store, "").close().expect("a clean close");
}

#[test]
fn a_store_belongs_to_one_broker() {
    let dir = Dir::new("store");
    let broker = open(&dir, "");
    let refused = Broker::open(config(&dir, "")).expect_err("it is in use");
    assert!(matches!(refused, OpenError::Start(_)), "{refused}");
    let mut client = broker.connect().expect("the first goes on");
    create(&mut client, "S");
    broker.close().expect("a clean close");
    open(&dir, "").close().expect("it is free now");
}

/// Users of the configuration are asked for in the process too.
#[test]
fn users() {
    let dir = Dir::new("users");
    let broker = open(&dir, "authorization { user: a, password: b }");
    let denied = broker.connect().expect_err("no credentials");
    assert!(matches!(denied, ConnectFailed::Client(_)), "{denied}");
    let mut options = ConnectOptions::in_process();
    let (user, password) = (Some("a".to_owned()), Some("b".to_owned()));
    options.credentials = Credentials { user, password, ..Credentials::default() };
    let mut client = broker.connect_with(&options).expect("connect");
    create(&mut client, "S");
}

/// Whatever asks for TLS on the port does not inside the process.
#[test]
fn bytes_of_a_stream() {
    let dir = Dir::new("bytes");
    let broker = open(&dir, "max_payload: 8388608");
    let mut stream = broker.stream().expect("a stream");
    stream.set_read_timeout(Some(WAIT)).expect("a timeout");
    let mut text = Vec::new();
    stream.write_all(b"CONNECT {}\r\nPING\r\n").expect("write");
    let mut bytes = [0; 1024];
    while !text.ends_with(b"PONG\r\n") {
        let count = stream.read(&mut bytes).expect("read");
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..count]);
    }
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("INFO {") && text.contains(r#""max_payload":8388608"#), "{text}");
    broker.close().expect("a clean close");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the end of the stream");
}

#[test]
fn a_closed_broker_says_so() {
    let dir = Dir::new("closed");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    std::thread::scope(|scope| {
        let closers = [(); 4].map(|()| scope.spawn(|| broker.close()));
        for closer in closers {
            closer.join().expect("no panic").expect("a clean close");
        }
    });
    let refused = broker.connect().expect_err("it is closed");
    assert!(matches!(refused, ConnectFailed::Broker(BrokerError::Closed)), "{refused}");
    assert!(client.round_trip(WAIT).is_err(), "its connections have ended");
    assert_eq!(broker.fault(), None);
    broker.close().expect("once more");
}

/// What would end the process of a server ends the broker, which says why.
#[test]
fn a_fault_ends_the_broker_and_nothing_else() {
    let bucket = Dir::new("fault-bucket");
    let dirs = ["fault-first", "fault-second"].map(Dir::new);
    let text = |dir: &Dir| {
        let (dir, bucket) = (dir.path(), bucket.path());
        format!("jetstream {{ store_dir: {dir:?}, store: \"file://{}\" }}", bucket.display())
    };
    let open = |dir: &Dir| {
        let config = Config::from_text(&text(dir)).expect("a configuration").without_listener();
        Broker::open(config).expect("open")
    };
    let first = open(&dirs[0]);
    let mut client = first.connect().expect("connect");
    create(&mut client, "S");
    publish(&mut client, "S.x", b"one");
    let second = open(&dirs[1]);
    // The newest one owns a log in a bucket; the other one finds out by its next write at the latest.
    let _ = client.request("S.x", b"", b"lost", WAIT);
    let deadline = Instant::now() + WAIT;
    while first.fault().is_none() {
        assert!(Instant::now() < deadline, "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let why = first.fault().expect("a reason");
    let refused = first.connect().expect_err("it has ended");
    assert!(matches!(refused, ConnectFailed::Broker(BrokerError::Dead(_))), "{refused}");
    let closed = first.close().expect_err("it had ended");
    assert!(matches!(&closed, CloseError::Dead(said) if *said == why), "{closed}");
    let mut client = second.connect().expect("connect");
    assert_eq!(state(&mut client, "S")["messages"], 1);
    second.close().expect("a clean close");
}

#[test]
fn what_is_refused_before_anything_starts() {
    let refused = |text: &str, word: &str| {
        let said = Config::from_text(text).expect_err(text).to_string();
        assert!(said.contains(word), "{text}: {said}");
    };
    refused("prot: 4222", "unknown field \"prot\"");
    refused("jetstream {", "configuration:1");
    refused("pid_file: x", "pid_file");
    refused("ports_file_dir: x", "ports_file_dir");
    refused("console { port: 8280 }", "console");
    refused("include 'nowhere.conf'", "nowhere.conf");
    refused(&" ".repeat(17 << 20), "longer than");
}
