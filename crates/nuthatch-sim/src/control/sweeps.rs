//! Sweeps of one stream with interest retention: consumers go or want less, and what nobody needs any more
//! is looked for in parts, while power is cut between the parts and in the middle of them.
//!
//! The machine is the engine's own (`engine/interest.rs`), which has its turns and its time from its log:
//! so this world has a real engine with a real log, on a disk in memory that forgets what was not synced.

use super::Summary;
use super::violation::Violation;
use crate::scheduler::Scheduler;
use bytes::Bytes;
use nuthatch_log::env::{Fault, ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{Log, LogCore, LogHandle, LogOptions, OpenError, StreamId};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, RetentionPolicy, StreamConfig,
};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::{OpResult, RangeRequest};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Engine, EngineConfig, Event, Item, NullSink, Op, OpOutcome,
    PublishItem, Span,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MILLI: u64 = 1_000;
const STREAM: StreamId = StreamId(1);
/// Consumers that always want the few: each message is asked of them.
const ASKED: u64 = 80;
/// The consumer that wants all messages while it is there.
const ALL: &str = "all";
/// Of so many messages one is of the few.
const FEW: u64 = 40;
/// Turns in which what was sent must be done.
const TURNS_MAX: usize = 20_000;

/// What happens, for the trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Opened { messages: u64 },
    Filled { count: u64 },
    Gone { narrowed: bool },
    Cut { after: u64 },
    Ticked,
}

struct Rig {
    core: LogCore<Engine<NullSink>>,
    handle: LogHandle<Event<()>>,
    clock: Arc<ManualClock>,
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 * 1024,
        first_segment_bytes: 16 * 1024,
        block_bytes: 512,
        frame_bytes: 8 * 1024,
        tail_cache_bytes: 16 * 1024,
        block_cache_bytes: 16 * 1024,
        queue_bytes: 256 * 1024,
        reserve_bytes: Some(0),
        checkpoint_bytes: 2 * 1024,
        ..LogOptions::default()
    }
}

impl Rig {
    fn open(disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let engine = Engine::new(EngineConfig::default(), NullSink);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let disk = Arc::new(disk.clone());
        let (core, _) = Log::open(options(), disk, clock.clone(), entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, clock })
    }

    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    fn send(&mut self, event: Event<()>) {
        assert!(self.handle.send_anyway(event, 1).is_ok(), "the log takes events");
    }

    /// The outcome; `None`: the log has stopped.
    fn op(&mut self, op: Op) -> Option<OpResult> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.send(Event::Op(op, respond));
        self.settle();
        result.lock().expect("lock").take()
    }

    fn publish(&mut self, subjects: &[&str]) {
        self.send_messages(subjects);
        self.settle();
    }

    fn send_messages(&mut self, subjects: &[&str]) {
        let (mut buf, mut items) = (Vec::new(), Vec::new());
        for subject in subjects {
            let start = buf.len() as u32;
            buf.extend_from_slice(subject.as_bytes());
            let subject = Span { start, end: buf.len() as u32 };
            let (reply, headers, body) = (Span::default(), Span::default(), Span::default());
            items.push(Item::Publish(PublishItem {
                stream: STREAM,
                hint: 0,
                subject,
                reply,
                headers,
                body,
            }));
        }
        self.send(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
    }

    /// The subjects of what is there, by sequence, and the last sequence that was given out.
    fn messages(&mut self) -> (BTreeMap<u64, String>, u64) {
        let (mut all, mut from) = (BTreeMap::new(), 1);
        loop {
            let request = RangeRequest { from, ..RangeRequest::default() };
            let Some(Ok(OpOutcome::Range(range))) = self.op(Op::ReadRange { id: STREAM, request })
            else {
                panic!("a healthy log gives what it has")
            };
            for found in range.messages {
                let subject = String::from_utf8_lossy(&found.subject).into_owned();
                all.insert(found.seq, subject);
            }
            if range.next > range.last_seq {
                return (all, range.last_seq);
            }
            from = range.next;
        }
    }

    /// The filter of the consumer that may want all; `None`: there is none.
    fn wish(&mut self) -> Option<String> {
        match self.op(Op::ConsumerInfo { id: STREAM, name: ALL.into() }) {
            Some(Ok(OpOutcome::Consumer(info))) => Some(info.config.filter_subject),
            _ => None,
        }
    }
}

fn consumer(name: &str, filter: &str) -> Op {
    let config = ConsumerConfig {
        durable_name: name.to_owned(),
        name: name.to_owned(),
        filter_subject: filter.to_owned(),
        ack_policy: AckPolicy::Explicit,
        ..ConsumerConfig::default()
    };
    let stream_name = "I".to_owned();
    let request = CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() };
    Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(request) }
}

struct World {
    schedule: Scheduler<Step>,
    disk: MemDisk,
    /// Messages that are always needed, all of them durable.
    few: u64,
    summary: Summary,
}

impl World {
    fn note(&mut self, step: Step) {
        self.summary.steps += 1;
        let now = self.schedule.now();
        self.schedule.trace.record(now, &step);
    }

    fn open(&mut self) -> Rig {
        let salt = self.schedule.rng.bits();
        let rig = Rig::open(&self.disk, salt).expect("a log opens after a power cut");
        let messages = rig.core.machine().previews().first().map_or(0, |first| first.messages);
        self.note(Step::Opened { messages });
        rig
    }

    fn create(&mut self, rig: &mut Rig) {
        let config = StreamConfig {
            name: "I".into(),
            subjects: vec!["i.>".into()],
            retention: RetentionPolicy::Interest,
            ..StreamConfig::default()
        };
        let config = validate::stream_config(config, &Limits::default()).expect("valid");
        let (account, config) = (AccountId::GLOBAL, Box::new(config));
        rig.op(Op::CreateStream { id: STREAM, account, config }).expect("an answer").expect("done");
        for number in 0..ASKED {
            let name = format!("c{number}");
            rig.op(consumer(&name, "i.few")).expect("an answer").expect("done");
        }
    }

    /// Messages, nearly all of which only one consumer needs.
    fn fill(&mut self, rig: &mut Rig) {
        let count = self.schedule.rng.between(700, 1_500);
        rig.op(consumer(ALL, "")).expect("an answer").expect("done");
        let subjects: Vec<&str> = (0..count).map(|_| *self.schedule.rng.pick(&SUBJECTS)).collect();
        self.few += subjects.iter().filter(|subject| **subject == "i.few").count() as u64;
        subjects.chunks(50).for_each(|part| rig.publish(part));
        self.note(Step::Filled { count });
    }

    /// One life: what nobody needs any more begins to go, and power with it.
    fn live(&mut self) {
        let mut rig = self.open();
        self.summary.lives += 1;
        self.fill(&mut rig);
        let after = 1 << self.schedule.rng.below(9);
        if self.schedule.rng.chance(850) {
            self.disk.inject(Fault::PowerCut(self.disk.operations() + after));
            self.summary.faults += 1;
            self.note(Step::Cut { after });
        }
        let narrowed = self.schedule.rng.chance(500);
        let goes = Op::DeleteConsumer { id: STREAM, name: ALL.into() };
        let goes = if narrowed { consumer(ALL, "i.few") } else { goes };
        rig.send(Event::Op(goes, Box::new(|_| ())));
        self.note(Step::Gone { narrowed });
        for _ in 0..self.schedule.rng.below(12) {
            self.go_on(&mut rig);
        }
        drop(rig);
        self.disk = self.disk.crash(self.schedule.rng.bits());
    }

    /// The log has a few turns, and more messages.
    fn go_on(&mut self, rig: &mut Rig) {
        for _ in 0..self.schedule.rng.between(1, 4) {
            rig.core.turn();
        }
        if self.schedule.rng.chance(700) {
            rig.send_messages(&["i.many"; 20]);
        }
        self.note(Step::Ticked);
    }

    fn tick(&mut self, rig: &mut Rig) {
        let pause = self.schedule.rng.between(MILLI, 200 * MILLI);
        self.schedule.sleep(pause);
        rig.clock.advance(Duration::from_micros(pause));
        rig.settle();
        self.note(Step::Ticked);
    }

    /// Nothing fails any more: what nobody needs goes, and nothing else.
    fn finish(&mut self) -> Result<(), Violation> {
        let mut rig = self.open();
        for _ in 0..40 {
            rig.clock.advance(Duration::from_millis(200));
            self.tick(&mut rig);
        }
        let wants_all = rig.wish().is_some_and(|filter| filter.is_empty());
        let (messages, last) = rig.messages();
        let few = messages.values().filter(|subject| *subject == "i.few").count() as u64;
        if few != self.few {
            return Err(Violation::MessageLost { seq: last });
        }
        if let Some((seq, _)) = messages.iter().find(|(_, subject)| *subject != "i.few")
            && !wants_all
        {
            return Err(Violation::Unneeded { seq: *seq, messages: messages.len() });
        }
        self.summary.done += 1;
        Ok(())
    }
}

/// Subjects of messages: of [`FEW`] one is of those that are always needed.
const SUBJECTS: [&str; FEW as usize] = {
    let mut subjects = ["i.many"; FEW as usize];
    subjects[0] = "i.few";
    subjects
};

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let schedule = Scheduler::new(seed, printed);
    let (disk, summary) = (MemDisk::default(), Summary::default());
    let mut world = World { schedule, disk, few: 0, summary };
    let mut rig = world.open();
    world.create(&mut rig);
    drop(rig);
    world.disk = world.disk.crash(seed);
    for _ in 0..world.schedule.rng.between(1, 3) {
        world.live();
    }
    let result = world.finish();
    world.summary.hash = world.schedule.trace.hash();
    (world.summary, result)
}
