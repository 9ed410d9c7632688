//! The client's typed calls, buckets, objects and services, and how it comes back, over brokers of this process.

mod support;

use nuthatch_embed::client::js::{
    JetStream, KeyValue, KvError, ObjectError, ObjectStore, Operation, STREAM_NOT_FOUND,
};
use nuthatch_embed::client::service::{Service, ServiceConfig, ServiceError};
use nuthatch_embed::client::{Client, ConnectOptions, RequestError};
use nuthatch_embed::{Broker, Config};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerAction, ConsumerConfig, GetRequest, PurgeRequest, StreamConfig,
    StreamInfoRequest,
};
use serde_json::Value;
use std::io::Cursor;
use std::time::{Duration, Instant};
use support::{Dir, WAIT, open};

fn stream(name: &str) -> StreamConfig {
    let subjects = vec![format!("{name}.>")];
    StreamConfig { name: name.into(), subjects, num_replicas: 1, ..StreamConfig::default() }
}

#[test]
fn streams_messages_and_consumers() {
    let dir = Dir::new("typed-streams");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    let mut js = JetStream::new(&mut client, WAIT);
    let made = js.create_stream(&stream("S")).expect("a stream");
    assert_eq!((made.config.name.as_str(), made.config.max_msgs), ("S", -1), "defaults are told");
    for body in ["one", "two", "three"] {
        js.publish("S.x", b"", body.as_bytes()).expect("stored");
    }
    let state = js.stream("S", &StreamInfoRequest::default()).expect("info").state;
    assert_eq!((state.messages, state.first_seq, state.last_seq), (3, 1, 3));
    let which = GetRequest { last_by_subj: "S.x".into(), ..GetRequest::default() };
    let last = js.message("S", &which).expect("a message");
    assert_eq!((last.seq, last.data.as_slice()), (3, &b"three"[..]));
    assert!(!last.time.is_zero());

    let config = ConsumerConfig {
        durable_name: "D".into(),
        ack_policy: AckPolicy::Explicit,
        filter_subject: "S.>".into(),
        ..ConsumerConfig::default()
    };
    let consumer = js.create_consumer("S", &config, ConsumerAction::Create).expect("a consumer");
    assert_eq!((consumer.name.as_str(), consumer.num_pending), ("D", 3));
    let fetched = js.fetch("S", "D", 2).expect("fetched");
    let seen: Vec<_> = fetched.iter().map(|one| (one.seq, one.pending)).collect();
    assert_eq!(seen, [(1, 2), (2, 1)]);
    assert_eq!(js.fetch("S", "D", 10).expect("the rest").len(), 1);
    assert!(js.fetch("S", "D", 10).expect("nothing").is_empty());
    assert_eq!(js.consumer("S", "D").expect("info").num_ack_pending, 3);
    assert_eq!(js.consumers("S").expect("all").len(), 1);
    js.delete_consumer("S", "D").expect("deleted");

    js.delete_message("S", 2).expect("deleted");
    let request = StreamInfoRequest { deleted_details: true, ..StreamInfoRequest::default() };
    assert_eq!(js.stream("S", &request).expect("info").state.deleted, [2]);
    let keep = PurgeRequest { keep: 1, ..PurgeRequest::default() };
    assert_eq!(js.purge("S", &keep).expect("purged"), 1);
    let account = js.account().expect("account");
    assert_eq!((account.streams, account.limits.max_streams), (1, -1));

    let mut changed = stream("S");
    changed.description = "changed".into();
    assert_eq!(js.update_stream(&changed).expect("changed").config.description, "changed");
    assert_eq!(js.streams("S.x").expect("list").len(), 1);
    assert_eq!(js.stream_names("").expect("names"), ["S"]);
    js.delete_stream("S").expect("deleted");
    let gone = js.stream("S", &StreamInfoRequest::default()).expect_err("it is gone");
    assert_eq!(gone.err_code(), Some(STREAM_NOT_FOUND));
    let unheard = js.publish("S.x", b"", b"x").expect_err("no stream stores it").to_string();
    assert!(unheard.contains("no responders"), "{unheard}");
}

#[test]
fn lists_longer_than_a_page_come_whole() {
    let dir = Dir::new("typed-lists");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    let mut js = JetStream::new(&mut client, WAIT);
    for number in 0..300 {
        js.create_stream(&stream(&format!("S{number}"))).expect("a stream");
    }
    assert_eq!(js.streams("").expect("list").len(), 300);
    assert_eq!(js.stream_names("").expect("names").len(), 300);
}

#[test]
fn key_value_buckets() {
    let dir = Dir::new("typed-kv");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    let mut config = KeyValue::config("b").expect("a name");
    config.max_msgs_per_subject = 5;
    let js = JetStream::new(&mut client, WAIT);
    let mut bucket = KeyValue::create(js, &config).expect("a bucket");
    assert_eq!(bucket.get("a").expect("asked"), None);
    let first = bucket.create_key("a", b"1").expect("created");
    let refused = bucket.create_key("a", b"2").expect_err("it has a value");
    assert!(matches!(refused, KvError::Changed { expected: 0, .. }), "{refused}");
    let second = bucket.update("a", b"2", first).expect("replaced");
    let refused = bucket.update("a", b"3", first).expect_err("another one has replaced it");
    assert!(matches!(refused, KvError::Changed { .. }), "{refused}");
    bucket.put("b.c", b"x").expect("stored");
    let entry = bucket.get("a").expect("asked").expect("a value");
    assert_eq!((entry.value.as_slice(), entry.revision), (&b"2"[..], second));
    let old = bucket.revision("a", first).expect("asked").expect("it is kept");
    assert_eq!(old.value, b"1");
    assert_eq!(bucket.revision("b.c", first).expect("asked"), None, "that is of another key");
    assert_eq!(bucket.keys().expect("keys"), ["a", "b.c"]);

    bucket.delete("a").expect("deleted");
    assert_eq!(bucket.get("a").expect("asked"), None);
    assert_eq!(bucket.keys().expect("keys"), ["b.c"]);
    let kept: Vec<_> = bucket.history("a").expect("history").iter().map(|e| e.operation).collect();
    assert_eq!(kept, [Operation::Put, Operation::Put, Operation::Delete]);
    bucket.create_key("a", b"again").expect("a deleted key has no value");
    bucket.purge("a").expect("purged");
    assert_eq!(bucket.history("a").expect("history").len(), 1);
    assert_eq!(bucket.info().expect("info").config.max_msgs_per_subject, 5);

    for bad in ["", "a b", ".a", "a..b", "a*", ">"] {
        assert!(matches!(bucket.put(bad, b"x"), Err(KvError::BadName(_))), "{bad:?}");
    }
    assert!(matches!(KeyValue::config("a.b"), Err(KvError::BadName(_))));
    let js = JetStream::new(&mut client, WAIT);
    let mut none = KeyValue::open(js, "nowhere").expect("a name");
    assert!(matches!(none.get("a"), Err(KvError::NoBucket(_))));
    assert!(matches!(none.put("a", b"x"), Err(KvError::NoBucket(_))));
}

#[test]
fn object_stores() {
    let dir = Dir::new("typed-objects");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    let config = ObjectStore::config("files").expect("a name");
    let js = JetStream::new(&mut client, WAIT);
    let mut store = ObjectStore::create(js, &config).expect("a bucket");
    // More than one batch of chunks.
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let told = store.put("a/b c", &mut Cursor::new(&large)).expect("stored");
    assert_eq!((told.size, told.chunks), (5_000_000, 39));
    let mut read = Vec::new();
    let info = store.get("a/b c", &mut read).expect("read");
    assert_eq!(info.digest, told.digest);
    assert!(read == large, "it is what was stored");
    store.put("a/b c", &mut Cursor::new(b"small")).expect("replaced");
    read.clear();
    store.get("a/b c", &mut read).expect("read");
    assert_eq!(read, b"small");
    store.put("empty", &mut Cursor::new(b"")).expect("stored");
    read.clear();
    assert_eq!(store.get("empty", &mut read).expect("read").size, 0);
    store.delete("a/b c").expect("deleted");
    assert!(store.info("a/b c").expect("asked").is_none());
    let missing = store.get("a/b c", &mut read).expect_err("it is gone");
    assert!(matches!(missing, ObjectError::NotFound(_)), "{missing}");
    // Chunks of what was replaced and deleted are gone: two notes of objects are left.
    let mut js = JetStream::new(&mut client, WAIT);
    let state = js.stream("OBJ_files", &StreamInfoRequest::default()).expect("info").state;
    assert_eq!(state.messages, 2);
}

/// An object whose chunks are not all there is damage, and not a short object.
#[test]
fn an_object_that_lacks_a_chunk_is_damaged() {
    let dir = Dir::new("typed-damaged");
    let broker = open(&dir, "");
    let mut client = broker.connect().expect("connect");
    let config = ObjectStore::config("files").expect("a name");
    let js = JetStream::new(&mut client, WAIT);
    let mut store = ObjectStore::create(js, &config).expect("a bucket");
    store.put("x", &mut Cursor::new(vec![7; 300_000])).expect("stored");
    JetStream::new(&mut client, WAIT).delete_message("OBJ_files", 2).expect("deleted");
    let js = JetStream::new(&mut client, WAIT);
    let mut store = ObjectStore::open(js, "files").expect("a name");
    let damaged = store.get("x", &mut Vec::new()).expect_err("a chunk is missing");
    assert!(matches!(damaged, ObjectError::Damaged { .. }), "{damaged}");
}

#[test]
fn a_service_answers_and_tells_of_itself() {
    let dir = Dir::new("typed-service");
    let denied = "permissions: { publish: { deny: [ forbidden ] } }";
    let users = format!("authorization {{ users: [ {{ user: s, password: s, {denied} }} ] }}");
    let broker = open(&dir, &format!("{users}\nno_auth_user: s\n"));
    let config = ServiceConfig {
        name: "double".into(),
        version: "1.0.0".into(),
        description: "doubles numbers".into(),
    };
    let mut service = Service::start(broker.connect().expect("connect"), config).expect("started");
    service
        .endpoint("double", "double", |message| {
            let number = std::str::from_utf8(&message.payload).ok().and_then(|t| t.parse().ok());
            let number: u64 =
                number.ok_or(ServiceError { code: 400, text: "that is no\r\nnumber".into() })?;
            Ok((2 * number).to_string().into_bytes())
        })
        .expect("an endpoint");
    service.serve(Instant::now() + Duration::from_millis(1)).expect("its subscriptions are sent");
    let mut client = broker.connect().expect("connect");
    let answers = std::thread::scope(|scope| {
        let asker = scope.spawn(move || {
            // The answer to this one is not let through, which is no concern of the next ones.
            client.writer.publish(b"double", b"forbidden", b"", b"7").expect("queued");
            let mut ask = |subject: &str, body: &[u8]| {
                client.request(subject, b"", body, WAIT).expect("an answer")
            };
            let answers =
                [ask("double", b"21"), ask("double", b"x"), ask("$SRV.STATS.double", b"")];
            let info = ask("$SRV.INFO", b"");
            (answers, info)
        });
        while !asker.is_finished() {
            service.serve(Instant::now() + Duration::from_millis(20)).expect("it serves");
        }
        asker.join().expect("no panic")
    });
    let ([doubled, refused, stats], info) = answers;
    assert_eq!(doubled.payload, b"42");
    assert_eq!(refused.view().header("Nats-Service-Error-Code"), Some("400"));
    assert_eq!(refused.view().header("Nats-Service-Error"), Some("that is no  number"));
    let stats: Value = serde_json::from_slice(&stats.payload).expect("JSON");
    let endpoint = &stats["endpoints"][0];
    assert_eq!((&endpoint["num_requests"], &endpoint["num_errors"]), (&3.into(), &1.into()));
    assert_eq!(service.refused(), 1);
    let info: Value = serde_json::from_slice(&info.payload).expect("JSON");
    assert_eq!((&info["name"], &info["id"]), (&"double".into(), &service.id().into()));
    let mut left = service.close().expect("closed");
    let gone = left.request("double", b"", b"1", WAIT).expect_err("nobody is there");
    assert!(matches!(gone, RequestError::NoResponders(_)), "{gone}");
}

/// The server ends and comes again at its port: the client finds it, and its subscriptions are there.
#[test]
fn a_client_comes_back() {
    let dir = Dir::new("typed-reconnect");
    let text = |port: &str| format!("port: {port}, jetstream {{ store_dir: {:?} }}", dir.path());
    let start = |port: &str| {
        Broker::open(Config::from_text(&text(port)).expect("a configuration")).expect("open")
    };
    let broker = start("-1");
    let port = broker.client_port().expect("a port").to_string();
    let options = ConnectOptions::new(&format!("127.0.0.1:{port}")).expect("an address");
    let mut client = Client::connect(&options).expect("connect");
    let kept = client.subscribe("kept.>", "").expect("subscribe");
    let ended = client.subscribe("ended", "").expect("subscribe");
    client.unsubscribe(ended).expect("unsubscribe");
    JetStream::new(&mut client, WAIT).create_stream(&stream("S")).expect("a stream");
    let inbox = client.inbox().to_owned();
    broker.close().expect("a clean close");
    assert!(client.round_trip(WAIT).is_err(), "the connection has ended");
    client.reconnect(Duration::ZERO).expect_err("nobody listens there");

    let broker = start(&port);
    client.reconnect(WAIT).expect("it is there again");
    client.round_trip(WAIT).expect("the server knows of its subscriptions");
    assert_eq!(client.inbox(), inbox);
    let mut other = broker.connect().expect("connect");
    for subject in [&b"ended"[..], b"kept.x"] {
        other.writer.publish(subject, b"", b"", b"hello").expect("publish");
    }
    other.writer.flush().expect("flush");
    let (sid, message) = client.next_with_sid(Instant::now() + WAIT).expect("a message");
    assert_eq!((sid, message.subject.as_str()), (kept, "kept.x"));
    // Requests go on with the numbers of before.
    let mut js = JetStream::new(&mut client, WAIT);
    assert_eq!(js.publish("S.x", b"", b"x").expect("stored"), 1);
    let mut inside = broker.connect().expect("connect");
    inside.reconnect(WAIT).expect_err("it has no address");
}
