//! Three real processes keep one quorum log (`docs/cluster.md`): owners are killed, stopped for a while and
//! told to end; what was acknowledged is read at the next one.

mod support;

use nuthatch_client::{Client, ConnectOptions, OwnedMessage};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::{OpenOptions, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, create_stream, read_all};

const NODES: usize = 3;

/// How long one answer of a client is waited for before the next node is tried.
const ANSWER: Duration = Duration::from_secs(2);

/// One node: its command line, and its process while there is one.
struct Node {
    name: String,
    port: u16,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Node {
    fn start(&mut self) {
        let out = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
        command.args(&self.args).stdin(Stdio::null());
        command.stdout(out.try_clone().expect("a handle")).stderr(out);
        self.child = Some(command.spawn().expect("a node starts"));
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Waits until the process has ended.
    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        let child = self.child.as_mut().expect("it runs");
        loop {
            if let Some(status) = child.try_wait().expect("wait") {
                self.child = None;
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end:\n{}", self.name, self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let text = self.text();
        if !std::thread::panicking() {
            assert!(!text.contains("panicked at"), "{} panicked:\n{text}", self.name);
        }
    }
}

fn write_key(path: &Path, key: &str, mode: u32) {
    std::fs::write(path, key).expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

struct Nodes {
    nodes: Vec<Node>,
    dir: TempDir,
}

fn free_ports(count: usize) -> Vec<u16> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").expect("a port");
    let bound: Vec<_> = (0..count).map(bind).collect();
    bound.iter().map(|listener| listener.local_addr().expect("bound").port()).collect()
}

impl Nodes {
    /// Nodes that have not started yet.
    fn new(name: &str) -> Self {
        let dir = TempDir::new(name);
        let ports = free_ports(2 * NODES);
        let (clients, peers) = ports.split_at(NODES);
        let routes: Vec<_> = peers.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let node = |at: usize| Self::node(dir.path(), at, clients[at], &routes);
        Self { nodes: (0..NODES).map(node).collect(), dir }
    }

    fn node(dir: &Path, at: usize, port: u16, routes: &[String]) -> Node {
        let name = format!("n{at}");
        let store = dir.join(&name).display().to_string();
        let (port_text, catalog) =
            (port.to_string(), format!("file://{}", dir.join("c").display()));
        let routes_text = routes.join(",");
        let args = [
            ["serve", "-a"],
            ["127.0.0.1", "-p"],
            [&port_text, "-sd"],
            [&store, "--node-name"],
            [&name, "--cluster-listen"],
            [&routes[at], "--routes"],
            [&routes_text, "--catalog"],
        ];
        let args = args.concat().into_iter().chain([catalog.as_str()]).map(str::to_owned).collect();
        Node { log: dir.join(format!("{name}.log")), name, port, args, child: None }
    }

    fn started(name: &str) -> Self {
        let mut nodes = Self::new(name);
        nodes.nodes.iter_mut().for_each(Node::start);
        nodes
    }

    /// Gives each node the file with the key of `keys` at its place.
    fn give_keys(&mut self, keys: [&str; NODES]) {
        for (node, key) in self.nodes.iter_mut().zip(keys) {
            let path = self.dir.path().join(format!("{}.key", node.name));
            write_key(&path, key, 0o600);
            node.args.extend(["--cluster_key".to_owned(), path.display().to_string()]);
        }
    }

    /// Puts a bucket behind the log, for what is beyond `local_max`.
    fn give_tier(&mut self, local_max: &str) {
        let config = self.dir.path().join("tier.conf");
        let store = self.dir.path().join("b").display().to_string();
        let text = format!(
            "jetstream {{ tier {{ store: \"file://{store}\", local_max: {local_max} }} }}\n"
        );
        std::fs::write(&config, text).expect("written");
        for node in &mut self.nodes {
            node.args.extend(["-c".to_owned(), config.display().to_string()]);
        }
    }

    /// A client at the node that owns the log, and which that is.
    fn owner(&self) -> (Client, usize) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            for (at, node) in self.nodes.iter().enumerate() {
                let url = format!("nats://127.0.0.1:{}", node.port);
                let mut options = ConnectOptions::new(&url).expect("a url");
                options.timeout = ANSWER;
                let client = node.child.as_ref().and_then(|_| Client::connect(&options).ok());
                if let Some(client) = client {
                    return (client, at);
                }
            }
            let logs: Vec<_> = self.nodes.iter().map(Node::text).collect();
            assert!(Instant::now() < deadline, "nobody serves clients:\n{}", logs.join("\n--\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A client at a node that takes clients, sooner or later.
    fn client(&self, at: usize) -> Client {
        let url = format!("nats://127.0.0.1:{}", self.nodes[at].port);
        let options = ConnectOptions::new(&url).expect("a url");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match Client::connect(&options) {
                Ok(client) => return client,
                Err(error) => {
                    let said = self.nodes[at].text();
                    assert!(Instant::now() < deadline, "{at} takes no client ({error}):\n{said}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    /// Publishes at a node that relays clients until this message is acknowledged.
    fn publish_at(&self, at: usize, number: usize) {
        let (body, deadline) = (number.to_string(), Instant::now() + TIMEOUT);
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
        loop {
            let ack = self.client(at).request("Q.n", headers.as_bytes(), body.as_bytes(), ANSWER);
            if ack.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\"")) {
                return;
            }
            assert!(Instant::now() < deadline, "message {number} is not taken at {at}: {ack:?}");
        }
    }

    /// Publishes at whoever owns the log until this message is acknowledged, under its id.
    fn publish(&self, number: u64) {
        self.publish_to("Q.n", number, number.to_string().as_bytes());
    }

    fn publish_to(&self, subject: &str, number: u64, body: &[u8]) {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (mut client, _) = self.owner();
            let ack = client.request(subject, headers.as_bytes(), body, ANSWER);
            let is_stored = |ack: &OwnedMessage| ack.payload.starts_with(b"{\"stream\"");
            if ack.as_ref().is_ok_and(is_stored) {
                return;
            }
            assert!(Instant::now() < deadline, "message {number} is not taken: {ack:?}");
        }
    }

    /// Everything that was acknowledged is there once, in its order.
    fn expect(&self, count: u64) {
        let deadline = Instant::now() + TIMEOUT;
        // A node that has been replaced may take connections a moment longer.
        let mut client = loop {
            let (mut client, _) = self.owner();
            let asked = client.request("$JS.API.STREAM.INFO.Q", b"", b"", ANSWER);
            let is_served = |answer: OwnedMessage| {
                let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
                answer.get("error").is_none()
            };
            if asked.is_ok_and(is_served) {
                break client;
            }
            assert!(Instant::now() < deadline, "no answer about the stream");
        };
        let found = read_all(&mut client, "Q", 1);
        let number = |payload: &[u8]| String::from_utf8_lossy(payload).parse().expect("a number");
        let found: Vec<u64> = found.iter().map(|(_, message)| number(&message.payload)).collect();
        assert_eq!(found, (0..count).collect::<Vec<_>>());
    }

    /// Waits until a node has said something.
    fn wait_text(&self, at: usize, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.nodes[at].text().contains(text) {
            let said = self.nodes[at].text();
            assert!(Instant::now() < deadline, "{} does not say {text}:\n{said}", at);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until owners have said of `count` disks of a node that they keep the log.
    fn wait_disks(&self, at: usize, count: usize) {
        let (node, deadline) = (format!(" {} (disk ", at + 1), Instant::now() + TIMEOUT);
        loop {
            let said: String = self.nodes.iter().map(Node::text).collect();
            let disks: HashSet<&str> =
                said.split(&node).skip(1).filter_map(|rest| rest.get(..32)).collect();
            if disks.len() >= count {
                return;
            }
            assert!(Instant::now() < deadline, "the disk does not count:\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn with_stream(name: &str) -> Self {
        let nodes = Self::started(name);
        let (mut client, _) = nodes.owner();
        create_stream(&mut client, "Q", &json!({}));
        nodes
    }
}

#[test]
fn a_killed_owner_is_followed_by_one_that_has_everything() {
    let mut nodes = Nodes::with_stream("quorum-kill");
    (0..20).for_each(|number| nodes.publish(number));
    let (_, first) = nodes.owner();
    nodes.nodes[first].kill();
    nodes.expect(20);
    (20..40).for_each(|number| nodes.publish(number));
    nodes.nodes[first].start();
    // The one that came back keeps the log again: without it there would be no majority now.
    let (_, second) = nodes.owner();
    assert_ne!(first, second, "a node that starts takes nothing from an owner");
    nodes.nodes[second].kill();
    nodes.expect(40);
}

const KEY: &str = "bm8gb25lIHdpbGwgZXZlciBndWVzcyB0aGlzIGtleQ==\n";
const OTHER_KEY: &str = "YW5kIG5vYm9keSBrbm93cyB0aGlzIG9uZSBlaXRoZXIh\n";

#[test]
fn nodes_with_a_key_follow_each_other_and_one_with_another_key_takes_no_part() {
    let mut nodes = Nodes::new("quorum-key");
    nodes.give_keys([KEY, KEY, OTHER_KEY]);
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, first) = nodes.owner();
    assert_ne!(first, 2, "nobody listens to the one with another key");
    let told = "do all nodes have the same -cluster_key?";
    (0..NODES).for_each(|at| nodes.wait_text(at, told));
    create_stream(&mut client, "Q", &json!({}));
    (0..5).for_each(|number| nodes.publish(number));
    // Two of three are needed, and the third is as good as dead until it has the key.
    nodes.nodes[2].kill();
    write_key(&nodes.dir.path().join("n2.key"), KEY, 0o600);
    nodes.nodes[2].start();
    nodes.nodes[first].kill();
    (5..10).for_each(|number| nodes.publish(number));
    nodes.expect(10);
}

#[test]
fn a_key_that_others_can_read_or_guess_is_refused() {
    for (key, mode, told) in [(KEY, 0o644, "chmod 600"), ("secret", 0o600, "at least 32 bytes")] {
        let mut nodes = Nodes::new("quorum-bad-key");
        nodes.give_keys([key; NODES]);
        write_key(&nodes.dir.path().join("n0.key"), key, mode);
        let node = &mut nodes.nodes[0];
        node.start();
        assert_ne!(node.ended().code(), Some(0));
        assert!(node.text().contains(told), "{}", node.text());
    }
}

#[test]
fn a_node_that_waits_for_the_others_ends_when_it_is_told() {
    let mut nodes = Nodes::new("quorum-wait");
    let node = &mut nodes.nodes[0];
    node.start();
    let deadline = Instant::now() + TIMEOUT;
    while !node.text().contains("is founded when all") {
        assert!(Instant::now() < deadline, "it does not wait:\n{}", node.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    node.signal("-TERM");
    assert_eq!(node.ended().code(), Some(0), "{}", node.text());
}

#[test]
fn a_keeper_ends_when_it_is_told_and_the_log_goes_on() {
    let mut nodes = Nodes::with_stream("quorum-keeper");
    let (_, owner) = nodes.owner();
    let keeper = &mut nodes.nodes[(owner + 1) % NODES];
    keeper.signal("-TERM");
    assert_eq!(keeper.ended().code(), Some(0), "{}", keeper.text());
    (0..5).for_each(|number| nodes.publish(number));
    nodes.expect(5);
}

#[test]
fn an_owner_that_is_told_to_end_hands_the_log_over() {
    let mut nodes = Nodes::with_stream("quorum-term");
    (0..5).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].signal("-TERM");
    assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
    nodes.expect(5);
}

/// A client is at any node as at the owner, and is served by the next owner without knowing another address.
#[test]
fn a_node_that_relays_clients_serves_them_as_the_owner_does() {
    let mut nodes = Nodes::new("quorum-relay");
    for node in &mut nodes.nodes {
        node.args.extend(["--relay-clients", "--name", &node.name].map(str::to_owned));
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    create_stream(&mut nodes.client(0), "Q", &json!({}));
    (0..NODES).for_each(|at| nodes.publish_at(at, at));
    let mut clients: Vec<_> = (0..NODES).map(|at| nodes.client(at)).collect();
    let owner = clients[0].info().server_name.clone();
    let at = nodes.nodes.iter().position(|node| node.name == owner).expect("one of them");
    nodes.nodes[at].kill();
    // A busy machine may have had another owner for some of them.
    for client in clients.iter_mut().filter(|client| client.info().server_name == owner) {
        assert!(client.round_trip(TIMEOUT).is_err(), "nobody is left with an owner that is gone");
    }
    for other in (0..NODES).filter(|other| *other != at) {
        nodes.publish_at(other, NODES + other);
    }
    nodes.nodes[at].start();
    nodes.publish_at(at, NODES + at);
    let found = read_all(&mut nodes.client(at), "Q", 1);
    let found: HashSet<_> = found.iter().map(|(_, message)| message.payload.to_vec()).collect();
    let published: HashSet<_> = (0..2 * NODES).map(|number| number.to_string().into()).collect();
    assert_eq!(found, published);
}

/// More is written than the journals keep. A disk that is empty then gets the files, is killed while they come, and
/// has everything in the end: as the only one that is left with another that knows as much.
#[test]
fn an_empty_disk_gets_the_files_of_what_is_trimmed() {
    let mut nodes = Nodes::with_stream("quorum-trim");
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "LARGE", &json!({"subjects": ["large.>"]}));
    // With its header below the largest payload.
    let body = vec![7; (1 << 20) - 1024];
    let large = 480;
    (0..large).for_each(|number| nodes.publish_to("large.x", number, &body));
    (0..20).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    let emptied = (owner + 1) % NODES;
    let first = |at: usize| {
        let ops = nodes.dir.path().join(format!("n{at}/nuthatch/quorum/ops"));
        let names = std::fs::read_dir(ops).expect("a journal");
        names.map(|name| name.expect("listed").file_name()).min().expect("a file")
    };
    let deadline = Instant::now() + TIMEOUT;
    while (0..NODES).any(|at| first(at) == "00000000") {
        assert!(Instant::now() < deadline, "nothing is trimmed");
        std::thread::sleep(Duration::from_millis(50));
    }
    nodes.nodes[emptied].kill();
    let store = nodes.dir.path().join(format!("n{emptied}"));
    std::fs::remove_dir_all(&store).expect("emptied");
    nodes.nodes[emptied].start();
    nodes.wait_text(emptied, "sends its files");
    nodes.nodes[emptied].kill();
    nodes.nodes[emptied].start();
    nodes.wait_text(emptied, "of files are in place");
    nodes.wait_disks(emptied, 2);
    (20..30).for_each(|number| nodes.publish(number));
    // Whoever owns the log now, without it the other two have all that was acknowledged.
    let (_, owner) = nodes.owner();
    let gone = if owner == emptied { (owner + 1) % NODES } else { owner };
    nodes.nodes[gone].kill();
    nodes.expect(30);
    let (mut client, _) = nodes.owner();
    let info = client.request("$JS.API.STREAM.INFO.LARGE", b"", b"", TIMEOUT).expect("an answer");
    let info: Value = serde_json::from_slice(&info.payload).expect("JSON");
    assert_eq!(info["state"]["messages"], large);
}

/// Bytes that no compression makes fewer, others for each number.
fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut state = number + 1;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Bytes of the files below a directory.
fn size_of(dir: &Path) -> u64 {
    let Ok(names) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("listed").path();
        // What is removed meanwhile has no size.
        if path.is_dir() { size_of(&path) } else { path.metadata().map_or(0, |meta| meta.len()) }
    };
    names.map(size).sum()
}

/// Owners that are killed while they move segments to the bucket leave it to the next one, and no node keeps what
/// was moved.
#[test]
fn segments_of_a_quorum_log_move_to_a_bucket_whoever_owns_it() {
    const LEN: usize = (1 << 20) - 1024;
    let mut nodes = Nodes::new("quorum-tier");
    nodes.give_tier("8MB");
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "LARGE", &json!({"subjects": ["large.>"]}));
    drop(client);
    for turn in 0..3 {
        let numbers = turn * 60..(turn + 1) * 60;
        numbers.for_each(|number| nodes.publish_to("large.x", number, &noise(number, LEN)));
        let (_, owner) = nodes.owner();
        nodes.nodes[owner].kill();
        nodes.publish_to("large.x", 1000 + turn, b"between");
        nodes.nodes[owner].start();
    }
    let deadline = Instant::now() + TIMEOUT;
    let bucket = nodes.dir.path().join("b");
    let sizes = |nodes: &Nodes| {
        let files = |at: usize| nodes.dir.path().join(format!("n{at}/nuthatch/quorum/files"));
        (0..NODES).map(|at| size_of(&files(at))).collect::<Vec<_>>()
    };
    while size_of(&bucket) < 160 << 20 || sizes(&nodes).iter().any(|size| *size > 80 << 20) {
        let so_far = (size_of(&bucket), sizes(&nodes));
        assert!(Instant::now() < deadline, "the bucket and the nodes have {so_far:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (mut client, _) = nodes.owner();
    let mut found = read_all(&mut client, "LARGE", 1).into_iter();
    for turn in 0..3 {
        for number in turn * 60..(turn + 1) * 60 {
            let (_, message) = found.next().expect("all that was acknowledged");
            assert!(message.payload == noise(number, LEN), "message {number} differs");
        }
        assert_eq!(found.next().expect("it was acknowledged").1.payload, b"between");
    }
    assert!(found.next().is_none());
}

/// Both the loss and the signal wait for it when it wakes: it must not begin again as a keeper.
#[test]
fn an_owner_that_was_replaced_while_it_was_stopped_ends_when_it_was_told() {
    let mut nodes = Nodes::with_stream("quorum-stopped");
    (0..5).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].signal("-STOP");
    // A stopped process still takes connections and never answers, so the next owner is looked for beside it.
    let stopped = nodes.nodes[owner].child.take();
    (5..10).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].child = stopped;
    nodes.nodes[owner].signal("-TERM");
    nodes.nodes[owner].signal("-CONT");
    assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
    nodes.expect(10);
}

/// What a replaced owner answers must not be older than what was acknowledged elsewhere.
#[test]
fn an_owner_that_wakes_after_it_was_replaced_shows_nothing_old() {
    let mut nodes = Nodes::with_stream("quorum-stale");
    nodes.publish(0);
    let (mut old, owner) = nodes.owner();
    nodes.nodes[owner].signal("-STOP");
    let stopped = nodes.nodes[owner].child.take();
    (1..10).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].child = stopped;
    // The question lies in the socket of the old owner before it wakes.
    let asked = std::thread::spawn(move || {
        old.request("$JS.API.STREAM.INFO.Q", b"", b"", Duration::from_secs(5))
    });
    std::thread::sleep(Duration::from_millis(200));
    nodes.nodes[owner].signal("-CONT");
    if let Ok(answer) = asked.join().expect("no panic") {
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        let last = &answer["state"]["last_seq"];
        assert!(last.is_null() || *last == 10, "what the old owner answered: {answer}");
    }
    nodes.expect(10);
}

/// Runs the doctor; its exit code and what it says.
fn doctor(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    let output = command.arg("doctor").args(args).output().expect("the doctor");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_doctor_looks_at_a_keeper_and_changes_nothing_and_the_others_mend_it() {
    let mut nodes = Nodes::with_stream("quorum-doctor");
    (0..20).for_each(|number| nodes.publish(number));
    // The owner has everything; another one may have to be brought it yet.
    let (_, at) = nodes.owner();
    let store = nodes.dir.path().join(&nodes.nodes[at].name);
    let dir = store.to_str().expect("UTF-8");
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("stop that node first"), "{said}");
    nodes.nodes[at].kill();
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("healthy"), "{said}");
    let journal = store.join("nuthatch/quorum/ops/00000000");
    let mut bytes = std::fs::read(&journal).expect("a journal");
    // The payload of the entry in the tenth block.
    bytes[9 * 4096 + 100] ^= 1;
    std::fs::write(&journal, &bytes).expect("written");
    let (code, said) = doctor(&[dir, "--apply"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 of them damaged") && said.contains("Nothing was changed"), "{said}");
    assert_eq!(std::fs::read(&journal).expect("a journal"), bytes);
    let (_, text) = doctor(&[dir, "-j"]);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["keeper"]["healthy"], false, "{json}");
    // It starts, is brought what it lacks, and counts: without it there is no majority.
    nodes.nodes[at].start();
    nodes.publish(20);
    nodes.nodes[(at + 2) % NODES].kill();
    (21..25).for_each(|number| nodes.publish(number));
    nodes.expect(25);
    nodes.nodes[at].kill();
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(0), "healed: {said}");
}
