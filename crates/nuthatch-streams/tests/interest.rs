//! Interest retention over a real log, with power cuts: consumers come, go and change what they want,
//! one of them keeps its state in memory only, messages are purged and deleted, and a small `max_msgs`
//! evicts all the time.
//!
//! Whatever way the log is replayed afterwards, with its checkpoints or without, the stream must hold
//! the same messages.

use bytes::Bytes;
use nuthatch_log::env::{Fault, ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{Disk, Log, LogCore, LogHandle, LogOptions, OpenError, StreamId};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, RetentionPolicy, StreamConfig, StreamInfo,
};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::PurgeRequest;
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, AckItem, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op,
    OpOutcome, OpResult, PublishItem, PullItem, Sink, Span,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Histories, each with [`CUTS`] power cuts.
const HISTORIES: u64 = 150;
const CUTS: u64 = 3;
/// Messages that the stream keeps.
const KEPT: i64 = 6;
const STREAM: StreamId = StreamId(1);
/// The last one keeps its state in memory only.
const CONSUMERS: [&str; 3] = ["a", "b", "m"];
const FILTERS: [&str; 3] = ["i.>", "i.1", ""];
/// Turns in which one event must be done.
const TURNS_MAX: usize = 10_000;

/// Ack subjects of what was delivered, and how many publishes were acknowledged.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<(Vec<String>, u64)>>);

impl Sink for Seen {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        if message.subject == b"ack" && message.body.starts_with(b"{\"stream\"") {
            self.0.lock().expect("lock").1 += 1;
        }
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
        let reply = String::from_utf8_lossy(delivery.reply).into_owned();
        self.0.lock().expect("lock").0.push(reply);
        true
    }

    fn flush(&mut self) {}
}

struct Rig {
    core: LogCore<Engine<Seen>>,
    handle: LogHandle<Event<()>>,
    clock: Arc<ManualClock>,
    seen: Seen,
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(0),
        checkpoint_bytes: 16 * 1024,
        state_part_bytes: 64,
        ..LogOptions::default()
    }
}

impl Rig {
    fn open(disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let seen = Seen::default();
        let engine = Engine::new(EngineConfig::default(), seen.clone());
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let disk = Arc::new(disk.clone());
        let (core, _) = Log::open(options(), disk, clock.clone(), entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, clock, seen })
    }

    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// Sends an event; what is sent before the next [`Rig::settle`] shares a frame.
    fn send_event(&self, event: Event<()>) {
        assert!(self.handle.send(event, 1).is_ok(), "the queue has room");
    }

    fn send_op(&self, op: Op) {
        self.send_event(Event::Op(op, Box::new(|_| {})));
    }

    fn op(&mut self, op: Op) -> Option<OpResult> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.send_event(Event::Op(op, respond));
        self.settle();
        std::mem::take(&mut *result.lock().expect("lock"))
    }

    /// Sends one item; `parts` are laid into its buffer, and `make` is given where.
    fn send(&self, parts: &[&[u8]], make: impl FnOnce(&[Span]) -> Item) {
        let mut buf = Vec::new();
        let mut spans = Vec::new();
        for part in parts {
            let start = buf.len() as u32;
            buf.extend_from_slice(part);
            spans.push(Span { start, end: buf.len() as u32 });
        }
        let items = vec![make(&spans)];
        self.send_event(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
    }

    fn info(&mut self) -> StreamInfo {
        let op = Op::StreamInfo {
            id: STREAM,
            deleted_details: true,
            subjects_filter: String::new(),
            offset: 0,
        };
        match self.op(op) {
            Some(Ok(OpOutcome::Stream { info, .. })) => *info,
            other => panic!("no info: {other:?}"),
        }
    }

    /// First, last and deleted sequences, and how many messages there are.
    fn messages(&mut self) -> (u64, u64, u64, Vec<u64>) {
        let state = self.info().state;
        (state.first_seq, state.last_seq, state.messages, state.deleted)
    }
}

struct History {
    chance: SeededEntropy,
    acks: Vec<String>,
    created: bool,
}

impl History {
    fn create_stream(&mut self, rig: &mut Rig) {
        let config = StreamConfig {
            name: "I".into(),
            subjects: vec!["i.>".into()],
            retention: RetentionPolicy::Interest,
            max_msgs: KEPT,
            ..StreamConfig::default()
        };
        let config = validate::stream_config(config, &Limits::default()).expect("valid");
        let account = AccountId::GLOBAL;
        let op = Op::CreateStream { id: STREAM, account, config: Box::new(config) };
        self.created = matches!(rig.op(op), Some(Ok(_)));
    }

    fn consumer(&mut self, rig: &Rig) {
        let name = CONSUMERS[self.chance.below(3) as usize];
        let filter = FILTERS[self.chance.below(3) as usize];
        let config = ConsumerConfig {
            name: name.into(),
            durable_name: name.into(),
            filter_subject: filter.into(),
            ack_policy: AckPolicy::Explicit,
            mem_storage: name == "m",
            ..ConsumerConfig::default()
        };
        let request = CreateConsumerRequest {
            stream_name: "I".into(),
            config,
            ..CreateConsumerRequest::default()
        };
        rig.send_op(Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) });
    }

    fn step(&mut self, rig: &mut Rig) {
        match self.chance.below(16) {
            0 => rig.clock.advance(Duration::from_millis(self.chance.below(600))),
            1 => self.consumer(rig),
            2 if self.chance.below(3) == 0 => {
                let name = CONSUMERS[self.chance.below(3) as usize].to_owned();
                rig.send_op(Op::DeleteConsumer { id: STREAM, name });
            }
            2 if self.chance.below(3) == 0 => self.remove(rig),
            3..=6 => {
                let name = CONSUMERS[self.chance.below(3) as usize];
                let body = format!("{{\"batch\":{},\"no_wait\":true}}", 1 + self.chance.below(4));
                let parts = [name.as_bytes(), b"inbox", body.as_bytes()];
                rig.send(&parts, |at| {
                    let (consumer, reply, body) = (at[0], at[1], at[2]);
                    let headers = Span::default();
                    Item::Pull(PullItem { stream: STREAM, hint: 0, consumer, reply, headers, body })
                });
                if self.chance.below(2) == 0 {
                    rig.settle();
                    self.acks.append(&mut rig.seen.0.lock().expect("lock").0);
                }
            }
            7..=11 if !self.acks.is_empty() => self.ack(rig),
            _ => self.publish(rig),
        }
    }

    /// A purge, or the delete of one message.
    fn remove(&mut self, rig: &Rig) {
        let seq = 1 + self.chance.below(200);
        if self.chance.below(2) == 0 {
            return rig.send_op(Op::DeleteMessage { id: STREAM, seq });
        }
        let request = match self.chance.below(3) {
            0 => PurgeRequest { filter: "i.1".into(), ..PurgeRequest::default() },
            1 => PurgeRequest { keep: 1 + self.chance.below(3), ..PurgeRequest::default() },
            _ => PurgeRequest { seq, ..PurgeRequest::default() },
        };
        rig.send_op(Op::Purge { id: STREAM, request });
    }

    fn publish(&mut self, rig: &Rig) {
        let subject = format!("i.{}", self.chance.below(3));
        let body = vec![b'x'; self.chance.below(300) as usize];
        rig.send(&[subject.as_bytes(), b"ack", &body], |at| {
            let (subject, reply, body) = (at[0], at[1], at[2]);
            let headers = Span::default();
            Item::Publish(PublishItem { stream: STREAM, hint: 0, subject, reply, headers, body })
        });
    }

    fn ack(&mut self, rig: &Rig) {
        let at = self.chance.below(self.acks.len() as u64) as usize;
        let subject = self.acks.swap_remove(at);
        let tokens: Vec<&str> = subject.split('.').collect();
        let number = |at: usize| tokens[at].parse().expect("a number");
        rig.send(&[tokens[3].as_bytes(), b"+ACK"], |spans| {
            Item::Ack(AckItem {
                stream: STREAM,
                hint: 0,
                consumer: spans[0],
                delivered: number(4),
                stream_seq: number(5),
                consumer_seq: number(6),
                reply: Span::default(),
                body: spans[1],
            })
        });
    }
}

/// Runs one history; returns how many publishes were acknowledged.
fn history(seed: u64) -> u64 {
    let mut disk = MemDisk::default();
    let chance = SeededEntropy::new(seed);
    let mut history = History { chance, acks: Vec::new(), created: false };
    let mut acked = 0;
    for cut in 0..CUTS {
        disk.inject(Fault::PowerCut(disk.operations() + 40 + history.chance.below(400)));
        if let Ok(mut rig) = Rig::open(&disk, seed * 31 + cut) {
            if !history.created {
                history.create_stream(&mut rig);
                (0..6).for_each(|_| history.consumer(&rig));
            }
            for _ in 0..400 {
                history.step(&mut rig);
                if history.chance.below(4) == 0 {
                    rig.settle();
                }
            }
            rig.settle();
            acked += rig.seen.0.lock().expect("lock").1;
        }
        history.acks.clear();
        disk = disk.crash(seed ^ (cut << 32));
        if history.created {
            let bare = disk.survive();
            for name in bare.list("").expect("lists").iter().filter(|n| n.starts_with("checkp")) {
                bare.remove(name).expect("removes");
            }
            let all = Rig::open(&disk.survive(), 1).expect("opens").messages();
            let without = Rig::open(&bare, 1).expect("opens").messages();
            assert_eq!(all, without, "seed {seed}, cut {cut}: with and without checkpoints");
        }
    }
    acked
}

#[test]
fn every_way_of_replaying_an_interest_stream_holds_the_same_messages() {
    let acked: u64 = (0..HISTORIES).map(history).sum();
    assert!(acked > 20 * HISTORIES, "only {acked} publishes: the property says nothing");
}

/// Messages of a sweep that a power cut interrupts: more than one part of it looks at.
const SWEPT: u64 = 5_000;
/// Consumers that each message is asked of.
const ASKED: u64 = 20;

/// Why messages are not needed any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// The consumer that wanted all of them is deleted.
    Deleted,
    /// It wants fewer.
    Narrowed,
    /// The stream kept everything, and now only what somebody needs.
    InterestBegins,
}

/// A stream that evicts nothing.
fn unlimited(retention: RetentionPolicy) -> Box<StreamConfig> {
    let subjects = vec!["i.>".into()];
    let config = StreamConfig { name: "I".into(), subjects, retention, ..StreamConfig::default() };
    Box::new(validate::stream_config(config, &Limits::default()).expect("valid"))
}

fn consumer(name: String, filter: &str) -> Op {
    let config = ConsumerConfig {
        durable_name: name.clone(),
        name,
        filter_subject: filter.into(),
        ack_policy: AckPolicy::Explicit,
        ..ConsumerConfig::default()
    };
    let stream_name = "I".into();
    let request = CreateConsumerRequest { stream_name, config, ..<_>::default() };
    Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) }
}

impl Cause {
    fn prepare(self, rig: &mut Rig) {
        let begins = self == Self::InterestBegins;
        let retention = if begins { RetentionPolicy::Limits } else { RetentionPolicy::Interest };
        let (account, config) = (AccountId::GLOBAL, unlimited(retention));
        let created = rig.op(Op::CreateStream { id: STREAM, account, config });
        assert!(matches!(created, Some(Ok(_))), "{created:?}");
        if !begins {
            assert!(matches!(rig.op(consumer("all".into(), "")), Some(Ok(_))));
        }
        (0..ASKED).for_each(|n| rig.send_op(consumer(format!("c{n}"), "i.1")));
    }

    fn happen(self, rig: &mut Rig) {
        let config = unlimited(RetentionPolicy::Interest);
        rig.op(match self {
            Self::Deleted => Op::DeleteConsumer { id: STREAM, name: "all".into() },
            Self::Narrowed => consumer("all".into(), "i.1"),
            Self::InterestBegins => Op::UpdateStream { id: STREAM, config },
        });
    }

    /// True if the restart found that it had happened.
    fn has_happened(self, rig: &mut Rig) -> bool {
        if self == Self::InterestBegins {
            return rig.info().config.retention == RetentionPolicy::Interest;
        }
        match rig.op(Op::ConsumerInfo { id: STREAM, name: "all".into() }) {
            Some(Ok(OpOutcome::Consumer(info))) => !info.config.filter_subject.is_empty(),
            _ => true,
        }
    }
}

/// Power cuts in the middle of a sweep of thousands; returns how many messages the start still found.
fn interrupted_sweep(cause: Cause, seed: u64) -> u64 {
    let disk = MemDisk::default();
    let mut chance = SeededEntropy::new(seed);
    let mut rig = Rig::open(&disk, seed).expect("opens");
    cause.prepare(&mut rig);
    for n in 0..SWEPT {
        rig.send(&[format!("i.{}", u64::from(n % 100 == 0)).as_bytes()], |at| {
            let (subject, none) = (at[0], Span::default());
            let (reply, headers, body) = (none, none, none);
            Item::Publish(PublishItem { stream: STREAM, hint: 0, subject, reply, headers, body })
        });
        if n % 64 == 0 {
            rig.settle();
        }
    }
    rig.settle();
    disk.inject(Fault::PowerCut(disk.operations() + (1 << chance.below(9))));
    cause.happen(&mut rig);
    rig.settle();
    drop(rig);
    let mut rig = Rig::open(&disk.crash(seed), seed ^ 1).expect("opens");
    let found = rig.core.machine().previews()[0].messages;
    for _ in 0..20 {
        rig.clock.advance(Duration::from_millis(200));
        rig.settle();
    }
    // Without its record on the disk it has not happened, and everything is needed.
    let is_needed = !cause.has_happened(&mut rig);
    let expected = if is_needed { SWEPT } else { SWEPT / 100 };
    let left = rig.info().state.messages;
    assert_eq!(left, expected, "seed {seed}, {cause:?}: the start found {found}");
    if is_needed { SWEPT } else { found }
}

#[test]
fn a_sweep_of_thousands_that_the_power_cut_interrupts_is_finished() {
    for cause in [Cause::Deleted, Cause::Narrowed, Cause::InterestBegins] {
        let found: Vec<u64> = (0..24).map(|seed| interrupted_sweep(cause, seed)).collect();
        let middle = found.iter().filter(|&&left| left > SWEPT / 100 && left < SWEPT).count();
        assert!(middle > 0, "{cause:?}: no cut came in the middle of a sweep: {found:?}");
    }
}
