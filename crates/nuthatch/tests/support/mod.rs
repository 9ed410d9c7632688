//! Running the real binary and talking JetStream to it with the lean client.
//!
//! `NUTHATCH_TEST_SERVER` names another server's binary (with nats-server's flags) to judge the
//! tests themselves against.

#![allow(dead_code)] // each test binary uses its part

pub mod signal;

use nuthatch_client::{Client, ConnectOptions, OwnedMessage, TransportError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a server to come up or go down.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// What the standard library writes when a thread panics.
const PANIC: &str = "panicked at";

/// A directory that goes away with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("create a temporary directory");
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server process on a random port of the loopback interface.
pub struct Server {
    child: Child,
    pub url: String,
    log: PathBuf,
    /// Somebody else looks at the log.
    is_judged: bool,
}

impl Server {
    /// Starts on `store`, with further flags.
    pub fn start(store: &Path, flags: &[&str]) -> Self {
        Self::start_with(store, flags, &[])
    }

    /// [`Server::start`] with further variables in its environment.
    pub fn start_with(store: &Path, flags: &[&str], env: &[(&str, String)]) -> Self {
        let binary = std::env::var_os("NUTHATCH_TEST_SERVER").map(PathBuf::from);
        Self::launch(binary.as_deref(), store, flags, env)
    }

    /// [`Server::start`] of a program with nats-server's flags; `None`: ours.
    pub fn start_program(program: Option<&Path>, store: &Path, flags: &[&str]) -> Self {
        Self::launch(program, store, flags, &[])
    }

    fn launch(
        program: Option<&Path>,
        store: &Path,
        flags: &[&str],
        env: &[(&str, String)],
    ) -> Self {
        let mut command = match program {
            Some(path) => Command::new(path),
            None => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
                command.arg("serve");
                command
            }
        };
        let ports = store.join("ports");
        std::fs::create_dir_all(&ports).expect("create the ports directory");
        for old in std::fs::read_dir(&ports).expect("list the ports directory").flatten() {
            let _ = std::fs::remove_file(old.path());
        }
        let log = store.join("server.log");
        let out = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("log");
        command
            .args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"])
            .arg(store)
            .arg("--ports_file_dir")
            .arg(&ports)
            .args(flags)
            .envs(env.iter().map(|(key, value)| (*key, value.as_str())))
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("log handle"))
            .stderr(out);
        let mut child = command.spawn().expect("start the server");
        let url = wait_for_url(&ports, &mut child, &log);
        Self { child, url, log, is_judged: false }
    }

    pub fn connect(&self) -> Client {
        let mut options = ConnectOptions::new(&self.url).expect("url");
        options.timeout = TIMEOUT;
        Client::connect(&options)
            .unwrap_or_else(|e| panic!("connect to {}: {e}\n{}", self.url, self.log_tail()))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal::signal(self.pid(), name);
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL: no chance to clean up.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
        self.assert_no_panic();
    }

    /// A thread that panics need not end the process, so only the log tells.
    ///
    /// # Panics
    /// When one has.
    fn assert_no_panic(&self) {
        let text = self.log_text();
        let Some(at) = text.find(PANIC) else { return };
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let shown: String = text[start..].chars().take(3000).collect();
        panic!("the server panicked:\n{shown}");
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) {
        self.terminate();
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while self.is_alive() {
            assert!(Instant::now() < deadline, "the server does not stop\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.assert_no_panic();
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().expect("kill -TERM");
        assert!(status.success());
    }

    /// Waits until the server ends by itself: its exit code, and what it logged.
    pub fn wait_for_end(self) -> (Option<i32>, String) {
        let (code, log) = self.wait_for_exit();
        assert!(!log.contains(PANIC), "the server panicked:\n{log}");
        (code, log)
    }

    /// [`Server::wait_for_end`] for those who look at the log themselves.
    pub fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.is_judged = true;
                return (status.code(), self.log_text());
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Requests to the stores of all logs so far, by kind. Needs `-m -1` among the flags.
    pub fn store_requests(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for line in self.metrics().lines() {
            let Some(rest) = line.strip_prefix("nuthatch_store_requests_total{") else { continue };
            let kind = rest.split("kind=\"").nth(1).and_then(|text| text.split('"').next());
            let value = rest.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
            let (Some(kind), Some(value)) = (kind, value) else { panic!("metric {line:?}") };
            *sums.entry(kind.to_owned()).or_default() += value as u64;
        }
        assert!(!sums.is_empty(), "no requests in the metrics");
        sums
    }

    /// Address of the monitoring port. Needs `-m -1` among the flags.
    pub fn monitor_url(&self) -> String {
        self.port_of("monitoring")
    }

    /// The first address of a kind of listener, as the ports file has it.
    pub fn port_of(&self, kind: &str) -> String {
        let ports = self.log.with_file_name("ports");
        read_ports(&ports, kind).unwrap_or_else(|| panic!("no {kind} in the ports file"))
    }

    pub fn metrics(&self) -> String {
        let host = self.monitor_url().trim_start_matches("http://").to_owned();
        let mut socket = std::net::TcpStream::connect(&host).expect("monitoring answers");
        write!(socket, "GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("a request");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        text
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let start = text.len().saturating_sub(3000);
        String::from_utf8_lossy(&text.as_bytes()[start..]).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.is_judged && !std::thread::panicking() {
            self.assert_no_panic();
        }
    }
}

fn wait_for_url(ports: &Path, child: &mut Child, log: &Path) -> String {
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    loop {
        if let Some(url) = read_ports(ports, "nats") {
            return url;
        }
        let died = !matches!(child.try_wait(), Ok(None));
        if died || Instant::now() > deadline {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            panic!("the server did not come up (died: {died}):\n{text}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_ports(dir: &Path, kind: &str) -> Option<String> {
    let entry = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "ports"))?;
    let value: Value = serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok()?;
    Some(value[kind][0].as_str()?.replace("0.0.0.0", "127.0.0.1"))
}

/// One API call; panics on a transport failure, returns the JSON whatever it says.
pub fn api(client: &mut Client, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let reply = client
        .request(&format!("$JS.API.{call}"), b"", &body, TIMEOUT)
        .unwrap_or_else(|e| panic!("{call}: {e}"));
    serde_json::from_slice(&reply.payload).unwrap_or_else(|e| panic!("{call}: {e}"))
}

/// [`api`] that must succeed.
pub fn api_ok(client: &mut Client, call: &str, body: &Value) -> Value {
    let value = api(client, call, body);
    assert!(value.get("error").is_none(), "{call} {body}: {value}");
    value
}

pub fn create_stream(client: &mut Client, name: &str, extra: &Value) -> Value {
    let mut config = json!({"name": name, "subjects": [format!("{name}.>")], "storage": "file"});
    for (key, value) in extra.as_object().expect("object") {
        config[key] = value.clone();
    }
    api_ok(client, &format!("STREAM.CREATE.{name}"), &config)
}

pub fn stream_state(client: &mut Client, name: &str) -> Value {
    api_ok(client, &format!("STREAM.INFO.{name}"), &Value::Null)["state"].clone()
}

/// Publishes and waits for the acknowledgement's JSON.
pub fn publish(client: &mut Client, subject: &str, payload: &[u8]) -> Value {
    let reply =
        client.request(subject, b"", payload, TIMEOUT).unwrap_or_else(|e| panic!("{subject}: {e}"));
    serde_json::from_slice(&reply.payload).expect("ack is JSON")
}

/// Publishes and insists on success; returns the sequence.
pub fn publish_ok(client: &mut Client, subject: &str, payload: &[u8]) -> u64 {
    let ack = publish(client, subject, payload);
    assert!(ack.get("error").is_none(), "{subject}: {ack}");
    ack["seq"].as_u64().expect("seq")
}

/// Position of a delivered message, from its ack subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub delivered: u64,
    pub stream_seq: u64,
    pub consumer_seq: u64,
    pub pending: u64,
}

pub fn position(ack_subject: &str) -> Position {
    let tokens: Vec<&str> = ack_subject.split('.').collect();
    let number = |index: usize| tokens[index].parse().expect("number in ack subject");
    Position {
        delivered: number(4),
        stream_seq: number(5),
        consumer_seq: number(6),
        pending: number(8),
    }
}

/// The ack subject of a delivered message.
pub fn reply_of(message: &OwnedMessage) -> &str {
    message.reply.as_deref().expect("delivered messages carry an ack subject")
}

/// Fetches up to `batch` messages; ends at a status message or when the batch is full.
pub fn fetch(client: &mut Client, stream: &str, consumer: &str, batch: usize) -> Vec<OwnedMessage> {
    try_fetch(client, stream, consumer, batch).expect("messages or a status")
}

/// [`fetch`] over a connection that may break.
pub fn try_fetch(
    client: &mut Client,
    stream: &str,
    consumer: &str,
    batch: usize,
) -> Result<Vec<OwnedMessage>, TransportError> {
    let inbox = format!("{}.f{}", client.inbox(), fresh());
    let sid = client.subscribe(&inbox, "")?;
    let body = json!({"batch": batch, "no_wait": true}).to_string();
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
    client.writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())?;
    client.writer.flush()?;
    let mut got = Vec::new();
    while got.len() < batch {
        let message = client.next_message(Instant::now() + TIMEOUT)?;
        if message.subject == inbox {
            break;
        }
        got.push(message);
    }
    client.writer.unsubscribe(sid)?;
    Ok(got)
}

/// Reads a stream from `from` to its end through an ephemeral consumer without acks.
pub fn read_all(client: &mut Client, stream: &str, from: u64) -> Vec<(u64, OwnedMessage)> {
    let mut all = Vec::new();
    let left = read_on(client, stream, from, &mut all);
    assert_eq!(left, 0, "{stream}: messages are pending but nothing comes");
    all
}

/// [`read_all`] until nothing comes, for example as the log has another owner: adds to `all`, and tells how many are left.
pub fn read_on(
    client: &mut Client,
    stream: &str,
    from: u64,
    all: &mut Vec<(u64, OwnedMessage)>,
) -> u64 {
    let config = json!({"stream_name": stream, "config": {
        "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": from.max(1),
        "inactive_threshold": 60_000_000_000_u64, "mem_storage": true}});
    let info = api_ok(client, &format!("CONSUMER.CREATE.{stream}"), &config);
    let name = info["name"].as_str().expect("name").to_owned();
    let mut left = info["num_pending"].as_u64().expect("num_pending");
    while left > 0 {
        let batch = fetch(client, stream, &name, usize::try_from(left.min(1000)).expect("small"));
        if batch.is_empty() {
            return left;
        }
        for message in batch {
            let at = position(reply_of(&message));
            left = at.pending;
            all.push((at.stream_seq, message));
        }
    }
    api_ok(client, &format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null);
    left
}

fn fresh() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A small generator, so that a seed tells all.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
