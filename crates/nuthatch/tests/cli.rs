//! The client commands of the binary against a real server: the one named by
//! `NUTHATCH_TEST_SERVER`, or else the binary's own.

#[path = "cli/admin.rs"]
mod admin;
#[path = "cli/completing.rs"]
mod completing;
#[path = "cli/security.rs"]
mod security;
#[path = "cli/telling.rs"]
mod telling;
#[path = "cli/workbench.rs"]
mod workbench;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_nuthatch");

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A server with an empty store, killed and cleaned up when dropped.
struct Server {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Server {
    fn start(extra: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nuthatch-cli-test-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        // A process of the same number may have been killed here.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let mut command = match std::env::var_os("NUTHATCH_TEST_SERVER") {
            Some(path) => Command::new(path),
            None => {
                let mut command = Command::new(BINARY);
                command.arg("serve");
                command
            }
        };
        command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(&dir);
        command.arg("--ports_file_dir").arg(&dir);
        command.args(extra).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let mut server = Self { child, port: 0, dir };
        let deadline = Instant::now() + START_LIMIT;
        while let Ok(None) = server.child.try_wait()
            && server.port == 0
        {
            assert!(Instant::now() < deadline, "the server did not start");
            thread::sleep(Duration::from_millis(20));
            server.port = port_in(&server.dir).unwrap_or(0);
        }
        assert_ne!(server.port, 0, "the server ended");
        server
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NATS_")) {
            command.env_remove(name);
        }
        // Contexts of whoever runs the tests do not matter.
        command.env("XDG_CONFIG_HOME", self.dir.join("config"));
        command.env("NATS_URL", format!("nats://127.0.0.1:{}", self.port));
        command.args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        serde_json::from_str(&self.ok(&args)).unwrap()
    }

    /// The exit code and error text of a command that must fail.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        let code = output.status.code().unwrap();
        assert_ne!(code, 0, "{args:?} succeeded");
        (code, String::from_utf8(output.stderr).unwrap())
    }
}

/// The port of the ports file that a server has put into a directory.
fn port_in(dir: &Path) -> Option<u16> {
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "ports"))?;
    let ports: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn publish_subscribe_request() {
    let server = Server::start(&[]);
    let mut sub = server.command(&["sub", "greet.*", "--count", "2", "--json"]);
    let sub = sub.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // There is no way to see a subscription from outside without monitoring, so ask until served.
    let deadline = Instant::now() + START_LIMIT;
    let mut sent = 0;
    let mut sub = sub;
    while sub.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the subscriber received nothing");
        server.ok(&["pub", "greet.joe", "hello", "-H", "Lang: en", "--reply", "back"]);
        sent += 1;
    }
    assert!(sent >= 2);
    let output = sub.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["data"], "hello");
    assert_eq!(lines[0]["reply"], "back");
    assert_eq!(lines[0]["headers"]["Lang"][0], "en");

    let (code, text) = server.fails(&["request", "nobody.home", "x"]);
    assert_eq!(code, 1);
    assert!(text.contains("no responders"), "{text}");
}

#[test]
fn streams_and_consumers() {
    let server = Server::start(&[]);
    assert_eq!(server.ok(&["stream", "ls"]), "No streams\n");
    let made = server.json(&[
        "stream",
        "add",
        "ORDERS",
        "--subjects",
        "orders.>",
        "--storage",
        "file",
        "--max-msgs",
        "100",
        "--max-age",
        "24h",
        "--dupe-window",
        "1m",
        "--deny-delete",
        "--defaults",
    ]);
    assert_eq!(made["config"]["max_age"], 86_400_000_000_000u64);
    assert_eq!(made["config"]["deny_delete"], true);
    for number in 1..=3 {
        let ack = server.json(&["pub", "-J", "orders.new", &format!("order {number}")]);
        assert_eq!(ack["seq"], number);
    }
    let id = ["pub", "-J", "orders.new", "x", "-H", "Nats-Msg-Id:a"];
    assert_eq!(server.json(&id)["seq"], 4);
    assert_eq!(server.json(&id)["duplicate"], true);
    let table = server.ok(&["stream", "ls"]);
    assert!(table.contains("ORDERS  orders.>  file"), "{table}");
    assert!(server.ok(&["stream", "info", "ORDERS"]).contains("Messages: 4"));

    server.ok(&["consumer", "add", "ORDERS", "work", "--pull", "--ack", "explicit"]);
    assert_eq!(server.ok(&["consumer", "next", "ORDERS", "work", "--raw"]), "order 1\n");
    let rest = server.ok(&["consumer", "next", "ORDERS", "work", "--raw", "--count", "2"]);
    assert_eq!(rest, "order 2\norder 3\n");
    let info = server.json(&["consumer", "info", "ORDERS", "work"]);
    assert_eq!(info["ack_floor"]["stream_seq"], 3);
    assert_eq!(info["num_pending"], 1);
    assert!(server.ok(&["consumer", "ls", "ORDERS"]).contains("pull, durable"));
    let short =
        server.fails(&["consumer", "next", "ORDERS", "work", "--count", "2", "--wait", "300ms"]);
    assert!(short.1.contains("received 1 of 2"), "{}", short.1);

    let (code, text) = server.fails(&["consumer", "rm", "ORDERS", "work"]);
    assert_eq!((code, text.contains("--force")), (2, true), "{text}");
    server.ok(&["consumer", "rm", "ORDERS", "work", "-f"]);
    let (code, text) = server.fails(&["consumer", "info", "ORDERS", "work"]);
    assert_eq!((code, text.contains("10014")), (1, true), "{text}");
    server.ok(&["stream", "rm", "ORDERS", "--force"]);
    let (code, text) = server.fails(&["stream", "info", "ORDERS"]);
    assert_eq!((code, text.contains("10059")), (1, true), "{text}");
}

#[test]
fn credentials_and_errors() {
    let server = Server::start(&["--user", "ada", "--pass", "secret"]);
    let (code, text) = server.fails(&["pub", "a", "b"]);
    assert_eq!((code, text.contains("refused the credentials")), (1, true), "{text}");
    server.ok(&["pub", "a", "b", "--user", "ada", "--password", "secret"]);
    let url = format!("nats://ada:secret@127.0.0.1:{}", server.port);
    server.ok(&["--server", &url, "pub", "a", "b"]);
    let mut by_environment = Command::new(BINARY);
    by_environment.env("NATS_URL", &url).args(["pub", "a", "b"]);
    assert!(by_environment.status().unwrap().success());
    assert_eq!(server.fails(&["pub"]).0, 2);
    assert_eq!(server.fails(&["pub", "a b"]).0, 2);
    assert_eq!(server.fails(&["--server", "http://x", "pub", "a"]).0, 2);
}

#[test]
fn nobody_listens() {
    let port = nuthatch_ports::free_port().expect("a port");
    let server = format!("127.0.0.1:{port}");
    let output = Command::new(BINARY).args(["-s", &server, "pub", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("nuthatch serve"), "{text}");
}

#[test]
fn measurements() {
    let server = Server::start(&[]);
    let run = |args: &[&str]| {
        let report = server.json(&[&["bench"], args].concat());
        assert_eq!(report["errors"], 0, "{args:?}: {report}");
        assert!(report["msgs_per_s"]["median"].as_f64().unwrap() > 0.0);
        report
    };
    let report = run(&["js", "pub", "--msgs", "2000", "--clients", "2", "--purge"]);
    assert_eq!(report["runs"][0]["msgs"], 2000);
    assert_eq!(report["runs"][0]["latency_us"]["count"], 2000);
    assert!(report["runs"][0]["server"]["cpu_us_per_msg"].as_f64().unwrap() > 0.0);
    run(&["js", "pub", "--sync", "--msgs", "100", "--repeat", "2"]);
    run(&["js", "consume", "--msgs", "3000", "--fill"]);
    run(&["js", "consume", "--msgs", "3000", "--clients", "2", "--batch", "100"]);
    run(&["js", "consume", "--msgs", "1000", "--ack", "all"]);
    run(&["js", "fetch", "--msgs", "1050", "--batch", "100"]);
    run(&["js", "ordered", "--msgs", "3000"]);
    run(&["js", "ordered", "--msgs", "3000", "--pull", "--clients", "2"]);
    run(&["pub", "--msgs", "10k", "--subs", "2"]);
    run(&["request", "--msgs", "200", "--clients", "2"]);
    let large = run(&["js", "pub", "--msgs", "20", "--size", "512KiB", "--batch", "4"]);
    assert_eq!(large["runs"][0]["msgs"], 20);
}

#[cfg(feature = "async-nats")]
#[test]
fn measurements_by_async_nats() {
    let server = Server::start(&[]);
    let run = |args: &[&str]| {
        let report = server.json(&[&["bench", "js"], args, &["--client", "async-nats"]].concat());
        assert_eq!(report["errors"], 0, "{args:?}: {report}");
        assert_eq!(report["client"], "async-nats");
        report["runs"][0]["msgs"].as_u64().unwrap()
    };
    assert_eq!(run(&["pub", "--msgs", "3000", "--clients", "2"]), 3000);
    assert_eq!(run(&["pub", "--sync", "--msgs", "100"]), 100);
    assert_eq!(run(&["consume", "--msgs", "3000", "--batch", "200"]), 3000);
    assert_eq!(run(&["consume", "--msgs", "3000", "--ack", "none"]), 3000);
    assert_eq!(run(&["fetch", "--msgs", "1050", "--batch", "100"]), 1050);
    assert_eq!(run(&["ordered", "--msgs", "3000"]), 3000);
    assert_eq!(run(&["ordered", "--msgs", "3000", "--pull", "--clients", "2"]), 6000);
}
