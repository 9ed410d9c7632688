//! Three nodes, each a process of its own with a directory of the operating system, that keep three logs: killed, started
//! again, founded with another number of logs. A node is this program again, as the test `node`, which tells what it owns
//! and does what it is told over pipes.

use nuthatch_cluster::balance::BalanceTimes;
use nuthatch_cluster::inspect::{further_keepers, inspect};
use nuthatch_cluster::{
    Cluster, ClusterConfig, KeyNames, Logs, Protocol, QuorumDirectory, QuorumLog, Route,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Ownership as _, ReadOnlyDisk, RealDisk};
use nuthatch_ports::free_addresses;
use nuthatch_quorum::types::{Incarnation, NodeId};
use std::collections::BTreeMap;
use std::env::{current_exe, var};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Only what hangs needs a limit.
const LIMIT: Duration = Duration::from_secs(90);

/// What a node says to the test begins so.
const MARK: &str = "@node ";

/// What a node is told by its environment.
const TOLD: &str = "NUTHATCH_TEST_NODE";

type Slot = Arc<Mutex<Option<Arc<QuorumDirectory>>>>;

fn say(text: &str) {
    // In one piece, so that lines of several threads do not mix.
    let _ = std::io::stdout().lock().write_all(format!("{MARK}{text}\n").as_bytes());
}

/// Owns a log again and again, and says so.
fn own(log: &QuorumLog, slot: &Slot) {
    let number = log.number();
    while let Ok(directory) = log.wait_until_owner() {
        let epoch = directory.epoch();
        let (lost, loss) = channel();
        let watcher = move |_: &str| lost.send(()).expect("it is waited for");
        log.watch(epoch, Box::new(watcher)).expect("a thread");
        *slot.lock().expect("no panic") = Some(Arc::new(directory));
        say(&format!("owns {number} {}", epoch.0));
        let _ = loss.recv();
        *slot.lock().expect("no panic") = None;
        say(&format!("lost {number} {}", epoch.0));
    }
}

fn write(directory: &QuorumDirectory, name: &str) -> std::io::Result<()> {
    let file = directory.create(name)?;
    file.write_at(name.as_bytes(), 0)?;
    file.sync()
}

/// The names of files that hold what they should.
fn good(directory: &QuorumDirectory) -> std::io::Result<Vec<String>> {
    let mut names = directory.list("")?;
    let holds = |name: &String| {
        let file = directory.open(name)?;
        Ok::<_, std::io::Error>(file.read_shared(0, name.len())? == name.as_bytes())
    };
    let mut kept = vec![];
    for name in names.drain(..) {
        if holds(&name)? {
            kept.push(name);
        }
    }
    Ok(kept)
}

/// Does what the test says: `write LOG NAME`, `list LOG`, `to LOG NODE`, `whole LOG`.
fn obey(line: &str, cluster: &Cluster, slots: &[Slot]) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let log: usize = words[1].parse().expect("a log");
    let directory = slots[log].lock().expect("no panic").clone();
    match (words[0], directory) {
        ("write", Some(directory)) => match write(&directory, words[2]) {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("error {error}"),
        },
        ("list", Some(directory)) => match good(&directory) {
            Ok(names) => format!("ok {}", names.join(" ")),
            Err(error) => format!("error {error}"),
        },
        ("to", _) => {
            let to = NodeId(words[2].parse().expect("a node"));
            format!("ok {}", cluster.logs()[log].hand_over_to(to))
        }
        (_, None) => "error it is not owned here".to_owned(),
        ("whole", Some(_)) => {
            let keepers = cluster.logs()[log].sight().keepers;
            format!("ok {}", keepers.iter().filter(|keeper| keeper.lag == Some(0)).count())
        }
        _ => panic!("{line}"),
    }
}

#[test]
#[ignore = "a node, which other tests start"]
fn node() {
    let Ok(told) = var(TOLD) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let routes: Vec<SocketAddr> =
        told[2].split(',').map(|route| route.parse().expect("an address")).collect();
    let number: usize = told[0].parse().expect("a number");
    let config = ClusterConfig {
        name: format!("n{number}"),
        listen: routes[number],
        routes: routes.into_iter().map(Route::Address).collect(),
        catalog: told[3].to_owned(),
        dir: PathBuf::from(told[1]),
        key: None,
        may_be_open: false,
        logs: told[4].parse().map_or(Logs::PerNode(1), Logs::Count),
        memory: None,
        store: None,
        replace_after: None,
        lease: nuthatch_cluster::LEASE,
        zone: None,
        owner_zones: vec![],
        protocol_max: Protocol::NEWEST,
        keys: KeyNames::default(),
        program: String::new(),
    };
    let millis = Duration::from_millis;
    let times = BalanceTimes {
        poll: millis(50),
        rest: millis(1_000),
        move_every: millis(200),
        whole: millis(300),
        ..BalanceTimes::default()
    };
    let report = Reporter::new(move |text| {
        say(&format!("says {text}"));
        eprintln!("n{number}: {text}");
    });
    let disk = RealDisk::open(&config.dir).expect("a directory");
    let lock = disk.take().expect("asked").expect("free");
    let cluster = Cluster::start_balanced(&config, (Arc::new(disk), lock), report, times);
    let cluster = cluster.expect("starts");
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
    /// The logs that it owns, with their epochs.
    owned: BTreeMap<usize, u32>,
    logs: usize,
    said: Vec<String>,
    did: Option<String>,
}

impl Running {
    /// Takes in what it has said, for so long at most.
    fn hear(&mut self, wait: Duration) {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.take(&line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            if self.did.is_some() {
                return;
            }
        }
    }

    fn take(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').expect("a word and more");
        let numbers = || {
            let (log, epoch) = rest.split_once(' ').expect("two numbers");
            (log.parse().expect("a log"), epoch.parse().expect("an epoch"))
        };
        match what {
            "owns" => {
                let (log, epoch) = numbers();
                self.owned.insert(log, epoch);
            }
            "lost" => drop(self.owned.remove(&numbers().0)),
            "runs" => self.logs = rest.parse().expect("a number"),
            "says" => self.said.push(rest.to_owned()),
            "did" => self.did = Some(rest.to_owned()),
            _ => panic!("{line}"),
        }
    }

    fn tell(&mut self, command: &str) -> Option<String> {
        self.input.write_all(format!("{command}\n").as_bytes()).ok()?;
        let deadline = Instant::now() + LIMIT;
        while self.did.is_none() {
            assert!(Instant::now() < deadline, "{command} is not done");
            self.hear(Duration::from_millis(100));
        }
        self.did.take()?.strip_prefix("ok").map(|rest| rest.trim().to_owned())
    }
}

struct Nodes {
    dir: PathBuf,
    ports: Vec<SocketAddr>,
    built_in: bool,
    running: BTreeMap<usize, Running>,
}

impl Nodes {
    fn new(name: &str, built_in: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-logs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("catalog")).expect("a directory");
        Self { dir, ports: free_addresses(3), built_in, running: BTreeMap::new() }
    }

    fn node_dir(&self, node: usize) -> PathBuf {
        self.dir.join(format!("n{node}"))
    }

    fn start(&mut self, node: usize, logs: &str) {
        let dir = self.node_dir(node);
        std::fs::create_dir_all(&dir).expect("a directory");
        let routes: Vec<String> = self.ports.iter().map(SocketAddr::to_string).collect();
        let catalog = match self.built_in {
            true => "built-in".to_owned(),
            false => format!("file://{}", self.dir.join("catalog").display()),
        };
        let told = format!("{node}|{}|{}|{catalog}|{logs}", dir.display(), routes.join(","));
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
        let (owned, said) = (BTreeMap::new(), vec![]);
        let running = Running { child, input, lines, owned, logs: 0, said, did: None };
        self.running.insert(node, running);
    }

    fn start_all(&mut self, logs: &str) {
        (0..3).for_each(|node| self.start(node, logs));
    }

    fn kill(&mut self, node: usize) {
        let mut running = self.running.remove(&node).expect("it runs");
        running.child.kill().expect("killed");
        running.child.wait().expect("ended");
    }

    fn kill_all(&mut self) {
        let nodes: Vec<usize> = self.running.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.kill(node));
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&BTreeMap<usize, Running>) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so(&self.running) {
            let owned: Vec<_> = self.running.iter().map(|(node, one)| (node, &one.owned)).collect();
            assert!(Instant::now() < deadline, "{what}: {owned:?}");
            self.running.values_mut().for_each(|node| node.hear(Duration::from_millis(10)));
        }
    }

    /// Waits until each of these logs is owned by its node.
    fn wait_balanced(&mut self, logs: usize) {
        self.wait("each node owns its log", |running| {
            (0..logs).all(|log| running.get(&log).is_some_and(|node| node.owned.contains_key(&log)))
        });
    }

    /// Has whoever owns a log do something, until it is done.
    fn tell_owner(&mut self, log: usize, command: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "{command} is not done");
            self.running.values_mut().for_each(|node| node.hear(Duration::from_millis(10)));
            let owner = self.running.values_mut().find(|node| node.owned.contains_key(&log));
            if let Some(done) = owner.and_then(|owner| owner.tell(command)) {
                return done;
            }
        }
    }

    fn write(&mut self, log: usize, name: &str) {
        self.tell_owner(log, &format!("write {log} {name}"));
    }

    fn assert_has(&mut self, log: usize, names: &[String]) {
        let listed = self.tell_owner(log, &format!("list {log}"));
        let listed: Vec<&str> = listed.split(' ').collect();
        for name in names {
            assert!(listed.contains(&name.as_str()), "log {log} has {name}: {listed:?}");
        }
    }

    fn epochs(&self, node: usize) -> BTreeMap<usize, u32> {
        self.running[&node].owned.clone()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for running in self.running.values_mut() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn names(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{what}-{number}")).collect()
}

/// A node is killed: its log is taken over, those of the others go on. It comes back, is brought what it lacks, and gets
/// its log back. Then all are killed and started.
fn killed_and_started(name: &str, built_in: bool) {
    let mut nodes = Nodes::new(name, built_in);
    nodes.start_all("");
    nodes.wait_balanced(3);
    let lies = |node: &Running| node.said.iter().any(|text| text.contains("no connection to"));
    assert!(!nodes.running.values().any(lies), "all of them are nodes of one cluster");
    let (before, meanwhile, after) =
        (names("before", 3), names("meanwhile", 30), names("after", 3));
    for log in 0..3 {
        before.iter().for_each(|name| nodes.write(log, name));
    }
    let others = [nodes.epochs(1), nodes.epochs(2)];
    nodes.kill(0);
    nodes.wait("another node owns the log of the killed one", |running| {
        running.values().any(|node| node.owned.contains_key(&0))
    });
    for log in 0..3 {
        meanwhile.iter().for_each(|name| nodes.write(log, name));
        nodes.assert_has(log, &before);
    }
    // Not an assertion: a machine that is too busy for beats changes owners.
    eprintln!("owned before and after: {others:?}, {:?}, {:?}", nodes.epochs(1), nodes.epochs(2));
    nodes.start(0, "");
    nodes.wait_balanced(3);
    for log in 0..3 {
        after.iter().for_each(|name| nodes.write(log, name));
    }
    nodes.kill_all();
    nodes.start_all("");
    nodes.wait_balanced(3);
    for log in 0..3 {
        let all = [before.clone(), meanwhile.clone(), after.clone()].concat();
        nodes.assert_has(log, &all);
    }
    nodes.kill_all();
    for node in 0..3 {
        let dir = nodes.node_dir(node);
        let further = further_keepers(&dir);
        let found: Vec<u8> = further.iter().map(|(log, _)| log.0).collect();
        assert_eq!(found, [1, 2]);
        for (_, dir) in further {
            let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::open(&dir).expect("a directory"));
            let found = inspect(disk).expect("reads");
            assert!(found.last.0 > 30 && found.identity.expect("one").0.0 == node as u8 + 1);
        }
    }
}

#[test]
fn a_killed_nodes_log_goes_on_elsewhere_and_comes_back_by_the_built_in_catalog() {
    killed_and_started("built-in", true);
}

#[test]
fn a_killed_nodes_log_goes_on_elsewhere_and_comes_back_by_a_catalog_in_a_directory() {
    killed_and_started("directory", false);
}

/// Which disk a node's keeper of a further log is; nobody uses the directory.
fn disk_of(dir: &Path) -> Incarnation {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::open(dir).expect("a directory"));
    inspect(disk).expect("reads").identity.expect("one").1
}

/// The directory of one log is lost, and those of the others are not: that is a new disk of that log, which is brought all
/// of it, and owns it again.
#[test]
fn a_lost_directory_of_one_log_is_a_new_disk_of_that_log_alone() {
    let mut nodes = Nodes::new("lost-directory", true);
    nodes.start_all("");
    nodes.wait_balanced(3);
    let written = names("written", 20);
    for log in 0..3 {
        written.iter().for_each(|name| nodes.write(log, name));
    }
    nodes.kill(1);
    let dirs = ["logs/1", "logs/2"].map(|dir| nodes.node_dir(1).join(dir));
    let before = dirs.each_ref().map(|dir| disk_of(dir));
    std::fs::remove_dir_all(&dirs[0]).expect("removed");
    nodes.start(1, "");
    nodes.wait_balanced(3);
    let deadline = Instant::now() + LIMIT;
    while nodes.tell_owner(1, "whole 1") != "3" {
        assert!(Instant::now() < deadline, "the new disk has everything");
    }
    nodes.assert_has(1, &written);
    nodes.kill_all();
    let after = dirs.each_ref().map(|dir| disk_of(dir));
    assert!(after[0] != before[0] && after[1] == before[1], "{before:?} {after:?}");
}

/// A cluster that was founded with one log keeps one, whatever its nodes are set up for now.
fn founded_with_one(name: &str, built_in: bool) {
    let mut nodes = Nodes::new(name, built_in);
    nodes.start_all("1");
    nodes.wait("somebody owns the log", |running| {
        running.values().any(|node| node.owned.contains_key(&0))
    });
    let written = names("written", 5);
    written.iter().for_each(|name| nodes.write(0, name));
    nodes.kill_all();
    nodes.start(0, "");
    nodes.start(1, "5");
    nodes.start(2, "1");
    nodes.assert_has(0, &written);
    nodes.wait("all run", |running| running.values().all(|node| node.logs > 0));
    let lies = |node: &Running| node.said.iter().any(|text| text.contains("no connection to"));
    assert!(!nodes.running.values().any(lies), "all of them are nodes of one cluster");
    let told = |node: &Running| node.said.iter().any(|text| text.contains("set up for"));
    let said: Vec<bool> = nodes.running.values().map(told).collect();
    assert_eq!(said, [false, true, false], "only who wants another number says so");
    for node in 0..3 {
        assert_eq!(nodes.running[&node].logs, 1);
        assert!(!nodes.node_dir(node).join("logs").exists());
        let format = std::fs::read(nodes.node_dir(node).join("format")).expect("its version");
        assert!(format.ends_with(b" 2\n"), "programs that know one log may open it");
    }
}

#[test]
fn a_cluster_that_was_founded_with_one_log_keeps_one_by_the_built_in_catalog() {
    founded_with_one("one-built-in", true);
}

#[test]
fn a_cluster_that_was_founded_with_one_log_keeps_one_by_a_catalog_in_a_directory() {
    founded_with_one("one-directory", false);
}
