//! Backups between servers: ours and a real nats-server, in every direction, and the import of a
//! nats-server's store directory. The commands are those of the binary; `tests/clients/backup`
//! does the same with jsm.go.

#[path = "differential/server.rs"]
#[allow(dead_code, reason = "the differential test uses the rest")]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nuthatch_client::{Client, ConnectOptions};
use serde_json::{Value, json};
use server::{Program, Server};

const BINARY: &str = env!("CARGO_BIN_EXE_nuthatch");
/// How long anything may take until it is as expected.
const LIMIT: Duration = Duration::from_secs(180);

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nuthatch-backup-test-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(port: u16, args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NATS_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", std::env::temp_dir().join("nuthatch-backup-test-no-config"));
    command.env("NATS_URL", format!("nats://127.0.0.1:{port}"));
    command.args(["--timeout", "60s"]);
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn ok(port: u16, args: &[&str]) -> String {
    let output = run(port, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn fails(port: u16, args: &[&str]) -> String {
    let output = run(port, args);
    assert!(!output.status.success(), "{args:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

fn json(port: u16, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
    serde_json::from_str(&ok(port, &args)).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A stream with gaps, headers, and two consumers in the middle of their work.
fn fill(port: u16, extra: &[&str]) {
    let add = ["stream", "add", "S", "--subjects", "s.>", "--description", "kept", "--defaults"];
    ok(port, &[&add[..], extra].concat());
    ok(port, &["pub", "s.{{Count}}", "body {{Count}}", "-J", "--count", "9"]);
    ok(port, &["pub", "s.x", "last", "-J", "-H", "Color: red", "-H", "Nats-Msg-Id: once"]);
    ok(port, &["stream", "rmm", "S", "5", "--force"]);
    ok(port, &["stream", "purge", "S", "--seq", "3", "--force"]);
    ok(port, &["consumer", "add", "S", "C", "--pull", "--wait", "1h", "--defaults"]);
    let filtered = ["consumer", "add", "S", "D", "--pull", "--filter", "s.x", "--defaults"];
    ok(port, &filtered);
    ok(port, &["consumer", "next", "S", "C", "--count", "2"]);
    ok(port, &["consumer", "next", "S", "C", "--count", "2", "--no-ack"]);
    until("the acknowledgements have arrived", || {
        json(port, &["consumer", "info", "S", "C"])["num_ack_pending"] == 2
    });
}

/// What a backup must keep.
fn picture(port: u16) -> Value {
    let info = json(port, &["stream", "info", "S"]);
    let (config, state) = (&info["config"], &info["state"]);
    let mut messages = Vec::new();
    for seq in 1..=state["last_seq"].as_u64().unwrap() {
        let output = run(port, &["stream", "get", "S", &seq.to_string(), "--json"]);
        if output.status.success() {
            messages.push(serde_json::from_slice::<Value>(&output.stdout).unwrap());
        }
    }
    let consumer = |name: &str| {
        let info = json(port, &["consumer", "info", "S", name]);
        let seqs = |of: &Value| json!([of["consumer_seq"], of["stream_seq"]]);
        json!({
            "delivered": seqs(&info["delivered"]), "floor": seqs(&info["ack_floor"]),
            "out": info["num_ack_pending"], "ahead": info["num_pending"],
            "filter": info["config"]["filter_subject"], "wait": info["config"]["ack_wait"],
        })
    };
    json!({
        "subjects": config["subjects"], "description": config["description"],
        "window": config["duplicate_window"], "retention": config["retention"],
        "first": [state["first_seq"], state["first_ts"]],
        "last": [state["last_seq"], state["last_ts"]],
        "messages": messages, "C": consumer("C"), "D": consumer("D"),
    })
}

fn ours() -> Server {
    Server::start(&Program::ours(), "").unwrap()
}

/// Backs up from one server and restores on another; both must show the same.
fn check_transfer(from: &Server, to: &Server) {
    let dir = Dir::new();
    let backup = dir.join("S");
    let before = picture(from.port);
    let told = json(from.port, &["stream", "backup", "S", &backup]);
    assert_eq!((&told["messages"], &told["consumers"]), (&json!(7), &json!(2)), "{told}");
    let told = json(to.port, &["stream", "restore", &backup]);
    assert_eq!(told["state"]["messages"], 7, "{told}");
    assert_eq!(picture(to.port), before);
    // It is alive: new messages, old acknowledgements, known ids.
    let answer = ok(to.port, &["pub", "s.new", "new", "-J"]);
    assert!(answer.contains("sequence 11"), "{answer}");
    let next = ["consumer", "next", "S", "D", "--raw"];
    assert_eq!(ok(to.port, &next).trim(), "last");
    let again = fails(to.port, &["stream", "restore", &backup]);
    assert!(again.contains("10130"), "{again}");
    let again = fails(from.port, &["stream", "backup", "S", &backup]);
    assert!(again.contains("--force"), "{again}");
    ok(to.port, &["stream", "rm", "S", "--force"]);
}

#[test]
fn a_backup_is_restored_by_another_server() {
    let (from, to) = (ours(), ours());
    fill(from.port, &[]);
    check_transfer(&from, &to);
    check_transfer(&from, &to);
}

#[test]
fn backups_go_to_nats_server_and_back() {
    let Some(reference) = Program::reference() else { return };
    let theirs = Server::start(&reference, "").unwrap();
    let ours = ours();
    fill(ours.port, &[]);
    check_transfer(&ours, &theirs);
    ok(ours.port, &["stream", "rm", "S", "--force"]);
    fill(theirs.port, &[]);
    check_transfer(&theirs, &ours);
}

#[test]
fn streams_of_other_kinds_survive() {
    let Some(reference) = Program::reference() else { return };
    let (theirs, ours) = (Server::start(&reference, "").unwrap(), ours());
    let kinds: [&[&str]; 3] = [
        &["--retention", "work"],
        &["--retention", "interest"],
        &["--storage", "memory", "--max-msgs-per-subject", "2"],
    ];
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        for kind in kinds {
            let dir = Dir::new();
            let backup = dir.join("S");
            let add = ["stream", "add", "S", "--subjects", "s.>", "--defaults"];
            ok(from.port, &[&add[..], kind].concat());
            ok(from.port, &["consumer", "add", "S", "C", "--pull", "--wait", "1h", "--defaults"]);
            ok(from.port, &["pub", "s.a", "{{Count}}", "-J", "--count", "2"]);
            ok(from.port, &["pub", "s.b", "{{Count}}", "-J", "--count", "2"]);
            ok(from.port, &["consumer", "next", "S", "C"]);
            let state = |port| {
                let state = json(port, &["stream", "info", "S"])["state"].take();
                json!([state["messages"], state["first_seq"], state["last_seq"]])
            };
            let expected =
                if kind[0] == "--retention" { json!([3, 2, 4]) } else { json!([4, 1, 4]) };
            until("the acknowledgement has had its effect", || {
                state(from.port) == expected
                    && json(from.port, &["consumer", "info", "S", "C"])["num_ack_pending"] == 0
            });
            ok(from.port, &["stream", "backup", "S", &backup, "--no-progress"]);
            ok(to.port, &["stream", "restore", &backup]);
            assert_eq!(state(to.port), expected, "{kind:?}");
            let next = ["consumer", "next", "S", "C", "--raw"];
            assert_eq!(ok(to.port, &next).trim(), "2", "{kind:?}");
            ok(from.port, &["stream", "rm", "S", "--force"]);
            ok(to.port, &["stream", "rm", "S", "--force"]);
        }
    }
}

#[test]
fn accounts_are_saved_stream_by_stream() {
    let (from, to) = (ours(), ours());
    for name in ["A", "B"] {
        let subjects = format!("{name}.>");
        ok(from.port, &["stream", "add", name, "--subjects", &subjects, "--defaults"]);
        ok(from.port, &["pub", &format!("{name}.x"), "x", "-J", "--count", "3"]);
    }
    let dir = Dir::new();
    let told = json(from.port, &["account", "backup", &dir.join("all")]);
    assert_eq!(told.as_array().map(Vec::len), Some(2), "{told}");
    let told = json(to.port, &["account", "restore", &dir.join("all")]);
    let counts: Vec<&Value> =
        told.as_array().unwrap().iter().map(|one| &one["state"]["messages"]).collect();
    assert_eq!(counts, [&json!(3), &json!(3)]);
    let text = fails(to.port, &["account", "restore", &dir.join("all")]);
    assert!(text.contains("0 streams done, 2 not"), "{text}");
}

#[test]
fn a_damaged_backup_leaves_nothing_behind() {
    let (from, to) = (ours(), ours());
    fill(from.port, &[]);
    let dir = Dir::new();
    let backup = dir.join("S");
    ok(from.port, &["stream", "backup", "S", &backup]);
    let path = Path::new(&backup).join("stream.tar.s2");
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    for (bytes, expected) in [(&bad, "damaged"), (&good[..middle].to_vec(), "ends")] {
        fs::write(&path, bytes).unwrap();
        let text = fails(to.port, &["stream", "restore", &backup]);
        assert!(text.contains("10062") && text.contains(expected), "{text}");
        let streams = json(to.port, &["stream", "ls"]);
        assert_eq!(streams.as_array().map(Vec::len), Some(0), "{streams}");
    }
    fs::write(&path, &good).unwrap();
    ok(to.port, &["stream", "restore", &backup]);
    assert_eq!(picture(to.port), picture(from.port));
}

/// A server whose store directory stays when it is stopped.
struct Stoppable {
    child: Child,
    port: u16,
}

impl Stoppable {
    fn start(program: &Program, store: &Path) -> Self {
        let ports = store.with_extension("ports");
        fs::create_dir_all(&ports).unwrap();
        let child = Command::new(&program.path)
            .args(&program.args)
            .args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"])
            .arg(store)
            .arg("--ports_file_dir")
            .arg(&ports)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Self { child, port: 0 };
        until("the server listens", || {
            started.port = port_in(&ports).unwrap_or(0);
            started.port != 0
        });
        started
    }

    fn stop(mut self) {
        // A signal that both take as "stop cleanly".
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        let child = &mut self.child;
        until("the server has stopped", || child.try_wait().unwrap().is_some());
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port in a ports file, once it is there and whole.
fn port_in(dir: &Path) -> Option<u16> {
    let path = fs::read_dir(dir).ok()?.next()?.ok()?.path();
    let ports: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}

/// Uploads half of a backup and waits until the server has used it.
fn upload_half(port: u16, backup: &Path) {
    let meta: Value =
        serde_json::from_slice(&fs::read(backup.join("backup.json")).unwrap()).unwrap();
    let data = fs::read(backup.join("stream.tar.s2")).unwrap();
    let options = ConnectOptions::new(&format!("127.0.0.1:{port}")).unwrap();
    let mut client = Client::connect(&options).unwrap();
    let request = json!({ "config": meta["config"], "state": meta["state"] }).to_string();
    let reply = client.request("$JS.API.STREAM.RESTORE.S", b"", request.as_bytes(), LIMIT).unwrap();
    let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
    let subject = reply["deliver_subject"].as_str().unwrap();
    for chunk in data[..data.len() / 2].chunks(100_000) {
        let reply = client.request(subject, b"", chunk, LIMIT).unwrap();
        assert!(reply.payload.is_empty(), "{:?}", String::from_utf8_lossy(&reply.payload));
    }
}

#[test]
fn a_kill_in_the_middle_of_a_restore_leaves_nothing_behind() {
    let from = ours();
    ok(from.port, &["stream", "add", "S", "--subjects", "s.>", "--defaults"]);
    let body = "{{Random 200000 200000}}";
    ok(from.port, &["pub", "s.{{Count}}", body, "-J", "--count", "40"]);
    let dir = Dir::new();
    let backup = dir.join("S");
    ok(from.port, &["stream", "backup", "S", &backup]);
    let store = dir.0.join("store");
    let mut to = Stoppable::start(&Program::ours(), &store);
    upload_half(to.port, Path::new(&backup));
    to.child.kill().unwrap();
    to.child.wait().unwrap();
    drop(to);
    fs::remove_dir_all(store.with_extension("ports")).unwrap();
    let to = Stoppable::start(&Program::ours(), &store);
    let streams = json(to.port, &["stream", "ls"]);
    assert_eq!(streams.as_array().map(Vec::len), Some(0), "{streams}");
    let used = json(to.port, &["account", "info"])["jetstream"].take();
    assert_eq!((&used["streams"], &used["storage"]), (&json!(0), &json!(0)), "{used}");
    let told = json(to.port, &["stream", "restore", &backup]);
    assert_eq!(told["state"]["messages"], 40, "{told}");
    let probe = ["stream", "get", "S", "17", "--raw"];
    assert_eq!(ok(to.port, &probe), ok(from.port, &probe));
}

#[test]
fn a_store_directory_of_nats_server_is_imported() {
    let Some(reference) = Program::reference() else { return };
    let dir = Dir::new();
    let store = dir.0.join("store");
    let theirs = Stoppable::start(&reference, &store);
    fill(theirs.port, &[]);
    // Enough for several blocks, of which all but the last are compressed.
    let add = ["stream", "add", "BIG", "--subjects", "big.>", "--compression", "s2", "--defaults"];
    ok(theirs.port, &add);
    let body = "{{Random 300000 300000}}";
    ok(theirs.port, &["pub", "big.{{Count}}", body, "-J", "--count", "60"]);
    ok(theirs.port, &["stream", "rmm", "BIG", "2", "--force"]);
    let before = picture(theirs.port);
    let probe = ["stream", "get", "BIG", "30", "--raw"];
    let sample = ok(theirs.port, &probe);
    theirs.stop();
    let ours = ours();
    let from = store.display().to_string();
    let told = json(ours.port, &["stream", "import", "--from-dir", &from]);
    let counts: Vec<&Value> =
        told.as_array().unwrap().iter().map(|one| &one["state"]["messages"]).collect();
    assert_eq!(counts, [&json!(59), &json!(7)], "{told}");
    assert_eq!(picture(ours.port), before);
    assert_eq!(ok(ours.port, &probe), sample);
    let text = fails(ours.port, &["stream", "import", "--from-dir", &from, "S"]);
    assert!(text.contains("10130"), "{text}");
    let text = fails(ours.port, &["stream", "import", "--from-dir", &dir.join("nowhere")]);
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn an_older_archive_is_restored_by_both() {
    let Some(reference) = Program::reference() else { return };
    let dir = Dir::new();
    let store = dir.0.join("store");
    let theirs = Stoppable::start(&reference, &store);
    fill(theirs.port, &[]);
    let info = json(theirs.port, &["stream", "info", "S"]);
    let before = picture(theirs.port);
    theirs.stop();
    let backup = dir.0.join("S");
    fs::create_dir_all(&backup).unwrap();
    let meta = json!({ "config": info["config"], "state": info["state"] });
    fs::write(backup.join("backup.json"), meta.to_string()).unwrap();
    let files = store.join("jetstream/$G/streams/S");
    fs::write(backup.join("stream.tar.s2"), older_archive(&files)).unwrap();
    let backup = backup.display().to_string();
    for server in [ours(), Server::start(&reference, "").unwrap()] {
        ok(server.port, &["stream", "restore", &backup]);
        assert_eq!(picture(server.port), before);
    }
}

/// The archive that servers before 2.15 made of a stream: a tar of its files.
fn older_archive(stream: &Path) -> Vec<u8> {
    let mut names = vec!["meta.inf".to_owned(), "meta.sum".to_owned()];
    let mut blocks: Vec<PathBuf> =
        fs::read_dir(stream.join("msgs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    blocks.retain(|path| path.extension().is_some_and(|kind| kind == "blk"));
    blocks.sort();
    for path in blocks {
        names.push(format!("msgs/{}", path.file_name().unwrap().to_str().unwrap()));
    }
    for consumer in ["C", "D"] {
        for file in ["meta.inf", "meta.sum", "o.dat"] {
            names.push(format!("obs/{consumer}/{file}"));
        }
    }
    let mut tar = Vec::new();
    for name in names {
        let contents = fs::read(stream.join(&name)).unwrap();
        tar.extend(tar_header(&name, contents.len()));
        tar.extend_from_slice(&contents);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut out = snap::write::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut out, &tar).unwrap();
    out.into_inner().unwrap()
}

fn tar_header(name: &str, size: usize) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000600");
    block[108..115].copy_from_slice(b"0000000");
    block[116..123].copy_from_slice(b"0000000");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
