//! A planned handover of quorum logs (`docs/cluster.md`): owners are told to end while clients publish at all three nodes and
//! wait for each acknowledgement, and others make calls and direct gets. Who does so at a node that stays sees no error, not
//! even "no responders", which clients repeat by themselves, but where no other node owns the log within [`BETWEEN`] or where
//! something comes to the former owner in the very moment in which that closes the log; what was acknowledged is there once,
//! in the order of its publisher.

#[cfg(feature = "etcd")]
#[path = "quorum_nodes/etcd.rs"]
mod etcd;
mod quorum_nodes;
mod support;

use nuthatch_client::{Client, ConnectOptions, RequestError};
use quorum_nodes::{Home, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
#[cfg(feature = "etcd")]
use support::signal;
use support::{TIMEOUT, api_ok, create_stream, read_all};

/// When clients ask again by default if nobody responds (nats.go, which does so twice).
const DEFAULT_WAIT: Duration = Duration::from_millis(250);

/// Asks again at once, so that it sees when somebody answers.
const EAGER: Duration = Duration::from_millis(1);

/// How long a client waits for an acknowledgement (nats.go).
const WAIT: Duration = Duration::from_secs(5);

/// What is for a log without an owner waits so long at the client's node, nearly (`served/between.rs`).
const BETWEEN: Duration = Duration::from_millis(1400);

/// How long the answer to a call is waited for: one that no node takes is answered after 4 s.
const CALL_WAIT: Duration = Duration::from_secs(20);

/// A publisher waits so long between two messages.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls that are answered all through a handover: each may be made again without harm.
const CALLS: [(&str, &str); 8] = [
    ("STREAM.INFO.Q", ""),
    (
        "STREAM.UPDATE.Q",
        r#"{"name": "Q", "subjects": ["Q.*"], "num_replicas": 3, "allow_direct": true}"#,
    ),
    (
        "CONSUMER.DURABLE.CREATE.Q.C",
        r#"{"stream_name": "Q", "config": {"durable_name": "C", "ack_policy": "none"}}"#,
    ),
    ("CONSUMER.INFO.Q.C", ""),
    ("INFO", ""),
    ("DIRECT.GET.Q.Q.0", ""),
    ("STREAM.NAMES", ""),
    ("STREAM.CREATE.N", r#"{"name": "N", "subjects": ["N"], "num_replicas": 3}"#),
];

/// What the publishers have seen.
#[derive(Default)]
struct Seen {
    /// When acknowledgements came.
    acked: Mutex<Vec<Instant>>,
    /// Errors that a client's user would see.
    errors: Mutex<Vec<String>>,
    /// What found no responders before it had waited.
    refused: Mutex<Vec<String>>,
    /// How often nobody answered and the client asked again.
    repeated: AtomicUsize,
    /// Publishes whose connection ended: their fate is unknown, and they are sent again under their id.
    broken: AtomicUsize,
    ends: AtomicBool,
    /// Nodes that are told to end, in a mask: connections to them may break.
    ending: AtomicU64,
    /// Those that were told and have not found the others again, in a mask.
    ended: AtomicU64,
    /// When one was told last.
    told: Mutex<Option<Instant>>,
}

/// A publisher: it prefers one node, and goes to the next one when its connection ends.
struct Publisher {
    number: usize,
    at: usize,
    urls: Vec<String>,
    seen: Arc<Seen>,
    retry_wait: Duration,
}

impl Publisher {
    fn connect(&mut self) -> Client {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let options = ConnectOptions::new(&self.urls[self.at]).expect("a url");
            if let Ok(client) = Client::connect(&options) {
                return client;
            }
            assert!(Instant::now() < deadline, "no node takes clients");
            self.at = (self.at + 1) % NODES;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn error(&self, what: String) {
        self.seen.errors.lock().expect("lock").push(what);
    }

    /// Nobody took what was sent.
    fn no_responders(&self, what: &str) {
        let seen = &self.seen;
        seen.repeated.fetch_add(1, Ordering::Relaxed);
        let has_ended = seen.ended.load(Ordering::Relaxed) & 1 << self.at != 0;
        let told = *seen.told.lock().expect("lock");
        let lacked = told.map_or(Duration::ZERO, |told| told.elapsed());
        // A node that has just started again has found no other one yet.
        if lacked < BETWEEN && !has_ended {
            let what = format!("{what} at {}: no responders after {lacked:?}", self.at);
            seen.refused.lock().expect("lock").push(what);
        }
    }

    /// Publishes one message until it is acknowledged, as a client does; how many there are then.
    fn publish(&mut self, client: &mut Client, message: usize) {
        let (subject, id) = (format!("Q.{}", self.number), format!("{}-{message}", self.number));
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        let began = Instant::now();
        loop {
            let body = message.to_string();
            match client.request(&subject, headers.as_bytes(), body.as_bytes(), WAIT) {
                Ok(ack) if ack.payload.starts_with(b"{\"stream\"") => {
                    self.seen.acked.lock().expect("lock").push(Instant::now());
                    return;
                }
                Ok(ack) => {
                    let text = String::from_utf8_lossy(&ack.payload).into_owned();
                    self.error(format!("{id} at {}: {text}", self.at));
                    std::thread::sleep(self.retry_wait);
                }
                // How often that may be depends on how busy the machine is: a handover may take long.
                Err(RequestError::NoResponders(_)) => {
                    self.no_responders(&id);
                    std::thread::sleep(self.retry_wait);
                }
                Err(RequestError::Transport(_))
                    if self.seen.ending.load(Ordering::Relaxed) & 1 << self.at != 0 =>
                {
                    self.seen.broken.fetch_add(1, Ordering::Relaxed);
                    *client = self.connect();
                }
                Err(error) => {
                    self.error(format!("{id} at {}: {error}", self.at));
                    *client = self.connect();
                }
            }
            if began.elapsed() > TIMEOUT {
                return self.error(format!("{id}: not acknowledged"));
            }
        }
    }

    /// Publishes until it is told to stop; how many messages were acknowledged.
    fn run(mut self) -> usize {
        let mut client = self.connect();
        let mut message = 0;
        while !self.seen.ends.load(Ordering::Relaxed) {
            self.publish(&mut client, message);
            message += 1;
            std::thread::sleep(PAUSE);
        }
        message
    }
}

/// Makes calls of JetStream's API until it is told to stop; how many were answered. Of a node that is told to end, its
/// clients may lose the connection.
fn call(mut publisher: Publisher, calls: &[(&str, &str)]) -> usize {
    let mut client = publisher.connect();
    let mut answers = 0;
    while !publisher.seen.ends.load(Ordering::Relaxed) {
        let (call, body) = calls[answers % calls.len()];
        let answer = client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), CALL_WAIT);
        let is_ending = publisher.seen.ending.load(Ordering::Relaxed) & 1 << publisher.at != 0;
        match answer {
            Ok(answer) if !answer.payload.windows(7).any(|part| part == b"\"error\"") => {
                answers += 1;
            }
            Err(RequestError::NoResponders(_)) => {
                publisher.no_responders(call);
                std::thread::sleep(publisher.retry_wait);
            }
            Err(RequestError::Transport(_)) if is_ending => client = publisher.connect(),
            Ok(_) if is_ending => {}
            Ok(answer) => {
                let text = String::from_utf8_lossy(&answer.payload).into_owned();
                publisher.error(format!("{call} at {}: {text}", publisher.at));
            }
            Err(error) => {
                publisher.error(format!("{call} at {}: {error}", publisher.at));
                client = publisher.connect();
            }
        }
        std::thread::sleep(PAUSE);
    }
    answers
}

/// Waits until the log of the stream has an owner and two other nodes that have everything; gives the owner.
fn whole(nodes: &Nodes) -> usize {
    let deadline = Instant::now() + TIMEOUT;
    let mut said = Value::Null;
    while Instant::now() < deadline {
        for node in nodes.nodes.iter().filter(|node| node.child.is_some()) {
            let url = format!("nats://127.0.0.1:{}", node.port);
            let options = ConnectOptions::new(&url).expect("a url");
            let Ok(mut client) = Client::connect(&options) else { continue };
            let answer = client.request("$JS.API.STREAM.INFO.Q", b"", b"", quorum_nodes::ANSWER);
            let Ok(answer) = answer else { continue };
            said = serde_json::from_slice(&answer.payload).expect("JSON");
            let replicas = said["cluster"]["replicas"].as_array().cloned().unwrap_or_default();
            let current = replicas.iter().filter(|replica| replica["current"] == true).count();
            let leader = said["cluster"]["leader"].as_str().unwrap_or_default();
            if let (true, Some(at)) =
                (current == NODES - 1, nodes.nodes.iter().position(|n| n.name == leader))
            {
                return at;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the log is not whole: {said}");
}

/// What came of some handovers under load.
struct Outcome {
    seen: Arc<Seen>,
    /// Messages of each publisher.
    counts: Vec<usize>,
    /// Calls of each caller that were answered.
    answers: Vec<usize>,
    /// For each handover the longest pause between two acknowledgements, of whichever publisher.
    pauses: Vec<Duration>,
    nodes: Nodes,
}

fn hand_over_under_load(
    mut nodes: Nodes,
    retry_wait: Duration,
    (publishers, callers): (usize, usize),
    handovers: usize,
) -> Outcome {
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    let config = json!({"subjects": ["Q.*"], "num_replicas": 3, "allow_direct": true});
    create_stream(&mut client, "Q", &config);
    let urls: Vec<String> =
        nodes.nodes.iter().map(|node| format!("nats://127.0.0.1:{}", node.port)).collect();
    let seen = Arc::new(Seen::default());
    let threads: Vec<_> = (0..publishers)
        .map(|number| {
            let publisher = Publisher {
                number,
                at: number % NODES,
                urls: urls.clone(),
                seen: seen.clone(),
                retry_wait,
            };
            std::thread::spawn(move || publisher.run())
        })
        .collect();
    let callers: Vec<_> = (0..callers)
        .map(|number| {
            let at = number % NODES;
            let (urls, seen) = (urls.clone(), seen.clone());
            let caller = Publisher { number, at, urls, seen, retry_wait };
            std::thread::spawn(move || call(caller, &CALLS))
        })
        .collect();
    let mut pauses = Vec::new();
    for _ in 0..handovers {
        let owner = whole(&nodes);
        std::thread::sleep(Duration::from_millis(200));
        seen.ended.fetch_or(1 << owner, Ordering::Relaxed);
        seen.ending.store(1 << owner, Ordering::Relaxed);
        let told = Instant::now();
        *seen.told.lock().expect("lock") = Some(told);
        nodes.nodes[owner].signal("-TERM");
        assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
        std::thread::sleep(Duration::from_millis(500));
        pauses.push(longest_pause(&seen.acked.lock().expect("lock"), told));
        nodes.nodes[owner].start();
        nodes.until(owner, "STREAM.INFO.Q", &Value::Null, |info| info["error"].is_null());
        seen.ending.store(0, Ordering::Relaxed);
        seen.ended.store(0, Ordering::Relaxed);
    }
    seen.ends.store(true, Ordering::Relaxed);
    let counts = threads.into_iter().map(|thread| thread.join().expect("a publisher")).collect();
    let answers = callers.into_iter().map(|thread| thread.join().expect("a caller")).collect();
    Outcome { seen, counts, answers, pauses, nodes }
}

/// The longest time without an acknowledgement since `told`.
fn longest_pause(acked: &[Instant], told: Instant) -> Duration {
    let before = acked.iter().rev().find(|at| **at < told).copied().unwrap_or(told);
    let mut times: Vec<Instant> = acked.iter().copied().filter(|at| *at >= before).collect();
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// Each message of each publisher is there once, in its order.
fn nothing_is_lost_or_twice(outcome: &Outcome) {
    // The last handover may be under way still.
    let mut client = outcome.nodes.client(whole(&outcome.nodes));
    let found = read_all(&mut client, "Q", 1);
    let mut of_each: Vec<Vec<usize>> = vec![Vec::new(); outcome.counts.len()];
    for (_, message) in &found {
        let number: usize =
            message.subject.rsplit('.').next().expect("a number").parse().expect("a number");
        of_each[number].push(String::from_utf8_lossy(&message.payload).parse().expect("a number"));
    }
    for (of_one, count) in of_each.iter().zip(&outcome.counts) {
        let expected: Vec<usize> = (0..*count).collect();
        assert_eq!(of_one, &expected, "what one publisher was told of");
    }
}

#[test]
fn an_owner_that_ends_hands_over_without_an_error_to_clients_that_wait() {
    hand_over_without_an_error(Home::Directory, "quorum-handover");
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "`just proof --part cluster-suites`: together they take minutes"]
fn an_owner_hands_over_without_an_error_with_the_catalog_in_etcd() {
    hand_over_without_an_error(etcd::IN_ETCD, "quorum-handover-etcd");
}

fn hand_over_without_an_error(home: Home, name: &str) {
    let outcome = hand_over_under_load(Nodes::at(home, name), DEFAULT_WAIT, (6, 3), 3);
    nothing_is_lost_or_twice(&outcome);
    outcome.nodes.expect_equal_replicas(&[0, 1, 2]);
    let errors = outcome.seen.errors.lock().expect("lock");
    let said: Vec<String> = outcome.nodes.nodes.iter().map(Node::text).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", said.join("\n--\n"));
    // Only what is at the former owner in the very moment in which that closes the log.
    let refused = outcome.seen.refused.lock().expect("lock");
    assert!(refused.len() <= 2, "{refused:#?}\n{}", said.join("\n--\n"));
    assert!(outcome.counts.iter().all(|count| *count > 0), "{:?}", outcome.counts);
    assert!(outcome.answers.iter().all(|count| *count > 0), "{:?}", outcome.answers);
    for text in &said {
        assert!(!text.contains("were not handed over in time"), "{text}");
    }
    let by_handover = said.iter().map(|text| text.matches("by=handover").count()).sum::<usize>();
    assert!(by_handover >= 3, "nobody was told to follow:\n{}", said.join("\n--\n"));
}

/// Clients know the text, and ask again at once (`ErrConsumerLeadershipChanged` of nats.go).
#[test]
fn a_pull_that_waits_hears_that_the_owner_changes() {
    let mut nodes = Nodes::new("quorum-handover-pull");
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "Q", &json!({"subjects": ["Q.*"], "num_replicas": 3}));
    let owner = whole(&nodes);
    let mut client = nodes.client((owner + 1) % NODES);
    let config = json!({"stream_name": "Q", "config": {"durable_name": "C", "ack_policy": "none"}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.Q.C", &config);
    let inbox = format!("{}.pull", client.inbox());
    client.subscribe(&inbox, "").expect("subscribed");
    let body = json!({"batch": 1, "expires": 60_000_000_000_u64}).to_string();
    let subject = "$JS.API.CONSUMER.MSG.NEXT.Q.C";
    client
        .writer
        .publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())
        .expect("sent");
    let waits =
        |client: &mut Client| api_ok(client, "CONSUMER.INFO.Q.C", &Value::Null)["num_waiting"] == 1;
    while !waits(&mut client) {
        std::thread::sleep(Duration::from_millis(5));
    }
    nodes.nodes[owner].signal("-TERM");
    let told = client.next_message(Instant::now() + TIMEOUT).expect("told");
    let headers = String::from_utf8_lossy(&told.headers).into_owned();
    assert!(headers.starts_with("NATS/1.0 409 Leadership Change\r\n"), "{headers}");
    assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
}

/// `cargo test --profile ci -p nuthatch --features nuthatch/otlp,nuthatch/etcd --test quorum_handover -- --ignored --nocapture`: how long
/// nothing is acknowledged, over `NUTHATCH_HANDOVERS` handovers (20).
#[test]
#[ignore = "a measurement: its figures mean something on a quiet machine only"]
fn how_long_a_handover_takes() {
    let count =
        std::env::var("NUTHATCH_HANDOVERS").map_or(20, |text| text.parse().expect("a number"));
    let outcome = hand_over_under_load(Nodes::new("quorum-handover-time"), EAGER, (6, 0), count);
    nothing_is_lost_or_twice(&outcome);
    let mut pauses = outcome.pauses.clone();
    pauses.sort_unstable();
    let at = |share: usize| pauses[(pauses.len() * share / 100).min(pauses.len() - 1)];
    println!(
        "{count} handovers: median {:?}, 90 of 100 within {:?}, longest {:?}",
        at(50),
        at(90),
        at(100)
    );
    let seen = &outcome.seen;
    println!(
        "publishes: {:?}; repeated {}; connections that ended {}; errors {:?}",
        outcome.counts.iter().sum::<usize>(),
        seen.repeated.load(Ordering::Relaxed),
        seen.broken.load(Ordering::Relaxed),
        seen.errors.lock().expect("lock"),
    );
    for node in &outcome.nodes.nodes {
        node.text()
            .lines()
            .filter(|line| line.contains("takeover:"))
            .for_each(|line| println!("{line}"));
    }
}
