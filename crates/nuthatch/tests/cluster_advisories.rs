//! Advisories of a cluster (`docs/nats-compatibility.md`): who leads streams and consumers of several replicas, that they have
//! lost their majority, and that a node decides about streams.

mod quorum_nodes;
mod support;

use nuthatch_client::Client;
use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, api_ok, read_all};

const ACCOUNTS: &str = "
    accounts {
        SYS { users: [ { user: sys, password: pw } ] }
        APP { jetstream: enabled, users: [ { user: app, password: pw } ] }
    }
    system_account: SYS
";
const APP: &str = "app:pw@";
const SYSTEM: &str = "sys:pw@";
const LEADERS: &str = "$JS.EVENT.ADVISORY.*.LEADER_ELECTED.>";
const LOST: &str = "$JS.EVENT.ADVISORY.*.QUORUM_LOST.>";
const DOMAIN: &str = "$JS.EVENT.ADVISORY.DOMAIN.LEADER_ELECTED";

/// Nothing more comes within this.
const QUIET: Duration = Duration::from_millis(500);

fn started(name: &str) -> Nodes {
    let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
    nodes.configure(ACCOUNTS);
    nodes.nodes.iter_mut().for_each(Node::start);
    // Each log has the owner that it is to have: none goes to another node by itself any more.
    for at in 0..NODES {
        let number = if at == 0 { String::new() } else { format!(" {at}") };
        let owns = format!("owns {}quorum log{number} (epoch ", if at == 0 { "the " } else { "" });
        nodes.wait_text(at, &owns);
        nodes.wait_text(at, &format!("Quorum log {at} is served here"));
    }
    nodes
}

fn listener(node: &Node, user: &str) -> Client {
    let mut client = node.client(user);
    for subject in [LEADERS, LOST, DOMAIN] {
        client.subscribe(subject, "").expect("subscribed");
    }
    client.round_trip(TIMEOUT).expect("taken");
    client
}

/// The next advisory on a subject; others are passed over.
fn heard(client: &mut Client, subject: &str) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let message = client.next_message(deadline);
        let message = message.unwrap_or_else(|error| panic!("nothing on {subject}: {error}"));
        if message.subject == subject {
            return serde_json::from_slice(&message.payload).expect("JSON");
        }
    }
}

/// Subjects of all that comes until nothing does for a while.
fn rest(client: &mut Client) -> Vec<String> {
    let mut subjects = Vec::new();
    while let Ok(message) = client.next_message(Instant::now() + QUIET) {
        subjects.push(message.subject);
    }
    subjects
}

fn create(client: &mut Client, stream: &str, subject: &str, replicas: usize) -> Value {
    let body = json!({"name": stream, "subjects": [subject], "num_replicas": replicas});
    // Another node may still be to say what it has.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let call = format!("$JS.API.STREAM.CREATE.{stream}");
        let answer = client.request(&call, b"", body.to_string().as_bytes(), ANSWER);
        let answer = answer.map(|answer| serde_json::from_slice::<Value>(&answer.payload));
        match answer {
            Ok(Ok(answer)) if answer.get("error").is_none() => return answer,
            other => assert!(Instant::now() < deadline, "{stream} is not created: {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn durable(client: &mut Client, stream: &str, name: &str, replicas: usize) {
    let config = json!({"durable_name": name, "ack_policy": "explicit", "num_replicas": replicas});
    let body = json!({"stream_name": stream, "config": config});
    api_ok(client, &format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &body);
}

/// Names of replicas, the leader first.
fn names(advisory: &Value) -> Vec<&str> {
    let replicas = advisory["replicas"].as_array().expect("an array");
    replicas.iter().map(|peer| peer["name"].as_str().expect("a name")).collect()
}

#[test]
fn leaders_are_told_to_the_account_and_to_the_system_account() {
    let nodes = started("cluster-advisories");
    let mut client = nodes.nodes[0].client(APP);
    create(&mut client, "KEPT", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>", 1);
    let mut own = listener(&nodes.nodes[1], APP);
    let mut system = listener(&nodes.nodes[2], SYSTEM);
    let subject = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S";
    let leader = create(&mut client, "S", "s", 3)["cluster"]["leader"].clone();
    let told = heard(&mut own, subject);
    assert_eq!(told["type"], "io.nats.jetstream.advisory.v1.stream_leader_elected");
    assert_eq!((&told["stream"], &told["leader"]), (&json!("S"), &leader));
    assert_eq!((told.get("account"), told.get("consumer")), (None, None));
    assert_eq!((names(&told).len(), names(&told)[0]), (NODES, leader.as_str().expect("a name")));
    let with_account = heard(&mut system, subject);
    assert_eq!((&with_account["account"], &with_account["id"]), (&json!("APP"), &told["id"]));

    // What is on one node for its clients, what is asked for again, and changes that change no leader are not told.
    create(&mut client, "ONE", "one", 1);
    create(&mut client, "S", "s", 3);
    durable(&mut client, "S", "ONE", 1);
    let temporary = json!({"stream_name": "S", "config": {"ack_policy": "explicit"}});
    api_ok(&mut client, "CONSUMER.CREATE.S", &temporary);
    assert_eq!(rest(&mut own), Vec::<String>::new());

    durable(&mut client, "S", "C", 0);
    durable(&mut client, "S", "C", 0);
    let consumer = "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.S.C";
    let told = heard(&mut own, consumer);
    assert_eq!(told["type"], "io.nats.jetstream.advisory.v1.consumer_leader_elected");
    assert_eq!((&told["stream"], &told["consumer"]), (&json!("S"), &json!("C")));
    assert_eq!(heard(&mut system, consumer)["account"], "APP");
    assert_eq!(rest(&mut own), Vec::<String>::new(), "each once");

    // More replicas than one: from now on it is told of.
    let more = json!({"name": "ONE", "subjects": ["one"], "num_replicas": 3});
    api_ok(&mut client, "STREAM.UPDATE.ONE", &more);
    heard(&mut own, "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.ONE");

    let api = "$JS.API.STREAM.LEADER.STEPDOWN.S";
    client.request(api, b"", b"", TIMEOUT).expect("answered");
    let told = heard(&mut own, subject);
    assert_ne!(told["leader"], leader);
    assert_eq!(heard(&mut own, consumer)["leader"], told["leader"]);
    stored(&mut client);
}

/// A stream has what it asks for of the advisories, wherever it is.
fn stored(client: &mut Client) {
    let deadline = Instant::now() + TIMEOUT;
    let stored = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S";
    loop {
        let all = read_all(client, "KEPT", 1);
        let count = all.iter().filter(|(_, message)| message.subject == stored).count();
        if count >= 2 {
            return;
        }
        assert!(Instant::now() < deadline, "{count} were stored");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_decides_about_streams_is_told_to_the_system_account_alone() {
    let nodes = started("cluster-domain-led");
    let mut system = listener(&nodes.nodes[1], SYSTEM);
    let mut own = listener(&nodes.nodes[1], APP);
    let mut asking = nodes.nodes[2].client(SYSTEM);
    asking.request("$JS.API.META.LEADER.STEPDOWN", b"", b"", TIMEOUT).expect("answered");
    let told = heard(&mut system, DOMAIN);
    assert_eq!(told["type"], "io.nats.jetstream.advisory.v1.domain_leader_elected");
    // As nats-server has it, the leader is named by its id.
    assert_eq!(told["leader"], told["replicas"][0]["peer"]);
    assert_ne!(names(&told)[0], nodes.nodes[0].name);
    assert!(told["cluster"].as_str().is_some_and(|name| !name.is_empty()));
    assert_eq!(rest(&mut own), Vec::<String>::new());
}

#[test]
fn a_lost_majority_is_told_and_so_is_who_leads_when_it_is_back() {
    let mut nodes = started("cluster-majority-lost");
    let mut client = nodes.nodes[0].client(APP);
    let mut own = listener(&nodes.nodes[0], APP);
    let mut system = listener(&nodes.nodes[0], SYSTEM);
    // One that is led by the node that stays.
    let led_here = |number: usize, client: &mut Client| {
        let name = format!("S{number}");
        let made = create(client, &name, &format!("s.{number}"), 3);
        (made["cluster"]["leader"] == nodes.nodes[0].name).then_some(name)
    };
    let stream = (0..2 * NODES).find_map(|number| led_here(number, &mut client)).expect("one");
    durable(&mut client, &stream, "C", 0);
    heard(&mut own, &format!("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{stream}.C"));
    rest(&mut own);
    nodes.nodes[1..].iter_mut().for_each(Node::kill);

    let subject = format!("$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.{stream}");
    let told = heard(&mut own, &subject);
    assert_eq!(told["type"], "io.nats.jetstream.advisory.v1.stream_quorum_lost");
    assert_eq!((&told["stream"], told.get("leader")), (&json!(stream), None));
    let offline = |peer: &Value| peer["offline"] == true && peer["current"] == false;
    let replicas = told["replicas"].as_array().expect("an array");
    assert_eq!(replicas.iter().filter(|peer| offline(peer)).count(), NODES - 1, "{replicas:?}");
    heard(&mut own, &format!("$JS.EVENT.ADVISORY.CONSUMER.QUORUM_LOST.{stream}.C"));
    assert_eq!(heard(&mut system, &subject)["account"], "APP");
    nodes.wait_text(0, "has NO quorum, stalled");

    nodes.nodes[1..].iter_mut().for_each(Node::start);
    heard(&mut own, &format!("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{stream}"));
    heard(&mut own, &format!("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{stream}.C"));
}
