//! A cluster that has lost its majority for ever: what its disks have becomes the store of one server.

mod quorum_nodes;
mod support;

use quorum_nodes::{ANSWER, Node, Nodes, free_ports};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use support::{TIMEOUT, TempDir};

/// Streams of three replicas on several logs, with so many messages each.
const STREAMS: u64 = 6;

fn api(client: &mut nuthatch_client::Client, subject: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let asked = client.request(&format!("$JS.API.{subject}"), b"", body.as_bytes(), ANSWER);
        if let Ok(answer) = &asked {
            let told: Value = serde_json::from_slice(&answer.payload).expect("JSON");
            if told["error"].is_null() {
                return told;
            }
        }
        assert!(Instant::now() < deadline, "{subject}: {asked:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn create_all(nodes: &Nodes) {
    let mut client = nodes.nodes[0].client("");
    for at in 0..STREAMS {
        let config =
            json!({"name": format!("S{at}"), "subjects": [format!("s{at}.>")], "num_replicas": 3});
        api(&mut client, &format!("STREAM.CREATE.S{at}"), &config);
    }
    let consumer =
        json!({"stream_name": "S0", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api(&mut client, "CONSUMER.DURABLE.CREATE.S0.C", &consumer);
}

/// Publishes to each stream, from this number on.
fn publish(nodes: &Nodes, numbers: std::ops::Range<u64>) {
    for number in numbers {
        (0..STREAMS).for_each(|at| {
            nodes.publish_to(
                &format!("s{at}.n"),
                number * STREAMS + at,
                number.to_string().as_bytes(),
            );
        });
    }
}

/// Every node has everything.
fn wait_current(nodes: &Nodes) {
    let mut client = nodes.nodes[0].client("");
    let deadline = Instant::now() + TIMEOUT;
    for at in 0..STREAMS {
        loop {
            let info = api(&mut client, &format!("STREAM.INFO.S{at}"), &Value::Null);
            let replicas = info["cluster"]["replicas"].as_array().expect("replicas");
            if replicas.iter().all(|one| one["current"] == true && one["lag"].is_null()) {
                break;
            }
            assert!(Instant::now() < deadline, "not current: {info}");
        }
    }
}

fn store(nodes: &Nodes, at: usize) -> PathBuf {
    nodes.dir.path().join(format!("n{at}"))
}

fn recover(dirs: &[PathBuf], into: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(["cluster", "force-recover"]).args(dirs).arg("--into").arg(into).args(more);
    command.output().expect("it runs")
}

/// `nuthatch doctor` of several directories: its code, and what it says of the logs.
fn doctor(dirs: &[PathBuf]) -> (Option<i32>, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    let output = command.arg("doctor").args(dirs).arg("--json").output().expect("it runs");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let looked = told["directories"].as_array().expect("each directory");
    assert_eq!(looked.len(), dirs.len(), "{told}");
    (output.status.code(), told["together"].as_array().expect("logs").clone())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The content of all files below a directory.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("read").path();
        match path.is_dir() {
            true => all.extend(content(&path)),
            false => drop(all.insert(path.clone(), std::fs::read(&path).expect("read"))),
        }
    }
    all
}

/// One server on what was made has so many messages of each stream, and takes more.
fn check(dir: &TempDir, into: &Path, count: u64) {
    let port = free_ports(1)[0];
    let config = into.join("recovered.conf").display().to_string();
    let args = ["serve", "-a", "127.0.0.1", "-p", &port.to_string(), "-c", &config];
    let (args, log) = (args.map(str::to_owned).to_vec(), dir.path().join("recovered.log"));
    let mut server = Node::new("recovered".to_owned(), port, args, log);
    server.start();
    let mut client = server.client("");
    for at in 0..STREAMS {
        let info = api(&mut client, &format!("STREAM.INFO.S{at}"), &Value::Null);
        assert_eq!(info["state"]["messages"], count, "{info}");
        for seq in [1, count] {
            let got = api(&mut client, &format!("STREAM.MSG.GET.S{at}"), &json!({ "seq": seq }));
            assert_eq!(got["message"]["subject"], format!("s{at}.n"), "{got}");
        }
        let ack = client.request(&format!("s{at}.n"), b"", b"more", ANSWER).expect("stored");
        let ack: Value = serde_json::from_slice(&ack.payload).expect("JSON");
        assert_eq!(ack["seq"], count + 1, "{ack}");
    }
    let consumer = api(&mut client, "CONSUMER.INFO.S0.C", &Value::Null);
    assert_eq!(consumer["num_pending"], count + 1, "{consumer}");
    server.signal("-TERM");
    assert!(server.ended().success(), "{}", server.text());
    let looked = Command::new(env!("CARGO_BIN_EXE_nuthatch")).arg("doctor").arg(into).output();
    let looked = looked.expect("it runs");
    assert!(looked.status.success(), "{}{}", text(&looked.stdout), text(&looked.stderr));
}

#[test]
fn what_one_disk_has_becomes_a_store() {
    let mut nodes = Nodes::with_catalog(TempDir::new("recover-one"), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    create_all(&nodes);
    publish(&nodes, 0..20);
    wait_current(&nodes);
    let into = nodes.dir.path().join("r");
    let used = recover(&[store(&nodes, 1)], &into, &["--force"]);
    assert!(!used.status.success());
    assert!(text(&used.stderr).contains("a server uses it: stop that node first"), "{used:?}");
    nodes.nodes.iter_mut().for_each(Node::kill);
    let before = content(&store(&nodes, 1));
    let unasked = recover(&[store(&nodes, 1)], &into, &[]);
    assert!(text(&unasked.stderr).contains("pass --force"), "{unasked:?}");
    let dry = recover(&[store(&nodes, 1)], &into, &["--dry-run", "--json"]);
    let told: Value = serde_json::from_slice(&dry.stdout).expect("JSON");
    assert_eq!(told["logs"].as_array().map(Vec::len), Some(3), "{told}");
    let one = |log: &Value| log["disks"].as_array().is_some_and(|disks| disks.len() == 1);
    assert!(told["logs"].as_array().expect("logs").iter().all(one), "{told}");
    assert!(!into.exists());
    let made = recover(&[store(&nodes, 1)], &into, &["--force"]);
    assert!(made.status.success(), "{made:?}");
    let said = text(&made.stderr);
    assert!(
        said.contains("log default-2: entries to ") && said.contains("of no cluster"),
        "{said}"
    );
    assert!(content(&store(&nodes, 1)) == before, "it was only read");
    let again = recover(&[store(&nodes, 1)], &into, &["--force"]);
    assert!(text(&again.stderr).contains("is there already"), "{again:?}");
    check(&nodes.dir, &into, 20);
}

/// The one that was away has less: the other one counts, whichever is named first.
#[test]
fn of_two_disks_the_one_counts_that_has_everything() {
    let mut nodes = Nodes::with_catalog(TempDir::new("recover-two"), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    create_all(&nodes);
    publish(&nodes, 0..5);
    wait_current(&nodes);
    nodes.nodes[0].kill();
    publish(&nodes, 5..15);
    nodes.nodes.iter_mut().filter(|node| node.child.is_some()).for_each(Node::kill);
    let dirs = [store(&nodes, 0), store(&nodes, 2)];
    let (_, logs) = doctor(&dirs);
    assert_eq!(logs.len(), 3, "{logs:?}");
    for log in &logs {
        assert!(log["short"] == false && log["last"] == log["end"], "{log}");
        let [away, whole] = &log["copies"].as_array().expect("copies")[..] else {
            panic!("two copies: {log}");
        };
        assert_eq!([&away["furthest"], &whole["furthest"]], [false, true], "{log}");
        assert!(away["last"].as_u64() < whole["last"].as_u64(), "{log}");
        assert_eq!(whole["last"], log["last"], "{log}");
    }
    let into = nodes.dir.path().join("r");
    let made = recover(&dirs, &into, &["--force", "--json"]);
    assert!(made.status.success(), "{made:?}");
    let told: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    for log in told["logs"].as_array().expect("logs") {
        assert!(log["from"].as_str().expect("a directory").contains("/n2/"), "{told}");
        assert_eq!(log["disks"].as_array().map(Vec::len), Some(2), "{told}");
    }
    check(&nodes.dir, &into, 15);
}

/// The disk that has everything has lost an entry to rot: it is taken from another one.
#[test]
fn what_has_rotted_on_one_disk_is_taken_from_another() {
    let mut nodes = Nodes::with_catalog(TempDir::new("recover-rot"), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    create_all(&nodes);
    publish(&nodes, 0..20);
    wait_current(&nodes);
    nodes.nodes.iter_mut().for_each(Node::kill);
    for (at, place) in [(0, 3), (1, 5)] {
        rot(&store(&nodes, at).join("nuthatch/quorum"), place);
    }
    let into = nodes.dir.path().join("r");
    let dirs = [store(&nodes, 0), store(&nodes, 1)];
    // Each is damaged, and nothing is lost.
    let (code, logs) = doctor(&dirs);
    assert_eq!(code, Some(1));
    assert!(logs.iter().all(|log| log["short"] == false), "{logs:?}");
    let made = recover(&dirs, &into, &["--force", "--json"]);
    assert!(made.status.success(), "{made:?}");
    check(&nodes.dir, &into, 20);
}

/// Flips a bit in the first file of a keeper's journal, so many tenths into what is written there: not in the zeros that fill up
/// its blocks, which nobody reads.
fn rot(keeper: &Path, tenths: usize) {
    let files = std::fs::read_dir(keeper.join("ops")).expect("a journal");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("read").path()).collect();
    files.sort();
    let mut bytes = std::fs::read(&files[0]).expect("read");
    let written = bytes.iter().rposition(|byte| *byte != 0).expect("something");
    let from = written * tenths / 10;
    let at = bytes[from..].iter().position(|byte| *byte != 0).expect("the last one is none");
    bytes[from + at] ^= 1;
    std::fs::write(&files[0], bytes).expect("written");
}

#[test]
fn disks_of_two_clusters_and_of_none_are_refused() {
    let clusters = ["recover-a", "recover-b"].map(|name| {
        let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
        nodes.nodes.iter_mut().for_each(Node::start);
        nodes.wait_text(0, "keeps the quorum log");
        nodes.nodes.iter_mut().for_each(Node::kill);
        nodes
    });
    let into = clusters[0].dir.path().join("r");
    let dirs = [store(&clusters[0], 0), store(&clusters[1], 0)];
    let two = recover(&dirs, &into, &["--force"]);
    assert!(!two.status.success() && text(&two.stderr).contains("of two clusters"), "{two:?}");
    let doctor = Command::new(env!("CARGO_BIN_EXE_nuthatch")).arg("doctor").args(&dirs).output();
    let doctor = doctor.expect("it runs");
    assert_eq!(doctor.status.code(), Some(2));
    assert!(text(&doctor.stderr).contains("of two clusters"), "{doctor:?}");
    let none = recover(&[clusters[0].dir.path().to_owned()], &into, &["--force"]);
    assert!(text(&none.stderr).contains("there is no keeper of a quorum log in it"), "{none:?}");
    let inside = store(&clusters[0], 0).join("nuthatch/quorum/files/r");
    let inside = recover(&dirs[..1], &inside, &["--force"]);
    assert!(text(&inside.stderr).contains("it would be in a node's directory"), "{inside:?}");
    assert!(!into.exists());
}
