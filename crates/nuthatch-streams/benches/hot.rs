//! The hot paths of an engine over a log that only copies: `admit`, `ack`, `deliver`, and recovery:
//! `reindex` (from footers), `apply` (from records).
//!
//! `cargo bench -p nuthatch-streams [loop name]`. Each loop prints nanoseconds per message: the
//! least of several rounds, so that other load on the machine disturbs little.

use bytes::Bytes;
use nuthatch_log::{
    AppendError, Appended, IndexedMessage, LogAccess, Lsn, Machine, Read, RecordKind, RecordRef,
    Seq, Space, StoredMessage, StreamId, Timestamp, Urgency,
};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_streams::validate::{Limits, stream_config};
use nuthatch_streams::{
    AccountId, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op, PublishItem,
    PullItem, Sink, Span,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Messages in one read of a socket.
const BATCH: usize = 500;
/// Batches in a round.
const BATCHES: usize = 200;
const ROUNDS: usize = 15;
const BODY_BYTES: usize = 128;
const STREAM: StreamId = StreamId(1);

/// Copies records as a frame would, and serves any read with the same body.
struct CopyLog {
    frame: Vec<u8>,
    lsn: u64,
    now: i64,
    body: Bytes,
}

impl LogAccess for CopyLog {
    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn entropy(&mut self) -> u64 {
        self.lsn
    }

    fn append(
        &mut self,
        record: &RecordRef<'_>,
        _: Urgency,
        _: bool,
    ) -> Result<Appended, AppendError> {
        let seq = record.seq.0.to_le_bytes();
        for part in [&seq[..], record.subject, record.headers, record.body] {
            self.frame.extend_from_slice(part);
        }
        Ok(Appended { lsn: Lsn(self.lsn) })
    }

    fn flush_soon(&mut self) {}

    fn committed(&self) -> Lsn {
        Lsn(self.lsn - 1)
    }

    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        let record = RecordRef {
            kind: RecordKind::Message,
            stream,
            seq,
            timestamp: Timestamp(self.now),
            subject: b"bench.subject",
            headers: b"",
            body: &self.body,
        };
        Read::Ready(StoredMessage { record, owner: &self.body })
    }

    fn dead(&mut self, _: StreamId, _: Seq, _: usize) {}

    fn space(&self) -> Space {
        Space::Normal
    }
}

/// Copies what it is given, as connections' buffers would.
#[derive(Default)]
struct CopySink {
    out: Vec<u8>,
    delivered: usize,
}

impl Sink for CopySink {
    type Peer = u32;
    type Target = ();

    fn reply(&mut self, _: AccountId, _: &u32, _: u32, message: &Message<'_>) {
        self.out.extend_from_slice(message.subject);
        self.out.extend_from_slice(message.body);
    }

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        Some(())
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        true
    }

    fn ready(&mut self, (): &()) -> bool {
        true
    }

    fn deliver(&mut self, (): &mut (), delivery: &Delivery<'_>) -> bool {
        self.delivered += 1;
        for part in [delivery.subject, delivery.reply, delivery.body] {
            self.out.extend_from_slice(part);
        }
        true
    }

    fn flush(&mut self) {
        black_box(&self.out);
        self.out.clear();
    }
}

struct Rig {
    engine: Engine<CopySink>,
    log: CopyLog,
}

impl Rig {
    fn new() -> Self {
        let log = CopyLog {
            frame: Vec::with_capacity(4 << 20),
            lsn: 1,
            now: 1_700_000_000_000_000_000,
            body: Bytes::from(vec![b'x'; BODY_BYTES]),
        };
        let mut rig =
            Self { engine: Engine::new(EngineConfig::default(), CopySink::default()), log };
        let config = StreamConfig {
            name: "BENCH".into(),
            subjects: vec!["bench.>".into()],
            ..StreamConfig::default()
        };
        let config = Box::new(stream_config(config, &Limits::default()).expect("valid"));
        rig.op(Op::CreateStream { id: STREAM, account: AccountId::GLOBAL, config });
        rig
    }

    fn op(&mut self, op: Op) {
        let respond = Box::new(|result: Result<_, _>| {
            result.expect("accepted");
        });
        self.engine.step(Event::Op(op, respond), &mut self.log);
        self.commit();
    }

    fn commit(&mut self) {
        self.engine.before_seal(&mut self.log);
        self.log.frame.clear();
        self.log.lsn += 1;
        self.engine.committed(Lsn(self.log.lsn - 1), &mut self.log);
        self.engine.turn_end();
    }

    fn step(&mut self, batch: ClientBatch<u32>) {
        self.engine.step(Event::Batch(batch), &mut self.log);
    }
}

fn span(buf: &mut Vec<u8>, text: &[u8]) -> Span {
    let start = buf.len() as u32;
    buf.extend_from_slice(text);
    Span { start, end: buf.len() as u32 }
}

/// A read with publishes on `subjects` subjects in turn.
fn publishes(subjects: usize) -> (Bytes, Vec<Item>) {
    let mut buf = Vec::new();
    let mut items = Vec::with_capacity(BATCH);
    for at in 0..BATCH {
        let subject = span(&mut buf, format!("bench.subject.{}", at % subjects).as_bytes());
        let reply = span(&mut buf, format!("_INBOX.abcdefghijklmn.{at}").as_bytes());
        let body = span(&mut buf, &[b'x'; BODY_BYTES]);
        let headers = Span::default();
        let item = PublishItem { stream: STREAM, hint: 0, subject, reply, headers, body };
        items.push(Item::Publish(item));
    }
    (buf.into(), items)
}

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
    rig.op(Op::CreateConsumer { id: STREAM, request: Box::new(request) });
    let mut buf = Vec::new();
    let consumer = span(&mut buf, b"C");
    let reply = span(&mut buf, b"_INBOX.abcdefghijklmn.1");
    let body = span(&mut buf, BATCH.to_string().as_bytes());
    let pull = Item::Pull(PullItem {
        stream: STREAM,
        hint: 0,
        headers: Span::default(),
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
