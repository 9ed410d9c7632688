//! One log with an engine on a disk in memory.

use bytes::Bytes;
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{Log, LogCore, LogHandle, LogOptions, OpenError, StreamId, SyncPolicy};
use nuthatch_protocol::js::{StreamConfig, StreamInfo};
use nuthatch_streams::op::{CatalogEntry, OpResult, RangeRequest, Replica};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Engine, EngineConfig, Event, Item, NullSink, Op, OpOutcome,
    PublishItem, Span,
};
use std::sync::{Arc, Mutex};

/// Turns in which one event must be done.
const TURNS_MAX: usize = 10_000;

/// The power is gone, or a log has stopped.
#[derive(Debug)]
pub struct Dark;

pub type Lit<T> = Result<T, Dark>;

/// A machine and what it does with a log that has stopped, or with one that answers.
pub struct Rig {
    core: LogCore<Engine<NullSink>>,
    handle: LogHandle<Event<()>>,
}

fn options() -> LogOptions {
    LogOptions {
        sync: SyncPolicy::Always,
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(0),
        checkpoint_bytes: 32 * 1024,
        state_part_bytes: 64,
        ..LogOptions::default()
    }
}

/// A configuration as the server checks it.
pub fn valid(config: StreamConfig) -> Box<StreamConfig> {
    Box::new(validate::stream_config(config, &Limits::default()).expect("a valid stream"))
}

impl Rig {
    pub fn open(disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let engine = Engine::new(EngineConfig::default(), NullSink);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let (core, _) = Log::open(options(), Arc::new(disk.clone()), clock, entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle })
    }

    fn run(&mut self, event: Event<()>) {
        assert!(self.handle.send_anyway(event, 1).is_ok(), "the log takes events");
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// True if the log has stopped over a fault.
    pub fn has_stopped(&self) -> bool {
        self.handle.stats().failed > 0
    }

    /// The outcome, unless the log has stopped.
    pub fn op(&mut self, op: Op) -> Lit<OpResult> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.run(Event::Op(op, respond));
        let outcome = result.lock().expect("lock").take();
        match outcome {
            Some(Err(_)) if self.has_stopped() => Err(Dark),
            outcome => outcome.ok_or(Dark),
        }
    }

    /// The outcome of what a healthy log does not refuse.
    pub fn done(&mut self, op: Op) -> Lit<OpOutcome> {
        self.op(op).map(|outcome| outcome.expect("a healthy log does it"))
    }

    pub fn create(&mut self, id: StreamId, config: StreamConfig) -> Lit<()> {
        let config = valid(config);
        self.done(Op::CreateStream { id, account: AccountId::GLOBAL, config }).map(drop)
    }

    pub fn catalog(&mut self) -> Lit<Vec<CatalogEntry>> {
        match self.done(Op::Catalog)? {
            OpOutcome::Catalog { streams, unreadable_records: 0, .. } => Ok(streams),
            other => panic!("no catalog: {other:?}"),
        }
    }

    pub fn info(&mut self, id: StreamId) -> Lit<StreamInfo> {
        let (subjects_filter, offset) = (String::new(), 0);
        match self.done(Op::StreamInfo { id, deleted_details: false, subjects_filter, offset })? {
            OpOutcome::Stream { info, .. } => Ok(*info),
            other => panic!("no information: {other:?}"),
        }
    }

    /// Publishes to `s.0` and so on.
    pub fn publish(&mut self, stream: StreamId, bodies: &[Vec<u8>]) {
        let (mut buf, mut items) = (Vec::new(), Vec::new());
        let span = |buf: &mut Vec<u8>, bytes: &[u8]| {
            let start = buf.len() as u32;
            buf.extend_from_slice(bytes);
            Span { start, end: buf.len() as u32 }
        };
        for body in bodies {
            let subject = span(&mut buf, format!("s.{}", body.len() % 3).as_bytes());
            let body = span(&mut buf, body);
            let (reply, headers) = (Span::default(), Span::default());
            let item = PublishItem { stream, hint: 0, subject, reply, headers, body };
            items.push(Item::Publish(item));
        }
        self.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
    }

    /// Everything that a stream holds.
    pub fn read_all(&mut self, id: StreamId) -> Lit<Vec<Replica>> {
        let (mut all, mut from) = (Vec::new(), 1);
        loop {
            let request = RangeRequest { from, ..RangeRequest::default() };
            let range = match self.done(Op::ReadRange { id, request })? {
                OpOutcome::Range(range) => range,
                other => panic!("no range: {other:?}"),
            };
            all.extend(range.messages);
            if range.next > range.last_seq {
                return Ok(all);
            }
            from = range.next;
        }
    }
}
