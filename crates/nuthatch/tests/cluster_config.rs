//! The cluster of "Subject-Mapped Partitions in JetStream" (natsbyexample.com), as its files set it up under the name
//! `nats-server`; only ports and paths are other ones. `examples/partitions-cluster` runs the page's own commands.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, OwnedMessage, RequestError};
use quorum_nodes::{ANSWER, NODES, Node, free_ports};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;
use support::{TIMEOUT, TempDir, api, api_ok, stream_state};

const PARTITIONS: u32 = 5;
const MESSAGES: u32 = 20_000;

const ACCOUNTS: &str = r#"
accounts: {
  SYS: {
    users: [{user: sys, password: sys}]
  }

  APP: {
    jetstream: true,
    users: [{user: app, password: app}]
    mappings: {
      "events.*": "events.{{wildcard(1)}}.{{partition(5,1)}}"
    }
  }
}

system_account: SYS
"#;

fn config(name: &str, port: u16, peers: &[u16], own: u16, dir: &Path) -> String {
    let routes: String =
        peers.iter().map(|peer| format!("    \"nats-route://0.0.0.0:{peer}\",\n")).collect();
    let dir = dir.join(name);
    format!(
        "port: {port}\nhttp_port: -1\nserver_name: {name}\n\ninclude accounts.conf\n\njetstream: {{\n  \
         store_dir: \"{}\"\n}}\n\ncluster: {{\n  name: c1,\n  port: {own},\n  routes: [\n{routes}  ],\n}}\n",
        dir.display()
    )
}

/// Three processes that were called `nats-server`.
fn started(dir: &TempDir) -> Vec<Node> {
    let ports = free_ports(2 * NODES);
    let (clients, peers) = ports.split_at(NODES);
    std::fs::write(dir.path().join("accounts.conf"), ACCOUNTS).expect("written");
    let node = |at: usize| {
        let name = format!("n{}", at + 1);
        let file = dir.path().join(format!("{name}.conf"));
        let text = config(&name, clients[at], peers, peers[at], dir.path());
        std::fs::write(&file, text).expect("written");
        let args = vec!["-c".to_owned(), file.display().to_string()];
        let log = dir.path().join(format!("{name}.log"));
        let mut node = Node::new(name, clients[at], args, log);
        node.start_as("nats-server");
        node
    };
    (0..NODES).map(node).collect()
}

fn connect(node: &Node) -> Client {
    node.client("app:app@")
}

/// What the page's `nats stream add` sends.
fn stream(partition: u32) -> Value {
    json!({
        "name": format!("events-{partition}"), "subjects": [format!("events.*.{partition}")],
        "retention": "limits", "storage": "file", "num_replicas": 3, "discard": "old",
        "duplicate_window": 120_000_000_000_u64, "max_age": 0, "max_msgs": -1, "max_bytes": -1,
        "max_msg_size": -1, "max_msgs_per_subject": -1, "max_consumers": -1, "allow_rollup_hdrs": true,
        "deny_delete": false, "deny_purge": false,
    })
}

/// Makes a stream, once the log has an owner.
fn make(client: &mut Client, config: &Value) {
    let subject = format!("$JS.API.STREAM.CREATE.{}", config["name"].as_str().expect("a name"));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = client.request(&subject, b"", config.to_string().as_bytes(), ANSWER);
        let is_made = |told: &OwnedMessage| {
            let body: Value = serde_json::from_slice(&told.payload).unwrap_or_default();
            body["config"].is_object()
        };
        if answer.as_ref().is_ok_and(is_made) {
            return;
        }
        assert!(Instant::now() < deadline, "{config}: {answer:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn leader(client: &mut Client, partition: u32) -> Option<String> {
    let subject = format!("$JS.API.STREAM.INFO.events-{partition}");
    let info = client.request(&subject, b"", b"", ANSWER).ok()?;
    let info: Value = serde_json::from_slice(&info.payload).ok()?;
    info["cluster"]["leader"].as_str().map(str::to_owned)
}

/// Waits until the streams are led by all nodes: each node owns a log then, and each log has streams.
fn wait_spread(client: &mut Client) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let leaders: Vec<_> = (0..PARTITIONS).map(|number| leader(client, number)).collect();
        if leaders.iter().flatten().collect::<BTreeSet<_>>().len() == NODES {
            return;
        }
        assert!(Instant::now() < deadline, "they are not spread: {leaders:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The partition that nats-server documents: FNV-1a of the token, modulo their number.
fn partition(token: &str) -> u32 {
    let hash = token
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % PARTITIONS
}

/// Publishes at every node; each message is acknowledged once.
fn publish(nodes: &[Node]) {
    let mut clients: Vec<Client> = nodes.iter().map(connect).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let inbox = format!("{}.acks", client.inbox());
        client.subscribe(&inbox, "").expect("subscribed");
        client.round_trip(TIMEOUT).expect("taken");
        let own = (0..MESSAGES).filter(|number| *number as usize % NODES == at);
        for number in own.clone() {
            let subject = format!("events.{number}");
            client
                .writer
                .publish(subject.as_bytes(), inbox.as_bytes(), b"", b"partitioned")
                .expect("queued");
        }
        client.writer.flush().expect("sent");
        for _ in own {
            let ack = client.next_message(Instant::now() + TIMEOUT).expect("an acknowledgement");
            assert!(ack.payload.starts_with(b"{\"stream\":\"events-"), "{ack:?}");
        }
    }
}

/// Asks until all replicas are told as current: one that is a few frames behind just after publishing is not.
fn kept_on_three(client: &mut Client, subject: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let info = loop {
        let info = api_ok(client, subject, &Value::Null);
        let replicas = info["cluster"]["replicas"].as_array().expect("replicas");
        if replicas.iter().all(|replica| replica["current"] == true) {
            break info;
        }
        assert!(Instant::now() < deadline, "not current: {info}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let cluster = &info["cluster"];
    let replicas = cluster["replicas"].as_array().expect("replicas").iter();
    let names = replicas.map(|replica| &replica["name"]).chain([&cluster["leader"]]);
    let names: BTreeSet<_> = names.map(|name| name.as_str().expect("a name")).collect();
    assert_eq!(names, BTreeSet::from(["n1", "n2", "n3"]), "{cluster}");
    assert_eq!(
        (cluster["name"].as_str(), &info["config"]["num_replicas"]),
        (Some("c1"), &json!(3))
    );
    // What tests of nats.c and nats.rs look for.
    let of = if subject.contains("CONSUMER") { "C-R3" } else { "S-R3" };
    assert!(cluster["raft_group"].as_str().is_some_and(|name| name.starts_with(of)), "{cluster}");
    assert_eq!(
        (&cluster["system_account"], &cluster["traffic_account"]),
        (&json!(true), &json!("SYS"))
    );
    let since = cluster["leader_since"].as_str().expect("a time");
    assert!(since.starts_with("20") && since.ends_with('Z'), "{cluster}");
    client.round_trip(TIMEOUT).expect("it is connected");
}

fn refused(client: &mut Client, config: &Value, why: &str) {
    let answer = api(client, "STREAM.CREATE.R", config);
    let error = &answer["error"];
    assert_eq!((&error["err_code"], error["description"].as_str()), (&json!(10005), Some(why)));
}

/// The owner is stopped until another node has followed, and goes on as a keeper in the same process.
fn an_owner_that_was_replaced_comes_back(nodes: &[Node]) {
    let leader = |client: &mut Client| leader(client, 0);
    let deadline = Instant::now() + TIMEOUT;
    let former = leader(&mut connect(&nodes[0])).expect("a leader");
    let stopped = nodes.iter().find(|node| node.name == former).expect("one of them");
    let other = nodes.iter().find(|node| node.name != former).expect("another one");
    stopped.signal("-STOP");
    let mut client = connect(other);
    while leader(&mut client).is_none_or(|leader| leader == former) {
        assert!(Instant::now() < deadline, "nobody follows:\n{}", other.text());
    }
    stopped.signal("-CONT");
    while !stopped.text().contains("goes on as a keeper") {
        assert!(Instant::now() < deadline, "it does not hear of it:\n{}", stopped.text());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(stopped.text().matches("Server is ready").count(), 1, "{}", stopped.text());
    let mut client = connect(stopped);
    while leader(&mut client).is_none() {
        assert!(Instant::now() < deadline, "it serves no JetStream:\n{}", stopped.text());
    }
}

#[test]
fn the_files_of_a_nats_cluster_make_one() {
    let dir = TempDir::new("cluster-config");
    let nodes = started(&dir);
    let mut first = connect(&nodes[0]);
    (0..PARTITIONS).for_each(|number| make(&mut first, &stream(number)));
    wait_spread(&mut first);
    publish(&nodes);
    let mut expected = [0_u64; PARTITIONS as usize];
    (0..MESSAGES).for_each(|number| expected[partition(&number.to_string()) as usize] += 1);
    for node in &nodes {
        let mut client = connect(node);
        for (number, expected) in expected.iter().enumerate() {
            let name = format!("events-{number}");
            assert_eq!(stream_state(&mut client, &name)["messages"], *expected, "{name}");
            kept_on_three(&mut client, &format!("STREAM.INFO.{name}"));
        }
    }
    let consumer = json!({"stream_name": "events-0", "config":
        {"durable_name": "c", "ack_policy": "explicit", "num_replicas": 3}});
    api_ok(&mut first, "CONSUMER.CREATE.events-0.c", &consumer);
    kept_on_three(&mut first, "CONSUMER.INFO.events-0.c");
    let base = json!({"name": "R", "subjects": ["r"], "num_replicas": 5});
    let why = "no suitable peers for placement: 5 replicas are asked for and there are 3 nodes";
    refused(&mut first, &base, why);
    let memory = json!({"name": "R", "subjects": ["r"], "num_replicas": 3, "storage": "memory"});
    api_ok(&mut first, "STREAM.CREATE.R", &memory);
    kept_on_three(&mut first, "STREAM.INFO.R");
    let memory = json!({"name": "R1", "subjects": ["r1"], "storage": "memory"});
    api_ok(&mut first, "STREAM.CREATE.R1", &memory);
    let memory = json!({"name": "R1", "subjects": ["r1"], "storage": "memory", "num_replicas": 3});
    let answer =
        first.request("$JS.API.STREAM.UPDATE.R1", b"", memory.to_string().as_bytes(), ANSWER);
    let answer = String::from_utf8_lossy(&answer.expect("answered").payload).into_owned();
    assert!(answer.contains("log 'memory' is on one node"), "{answer}");
    let nobody: Result<OwnedMessage, RequestError> = first.request("nobody", b"", b"", ANSWER);
    assert!(matches!(nobody, Err(RequestError::NoResponders(_))), "{nobody:?}");
    an_owner_that_was_replaced_comes_back(&nodes);
}
