//! Servers whose log has a bucket behind it: the local disk stays below its bound while much more is
//! stored, through kills; and commands that look at logs, buckets and tiers.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Server, TempDir, create_stream, publish_ok, read_all, stream_state};

/// What the log may have of the local disk.
const LOCAL_MAX_BYTES: u64 = 8_000_000;

/// Size of a message.
const BODY_BYTES: usize = 200_000;

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(90);

struct TierRig {
    machine: TempDir,
    bucket: TempDir,
    config: PathBuf,
}

impl TierRig {
    fn new(name: &str) -> Self {
        let machine = TempDir::new(&format!("{name}-machine"));
        let bucket = TempDir::new(&format!("{name}-bucket"));
        let config = machine.path().join("tier.conf");
        let place = Self { machine, bucket, config };
        place.configure(&format!("local_max: {LOCAL_MAX_BYTES}"));
        place
    }

    fn address(&self) -> String {
        format!("file://{}", self.bucket.path().display())
    }

    fn configure(&self, rule: &str) {
        let text = format!("jetstream {{ tier {{ store: '{}', {rule} }} }}\n", self.address());
        std::fs::write(&self.config, text).expect("writes");
    }

    fn start(&self) -> Server {
        let config = self.config.display().to_string();
        Server::start(self.machine.path(), &["-c", &config, "-m", "-1"])
    }

    fn log_dir(&self) -> PathBuf {
        self.machine.path().join("nuthatch/default")
    }

    fn local_bytes(&self) -> u64 {
        bytes_below(&self.log_dir())
    }
}

/// Bytes of all files below a directory, of which some may vanish meanwhile.
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn wait_for(what: &str, server: &Server, done: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} does not happen\n{}", server.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A body that says which message it is of, and does not compress.
fn body(n: u64) -> Vec<u8> {
    let mut random = support::Random(n * 7919 + 1);
    (0..BODY_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

fn publish_some(server: &Server, from: u64, count: u64) {
    let mut client = server.connect();
    for n in from..from + count {
        assert_eq!(publish_ok(&mut client, "S.x", &body(n)), n);
    }
}

fn check_all(server: &Server, count: u64) {
    let mut client = server.connect();
    // In parts: all of it at once is much for a test's memory.
    let messages = read_all(&mut client, "S", 1);
    assert_eq!(messages.len() as u64, count);
    for (seq, message) in messages {
        assert!(message.payload == body(seq), "message {seq}");
    }
}

fn nuthatch(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(args).output().expect("the command runs")
}

fn json_of(args: &[&str]) -> Value {
    let output = nuthatch(args);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}\n{error}"))
}

#[test]
fn the_local_disk_stays_bounded_while_much_more_is_stored() {
    let place = TierRig::new("tier-bound");
    let mut server = place.start();
    create_stream(&mut server.connect(), "S", &json!({}));
    let mut stored = 0;
    for _ in 0..3 {
        publish_some(&server, stored + 1, 60);
        stored += 60;
        wait_for("moving", &server, || place.local_bytes() <= LOCAL_MAX_BYTES);
        check_all(&server, stored);
        server.kill();
        server = place.start();
        check_all(&server, stored);
    }
    assert!(stored * BODY_BYTES as u64 > 4 * LOCAL_MAX_BYTES);
    assert!(bytes_below(place.bucket.path()) > 3 * LOCAL_MAX_BYTES);
    // What is deleted goes from the bucket as well.
    let mut client = server.connect();
    support::api_ok(&mut client, "STREAM.PURGE.S", &json!({"keep": 3}));
    wait_for("removal", &server, || bytes_below(place.bucket.path()) < LOCAL_MAX_BYTES);
    assert_eq!(stream_state(&mut client, "S")["messages"], 3);
    check_last(&server, stored, 3);
    server.stop();
}

fn check_last(server: &Server, stored: u64, count: usize) {
    let messages = read_all(&mut server.connect(), "S", 1);
    assert_eq!(messages.len(), count);
    assert_eq!(messages[count - 1].0, stored);
    assert!(messages.iter().all(|(seq, message)| message.payload == body(*seq)));
}

#[test]
fn commands_show_what_was_moved_and_what_it_cost() {
    let place = TierRig::new("tier-report");
    let server = place.start();
    create_stream(&mut server.connect(), "S", &json!({}));
    publish_some(&server, 1, 60);
    let report = || {
        let monitor = server.monitor_url();
        json_of(&["log", "report", "--monitor", &monitor, "--json"])
    };
    let of_default = |report: &Value| {
        let logs = report[0]["logs"].as_array().cloned().unwrap_or_default();
        logs.into_iter().find(|log| log["name"] == "default").expect("the default log")
    };
    wait_for("moving", &server, || {
        of_default(&report())["tier"]["segments"].as_u64().is_some_and(|count| count >= 3)
    });
    let log = of_default(&report());
    assert_eq!((&log["mode"], &log["failed"]), (&json!("local"), &json!(false)), "{log}");
    assert!(log["store"]["requests"]["put"].as_u64().is_some_and(|puts| puts >= 3), "{log}");
    assert_eq!(log["tier"]["trouble"], Value::Null, "{log}");
    let text = nuthatch(&["log", "report", "--monitor", &server.monitor_url()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["default", "memory", "local", "requests/M records", "Segments in the bucket"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    server.stop();
    let dir = place.machine.path().display().to_string();
    let files = json_of(&["log", "report", &dir, "--json"]);
    assert_eq!(files[0]["messages"], 60, "{files}");
    assert!(files[0]["tier"]["segments"].as_u64().is_some_and(|count| count >= 3), "{files}");
    let doctor = json_of(&["doctor", &dir, "--json"]);
    assert_eq!(doctor["logs"][0]["healthy"], true, "{doctor}");
    assert_eq!(doctor["logs"][0]["streams"][0]["messages"], 60, "{doctor}");
    assert!(nuthatch(&["log", "inspect", &dir]).status.success());
    // Damage in a moved segment is found there.
    let object = first_object(&place.bucket.path().join("default/data"));
    let mut bytes = std::fs::read(&object).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&object, bytes).expect("writes");
    let doctor = json_of(&["doctor", &dir, "--json"]);
    assert_eq!(doctor["logs"][0]["healthy"], false, "{doctor}");
}

fn first_object(dir: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("lists").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let first = entries.first().expect("something is there");
    if first.is_dir() { first_object(first) } else { first.clone() }
}

#[test]
fn a_log_whose_segments_were_moved_needs_its_tier() {
    let place = TierRig::new("tier-needed");
    let server = place.start();
    create_stream(&mut server.connect(), "S", &json!({}));
    publish_some(&server, 1, 60);
    wait_for("moving", &server, || bytes_below(place.bucket.path()) > 1_000_000);
    server.stop();
    let dir = place.machine.path().display().to_string();
    let without = nuthatch(&["serve", "-a", "127.0.0.1", "-p", "-1", "-sd", &dir]);
    let text = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && text.contains("needs its 'tier'"), "{text}");
    let server = place.start();
    check_all(&server, 60);
    server.stop();
}

#[test]
fn a_bucket_is_examined_beside_its_server() {
    let bucket = TempDir::new("doctor-bucket");
    let machine = TempDir::new("doctor-machine");
    let address = format!("file://{}", bucket.path().display());
    let server = Server::start(machine.path(), &["--store", &address]);
    let mut client = server.connect();
    create_stream(&mut client, "S", &json!({}));
    for n in 1..=20 {
        publish_ok(&mut client, "S.x", &[n; 1000]);
    }
    let live = json_of(&["doctor", "--store", &address, "--json"]);
    assert_eq!(live["logs"][0]["opens"], true, "{live}");
    assert_eq!(publish_ok(&mut client, "S.x", b"still the owner"), 21);
    server.stop();
    let healthy = json_of(&["doctor", "--store", &address, "--json"]);
    assert_eq!(healthy["logs"][0]["healthy"], true, "{healthy}");
    assert_eq!(healthy["logs"][0]["streams"][0]["messages"], 21, "{healthy}");
    let report = json_of(&["log", "report", "--store", &address, "--json"]);
    assert_eq!(report[0]["messages"], 21, "{report}");
    assert!(nuthatch(&["log", "inspect", "--store", &address]).status.success());
    let data = bucket.path().join("default/data");
    let segment = std::fs::read_dir(&data).expect("lists").flatten().map(|entry| entry.path());
    let segment = segment.into_iter().find(|path| path.to_string_lossy().ends_with(".seg"));
    let mut objects: Vec<PathBuf> = std::fs::read_dir(segment.expect("a segment"))
        .expect("lists")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    objects.sort();
    std::fs::remove_file(&objects[3]).expect("removes");
    let damaged = json_of(&["doctor", "--store", &address, "--json"]);
    assert_eq!(damaged["logs"][0]["healthy"], false, "{damaged}");
    let nothing = nuthatch(&["doctor", "--store", &address, "--log", "other"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert_eq!(nuthatch(&["doctor"]).status.code(), Some(2));
}
