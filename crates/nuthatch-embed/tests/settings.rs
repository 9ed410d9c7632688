//! The settings of a broker that is embedded in a larger system (docs/configuration.md, "Settings of
//! an embedded broker"): each one in a configuration file, and seen to work.

mod support;

use nuthatch_embed::client::js::{ApiError, PubAck, api};
use nuthatch_embed::client::{Client, ConnectOptions};
use nuthatch_embed::{Broker, Config, OpenError};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Dir, WAIT};

/// A broker that is told everything by its text alone.
fn open(dir: &Dir, text: &str) -> Result<Broker, OpenError> {
    let at = dir.path().display().to_string();
    Broker::open(Config::from_text(&text.replace("DIR", &at)).expect("a configuration"))
}

fn connect(broker: &Broker) -> Client {
    let url = broker.client_url().expect("a URL");
    let mut options = ConnectOptions::new(&url).expect("URL");
    options.timeout = WAIT;
    Client::connect(&options).expect("connect")
}

fn create(client: &mut Client, name: &str, extra: &Value) -> Result<Value, Option<u64>> {
    let mut config = json!({"name": name, "subjects": [format!("{name}.>")]});
    let more = extra.as_object().cloned().unwrap_or_default();
    config.as_object_mut().expect("an object").extend(more);
    let made = api(client, &format!("STREAM.CREATE.{name}"), &config, WAIT);
    made.map_err(|error| error.err_code())
}

fn state(client: &mut Client, name: &str) -> Value {
    let info = api(client, &format!("STREAM.INFO.{name}"), &Value::Null, WAIT);
    info.expect("the stream")["state"].take()
}

/// What the server answers to a publish.
fn publish(client: &mut Client, subject: &str, body: &[u8]) -> Vec<u8> {
    client.request(subject, b"", body, WAIT).expect("an answer").payload
}

fn publish_ok(client: &mut Client, subject: &str, body: &[u8]) {
    let answer = publish(client, subject, body);
    let ack = PubAck::parse(&answer, subject.split('.').next().expect("a name"));
    assert!(matches!(ack, PubAck::Stored(_)), "{ack:?}");
}

/// All that was logged, in files set aside too.
fn logged(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).expect("list").flatten();
    let logs = entries.filter(|e| e.file_name().to_string_lossy().starts_with("broker.log"));
    logs.map(|e| std::fs::read_to_string(e.path()).unwrap_or_default()).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn port_store_sizes_and_time_to_start() {
    let dir = Dir::new("settings-server");
    let config = "
        port: -1
        http: '127.0.0.1:-1'
        max_payload: 8388608
        max_pending: 67108864
        ready_timeout: '60s'
        jetstream { store_dir: 'DIR/data', max_file_store: 20000000 }";
    let broker = open(&dir, config).expect("open");
    assert_ne!(broker.client_port(), Some(4222), "a port that was free");
    assert!(dir.path().join("data/nuthatch").is_dir());
    let mut client = connect(&broker);
    create(&mut client, "P", &json!({})).expect("a stream");
    publish_ok(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    publish_ok(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    let full = publish(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    let full: Value = serde_json::from_slice(&full).expect("JSON");
    let error: ApiError = serde_json::from_value(full["error"].clone()).expect("an error");
    assert_eq!(error.err_code, 10023, "beyond max_file_store: {full}");
    let info = api(&mut client, "INFO", &Value::Null, WAIT).expect("info");
    assert_eq!(info["limits"]["max_storage"], 20_000_000);
    assert!(client.request("P.x", b"", &vec![b'x'; 8_388_609], WAIT).is_err());
}

#[test]
fn logging() {
    let dir = Dir::new("settings-log");
    let config = "
        port: -1
        debug: true, trace: true, logtime: false
        log_file: 'DIR/broker.log'
        logfile_size_limit: 4096
        jetstream { store_dir: 'DIR/data' }";
    let broker = open(&dir, config).expect("open");
    let mut client = connect(&broker);
    create(&mut client, "L", &json!({})).expect("a stream");
    let text = || logged(dir.path());
    until("lines of trace", || text().contains("[TRC]") && text().contains("[DBG]"));
    assert!(text().lines().all(|line| line.starts_with('[')), "{}", text());
    assert!(
        text().lines().any(|line| line.ends_with("[INF] Server is ready")),
        "no time: {}",
        text()
    );
    let rotated = || {
        let entries = std::fs::read_dir(dir.path()).expect("list").flatten();
        entries.filter(|e| e.file_name().to_string_lossy().starts_with("broker.log.")).count()
    };
    for _ in 0..200 {
        publish_ok(&mut client, "L.x", &[b'x'; 100]);
    }
    until("the log has been rotated", || rotated() > 0);
    let current = std::fs::metadata(dir.path().join("broker.log")).expect("the log").len();
    assert!(current < 3 * 4096, "{current}");
}

#[test]
fn retention_by_age_bytes_and_messages() {
    let dir = Dir::new("settings-retention");
    let broker = open(&dir, "port: -1, jetstream { store_dir: 'DIR/data' }").expect("open");
    let mut client = connect(&broker);
    create(&mut client, "AGE", &json!({"max_age": 1_000_000_000})).expect("a stream");
    create(&mut client, "BYTES", &json!({"max_bytes": 10_000})).expect("a stream");
    create(&mut client, "MSGS", &json!({"max_msgs": 10})).expect("a stream");
    for _ in 0..50 {
        for stream in ["AGE", "BYTES", "MSGS"] {
            publish_ok(&mut client, &format!("{stream}.x"), &[b'x'; 1000]);
        }
    }
    assert_eq!(state(&mut client, "MSGS")["messages"], 10);
    let bytes = state(&mut client, "BYTES");
    assert!(bytes["bytes"].as_u64().is_some_and(|n| n > 0 && n <= 10_000), "{bytes}");
    assert_eq!(bytes["last_seq"], 50, "the oldest go");
    until("all are too old", || state(&mut client, "AGE")["messages"] == 0);
    let refused = create(&mut client, "BAD", &json!({"max_age": 1}));
    assert!(refused.is_err(), "shorter than the shortest age: {refused:?}");
}
