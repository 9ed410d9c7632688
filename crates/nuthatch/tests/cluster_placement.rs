//! Where streams are in a cluster by the tags of their placement and of the nodes, with nats-server's rules. Real processes.

mod quorum_nodes;
mod support;

use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir};

/// Three nodes: all with `ssd` and a zone of which two are the same, each with a tag of its own.
fn tagged(name: &str, more: &str) -> Nodes {
    let mut nodes = Nodes::of(NODES, TempDir::new(name), "built-in");
    for (at, node) in nodes.nodes.iter_mut().enumerate() {
        let path = nodes.dir.path().join(format!("{}.conf", node.name));
        let zone = if at == 2 { "az:b" } else { "az:a" };
        let text = format!("server_tags: [SSD, \"{zone}\", \"id:{}\"]\n{more}\n", node.name);
        std::fs::write(&path, text).expect("written");
        node.args.extend(["-c".to_owned(), path.display().to_string()]);
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_stream();
    nodes
}

fn asked(nodes: &Nodes, at: usize, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = nodes.client(at).request(&format!("$JS.API.{call}"), b"", body.as_bytes(), ANSWER);
    serde_json::from_slice(&answer.expect("an answer").payload).expect("JSON")
}

fn create(nodes: &Nodes, name: &str, replicas: u64, placement: &Value) -> Value {
    let config =
        json!({"name": name, "subjects": [name], "num_replicas": replicas, "placement": placement});
    let call = format!("STREAM.CREATE.{name}");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // Leaders go to their places meanwhile.
        let answer = asked(nodes, 1, &call, &config);
        if answer["error"]["err_code"] != 10008 || Instant::now() > deadline {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn refused(answer: &Value) -> String {
    assert_eq!(answer["error"]["err_code"], 10005, "{answer}");
    answer["error"]["description"].as_str().expect("a text").to_owned()
}

#[test]
fn streams_are_placed_by_the_tags_of_nodes() {
    let mut nodes = tagged("placed", "");
    let log = |answer: &Value| {
        let log = answer["config"]["metadata"]["_nuthatch.log"].as_str().unwrap_or("default");
        log.to_owned()
    };
    // What all nodes have, in any case of letters.
    let all = create(&nodes, "ALL", 3, &json!({"tags": ["ssd", "!gpu"]}));
    assert!(all.get("error").is_none() && log(&all).starts_with("default"), "{all}");
    // One replica at just one node.
    for at in 0..NODES {
        let (name, tag) = (format!("ONE{at}"), format!("ID:n{at}"));
        let one = create(&nodes, &name, 1, &json!({"tags": [tag]}));
        assert_eq!(
            (log(&one), &one["cluster"]["leader"]),
            ("local".to_owned(), &json!(format!("n{at}"))),
            "{one}"
        );
        support::publish_ok(&mut nodes.client(2), &name, b"x");
    }
    let why = refused(&create(&nodes, "BAD", 3, &json!({"tags": ["id:n1"]})));
    assert!(why.contains("no suitable peers for placement, tags not matched ['id:n1']"), "{why}");
    let why = refused(&create(&nodes, "BAD", 1, &json!({"tags": ["gpu", "ssd"]})));
    assert!(why.contains("tags not matched ['gpu', 'ssd']"), "{why}");
    let why = refused(&create(&nodes, "BAD", 1, &json!({"tags": ["!ssd"]})));
    assert!(why.contains("tags excluded ['ssd']"), "{why}");
    let why = refused(&create(&nodes, "BAD", 1, &json!({"cluster": "elsewhere"})));
    assert!(why.contains("there is no cluster \"elsewhere\""), "{why}");
    // An update that is not satisfied where the stream is, and what is kept by all nodes.
    let config = |replicas, tag| json!({"name": "ONE1", "subjects": ["ONE1"], "num_replicas": replicas, "placement": {"tags": [tag]}});
    refused(&asked(&nodes, 0, "STREAM.UPDATE.ONE1", &config(1, "id:n2")));
    refused(&asked(&nodes, 0, "STREAM.UPDATE.ONE1", &config(3, "id:n1")));
    refused(&asked(&nodes, 0, "STREAM.MOVE.ONE1", &json!({"log": "default"})));
    let raised = asked(&nodes, 0, "STREAM.UPDATE.ONE1", &config(3, "ssd"));
    assert!(raised.get("error").is_none(), "{raised}");
    let deadline = Instant::now() + TIMEOUT;
    let is_raised = |info: &Value| info.get("error").is_none() && log(info).starts_with("default");
    while !is_raised(&asked(&nodes, 0, "STREAM.INFO.ONE1", &Value::Null)) {
        assert!(Instant::now() < deadline, "it does not move:\n{}", nodes.nodes[1].text());
        std::thread::sleep(Duration::from_millis(50));
    }
    // The log of one node is there again after a start, with what is in it.
    nodes.nodes[2].kill();
    nodes.nodes[2].start();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let info = asked(&nodes, 0, "STREAM.INFO.ONE2", &Value::Null);
        if info["state"]["messages"] == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "{info}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn replicas_share_no_value_of_the_unique_tag() {
    let nodes = tagged("unique", "jetstream { unique_tag: \"az:\" }");
    let two = create(&nodes, "TWO", 2, &Value::Null);
    assert!(two.get("error").is_none(), "{two}");
    let three = json!({"name": "TWO", "subjects": ["TWO"], "num_replicas": 3});
    refused(&asked(&nodes, 0, "STREAM.UPDATE.TWO", &three));
    let why = refused(&create(&nodes, "THREE", 3, &Value::Null));
    assert!(why.contains("server tag not unique"), "{why}");
}
