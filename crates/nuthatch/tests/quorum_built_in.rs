//! Three real processes keep one quorum log and its catalog too (`--catalog built-in`): they share nothing but the
//! addresses of each other.

mod quorum_nodes;
mod support;

use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, create_stream};

const LEADS: &str = "this node leads the catalog\n";
const NO_MORE: [&str; 3] = [
    "this node leads the catalog no more\n",
    "the catalog has no leader that this node knows\n",
    "Starting nats-server",
];

fn built_in(name: &str) -> Nodes {
    Nodes::with_catalog(TempDir::new(name), "built-in")
}

fn with_stream(name: &str) -> Nodes {
    built_in(name).begun()
}

/// True if a node has said last that it leads the catalog.
fn leads(node: &Node) -> bool {
    let text = node.text();
    let last = |what: &str| text.rfind(what);
    let led = last(LEADS);
    node.child.is_some() && led.is_some() && NO_MORE.iter().all(|what| last(what) < led)
}

/// The node that leads the catalog.
fn leader(nodes: &Nodes) -> usize {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(at) = nodes.nodes.iter().position(leads) {
            return at;
        }
        assert!(Instant::now() < deadline, "nobody leads the catalog");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until others hold that a node has begun so often.
fn wait_begun(node: &Node, count: usize) {
    let deadline = Instant::now() + TIMEOUT;
    while node.text().matches("this node takes part in the catalog\n").count() < count {
        assert!(Instant::now() < deadline, "it does not take part:\n{}", node.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until any node has said something.
fn wait_said(nodes: &Nodes, text: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while !nodes.nodes.iter().any(|node| node.text().contains(text)) {
        let said: Vec<_> = nodes.nodes.iter().map(Node::text).collect();
        assert!(Instant::now() < deadline, "nobody says {text}:\n{}", said.join("\n--\n"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_owner_that_leads_the_catalog_is_killed_and_followed_by_one_that_has_everything() {
    let mut nodes = with_stream("built-in-kill");
    let mut count = 0;
    let mut publish = |nodes: &Nodes| {
        (count..count + 10).for_each(|number| nodes.publish(number));
        count += 10;
        count
    };
    // Until the owner is the catalog's leader, the leader is killed: the next one is the owner, or a third.
    for _ in 0..20 {
        publish(&nodes);
        let (_, owner) = nodes.owner();
        let leader = leader(&nodes);
        nodes.nodes[leader].kill();
        let count = publish(&nodes);
        nodes.expect(count);
        nodes.nodes[leader].start();
        nodes.wait_text(leader, "keeps the quorum log");
        if leader == owner {
            let (_, next) = nodes.owner();
            assert_ne!(next, owner, "a node that starts takes nothing from an owner");
            return;
        }
    }
    panic!("the owner never led the catalog");
}

#[test]
fn nodes_that_all_start_again_have_everything() {
    let mut nodes = with_stream("built-in-restart");
    (0..20).for_each(|number| nodes.publish(number));
    nodes.nodes.iter_mut().for_each(Node::kill);
    nodes.nodes.iter_mut().for_each(Node::start);
    (20..30).for_each(|number| nodes.publish(number));
    nodes.expect(30);
}

/// True if the owner of the stream says that both others are current.
fn all_are_current(nodes: &Nodes, at: usize, stream: &str) -> bool {
    let call = format!("$JS.API.STREAM.INFO.{stream}");
    let Ok(answer) = nodes.client(at).request(&call, b"", b"", ANSWER) else { return false };
    let info: Value = serde_json::from_slice(&answer.payload).expect("JSON");
    let replicas = info["cluster"]["replicas"].as_array();
    let current = |replica: &&Value| replica["current"] == true;
    replicas.is_some_and(|all| all.iter().filter(current).count() == NODES - 1)
}

/// What operators go by: a node whose disk was emptied is current only when another one may go.
#[test]
fn another_node_may_go_as_soon_as_one_with_an_empty_disk_is_current() {
    let mut nodes = built_in("built-in-current");
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "R", &json!({ "num_replicas": NODES }));
    (0..20).for_each(|number| nodes.publish_to("R.n", number, b"r"));
    for round in 0..2 {
        let (_, owner) = nodes.owner();
        let (emptied, other) = ((owner + 1) % NODES, (owner + 2) % NODES);
        nodes.nodes[emptied].kill();
        let store = nodes.dir.path().join(&nodes.nodes[emptied].name);
        std::fs::remove_dir_all(store).expect("removed");
        nodes.nodes[emptied].start();
        let deadline = Instant::now() + TIMEOUT;
        while !all_are_current(&nodes, owner, "R") {
            assert!(Instant::now() < deadline, "it is not current:\n{}", nodes.nodes[owner].text());
            std::thread::sleep(Duration::from_millis(10));
        }
        nodes.nodes[other].kill();
        let first = 20 + round * 10;
        (first..first + 10).for_each(|number| nodes.publish_to("R.n", number, b"r"));
        nodes.nodes[other].start();
        nodes.wait_text(other, "keeps the quorum log");
    }
    assert_eq!(nodes.read_all("R").len(), 40);
}

/// The node with the empty disk counts for the log and for its catalog: then another one may go.
#[test]
fn an_empty_disk_joins_the_catalog_and_keeps_the_log() {
    let mut nodes = with_stream("built-in-wipe");
    (0..20).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    let emptied = (owner + 1) % NODES;
    nodes.nodes[emptied].kill();
    let store = nodes.dir.path().join(&nodes.nodes[emptied].name);
    std::fs::remove_dir_all(store).expect("removed");
    nodes.nodes[emptied].start();
    wait_said(&nodes, "takes part in the catalog with another disk");
    nodes.wait_disks(emptied, 2);
    (20..30).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    let gone = if owner == emptied { (owner + 1) % NODES } else { owner };
    nodes.nodes[gone].kill();
    (30..40).for_each(|number| nodes.publish(number));
    nodes.expect(40);
}

/// Whoever compares a list with what there should be, or backs up what is listed, would take the rest for deleted.
#[test]
fn a_node_without_a_majority_lists_no_part_as_if_it_were_all() {
    let mut nodes = with_stream("built-in-lists");
    nodes.publish(0);
    let (_, owner) = nodes.owner();
    (1..NODES).for_each(|step| nodes.nodes[(owner + step) % NODES].kill());
    let mut client = nodes.client(owner);
    for call in ["STREAM.NAMES", "STREAM.LIST"] {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = client.request(&format!("$JS.API.{call}"), b"", b"", TIMEOUT);
            let Ok(answer) = answer else { break };
            let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
            if answer["error"]["code"] == 503 {
                break;
            }
            assert_eq!(answer["total"], 1, "{call}: {answer}");
            assert!(Instant::now() < deadline, "it still serves the log: {answer}");
        }
    }
}

/// The catalog's own directory is no log.
#[test]
fn the_doctor_finds_a_node_healthy_that_has_ended() {
    let mut nodes = with_stream("built-in-doctor");
    nodes.publish(0);
    nodes.nodes[0].signal("-TERM");
    nodes.nodes[0].ended();
    let store = nodes.dir.path().join(&nodes.nodes[0].name);
    let looked = Command::new(env!("CARGO_BIN_EXE_nuthatch")).arg("doctor").arg(store).output();
    let looked = looked.expect("the doctor runs");
    assert!(looked.status.success(), "{}", String::from_utf8_lossy(&looked.stdout));
}

/// A majority founds nothing; the third node need not share anything with the others but their addresses.
#[test]
fn nothing_is_founded_before_all_nodes_have_answered() {
    let mut nodes = built_in("built-in-found");
    nodes.nodes[1].start();
    nodes.nodes[2].start();
    for at in [1, 2] {
        nodes.wait_text(at, "founded when all of its 3 nodes have answered; missing: 127.0.0.1:");
    }
    let missing = nodes.nodes[0].args.iter().skip_while(|arg| *arg != "--cluster-listen").nth(1);
    let missing = format!("missing: {}\n", missing.expect("its address"));
    [1, 2].into_iter().for_each(|at| nodes.wait_text(at, &missing));
    nodes.nodes[1].signal("-TERM");
    let node = &mut nodes.nodes[1];
    assert_eq!(node.ended().code(), Some(0), "{}", node.text());
    nodes.nodes[0].start();
    nodes.nodes[1].start();
    nodes.create_stream();
    (0..5).for_each(|number| nodes.publish(number));
    nodes.expect(5);
}

/// What was taken from a copy is no majority with a disk that knows more: it says what to do, and the others go on.
#[test]
fn a_catalog_that_went_back_takes_no_part_and_comes_back_with_a_new_disk() {
    let mut nodes = with_stream("built-in-back");
    let (_, owner) = nodes.owner();
    let at = (owner + 1) % NODES;
    wait_begun(&nodes.nodes[at], 1);
    let dir = nodes.dir.path().join(&nodes.nodes[at].name).join("nuthatch/quorum/catalog");
    let copy = nodes.dir.path().join("copy");
    nodes.nodes[at].kill();
    let status = std::process::Command::new("cp").arg("-a").args([&dir, &copy]).status();
    assert!(status.expect("cp").success());
    // It begins twice: the copy then begins as what the others have seen already.
    for begun in 2..4 {
        nodes.nodes[at].start();
        wait_begun(&nodes.nodes[at], begun);
        nodes.nodes[at].kill();
    }
    (0..3).for_each(|number| nodes.publish(number));
    std::fs::remove_dir_all(&dir).expect("removed");
    std::fs::rename(&copy, &dir).expect("put back");
    nodes.nodes[at].start();
    nodes.wait_text(
        at,
        "this node takes no part in the catalog: the disk was set back to an earlier image",
    );
    (3..6).for_each(|number| nodes.publish(number));
    nodes.nodes[at].kill();
    std::fs::remove_dir_all(&dir).expect("moved away");
    nodes.nodes[at].start();
    wait_said(&nodes, "takes part in the catalog with another disk");
    nodes.expect(6);
}
