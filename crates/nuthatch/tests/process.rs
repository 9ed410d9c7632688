//! The server as a process: files, signals, exit codes, monitoring.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(90);

/// A directory that is removed at the end, with the binary in it under the incumbent's name.
struct BinaryDir {
    directory: PathBuf,
}

impl BinaryDir {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("nuthatch-process-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let link = directory.join("nats-server");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nuthatch"), link).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("nats-server"));
        command.args(args).current_dir(&self.directory).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a server and waits for its ports file.
    fn start(&self, args: &[&str]) -> Running {
        let fixed = ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-ports_file_dir", "."];
        let args: Vec<&str> = fixed.iter().chain(args).copied().collect();
        let child =
            self.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let ports = self.path(&format!("nats-server_{}.ports", child.id()));
        let mut running = Running { child, port: 0, monitor: 0 };
        wait("the ports file", || ports.exists());
        let text = std::fs::read_to_string(&ports).unwrap();
        running.port = port_after(&text, "\"nats\":[\"nats://127.0.0.1:");
        running.monitor = port_after(&text, "\"monitoring\":[\"http://127.0.0.1:");
        running
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for BinaryDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn port_after(text: &str, prefix: &str) -> u16 {
    let (_, rest) = text.split_once(prefix).unwrap_or_else(|| panic!("no {prefix} in {text}"));
    rest.split('"').next().unwrap().parse().unwrap()
}

struct Running {
    child: Child,
    port: u16,
    monitor: u16,
}

impl Running {
    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the end; its exit code.
    fn exit_code(mut self) -> i32 {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        BufReader::new(stream)
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.monitor)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The next line that is not a ping: the first one comes after two seconds.
fn line(reader: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line != "PING\r\n" {
            return line;
        }
    }
}

fn contains(path: &Path, text: &str) -> bool {
    std::fs::read_to_string(path).unwrap_or_default().contains(text)
}

#[test]
fn short_answers() {
    let place = BinaryDir::new("short");
    let version = place.run(&["-v"]);
    assert!(version.status.success());
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("nats-server: v2."));
    assert!(!place.run(&["--no-such-flag"]).status.success());
    std::fs::write(place.path("good.conf"), "port: 4222\n").unwrap();
    assert!(place.run(&["-t", "-c", "good.conf"]).status.success());
    std::fs::write(place.path("bad.conf"), "pors: 4222\n").unwrap();
    let bad = place.run(&["-t", "-c", "bad.conf"]);
    assert!(!bad.status.success());
    assert!(String::from_utf8_lossy(&bad.stderr).contains("bad.conf:1"), "{bad:?}");
    let tls = "tls { cert_file: absent.pem, key_file: absent.pem }\n";
    std::fs::write(place.path("tls.conf"), tls).unwrap();
    let tls = place.run(&["-t", "-c", "tls.conf"]);
    assert!(!tls.status.success());
    assert!(String::from_utf8_lossy(&tls.stderr).contains("absent.pem"), "{tls:?}");
    let routes =
        "routes: ['nats://127.0.0.1:7001', 'nats://127.0.0.1:7002', 'nats://127.0.0.1:7003']";
    let node = |cluster: &str, quorum: &str| {
        let listen = format!("cluster {{ name: {cluster}, listen: '127.0.0.1:7001', {routes} }}");
        let text = format!("server_name: n1\njetstream {{ quorum {{ {quorum} }} }}\n{listen}\n");
        std::fs::write(place.path("node.conf"), text).unwrap();
        let tested = place.run(&["-t", "-c", "node.conf"]);
        (tested.status.success(), String::from_utf8_lossy(&tested.stderr).into_owned())
    };
    assert!(node("c", "replace_after: '60s'").0);
    assert!(!place.path("nuthatch").exists(), "nothing is written");
    for (cluster, quorum, why) in [
        ("c", "replace_after: '5s'", "at least 10s"),
        ("'c 1'", "", "'name' cannot hold spaces"),
        ("c, key_file: absent.key", "", "absent.key"),
    ] {
        let (is_valid, said) = node(cluster, quorum);
        assert!(!is_valid && said.contains(why), "{said}");
    }
    let log = place.run(&["-p", "-1", "-l", "absent/server.log"]);
    assert!(!log.status.success());
    assert!(String::from_utf8_lossy(&log.stderr).contains("absent/server.log"), "{log:?}");
}

/// As in `nats-server --help | head -1`.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = BinaryDir::new("pipe");
    for args in [&["--help"][..], &["-v"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = place.command(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        assert!(done.stderr.is_empty(), "{args:?}: {done:?}");
    }
}

#[test]
fn files_signals_and_exit_codes() {
    let place = BinaryDir::new("signals");
    let log = place.path("server.log");
    let server = place.start(&["-P", "server.pid", "-l", "server.log"]);
    assert_eq!(place.read("server.pid"), server.child.id().to_string());
    for text in ["Starting nats-server", "Listening for client connections on 127.0.0.1:"] {
        assert!(contains(&log, text), "{}", place.read("server.log"));
    }
    wait("the last line of the banner", || contains(&log, "Server is ready"));
    std::fs::rename(&log, place.path("old.log")).unwrap();
    server.signal("-USR1");
    wait("a new log file", || contains(&log, "File log re-opened"));
    let mut client = server.connect();
    assert!(line(&mut client).starts_with("INFO {"));
    let ports = place.path(&format!("nats-server_{}.ports", server.child.id()));
    server.signal("-TERM");
    assert_eq!(server.exit_code(), 0);
    assert!(!ports.exists());
    assert!(contains(&log, "Server Exiting.."));
}

#[test]
fn reload_changes_users() {
    let place = BinaryDir::new("reload");
    let config = place.path("server.conf");
    let write = |password: &str| {
        let text = format!(
            "authorization {{ timeout: 60, users = [ {{user: a, password: {password}}} ] }}\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    write("one");
    let server = place.start(&["-c", "server.conf", "-l", "server.log"]);
    let login = |password: &str| {
        let mut client = server.connect();
        line(&mut client);
        let connect = format!(
            "CONNECT {{\"verbose\":false,\"user\":\"a\",\"pass\":\"{password}\"}}\r\nPING\r\n"
        );
        client.get_mut().write_all(connect.as_bytes()).unwrap();
        line(&mut client)
    };
    assert_eq!(login("one"), "PONG\r\n");
    write("two");
    server.signal("-HUP");
    let log = place.path("server.log");
    wait("the reload", || contains(&log, "Reloaded server configuration"));
    assert_eq!(login("one"), "-ERR 'Authorization Violation'\r\n");
    assert_eq!(login("two"), "PONG\r\n");
    std::fs::write(&config, "authorization { users = 7 }\n").unwrap();
    server.signal("-HUP");
    wait("the refusal", || contains(&log, "Failed to reload server configuration"));
    assert_eq!(login("two"), "PONG\r\n");
    server.signal("-INT");
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn a_reloaded_max_payload_holds_for_those_who_are_in() {
    let place = BinaryDir::new("payload");
    let config = place.path("server.conf");
    std::fs::write(&config, "max_payload: 100\n").unwrap();
    let server = place.start(&["-c", "server.conf", "-l", "server.log"]);
    let log = place.path("server.log");
    let mut client = server.connect();
    line(&mut client);
    let hello = b"CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPING\r\n";
    client.get_mut().write_all(hello).unwrap();
    assert_eq!(line(&mut client), "PONG\r\n");
    std::fs::write(&config, "max_payload: 10\n").unwrap();
    server.signal("-HUP");
    wait("the reload", || contains(&log, "Reloaded server configuration"));
    client.get_mut().write_all(b"PUB a 10\r\n0123456789\r\nPUB a 11\r\n").unwrap();
    assert_eq!(line(&mut client), "MSG a 1 10\r\n");
    assert_eq!(line(&mut client), "0123456789\r\n");
    assert_eq!(line(&mut client), "-ERR 'Maximum Payload Violation'\r\n");
}

#[test]
fn a_reloaded_max_connections_closes_those_too_many() {
    let place = BinaryDir::new("connections");
    let config = place.path("server.conf");
    std::fs::write(&config, "max_connections: 3\n").unwrap();
    let server = place.start(&["-c", "server.conf", "-l", "server.log"]);
    let enter = || {
        let mut client = server.connect();
        line(&mut client);
        client.get_mut().write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap();
        assert_eq!(line(&mut client), "PONG\r\n");
        client
    };
    let mut clients = [enter(), enter(), enter()];
    std::fs::write(&config, "max_connections: 1\n").unwrap();
    server.signal("-HUP");
    for client in &mut clients[1..] {
        assert_eq!(line(client), "-ERR 'maximum connections exceeded'\r\n");
        assert_eq!(line(client), "", "it is closed");
    }
    clients[0].get_mut().write_all(b"PING\r\n").unwrap();
    assert_eq!(line(&mut clients[0]), "PONG\r\n");
}

/// The store goes away under the server: what was acknowledged is gone by somebody else's hand, and
/// whoever stopped the server learns that not all is well.
#[test]
fn a_shutdown_that_failed_has_another_exit_code() {
    let place = BinaryDir::new("unclean");
    let server = place.start(&["-js", "-sd", "store", "-l", "server.log"]);
    let mut client = server.connect();
    line(&mut client);
    let create = "PUB $JS.API.STREAM.CREATE.S in 12\r\n{\"name\":\"S\"}\r\n";
    let text = format!("CONNECT {{\"verbose\":false}}\r\nSUB in 1\r\n{create}");
    client.get_mut().write_all(text.as_bytes()).unwrap();
    assert!(line(&mut client).starts_with("MSG in 1 "));
    assert!(line(&mut client).contains("\"did_create\":true"));
    std::fs::remove_dir_all(place.path("store")).unwrap();
    server.signal("-TERM");
    assert_eq!(server.exit_code(), 1);
    assert!(contains(&place.path("server.log"), "the shutdown was not clean"));
}

#[test]
fn a_lame_duck_says_so_and_leaves() {
    let place = BinaryDir::new("duck");
    let config = "lame_duck_duration: \"30s\"\nlame_duck_grace_period: \"1s\"\n";
    std::fs::write(place.path("server.conf"), config).unwrap();
    let server = place.start(&["-c", "server.conf"]);
    let mut client = server.connect();
    line(&mut client);
    client.get_mut().write_all(b"CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n").unwrap();
    assert_eq!(line(&mut client), "PONG\r\n");
    assert!(line(&mut client).contains("\"connect_info\":true"));
    server.signal("-USR2");
    let info = line(&mut client);
    assert!(info.starts_with("INFO {") && info.contains("\"ldm\":true"), "{info}");
    assert_eq!(line(&mut client), "", "closed");
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn monitoring() {
    let place = BinaryDir::new("monitor");
    let server = place.start(&["-js", "-sd", "store"]);
    let health = server.get("/healthz");
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    assert!(health.to_ascii_lowercase().contains("content-type: application/json\r\n"));
    assert!(health.to_ascii_lowercase().contains("access-control-allow-origin: *\r\n"));
    let mut client = server.connect();
    line(&mut client);
    let connect = b"CONNECT {\"verbose\":false,\"name\":\"watcher\"}\r\nSUB a 1\r\nPING\r\n";
    client.get_mut().write_all(connect).unwrap();
    assert_eq!(line(&mut client), "PONG\r\n");
    let connz = server.get("/connz?subs=detail");
    for text in ["\"name\": \"watcher\"", "\"num_connections\": 1", "\"subject\": \"a\""] {
        assert!(connz.contains(text), "{connz}");
    }
    let varz = server.get("/varz");
    for text in ["\"connections\": 1", "\"max_payload\": 1048576", "\"jetstream\": {"] {
        assert!(varz.contains(text), "{varz}");
    }
    assert!(server.get("/jsz?accounts=true").contains("\"streams\": 0"));
    assert!(server.get("/jsz?accounts=maybe").starts_with("HTTP/1.1 400"));
    assert!(server.get("/healthz?stream=S").starts_with("HTTP/1.1 400"));
    assert!(server.get("/nothing").starts_with("HTTP/1.1 404"));
}

#[test]
fn the_store_of_a_nats_server_is_refused() {
    let place = BinaryDir::new("foreign");
    let stream = place.path("store/jetstream/$G/streams/ORDERS/msgs");
    std::fs::create_dir_all(&stream).unwrap();
    let refused = place.run(&["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", "store"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("$G/ORDERS") && text.contains("nuthatch stream import"), "{text}");
    assert!(stream.exists());
}

#[test]
fn a_start_that_takes_too_long_ends() {
    let dir = BinaryDir::new("late");
    let config =
        "port: -1, ready_timeout: '1ns', ports_file_dir: '.', jetstream { store_dir: data }";
    std::fs::write(dir.path("late.conf"), config).unwrap();
    let ended = dir.run(&["-a", "127.0.0.1", "-c", "late.conf"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("ready_timeout"), "{said}");
    let is_ports = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".ports");
    let mut files = std::fs::read_dir(&dir.directory).unwrap().flatten();
    assert!(!files.any(|file| is_ports(&file.file_name())));
}
