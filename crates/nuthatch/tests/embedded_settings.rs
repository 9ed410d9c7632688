//! The settings of a broker that is embedded in a larger system (docs/configuration.md, "Settings of
//! an embedded broker"): each one in a configuration file, and seen to work.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{TempDir, api, api_ok, create_stream, publish, publish_ok, stream_state};

use nuthatch_client::{Client, ConnectOptions};

/// Longest wait for anything.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server that is told everything by its file alone.
struct Broker {
    child: Child,
    dir: PathBuf,
}

impl Broker {
    fn spawn(dir: &Path, config: &str) -> Self {
        let ports = dir.join("ports");
        std::fs::create_dir_all(&ports).expect("a directory");
        let file = dir.join("broker.conf");
        let text = format!("host: 127.0.0.1\nports_file_dir: {ports:?}\n{config}");
        std::fs::write(&file, text).expect("write the configuration");
        let child = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
            .arg("serve")
            .arg("-c")
            .arg(&file)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.join("stderr")).expect("a file"))
            .spawn()
            .expect("start");
        Self { child, dir: dir.to_owned() }
    }

    fn start(dir: &Path, config: &str) -> Self {
        let mut broker = Self::spawn(dir, config);
        let deadline = Instant::now() + TIMEOUT;
        while broker.ports().is_none() {
            assert!(Instant::now() < deadline, "not ready: {}", broker.read("stderr"));
            assert!(matches!(broker.child.try_wait(), Ok(None)), "{}", broker.read("stderr"));
            std::thread::sleep(Duration::from_millis(10));
        }
        broker
    }

    fn ports(&self) -> Option<Value> {
        let mut entries = std::fs::read_dir(self.dir.join("ports")).ok()?.flatten();
        let file = entries.find(|e| e.path().extension().is_some_and(|end| end == "ports"))?;
        serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    fn connect(&self) -> Client {
        let ports = self.ports().expect("ports");
        let mut options =
            ConnectOptions::new(ports["nats"][0].as_str().expect("a URL")).expect("URL");
        options.timeout = support::TIMEOUT;
        Client::connect(&options).expect("connect")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn port_store_sizes_and_time_to_start() {
    let dir = TempDir::new("embedded-server");
    let config = "
        port: -1
        http: '127.0.0.1:-1'
        max_payload: 8388608
        max_pending: 67108864
        ready_timeout: '30s'
        jetstream { store_dir: data, max_file_store: 20000000 }";
    let broker = Broker::start(dir.path(), config);
    let url = broker.ports().expect("ports")["nats"][0].as_str().expect("a URL").to_owned();
    assert_ne!(url, "nats://127.0.0.1:4222", "a port that was free");
    assert!(dir.path().join("data/nuthatch").is_dir());
    let mut client = broker.connect();
    create_stream(&mut client, "P", &json!({}));
    publish_ok(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    publish_ok(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    let full = publish(&mut client, "P.x", &vec![b'x'; 8_388_608]);
    assert_eq!(full["error"]["err_code"], 10023, "beyond max_file_store: {full}");
    let info = api_ok(&mut client, "INFO", &Value::Null);
    assert_eq!(info["limits"]["max_storage"], 20_000_000);
    assert!(client.request("P.x", b"", &vec![b'x'; 8_388_609], support::TIMEOUT).is_err());
}

#[test]
fn a_start_that_takes_too_long_ends() {
    let dir = TempDir::new("embedded-timeout");
    let mut broker = Broker::spawn(dir.path(), "port: -1, ready_timeout: '1ns', jetstream {}");
    until("it has ended", || matches!(broker.child.try_wait(), Ok(Some(_))));
    let said = broker.read("stderr");
    assert!(said.contains("ready_timeout"), "{said}");
    assert!(broker.ports().is_none());
}

#[test]
fn logging() {
    let dir = TempDir::new("embedded-log");
    let config = "
        port: -1
        debug: true, trace: true, logtime: false
        log_file: broker.log
        logfile_size_limit: 4096
        jetstream { store_dir: data }";
    let broker = Broker::start(dir.path(), config);
    let mut client = broker.connect();
    create_stream(&mut client, "L", &json!({}));
    let text = || {
        let entries = std::fs::read_dir(&broker.dir).expect("list").flatten();
        let logs = entries.filter(|e| e.file_name().to_string_lossy().starts_with("broker.log"));
        logs.map(|e| std::fs::read_to_string(e.path()).unwrap_or_default()).collect::<String>()
    };
    until("lines of trace", || text().contains("[TRC]") && text().contains("[DBG]"));
    assert!(text().lines().all(|line| line.starts_with('[')), "{}", text());
    assert!(
        text().lines().any(|line| line.ends_with("[INF] Server is ready")),
        "no time: {}",
        text()
    );
    let rotated = || {
        let entries = std::fs::read_dir(&broker.dir).expect("list").flatten();
        entries.filter(|e| e.file_name().to_string_lossy().starts_with("broker.log.")).count()
    };
    for _ in 0..200 {
        publish_ok(&mut client, "L.x", &[b'x'; 100]);
    }
    until("the log has been rotated", || rotated() > 0);
    let current = std::fs::metadata(broker.dir.join("broker.log")).expect("the log").len();
    assert!(current < 3 * 4096, "{current}");
    assert_eq!(broker.read("stderr"), "");
}

#[test]
fn retention_by_age_bytes_and_messages() {
    let dir = TempDir::new("embedded-retention");
    let broker = Broker::start(dir.path(), "port: -1, jetstream { store_dir: data }");
    let mut client = broker.connect();
    create_stream(&mut client, "AGE", &json!({"max_age": 1_000_000_000}));
    create_stream(&mut client, "BYTES", &json!({"max_bytes": 10_000}));
    create_stream(&mut client, "MSGS", &json!({"max_msgs": 10}));
    for _ in 0..50 {
        for stream in ["AGE", "BYTES", "MSGS"] {
            publish_ok(&mut client, &format!("{stream}.x"), &[b'x'; 1000]);
        }
    }
    assert_eq!(stream_state(&mut client, "MSGS")["messages"], 10);
    let bytes = stream_state(&mut client, "BYTES");
    assert!(bytes["bytes"].as_u64().is_some_and(|n| n > 0 && n <= 10_000), "{bytes}");
    assert_eq!(bytes["last_seq"], 50, "the oldest go");
    until("all are too old", || stream_state(&mut client, "AGE")["messages"] == 0);
    let refused = api(&mut client, "STREAM.CREATE.BAD", &json!({"name": "BAD", "max_age": 1}));
    assert!(refused.get("error").is_some(), "shorter than the shortest age: {refused}");
}
