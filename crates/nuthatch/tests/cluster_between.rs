//! Clients of a log that is between two owners (`docs/cluster.md`, "Takeover"): what they publish and ask at other nodes waits
//! there until the log has an owner again, and they see no "no responders" meanwhile. Real processes.

mod quorum_nodes;
mod support;

use nuthatch_client::RequestError;
use quorum_nodes::{NODES, Node, Nodes};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use support::{TIMEOUT, api_ok, create_stream, read_all};

/// What is for a log without an owner waits so long at the client's node, nearly (`served/between.rs`).
const BETWEEN: Duration = Duration::from_millis(1400);

/// How long a client waits for an answer (nats.go).
const WAIT: Duration = Duration::from_secs(5);

/// What the clients of one test share.
#[derive(Default)]
struct Shared {
    /// When the log lost its owner last.
    lost: Mutex<Option<Instant>>,
    ends: AtomicBool,
}

/// What one client has seen.
#[derive(Default, Debug)]
struct Seen {
    /// What it published to.
    subject: String,
    /// Messages that were acknowledged, in their order.
    acked: Vec<usize>,
    gets: usize,
    /// What was on its way to an owner that died.
    unanswered: usize,
    /// What found no responders before it had waited.
    refused: Vec<String>,
    /// What the user of a client would not expect.
    errors: Vec<String>,
}

/// Publishes and reads at a node, one after the other, until told to end.
fn use_stream(nodes: &Nodes, at: usize, subject: String, shared: &Arc<Shared>) -> JoinHandle<Seen> {
    let (mut client, shared) = (nodes.client(at), shared.clone());
    std::thread::spawn(move || {
        let (mut seen, mut number) = (Seen { subject, ..Seen::default() }, 0);
        let subject = seen.subject.clone();
        let get = format!("$JS.API.DIRECT.GET.Q.{subject}");
        while !shared.ends.load(Ordering::Relaxed) {
            let is_get = number % 4 == 3;
            let to = if is_get { &get } else { &subject };
            match client.request(to, b"", number.to_string().as_bytes(), WAIT) {
                Ok(_) if is_get => seen.gets += 1,
                Ok(ack) if ack.payload.starts_with(b"{\"stream\"") => seen.acked.push(number),
                Ok(other) => seen.errors.push(String::from_utf8_lossy(&other.payload).into_owned()),
                Err(RequestError::TimedOut { .. }) => seen.unanswered += 1,
                Err(RequestError::NoResponders(_)) => {
                    let lost = *shared.lost.lock().expect("lock");
                    let lacked = lost.map_or(Duration::ZERO, |lost| lost.elapsed());
                    if lacked < BETWEEN {
                        seen.refused.push(format!("{to}: no responders after {lacked:?}"));
                    }
                }
                Err(error) => seen.errors.push(format!("{to}: {error}")),
            }
            number += 1;
            sleep(Duration::from_millis(1));
        }
        seen
    })
}

/// What was acknowledged to a client is there once and in its order.
fn all_is_there(nodes: &Nodes, reader: usize, seen: &Seen) {
    let messages = read_all(&mut nodes.client(reader), "Q", 1);
    let of_client = messages.iter().filter(|(_, message)| message.subject == seen.subject);
    let there: Vec<usize> = of_client
        .map(|(_, message)| String::from_utf8_lossy(&message.payload).parse().expect("a number"))
        .collect();
    let known: Vec<usize> =
        there.iter().copied().filter(|number| seen.acked.binary_search(number).is_ok()).collect();
    assert_eq!(known, seen.acked);
    assert!(there.is_sorted(), "{there:?}");
}

fn started(name: &str) -> (Nodes, usize) {
    let mut nodes = Nodes::new(name);
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, owner) = nodes.owner();
    let config = json!({"subjects": ["Q.*"], "num_replicas": 3, "allow_direct": true});
    create_stream(&mut client, "Q", &config);
    (nodes, owner)
}

/// Who leads the stream, once somebody does who is not `but`.
fn leader(nodes: &Nodes, at: usize, but: Option<usize>) -> usize {
    let deadline = Instant::now() + TIMEOUT;
    let mut client = nodes.client(at);
    loop {
        let info = api_ok(&mut client, "STREAM.INFO.Q", &Value::Null);
        let leader = info["cluster"]["leader"].as_str().unwrap_or_default();
        let found = nodes.nodes.iter().position(|node| node.name == leader);
        if let Some(found) = found.filter(|found| Some(*found) != but) {
            return found;
        }
        assert!(Instant::now() < deadline, "nobody else leads: {info}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_wait_for_the_next_owner_of_a_log_whose_owner_is_killed() {
    let (nodes, _) = started("between-killed");
    let owner = leader(&nodes, 0, None);
    let shared = Arc::new(Shared::default());
    let others: Vec<usize> = (0..NODES).filter(|at| *at != owner).collect();
    let begin = |kind: &str| {
        let client = |at: &usize| use_stream(&nodes, *at, format!("Q.{kind}-{at}"), &shared);
        others.iter().map(client).collect::<Vec<_>>()
    };
    let mut clients = begin("before");
    sleep(Duration::from_millis(300));
    *shared.lost.lock().expect("lock") = Some(Instant::now());
    nodes.nodes[owner].signal("-KILL");
    // Those from before have something on its way that nobody answers. The others begin when the loss is known, mostly.
    sleep(Duration::from_millis(30));
    clients.extend(begin("after"));
    leader(&nodes, others[0], Some(owner));
    sleep(Duration::from_millis(500));
    shared.ends.store(true, Ordering::Relaxed);
    for client in clients {
        let seen = client.join().expect("a client");
        assert_eq!((&seen.errors[..], &seen.refused[..]), (&[][..], &[][..]), "{seen:?}");
        assert!(seen.unanswered <= 1, "what was on its way: {}", seen.unanswered);
        assert!(seen.unanswered > 0 || (!seen.acked.is_empty() && seen.gets > 0), "{seen:?}");
        all_is_there(&nodes, others[0], &seen);
    }
}

/// With and without replies, and with calls among them, whether answers to those are awaited or not.
#[test]
fn what_one_client_sends_meanwhile_is_stored_once_and_in_its_order() {
    const EACH: usize = 20;
    let (nodes, _) = started("between-order");
    let owner = leader(&nodes, 0, None);
    let at = (owner + 1) % NODES;
    let mut client = nodes.client(at);
    let inbox = format!("{}.acks", client.inbox());
    client.subscribe(&inbox, "").expect("subscribed");
    client.round_trip(TIMEOUT).expect("known");
    nodes.nodes[owner].signal("-KILL");
    nodes.wait_text(
        at,
        &format!("Node {} is connected no more, account $G", nodes.nodes[owner].name),
    );
    let mut number = 0;
    let mut publish = |reply: &str| {
        for _ in 0..EACH {
            let body = number.to_string();
            client.writer.publish(b"Q.1", reply.as_bytes(), b"", body.as_bytes()).expect("sent");
            number += 1;
        }
        let call = b"$JS.API.CONSUMER.NAMES.Q";
        client.writer.publish(call, reply.as_bytes(), b"", b"").expect("sent");
        let config = json!({"name": "N", "subjects": ["N"], "num_replicas": 3}).to_string();
        let call = b"$JS.API.STREAM.CREATE.N";
        client.writer.publish(call, reply.as_bytes(), b"", config.as_bytes()).expect("sent");
        client.writer.flush().expect("sent");
    };
    [&*inbox, "", &*inbox, ""].into_iter().for_each(&mut publish);
    let deadline = Instant::now() + TIMEOUT;
    let (mut acks, mut answers) = (Vec::new(), 0);
    while acks.len() < 2 * EACH || answers < 4 {
        let message = client.next_message(deadline).expect("each is answered");
        let body = String::from_utf8_lossy(&message.payload).into_owned();
        match body.strip_prefix("{\"stream\":\"Q\",\"seq\":") {
            Some(seq) => acks.push(seq.trim_end_matches('}').parse::<u64>().expect("a number")),
            None => {
                assert!(body.contains("\"type\":\"io.nats"), "{body} {:?}", message.headers);
                answers += 1;
            }
        }
    }
    assert!(acks.is_sorted(), "{acks:?}");
    // What had no reply is there when this is.
    client.request("Q.2", b"", b"", TIMEOUT).expect("acknowledged");
    let stored = read_all(&mut client, "Q", 1);
    let of_client = stored.iter().filter(|(_, message)| message.subject == "Q.1");
    let there: Vec<usize> = of_client
        .map(|(_, message)| String::from_utf8_lossy(&message.payload).parse().expect("a number"))
        .collect();
    assert_eq!(there, (0..4 * EACH).collect::<Vec<_>>());
}

/// Also the clients of the node that hands the log over.
#[test]
fn clients_wait_for_the_next_owner_of_a_log_that_is_handed_over() {
    let (nodes, _) = started("between-step-down");
    let shared = Arc::new(Shared::default());
    let client = |at| use_stream(&nodes, at, format!("Q.{at}"), &shared);
    let clients: Vec<_> = (0..NODES).map(client).collect();
    let (mut client, mut handed_over) = (nodes.client(0), 0);
    for _ in 0..5 {
        let owner = leader(&nodes, 0, None);
        *shared.lost.lock().expect("lock") = Some(Instant::now());
        let asked = client.request("$JS.API.STREAM.LEADER.STEPDOWN.Q", b"", b"", TIMEOUT);
        let told = String::from_utf8_lossy(&asked.expect("answered").payload).into_owned();
        // Where the others lack something just then it stays.
        if told.contains("\"success\":true") {
            leader(&nodes, 0, Some(owner));
            handed_over += 1;
        }
        sleep(Duration::from_millis(200));
    }
    shared.ends.store(true, Ordering::Relaxed);
    assert!(handed_over > 0, "the log never went to another node");
    for client in clients {
        let seen = client.join().expect("a client");
        assert_eq!(seen.errors, [""; 0], "{seen:?}");
        // Only what is at the former owner in the very moment in which that closes the log. Where nothing waits, one client
        // has many of them in each handover.
        assert!(seen.refused.len() <= 2, "{seen:?}");
        assert_eq!(seen.unanswered, 0, "nothing is lost on its way");
        assert!(!seen.acked.is_empty() && seen.gets > 0);
        all_is_there(&nodes, 0, &seen);
    }
}
