//! The hot paths of an engine over a log that only copies: `admit`, `ack`, `deliver`, and recovery:
//! `reindex` (from footers), `apply` (from records).
//!
//! `cargo bench -p nuthatch-streams [loop name]`. Each loop prints nanoseconds per message: the
//! least of several rounds, so that other load on the machine disturbs little.

mod rig;

use bytes::Bytes;
use nuthatch_log::{IndexedMessage, Machine, RecordKind, RecordRef, Seq, Timestamp};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::{ClientBatch, Engine, EngineConfig, Item, Op, PullItem};
use rig::{BATCH, BODY_BYTES, CopySink, Rig, STREAM, publishes, span};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Batches in a round.
const BATCHES: usize = 200;
const ROUNDS: usize = 15;

fn report(name: &str, mut round: impl FnMut() -> Duration) {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    let messages = (BATCH * BATCHES) as u128;
    println!("{name:<28} {:>8} ns/message", best.as_nanos() / messages);
}

/// Checks, sequence, record, metadata; then the acknowledgement on commit.
fn admit_and_ack(subjects: usize) {
    let mut rig = Rig::new();
    let (buf, items) = publishes(subjects);
    let mut least_ack = Duration::MAX;
    report(&format!("admit ({subjects} subjects)"), || {
        let (mut admit, mut ack) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..BATCHES {
            let batch = ClientBatch { peer: 1, buf: buf.clone(), items: items.clone() };
            let start = Instant::now();
            rig.step(batch);
            admit += start.elapsed();
            rig.log.now += 1000;
            let start = Instant::now();
            rig.commit();
            ack += start.elapsed();
        }
        least_ack = least_ack.min(ack);
        admit
    });
    let messages = (BATCH * BATCHES) as u128;
    let name = format!("ack ({subjects} subjects)");
    println!("{name:<28} {:>8} ns/message", least_ack.as_nanos() / messages);
}

/// From the pull request to the connection's buffer.
fn deliver() {
    let mut rig = Rig::new();
    let (buf, items) = publishes(1);
    for _ in 0..BATCHES * ROUNDS {
        rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: items.clone() });
        rig.commit();
    }
    let config = ConsumerConfig {
        name: "C".into(),
        durable_name: "C".into(),
        ack_policy: AckPolicy::None,
        ..ConsumerConfig::default()
    };
    let request = CreateConsumerRequest {
        stream_name: "BENCH".into(),
        config,
        ..CreateConsumerRequest::default()
    };
    rig.op(Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) });
    let mut buf = Vec::new();
    let consumer = span(&mut buf, b"C");
    let reply = span(&mut buf, b"_INBOX.abcdefghijklmn.1");
    let body = span(&mut buf, BATCH.to_string().as_bytes());
    let pull = Item::Pull(PullItem {
        stream: STREAM,
        hint: 0,
        headers: nuthatch_streams::Span::default(),
        consumer,
        reply,
        body,
    });
    let buf = Bytes::from(buf);
    report("deliver (pull, ack none)", || {
        let start = Instant::now();
        for _ in 0..BATCHES {
            rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: vec![pull] });
            rig.engine.turn_end();
        }
        start.elapsed()
    });
    println!("delivered {} messages", rig.engine.sink().delivered);
}

/// Recovery of as many messages as a round has, by one of its two ways.
fn recover(name: &str, from_footers: bool) {
    let mut rig = Rig::new();
    let mut snapshot = Vec::new();
    let total = (BATCH * BATCHES) as u64;
    let subjects: Vec<String> = (0..BATCH).map(|at| format!("bench.subject.{at}")).collect();
    let body = [b'x'; BODY_BYTES];
    if from_footers {
        let (buf, items) = publishes(BATCH);
        for _ in 0..BATCHES {
            rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: items.clone() });
            rig.commit();
        }
    }
    rig.engine.snapshot(&mut snapshot);
    report(name, || {
        let mut engine = Engine::new(EngineConfig::default(), CopySink::default());
        engine.restore(&snapshot).expect("restores");
        let start = Instant::now();
        for seq in 1..=total {
            let subject = subjects[seq as usize % subjects.len()].as_bytes();
            let (stream, timestamp) = (STREAM, Timestamp(rig.log.now + seq as i64));
            let (seq, headers) = (Seq(seq), &[][..]);
            let kind = RecordKind::Message;
            let record = RecordRef { kind, stream, seq, timestamp, subject, headers, body: &body };
            if from_footers {
                let weight = record.weight() as u32;
                let has_headers = false;
                let message =
                    IndexedMessage { stream, seq, timestamp, subject, weight, has_headers };
                engine.reindex(black_box(&message));
            } else {
                engine.apply(black_box(&record));
            }
        }
        start.elapsed()
    });
}

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if "admit".contains(&wanted) || wanted == "ack" {
        admit_and_ack(1);
        admit_and_ack(BATCH);
    }
    if "deliver".contains(&wanted) {
        deliver();
    }
    if "reindex".contains(&wanted) {
        recover("reindex (500 subjects)", true);
    }
    if "apply".contains(&wanted) {
        recover("apply (500 subjects)", false);
    }
}
