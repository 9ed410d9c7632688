//! What clients see when the node goes, or hangs, that has what they use: consumers in memory go on at the next owner, as a
//! KV watch does, and calls do not wait for a node that says nothing although another one has its logs. Real processes.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, OwnedMessage};
use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, fetch, position, reply_of};

const PAUSE: Duration = Duration::from_millis(20);

fn started(name: &str) -> Nodes {
    let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    nodes
}

fn is_well(answer: &Value) -> bool {
    answer.get("error").is_none()
}

/// The place of the node that leads a stream.
fn leader(nodes: &Nodes, at: usize, stream: &str) -> usize {
    let info = nodes.until(at, &format!("STREAM.INFO.{stream}"), &Value::Null, |info| {
        info["cluster"]["leader"].is_string()
    });
    let name = info["cluster"]["leader"].as_str().expect("a name");
    nodes.nodes.iter().position(|node| node.name == name).expect("one of them")
}

fn publish(nodes: &Nodes, at: usize, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
            let body = number.to_string();
            let acked =
                nodes.client(at).request("M.n", headers.as_bytes(), body.as_bytes(), ANSWER);
            if acked.is_ok_and(|acked| acked.payload.starts_with(b"{\"stream\"")) {
                break;
            }
            assert!(Instant::now() < deadline, "{number} is not taken");
            sleep(PAUSE);
        }
    }
}

fn next_message(client: &mut Client) -> OwnedMessage {
    client.next_message(Instant::now() + TIMEOUT).expect("a message")
}

/// The messages with these numbers come next, each once, and the consumer counts on.
fn watched(client: &mut Client, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = next_message(client);
        let at = position(reply_of(&message));
        assert_eq!(
            (String::from_utf8_lossy(&message.payload).into_owned(), at.consumer_seq),
            (number.to_string(), number + 1)
        );
    }
}

/// The next ones of the consumer that acknowledges.
fn worked(nodes: &Nodes, at: usize, numbers: std::ops::Range<u64>) {
    let mut client = nodes.client(at);
    let count = usize::try_from(numbers.end - numbers.start).expect("a count");
    let mut got = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    while got.len() < count {
        assert!(Instant::now() < deadline, "{got:?} of {numbers:?}");
        for message in fetch(&mut client, "M", "D", count - got.len()) {
            client.request(reply_of(&message), b"", b"+ACK", ANSWER).expect("confirmed");
            got.push(String::from_utf8_lossy(&message.payload).into_owned());
        }
    }
    let wanted: Vec<String> = numbers.map(|number| number.to_string()).collect();
    assert_eq!(got, wanted);
}

#[test]
fn consumers_in_memory_go_on_at_the_next_owner() {
    let mut nodes = started("memory-consumers");
    let config = json!({"name": "M", "subjects": ["M.>"], "num_replicas": 3});
    nodes.until(0, "STREAM.CREATE.M", &config, is_well);
    let owner = leader(&nodes, 0, "M");
    let at = (owner + 1) % NODES;
    let durable = json!({"stream_name": "M", "config":
        {"durable_name": "D", "ack_policy": "explicit", "mem_storage": true, "num_replicas": 3}});
    nodes.until(at, "CONSUMER.CREATE.M.D", &durable, is_well);
    let mut watching = nodes.client(at);
    let inbox = format!("{}.watch", watching.inbox());
    watching.subscribe(&inbox, "").expect("subscribed");
    watching.round_trip(TIMEOUT).expect("its node knows it");
    let watch = json!({"stream_name": "M", "config": {"name": "W", "ack_policy": "none",
        "mem_storage": true, "num_replicas": 1, "deliver_subject": inbox, "flow_control": true,
        "idle_heartbeat": 60_000_000_000u64, "inactive_threshold": 300_000_000_000u64}});
    nodes.until(at, "CONSUMER.CREATE.M.W", &watch, is_well);
    publish(&nodes, at, 0..10);
    watched(&mut watching, 0..10);
    worked(&nodes, at, 0..6);
    // What was delivered is logged behind that, with what is written next.
    publish(&nodes, at, 10..11);
    watched(&mut watching, 10..11);
    publish(&nodes, at, 11..12);
    watched(&mut watching, 11..12);
    // In a planned handover, to the node at which there is no client.
    let next = (0..NODES).find(|node| *node != owner && *node != at).expect("three nodes");
    let preferred = json!({"placement": {"preferred": nodes.nodes[next].name}});
    let deadline = Instant::now() + TIMEOUT;
    while leader(&nodes, at, "M") != next {
        let _ = nodes.asked(at, "STREAM.LEADER.STEPDOWN.M", &preferred);
        assert!(Instant::now() < deadline, "n{next} does not get it");
        sleep(PAUSE);
    }
    publish(&nodes, at, 12..15);
    watched(&mut watching, 12..15);
    worked(&nodes, at, 6..15);
    let info = nodes.until(at, "CONSUMER.INFO.M.D", &Value::Null, is_well);
    assert_eq!(
        (&info["config"]["mem_storage"], &info["ack_floor"]["stream_seq"]),
        (&json!(true), &json!(15))
    );
    // And when its node is gone. By balance it may be the client's own by now.
    while leader(&nodes, at, "M") == at {
        let _ = nodes.asked(at, "STREAM.LEADER.STEPDOWN.M", &preferred);
        assert!(Instant::now() < deadline, "n{next} does not get it");
        sleep(PAUSE);
    }
    let owner = leader(&nodes, at, "M");
    nodes.nodes[owner].kill();
    publish(&nodes, at, 15..20);
    let mut numbers: Vec<u64> = Vec::new();
    while numbers.last() != Some(&19) {
        // What was delivered a moment before is delivered again where that was not logged yet.
        let number = String::from_utf8_lossy(&next_message(&mut watching).payload).parse();
        numbers.push(number.expect("a number"));
    }
    let new: Vec<u64> = numbers.iter().copied().filter(|number| *number >= 15).collect();
    assert_eq!(new, (15..20).collect::<Vec<u64>>(), "{numbers:?}");
    worked(&nodes, at, 15..20);
}

#[test]
fn calls_do_not_wait_for_a_node_that_hangs() {
    let nodes = started("hanging-node");
    // A stream of a node that does not decide about new ones.
    let decides = nodes.owner().1;
    let mut found = None;
    let deadline = Instant::now() + TIMEOUT;
    for number in 0.. {
        let name = format!("H{number}");
        let config = json!({"name": name, "subjects": [name], "num_replicas": 3});
        nodes.until(decides, &format!("STREAM.CREATE.{name}"), &config, is_well);
        let owner = leader(&nodes, decides, &name);
        if owner != decides {
            found = Some((name, owner));
            break;
        }
        assert!(Instant::now() < deadline, "n{decides} owns all logs");
        sleep(10 * PAUSE);
    }
    let (name, owner) = found.expect("there is one");
    let log =
        |info: &Value| info["config"]["metadata"]["_nuthatch.log"].as_str().map(str::to_owned);
    let info = nodes.until(decides, &format!("STREAM.INFO.{name}"), &Value::Null, is_well);
    let log = log(&info).unwrap_or_else(|| "default".to_owned());
    let mut one = nodes.client(decides);
    let mut other = nodes.client(decides);
    nodes.nodes[owner].signal("-STOP");
    let asked = |client: &mut Client, call: &str, body: &Value| -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        // Also where the first log is just going to its place, and nobody decides about streams.
        match client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), TIMEOUT) {
            Ok(answer) => serde_json::from_slice(&answer.payload).expect("JSON"),
            Err(error) => {
                let said = nodes.nodes.iter().map(Node::text).collect::<String>();
                panic!("{call}: {error}\n{said}")
            }
        }
    };
    // Each has one answer, and that is none that nobody knows.
    let info = asked(&mut one, &format!("STREAM.INFO.{name}"), &Value::Null);
    assert!(is_well(&info), "{info}");
    let config = json!({"name": "NEW", "subjects": ["new"], "num_replicas": 3, "placement": {"tags": [format!("log:{log}")]}});
    let made = asked(&mut other, "STREAM.CREATE.NEW", &config);
    assert!(is_well(&made), "{made}");
    nodes.nodes[owner].signal("-CONT");
    nodes.until(owner, &format!("STREAM.INFO.{name}"), &Value::Null, is_well);
}

/// What is in the memory of a node that hangs is nowhere else, although each node has a log of that name: a call waits for it,
/// and nothing is made twice.
#[test]
fn a_stream_of_one_node_is_made_once_while_that_node_hangs() {
    let nodes = started("hanging-memory");
    let decides = nodes.owner().1;
    // One at each node by turns.
    let names: Vec<String> = (0..6).map(|number| format!("M{number}")).collect();
    let hanging = (decides + 1) % NODES;
    let mut clients: Vec<Client> = names.iter().map(|_| nodes.client(decides)).collect();
    nodes.nodes[hanging].signal("-STOP");
    let asking = |client: &mut Client, name: &str| {
        let config = json!({"name": name, "subjects": [name], "storage": "memory"}).to_string();
        let call = format!("$JS.API.STREAM.CREATE.{name}");
        let _ = client.request(&call, b"", config.as_bytes(), Duration::from_secs(1));
    };
    std::thread::scope(|scope| {
        for (client, name) in clients.iter_mut().zip(&names) {
            scope.spawn(move || asking(client, name));
        }
    });
    nodes.nodes[hanging].signal("-CONT");
    sleep(Duration::from_secs(1));
    // Each node serves what it has: of one name there is one, whoever is asked.
    for name in &names {
        let config = json!({"name": name, "subjects": [name], "storage": "memory"});
        nodes.until(decides, &format!("STREAM.CREATE.{name}"), &config, is_well);
        let leaders: Vec<usize> = (0..NODES).map(|at| leader(&nodes, at, name)).collect();
        assert!(leaders.iter().all(|leader| *leader == leaders[0]), "{name}: {leaders:?}");
    }
    let said = nodes.nodes.iter().map(Node::text).collect::<String>();
    assert!(!said.contains("exists twice") && !said.contains("NOT SERVED"), "{said}");
}
