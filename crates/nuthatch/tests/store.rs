//! Servers whose log is in a bucket: two at a time, one that slept, logs by name.

mod support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::{
    Server, TempDir, api, api_ok, create_stream, publish, publish_ok, read_all, stream_state,
};

/// Exit code of a server that another has replaced.
const REPLACED: i32 = 3;

struct BucketStore {
    bucket: TempDir,
    machine: TempDir,
}

impl BucketStore {
    fn new(name: &str) -> Self {
        let (bucket, machine) = (format!("{name}-bucket"), format!("{name}-machine"));
        Self { bucket: TempDir::new(&bucket), machine: TempDir::new(&machine) }
    }

    fn address(&self) -> String {
        format!("file://{}", self.bucket.path().display())
    }

    fn start(&self) -> Server {
        Server::start(self.machine.path(), &["--store", &self.address()])
    }
}

#[test]
fn of_two_servers_exactly_one_goes_on() {
    let place = BucketStore::new("two");
    let first = place.start();
    let mut client = first.connect();
    create_stream(&mut client, "ORDERS", &json!({}));
    publish_ok(&mut client, "ORDERS.1", b"one");
    let other = TempDir::new("two-other-machine");
    let second = Server::start(other.path(), &["--store", &place.address()]);
    let (code, log) = first.wait_for_end();
    assert_eq!(code, Some(REPLACED), "{log}");
    assert!(log.contains("another server has taken over the log"), "{log}");
    let mut client = second.connect();
    assert_eq!(publish_ok(&mut client, "ORDERS.2", b"two"), 2);
    assert_eq!(stream_state(&mut client, "ORDERS")["messages"], 2);
}

#[test]
fn a_server_that_slept_acknowledges_nothing_when_it_wakes() {
    let place = BucketStore::new("sleeps");
    let sleeper = place.start();
    let mut old = sleeper.connect();
    create_stream(&mut old, "ORDERS", &json!({}));
    publish_ok(&mut old, "ORDERS.1", b"one");
    sleeper.signal("-STOP");
    let other = TempDir::new("sleeps-other-machine");
    let heir = Server::start(other.path(), &["--store", &place.address()]);
    let mut client = heir.connect();
    assert_eq!(publish_ok(&mut client, "ORDERS.2", b"of the heir"), 2);
    sleeper.signal("-CONT");
    let answer = old.request("ORDERS.3", b"", b"of the sleeper", Duration::from_secs(10));
    if let Ok(message) = answer {
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        assert!(text.contains("\"error\""), "acknowledged: {text}");
    }
    assert_eq!(sleeper.wait_for_end().0, Some(REPLACED));
    let bodies: Vec<Vec<u8>> =
        read_all(&mut client, "ORDERS", 1).into_iter().map(|(_, m)| m.payload.to_vec()).collect();
    assert_eq!(bodies, [b"one".to_vec(), b"of the heir".to_vec()]);
}

#[test]
fn a_stream_lives_in_the_log_that_its_placement_names() {
    let place = BucketStore::new("named");
    let config = place.machine.path().join("server.conf");
    let text = format!(
        "jetstream {{ logs {{ cold {{ store: {:?} }}, side {{ mode: local }} }} }}",
        place.address(),
    );
    std::fs::write(&config, text).expect("a file");
    let flags = ["-c", config.to_str().expect("a plain path")];
    let store = place.machine.path().join("data");
    let server = Server::start(&store, &flags);
    let mut client = server.connect();
    for (name, tag) in [("COLD", "log:cold"), ("SIDE", "log:side"), ("HERE", "log:default")] {
        create_stream(&mut client, name, &json!({"placement": {"tags": [tag]}}));
        publish_ok(&mut client, &format!("{name}.1"), name.as_bytes());
    }
    let refused = api(
        &mut client,
        "STREAM.CREATE.NONE",
        &json!({"name": "NONE", "placement": {"tags": ["log:nowhere"]}}),
    );
    let text = refused["error"]["description"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("there is no log") && text.contains("cold, side"), "{refused}");
    let moved = json!({"name": "COLD", "subjects": ["COLD.>"], "placement": {"tags": []}});
    let refused = api(&mut client, "STREAM.UPDATE.COLD", &moved);
    assert!(refused["error"].is_object(), "{refused}");
    server.kill();
    assert!(store.join("nuthatch/side").is_dir());
    assert!(place.bucket.path().join("cold").is_dir());
    let server = Server::start(&store, &flags);
    let mut client = server.connect();
    for name in ["COLD", "SIDE", "HERE"] {
        let messages = read_all(&mut client, name, 1);
        assert_eq!(messages.len(), 1, "{name}");
        assert_eq!(publish(&mut client, &format!("{name}.2"), b"more")["seq"], 2);
    }
    let info = api_ok(&mut client, "INFO", &json!({}));
    assert_eq!(info["streams"], 3);
    server.stop();
}

#[test]
fn an_idle_server_asks_its_bucket_for_nothing_but_its_ownership() {
    let place = BucketStore::new("idle");
    let flags = ["--store", &place.address(), "-m", "-1"];
    let server = Server::start(place.machine.path(), &flags);
    let mut client = server.connect();
    for n in 0..50 {
        create_stream(&mut client, &format!("S{n}"), &json!({}));
    }
    // The last frame is vouched for, then nothing is left to do.
    let settled = Instant::now() + Duration::from_secs(180);
    let (mut begun, mut before) = (Instant::now(), server.store_requests());
    loop {
        std::thread::sleep(Duration::from_secs(6));
        let (looked, now) = (Instant::now(), server.store_requests());
        // A look each five seconds, in a directory for two objects: the server's own fence, and that of a later owner.
        let allowed = 2 * (begun.elapsed().as_secs() / 5 + 1);
        let quiet = |kind: &str| now.get(kind) == before.get(kind);
        if quiet("put") && quiet("get") && quiet("list") && quiet("delete") {
            let asked = now.get("head").unwrap_or(&0) - before.get("head").unwrap_or(&0);
            assert!(asked <= allowed, "asked {asked} times for fences, {allowed} are allowed");
            break;
        }
        assert!(Instant::now() < settled, "still asking: {before:?}, then {now:?}");
        (begun, before) = (looked, now);
    }
}
