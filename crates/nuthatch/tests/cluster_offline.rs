//! Streams in the log of just one node while that node is away: their names are nobody else's, who asks is told why they are
//! not there, also by nodes that were started since, and what is gone for good can be given up. Real processes.

mod quorum_nodes;
mod support;

use quorum_nodes::{ACCOUNTS, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir};

const OFFLINE: i64 = 10194;
const PAUSE: Duration = Duration::from_millis(50);

/// Three nodes, of which the first has two streams that are on it only.
fn with_own_streams(name: &str) -> Nodes {
    let mut nodes = Nodes::of(NODES, TempDir::new(name), "built-in");
    for node in &mut nodes.nodes {
        let path = nodes.dir.path().join(format!("{}.conf", node.name));
        let text = format!("server_tags: [\"id:{}\"]\n{ACCOUNTS}", node.name);
        std::fs::write(&path, text).expect("written");
        node.args.extend(["-c".to_owned(), path.display().to_string()]);
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_stream();
    for name in ["OWN", "KV_OWN"] {
        nodes.until(1, &format!("STREAM.CREATE.{name}"), &own(name), |made| {
            made["config"]["metadata"]["_nuthatch.log"] == "local"
        });
    }
    support::publish_ok(&mut nodes.client(2), "OWN", b"kept");
    nodes
}

fn own(name: &str) -> Value {
    json!({"name": name, "subjects": [name], "num_replicas": 1, "placement": {"tags": ["id:n0"]}})
}

/// Waits until the other two nodes have written down what the first one has.
fn until_written(nodes: &Nodes) {
    let deadline = Instant::now() + TIMEOUT;
    for node in &nodes.nodes[1..] {
        let file = nodes.dir.path().join(&node.name).join("nuthatch/other-nodes/streams");
        let has = |name: &str| {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.contains(&format!("\"name\":\"{name}\""))
        };
        while !has("OWN") || !has("KV_OWN") {
            assert!(Instant::now() < deadline, "{}", file.display());
            sleep(PAUSE);
        }
    }
}

fn is_offline(answer: &Value) -> bool {
    answer["error"]["err_code"] == OFFLINE
}

fn is_well(answer: &Value) -> bool {
    answer.get("error").is_none()
}

/// What two nodes say while the first is away.
fn check_offline(nodes: &Nodes) {
    for at in 1..NODES {
        let info = nodes.until(at, "STREAM.INFO.OWN", &Value::Null, is_offline);
        let why = info["error"]["description"].as_str().expect("a text");
        assert!(why.contains("node n0, which is away"), "{why}");
        // The same again is what would have made an empty second one.
        nodes.until(at, "STREAM.CREATE.OWN", &own("OWN"), is_offline);
        let other = json!({"name": "OWN", "subjects": ["other"], "num_replicas": 3});
        nodes.until(at, "STREAM.CREATE.OWN", &other, is_offline);
        let overlapping = json!({"name": "NEXT", "subjects": ["OWN"], "num_replicas": 3});
        nodes.until(at, "STREAM.CREATE.NEXT", &overlapping, |answer| {
            answer["error"]["err_code"] == 10065
        });
        for call in ["STREAM.DELETE.OWN", "CONSUMER.INFO.OWN.D", "STREAM.PURGE.OWN"] {
            nodes.until(at, call, &Value::Null, is_offline);
        }
        nodes.until(at, "STREAM.UPDATE.OWN", &own("OWN"), is_offline);
        nodes.until(at, "STREAM.NAMES", &Value::Null, |names| {
            names["streams"].as_array().is_some_and(|all| all.contains(&json!("OWN")))
        });
        nodes.until(at, "STREAM.LIST", &Value::Null, |list| {
            list["offline"]["OWN"].is_string() && list["total"] == 3
        });
    }
}

#[test]
fn what_only_a_node_has_is_offline_with_it_and_nobody_takes_its_names() {
    let mut nodes = with_own_streams("offline");
    until_written(&nodes);
    nodes.nodes[0].kill();
    check_offline(&nodes);
    // Whoever is started meanwhile knows it from its disk.
    for at in 1..NODES {
        nodes.nodes[at].kill();
    }
    for at in 1..NODES {
        nodes.nodes[at].start();
    }
    check_offline(&nodes);
    nodes.nodes[0].start();
    for at in 0..NODES {
        let info = nodes.until(at, "STREAM.INFO.OWN", &Value::Null, is_well);
        assert_eq!(info["state"]["messages"], 1, "{info}");
    }
    // A clean end is none of its streams either.
    nodes.nodes[0].signal("-TERM");
    nodes.nodes[0].ended();
    nodes.until(1, "STREAM.INFO.OWN", &Value::Null, is_offline);
    nodes.nodes[0].start();
    nodes.until(1, "STREAM.INFO.OWN", &Value::Null, is_well);
    nodes.until(2, "STREAM.DELETE.OWN", &Value::Null, is_well);
    nodes.nodes[0].kill();
    let made = json!({"name": "OWN", "subjects": ["OWN"], "num_replicas": 3});
    nodes.until(2, "STREAM.CREATE.OWN", &made, is_well);
}

fn cluster(nodes: &Nodes, at: usize, arguments: &[&str]) -> (bool, String) {
    let url = format!("nats://sys:pw@127.0.0.1:{}", nodes.nodes[at].port);
    let done = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["cluster", "-s", &url])
        .args(arguments)
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.success(), text(&done.stdout) + &text(&done.stderr))
}

#[test]
fn a_disk_that_is_gone_keeps_its_names_until_it_is_given_up() {
    let mut nodes = with_own_streams("forgotten");
    let (done, said) = cluster(&nodes, 1, &["forget-log", "n0", "--force"]);
    assert!(!done && said.contains("there is nothing to forget"), "{said}");
    nodes.nodes[0].kill();
    std::fs::remove_dir_all(nodes.dir.path().join("n0")).expect("there is a store");
    nodes.nodes[0].start();
    let info = nodes.until(1, "STREAM.INFO.OWN", &Value::Null, |info| {
        is_offline(info) && info["error"]["description"].to_string().contains("without that log")
    });
    assert!(info["error"]["description"].to_string().contains("forget-log n0"), "{info}");
    let (_, said) = cluster(&nodes, 1, &["status"]);
    assert!(said.contains("offline with n0, log local") && said.contains("OWN"), "{said}");
    let (done, said) = cluster(&nodes, 2, &["forget-log", "n0", "--dry-run"]);
    assert!(done && said.contains("KV_OWN, OWN"), "{said}");
    nodes.until(2, "STREAM.INFO.OWN", &Value::Null, is_offline);
    let (done, said) = cluster(&nodes, 2, &["forget-log", "n0", "--force"]);
    assert!(done, "{said}");
    for at in 0..NODES {
        nodes.until(at, "STREAM.INFO.OWN", &Value::Null, |info| info["error"]["err_code"] == 10059);
    }
    // Nobody brings it back.
    nodes.nodes[2].kill();
    nodes.nodes[2].start();
    nodes.until(2, "STREAM.CREATE.OWN", &own("OWN"), is_well);
    nodes.until(1, "STREAM.INFO.OWN", &Value::Null, is_well);
}
