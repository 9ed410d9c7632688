//! Streams in the memory of three real processes: what was acknowledged outlasts any one of them, and with two of them
//! gone at once their log begins anew, says so, and goes on.

mod quorum_nodes;
mod support;

use nuthatch_client::Client;
use quorum_nodes::{ACCOUNTS, ANSWER, NODES, Node, Nodes, ask};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, read_all};

const CREATE: &str = "STREAM.CREATE.M";
const INFO: &str = "STREAM.INFO.M";

fn stream() -> Value {
    json!({"name": "M", "subjects": ["M.>"], "storage": "memory", "num_replicas": 3})
}

fn asked(client: &mut Client, call: &str, body: &Value) -> Option<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), ANSWER).ok()?;
    Some(serde_json::from_slice(&answer.payload).expect("JSON"))
}

/// Asks at a node until the answer fits.
fn until(
    nodes: &Nodes,
    at: usize,
    call: &str,
    body: &Value,
    fits: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = asked(&mut nodes.client(at), call, body);
        if let Some(answer) = answer.as_ref().filter(|answer| fits(answer)) {
            return answer.clone();
        }
        let said = nodes.nodes[at].text();
        assert!(Instant::now() < deadline, "{call} at {at}: {answer:?}\n{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_made(answer: &Value) -> bool {
    answer.get("error").is_none()
}

/// Publishes at a node until it is acknowledged.
fn publish(nodes: &Nodes, at: usize, number: u64) {
    let (body, deadline) = (number.to_string(), Instant::now() + TIMEOUT);
    let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
    loop {
        let ack = nodes.client(at).request("M.n", headers.as_bytes(), body.as_bytes(), ANSWER);
        if ack.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\"")) {
            return;
        }
        let said = nodes.nodes[at].text();
        assert!(Instant::now() < deadline, "{number} is not taken at {at}: {ack:?}\n{said}");
    }
}

/// Everything is there once, in its order, as a client of this node reads it.
fn expect(nodes: &Nodes, at: usize, count: u64) {
    until(nodes, at, INFO, &Value::Null, |info| info["state"]["messages"] == count);
    let found = read_all(&mut nodes.client(at), "M", 1);
    let number = |payload: &[u8]| String::from_utf8_lossy(payload).parse().expect("a number");
    let found: Vec<u64> = found.iter().map(|(_, message)| number(&message.payload)).collect();
    assert_eq!(found, (0..count).collect::<Vec<_>>());
}

/// The node that serves the stream, once both others have all of it.
fn whole(nodes: &Nodes, at: usize) -> usize {
    let is_whole = |info: &Value| {
        let replicas = info["cluster"]["replicas"].as_array();
        let current = |replica: &&Value| replica["current"] == true;
        replicas.is_some_and(|all| all.iter().filter(current).count() == NODES - 1)
    };
    let info = until(nodes, at, INFO, &Value::Null, is_whole);
    let leader = info["cluster"]["leader"].as_str().expect("a leader");
    nodes.nodes.iter().position(|node| node.name == leader).expect("a node")
}

/// Waits until an owner has said that it keeps the log with the last disk that a node has begun with.
fn wait_in_set(nodes: &Nodes, at: usize, disks: usize) {
    let (node, deadline) = (format!(" {} (disk ", at + 1), Instant::now() + TIMEOUT);
    loop {
        let said: String = nodes.nodes.iter().map(Node::text).collect();
        let of_log = said.lines().filter(|line| line.contains("log memory-quorum: epoch"));
        let found: BTreeSet<&str> =
            of_log.filter_map(|line| line.split_once(&node)?.1.get(..32)).collect();
        if found.len() >= disks {
            return;
        }
        assert!(Instant::now() < deadline, "its memory does not count:\n{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until every node has written down what comes back of the stream: that is a moment after it was created.
fn wait_kept(nodes: &Nodes) {
    let deadline = Instant::now() + TIMEOUT;
    for node in &nodes.nodes {
        let path = nodes.dir.path().join(&node.name).join("nuthatch/memory-quorum/streams");
        while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"name\":\"M\"")) {
            assert!(Instant::now() < deadline, "it is not kept at {}:\n{}", node.name, node.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn started(name: &str) -> Nodes {
    let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    let info = until(&nodes, 1, CREATE, &stream(), is_made);
    assert_eq!(info["config"]["metadata"]["_nuthatch.log"], "memory-quorum", "{info}");
    nodes
}

#[test]
fn what_is_in_the_memory_of_three_nodes_outlasts_any_one_of_them() {
    let mut nodes = started("memory-one");
    (0..20).for_each(|number| publish(&nodes, 1, number));
    let first = whole(&nodes, 1);
    nodes.nodes[first].kill();
    let other = (first + 1) % NODES;
    expect(&nodes, other, 20);
    (20..40).for_each(|number| publish(&nodes, other, number));
    nodes.nodes[first].start();
    // Its memory is another disk now, which counts when it has everything.
    wait_in_set(&nodes, first, 2);
    let second = whole(&nodes, first);
    nodes.nodes[second].kill();
    let other = (second + 1) % NODES;
    (40..60).for_each(|number| publish(&nodes, other, number));
    expect(&nodes, other, 60);
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    assert!(!said.contains("anew, empty"), "nothing was lost:\n{said}");
}

#[test]
fn a_log_of_which_two_of_three_are_gone_begins_anew_and_says_so() {
    let mut nodes = started("memory-two");
    (0..20).for_each(|number| publish(&nodes, 1, number));
    wait_kept(&nodes);
    let left = whole(&nodes, 1);
    let gone: Vec<usize> = (0..NODES).filter(|at| *at != left).collect();
    gone.iter().for_each(|at| nodes.nodes[*at].kill());
    gone.iter().for_each(|at| nodes.nodes[*at].start());
    // What it held is gone, and that is said; the stream is there again.
    let info = until(&nodes, gone[0], INFO, &Value::Null, is_made);
    assert_eq!(info["state"]["messages"], 0, "{info}");
    let floor = info["state"]["last_seq"].as_u64().expect("a sequence");
    assert!(floor >= 1 << 40, "above every sequence that was given out: {info}");
    // Who creates it again finds it as it was.
    until(&nodes, gone[1], CREATE, &stream(), is_made);
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    let says = |text: &str| said.lines().any(|line| line.contains(text));
    let began = "log memory-quorum: the log began anew, empty, with epoch ";
    let of = "of the 3 nodes that had it in memory 1 still had it, which is no majority";
    assert!(said.lines().any(|line| line.contains(began) && line.contains(of)), "{said}");
    assert!(says("THE MESSAGES OF 1 STREAMS ARE LOST"), "{said}");
    nodes.wait_text(left, "log memory-quorum: the log goes on without what this node had of it");
    (0..20).for_each(|number| publish(&nodes, left, number));
    // Everybody has it again, so any one may go.
    wait_in_set(&nodes, left, 2);
    let owner = whole(&nodes, left);
    nodes.nodes[owner].kill();
    expect(&nodes, (owner + 1) % NODES, 20);
}

/// Waits until a node knows of no owner of the log.
fn wait_unowned(nodes: &Nodes, at: usize) {
    let deadline = Instant::now() + TIMEOUT;
    let is_it = |log: &&Value| log["name"] == "memory-quorum";
    loop {
        let told = ask(&nodes.nodes[at], "LOGS", &Value::Null).expect("answered");
        let log = told["logs"].as_array().expect("logs").iter().find(is_it).expect("the log");
        if log["owner"].is_null() {
            return;
        }
        assert!(Instant::now() < deadline, "it has an owner: {log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two of three memories are lost, of which one is known to be: the other one's node never comes back.
#[test]
fn a_log_waits_for_a_node_that_is_gone_for_good_until_people_say_so() {
    let mut nodes = Nodes::with_catalog(TempDir::new("memory-gone"), "built-in");
    nodes.configure(ACCOUNTS);
    nodes.nodes.iter_mut().for_each(Node::start);
    until(&nodes, 1, CREATE, &stream(), is_made);
    (0..20).for_each(|number| publish(&nodes, 1, number));
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    let forget = |nodes: &Nodes, node: &str, only_look: bool| {
        let body = json!({ "node": node, "dry_run": only_look });
        ask(&nodes.nodes[0], "FORGET_COPIES", &body)
    };
    let refused = forget(&nodes, "n1", false).expect_err("it is to keep the log");
    assert!(refused.contains("nuthatch cluster replace n1"), "{refused}");
    // The new node is not brought the log before another memory is lost.
    nodes.nodes[new].signal("-STOP");
    ask(&nodes.nodes[0], "REPLACE", &json!({"old": "n1", "new": "n3"})).expect("it begins");
    let refused = forget(&nodes, "n1", false).expect_err("it is there");
    assert!(refused.contains("node n1 was heard within 3 s"), "{refused}");
    nodes.nodes[1].kill();
    nodes.nodes[2].kill();
    nodes.nodes[2].start();
    nodes.nodes[new].signal("-CONT");
    let would = loop {
        match forget(&nodes, "n1", true) {
            Ok(would) => break would,
            // It was heard a moment ago, and the other one has just started, which may be the one that answers.
            Err(why) => {
                let knows = ["heard within 3 s", "does not hear", "is to keep the logs", "catalog"];
                assert!(knows.iter().any(|known| why.contains(known)), "{why}");
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let told = ask(&nodes.nodes[0], "NODES", &Value::Null).expect("answered");
    assert_eq!(would["logs"], json!(["memory-quorum"]), "not those on disks: {told}");
    wait_unowned(&nodes, 0);
    let told = ask(&nodes.nodes[0], "NODES", &Value::Null).expect("answered");
    assert_eq!(told["replacing"], json!({"old": "n1", "new": "n3"}), "{told}");
    let deadline = Instant::now() + TIMEOUT;
    while let Err(why) = forget(&nodes, "n1", false) {
        assert!(Instant::now() < deadline, "it is not taken: {why}");
        std::thread::sleep(Duration::from_millis(100));
    }
    nodes.wait_removed(0, "n1");
    let nothing = forget(&nodes, "n1", false).expect("that does no harm");
    assert_eq!(nothing["logs"], json!([]));
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    assert!(said.contains("of the 3 nodes that had it in memory 1 still had it"), "{said}");
    until(&nodes, 2, CREATE, &stream(), is_made);
    (0..20).for_each(|number| publish(&nodes, 2, number));
    expect(&nodes, 0, 20);
}

/// As operators do it: the next node is stopped as soon as the owner says that the others are current.
#[test]
fn nodes_that_are_restarted_as_soon_as_all_are_current_lose_nothing() {
    let mut nodes = started("memory-roll");
    (0..20).for_each(|number| publish(&nodes, 1, number));
    let mut count = 20;
    for at in (0..NODES).chain(0..NODES) {
        whole(&nodes, (at + 1) % NODES);
        nodes.nodes[at].signal("-TERM");
        nodes.nodes[at].ended();
        nodes.nodes[at].start();
        // Nothing is published meanwhile: what it lacks is what it has lost, not what has come since.
        whole(&nodes, (at + 1) % NODES);
        if at == NODES - 1 {
            (count..count + 10).for_each(|number| publish(&nodes, at, number));
            count += 10;
        }
    }
    expect(&nodes, 0, count);
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    assert!(!said.contains("anew, empty"), "nothing was lost:\n{said}");
}

/// One replica is what it was: in the memory of one node.
#[test]
fn a_stream_of_one_replica_stays_in_the_memory_of_one_node() {
    let nodes = started("memory-single");
    let single = json!({"name": "S", "subjects": ["s"], "storage": "memory"});
    let info = until(&nodes, 0, "STREAM.CREATE.S", &single, is_made);
    assert_eq!(info["config"]["metadata"].get("_nuthatch.log"), None, "{info}");
    assert_eq!(info["cluster"]["replicas"], Value::Null, "{info}");
}
