//! Cost of a consumer per message, with a stream, log and sink that cost next to nothing.
//!
//! `cargo bench -p nuthatch-streams --bench consumer` prints nanoseconds per message, best of
//! several rounds. The budget: at most 250 ns to deliver, 80 ns to acknowledge.

use bytes::Bytes;
use nuthatch_log::{
    AppendError, Appended, LogAccess, Lsn, Read, RecordKind, RecordRef, Seq, Space, StoredMessage,
    StreamId, Timestamp, Urgency,
};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_streams::consumer::{Ack, Consumer, ConsumerLimits, Env, Pull, validate_consumer};
use nuthatch_streams::{AccountId, Delivery, Message, MessageIndex, MessageMeta, Sink};
use std::hint::black_box;
use std::time::{Duration, Instant};

const MESSAGES: u64 = 1_000_000;
const ROUNDS: usize = 5;
const SUBJECTS: u32 = 100;

/// Message `n` is on subject `n % SUBJECTS`; nothing was ever removed.
struct Index {
    names: Vec<Vec<u8>>,
}

impl MessageIndex for Index {
    fn first(&self) -> Seq {
        Seq(1)
    }
    fn last(&self) -> Seq {
        Seq(MESSAGES)
    }
    fn get(&self, seq: Seq) -> Option<MessageMeta> {
        let subject = (seq.0 % u64::from(SUBJECTS)) as u32;
        let live = (1..=MESSAGES).contains(&seq.0);
        live.then_some(MessageMeta { subject, bytes: 128, timestamp: Timestamp(0) })
    }
    fn next_live(&self, from: Seq) -> Option<Seq> {
        (from.0 <= MESSAGES).then_some(from)
    }
    fn live_after(&self, after: Seq) -> u64 {
        MESSAGES.saturating_sub(after.0)
    }
    fn seq_at(&self, _at: Timestamp) -> Seq {
        Seq(1)
    }
    fn subject(&self, id: u32) -> &[u8] {
        &self.names[id as usize]
    }
    fn subject_generation(&self, _id: u32) -> u32 {
        0
    }
    fn for_each_subject(&self, pattern: &[u8], visit: &mut dyn FnMut(u32, u64, Seq, Seq)) {
        for (id, name) in (0..).zip(&self.names) {
            if nuthatch_protocol::subject::matches(pattern, name) {
                let count = MESSAGES / u64::from(SUBJECTS);
                visit(id, count, Seq(u64::from(id.max(1))), Seq(MESSAGES - u64::from(SUBJECTS)));
            }
        }
    }
    fn removed_since(&self, _cursor: u64) -> Option<Box<dyn Iterator<Item = (Seq, u32)> + '_>> {
        Some(Box::new(std::iter::empty()))
    }
    fn removal_cursor(&self) -> u64 {
        0
    }
}

struct Log {
    body: Bytes,
    bytes: usize,
}

impl LogAccess for Log {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000_000_000)
    }
    fn entropy(&mut self) -> u64 {
        7
    }
    fn append(
        &mut self,
        record: &RecordRef<'_>,
        _urgency: Urgency,
        _privileged: bool,
    ) -> Result<Appended, AppendError> {
        self.bytes += record.weight();
        Ok(Appended { lsn: Lsn(1) })
    }
    fn flush_soon(&mut self) {}
    fn committed(&self) -> Lsn {
        Lsn(1)
    }
    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        let record = RecordRef {
            kind: RecordKind::Message,
            stream,
            seq,
            timestamp: Timestamp(1_700_000_000_000_000_000 + seq.0 as i64),
            subject: b"bench.subject",
            headers: b"",
            body: &self.body,
        };
        Read::Ready(StoredMessage { record, owner: &self.body })
    }
    fn dead(&mut self, _stream: StreamId, _seq: Seq, _weight: usize) {}
    fn space(&self) -> Space {
        Space::Normal
    }
}

/// Copies what it is given, as a connection's write buffer would.
#[derive(Default)]
struct Out {
    buffer: Vec<u8>,
    messages: u64,
}

impl Sink for Out {
    type Peer = ();
    type Target = ();
    fn reply(&mut self, _: AccountId, (): &(), _: u32, _: &Message<'_>) {}
    fn publish(&mut self, _: AccountId, message: &Message<'_>) {
        black_box(message.subject);
    }
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
        if self.buffer.len() > 1 << 16 {
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(delivery.reply);
        self.messages += 1;
        true
    }
    fn flush(&mut self) {}
}

struct Bench {
    index: Index,
    log: Log,
    out: Out,
    stream: StreamConfig,
}

impl Bench {
    fn new() -> Self {
        let names = (0..SUBJECTS).map(|id| format!("s.{id}").into_bytes()).collect();
        Self {
            index: Index { names },
            log: Log { body: Bytes::from_static(&[0; 128]), bytes: 0 },
            out: Out::default(),
            stream: StreamConfig { subjects: vec!["s.>".into()], ..StreamConfig::default() },
        }
    }

    fn env(&mut self) -> Env<'_, Index, Log, Out> {
        Env {
            index: &self.index,
            log: &mut self.log,
            sink: &mut self.out,
            account: AccountId::GLOBAL,
            stream: StreamId(1),
            stream_name: "benchstream",
            domain: "",
            released: None,
        }
    }

    fn create(&mut self, change: impl FnOnce(&mut ConsumerConfig)) -> Consumer<()> {
        let mut request = CreateConsumerRequest::default();
        request.config.durable_name = "bench".into();
        change(&mut request.config);
        let config = validate_consumer(&request, &self.stream, &ConsumerLimits::default());
        let stream = self.stream.clone();
        let config = config.expect("valid");
        let filter = nuthatch_streams::consumer::Filter::new(&config);
        Consumer::create(config, filter, &stream, &mut self.env())
    }
}

/// Pulls and acknowledges everything in batches; returns the time for each.
fn pull_and_ack(bench: &mut Bench, consumer: &mut Consumer<()>, backwards: bool) -> [Duration; 2] {
    const BATCH: u64 = 500;
    let (mut delivering, mut acking) = (Duration::ZERO, Duration::ZERO);
    let (mut from, start) = (1, bench.out.messages);
    while bench.out.messages - start < MESSAGES {
        let before = bench.out.messages;
        let at = Instant::now();
        let mut env = bench.env();
        consumer.pull(&mut env, &Pull { reply: b"_INBOX.x", body: b"{\"batch\":500}" });
        consumer.pump(&mut env);
        delivering += at.elapsed();
        let got = bench.out.messages - before;
        let at = Instant::now();
        let mut env = bench.env();
        for step in 0..got {
            let seq = from + if backwards { got - 1 - step } else { step };
            let ack = Ack {
                delivered: 1,
                stream_seq: Seq(seq),
                consumer_seq: seq,
                reply: b"",
                body: b"",
            };
            consumer.ack(&mut env, &ack);
        }
        acking += at.elapsed();
        from += got;
        assert!(got <= BATCH);
    }
    [delivering, acking]
}

fn report(name: &str, messages: u64, best: Duration) {
    println!("{name:<44} {:>8.1} ns", best.as_nanos() as f64 / messages as f64);
}

fn best(mut round: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

fn main() {
    for (name, backwards) in [("in order", false), ("backwards", true)] {
        let mut acks = Vec::new();
        let delivered = best(|| {
            let mut bench = Bench::new();
            let mut consumer = bench.create(|config| config.ack_policy = AckPolicy::Explicit);
            let [delivering, acking] = pull_and_ack(&mut bench, &mut consumer, backwards);
            acks.push(acking);
            delivering
        });
        report(&format!("pull, explicit acks {name}: deliver"), MESSAGES, delivered);
        let acked = acks.into_iter().min().unwrap_or_default();
        report(&format!("pull, explicit acks {name}: ack"), MESSAGES, acked);
    }
    let push = best(|| {
        let mut bench = Bench::new();
        let mut consumer = bench.create(|config| config.deliver_subject = "out".into());
        let at = Instant::now();
        while bench.out.messages < MESSAGES {
            consumer.pump(&mut bench.env());
        }
        at.elapsed()
    });
    report("push, no acks: deliver", MESSAGES, push);
    let skipped = best(|| {
        let mut bench = Bench::new();
        let mut consumer = bench.create(|config| {
            config.deliver_subject = "out".into();
            config.filter_subject = "s.50".into();
        });
        let at = Instant::now();
        while bench.out.messages < MESSAGES / u64::from(SUBJECTS) {
            consumer.pump(&mut bench.env());
        }
        at.elapsed()
    });
    report("push, 1 of 100 subjects: per message passed", MESSAGES, skipped);
    state_record();
}

/// One coalesced record of a consumer with a thousand messages out, every other one acknowledged.
fn state_record() {
    let mut bench = Bench::new();
    let mut consumer = bench.create(|config| config.ack_policy = AckPolicy::Explicit);
    let mut env = bench.env();
    consumer.pull(&mut env, &Pull { reply: b"_INBOX.x", body: b"1000" });
    consumer.pump(&mut env);
    for seq in (1..=1_000).step_by(2) {
        let ack =
            Ack { delivered: 1, stream_seq: Seq(seq), consumer_seq: seq, reply: b"", body: b"" };
        consumer.ack(&mut env, &ack);
    }
    let took = best(|| {
        let at = Instant::now();
        for _ in 0..1_000 {
            consumer.log_state(env.stream, env.log, Urgency::Lazy).expect("appended");
        }
        at.elapsed()
    });
    report("state record, 500 gaps: encode", 1_000, took);
    println!("state record, 500 gaps: {} bytes", bench.log.bytes / (1_000 * ROUNDS));
}
