//! Nodes of a quorum log as processes, and clients at them.
#![allow(dead_code)] // each test binary uses its part

pub mod history;
pub mod publishing;
pub mod replicas;

use crate::support::signal::signal;
use crate::support::{TIMEOUT, TempDir, create_stream, read_on};
use nuthatch_client::{Client, ConnectOptions, OwnedMessage};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::HashSet;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub const NODES: usize = 3;

/// A configuration with a user of the system account, `sys:pw`, and one of clients that say no name.
pub const ACCOUNTS: &str = r#"
accounts {
  SYS { users: [ { user: sys, password: pw } ] }
  A { jetstream: enabled, users: [ { user: a, password: a } ] }
}
system_account: SYS
no_auth_user: a
"#;

/// How long one answer of a client is waited for before the next node is tried.
pub const ANSWER: Duration = Duration::from_secs(2);

/// One node: its command line, and its process while there is one.
pub struct Node {
    pub name: String,
    pub port: u16,
    pub args: Vec<String>,
    pub log: PathBuf,
    /// The program that it runs; none: the one of this build.
    pub program: Option<PathBuf>,
    /// What it has in the place of `/etc/hosts`, which takes root; none: nothing.
    pub hosts: Option<PathBuf>,
    /// What its environment has beside that of the test.
    pub env: Vec<(&'static str, String)>,
    pub child: Option<Child>,
}

impl Node {
    /// One that has not started yet.
    pub fn new(name: String, port: u16, args: Vec<String>, log: PathBuf) -> Self {
        Self { name, port, args, log, program: None, hosts: None, env: Vec::new(), child: None }
    }

    pub fn start(&mut self) {
        self.start_as("nuthatch");
    }

    /// Starts it as if the program were called so.
    pub fn start_as(&mut self, name: &str) {
        let out = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let own = Path::new(env!("CARGO_BIN_EXE_nuthatch"));
        let program = self.program.as_deref().unwrap_or(own);
        let mut command = match &self.hosts {
            None => Command::new(program),
            Some(hosts) => {
                let mut command = Command::new("unshare");
                let inside = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
                command.args(["--mount", "sh", "-c", inside]).arg(hosts).arg(program);
                command
            }
        };
        if self.hosts.is_none() {
            command.arg0(name);
        }
        command.args(&self.args).envs(self.env.iter().cloned()).stdin(Stdio::null());
        command.stdout(out.try_clone().expect("a handle")).stderr(out);
        self.child = Some(command.spawn().expect("a node starts"));
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Waits until the process has ended.
    pub fn ended(&mut self) -> ExitStatus {
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

    /// A client of this node, which takes clients sooner or later. `user`: nobody if empty, else `name:password@`.
    pub fn client(&self, user: &str) -> Client {
        let url = format!("nats://{user}127.0.0.1:{}", self.port);
        let options = ConnectOptions::new(&url).expect("a url");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match Client::connect(&options) {
                Ok(client) => return client,
                Err(error) => {
                    let (name, said) = (&self.name, self.text());
                    assert!(Instant::now() < deadline, "{name} takes no client ({error}):\n{said}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    pub fn text(&self) -> String {
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

pub fn write_key(path: &Path, key: &str, mode: u32) {
    std::fs::write(path, key).expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

pub struct Nodes {
    pub nodes: Vec<Node>,
    /// What they need beside them, and goes when they have gone.
    pub beside: Vec<Box<dyn Any + Send + Sync>>,
    pub dir: TempDir,
}

pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| nuthatch_ports::free_port().expect("a port")).collect()
}

/// Asks the cluster at a node, as a user of the system account; what it is answered, or why that is refused.
pub fn ask(node: &Node, what: &str, body: &Value) -> Result<Value, String> {
    let subject = format!("$SYS.REQ.CLUSTER.{what}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut client = node.client("sys:pw@");
        match client.request(&subject, b"", body.as_bytes(), Duration::from_secs(6)) {
            Ok(answer) => {
                let mut told: Value = serde_json::from_slice(&answer.payload).expect("JSON");
                return match told["error"]["description"].as_str() {
                    Some(why) => Err(why.to_owned()),
                    None => Ok(told["data"].take()),
                };
            }
            Err(error) => {
                assert!(Instant::now() < deadline, "no answer to {what}: {error}\n{}", node.text());
            }
        }
    }
}

/// Where the nodes of a cluster have their catalog, and their logs.
#[derive(Clone, Copy, Debug)]
pub enum Home {
    /// They keep the catalog themselves, and the logs on their disks.
    BuiltIn,
    /// The catalog is in a directory that they share, and the logs on their disks.
    Directory,
    /// Both are in directories that they share.
    Bucket,
    /// The catalog is where this has it, such as in etcd, and the logs on their disks.
    Elsewhere(fn(&str) -> Nodes),
}

impl Nodes {
    /// Nodes that have not started yet.
    pub fn at(home: Home, name: &str) -> Self {
        match home {
            Home::BuiltIn => Self::with_catalog(TempDir::new(name), "built-in"),
            Home::Directory => Self::new(name),
            Home::Bucket => {
                let mut nodes = Self::new(name);
                let store = format!("file://{}", nodes.dir.path().join("b").display());
                let args = ["--store".to_owned(), store];
                nodes.nodes.iter_mut().for_each(|node| node.args.extend(args.clone()));
                nodes
            }
            Home::Elsewhere(nodes) => nodes(name),
        }
    }

    /// Nodes that have not started yet, with a catalog in a directory that they share.
    pub fn new(name: &str) -> Self {
        let dir = TempDir::new(name);
        let catalog = format!("file://{}", dir.path().join("c").display());
        Self::with_catalog(dir, &catalog)
    }

    /// Nodes that have not started yet.
    pub fn with_catalog(dir: TempDir, catalog: &str) -> Self {
        Self::of(NODES, dir, catalog)
    }

    /// So many nodes that have not started yet.
    pub fn of(count: usize, dir: TempDir, catalog: &str) -> Self {
        let ports = free_ports(2 * count);
        let (clients, peers) = ports.split_at(count);
        let routes: Vec<_> = peers.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let node = |at: usize| Self::node(dir.path(), (at, clients[at]), &routes, catalog);
        Self { nodes: (0..count).map(node).collect(), beside: vec![], dir }
    }

    fn node(dir: &Path, (at, port): (usize, u16), routes: &[String], catalog: &str) -> Node {
        let name = format!("n{at}");
        let store = dir.join(&name).display().to_string();
        let port_text = port.to_string();
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
        let args = args.concat().into_iter().chain([catalog]).map(str::to_owned).collect();
        let log = dir.join(format!("{name}.log"));
        Node::new(name, port, args, log)
    }

    /// Another node, which has routes to those that there are and has not started yet; gives its place.
    pub fn add(&mut self) -> usize {
        let (at, port) = (self.nodes.len(), free_ports(1)[0]);
        let after = |node: &Node, flag: &str| {
            let flag = node.args.iter().position(|arg| arg == flag).expect("it is given");
            node.args[flag + 1].clone()
        };
        let runs = self.nodes.iter().filter(|node| node.child.is_some());
        let listens = |node: &Node| after(node, "--cluster-listen");
        let mut routes: Vec<String> = runs.map(listens).collect();
        let own = format!("127.0.0.1:{}", free_ports(1)[0]);
        // The place of its own address is that of its name.
        routes.resize(at.max(routes.len()), routes[0].clone());
        routes.insert(at, own);
        let catalog = after(&self.nodes[0], "--catalog");
        let mut node = Self::node(self.dir.path(), (at, port), &routes, &catalog);
        let first = &self.nodes[0].args;
        for flag in ["-c", "--cluster_key", "--store"] {
            if let Some(given) = first.iter().position(|arg| arg == flag) {
                node.args.extend(first[given..given + 2].iter().cloned());
            }
        }
        self.nodes.push(node);
        at
    }

    /// What all of them have said.
    pub fn said(&self) -> String {
        self.nodes.iter().map(Node::text).collect::<Vec<_>>().join("\n--\n")
    }

    /// Waits until a node shows that another one was removed.
    pub fn wait_removed(&self, at: usize, name: &str) {
        let deadline = Instant::now() + 3 * TIMEOUT;
        loop {
            let told = ask(&self.nodes[at], "NODES", &Value::Null).expect("answered");
            if told["removed"].as_array().expect("a list").iter().any(|gone| gone["name"] == name) {
                return;
            }
            let said = self.said();
            assert!(Instant::now() < deadline, "{name} is not removed: {told}\n{said}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn started(name: &str) -> Self {
        let mut nodes = Self::new(name);
        nodes.nodes.iter_mut().for_each(Node::start);
        nodes
    }

    /// Gives each node the file with the key of `keys` at its place.
    pub fn give_keys(&mut self, keys: &[&str]) {
        for (node, key) in self.nodes.iter_mut().zip(keys) {
            let path = self.dir.path().join(format!("{}.key", node.name));
            write_key(&path, key, 0o600);
            node.args.extend(["--cluster_key".to_owned(), path.display().to_string()]);
        }
    }

    /// Puts a bucket behind the log, for what is beyond `local_max`.
    pub fn give_tier(&mut self, local_max: &str) {
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

    /// Gives each node this configuration file too.
    pub fn configure(&mut self, text: &str) {
        let path = self.dir.path().join("nodes.conf");
        std::fs::write(&path, text).expect("written");
        for node in &mut self.nodes {
            node.args.extend(["-c".to_owned(), path.display().to_string()]);
        }
    }

    /// The node that has said last that it owns the log, if it runs.
    fn last_owner(&self) -> Option<usize> {
        let epoch = |text: &str| {
            let said = text.rsplit_once("owns the quorum log (epoch ")?.1;
            said.split_once(')')?.0.parse::<u64>().ok()
        };
        let said = self.nodes.iter().enumerate();
        let (_, at) = said.filter_map(|(at, node)| Some((epoch(&node.text())?, at))).max()?;
        self.nodes[at].child.is_some().then_some(at)
    }

    /// A client at the node that owns the log, and which that is.
    pub fn owner(&self) -> (Client, usize) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.last_owner() {
                let url = format!("nats://127.0.0.1:{}", self.nodes[at].port);
                let mut options = ConnectOptions::new(&url).expect("a url");
                options.timeout = ANSWER;
                let is_served =
                    |client: &mut Client| client.request("$JS.API.INFO", b"", b"", ANSWER).is_ok();
                if let Ok(mut client) = Client::connect(&options)
                    && is_served(&mut client)
                {
                    return (client, at);
                }
            }
            assert!(Instant::now() < deadline, "nobody owns the log:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A client at a node that takes clients, sooner or later.
    pub fn client(&self, at: usize) -> Client {
        self.nodes[at].client("")
    }

    /// Asks a node for an answer of the API; none: it does not run, or gives none in time.
    pub fn asked(&self, at: usize, call: &str, body: &Value) -> Option<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("nats://127.0.0.1:{}", self.nodes[at].port);
        let mut options = ConnectOptions::new(&url).expect("a url");
        options.timeout = ANSWER;
        let mut client = Client::connect(&options).ok()?;
        let subject = format!("$JS.API.{call}");
        let answer = client.request(&subject, b"", body.as_bytes(), ANSWER).ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }

    /// Asks a node until it gives such an answer.
    pub fn until(
        &self,
        at: usize,
        call: &str,
        body: &Value,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = self.asked(at, call, body);
            if let Some(answer) = answer.as_ref().filter(|answer| is_so(answer)) {
                return answer.clone();
            }
            assert!(Instant::now() < deadline, "{call} {body}: {answer:?}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Publishes at a node, whoever owns the log, until this message is acknowledged.
    pub fn publish_at(&self, at: usize, number: usize) {
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
    pub fn publish(&self, number: u64) {
        self.publish_to("Q.n", number, number.to_string().as_bytes());
    }

    pub fn publish_to(&self, subject: &str, number: u64, body: &[u8]) {
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
    pub fn expect(&self, count: u64) {
        let deadline = Instant::now() + TIMEOUT;
        // A node that has been replaced may take connections a moment longer.
        loop {
            let (mut client, _) = self.owner();
            let asked = client.request("$JS.API.STREAM.INFO.Q", b"", b"", ANSWER);
            let is_served = |answer: OwnedMessage| {
                let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
                answer.get("error").is_none()
            };
            if asked.is_ok_and(is_served) {
                break;
            }
            assert!(Instant::now() < deadline, "no answer about the stream");
        }
        let found = self.read_all("Q");
        let number = |payload: &[u8]| String::from_utf8_lossy(payload).parse().expect("a number");
        let found: Vec<u64> = found.iter().map(|(_, message)| number(&message.payload)).collect();
        assert_eq!(found, (0..count).collect::<Vec<_>>());
    }

    /// Reads a stream at whoever owns the log, which may change meanwhile: a node that is back is given its own one.
    pub fn read_all(&self, stream: &str) -> Vec<(u64, OwnedMessage)> {
        let deadline = Instant::now() + TIMEOUT;
        let mut all: Vec<(u64, OwnedMessage)> = Vec::new();
        loop {
            let (mut client, _) = self.owner();
            let from = all.last().map_or(1, |(seq, _)| seq + 1);
            if read_on(&mut client, stream, from, &mut all) == 0 {
                return all;
            }
            assert!(Instant::now() < deadline, "{stream} cannot be read to its end");
        }
    }

    /// Waits until a node has said something.
    pub fn wait_text(&self, at: usize, text: &str) {
        self.wait_times(at, text, 1);
    }

    /// Waits until a node has said something so many times.
    pub fn wait_times(&self, at: usize, text: &str, times: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.nodes[at].text().matches(text).count() < times {
            let said = self.nodes[at].text();
            assert!(Instant::now() < deadline, "{} does not say {text}:\n{said}", at);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until owners have said of `count` disks of a node that they keep their log; each node has one for each log,
    /// of which there are as many as nodes.
    pub fn wait_disks(&self, at: usize, count: usize) {
        let (node, deadline) = (format!(" {} (disk ", at + 1), Instant::now() + TIMEOUT);
        loop {
            let said: String = self.nodes.iter().map(Node::text).collect();
            // The log in memory has another disk with each start.
            let on_disks: Vec<&str> =
                said.lines().filter(|line| !line.contains("log memory-quorum: ")).collect();
            let said = on_disks.join("\n");
            let disks: HashSet<&str> =
                said.split(&node).skip(1).filter_map(|rest| rest.get(..32)).collect();
            if disks.len() >= count * NODES {
                return;
            }
            assert!(Instant::now() < deadline, "the disk does not count:\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn with_stream(name: &str) -> Self {
        let nodes = Self::started(name);
        let (mut client, _) = nodes.owner();
        create_stream(&mut client, "Q", &json!({}));
        nodes
    }

    /// Starts all of them, and creates the stream.
    pub fn begun(mut self) -> Self {
        self.nodes.iter_mut().for_each(Node::start);
        self.create_stream();
        self
    }

    /// Creates the stream at whoever owns the log: on a busy machine that may change meanwhile.
    pub fn create_stream(&self) {
        self.create(&json!({"name": "Q", "subjects": ["Q.>"], "storage": "file"}));
    }

    /// The same with three replicas.
    pub fn create_replicated(&self) {
        self.create(&json!({"name": "Q", "subjects": ["Q.>"], "num_replicas": 3}));
    }

    fn create(&self, config: &Value) {
        let config = config.to_string();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (mut client, _) = self.owner();
            let asked = client.request("$JS.API.STREAM.CREATE.Q", b"", config.as_bytes(), ANSWER);
            let told = asked.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
            if told.as_ref().is_ok_and(|told| !told.contains("\"error\"")) {
                return;
            }
            assert!(Instant::now() < deadline, "the stream is not created: {told:?}");
        }
    }

    /// The owner is killed twice, and what was acknowledged is there each time.
    pub fn outlive_owners(&mut self) {
        (0..20).for_each(|number| self.publish(number));
        let (_, first) = self.owner();
        self.nodes[first].kill();
        self.expect(20);
        (20..40).for_each(|number| self.publish(number));
        self.nodes[first].start();
        // The one that came back keeps the log again: without it there would be no majority now.
        let (_, second) = self.owner();
        assert_ne!(first, second, "a node that starts takes nothing from an owner");
        self.nodes[second].kill();
        self.expect(40);
    }
}
