//! Standbys: nodes follow logs that other nodes own, and take them over from where they have read to. Real processes.

mod quorum_nodes;
mod support;

use quorum_nodes::{NODES, Node, Nodes};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{TIMEOUT, api_ok};

/// Has every log followed, however small it is.
const ALL: &str = "jetstream { quorum { standby_above: '0s' } }\n";

/// As the log of a start or of a takeover says it.
const FOLLOWED: &str = "(followed to position ";

/// Messages that are published between two takeovers.
const ROUND: u64 = 40;

/// Acknowledges so many messages that a consumer gives next.
fn acknowledge(nodes: &Nodes, count: u64) {
    let (mut client, _) = nodes.owner();
    let inbox = format!("{}.pull", client.inbox());
    client.subscribe(&inbox, "").expect("subscribed");
    let body = json!({"batch": count, "expires": 30_000_000_000_u64}).to_string();
    let (to, from) = (b"$JS.API.CONSUMER.MSG.NEXT.Q.C", inbox.as_bytes());
    client.writer.publish(to, from, b"", body.as_bytes()).expect("sent");
    let deadline = Instant::now() + TIMEOUT;
    let next = |_| client.next_message(deadline).expect("a message").reply.expect("a message's");
    let replies: Vec<String> = (0..count).map(next).collect();
    for reply in replies {
        client.request(&reply, b"", b"+ACK", TIMEOUT).expect("the acknowledgement is confirmed");
    }
}

/// Waits until a node follows the first log, which it has owned before perhaps.
fn wait_followed(node: &Node) {
    let deadline = Instant::now() + TIMEOUT;
    let follows = |said: &str| {
        let last = |text: &str| said.rfind(text);
        last("Quorum log 0 is followed here") > last("owns the quorum log (epoch")
    };
    while !follows(&node.text()) {
        assert!(Instant::now() < deadline, "{}", node.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Owners are killed one after the other. Each takeover goes on from what was followed, and messages, what was deleted and
/// how far a consumer has come are as they were.
#[test]
fn owners_take_over_from_where_they_have_followed_to() {
    let mut nodes = Nodes::new("standby");
    nodes.configure(ALL);
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    let consumer =
        json!({"stream_name": "Q", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api_ok(&mut nodes.owner().0, "CONSUMER.DURABLE.CREATE.Q.C", &consumer);
    let mut count = 0;
    for round in 1..=4 {
        (count..count + ROUND).for_each(|number| nodes.publish(number));
        count += ROUND;
        acknowledge(&nodes, 10);
        let delete = json!({"seq": round * ROUND});
        api_ok(&mut nodes.owner().0, "STREAM.MSG.DELETE.Q", &delete);
        let (_, owner) = nodes.owner();
        for at in (0..NODES).filter(|at| *at != owner) {
            wait_followed(&nodes.nodes[at]);
        }
        nodes.nodes[owner].kill();
        let (mut client, next) = nodes.owner();
        let said = nodes.nodes[next].text();
        // Another log without streams may have been taken over beside it.
        let is_of_log = |line: &&str| line.contains("Recovered:       1 streams");
        let recovered = said.lines().rfind(is_of_log).expect("it is said");
        assert!(recovered.contains(FOLLOWED), "{said}");
        let info = api_ok(&mut client, "STREAM.INFO.Q", &Value::Null);
        let state = &info["state"];
        assert_eq!((&state["last_seq"], &state["num_deleted"]), (&json!(count), &json!(round)));
        let info = api_ok(&mut client, "CONSUMER.INFO.Q.C", &Value::Null);
        assert_eq!(info["ack_floor"]["consumer_seq"], json!(10 * round));
        nodes.nodes[owner].start();
    }
    let found = nodes.read_all("Q");
    let bodies =
        found.iter().map(|(_, message)| String::from_utf8_lossy(&message.payload).into_owned());
    let kept =
        (0..count).filter(|number| (number + 1) % ROUND != 0).map(|number| number.to_string());
    assert_eq!(bodies.collect::<Vec<_>>(), kept.collect::<Vec<_>>());
}

/// Without memory for it nothing is followed, and takeovers are as they were.
#[test]
fn nothing_is_followed_without_memory_for_it() {
    let mut nodes = Nodes::new("no-standby");
    nodes.configure("jetstream { quorum { standby_above: '0s', standby_memory: 0 } }\n");
    nodes = nodes.begun();
    nodes.outlive_owners();
    for node in &nodes.nodes {
        let said = node.text();
        assert!(!said.contains("is followed here") && !said.contains(FOLLOWED), "{said}");
    }
}
