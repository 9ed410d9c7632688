//! A broker in this process and two processes of `nuthatch serve` are the nodes of one cluster.

mod quorum_nodes;
mod support;

use nuthatch_embed::{Broker, Config};
use quorum_nodes::{ANSWER, Node, Nodes};
use std::time::Instant;
use support::{TIMEOUT, TempDir, read_all};

/// The settings of a node's command line, as a text.
fn text_of(node: &Node) -> String {
    let after = |flag: &str| {
        let at = node.args.iter().position(|arg| arg == flag).expect("it is given");
        &node.args[at + 1]
    };
    let (host, port) = after("--cluster-listen").split_once(':').expect("an address");
    let routes: Vec<String> =
        after("--routes").split(',').map(|route| format!("nats://{route}")).collect();
    format!(
        "server_name: {}, host: 127.0.0.1, port: {}, jetstream {{ store_dir: {:?} }}\n\
         cluster {{ name: c, host: {host}, port: {port}, routes: [{}] }}",
        node.name,
        node.port,
        after("-sd"),
        routes.join(", ")
    )
}

fn open(nodes: &Nodes) -> Broker {
    let config = Config::from_text(&text_of(&nodes.nodes[0])).expect("a configuration");
    Broker::open(config).expect("open")
}

fn create(nodes: &Nodes) {
    let config = br#"{"name":"Q","subjects":["Q.>"],"num_replicas":3}"#;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let asked = nodes.client(0).request("$JS.API.STREAM.CREATE.Q", b"", config, ANSWER);
        let told = asked.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
        if told.as_ref().is_ok_and(|told| !told.contains("\"error\"")) {
            return;
        }
        assert!(Instant::now() < deadline, "the stream is not created: {told:?}");
    }
}

/// Each of the three goes and comes back: the broker closed, a process told to end, the other one killed.
#[test]
fn a_broker_and_two_processes_are_a_cluster() {
    let mut nodes = Nodes::with_catalog(TempDir::new("embedded-node"), "built-in");
    (1..3).for_each(|at| nodes.nodes[at].start());
    let broker = open(&nodes);
    create(&nodes);
    let mut numbers = 0..;
    let mut publish = |nodes: &Nodes, at: usize| {
        numbers.by_ref().take(20).for_each(|number| nodes.publish_at(at, number));
    };
    (0..3).for_each(|at| publish(&nodes, at));
    broker.close().expect("a clean close");
    (1..3).for_each(|at| publish(&nodes, at));
    let broker = open(&nodes);
    publish(&nodes, 0);
    nodes.nodes[1].signal("-TERM");
    publish(&nodes, 0);
    assert!(nodes.nodes[1].ended().success(), "{}", nodes.nodes[1].text());
    nodes.nodes[1].start();
    publish(&nodes, 1);
    nodes.nodes[2].kill();
    (0..2).for_each(|at| publish(&nodes, at));
    nodes.nodes[2].start();
    (0..3).for_each(|at| publish(&nodes, at));
    let count = numbers.next().expect("numbers do not end");
    let found = read_all(&mut nodes.client(0), "Q", 1);
    let number = |payload: &[u8]| String::from_utf8_lossy(payload).parse().expect("a number");
    let found: Vec<usize> = found.iter().map(|(_, message)| number(&message.payload)).collect();
    assert_eq!(found, (0..count).collect::<Vec<_>>());
    assert_eq!(broker.fault(), None);
    broker.close().expect("a clean close");
}
