//! Zones: where nodes say they are, what the loss of a zone would mean, and the loss of one under load. Real processes.

mod quorum_nodes;
mod support;

use quorum_nodes::history::History;
use quorum_nodes::{ACCOUNTS, Node, Nodes, free_ports};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir};

/// So many nodes with an account for the system, each in its zone.
fn started(name: &str, zones: &[&str], more: &[&str]) -> Nodes {
    let mut nodes = Nodes::of(zones.len(), TempDir::new(name), "built-in");
    nodes.configure(ACCOUNTS);
    for (node, zone) in nodes.nodes.iter_mut().zip(zones) {
        if !zone.is_empty() {
            node.args.extend(["--zone", zone].map(str::to_owned));
        }
        node.args.extend(more.iter().map(|arg| (*arg).to_owned()));
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes
}

/// What `nuthatch cluster` says as the system's user: to the output, and to the errors where it fails.
fn cluster(at: &Node, how: &[&str]) -> Result<String, String> {
    let url = format!("nats://sys:pw@127.0.0.1:{}", at.port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.arg("cluster").args(how).args(["-s", &url]).stdin(Stdio::null());
    let output = command.output().expect("it runs");
    let text = |of: &[u8]| String::from_utf8_lossy(of).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// `nuthatch cluster status`.
fn status(at: &Node, how: &[&str]) -> String {
    cluster(at, &[&["status"], how].concat()).unwrap_or_default()
}

/// Waits until the status as JSON is so.
fn wait_status(at: &Node, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = serde_json::from_str(&status(at, &["--json"])).unwrap_or(Value::Null);
        if !status.is_null() && is_so(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn owner_of_first(status: &Value) -> Option<usize> {
    let all = status["nodes"].as_array()?.iter();
    let owns = |node: &&Value| node["owns"].as_array().is_some_and(|logs| logs.contains(&json!(0)));
    let name = all.filter(|node| node["connected"] == true).find(owns)?["name"].as_str()?;
    name.strip_prefix('n')?.parse().ok()
}

/// Two nodes of five, one zone, go at once, the owner among them: what was in flight is all that is refused, and the three
/// that are left have everything. Then they come back.
#[test]
fn the_loss_of_a_zone_of_three_is_outlived() {
    let zones = ["a", "a", "b", "b", "c"];
    let mut nodes = started("zones-lost", &zones, &[]);
    nodes.create_replicated();
    let is_whole = |status: &Value| {
        // It goes to the node in its place, which is not alone in its zone.
        status["zones"] == json!({"a": 2, "b": 2, "c": 1})
            && owner_of_first(status).is_some_and(|at| at < 4)
    };
    let found = wait_status(&nodes.nodes[0], "the zones are known", is_whole);
    assert_eq!((&found["zone_risk"], &found["without_zone"]), (&Value::Null, &json!([])));
    let owner = owner_of_first(&found).expect("as waited for");
    let lost: Vec<usize> = (0..5).filter(|at| zones[*at] == zones[owner]).collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    let stays = (0..5).find(|at| !lost.contains(at)).expect("others");
    let mut history = History::begin(&mut nodes.client(stays), "");
    let clients = (nodes.client(stays), nodes.client(stays));
    let (load, ()) = history.during(clients, |progress| {
        progress.more(20);
        lost.iter().for_each(|at| nodes.nodes[*at].kill());
        wait_status(&nodes.nodes[stays], "another one owns the log", |status| {
            owner_of_first(status).is_some_and(|owner| !lost.contains(&owner))
        });
        progress.more(20);
    });
    load.assert_in_flight_only(1, || nodes.said());
    nodes.expect(load.acked);
    lost.iter().for_each(|at| nodes.nodes[*at].start());
    lost.iter().for_each(|at| nodes.wait_text(*at, "keeps the quorum log"));
    nodes.publish(load.acked);
    nodes.expect(load.acked + 1);
    history.expect_right(&nodes, &nodes.nodes[stays], "");
    nodes.expect_equal_replicas(&[0, 1, 2, 3, 4]);
}

/// What a monitoring port says.
fn metrics(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("monitoring answers");
    socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: n\r\n\r\n").expect("a request");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an answer");
    text
}

/// The owner of a log counts what clients of each node ask of it.
#[test]
fn what_is_asked_of_a_log_is_counted_by_the_nodes_of_its_clients() {
    let mut nodes = Nodes::of(3, TempDir::new("zones-asked"), "built-in");
    nodes.configure(ACCOUNTS);
    let ports = free_ports(3);
    for (node, port) in nodes.nodes.iter_mut().zip(&ports) {
        node.args.extend(["-m".to_owned(), port.to_string()]);
        node.start();
    }
    nodes.create_replicated();
    let found = wait_status(&nodes.nodes[0], "there is an owner", |status| {
        owner_of_first(status).is_some()
    });
    let owner = owner_of_first(&found).expect("as waited for");
    let from = (owner + 1) % 3;
    let mut client = nodes.client(from);
    for _ in 0..50 {
        let answer = client.request("Q.asked", b"", &[b'x'; 1000], TIMEOUT).expect("an answer");
        assert!(answer.payload.starts_with(b"{\"stream\""), "{answer:?}");
    }
    let name =
        format!("nuthatch_quorum_log_asked_bytes_total{{log=\"default\",node=\"n{from}\"}} ");
    let told = |at: usize| {
        let page = metrics(ports[at]);
        page.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    let asked = told(owner).expect("the owner tells it");
    assert!((50_000..100_000).contains(&asked), "{asked}");
    assert_eq!(told(from), None, "nobody else does");
}

/// A log goes to another node by name while somebody publishes, and stays there until that is taken back.
#[test]
fn a_log_is_moved_by_name_under_load() {
    let nodes = started("zones-moved", &["a", "b", "c"], &[]);
    nodes.create_replicated();
    let is_known = |status: &Value| owner_of_first(status).is_some();
    let found = wait_status(&nodes.nodes[0], "there is an owner", is_known);
    let owner = owner_of_first(&found).expect("as waited for");
    let to = (owner + 1) % 3;
    let stays = (owner + 2) % 3;
    let mut history = History::begin(&mut nodes.client(stays), "");
    let clients = (nodes.client(stays), nodes.client(stays));
    let (load, ()) = history.during(clients, |progress| {
        let name = format!("n{to}");
        let would = cluster(&nodes.nodes[0], &["move-log", "default", &name, "--dry-run"]);
        let would = would.expect("it says what would happen");
        assert!(would.contains(&format!("Log default goes from n{owner} to {name}")), "{would}");
        let moved = cluster(&nodes.nodes[0], &["move-log", "default", &name, "--force"]);
        assert_eq!(moved.as_deref(), Ok(&*format!("{name} owns log default\n")));
        progress.more(20);
    });
    load.assert_fine(|| nodes.said());
    nodes.expect(load.acked);
    history.expect_right(&nodes, &nodes.nodes[stays], "");
    nodes.expect_equal_replicas(&[0, 1, 2]);
    let table = cluster(&nodes.nodes[owner], &["logs"]).expect("a table");
    let line = table.lines().find(|line| line.starts_with("default ")).expect("the first log");
    assert!(line.contains(&format!("n{to} (move-log)")), "{table}");
    let json = cluster(&nodes.nodes[owner], &["logs", "--json"]).expect("JSON");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let log = &json["logs"][0];
    let name = json!(format!("n{to}"));
    assert_eq!((&log["owner"], &log["to_be_owned_by"], &log["moved_to"]), (&name, &name, &name));
    let refused = cluster(&nodes.nodes[0], &["move-log", "other", "n1", "--force"]);
    assert!(refused.expect_err("refused").contains("no quorum log other"));
    let back = cluster(&nodes.nodes[0], &["move-log", "default", "--anywhere", "--force"]);
    assert!(back.expect("it is taken back").contains("whichever node is best"));
}

/// Two zones for three nodes, and one that does not say where it is.
#[test]
fn what_the_loss_of_a_zone_would_mean_is_said() {
    let nodes = started("zones-two", &["a", "a", "b"], &[]);
    let risk =
        "the loss of zone a (n0, n1) leaves 1 of 3 nodes that keep the logs: nothing is taken then";
    let is_known = |status: &Value| status["zones"] == json!({"a": 2, "b": 1});
    let found = wait_status(&nodes.nodes[2], "the zones are known", is_known);
    assert_eq!(found["zone_risk"], risk);
    let zone = |at: usize| found["nodes"][at]["zone"].as_str().map(str::to_owned);
    assert_eq!([zone(0), zone(1), zone(2)].map(Option::unwrap), ["a", "a", "b"]);
    let table = status(&nodes.nodes[2], &[]);
    assert!(table.contains("Zone") && table.contains(risk), "{table}");
    (0..3).for_each(|at| nodes.wait_text(at, risk));
    drop(nodes);

    let nodes = started("zones-some", &["a", "b", ""], &[]);
    let is_known = |status: &Value| status["without_zone"] == json!(["n2"]);
    let found = wait_status(&nodes.nodes[0], "one says none", is_known);
    assert_eq!(found["zones"], json!({"a": 1, "b": 1}));
    let table = status(&nodes.nodes[0], &[]);
    assert!(table.contains("unknown") && table.contains("no zone is known of n2"), "{table}");
    drop(nodes);

    let nodes = started("zones-none", &["", "", ""], &[]);
    let is_there = |status: &Value| owner_of_first(status).is_some();
    let found = wait_status(&nodes.nodes[0], "it serves", is_there);
    assert_eq!((&found["zones"], &found["without_zone"]), (&Value::Null, &json!([])));
    assert!(!status(&nodes.nodes[0], &[]).contains("Zone"));
}

/// A log comes to a node of the zones that are to own logs, and goes elsewhere while none of these is there.
#[test]
fn logs_are_owned_in_the_zones_that_are_to_own_them() {
    let mut nodes = Nodes::of(3, TempDir::new("zones-own"), "built-in");
    nodes.configure(&format!("{ACCOUNTS}\njetstream {{ quorum {{ owner_zones: [b] }} }}\n"));
    for (node, zone) in nodes.nodes.iter_mut().zip(["a", "a", "b"]) {
        node.args.extend(["--zone", zone].map(str::to_owned));
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    // Log 0 is n0's by its place. The others follow one at a time, minutes apart.
    wait_status(&nodes.nodes[0], "its node owns it", |status| owner_of_first(status) == Some(2));
    nodes.publish(0);
    nodes.nodes[2].kill();
    let others = |status: &Value| owner_of_first(status).is_some_and(|owner| owner != 2);
    wait_status(&nodes.nodes[0], "others own them", others);
    nodes.publish(1);
    nodes.expect(2);
}
