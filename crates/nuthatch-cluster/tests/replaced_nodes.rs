//! Nodes of a cluster with a built-in catalog join it and take the places of others, while its logs are written to. Each
//! is a process of its own: this program again, as the test `node`, which tells what it owns and does what it is told.

use nuthatch_cluster::balance::BalanceTimes;
use nuthatch_cluster::{
    Cluster, ClusterConfig, KeyNames, Logs, Protocol, QuorumDirectory, QuorumLog, Route, StartError,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Ownership as _, RealDisk};
use nuthatch_ports::free_addresses;
use std::collections::BTreeMap;
use std::env::{current_exe, var};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Only what hangs needs a limit.
const LIMIT: Duration = Duration::from_secs(150);

/// What a node says to the test begins so.
const MARK: &str = "@node ";

/// What a node is told by its environment.
const TOLD: &str = "NUTHATCH_TEST_NODE";

const LOGS: usize = 3;

type Slot = Arc<Mutex<Option<Arc<QuorumDirectory>>>>;

fn say(text: &str) {
    // In one piece, so that lines of several threads do not mix.
    let _ = std::io::stdout().lock().write_all(format!("{MARK}{text}\n").as_bytes());
}

/// Owns a log again and again, and says so.
fn own(log: &QuorumLog, slot: &Slot) {
    let number = log.number();
    while let Ok(directory) = log.wait_until_owner() {
        let (lost, loss) = channel();
        let watcher = move |_: &str| lost.send(()).expect("it is waited for");
        log.watch(directory.epoch(), Box::new(watcher)).expect("a thread");
        *slot.lock().expect("no panic") = Some(Arc::new(directory));
        say(&format!("owns {number}"));
        let _ = loss.recv();
        *slot.lock().expect("no panic") = None;
        say(&format!("lost {number}"));
    }
}

fn write(directory: &QuorumDirectory, name: &str) -> std::io::Result<()> {
    let file = directory.create(name)?;
    file.write_at(name.as_bytes(), 0)?;
    file.sync()
}

fn obey(line: &str, cluster: &Cluster, slots: &[Slot]) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let result = match words[0] {
        "replace" => {
            let done = cluster.replace(words[1], words.get(2).copied());
            done.map(|done| format!("{done:?}")).map_err(|error| error.to_string())
        }
        "nodes" => Ok(format!("{:?}", cluster.nodes()).replace('\n', " ")),
        what => {
            let directory = slots[words[1].parse::<usize>().expect("a log")].lock();
            let directory = directory.expect("no panic").clone();
            let done = directory.ok_or_else(|| std::io::Error::other("not owned here"));
            let done = done.and_then(|directory| match what {
                "write" => write(&directory, words[2]).map(|()| String::new()),
                _ => directory.list("").map(|names| names.join(" ")),
            });
            done.map_err(|error| error.to_string())
        }
    };
    match result {
        Ok(text) => format!("ok {text}"),
        Err(text) => format!("error {text}"),
    }
}

#[test]
#[ignore = "a node, which other tests start"]
fn node() {
    let Ok(told) = var(TOLD) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let config = ClusterConfig {
        name: told[0].to_owned(),
        listen: address(told[2]),
        routes: told[3].split(',').map(address).map(Route::Address).collect(),
        catalog: "built-in".to_owned(),
        dir: PathBuf::from(told[1]),
        key: None,
        may_be_open: false,
        logs: Logs::PerNode(1),
        memory: None,
        store: None,
        lease: nuthatch_cluster::LEASE,
        replace_after: told[5].parse().ok().map(Duration::from_secs),
        zone: told[4].parse().ok(),
        owner_zones: vec![],
        protocol_max: Protocol::NEWEST,
        keys: KeyNames::default(),
        program: String::new(),
    };
    let name = config.name.clone();
    let report = Reporter::new(move |text| {
        say(&format!("says {text}"));
        eprintln!("{name}: {text}");
    });
    let disk = RealDisk::open(&config.dir).expect("a directory");
    let lock = disk.take().expect("asked").expect("free");
    let begun =
        Cluster::start_balanced(&config, (Arc::new(disk), lock), report, BalanceTimes::default());
    let cluster = match begun {
        Ok(cluster) => cluster,
        Err(error) => {
            let kind =
                if matches!(error, StartError::Removed { .. }) { "removed" } else { "fails" };
            return say(&format!("{kind} {error}"));
        }
    };
    cluster.on_removed(Box::new(|why| {
        say(&format!("removed {why}"));
        // What the server does.
        std::process::exit(1);
    }));
    let slots: Vec<Slot> = cluster.logs().iter().map(|_| Slot::default()).collect();
    say(&format!("runs {}", slots.len()));
    for (log, slot) in cluster.logs().iter().cloned().zip(slots.clone()) {
        thread::spawn(move || own(&log, &slot));
    }
    for line in std::io::stdin().lines() {
        // The test has ended otherwise.
        let Ok(line) = line else { return };
        say(&format!("did {}", obey(&line, &cluster, &slots)));
    }
}

/// A node that runs, as the test sees it.
struct Running {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    owned: Vec<usize>,
    said: Vec<String>,
    did: Option<String>,
}

impl Running {
    fn start(
        name: &str,
        dir: &Path,
        (listen, routes): (SocketAddr, &[SocketAddr]),
        (zone, replace_after_s): (&str, Option<u64>),
    ) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let routes: Vec<String> = routes.iter().map(SocketAddr::to_string).collect();
        let after = replace_after_s.map_or_else(String::new, |after| after.to_string());
        let routes = routes.join(",");
        let told = format!("{name}|{}|{listen}|{routes}|{zone}|{after}", dir.display());
        let mut child = Command::new(current_exe().expect("this program"))
            .args(["--exact", "node", "--ignored", "--nocapture"])
            .env(TOLD, told)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (heard, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness of tests has begun a line of its own.
                if let Some((_, line)) = line.split_once(MARK) {
                    let _ = heard.send(line.to_owned());
                }
            }
        });
        Self { child, input, lines, owned: vec![], said: vec![], did: None }
    }

    fn hear(&mut self, wait: Duration) {
        while let Ok(line) = self.lines.recv_timeout(wait) {
            let (what, rest) = line.split_once(' ').expect("a word and more");
            match what {
                "owns" => self.owned.push(rest.parse().expect("a log")),
                "lost" => self.owned.retain(|log| *log != rest.parse::<usize>().expect("a log")),
                "did" => self.did = Some(rest.to_owned()),
                _ => self.said.push(line),
            }
            if self.did.is_some() {
                return;
            }
        }
    }

    /// What is done, or why it is not.
    fn tell(&mut self, command: &str) -> Result<String, String> {
        self.input
            .write_all(format!("{command}\n").as_bytes())
            .map_err(|error| error.to_string())?;
        let deadline = Instant::now() + LIMIT;
        loop {
            self.hear(Duration::from_millis(10));
            if let Some(did) = self.did.take() {
                return match did.split_once(' ') {
                    Some(("ok", text)) => Ok(text.to_owned()),
                    _ => Err(did),
                };
            }
            if self.child.try_wait().expect("asked").is_some() {
                return Err("it has ended".to_owned());
            }
            assert!(Instant::now() < deadline, "{command} is not done");
        }
    }

    fn wait_said(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.said.iter().any(|line| line.contains(text)) {
            assert!(Instant::now() < deadline, "it does not say {text}: {:?}", self.said);
            self.hear(Duration::from_millis(10));
        }
    }
}

struct Nodes {
    dir: PathBuf,
    addresses: BTreeMap<String, SocketAddr>,
    running: BTreeMap<String, Running>,
    written: Vec<Vec<String>>,
    /// The zones of the nodes that begin, by their numbers from 1 on; none: none says one.
    zones: &'static [&'static str],
    replace_after_s: Option<u64>,
}

impl Nodes {
    fn start(name: &str) -> Self {
        Self::start_in(name, &[], None)
    }

    fn start_in(name: &str, zones: &'static [&'static str], replace_after_s: Option<u64>) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let names = (1..=6).map(|number| format!("n{number}"));
        let addresses = names.zip(free_addresses(6)).collect();
        let (running, written) = (BTreeMap::new(), vec![vec![]; LOGS]);
        let mut nodes = Self { dir, addresses, running, written, zones, replace_after_s };
        ["n1", "n2", "n3"].into_iter().for_each(|node| nodes.run(node, &["n1", "n2", "n3"]));
        nodes
    }

    fn run(&mut self, name: &str, routes: &[&str]) {
        let routes: Vec<SocketAddr> = routes.iter().map(|node| self.addresses[*node]).collect();
        let number: usize = name[1..].parse().expect("a number");
        let zone = self.zones.get(number - 1).copied().unwrap_or_default();
        let (dir, after) = (self.dir.join(name), self.replace_after_s);
        let node = Running::start(name, &dir, (self.addresses[name], &routes), (zone, after));
        self.running.insert(name.to_owned(), node);
    }

    fn kill(&mut self, name: &str) {
        let mut node = self.running.remove(name).expect("it runs");
        node.child.kill().expect("killed");
        node.child.wait().expect("ended");
    }

    fn owner_does(&mut self, log: usize, command: &str) -> Option<String> {
        self.running.values_mut().for_each(|node| node.hear(Duration::from_millis(2)));
        let owner = self.running.values_mut().find(|node| node.owned.contains(&log))?;
        owner.tell(command).ok()
    }

    /// Writes to each log until that is acknowledged. What was not may be there or not.
    fn write(&mut self) {
        for log in 0..LOGS {
            let deadline = Instant::now() + LIMIT;
            for attempt in 0.. {
                assert!(Instant::now() < deadline, "log {log} takes nothing");
                let name = format!("f{}-{attempt}", self.written[log].len());
                if self.owner_does(log, &format!("write {log} {name}")).is_some() {
                    self.written[log].push(name);
                    break;
                }
            }
        }
    }

    /// Everything that was acknowledged is there.
    fn expect_all(&mut self) {
        for log in 0..LOGS {
            let deadline = Instant::now() + LIMIT;
            let names = loop {
                if let Some(names) = self.owner_does(log, &format!("list {log}")) {
                    break names;
                }
                assert!(Instant::now() < deadline, "nobody owns log {log}");
            };
            let names: Vec<&str> = names.split(' ').collect();
            for written in &self.written[log] {
                assert!(names.contains(&written.as_str()), "log {log}: {written} of {names:?}");
            }
        }
    }

    /// A new node takes the place of another one, which may have been killed; messages are written meanwhile.
    fn replace(&mut self, old: &str, new: &str, kills: bool) {
        // One that it knows is enough.
        let known = self.running.keys().find(|name| *name != old).expect("another one").clone();
        self.run(new, &[&known, new]);
        self.running.get_mut(new).expect("runs").wait_said("is a spare of the cluster");
        (0..3).for_each(|_| self.write());
        if kills {
            self.kill(old);
        }
        let asked = format!("replace {old} {new}");
        let deadline = Instant::now() + LIMIT;
        while let Err(why) = self.running.get_mut(new).expect("runs").tell(&asked) {
            assert!(Instant::now() < deadline, "{why}");
        }
        loop {
            self.write();
            let told = self.running.get_mut(new).expect("runs").tell("nodes").expect("told");
            if told.contains("replacing: None")
                && told.contains(&format!("(\"{old}\", Some(\"{new}\"))"))
            {
                break;
            }
            assert!(Instant::now() < deadline, "{old} is not replaced: {told}");
        }
        if !kills {
            let mut node = self.running.remove(old).expect("it was there");
            node.wait_said(&format!("removed node {old} was removed from the cluster: node {new}"));
            assert!(!node.child.wait().expect("ended").success());
        }
        (0..3).for_each(|_| self.write());
        self.expect_all();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in self.running.values_mut() {
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn replace_each(name: &str, kills: bool) {
    let mut nodes = Nodes::start(name);
    nodes.write();
    for (old, new) in [("n3", "n4"), ("n2", "n5"), ("n1", "n6")] {
        nodes.replace(old, new, kills);
    }
    // The new ones are a majority by themselves, and find each other by the catalog when they start again.
    for node in ["n4", "n5", "n6"] {
        nodes.kill(node);
    }
    nodes.run("n4", &["n3", "n4"]);
    nodes.run("n5", &["n4", "n5"]);
    nodes.run("n6", &["n5", "n6"]);
    nodes.write();
    nodes.expect_all();
}

#[test]
fn each_of_three_nodes_is_replaced_while_it_runs() {
    replace_each("replaced-alive", false);
}

#[test]
fn each_of_three_nodes_is_replaced_after_it_was_killed() {
    replace_each("replaced-dead", true);
}

/// By their numbers the spare in a zone that has a keeper would be chosen.
#[test]
fn a_node_that_is_away_for_long_is_replaced_by_a_spare_of_its_zone() {
    let mut nodes = Nodes::start_in("replaced-in-zone", &["a", "b", "c", "a", "c"], Some(10));
    for spare in ["n4", "n5"] {
        nodes.run(spare, &["n1", spare]);
        nodes.running.get_mut(spare).expect("runs").wait_said("is a spare of the cluster");
    }
    nodes.write();
    let asked = nodes.running.get_mut("n1").expect("runs");
    asked.wait_said("node n5 has joined the cluster as a spare");
    nodes.kill("n3");
    for node in ["n1", "n2"] {
        let node = nodes.running.get_mut(node).expect("runs");
        node.wait_said("node n5 has taken the place of node n3");
    }
    nodes.write();
    nodes.expect_all();
}

#[test]
fn a_removed_node_that_comes_back_says_so_and_its_name_does_not_come_back() {
    let mut nodes = Nodes::start("replaced-back");
    nodes.write();
    let none = nodes.running.get_mut("n1").expect("runs").tell("replace n3").expect_err("no spare");
    assert!(none.contains("has no spare") && none.contains("--routes"), "{none}");
    nodes.replace("n3", "n4", true);
    let unknown = nodes.running.get_mut("n1").expect("runs").tell("replace n9");
    let unknown = unknown.expect_err("no such node");
    assert!(unknown.contains("no node n9: its nodes are n1, n2, n4"), "{unknown}");
    let busy = nodes.running.get_mut("n1").expect("runs").tell("replace n1 n2");
    assert!(busy.expect_err("no spare").contains("n2 keeps logs already"));
    let log = nodes.dir.join("n3/catalog/log");
    let before = std::fs::metadata(&log).expect("there").len();
    for _ in 0..2 {
        nodes.run("n3", &["n1", "n2", "n3"]);
        let mut node = nodes.running.remove("n3").expect("runs");
        node.wait_said("removed node n3 was removed from the cluster: node n4 has taken its place");
        node.child.wait().expect("ended");
    }
    assert!(std::fs::metadata(&log).expect("still there").len() >= before);
    std::fs::rename(nodes.dir.join("n3"), nodes.dir.join("kept")).expect("moved");
    nodes.run("n3", &["n1", "n2", "n3"]);
    let mut node = nodes.running.remove("n3").expect("runs");
    node.wait_said("its name does not come back");
    node.child.wait().expect("ended");
    nodes.write();
    nodes.expect_all();
}
