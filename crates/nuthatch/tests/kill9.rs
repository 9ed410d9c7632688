//! `kill -9` under mixed load, round after round, on one store directory.
//!
//! After each restart: every acknowledged message is there with its sequence and its payload, in
//! order, no sequence was given twice, and nothing whose acknowledgement was confirmed (double ack)
//! is delivered again. In one run streams move between logs in a third of the rounds, and segments to
//! a bucket in another third, while the process is killed.

#[path = "kill9/moves.rs"]
mod moves;
#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_client::{Client, OwnedMessage};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{
    Random, Server, TempDir, api_ok, create_stream, position, publish_ok, read_all, reply_of,
    stream_state, try_fetch,
};

/// Rounds of the test command; `NUTHATCH_KILL_ROUNDS` asks for more.
const ROUNDS: u64 = 30;
/// Rounds with the log in a bucket.
const BUCKET_ROUNDS: u64 = 10;
/// Rounds with moves: a third with streams that move, a third with segments that do.
const MOVING_ROUNDS: u64 = 9;
/// Unacknowledged publishes of one publisher at most.
const WINDOW: usize = 256;
/// What every round has to achieve before the server is killed, however slow the machine: acknowledged
/// messages and confirmed acks.
const ACKED_IN_A_ROUND: usize = 100;
const DONE_IN_A_ROUND: usize = 12;
const STREAMS: [&str; 3] = ["ONE", "TWO", "WORK"];

/// What the clients were promised.
#[derive(Default)]
struct Promised {
    /// Stream → sequence → payload.
    acked: BTreeMap<&'static str, BTreeMap<u64, Vec<u8>>>,
    /// Sequences of `WORK` whose ack was confirmed.
    done: HashSet<u64>,
}

impl Promised {
    /// Acknowledged messages and confirmed acks so far.
    fn counts(&self) -> [usize; 2] {
        [self.acked.values().map(BTreeMap::len).sum(), self.done.len()]
    }
}

#[test]
fn acknowledged_messages_survive_kill_9() {
    for seed in seeds::seeds(0..1) {
        let dir = TempDir::new("kill9");
        survive(seed, rounds_of(ROUNDS), |_| Server::start(dir.path(), &[]), |_, _| {});
    }
}

/// The same with the log in a bucket: each round runs on a new, empty directory, as on another
/// machine.
#[test]
fn acknowledged_messages_in_a_bucket_survive_kill_9_and_the_machine() {
    for seed in seeds::seeds(0..1) {
        let bucket = TempDir::new("kill9-bucket");
        let address = format!("file://{}", bucket.path().display());
        let start = |round| {
            let machine = TempDir::new(&format!("kill9-machine-{round}"));
            Server::start(machine.path(), &["--store", &address])
        };
        survive(seed, rounds_of(BUCKET_ROUNDS), start, |_, _| {});
    }
}

/// The same with moves under way: of streams to another log and back, and of segments to the bucket
/// behind the default log. A third of the rounds has each, unless `NUTHATCH_KILL_BESIDE` asks for one.
#[test]
fn acknowledged_messages_survive_kill_9_in_the_middle_of_moves() {
    for seed in seeds::seeds(0..1) {
        survive_moves(seed, rounds_of(MOVING_ROUNDS));
    }
}

fn survive_moves(seed: u64, rounds: u64) {
    let place = moves::MovesRig::new(seed);
    let beside = std::env::var("NUTHATCH_KILL_BESIDE").ok();
    let what = |round: u64| match (beside.as_deref(), round % 3) {
        (Some("moves"), _) | (None, 1) => Beside::Streams,
        (Some("tier-moves"), _) | (None, 2) => Beside::Segments,
        (Some(other), _) => panic!("NUTHATCH_KILL_BESIDE={other}: moves or tier-moves"),
        (None, _) => Beside::Nothing,
    };
    survive(
        seed,
        rounds,
        |_| place.start(),
        |round, server| match what(round) {
            Beside::Streams => place.move_streams(server),
            Beside::Segments => place.fill(server, round),
            Beside::Nothing => {}
        },
    );
    let count = |wanted| (0..rounds).filter(|round| what(*round) == wanted).count() as u64;
    place.finish((count(Beside::Streams), count(Beside::Segments)));
}

/// What is on its way when the server is killed.
#[derive(PartialEq)]
enum Beside {
    Nothing,
    Streams,
    Segments,
}

fn rounds_of(default: u64) -> u64 {
    let asked = std::env::var("NUTHATCH_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(default)
}

/// Rounds of load and a kill. `beside` is called last before each kill, with the load still on.
fn survive(seed: u64, rounds: u64, start: impl Fn(u64) -> Server, beside: impl Fn(u64, &Server)) {
    let promised = Arc::new(Mutex::new(Promised::default()));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    for round in 0..rounds {
        let server = start(round);
        set_up(&server, round);
        check(&server, &promised, round, false);
        let load_ms = 150 + random.below(450);
        let load = Duration::from_millis(load_ms);
        run_load(server, &promised, round, load, |server| beside(round, server));
    }
    let server = start(rounds);
    check(&server, &promised, rounds, true);
    server.stop();
    let server = start(rounds + 1);
    check(&server, &promised, rounds + 1, true);
    let [total, done] = promised.lock().expect("lock").counts();
    println!("{rounds} rounds, {total} acknowledged messages, {done} confirmed acks");
}

fn set_up(server: &Server, round: u64) {
    if round > 0 {
        return;
    }
    let mut client = server.connect();
    create_stream(&mut client, "ONE", &json!({}));
    create_stream(&mut client, "TWO", &json!({"duplicate_window": 60_000_000_000_u64}));
    create_stream(&mut client, "WORK", &json!({}));
    let consumer = json!({"stream_name": "WORK", "config": {"durable_name": "W",
        "ack_policy": "explicit", "ack_wait": 500_000_000, "max_ack_pending": 10_000}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.WORK.W", &consumer);
}

/// Publishers and consumers until the server is killed under them.
fn run_load(
    server: Server,
    promised: &Arc<Mutex<Promised>>,
    round: u64,
    how_long: Duration,
    beside: impl FnOnce(&Server),
) {
    let stop = Arc::new(AtomicBool::new(false));
    let before = promised.lock().expect("lock").counts();
    let mut threads = Vec::new();
    for (index, stream) in STREAMS.into_iter().enumerate() {
        for lane in 0..2 {
            let client = server.connect();
            let (promised, stop) = (promised.clone(), stop.clone());
            let tag = format!("r{round}-{stream}-{index}-{lane}");
            threads.push(std::thread::spawn(move || {
                publish_until(client, stream, &tag, &promised, &stop);
            }));
        }
    }
    let client = server.connect();
    let (for_consumer, stop_consumer) = (promised.clone(), stop.clone());
    threads.push(std::thread::spawn(move || consume_until(client, &for_consumer, &stop_consumer)));
    std::thread::sleep(how_long);
    wait_for_load(&server, promised, before);
    beside(&server);
    server.kill();
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a client thread failed");
    }
}

/// Waits until the load of this round was real.
fn wait_for_load(server: &Server, promised: &Mutex<Promised>, before: [usize; 2]) {
    let deadline = Instant::now() + support::TIMEOUT;
    loop {
        let [acked, done] = promised.lock().expect("lock").counts();
        if acked >= before[0] + ACKED_IN_A_ROUND && done >= before[1] + DONE_IN_A_ROUND {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{acked} acknowledged messages and {done} confirmed acks, before this round \
             {before:?}\n{}",
            server.log_tail()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Publishes with a window; what is acknowledged is written down. Ends when the connection does.
fn publish_until(
    mut client: Client,
    stream: &'static str,
    tag: &str,
    promised: &Mutex<Promised>,
    stop: &AtomicBool,
) {
    let inbox = format!("{}.p", client.inbox());
    if client.subscribe(&format!("{inbox}.*"), "").is_err() {
        return;
    }
    let mut waiting: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut next = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        while waiting.len() < WINDOW {
            next += 1;
            let payload = format!("{tag}-{next}").into_bytes();
            let subject = format!("{stream}.{}", next % 7);
            let reply = format!("{inbox}.{next}");
            let headers = format!("NATS/1.0\r\nNats-Msg-Id: {tag}-{next}\r\n\r\n");
            let headers = if stream == "TWO" { headers.as_bytes() } else { b"" };
            let sent =
                client.writer.publish(subject.as_bytes(), reply.as_bytes(), headers, &payload);
            if sent.is_err() {
                return;
            }
            waiting.insert(next, payload);
        }
        if client.writer.flush().is_err() {
            return;
        }
        let Ok(message) = client.next_message(Instant::now() + support::TIMEOUT) else { return };
        note_ack(&message, (stream, tag), &mut waiting, promised);
    }
}

fn note_ack(
    message: &OwnedMessage,
    (stream, tag): (&'static str, &str),
    waiting: &mut BTreeMap<u64, Vec<u8>>,
    promised: &Mutex<Promised>,
) {
    let ack: Value = serde_json::from_slice(&message.payload).expect("ack is JSON");
    assert!(ack.get("error").is_none(), "{tag}: {ack}");
    assert!(ack.get("duplicate").is_none(), "{tag}: nothing is sent twice here: {ack}");
    let id: u64 = message.subject.rsplit('.').next().and_then(|t| t.parse().ok()).expect("id");
    let payload = waiting.remove(&id).expect("acknowledged once");
    let seq = ack["seq"].as_u64().expect("seq");
    let mut promised = promised.lock().expect("lock");
    let old = promised.acked.entry(stream).or_default().insert(seq, payload);
    assert!(old.is_none(), "{stream}: sequence {seq} was given twice");
}

/// Fetches from `WORK` and double-acks; confirmed acks are written down.
fn consume_until(mut client: Client, promised: &Mutex<Promised>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // The connection breaks in the middle: that is how every round ends.
        let Ok(messages) = try_fetch(&mut client, "WORK", "W", 50) else { return };
        for message in messages {
            let seq = position(reply_of(&message)).stream_seq;
            let known = promised.lock().expect("lock").done.contains(&seq);
            assert!(!known, "sequence {seq} came again after its ack was confirmed");
            let confirmed = client.request(reply_of(&message), b"", b"+ACK", support::TIMEOUT);
            if confirmed.is_err() {
                return;
            }
            promised.lock().expect("lock").done.insert(seq);
        }
    }
}

/// Compares what the server holds with what was promised.
fn check(server: &Server, promised: &Arc<Mutex<Promised>>, round: u64, everything: bool) {
    let mut client = server.connect();
    for stream in STREAMS {
        let promised = promised.lock().expect("lock");
        let Some(acked) = promised.acked.get(stream) else { continue };
        let last = acked.last_key_value().map_or(0, |(seq, _)| *seq);
        let from = if everything { 1 } else { last.saturating_sub(20_000).max(1) };
        let stored = read_all(&mut client, stream, from);
        let sequences: Vec<u64> = stored.iter().map(|(seq, _)| *seq).collect();
        assert!(sequences.is_sorted_by(|a, b| a < b), "{stream} is out of order in round {round}");
        let stored: BTreeMap<u64, &[u8]> =
            stored.iter().map(|(seq, message)| (*seq, message.payload.as_slice())).collect();
        for (seq, payload) in acked.range(from..) {
            let found = stored.get(seq);
            let shown = found.map(|bytes| String::from_utf8_lossy(bytes));
            assert_eq!(
                found.copied(),
                Some(payload.as_slice()),
                "round {round}: {stream} {seq} holds {shown:?}, acknowledged was {:?}\n{}",
                String::from_utf8_lossy(payload),
                server.log_tail()
            );
        }
        let state = stream_state(&mut client, stream);
        assert!(state["last_seq"].as_u64() >= Some(last), "{stream}: {state}, acked {last}");
    }
    let next = publish_ok(&mut client, "ONE.probe", format!("probe-{round}").as_bytes());
    let mut promised = promised.lock().expect("lock");
    let payload = format!("probe-{round}").into_bytes();
    let old = promised.acked.entry("ONE").or_default().insert(next, payload);
    assert!(old.is_none(), "sequence {next} was given again after round {round}");
}
