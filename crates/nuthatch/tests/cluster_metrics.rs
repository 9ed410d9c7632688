//! What `/metrics` of the nodes says of operations of a cluster. Real processes.

mod quorum_nodes;
mod support;

use quorum_nodes::{ACCOUNTS, Node, Nodes, ask, free_ports};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir};

const OWNED: &str = "nuthatch_quorum_log_owned{log=\"default\"}";

/// Logs are followed however small they are, and there is no memory for it.
const FEW: &str = "jetstream { quorum { standby_above: '0s', standby_memory: 1KB } }";

/// Nodes with monitoring ports.
struct Watched {
    nodes: Nodes,
    ports: Vec<u16>,
}

impl Watched {
    /// Three nodes that have not started yet.
    fn new(dir: TempDir, catalog: &str, config: &str) -> Self {
        let mut nodes = Nodes::of(3, dir, catalog);
        nodes.configure(&format!("{ACCOUNTS}\n{config}"));
        let mut watched = Self { nodes, ports: vec![] };
        (0..3).for_each(|at| watched.watch(at));
        watched
    }

    fn watch(&mut self, at: usize) {
        let port = free_ports(1)[0];
        self.ports.push(port);
        self.nodes.nodes[at].args.extend(["-m".to_owned(), port.to_string()]);
    }

    fn start(&mut self) {
        self.nodes.nodes.iter_mut().for_each(Node::start);
    }

    fn page(&self, at: usize) -> String {
        let mut text = String::new();
        // A node that has just started does not listen there yet.
        if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.ports[at])) {
            let asked = socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: n\r\n\r\n");
            let _ = asked.and_then(|()| socket.read_to_string(&mut text));
        }
        text
    }

    /// A sample by its name with its labels, at a node.
    fn value(&self, at: usize, name: &str) -> Option<f64> {
        let page = self.page(at);
        let mut lines = page.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// The sum of all samples in whole numbers whose names begin so, over these nodes.
    fn sum(&self, at: &[usize], begins: &str) -> u64 {
        let pages: Vec<String> = at.iter().map(|at| self.page(*at)).collect();
        let lines = pages.iter().flat_map(|page| page.lines());
        let mine = lines.filter(|line| line.starts_with(begins));
        mine.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Waits until a sample is so; gives it.
    fn wait(&self, at: usize, name: &str, is_so: impl Fn(f64) -> bool) -> f64 {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let value = self.value(at, name);
            if let Some(value) = value.filter(|value| is_so(*value)) {
                return value;
            }
            let page = self.page(at);
            let told: Vec<&str> = page.lines().filter(|line| line.contains("_cluster_")).collect();
            assert!(Instant::now() < deadline, "{name} is {value:?}:\n{}", told.join("\n"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until(&self, otherwise: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so() {
            assert!(Instant::now() < deadline, "{otherwise}: {}", self.page(0));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Who owns the first log.
    fn owner(&self) -> usize {
        let is_owner = |at: &usize| self.value(*at, OWNED) == Some(1.0);
        self.until("nobody owns it", || (0..3).any(|at| is_owner(&at)));
        (0..3).find(is_owner).expect("somebody owns it")
    }

    fn is(&self, at: usize, name: &str, expected: f64) {
        self.wait(at, name, |value| value.to_bits() == expected.to_bits());
    }
}

/// Zones, a node that is drained, one that goes, and one whose place a spare takes that hangs meanwhile.
#[test]
fn the_states_of_nodes_are_numbers() {
    let config = "jetstream { quorum { replace_after: '60s' } }";
    let mut all = Watched::new(TempDir::new("metrics-nodes"), "built-in", config);
    for (node, zone) in all.nodes.nodes.iter_mut().zip(["a", "a", "b"]) {
        node.args.extend(["--zone", zone].map(str::to_owned));
    }
    all.start();
    all.nodes.create_replicated();
    (0..3).for_each(|at| all.is(at, "nuthatch_cluster_may_stop", 1.0));
    all.is(0, "nuthatch_cluster_zones", 2.0);
    all.is(0, "nuthatch_cluster_zone_risk", 1.0);
    all.is(0, "nuthatch_quorum_log_zone_risk{log=\"default\"}", 1.0);
    all.is(0, "nuthatch_quorum_log_zones{log=\"default\"}", 2.0);
    all.is(0, "nuthatch_cluster_nodes_without_zone", 0.0);
    all.is(0, "nuthatch_cluster_catalog_info{kind=\"built-in\"}", 1.0);
    all.is(0, "nuthatch_cluster_clock_agreed", 1.0);
    all.is(0, "nuthatch_cluster_replace_after_seconds", 60.0);
    all.is(0, "nuthatch_quorum_log_replica_counts{log=\"memory-quorum\"}", 1.0);
    all.is(0, "nuthatch_quorum_log_noticed_total{log=\"default\",what=\"diverged\"}", 0.0);
    assert_eq!(all.sum(&[0, 1, 2], "nuthatch_cluster_catalog_leader "), 1);
    let active = all.value(0, "nuthatch_cluster_protocol").expect("it is told");
    all.is(0, "nuthatch_cluster_protocol_available", active);
    all.is(0, "nuthatch_cluster_node_protocol_max{node=\"n2\"}", active);
    // Whoever owns a log has taken it over.
    let takeovers = all.sum(&[0, 1, 2], "nuthatch_quorum_log_takeovers_total{");
    assert!(takeovers >= 4, "{takeovers}");
    let timed = || all.sum(&[0, 1, 2], "nuthatch_quorum_log_takeover_seconds_count{");
    all.until("not each takeover has its time", || timed() >= takeovers);

    let spare = all.nodes.add();
    all.watch(spare);
    all.nodes.nodes[spare].start();
    all.is(0, "nuthatch_cluster_spares", 1.0);
    all.is(0, "nuthatch_cluster_node_keeps{node=\"n3\"}", 0.0);
    all.is(0, "nuthatch_cluster_nodes_without_zone", 1.0);

    let drain =
        |drain: bool| ask(&all.nodes.nodes[0], "DRAIN", &json!({"node": "n1", "drain": drain}));
    let taken = all.sum(&[0, 2], "nuthatch_quorum_log_takeovers_total{");
    all.until("n1 owns nothing", || all.sum(&[1], "nuthatch_quorum_log_owned{") > 0);
    drain(true).expect("it begins");
    for at in [0, 1, spare] {
        all.is(at, "nuthatch_cluster_node_drain{node=\"n1\",state=\"drained\"}", 1.0);
    }
    assert_eq!(all.sum(&[1], "nuthatch_quorum_log_owned{"), 0);
    all.until("nobody took its logs over", || {
        all.sum(&[0, 2], "nuthatch_quorum_log_takeovers_total{") > taken
    });
    drain(false).expect("it ends");
    all.is(0, "nuthatch_cluster_node_drain{node=\"n1\",state=\"drained\"}", 0.0);
    replaced(&mut all, spare);
}

/// A node goes, and a spare that hangs takes its place, until it hangs no more.
fn replaced(all: &mut Watched, spare: usize) {
    all.nodes.nodes[spare].signal("-STOP");
    all.nodes.nodes[2].kill();
    all.wait(0, "nuthatch_cluster_node_silent_seconds{node=\"n2\"}", |seconds| seconds > 1.5);
    all.is(0, "nuthatch_cluster_may_stop", 0.0);
    let due = all.wait(0, "nuthatch_cluster_node_replaced_in_seconds{node=\"n2\"}", |_| true);
    assert!((40.0..59.0).contains(&due), "{due}");
    assert_eq!(
        all.value(0, "nuthatch_cluster_protocol_available"),
        None,
        "who is away may be older"
    );

    let replace = json!({"old": "n2", "new": "n3"});
    ask(&all.nodes.nodes[0], "REPLACE", &replace).expect("it begins");
    for at in [0, 1] {
        all.is(at, "nuthatch_cluster_change_under_way{change=\"replace\"}", 1.0);
        all.wait(at, "nuthatch_cluster_change_seconds{change=\"replace\"}", |since| since > 1.0);
        all.is(at, "nuthatch_cluster_change_under_way{change=\"grow\"}", 0.0);
    }
    assert_eq!(all.value(0, "nuthatch_cluster_node_replaced_in_seconds{node=\"n2\"}"), None);
    all.nodes.nodes[spare].signal("-CONT");
    for at in [0, spare] {
        all.is(at, "nuthatch_cluster_change_under_way{change=\"replace\"}", 0.0);
        all.is(at, "nuthatch_cluster_change_seconds{change=\"replace\"}", 0.0);
        all.is(at, "nuthatch_cluster_removed_nodes", 1.0);
        all.is(at, "nuthatch_cluster_keepers", 3.0);
        all.is(at, "nuthatch_cluster_may_stop", 1.0);
    }
}

/// A catalog in a directory that is away, and back; nodes with different `owner_zones`; standbys without memory; a log that is
/// moved, and the loss of its owner.
#[test]
fn a_catalog_that_is_away_and_owners_that_change_are_numbers() {
    let dir = TempDir::new("metrics-catalog");
    let (shared, aside) = (dir.path().join("c"), dir.path().join("aside"));
    let mut all = Watched::new(dir, &format!("file://{}", shared.display()), FEW);
    let own = FEW.replace("quorum {", "quorum { owner_zones: [z],");
    let config = all.nodes.dir.path().join("other.conf");
    std::fs::write(&config, format!("{ACCOUNTS}\n{own}")).expect("written");
    let args = &mut all.nodes.nodes[2].args;
    let given = args.iter().position(|arg| arg == "-c").expect("it is configured");
    args[given + 1] = config.display().to_string();
    all.start();
    all.nodes.create_replicated();
    (0..3).for_each(|at| all.is(at, "nuthatch_cluster_may_stop", 1.0));
    all.is(0, "nuthatch_cluster_catalog_info{kind=\"directory\"}", 1.0);
    all.is(0, "nuthatch_cluster_owner_zones_differ", 1.0);
    all.is(0, "nuthatch_cluster_owner_zones_empty", 0.0);
    all.is(2, "nuthatch_cluster_owner_zones_empty", 1.0);
    all.wait(0, "nuthatch_cluster_catalog_silent_seconds", |silent| silent < 1.0);
    // Whoever took it first has given it to the node in its place: a handover needs the catalog.
    all.is(0, OWNED, 1.0);

    std::fs::rename(&shared, &aside).expect("it is away");
    std::fs::write(&shared, b"").expect("nothing can be read there");
    all.wait(0, "nuthatch_cluster_catalog_silent_seconds", |silent| silent > 2.0);
    all.wait(0, "nuthatch_cluster_catalog_failures_total", |failures| failures > 0.0);
    // What is owned goes on.
    all.nodes.publish(0);
    std::fs::remove_file(&shared).expect("it is removed");
    std::fs::rename(&aside, &shared).expect("it is back");
    (0..3).for_each(|at| {
        all.wait(at, "nuthatch_cluster_catalog_silent_seconds", |silent| silent < 1.0);
    });

    let before = all.owner();
    let to = (before + 1) % 3;
    let handovers =
        all.sum(&[to], "nuthatch_quorum_log_takeovers_total{log=\"default\",by=\"handover\"}");
    let named = all.nodes.nodes[to].name.clone();
    ask(&all.nodes.nodes[0], "MOVE_LOG", &json!({"log": "default", "node": named}))
        .expect("it goes");
    all.is(to, OWNED, 1.0);
    all.is(to, "nuthatch_quorum_log_owned_elsewhere{log=\"default\",than=\"move_log\"}", 0.0);
    all.wait(to, "nuthatch_quorum_log_takeovers_total{log=\"default\",by=\"handover\"}", |count| {
        count > handovers as f64
    });
    let moves = "nuthatch_quorum_log_moves_total{log=\"default\",to=\"node\"}";
    all.wait(before, moves, |moves| moves >= 1.0);

    // Whoever does not own it has begun to follow it.
    let dropped =
        || all.sum(&[0, 1, 2], "nuthatch_quorum_log_standbys_dropped_total{log=\"default\"}");
    all.until("no standby is dropped", || dropped() > 0);
    let told = ask(&all.nodes.nodes[0], "LOGS", &json!(null)).expect("answered");
    let max = told["standby_memory"]["max_bytes"].as_f64().expect("it is told");
    all.is(0, "nuthatch_cluster_standby_memory_max_bytes", max);

    let owner = all.owner();
    let others: Vec<usize> = (0..3).filter(|at| *at != owner).collect();
    let by_loss = "nuthatch_quorum_log_takeovers_total{log=\"default\",by=\"loss\"}";
    let before = all.sum(&others, by_loss);
    all.nodes.nodes[owner].kill();
    all.until("nobody has taken it over", || all.sum(&others, by_loss) > before);
    let took = "nuthatch_quorum_log_takeover_seconds_sum{log=\"default\"}";
    let took: f64 = others.iter().filter_map(|at| all.value(*at, took)).sum();
    assert!(took > 0.0 && took < 30.0, "{took}");
}
