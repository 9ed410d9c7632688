//! One log with an engine on a disk in memory, and what its clients get.

use bytes::Bytes;
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{
    Compression, Disk, Keys, Log, LogCore, LogHandle, LogOptions, Lsn, OpenError, Standby, StreamId,
};
use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_protocol::js::{ConsumerInfo, StreamInfo};
use nuthatch_streams::op::GetMessage;
use nuthatch_streams::{
    AccountId, AckItem, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op,
    OpOutcome, OpResult, PublishItem, PullItem, Sink, Span,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Turns in which one event must be done.
const TURNS_MAX: usize = 20_000;

/// What nobody awaits is written after so long.
const LAZY_FLUSH_MS: u64 = 20;
const LAZY_LOOKS: usize = 40;

/// A message that a consumer got.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub stream: String,
    pub consumer: String,
    pub seq: u64,
    pub body: Vec<u8>,
    pub reply: String,
}

/// What clients have got since it was last taken.
#[derive(Default)]
pub struct Got {
    /// Answers to publishes: the number that is their subject, and the text.
    pub answers: Vec<(u64, String)>,
    pub delivered: Vec<Delivered>,
    /// Confirmations of double acks: stream, consumer, sequence.
    pub confirmed: Vec<(String, String, u64)>,
}

type Outside = Arc<Mutex<Got>>;

pub struct Recorder(Outside);

impl Recorder {
    fn take(&self, message: &Message<'_>) {
        let mut got = self.0.lock().expect("lock");
        let subject = String::from_utf8_lossy(message.subject).into_owned();
        let parts: Vec<&str> = subject.split('.').collect();
        if let Ok(number) = subject.parse() {
            got.answers.push((number, String::from_utf8_lossy(message.body).into_owned()));
        } else if let ["confirm", stream, consumer, seq] = parts[..] {
            let seq = seq.parse().expect("a sequence");
            got.confirmed.push((stream.to_owned(), consumer.to_owned(), seq));
        }
    }
}

impl Sink for Recorder {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        self.take(message);
    }

    fn publish(&mut self, _: AccountId, message: &Message<'_>) {
        self.take(message);
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
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ack = parse_ack_subject(delivery.reply).expect("an ack subject");
        self.0.lock().expect("lock").delivered.push(Delivered {
            stream: text(ack.stream),
            consumer: text(ack.consumer),
            seq: ack.stream_seq,
            body: delivery.body.to_vec(),
            reply: text(delivery.reply),
        });
        true
    }

    fn flush(&mut self) {}
}

/// A message to publish.
pub struct Outgoing {
    pub subject: String,
    /// The number that its answer comes to; 0: nobody awaits it.
    pub answer_to: u64,
    pub headers: String,
    pub body: Vec<u8>,
}

pub struct Rig {
    pub core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    pub clock: Arc<ManualClock>,
    outside: Outside,
}

fn options(is_cold: bool) -> LogOptions {
    let plain = LogOptions {
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(24 * 1024),
        lazy_flush_ms: LAZY_FLUSH_MS,
        checkpoint_bytes: 24 * 1024,
        // Every state is written in many parts, which cuts separate.
        state_part_bytes: 64,
        ..LogOptions::default()
    };
    if !is_cold {
        return plain;
    }
    // Whatever is sealed is merged, sorted by stream and compressed.
    LogOptions {
        merge: true,
        compression: Compression::Zstd,
        cold_after_ms: 0,
        own_segment_bytes: 1500,
        segment_frames: 20,
        compact_memory_bytes: 2000,
        ..plain
    }
}

/// Parts of items, one after the other in a buffer.
#[derive(Default)]
struct Parts(Vec<u8>);

impl Parts {
    fn span(&mut self, bytes: &[u8]) -> Span {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        Span { start, end: self.0.len() as u32 }
    }
}

fn engine(outside: &Outside) -> Engine<Recorder> {
    Engine::new(EngineConfig::default(), Recorder(outside.clone()))
}

/// What follows a log that somebody else writes.
pub struct Follower {
    standby: Standby<Engine<Recorder>>,
    outside: Outside,
}

impl Follower {
    /// Reads what there is now; `None`: nothing that can be gone on from.
    pub fn read(follower: Option<Self>, disk: &MemDisk) -> Option<Self> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let Some(mut follower) = follower else {
            let outside = Outside::default();
            let standby = Standby::begin(&Keys::default(), &disk, engine(&outside)).ok()??;
            return Some(Self { standby, outside });
        };
        while follower.standby.follow(&disk).ok()? {}
        Some(follower)
    }
}

impl Rig {
    /// A log whose clock begins at `now_ns`.
    pub fn open(disk: &MemDisk, salt: u64, now_ns: i64) -> Result<Self, OpenError> {
        Self::open_from(disk, salt, now_ns, None).map(|(rig, _)| rig)
    }

    /// The same with what has followed it; whether that was of use.
    pub fn open_from(
        disk: &MemDisk,
        salt: u64,
        now_ns: i64,
        follower: Option<Follower>,
    ) -> Result<(Self, bool), OpenError> {
        let (standby, outside) = match follower {
            Some(Follower { standby, outside }) => (Some(standby), outside),
            None => (None, Outside::default()),
        };
        let clock = Arc::new(ManualClock::at(now_ns));
        let entropy = Box::new(SeededEntropy::new(salt));
        let from = (standby, || engine(&outside));
        let disk = Arc::new(disk.clone());
        let (core, report) =
            Log::open_from(options(salt % 2 == 1), disk, clock.clone(), entropy, from)?;
        let handle = core.handle();
        Ok((Self { core, handle, clock, outside }, report.standby > Lsn(0)))
    }

    pub fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    pub fn pass(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.settle();
    }

    fn send_event(&self, event: Event<()>) {
        assert!(self.handle.send_anyway(event, 1).is_ok(), "the log takes events");
    }

    fn send_items(&self, parts: Parts, items: Vec<Item>) {
        let buf = Bytes::from(parts.0);
        self.send_event(Event::Batch(ClientBatch { peer: (), buf, items }));
    }

    /// Sends an operation; the outcome comes into the slot that is returned.
    pub fn send_op(&self, op: Op) -> Arc<Mutex<Option<OpResult>>> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.send_event(Event::Op(op, respond));
        result
    }

    /// `None`: the log failed before there was an outcome. Waits for frames that nobody awaits.
    pub fn op(&mut self, op: Op) -> Option<OpResult> {
        let result = self.send_op(op);
        self.settle();
        for _ in 0..LAZY_LOOKS {
            if result.lock().expect("lock").is_some() || self.has_failed() {
                break;
            }
            self.pass(LAZY_FLUSH_MS / 4);
        }
        result.lock().expect("lock").take()
    }

    pub fn publish(&self, stream: StreamId, messages: &[Outgoing]) {
        let (mut parts, mut items) = (Parts::default(), Vec::new());
        for message in messages {
            let answer_to = message.answer_to.to_string();
            let reply = if message.answer_to == 0 { "" } else { answer_to.as_str() };
            items.push(Item::Publish(PublishItem {
                stream,
                hint: 0,
                subject: parts.span(message.subject.as_bytes()),
                reply: parts.span(reply.as_bytes()),
                headers: parts.span(message.headers.as_bytes()),
                body: parts.span(&message.body),
            }));
        }
        self.send_items(parts, items);
    }

    pub fn pull(&self, stream: StreamId, consumer: &str, count: u64) {
        let mut parts = Parts::default();
        let body = format!("{{\"batch\":{count},\"no_wait\":true}}");
        let pull = PullItem {
            stream,
            hint: 0,
            consumer: parts.span(consumer.as_bytes()),
            reply: parts.span(b"inbox"),
            headers: Span::default(),
            body: parts.span(body.as_bytes()),
        };
        self.send_items(parts, vec![Item::Pull(pull)]);
    }

    /// Answers a delivery; with `confirm` the answer to that comes to its subject.
    pub fn ack(&self, stream: StreamId, of: &Delivered, body: &str, confirm: bool) {
        let ack = parse_ack_subject(of.reply.as_bytes()).expect("an ack subject");
        let mut parts = Parts::default();
        let reply = format!("confirm.{}.{}.{}", of.stream, of.consumer, of.seq);
        let item = AckItem {
            stream,
            hint: 0,
            consumer: parts.span(of.consumer.as_bytes()),
            delivered: ack.delivered,
            stream_seq: ack.stream_seq,
            consumer_seq: ack.consumer_seq,
            reply: parts.span(if confirm { reply.as_bytes() } else { b"" }),
            body: parts.span(body.as_bytes()),
        };
        self.send_items(parts, vec![Item::Ack(item)]);
    }

    pub fn take(&self) -> Got {
        std::mem::take(&mut self.outside.lock().expect("lock"))
    }

    /// What is told of a stream; `None` if it does not exist.
    pub fn info(&mut self, id: StreamId) -> Option<StreamInfo> {
        let subjects_filter = String::new();
        let op = Op::StreamInfo { id, deleted_details: true, subjects_filter, offset: 0 };
        match self.op(op) {
            Some(Ok(OpOutcome::Stream { info, .. })) => Some(*info),
            Some(Err(error)) if [10059, 10008].contains(&error.err_code) => None,
            other => panic!("no information: {other:?}"),
        }
    }

    pub fn consumer_info(&mut self, id: StreamId, name: &str) -> Option<ConsumerInfo> {
        match self.op(Op::ConsumerInfo { id, name: name.to_owned() }) {
            Some(Ok(OpOutcome::Consumer(info))) => Some(*info),
            Some(Err(error)) if [10014, 10059, 10008].contains(&error.err_code) => None,
            other => panic!("no information: {other:?}"),
        }
    }

    pub fn read(&mut self, id: StreamId, seq: u64) -> Vec<u8> {
        let request = GetMessage { seq, ..GetMessage::default() };
        match self.op(Op::GetMessage { id, request }) {
            Some(Ok(OpOutcome::Message(found))) => found.body,
            other => panic!("message {seq} of {id}: {other:?}"),
        }
    }

    pub fn has_failed(&self) -> bool {
        self.handle.stats().failed > 0
    }
}

/// The sequences that a stream holds.
pub fn held(info: &StreamInfo) -> BTreeSet<u64> {
    let state = &info.state;
    let deleted: BTreeSet<u64> = state.deleted.iter().copied().collect();
    let all = (state.first_seq..=state.last_seq).filter(|seq| !deleted.contains(seq));
    if state.messages == 0 { BTreeSet::new() } else { all.collect() }
}
