//! Instructions of the engine's hot paths, and proof that idle things cost nothing.
//!
//! `cargo bench -p nuthatch-streams --bench count [-- NAME…]` prints instructions per message, which
//! do not depend on how busy the machine is: each loop runs as a process of its own with two numbers
//! of batches, under `perf stat` or else `valgrind`, and the difference is what the batches cost.
//! The `idle` loops publish to one stream while other things lie about; each is compared with the
//! same loop without them, and the run fails if it takes more than [`IDLE_FACTOR_MAX`] times as much.

mod rig;

use bytes::Bytes;
use nuthatch_log::{Machine, StreamId};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::validate::{Limits, stream_config};
use nuthatch_streams::{AccountId, AckItem, ClientBatch, Item, Op, PublishItem, PullItem, Span};
use rig::{BATCH, Rig, STREAM, publishes, span};
use std::process::{Command, ExitCode};

/// Batches of the two runs whose instructions are subtracted.
const COUNTED: [u64; 2] = [20, 220];
/// What idle things may add to a publish, as a factor.
const IDLE_FACTOR_MAX: f64 = 1.1;
const IDLE_STREAMS: u32 = 10_000;
const IDLE_SUBJECTS: usize = 1_000_000;
const IDLE_CONSUMERS: usize = 100_000;

/// Prepares a loop and runs so many batches of [`BATCH`] messages.
type LoopRun = fn(u64);

/// Loops, and for those with idle things the one to compare with.
const LOOPS: [(&str, LoopRun, Option<&str>); 11] = [
    ("publish", |batches| publish(Rig::new(), 1, batches), None),
    ("publish-500-subjects", |batches| publish(Rig::new(), BATCH, batches), None),
    ("publish-last-per-subject", |batches| publish_all_over(BATCH, batches), None),
    ("publish-one-consumer", |batches| publish(consumers(1), 1, batches), None),
    ("batch", |batches| publish_reads(batched(), batches, atomic_batch), None),
    ("fast-publish", |batches| publish_reads(batched(), batches, fast_batch), None),
    ("deliver", |batches| deliver(AckPolicy::None, batches), None),
    ("deliver-and-ack", |batches| deliver(AckPolicy::Explicit, batches), None),
    ("idle-streams-10k", |batches| publish(streams(), 1, batches), Some("publish")),
    (
        "idle-subjects-1m",
        |batches| publish_all_over(IDLE_SUBJECTS, batches),
        Some("publish-last-per-subject"),
    ),
    (
        "idle-consumers-100k",
        |batches| publish(consumers(IDLE_CONSUMERS), 1, batches),
        Some("publish-one-consumer"),
    ),
];

/// Publishes to the stream `BENCH`, acknowledged on commit.
fn publish(mut rig: Rig, subjects: usize, batches: u64) {
    let (buf, items) = publishes(subjects);
    for _ in 0..batches {
        rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: items.clone() });
        rig.log.now += 1_000_000;
        rig.commit();
    }
}

/// Publishes to a stream that keeps one message for each of `subjects` subjects, all over them.
fn publish_all_over(subjects: usize, batches: u64) {
    let most = batches.max(COUNTED[1]) as usize;
    publish_reads(per_subject(subjects), batches, |n| {
        rig::publishes_from(n * (subjects - BATCH) / most / BATCH * BATCH, BATCH)
    });
}

/// Publishes one read after the other, each committed.
fn publish_reads(mut rig: Rig, batches: u64, read: impl Fn(usize) -> (Bytes, Vec<Item>)) {
    let most = batches.max(COUNTED[1]) as usize;
    // Made beforehand, always as many, so that making them falls out of the difference.
    let reads: Vec<_> = (0..most).map(read).collect();
    for (buf, items) in reads.into_iter().take(batches as usize) {
        rig.step(ClientBatch { peer: 1, buf, items });
        rig.log.now += 1_000_000;
        rig.commit();
    }
}

/// An atomic batch of its own.
fn atomic_batch(number: usize) -> (Bytes, Vec<Item>) {
    publishes_with(BATCH, |at| {
        let commit = if at + 1 == BATCH { "Nats-Batch-Commit: 1\r\n" } else { "" };
        let seq = at + 1;
        (
            format!("_INBOX.abcdefghijklmn.{at}"),
            format!(
                "NATS/1.0\r\nNats-Batch-Id: b{number}\r\nNats-Batch-Sequence: {seq}\r\n{commit}\r\n"
            ),
        )
    })
}

/// The next messages of one fast batch, with a flow message every hundred.
fn fast_batch(number: usize) -> (Bytes, Vec<Item>) {
    publishes_with(BATCH, |at| {
        let seq = number * BATCH + at + 1;
        let op = usize::from(seq > 1);
        (format!("_INBOX.abcdefgh.b.100.fail.{seq}.{op}.$FI"), String::new())
    })
}

/// A read with publishes on `subjects` subjects in turn, each with a reply subject and headers of its own.
fn publishes_with(
    subjects: usize,
    reply_and_headers: impl Fn(usize) -> (String, String),
) -> (Bytes, Vec<Item>) {
    let mut buf = Vec::new();
    let mut items = Vec::with_capacity(BATCH);
    for at in 0..BATCH {
        let (reply, headers) = reply_and_headers(at);
        let subject = span(&mut buf, format!("bench.subject.{}", at % subjects).as_bytes());
        let reply = span(&mut buf, reply.as_bytes());
        let headers = span(&mut buf, headers.as_bytes());
        let body = span(&mut buf, &[b'x'; rig::BODY_BYTES]);
        let item = PublishItem { stream: STREAM, hint: 0, subject, reply, headers, body };
        items.push(Item::Publish(item));
    }
    (buf.into(), items)
}

/// A stream that takes batches.
fn batched() -> Rig {
    let mut rig = Rig::new();
    let config = StreamConfig {
        name: "BENCH".into(),
        subjects: vec!["bench.>".into()],
        allow_atomic: true,
        allow_batched: true,
        ..StreamConfig::default()
    };
    let config = Box::new(stream_config(config, &Limits::default()).expect("valid"));
    rig.op(Op::UpdateStream { id: STREAM, config });
    rig
}

/// Many streams of which only one is published to.
fn streams() -> Rig {
    let mut rig = Rig::new();
    for id in 2..=IDLE_STREAMS {
        let config = StreamConfig {
            name: format!("IDLE-{id}"),
            subjects: vec![format!("idle.{id}")],
            max_age: 3_600_000_000_000,
            ..StreamConfig::default()
        };
        let config = Box::new(stream_config(config, &Limits::default()).expect("valid"));
        rig.op(Op::CreateStream { id: StreamId(id), account: AccountId::GLOBAL, config });
    }
    rig
}

/// Distinct subjects with one message each, as in a key-value bucket.
fn per_subject(subjects: usize) -> Rig {
    let mut rig = Rig::new();
    let config = StreamConfig {
        name: "BENCH".into(),
        subjects: vec!["bench.>".into()],
        max_msgs_per_subject: 1,
        ..StreamConfig::default()
    };
    let config = Box::new(stream_config(config, &Limits::default()).expect("valid"));
    rig.op(Op::UpdateStream { id: STREAM, config });
    for first in (0..subjects).step_by(BATCH) {
        let (buf, items) = rig::publishes_from(first, BATCH);
        rig.step(ClientBatch { peer: 1, buf, items });
        rig.commit();
    }
    rig
}

fn create_consumer(rig: &mut Rig, name: String, ack_policy: AckPolicy) {
    let config =
        ConsumerConfig { name: name.clone(), durable_name: name, ack_policy, ..Default::default() };
    let request = CreateConsumerRequest {
        stream_name: "BENCH".into(),
        config,
        ..CreateConsumerRequest::default()
    };
    rig.op(Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) });
}

/// Durable consumers of which nobody asks anything.
fn consumers(count: usize) -> Rig {
    let mut rig = Rig::new();
    for number in 0..count {
        create_consumer(&mut rig, format!("IDLE-{number}"), AckPolicy::Explicit);
    }
    rig
}

/// From the pull request to the connection's buffer, and with explicit acks back again.
fn deliver(ack_policy: AckPolicy, batches: u64) {
    let mut rig = Rig::new();
    publish_some(&mut rig, batches);
    create_consumer(&mut rig, "C".into(), ack_policy);
    let mut buf = Vec::new();
    let consumer = span(&mut buf, b"C");
    let reply = span(&mut buf, b"_INBOX.abcdefghijklmn.1");
    let body = span(&mut buf, BATCH.to_string().as_bytes());
    let headers = Span::default();
    let pull = Item::Pull(PullItem { stream: STREAM, hint: 0, consumer, reply, headers, body });
    let ack = AckItem {
        stream: STREAM,
        hint: 0,
        consumer,
        delivered: 1,
        stream_seq: 0,
        consumer_seq: 0,
        reply: Default::default(),
        body: Default::default(),
    };
    let buf = Bytes::from(buf);
    let mut seq = 0;
    for _ in 0..batches {
        let mut items = vec![pull];
        if ack_policy == AckPolicy::Explicit {
            items.extend((0..BATCH as u64).map(|n| {
                let (stream_seq, consumer_seq) = (seq + n + 1, seq + n + 1);
                Item::Ack(AckItem { stream_seq, consumer_seq, ..ack })
            }));
        }
        let acks = items.split_off(1);
        rig.step(ClientBatch { peer: 1, buf: buf.clone(), items });
        rig.engine.turn_end();
        rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: acks });
        rig.commit();
        seq += BATCH as u64;
    }
    assert_eq!(rig.engine.sink().delivered as u64, seq, "everything was delivered");
}

/// What [`deliver`] gives out: always as much, so that it falls out of the difference.
fn publish_some(rig: &mut Rig, batches: u64) {
    let (buf, items) = publishes(1);
    for _ in 0..batches.max(COUNTED[1]) {
        rig.step(ClientBatch { peer: 1, buf: buf.clone(), items: items.clone() });
        rig.commit();
    }
}

fn main() -> ExitCode {
    let (mut measure, mut batches) = (false, None);
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" | "--instructions" => measure = true,
            "--batches" => batches = arguments.next().and_then(|text| text.parse::<u64>().ok()),
            _ => names.push(argument),
        }
    }
    if let Some(batches) = batches {
        run(&names, batches);
        return ExitCode::SUCCESS;
    }
    if measure {
        return count(&names);
    }
    // Run by `cargo test --all-targets`: see that the quick loops work, and measure nothing.
    for (_, run, _) in LOOPS.iter().filter(|(name, ..)| !name.starts_with("idle")) {
        run(1);
    }
    ExitCode::SUCCESS
}

fn run(names: &[String], batches: u64) {
    for (_, run, _) in LOOPS.iter().filter(|(name, ..)| names.iter().any(|wanted| wanted == name)) {
        run(batches);
    }
}

fn count(names: &[String]) -> ExitCode {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    let mut within = true;
    for (name, _, base) in LOOPS.iter().filter(|(name, ..)| wanted(name)) {
        let counts = instructions(name).and_then(|count| {
            let base = base.map(instructions).transpose()?;
            Ok((count, base))
        });
        match counts {
            Err(reason) => {
                eprintln!("cannot count instructions: {reason}");
                return ExitCode::FAILURE;
            }
            Ok((count, None)) => println!("{name:<28} {count:>8.1} instructions"),
            Ok((count, Some(base))) => {
                let factor = count / base;
                within &= factor <= IDLE_FACTOR_MAX;
                println!("{name:<28} {count:>8.1} instructions, {factor:.2} x {base:.1}");
            }
        }
    }
    if within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn instructions(name: &str) -> Result<f64, String> {
    let [few, many] = COUNTED;
    let difference = collected(name, many)?.saturating_sub(collected(name, few)?);
    Ok(difference as f64 / ((many - few) * BATCH as u64) as f64)
}

/// Instructions of a whole run, by the processor's counter if it can be read.
fn collected(name: &str, batches: u64) -> Result<u64, String> {
    let perf = ["perf", "stat", "-x,", "-e", "instructions:u"];
    let valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    by_perf(&output(&perf, name, batches)).map_or_else(
        || {
            let text = output(&valgrind, name, batches)?;
            let line = text.lines().find_map(|line| line.split_once("Collected :"));
            let number = line.and_then(|(_, number)| number.trim().parse().ok());
            number.ok_or_else(|| format!("neither perf nor valgrind can count: {text}"))
        },
        Ok,
    )
}

fn by_perf(output: &Result<String, String>) -> Option<u64> {
    let text = output.as_ref().ok()?;
    let line = text.lines().find(|line| line.contains("instructions"))?;
    line.split(',').next()?.parse().ok()
}

/// What a command that runs a loop of this program says on stderr.
fn output(command: &[&str], name: &str, batches: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg(program)
        .args(["--batches", &batches.to_string(), name])
        .output()
        .map_err(|error| format!("{}: {error}", command[0]))?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
