//! Three nodes in one process that keep three logs, on simulated disks and real sockets: each log has its owner, and goes
//! from one node to another while the nodes live on and serve the other logs.

mod hanging;
mod hangs;
mod loads;
mod rests;
mod zones;

use hanging::Hanging;
use nuthatch_cluster::balance::BalanceTimes;
use nuthatch_cluster::hello::{HELLO_BYTES, Hello, Lane};
use nuthatch_cluster::inspect::inspect;
use nuthatch_cluster::packet::{Packet, encode};
use nuthatch_cluster::sub_disk::log_disk;
use nuthatch_cluster::{
    Cluster, ClusterConfig, Drain, KeyNames, LogNumber, Logs, Move, Protocol, QuorumDirectory,
    QuorumLog, Route, Versions,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, MemDisk, Ownership as _};
use nuthatch_ports::free_addresses;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Only what hangs needs a limit.
const LIMIT: Duration = Duration::from_secs(60);

const LOGS: usize = 3;

/// Times in which nothing is moved: a test does that itself.
fn still() -> BalanceTimes {
    let never = Duration::from_secs(3600);
    BalanceTimes { rest: never, started: Duration::ZERO, ..BalanceTimes::default() }
}

/// The order of the times is that of a node, and what is waited for is short.
fn lively() -> BalanceTimes {
    BalanceTimes {
        poll: Duration::from_millis(20),
        rest: Duration::from_millis(500),
        move_every: Duration::from_millis(100),
        whole: Duration::from_millis(100),
        started: Duration::ZERO,
        whole_at_start: Duration::from_millis(20),
    }
}

struct Nodes {
    clusters: Vec<Arc<Cluster>>,
    disks: Vec<MemDisk>,
    hanging: Vec<Hanging>,
    ports: Vec<SocketAddr>,
    catalog: PathBuf,
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Nodes {
    /// Starts three nodes; the catalog is built in unless it is in a directory.
    fn start(name: &str, built_in: bool, times: BalanceTimes) -> Self {
        Self::start_in(name, (built_in, times), [""; 3], &[])
    }

    /// The same of nodes in zones ("": it has none), of which some are those of owners.
    fn start_in(
        name: &str,
        (built_in, times): (bool, BalanceTimes),
        zones: [&str; 3],
        owner_zones: &[&str],
    ) -> Self {
        let catalog = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&catalog);
        std::fs::create_dir_all(&catalog).expect("a directory");
        let (clusters, disks, hanging) = (vec![], vec![], vec![]);
        let mut nodes = Self { clusters, disks, hanging, ports: free_addresses(3), catalog };
        let begin = |number: usize| {
            let disk = MemDisk::default();
            let config = ClusterConfig {
                name: format!("n{number}"),
                listen: nodes.ports[number],
                routes: nodes.ports.iter().copied().map(Route::Address).collect(),
                catalog: match built_in {
                    true => "built-in".to_owned(),
                    false => format!("file://{}", nodes.catalog.display()),
                },
                key: None,
                dir: PathBuf::new(),
                may_be_open: false,
                logs: Logs::PerNode(1),
                memory: None,
                store: None,
                replace_after: None,
                lease: nuthatch_cluster::LEASE,
                zone: zones[number].parse().ok(),
                owner_zones: owner_zones.iter().map(|zone| zone.parse().expect("a zone")).collect(),
                protocol_max: Protocol::NEWEST,
                keys: KeyNames::default(),
                program: String::new(),
            };
            let lock = disk.take().expect("asked").expect("free");
            let hanging = Hanging::new(disk.clone());
            let on: Arc<dyn Disk> = Arc::new(hanging.clone());
            let report = Reporter::new(move |text| eprintln!("n{number}: {text}"));
            let start = move || Cluster::start_balanced(&config, (on, lock), report, times);
            (disk, hanging, thread::spawn(start))
        };
        let begun: Vec<_> = (0..3).map(begin).collect();
        for (disk, hanging, thread) in begun {
            nodes.disks.push(disk);
            nodes.hanging.push(hanging);
            nodes.clusters.push(thread.join().expect("no panic").expect("starts"));
        }
        nodes
    }

    fn log(&self, node: usize, log: usize) -> &Arc<QuorumLog> {
        &self.clusters[node].logs()[log]
    }

    /// The node that owns a log next, with its directory.
    fn owner(&self, log: usize) -> (usize, QuorumDirectory) {
        let (found, owners): (_, Receiver<(usize, QuorumDirectory)>) = channel();
        for node in 0..self.clusters.len() {
            let (found, log) = (found.clone(), Arc::clone(self.log(node, log)));
            thread::spawn(move || {
                if let Ok(directory) = log.wait_until_owner() {
                    let _ = found.send((node, directory));
                }
            });
        }
        owners.recv_timeout(LIMIT).expect("some node owns the log")
    }

    /// Has these nodes own the logs of their numbers.
    fn own_their_logs(&self, nodes: &[usize]) {
        for &node in nodes {
            // A node that takes a moment too long is overtaken by another one.
            wait("its node owns it", || {
                let owner = self.owner(node).0;
                if owner != node {
                    self.log(owner, node).hand_over_to(id(node));
                }
                owner == node
            });
        }
    }

    /// True if each node owns the log of its number.
    fn is_balanced(&self) -> bool {
        (0..LOGS).all(|log| self.log(log, log).owned().is_some())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Nodes whose disks hang do not end.
        self.hanging.iter().for_each(Hanging::go_on);
        let _ = std::fs::remove_dir_all(&self.catalog);
    }
}

fn id(node: usize) -> NodeId {
    NodeId(u8::try_from(node + 1).expect("three nodes"))
}

fn write(directory: &QuorumDirectory, name: &str) -> std::io::Result<()> {
    let file = directory.create(name)?;
    file.write_at(name.as_bytes(), 0)?;
    file.sync()
}

fn read(directory: &QuorumDirectory, name: &str) -> String {
    let file = directory.open(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let len = usize::try_from(file.len().expect("a length")).expect("small");
    String::from_utf8(file.read_shared(0, len).expect("reads").to_vec()).expect("text")
}

/// Each log is owned by its node, has its own entries, and keeps them in a directory of its own.
fn each_owns_one(nodes: &Nodes) {
    wait("each node owns one", || nodes.is_balanced());
    for log in 0..LOGS {
        let written = (0..5).any(|attempt| {
            let (_, directory) = nodes.owner(log);
            write(&directory, &format!("of-{log}-{attempt}")).is_ok()
        });
        assert!(written, "log {log} takes writes");
    }
    for log in 0..LOGS {
        let (_, directory) = nodes.owner(log);
        let names = directory.list("").expect("listed");
        let own = format!("of-{log}-");
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with(&own)), "{names:?}");
    }
    for disk in &nodes.disks {
        let node: Arc<dyn Disk> = Arc::new(disk.clone());
        let looked = |log| inspect(log_disk(&node, LogNumber(log)).expect("there"));
        let disks = (0..3).map(|log| looked(log).expect("reads").identity.expect("one").1);
        assert_eq!(disks.collect::<BTreeSet<_>>().len(), LOGS, "each log's is another disk");
        assert_eq!(disk.list("logs/3").expect("listed"), Vec::<String>::new());
    }
}

#[test]
fn each_of_three_nodes_owns_one_of_three_logs_by_a_catalog_in_a_directory() {
    each_owns_one(&Nodes::start("each-owns-one", false, lively()));
}

#[test]
fn each_of_three_nodes_owns_one_of_three_logs_by_the_built_in_catalog() {
    each_owns_one(&Nodes::start("each-owns-built-in", true, lively()));
}

/// Writes to a log wherever it is owned, until it is told to stop; gives how many files were acknowledged, and how many
/// epochs they were written in.
fn write_on(nodes: &Nodes, log: usize, stop: &AtomicBool, written: &AtomicUsize) -> usize {
    let mut epochs = 0;
    while !stop.load(Ordering::Acquire) {
        let (_, directory) = nodes.owner(log);
        epochs += 1;
        while !stop.load(Ordering::Acquire) {
            if write(&directory, &format!("file-{}", written.load(Ordering::Acquire))).is_err() {
                break;
            }
            written.fetch_add(1, Ordering::AcqRel);
        }
    }
    epochs
}

/// A log goes round the nodes while it is written to; whoever gave it away keeps it, and owns it again later, all in one
/// process. Meanwhile another log, owned by one of them, goes on.
#[test]
fn a_node_hands_a_log_over_while_it_serves_another_and_owns_it_again_later() {
    const ROUNDS: usize = 9;
    let nodes = Nodes::start("handed-round", false, still());
    let (stop, beside, handed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut owned: BTreeMap<usize, BTreeSet<Epoch>> = BTreeMap::new();
    thread::scope(|scope| {
        let other = scope.spawn(|| write_on(&nodes, 0, &stop, &beside));
        let moved = scope.spawn(|| write_on(&nodes, 1, &stop, &handed));
        let mut rounds = 0;
        while rounds < ROUNDS {
            let (at, directory) = nodes.owner(1);
            let before = handed.load(Ordering::Acquire);
            let beside_before = beside.load(Ordering::Acquire);
            wait("both logs take writes", || {
                let both = (handed.load(Ordering::Acquire), beside.load(Ordering::Acquire));
                both.0 > before + 20 && both.1 > beside_before
                    || nodes.log(at, 1).owned() != Some(directory.epoch())
            });
            let to = (at + 1) % 3;
            if nodes.log(at, 1).hand_over_to(id(to)) {
                owned.entry(at).or_default().insert(directory.epoch());
                rounds += 1;
                let late = write(&directory, "late").expect_err("it owns that epoch no more");
                assert_eq!(late.kind(), std::io::ErrorKind::PermissionDenied, "{late}");
            }
        }
        stop.store(true, Ordering::Release);
        eprintln!(
            "{} files in {} epochs; beside {} in {}",
            handed.load(Ordering::Acquire),
            moved.join().expect("no panic"),
            beside.load(Ordering::Acquire),
            other.join().expect("no panic")
        );
    });
    assert!(owned.values().any(|epochs| epochs.len() > 1), "one owned it again: {owned:?}");
    for (log, written) in [(0, beside), (1, handed)] {
        let (_, directory) = nodes.owner(log);
        let written = written.into_inner();
        assert!(written > ROUNDS);
        for number in 0..written {
            let name = format!("file-{number}");
            assert_eq!(read(&directory, &name), name, "log {log}");
        }
        assert!(directory.open("late").is_err());
    }
}

#[test]
fn a_log_that_was_moved_comes_back_and_its_mover_is_asked() {
    let nodes = Nodes::start("comes-back", true, lively());
    wait("each node owns one", || nodes.is_balanced());
    let asked = Arc::new(Mutex::new(vec![]));
    for cluster in &nodes.clusters {
        let asked = Arc::clone(&asked);
        cluster.take_moves(Box::new(move |log, moves| {
            asked.lock().expect("no panic").push((log.number(), moves));
            let Move::To(to) = moves else { return };
            assert!(log.owned().is_none() || log.hand_over_to(to) || log.owned().is_some());
        }));
    }
    // On a machine that is too busy for beats it may go elsewhere at any time: it is given away again.
    let given = (0..5).any(|_| {
        wait("its node owns it", || nodes.log(1, 1).owned().is_some());
        nodes.log(1, 1).hand_over_to(id(2)) && {
            wait("somebody owns it", || (0..3).any(|node| nodes.log(node, 1).owned().is_some()));
            nodes.log(2, 1).owned().is_some()
        }
    });
    assert!(given, "node 2 takes it");
    wait("it came back", || nodes.log(1, 1).owned().is_some());
    let asked = asked.lock().expect("no panic").clone();
    assert!(asked.contains(&(LogNumber(1), Move::To(id(1)))), "{asked:?}");
}

impl Nodes {
    fn owned_by(&self, node: usize) -> Vec<usize> {
        let all = 0..self.clusters[node].logs().len();
        all.filter(|log| self.log(node, *log).owned().is_some()).collect()
    }

    /// How far the first node is drained, as a node knows.
    fn drain_seen_by(&self, node: usize) -> Option<Drain> {
        let nodes = self.clusters[node].nodes().nodes;
        nodes.iter().find(|one| one.name == "n0").expect("it is there").drain
    }

    /// Waits until the first node owns nothing, and the others all.
    fn wait_drained(&self) {
        wait("it owns nothing", || {
            let all = self.clusters[0].logs().len();
            self.owned_by(0).is_empty()
                && self.owned_by(1).len() + self.owned_by(2).len() == all
                && (0..3).all(|node| self.drain_seen_by(node) == Some(Drain::Drained))
        });
    }
}

#[test]
fn a_drained_node_gives_its_logs_away_gets_none_and_gets_its_own_back_in_time() {
    let mut nodes = Nodes::start("drained", true, lively());
    wait("each node owns one", || nodes.is_balanced());
    assert_eq!(nodes.clusters[1].drain("n0", true, false), Ok(false));
    nodes.wait_drained();
    assert_eq!(nodes.clusters[1].drain("n0", true, false), Ok(true), "it is");
    for _ in 0..5 {
        let log = nodes.log(1, 1);
        if log.owned().is_some() {
            assert!(!log.hand_over_to(id(0)) || log.owned().is_none(), "nobody has it go there");
            // As at a clean stop.
            log.hand_over();
        }
        wait("somebody owns it", || (0..3).any(|node| nodes.log(node, 1).owned().is_some()));
        assert!(nodes.log(0, 1).owned().is_none(), "a drained node is given nothing");
    }
    assert_eq!(nodes.clusters[2].drain("n0", false, false), Ok(false));
    wait("it owns its own again", || nodes.is_balanced());
    assert!((0..3).any(|node| nodes.drain_seen_by(node).is_none()));
    assert_eq!(nodes.clusters[0].drain("n0", true, false), Ok(false));
    nodes.wait_drained();
    // So that it does not have to be chosen who leads the catalog.
    assert_eq!(nodes.clusters[0].drain("n2", true, false), Ok(false));
    wait("the other one leads", || nodes.clusters[0].nodes().leader.as_deref() == Some("n1"));
    let refused = nodes.clusters[0].drain("n1", true, false).expect_err("nobody would be left");
    assert!(refused.to_string().contains("would be left"), "{refused}");
    assert_eq!(nodes.clusters[0].drain("n2", false, false), Ok(false));
    // By its rank the drained node would be the next one for the third log.
    wait("its node owns it", || nodes.log(2, 2).owned().is_some());
    drop(nodes.clusters.pop());
    wait("somebody follows", || {
        assert!(nodes.owned_by(0).is_empty(), "another one is there");
        nodes.owned_by(1).len() == nodes.clusters[1].logs().len()
    });
}

#[test]
fn every_node_says_who_owns_a_log_and_its_owner_who_has_everything() {
    let nodes = Nodes::start("sight", false, lively());
    let knows = || {
        (0..LOGS).all(|log| {
            (0..3).all(|node| {
                let sight = nodes.log(node, log).sight();
                let at_owner = node == log;
                sight.number.index() == log
                    && sight.preferred.name == format!("n{log}")
                    && sight.owner.as_ref() == Some(&sight.preferred)
                    && sight.keepers.len() == 3
                    && sight.keepers[0].node == sight.preferred
                    && sight.keepers.iter().all(|keeper| {
                        keeper.connected && keeper.fit && keeper.lag == at_owner.then_some(0)
                    })
            })
        })
    };
    wait("all of it is known everywhere", knows);
}

/// What a node says to somebody who begins so.
fn answer(at: SocketAddr, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).expect("connects");
    stream.set_read_timeout(Some(LIMIT)).expect("set");
    stream.write_all(said).expect("says");
    let mut bytes = vec![];
    // What it still had to read is lost with the connection, which may end it with a reset.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn who_names_a_log_that_there_is_not_is_told_so_and_who_names_another_log_reaches_only_that() {
    let nodes = Nodes::start("lies-about-log", false, still());
    let hello = |node: usize, log: u8| Hello {
        cluster: nodes.clusters[0].id(),
        node: id(node),
        incarnation: Incarnation(77),
        boots: BootCount(1),
        lane: Lane::Log,
        log: LogNumber(log),
        // Beats of later ones begin with more.
        speaks: Versions { oldest: Protocol::FIRST, newest: Protocol::FIRST },
    };
    for log in [3, 14] {
        let text = answer(nodes.ports[0], &hello(1, log).encode());
        let text = String::from_utf8(text).expect("text");
        let expected = format!("founded with 3 quorum logs, counted from 0, and has no log {log}");
        assert!(text.starts_with("-ERR") && text.contains(&expected), "{text:?}");
    }
    // Each log answers as its own disk, so what is meant for the first one's is nobody's at the second one.
    let promised = |log: u8| {
        let node: Arc<dyn Disk> = Arc::new(nodes.disks[0].clone());
        inspect(log_disk(&node, LogNumber(log)).expect("there")).expect("reads").promised
    };
    let greeted = |hello: &Hello| {
        let mut stream = TcpStream::connect(nodes.ports[0]).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream.write_all(&hello.encode()).expect("says");
        let mut bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut bytes).expect("answers");
        (stream, Hello::decode(&bytes).expect("a hello"))
    };
    let theirs = |log| greeted(&hello(1, log));
    let (_, of_first) = theirs(0);
    let (mut stream, of_second) = theirs(1);
    assert_eq!((of_first.log, of_second.log), (LogNumber(0), LogNumber(1)));
    assert_ne!(of_first.incarnation, of_second.incarnation);
    let seal = |disk| Envelope {
        from: id(1),
        sender: Incarnation(77),
        to: id(0),
        disk: Some(disk),
        message: Message::Seal { epoch: Epoch(1_000_000) },
    };
    let lie = Packet { envelope: seal(of_first.incarnation), payloads: vec![] };
    stream.write_all(&encode(LogNumber(1), &lie)).expect("says");
    // Behind it something that ends the connection, so that it was handled.
    stream.write_all(&[0xff; 64]).expect("says");
    let _ = stream.read_to_end(&mut vec![]);
    // On the connection of another log, and on that of beats, which takes nothing else, it is not even looked at.
    let lie_to_second = Packet { envelope: seal(of_second.incarnation), payloads: vec![] };
    let (mut first, _) = theirs(0);
    let beats = Hello { lane: Lane::Beats, ..hello(1, 0) };
    let (mut beating, _) = greeted(&beats);
    for (stream, log) in [(&mut first, 1), (&mut beating, 1), (&mut greeted(&beats).0, 14)] {
        stream.write_all(&encode(LogNumber(log), &lie_to_second)).expect("says");
        assert_eq!(stream.read_to_end(&mut vec![]).unwrap_or_default(), 0, "it is cut off");
    }
    for log in 0..3 {
        assert!(promised(log).is_none_or(|epoch| epoch.0 < 1_000_000), "log {log}");
    }
    let goes_on = |log| (0..5).any(|_| write(&nodes.owner(log).1, "as-before").is_ok());
    assert!((0..LOGS).all(goes_on), "the logs take writes as before");
}
