//! An engine over a log in memory, and a sink that keeps what it is given.

use super::fake_log::{FakeLog, Owned};
use crate::consumer::PreparedConsumer;
use crate::engine::{Engine, EngineConfig};
use crate::event::{AckItem, ClientBatch, DirectGetItem, Event, Item, PublishItem, PullItem, Span};
use crate::op::{Op, OpOutcome, OpResult};
use crate::sink::{AccountId, Delivery, Message, Sink};
use nuthatch_log::{IndexedMessage, LogAccess, Machine, RecordKind, Seq, StreamId};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, ConsumerInfo, CreateConsumerRequest, StorageType, StreamConfig,
    StreamInfo,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Something that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) subject: String,
    pub(super) headers: String,
    pub(super) body: String,
}

/// A sink that keeps everything; whoever asks is listening.
#[derive(Clone, Default)]
pub(super) struct VecSink {
    pub(super) replies: Vec<Out>,
    pub(super) published: Vec<Out>,
    pub(super) delivered: Vec<Out>,
    /// Who got each of them.
    pub(super) targets: Vec<String>,
    /// Where the flow control request that came last is answered.
    pub(super) flow: String,
    /// Deliveries that have not been handed over yet.
    pub(super) staged: Arc<AtomicUsize>,
}

fn out(subject: &[u8], headers: &[u8], body: &[u8]) -> Out {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Out { subject: text(subject), headers: text(headers), body: text(body) }
}

impl Sink for VecSink {
    type Peer = u32;
    type Target = String;

    fn reply(&mut self, _: AccountId, _: &u32, _: u32, message: &Message<'_>) {
        self.replies.push(out(message.subject, message.headers, message.body));
    }

    fn publish(&mut self, _: AccountId, message: &Message<'_>) {
        if message.reply.starts_with(b"$JS.FC.") {
            self.flow = String::from_utf8_lossy(message.reply).into_owned();
        }
        self.published.push(out(message.subject, message.headers, message.body));
    }

    fn resolve(&mut self, _: AccountId, subject: &[u8], _: &[u8]) -> Option<String> {
        Some(String::from_utf8_lossy(subject).into_owned())
    }

    fn refresh(&mut self, _: &mut String) -> bool {
        true
    }

    fn ready(&mut self, _: &String) -> bool {
        true
    }

    fn deliver(&mut self, target: &mut String, delivery: &Delivery<'_>) -> bool {
        self.targets.push(target.clone());
        self.staged.fetch_add(1, Ordering::Relaxed);
        self.delivered.push(out(delivery.reply, delivery.headers, delivery.body));
        true
    }

    fn flush(&mut self) {
        self.staged.store(0, Ordering::Relaxed);
    }
}

/// A message to publish.
#[derive(Clone, Copy, Default)]
pub(super) struct Msg<'a> {
    pub(super) subject: &'a str,
    pub(super) headers: &'a str,
    pub(super) body: &'a str,
}

/// How to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reopen {
    /// Replay every record.
    Scratch,
    /// From the newest checkpoint, the states after it, then what follows.
    Snapshot,
    /// From the newest `StreamState`, with what was dead then compacted away, then what follows.
    States,
}

/// Engine and log.
pub(super) struct Harness {
    pub(super) engine: Engine<VecSink>,
    pub(super) log: FakeLog,
    /// Consumers in memory outlive a start.
    outlive: bool,
}

pub(super) const STREAM: StreamId = StreamId(1);
const START_NS: i64 = 1_700_000_000_000_000_000;

impl Harness {
    pub(super) fn new() -> Self {
        let log = FakeLog::at(START_NS);
        Self { engine: engine(), log, outlive: false }
    }

    /// With a stream called `S` on `s.>`.
    pub(super) fn with_stream(adapt: impl FnOnce(&mut StreamConfig)) -> Self {
        Self::new().and_stream(adapt)
    }

    /// The same in a log that other nodes go on with, where that is so.
    pub(super) fn with_stream_in(outlive: bool, adapt: impl FnOnce(&mut StreamConfig)) -> Self {
        let engine = Engine::new(config_of(outlive), VecSink::default());
        Self { engine, outlive, ..Self::new() }.and_stream(adapt)
    }

    fn and_stream(self, adapt: impl FnOnce(&mut StreamConfig)) -> Self {
        let mut harness = self;
        let mut config = StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            storage: StorageType::File,
            allow_direct: true,
            ..StreamConfig::default()
        };
        adapt(&mut config);
        let config = crate::validate::stream_config(config, &crate::validate::Limits::default())
            .expect("valid");
        let op =
            Op::CreateStream { id: STREAM, account: AccountId::GLOBAL, config: Box::new(config) };
        harness.op(op).expect("created");
        harness.engine.sink_mut().published.clear();
        harness
    }

    pub(super) fn pass_ms(&mut self, ms: i64) {
        self.log.now += ms * 1_000_000;
    }

    pub(super) fn step(&mut self, event: Event<u32>) {
        self.engine.step(event, &mut self.log);
        self.engine.turn_end();
    }

    /// Commits the oldest full frame, or else seals and commits the open one.
    pub(super) fn commit(&mut self) {
        self.commit_frame();
        self.engine.turn_end();
    }

    /// The same in the middle of a turn: what it puts out stays staged.
    pub(super) fn commit_frame(&mut self) {
        if self.log.sealed.is_empty() {
            self.engine.before_seal(&mut self.log);
        }
        let frame = if self.log.sealed.is_empty() {
            std::mem::take(&mut self.log.open)
        } else {
            self.log.sealed.remove(0)
        };
        for record in frame.iter().filter(|record| record.kind == RecordKind::Message) {
            self.log.messages.insert((record.stream, record.seq), record.clone());
        }
        self.log.frames.push(frame);
        self.log.awaited = false;
        let lsn = self.log.committed();
        self.engine.committed(lsn, &mut self.log);
    }

    /// Starts an operation; the slot holds the outcome once there is one.
    pub(super) fn start_op(&mut self, op: Op) -> Arc<Mutex<Option<OpResult>>> {
        let slot = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&slot);
        let respond = Box::new(move |result| *filled.lock().expect("lock") = Some(result));
        self.step(Event::Op(op, respond));
        slot
    }

    /// Runs an operation to its end.
    pub(super) fn op(&mut self, op: Op) -> OpResult {
        let slot = self.start_op(op);
        if slot.lock().expect("lock").is_none() {
            self.commit();
        }
        let result = slot.lock().expect("lock").take();
        result.expect("an outcome after the commit")
    }

    /// Publishes without committing.
    pub(super) fn send(&mut self, messages: &[Msg<'_>]) {
        self.send_from("reply", messages);
    }

    /// Publishes with this reply subject, without committing.
    pub(super) fn send_from(&mut self, reply: &str, messages: &[Msg<'_>]) {
        let mut buf = Vec::new();
        let mut span = |text: &str| {
            let start = buf.len() as u32;
            buf.extend_from_slice(text.as_bytes());
            Span { start, end: buf.len() as u32 }
        };
        let reply = span(reply);
        let items = messages
            .iter()
            .map(|message| {
                Item::Publish(PublishItem {
                    stream: STREAM,
                    hint: 0,
                    subject: span(message.subject),
                    reply,
                    headers: span(message.headers),
                    body: span(message.body),
                })
            })
            .collect();
        self.step(Event::Batch(ClientBatch { peer: 7, buf: buf.into(), items }));
    }

    /// Publishes, commits, returns the answers.
    pub(super) fn publish(&mut self, messages: &[Msg<'_>]) -> Vec<String> {
        self.send(messages);
        self.commit();
        self.take_replies()
    }

    pub(super) fn put(&mut self, subject: &str, body: &str) -> String {
        self.publish(&[Msg { subject, body, ..Msg::default() }]).remove(0)
    }

    pub(super) fn put_with(&mut self, subject: &str, headers: &str) -> String {
        let headers = format!("NATS/1.0\r\n{headers}\r\n\r\n");
        self.publish(&[Msg { subject, headers: &headers, body: "x" }]).remove(0)
    }

    pub(super) fn take_replies(&mut self) -> Vec<String> {
        let replies = std::mem::take(&mut self.engine.sink_mut().replies);
        replies.into_iter().map(|out| out.body).collect()
    }

    pub(super) fn direct(&mut self, subject: &str, body: &str) -> Vec<Out> {
        let mut buf = Vec::new();
        let mut span = |text: &str| {
            let start = buf.len() as u32;
            buf.extend_from_slice(text.as_bytes());
            Span { start, end: buf.len() as u32 }
        };
        let item = DirectGetItem {
            unless_changed: None,
            stream: STREAM,
            for_origin: false,
            hint: 0,
            headers: Span::default(),
            subject: span(subject),
            reply: span("inbox"),
            body: span(body),
        };
        let items = vec![Item::DirectGet(item)];
        self.step(Event::Batch(ClientBatch { peer: 7, buf: buf.into(), items }));
        std::mem::take(&mut self.engine.sink_mut().replies)
    }

    /// Creates or updates a consumer.
    pub(super) fn consumer(
        &mut self,
        name: &str,
        adapt: impl FnOnce(&mut ConsumerConfig),
    ) -> OpResult {
        let mut config = ConsumerConfig {
            name: name.into(),
            durable_name: name.into(),
            ack_policy: AckPolicy::Explicit,
            ..ConsumerConfig::default()
        };
        adapt(&mut config);
        let request = CreateConsumerRequest {
            stream_name: "S".into(),
            config,
            ..CreateConsumerRequest::default()
        };
        self.op(Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) })
    }

    pub(super) fn consumer_info(&mut self, name: &str) -> Option<ConsumerInfo> {
        match self.op(Op::ConsumerInfo { id: STREAM, name: name.into() }) {
            Ok(OpOutcome::Consumer(info)) => Some(*info),
            _ => None,
        }
    }

    /// Asks for messages without waiting; returns the ack subjects of those that came.
    pub(super) fn pull(&mut self, consumer: &str, batch: u64) -> Vec<String> {
        self.pull_with(consumer, &format!("{{\"batch\":{batch},\"no_wait\":true}}"))
    }

    /// Asks for one message and waits for it.
    pub(super) fn pull_waiting(&mut self, consumer: &str) -> Vec<String> {
        self.pull_with(consumer, r#"{"batch":1,"expires":60000000000}"#)
    }

    pub(super) fn pull_with(&mut self, consumer: &str, body: &str) -> Vec<String> {
        self.pull_from("inbox", consumer, body);
        let delivered = std::mem::take(&mut self.engine.sink_mut().delivered);
        delivered.into_iter().map(|out| out.subject).collect()
    }

    /// Asks for messages; what comes stays in the sink.
    pub(super) fn pull_from(&mut self, inbox: &str, consumer: &str, body: &str) {
        self.pull_as(inbox, consumer, "", body);
    }

    /// The same with a header block.
    pub(super) fn pull_as(&mut self, inbox: &str, consumer: &str, headers: &str, body: &str) {
        let mut buf = Vec::new();
        let mut span = |text: &str| {
            let start = buf.len() as u32;
            buf.extend_from_slice(text.as_bytes());
            Span { start, end: buf.len() as u32 }
        };
        let item = Item::Pull(PullItem {
            stream: STREAM,
            hint: 0,
            headers: span(headers),
            consumer: span(consumer),
            reply: span(inbox),
            body: span(body),
        });
        self.step(Event::Batch(ClientBatch { peer: 7, buf: buf.into(), items: vec![item] }));
    }

    /// Acknowledges by an ack subject.
    pub(super) fn ack(&mut self, subject: &str, body: &str, reply: &str) {
        let tokens: Vec<&str> = subject.split('.').collect();
        let number = |at: usize| tokens[at].parse().expect("a number");
        let mut buf = Vec::new();
        let mut span = |text: &str| {
            let start = buf.len() as u32;
            buf.extend_from_slice(text.as_bytes());
            Span { start, end: buf.len() as u32 }
        };
        let item = Item::Ack(AckItem {
            stream: STREAM,
            hint: 0,
            consumer: span(tokens[3]),
            delivered: number(4),
            stream_seq: number(5),
            consumer_seq: number(6),
            reply: span(reply),
            body: span(body),
        });
        self.step(Event::Batch(ClientBatch { peer: 7, buf: buf.into(), items: vec![item] }));
    }

    pub(super) fn info(&mut self) -> StreamInfo {
        let op = Op::StreamInfo {
            id: STREAM,
            deleted_details: true,
            subjects_filter: ">".into(),
            offset: 0,
        };
        let slot = self.start_op(op);
        if slot.lock().expect("lock").is_none() && !self.log.open.is_empty() {
            self.commit();
        }
        for _ in 0..1000 {
            let answer = slot.lock().expect("lock").take();
            match answer {
                Some(Ok(OpOutcome::Stream { info, .. })) => return *info,
                Some(other) => panic!("{other:?}"),
                None => {
                    let engine = &mut self.engine;
                    engine.details.run(&engine.streams, &mut engine.out, self.log.now());
                }
            }
        }
        panic!("no information after many parts")
    }

    fn each_held(&self, visit: &mut dyn FnMut(StreamId, Seq)) {
        for slot in self.engine.streams.iter() {
            let id = slot.stream.id();
            slot.stream.contents().for_each_held(&mut |seq, _| visit(id, seq));
        }
    }

    /// Live sequences.
    pub(super) fn seqs(&self) -> Vec<u64> {
        let mut seqs = Vec::new();
        self.each_held(&mut |_, seq| seqs.push(seq.0));
        seqs.sort_unstable();
        seqs
    }

    pub(super) fn tick(&mut self) {
        self.engine.tick(&mut self.log);
        self.engine.turn_end();
    }

    /// A checkpoint now, then (as compaction does) the states of all streams, so that what is dead
    /// may go.
    pub(super) fn compact(&mut self) {
        self.commit();
        let mut snapshot = Vec::new();
        self.engine.snapshot(&mut snapshot);
        self.log.checkpoint = Some((self.log.record_count(), snapshot));
        self.engine.log_states(&[STREAM], &mut self.log).expect("states are logged");
        self.commit();
        let mut live = BTreeSet::new();
        self.each_held(&mut |stream, seq| {
            live.insert((stream, seq));
        });
        self.log.kept = Some(live);
    }

    /// True if there is one to reopen from; otherwise reopening makes one.
    pub(super) fn has_checkpoint(&self) -> bool {
        self.log.checkpoint.is_some()
    }

    /// Opens the log again with a new engine. What was not committed is lost.
    pub(super) fn reopen(&mut self, how: Reopen) {
        self.reopen_with(how, config_of(self.outlive));
    }

    /// The same with this configuration.
    pub(super) fn reopen_with(&mut self, how: Reopen, config: EngineConfig) {
        if how != Reopen::Scratch && self.log.checkpoint.is_none() {
            self.compact();
        }
        let mut fresh = Engine::new(config, VecSink::default());
        self.log.open.clear();
        self.log.sealed.clear();
        self.log.dead.clear();
        let records: Vec<&Owned> = self.log.frames.iter().flatten().collect();
        let (mut from, mut checkpoint) = (0, 0);
        if how == Reopen::Snapshot
            && let Some((at, snapshot)) = &self.log.checkpoint
        {
            fresh.restore(snapshot).expect("restores");
            (from, checkpoint) = (*at, *at);
        }
        if how == Reopen::States || how == Reopen::Snapshot {
            for kind in [RecordKind::StreamState, RecordKind::LogState] {
                let newest = records.iter().rposition(|record| record.kind == kind);
                if let Some(at) = newest.filter(|&at| at >= checkpoint) {
                    fresh.apply_state(&records[at].as_ref());
                    from = from.max(at + 1);
                }
            }
        }
        for (at, record) in records.into_iter().enumerate() {
            let gone = |kept: &BTreeSet<_>| !kept.contains(&(record.stream, record.seq));
            if at >= from {
                fresh.apply(&record.as_ref());
            } else if how == Reopen::Snapshot || !self.log.kept.as_ref().is_some_and(gone) {
                reindex(&mut fresh, record);
            }
        }
        fresh.recovered(&mut self.log);
        self.engine = fresh;
    }
}

fn reindex(fresh: &mut Engine<VecSink>, record: &Owned) {
    if record.kind == RecordKind::Message {
        fresh.reindex(&IndexedMessage {
            stream: record.stream,
            seq: record.seq,
            timestamp: record.timestamp,
            subject: &record.subject,
            weight: record.as_ref().weight() as u32,
            has_headers: !record.headers.is_empty(),
        });
    }
}

fn config_of(outlive: bool) -> EngineConfig {
    EngineConfig { memory_consumers_outlive: outlive, ..EngineConfig::default() }
}

fn engine() -> Engine<VecSink> {
    Engine::new(EngineConfig::default(), VecSink::default())
}
