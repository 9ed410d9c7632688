//! A rolling upgrade: nodes that speak what an older program knows (`--protocol-max`) are started anew one after the other under
//! load, and the cluster is finalized (with `NUTHATCH_OLD_BINARY` they run that program: `just proof --part upgrade`). Which keys nodes have is looked at when they meet. Real processes.

#[cfg(feature = "etcd")]
#[path = "quorum_nodes/etcd.rs"]
mod etcd;
mod quorum_nodes;
mod support;

use quorum_nodes::history::History;
use quorum_nodes::{ACCOUNTS, Home, NODES, Node, Nodes};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
#[cfg(feature = "etcd")]
use support::signal;
use support::{TIMEOUT, TempDir};

/// What programs speak that know nothing newer than the first protocol.
const OLD: [&str; 2] = ["--protocol-max", "4"];

/// Names a program of an earlier commit, which the old nodes run then, without [`OLD`]: what it speaks it says itself.
const OLD_BINARY: &str = "NUTHATCH_OLD_BINARY";

/// The newest protocol that this program speaks.
const NEWEST: u64 = 7;

fn from_now_on() -> String {
    format!("protocol {NEWEST} from now on")
}

fn be_old(node: &mut Node) {
    match std::env::var_os(OLD_BINARY) {
        Some(program) => node.program = Some(program.into()),
        None => node.args.extend(OLD.map(str::to_owned)),
    }
}

fn be_new(node: &mut Node) {
    match node.program.take() {
        Some(_) => {}
        None => node.args.truncate(node.args.len() - OLD.len()),
    }
}

/// True if this may be the newest protocol of an old node.
fn is_of_old(protocol: Option<u64>) -> bool {
    match std::env::var_os(OLD_BINARY) {
        Some(_) => protocol.is_some_and(|protocol| protocol < NEWEST),
        None => protocol == Some(4),
    }
}

/// Waits until all nodes are there, and are old; which protocol the cluster speaks, if they say it.
fn wait_old(at: &Node) -> Option<u64> {
    let is_old = |status: &Value| {
        let all = newest(status);
        all.iter().all(|one| is_of_old(*one) && *one == all[0])
    };
    let status = wait_status(at, "all are old", is_old);
    println!("old nodes: {:?}, protocol {}", newest(&status), status["protocol"]);
    let protocol = status["protocol"].as_u64();
    match protocol {
        Some(_) => assert_eq!(newest(&status), [protocol; NODES], "{status}"),
        // Programs of protocol 5 leave a cluster at 4 of which the catalog is elsewhere, and say none.
        None => assert!(std::env::var_os(OLD_BINARY).is_some(), "{status}"),
    }
    protocol
}

/// What an old program says that starts in a cluster of newer ones.
fn refused() -> String {
    match std::env::var_os(OLD_BINARY) {
        Some(_) => "the cluster was finalized for".to_owned(),
        None => format!("the cluster was finalized for protocol {NEWEST}"),
    }
}

/// `nuthatch cluster …` at a node: its code and what it said.
fn cluster(at: &Node, args: &[&str]) -> (i32, String) {
    let url = format!("nats://sys:pw@127.0.0.1:{}", at.port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(["cluster"]).args(args).args(["-s", &url]).stdin(Stdio::null());
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ended"), String::from_utf8_lossy(&said).into_owned())
}

fn status(at: &Node) -> Option<Value> {
    let (code, said) = cluster(at, &["status", "--json"]);
    (code == 0).then(|| serde_json::from_str(&said).expect("JSON"))
}

/// Waits until a node says this of the cluster.
fn wait_status(at: &Node, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = status(at);
        if let Some(status) = status.as_ref().filter(|status| is_so(status)) {
            return status.clone();
        }
        assert!(Instant::now() < deadline, "{}: not {what}: {status:?}", at.name);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The newest protocol that each node speaks, in the order of their names.
fn newest(status: &Value) -> Vec<Option<u64>> {
    let nodes = status["nodes"].as_array().expect("nodes");
    nodes.iter().map(|node| node["protocol_max"].as_u64()).collect()
}

fn founded(name: &str, config: &str, set_up: impl Fn(usize, &mut Node)) -> Nodes {
    founded_at(Home::BuiltIn, name, config, set_up)
}

fn founded_at(home: Home, name: &str, config: &str, set_up: impl Fn(usize, &mut Node)) -> Nodes {
    let mut nodes = Nodes::at(home, name);
    nodes.configure(config);
    nodes.nodes.iter_mut().enumerate().for_each(|(at, node)| {
        set_up(at, node);
        node.start();
    });
    nodes
}

#[test]
fn nodes_are_upgraded_one_after_the_other_under_load_and_the_cluster_is_finalized() {
    upgrade(Home::BuiltIn, "upgrade");
}

#[test]
fn nodes_are_upgraded_with_the_catalog_in_a_directory() {
    upgrade(Home::Directory, "upgrade-stored");
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "`just proof --part cluster-suites`: together they take minutes"]
fn nodes_are_upgraded_with_the_catalog_in_etcd() {
    upgrade(etcd::IN_ETCD, "upgrade-etcd");
}

fn upgrade(home: Home, name: &str) {
    let mut nodes = founded_at(home, name, ACCOUNTS, |_, node| be_old(node));
    nodes.create_replicated();
    let old = wait_old(&nodes.nodes[0]);
    if std::env::var_os(OLD_BINARY).is_none() {
        let (code, said) = cluster(&nodes.nodes[0], &["finalize", "--force"]);
        assert!(code == 0 && said.contains("nothing is to be done"), "{said}");
    }
    let mut history = History::begin(&mut nodes.client(0), "");
    for at in 0..NODES {
        let stays = (at + 1) % NODES;
        wait_status(&nodes.nodes[stays], "current", |status| status["may_stop"] == true);
        let clients = (nodes.client(stays), nodes.client(stays));
        let (going, rest) = pair(&mut nodes.nodes, at, stays);
        let (load, ()) = history.during(clients, |_| {
            going.signal("-TERM");
            assert!(going.ended().success(), "{}", going.text());
            be_new(going);
            going.start();
            let is_back =
                |status: &Value| status["may_stop"] == true && newest(status)[at] == Some(NEWEST);
            wait_status(rest, "back and new", is_back);
        });
        load.assert_fine(|| nodes.said());
        // An old program knows nothing of the new one's protocol, so the new one is asked.
        let is_there = |status: &Value| {
            status["may_stop"] == true && newest(status).iter().all(Option::is_some)
        };
        let status = wait_status(&nodes.nodes[at], "sees all", is_there);
        // Where they have said no protocol, it is said when all are new.
        if at + 1 < NODES && old.is_none() {
            continue;
        }
        let (code, said) = cluster(&nodes.nodes[at], &["finalize", "--force"]);
        if at + 1 < NODES {
            assert!(code == 0 && said.contains("know nothing newer"), "{said}");
            assert_eq!(status["protocol"].as_u64(), old);
        } else {
            assert!(code == 0 && said.contains(&from_now_on()), "{said}");
        }
    }
    for node in &nodes.nodes {
        wait_status(node, "finalized", |status| status["protocol"] == NEWEST);
    }
    history.expect_right(&nodes, &nodes.nodes[0], "");
    nodes.expect_equal_replicas(&[0, 1, 2]);
    let (code, said) = cluster(&nodes.nodes[0], &["finalize", "--force"]);
    assert!(code == 0 && said.contains("the newest that their programs know"), "{said}");
    refuse_old(home, nodes);
}

/// An older program is refused: at its start, and before it joins.
fn refuse_old(home: Home, mut nodes: Nodes) {
    nodes.nodes[2].signal("-TERM");
    assert!(nodes.nodes[2].ended().success());
    be_old(&mut nodes.nodes[2]);
    nodes.nodes[2].start();
    expect_refused(&mut nodes, 2);
    be_new(&mut nodes.nodes[2]);
    nodes.nodes[2].start();
    let joins = nodes.add();
    be_old(&mut nodes.nodes[joins]);
    nodes.nodes[joins].start();
    if matches!(home, Home::BuiltIn) {
        let older = "this node's program is older than what the cluster was finalized for";
        nodes.wait_text(joins, older);
        nodes.nodes[joins].kill();
    } else {
        expect_refused(&mut nodes, joins);
    }
    be_new(&mut nodes.nodes[joins]);
    nodes.nodes[joins].start();
    nodes.wait_text(joins, "this node is a spare of the cluster");
    let all_new =
        |status: &Value| newest(status) == [Some(NEWEST); NODES + 1] && status["may_stop"] == true;
    wait_status(&nodes.nodes[0], "whole again", all_new);
}

/// It ends and says why. An old program of protocol 5 does not look for it in a catalog outside the nodes: it ends because it
/// cannot join there, or is turned away by the others.
fn expect_refused(nodes: &mut Nodes, at: usize) {
    if std::env::var_os(OLD_BINARY).is_none() {
        assert!(!nodes.nodes[at].ended().success());
        nodes.wait_text(at, &refused());
        return;
    }
    let deadline = Instant::now() + TIMEOUT;
    let node = &mut nodes.nodes[at];
    while !node.text().contains(&refused()) {
        let ended = node.child.as_mut().expect("it was started").try_wait().expect("wait");
        if let Some(status) = ended {
            assert!(!status.success(), "{}", node.text());
            node.child = None;
            return;
        }
        assert!(Instant::now() < deadline, "{} is not refused:\n{}", node.name, node.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    node.kill();
}

/// A node, and one that stays.
fn pair(nodes: &mut [Node], at: usize, stays: usize) -> (&mut Node, &Node) {
    let [one, other] = nodes.get_disjoint_mut([at, stays]).expect("two nodes");
    (one, other)
}

/// The protocol of a new cluster is the newest that all that found it know. A node that was away when a later one was
/// decided upon hears of it by the others.
#[test]
fn a_cluster_begins_with_what_all_know_and_a_node_that_was_away_is_told() {
    let nodes = founded("upgrade-new", ACCOUNTS, |_, _| {});
    let status =
        wait_status(&nodes.nodes[1], "there", |status| newest(status) == [Some(NEWEST); NODES]);
    assert_eq!(status["protocol"], NEWEST, "{status}");
    let programs = status["nodes"].as_array().expect("nodes").iter();
    assert!(programs.clone().all(|node| node["program"] == env!("CARGO_PKG_VERSION")), "{status}");
    drop(nodes);

    let mut nodes = founded("upgrade-away", ACCOUNTS, |at, node| {
        if at == 2 {
            be_old(node);
        }
    });
    nodes.create_replicated();
    let is_mixed = |status: &Value| {
        let all = newest(status);
        all[..2] == [Some(NEWEST); 2] && is_of_old(all[2])
    };
    let status = wait_status(&nodes.nodes[0], "mixed", is_mixed);
    assert_eq!(status["protocol"].as_u64(), newest(&status)[2], "{status}");
    // Nobody knows with which program it comes back.
    nodes.nodes[2].kill();
    wait_status(&nodes.nodes[0], "alone", |status| status["may_stop"] == false);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (code, said) = cluster(&nodes.nodes[0], &["finalize", "--force"]);
        if code != 0 && said.contains("node n2 is not connected") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
    }
    be_new(&mut nodes.nodes[2]);
    nodes.nodes[2].start();
    let all_new =
        |status: &Value| newest(status) == [Some(NEWEST); NODES] && status["may_stop"] == true;
    wait_status(&nodes.nodes[0], "all new", all_new);
    let (code, said) = cluster(&nodes.nodes[1], &["status"]);
    assert!(code == 0 && said.contains(&format!("all of them know {NEWEST}")), "{said}");
    let (code, said) = cluster(&nodes.nodes[0], &["finalize", "--force"]);
    assert!(code == 0 && said.contains(&from_now_on()), "{said}");
}

#[test]
fn nodes_with_different_keys_of_encryption_turn_each_other_away() {
    let with = |keys: &str| format!("{ACCOUNTS}\njetstream {{ {keys} }}\n");
    let dir = TempDir::new("upgrade-keys-files");
    let files = [
        ("one", "key: first-secret"),
        ("other", "key: second-secret"),
        ("both", "key: second-secret, prev_key: first-secret"),
        ("ready", "key: first-secret, prev_key: second-secret"),
    ];
    for (name, keys) in files {
        std::fs::write(dir.path().join(name), with(keys)).expect("written");
    }
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = |node: &mut Node, name: &str| {
        let at = node.args.iter().position(|arg| arg == "-c").expect("it has one");
        node.args[at + 1] = path(name);
    };
    let mut nodes = founded("upgrade-keys", ACCOUNTS, |at, node| {
        file(node, if at == 2 { "other" } else { "one" });
    });
    // The two others are a majority, and serve.
    nodes.create_replicated();
    nodes.publish(0);
    nodes.wait_text(0, "is turned away: it encrypts, and none of this node's keys");
    nodes.wait_text(2, "is turned away: it encrypts, and none of this node's keys");
    let is_told = |status: &Value| {
        let why = status["nodes"][2]["turned_away"].as_str();
        why.is_some_and(|why| why.contains("jetstream.prev_key")) && status["may_stop"] == false
    };
    wait_status(&nodes.nodes[0], "turned away", is_told);
    // Each node reads what the other one writes: it is listened to.
    for at in [0, 1] {
        nodes.nodes[at].signal("-TERM");
        assert!(nodes.nodes[at].ended().success());
        file(&mut nodes.nodes[at], "ready");
        nodes.nodes[at].start();
    }
    nodes.nodes[2].kill();
    file(&mut nodes.nodes[2], "both");
    nodes.nodes[2].start();
    let is_whole =
        |status: &Value| status["may_stop"] == true && status["nodes"][2]["turned_away"].is_null();
    wait_status(&nodes.nodes[0], "whole", is_whole);
    nodes.publish(1);
    nodes.expect(2);
}

/// Nodes of older programs would not see who the nodes are where the catalog is outside them.
#[test]
fn a_cluster_with_a_catalog_elsewhere_is_finalized_before_its_nodes_change() {
    let mut nodes =
        founded_at(Home::Directory, "upgrade-elsewhere", ACCOUNTS, |_, node| be_old(node));
    let old = wait_old(&nodes.nodes[0]);
    for at in 0..NODES {
        wait_status(&nodes.nodes[(at + 1) % NODES], "whole", |status| status["may_stop"] == true);
        nodes.nodes[at].signal("-TERM");
        assert!(nodes.nodes[at].ended().success());
        be_new(&mut nodes.nodes[at]);
        nodes.nodes[at].start();
    }
    let is_new = |status: &Value| newest(status) == [Some(NEWEST); NODES];
    wait_status(&nodes.nodes[0], "new", is_new);
    let early = format!("the cluster speaks protocol {}", old.unwrap_or(4));
    for args in [["drain", "n1", "--force"], ["drain", "n1", "--dry-run"]] {
        let (code, said) = cluster(&nodes.nodes[0], &args);
        assert!(code != 0 && said.contains(&early) && said.contains("finalize"), "{said}");
    }
    let joins = nodes.add();
    nodes.nodes[joins].start();
    assert!(!nodes.nodes[joins].ended().success());
    nodes.wait_text(joins, &early);
    let (code, said) = cluster(&nodes.nodes[1], &["finalize", "--force"]);
    assert!(code == 0 && said.contains(&from_now_on()), "{said}");
    for node in &nodes.nodes[..NODES] {
        wait_status(node, "finalized", |status| status["protocol"] == NEWEST);
    }
    nodes.nodes[joins].start();
    nodes.wait_text(joins, "this node is a spare of the cluster");
    let (code, said) = cluster(&nodes.nodes[0], &["drain", "n1", "--force"]);
    assert_eq!(code, 0, "{said}");
}
