//! From one server with data to three nodes: its streams are served by its node, come to a quorum log with their replicas,
//! and back, and whatever is killed meanwhile, each is in one log and has everything that was acknowledged once. Real
//! processes.

mod quorum_nodes;
#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_client::{Client, ConnectOptions};
use quorum_nodes::publishing::Load;
use quorum_nodes::{NODES, Nodes};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use support::{
    Random, Server, TIMEOUT, TempDir, api_ok, create_stream, fetch, publish_ok, read_on,
};

/// Rounds of the test command, each a move to a quorum log, to another one, and back; `NUTHATCH_KILL_ROUNDS` asks for more.
const ROUNDS: u64 = 2;
/// What the stream has before.
const BEFORE: u64 = 1_500;
/// A kill comes so long after a move was asked for, at most.
const KILL_WITHIN_MS: u64 = 250;
/// What one round may take on a busy machine.
const ROUND_MAX: Duration = Duration::from_secs(90);

/// Nodes that have not started, the first on the store of a server that was alone and has a stream, with a consumer that has
/// come to the tenth message, and a bucket of keys.
fn of_one_server(name: &str) -> Nodes {
    let nodes = Nodes::of(NODES, TempDir::new(name), "built-in");
    let server = Server::start(&nodes.dir.path().join("n0"), &[]);
    let mut client = server.connect();
    create_stream(&mut client, "Q", &json!({}));
    for number in 0..BEFORE {
        publish_ok(&mut client, "Q.n", format!("before-{number}").as_bytes());
    }
    let config =
        json!({"stream_name": "Q", "config": {"durable_name": "D", "ack_policy": "explicit"}});
    api_ok(&mut client, "CONSUMER.CREATE.Q.D", &config);
    for message in fetch(&mut client, "Q", "D", 10) {
        let reply = message.reply.as_deref().expect("a reply subject");
        client.request(reply, b"", b"+ACK", TIMEOUT).expect("confirmed");
    }
    let keys = json!({"subjects": ["$KV.K.>"], "max_msgs_per_subject": 1, "allow_direct": true});
    create_stream(&mut client, "KV_K", &keys);
    publish_ok(&mut client, "$KV.K.a", b"1");
    drop(client);
    drop(server);
    nodes
}

fn started(mut nodes: Nodes) -> Nodes {
    nodes.nodes.iter_mut().for_each(quorum_nodes::Node::start);
    let config = json!({"name": "ALL", "subjects": ["all"], "num_replicas": 3});
    until(&nodes, 1, "STREAM.CREATE.ALL", &config, |_| true);
    nodes
}

/// Asks a node until it gives such an answer, which is no error.
fn until(
    nodes: &Nodes,
    at: usize,
    call: &str,
    body: &Value,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + ROUND_MAX;
    loop {
        let answer = nodes.asked(at, call, body);
        if let Some(answer) = &answer
            && answer.get("error").is_none()
            && is_so(answer)
        {
            return answer.clone();
        }
        let said = || nodes.nodes.iter().map(|node| node.text()).collect::<Vec<_>>().join("\n--\n");
        assert!(Instant::now() < deadline, "{call} {body}: {answer:?}\n{}", said());
        sleep(Duration::from_millis(50));
    }
}

/// Which log the stream is in, as its infos say.
fn log_of(info: &Value) -> &str {
    info["config"]["metadata"]["_nuthatch.log"].as_str().unwrap_or("default")
}

fn config(replicas: u64) -> Value {
    json!({"name": "Q", "subjects": ["Q.>"], "num_replicas": replicas})
}

#[test]
fn a_server_becomes_a_node_with_its_streams_and_they_come_to_all_nodes() {
    let mut nodes = started(of_one_server("grown"));
    let text = nodes.nodes[0].text();
    assert!(text.contains("what this server had before it was a node of a cluster"), "{text}");
    let info = until(&nodes, 2, "STREAM.INFO.Q", &Value::Null, |_| true);
    assert_eq!((log_of(&info), &info["cluster"]["leader"]), ("local", &json!("n0")));
    assert_eq!(info["state"]["messages"], BEFORE);
    let mut client = nodes.client(2);
    let next = fetch(&mut client, "Q", "D", 1);
    assert_eq!(next[0].payload, b"before-10", "the consumer goes on at any node");
    // A name is one stream's, wherever it is.
    let twice = json!({"name": "Q", "subjects": ["other"], "num_replicas": 3});
    let refused = nodes.asked(1, "STREAM.CREATE.Q", &twice).expect("an answer");
    assert_eq!(refused["error"]["err_code"], 10058, "{refused}");

    until(&nodes, 1, "STREAM.UPDATE.Q", &config(3), |_| true);
    let info = until(&nodes, 1, "STREAM.INFO.Q", &Value::Null, |info| log_of(info) != "local");
    assert_eq!(info["cluster"]["replicas"].as_array().map(Vec::len), Some(2), "{info}");
    assert_eq!(
        (&info["state"]["messages"], &info["state"]["last_seq"]),
        (&json!(BEFORE), &json!(BEFORE))
    );
    let refused = nodes.asked(1, "STREAM.MOVE.Q", &json!({"log": "local"})).expect("an answer");
    assert!(refused.to_string().contains("set its replicas to 1 first"), "{refused}");
    // What stays on the node is away with it, the rest is not.
    nodes.nodes[0].kill();
    let info = until(&nodes, 1, "STREAM.INFO.Q", &Value::Null, |_| true);
    assert_ne!(info["cluster"]["leader"], "n0");
    let mut all = Vec::new();
    read_on(&mut nodes.client(2), "Q", 1, &mut all);
    assert_eq!(all.len() as u64, BEFORE);
    nodes.nodes[0].start();
    let kv = until(&nodes, 1, "STREAM.INFO.KV_K", &Value::Null, |_| true);
    assert_eq!((log_of(&kv), &kv["state"]["messages"]), ("local", &json!(1)));
}

/// Publishes at the third node until it is told to end; gives what was acknowledged.
fn publishing(nodes: &Nodes, ends: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<String>> {
    let url = format!("nats://127.0.0.1:{}", nodes.nodes[2].port);
    spawn(move || {
        let (mut load, mut acked) = (Load::default(), Vec::new());
        let options = ConnectOptions::new(&url).expect("a url");
        let mut client = Client::connect(&options).expect("the third node lives");
        while !ends.load(Ordering::Relaxed) {
            let id = format!("m{}", acked.len());
            load.publish(&mut client, ("Q.n", &id, &id), Instant::now() + ROUND_MAX);
            acked.push(id);
            sleep(Duration::from_millis(2));
        }
        acked
    })
}

/// The first node is killed some time after a move was asked for, and comes back; or the log that it owns goes to
/// another one.
fn disturb(nodes: &mut Nodes, random: &mut Random) {
    sleep(Duration::from_millis(random.below(KILL_WITHIN_MS)));
    if random.below(4) == 0 {
        let _ = nodes.asked(1, "STREAM.LEADER.STEPDOWN.Q", &Value::Null);
        return;
    }
    nodes.nodes[0].kill();
    sleep(Duration::from_millis(random.below(1_500)));
    nodes.nodes[0].start();
}

/// Where the stream is to go.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// To any quorum log.
    Up,
    /// To this quorum log.
    Across(&'static str),
    /// To the first node's own.
    Down,
}

impl Way {
    fn is_done(self, log: &str) -> bool {
        match self {
            Self::Up => log != "local",
            Self::Across(to) => log == to,
            Self::Down => log == "local",
        }
    }

    /// As a user asks for it; what does not succeed is asked for again.
    fn ask(self, nodes: &Nodes) {
        let step_down = json!({"placement": {"preferred": "n0"}});
        let (calls, to): (&[(&str, Value)], _) = match self {
            Self::Up => (&[("STREAM.UPDATE.Q", config(3))], None),
            Self::Across(to) => (&[], Some(to)),
            Self::Down => (
                &[("STREAM.UPDATE.Q", config(1)), ("STREAM.LEADER.STEPDOWN.Q", step_down)],
                Some("local"),
            ),
        };
        for (call, body) in calls {
            let _ = nodes.asked(1, call, body);
        }
        if let Some(log) = to {
            let _ = nodes.asked(1, "STREAM.MOVE.Q", &json!({"log": log}));
        }
    }
}

/// The stream goes there, whatever is killed meanwhile.
fn go(nodes: &mut Nodes, random: &mut Random, way: Way) {
    let began = Instant::now();
    let mut disturbed = false;
    while began.elapsed() < ROUND_MAX {
        let info = until(nodes, 1, "STREAM.INFO.Q", &Value::Null, |_| true);
        if way.is_done(log_of(&info)) {
            return;
        }
        way.ask(nodes);
        if !disturbed {
            disturb(nodes, random);
            disturbed = true;
        } else {
            sleep(Duration::from_millis(300));
        }
    }
    let said: Vec<_> = nodes.nodes.iter().map(|node| node.text()).collect();
    panic!("the stream does not move ({way:?}):\n{}", said.join("\n--\n"));
}

#[test]
fn a_stream_that_moves_while_nodes_are_killed_is_in_one_log_with_everything() {
    let rounds = std::env::var("NUTHATCH_KILL_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("a number"));
    for seed in seeds::seeds(0..1) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut nodes = started(of_one_server("grown-kills"));
        let ends = Arc::new(AtomicBool::new(false));
        let load = publishing(&nodes, ends.clone());
        for round in 0..rounds {
            go(&mut nodes, &mut random, Way::Up);
            let to = ["default", "default-1", "default-2"][random.below(3) as usize];
            go(&mut nodes, &mut random, Way::Across(to));
            go(&mut nodes, &mut random, Way::Down);
            println!("seed {seed} round {round}");
        }
        go(&mut nodes, &mut random, Way::Up);
        ends.store(true, Ordering::Relaxed);
        let acked = load.join().expect("it publishes");
        check(&nodes, &acked);
    }
}

/// Everything is there once, at any node.
fn check(nodes: &Nodes, acked: &[String]) {
    let info = until(nodes, 1, "STREAM.INFO.Q", &Value::Null, |_| true);
    let mut all = Vec::new();
    read_on(&mut nodes.client(1), "Q", 1, &mut all);
    assert_eq!(info["state"]["messages"], all.len(), "{info}");
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    let found: Vec<String> = all.iter().map(|(_, message)| text(&message.payload)).collect();
    let once: BTreeSet<&String> = found.iter().collect();
    assert_eq!(once.len(), found.len(), "a message is there twice");
    let before: Vec<String> = (0..BEFORE).map(|number| format!("before-{number}")).collect();
    assert_eq!(found[..before.len()], before[..]);
    let missing: Vec<&String> = acked.iter().filter(|id| !once.contains(id)).collect();
    assert!(missing.is_empty(), "{} of {} are lost: {missing:?}", missing.len(), acked.len());
    let ours: Vec<&String> = found.iter().filter(|text| text.starts_with('m')).collect();
    let expected: Vec<&String> = acked.iter().collect();
    assert_eq!(ours, expected, "the order of one publisher");
}
