//! One log of a node with its engine, and what is sent to it.

use super::outside::{Delivered, Output, Outside, Recorder, Reply, confirmation};
use super::streams::{Kind, subject};
use super::tier::{LogTier, Progress};
use bytes::Bytes;
use nuthatch_log::doctor::StreamPreview;
use nuthatch_log::env::SeededEntropy;
use nuthatch_log::{
    Clock, Compression, Log, LogCore, LogHandle, LogOptions, OpenError, OwnableDisk, SendError,
    StreamId, Turn,
};
use nuthatch_object::Step;
use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_streams::op::OpResult;
use nuthatch_streams::{
    AckItem, ClientBatch, Engine, EngineConfig, Event, HandOff, Item, Op, PublishItem, PullItem,
    Span,
};
use std::io;
use std::sync::Arc;

/// Turns in which what was asked at once must be done.
const TURNS_MAX: usize = 50_000;

/// A message to publish.
pub struct Outgoing {
    /// The request that its answer belongs to.
    pub number: u64,
    /// The number in its body.
    pub token: u64,
    pub has_id: bool,
    pub body: Vec<u8>,
}

/// Where a client believes a stream to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub id: StreamId,
    /// The version of the routes that it has seen.
    pub seen: u64,
}

/// What became of items of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Taken,
    /// The queue is full.
    Busy,
    /// The client is to look again where the stream is.
    Stale,
}

/// How a log of a life is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Whatever is sealed is merged, sorted by stream and compressed.
    pub is_cold: bool,
    /// The writer and the worker do their jobs when they are told to, as threads would.
    pub by_hand: bool,
    /// Bytes set aside for a full medium.
    pub reserve_bytes: u64,
}

/// An open log.
pub struct Host {
    core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    outside: Outside,
    style: Style,
    tier: Option<LogTier>,
}

fn options(style: Style) -> LogOptions {
    let plain = LogOptions {
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(style.reserve_bytes),
        lazy_flush_ms: 20,
        checkpoint_bytes: 24 * 1024,
        // Every state is written in many parts, which cuts separate.
        state_part_bytes: 64,
        ..LogOptions::default()
    };
    if !style.is_cold {
        return plain;
    }
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

impl Host {
    /// Opens the log; nothing runs by hand yet.
    pub fn open(
        (disk, tier): (Arc<dyn OwnableDisk>, Option<LogTier>),
        clock: Arc<dyn Clock>,
        style: Style,
        salt: u64,
        outside: &Outside,
    ) -> Result<Self, OpenError> {
        let engine = Engine::new(EngineConfig::default(), Recorder(outside.clone()));
        let entropy = Box::new(SeededEntropy::new(salt));
        let (core, _) = Log::open(options(style), disk, clock, entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, outside: outside.clone(), style, tier })
    }

    /// The start is over: from now on its threads run when they are told to.
    pub fn serve(&mut self) {
        if self.style.by_hand {
            self.core.run_by_hand();
        }
    }

    /// The streams as a server would show them.
    pub fn previews(&self) -> Vec<StreamPreview> {
        self.core.machine().previews()
    }

    pub fn turn(&mut self) -> Turn {
        self.core.turn()
    }

    pub fn has_writing(&self) -> bool {
        self.core.has_writing()
    }

    pub fn write_one(&mut self) {
        self.core.write_one();
    }

    pub fn has_work(&self) -> bool {
        self.core.has_work()
    }

    pub fn work_one(&mut self) {
        self.core.work_one();
    }

    /// Goes on with its tier, if it has one, until time has to pass.
    pub fn move_on(&mut self) -> Option<Progress<io::Result<Step>>> {
        self.tier.as_mut().map(LogTier::go_on)
    }

    /// Its tier, if it has one.
    pub const fn tier(&self) -> Option<&LogTier> {
        self.tier.as_ref()
    }

    /// True if the log takes no more writes.
    pub fn has_failed(&self) -> bool {
        self.handle.stats().failed > 0
    }

    /// Closes the log as a server does that is told to stop; true if it was closed cleanly.
    pub fn close(&mut self) -> bool {
        if let Some(tier) = &self.tier {
            tier.disk().stop();
        }
        self.core.close().is_ok()
    }

    /// Runs the log until it rests.
    pub fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let turn = self.core.turn();
            let went_on = self.core.write_one() || self.core.work_one();
            if !turn.progress && !went_on {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// The outcome of an operation, if it comes without time passing.
    pub fn ask(&mut self, number: u64, op: Op) -> Option<OpResult> {
        self.send_op(number, op);
        self.settle();
        self.outside.take_outcome(number)
    }

    /// Sends an operation; its outcome is an output of this number.
    pub fn send_op(&self, number: u64, op: Op) {
        let outside = self.outside.clone();
        let respond = Box::new(move |result| outside.put(Output::Outcome { number, result }));
        self.send_anyway(Event::Op(op, respond));
    }

    /// Begins an operation whose outcome, or the lack of one, is an output of this number; false if it is
    /// not taken.
    pub fn begin(&self, number: u64, op: Op) -> bool {
        let reply = Reply::new(self.outside.clone(), number);
        let respond = Box::new(move |result| reply.tell(result));
        self.handle.send_anyway(Event::Op(op, respond), 1).is_ok()
    }

    /// Sends what a full queue does not refuse.
    pub fn send_anyway(&self, event: Event<()>) {
        assert!(self.handle.send_anyway(event, 1).is_ok(), "the log takes events");
    }

    /// A stream goes to another log: what is sent by older routes than `seen` is not taken any more, and
    /// the other engine gets what this one keeps in memory. The outcome of `number` says whether this log
    /// has forgotten the stream.
    pub fn hand_over(&self, from: StreamId, (new, to): (&Self, StreamId), seen: u64, number: u64) {
        let (new, reply) = (new.handle.clone(), Reply::new(self.outside.clone(), number));
        self.handle.set_gate(seen);
        let respond = Box::new(move |hand_off: Option<HandOff>| {
            if let Some(hand_off) = hand_off {
                // A closed log is found as it is by the next start.
                drop(new.send_anyway(Event::Install { id: to, hand_off }, 1));
            }
        });
        let forgotten = Box::new(move |result| reply.tell(result));
        drop(self.handle.send_anyway(Event::Depart { id: from, respond, forgotten }, 1));
    }

    /// Sends items of a client.
    fn send_items(&self, parts: Parts, items: Vec<Item>, seen: u64) -> Sent {
        let weight = parts.0.len() + 64 * items.len();
        let batch = ClientBatch { peer: (), buf: Bytes::from(parts.0), items };
        match self.handle.send_seen(Event::Batch(batch), weight, seen, false) {
            Ok(()) => Sent::Taken,
            Err(SendError::Stale(_)) => Sent::Stale,
            Err(SendError::Busy(_)) => Sent::Busy,
            Err(error) => panic!("the log takes events: {error}"),
        }
    }

    /// Publishes.
    pub fn publish(&self, stream: Kind, at: Route, messages: &[Outgoing]) -> Sent {
        let (mut parts, mut items) = (Parts::default(), Vec::new());
        for message in messages {
            let headers = match message.has_id {
                true => format!("NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n", message.token),
                false => String::new(),
            };
            items.push(Item::Publish(PublishItem {
                stream: at.id,
                hint: 0,
                subject: parts.span(subject(stream, message.token).as_bytes()),
                reply: parts.span(message.number.to_string().as_bytes()),
                headers: parts.span(headers.as_bytes()),
                body: parts.span(&message.body),
            }));
        }
        self.send_items(parts, items, at.seen)
    }

    /// Asks for messages of a pull consumer.
    pub fn pull(&self, at: Route, consumer: &str, count: u64) -> Sent {
        let mut parts = Parts::default();
        let body = format!("{{\"batch\":{count},\"no_wait\":true}}");
        let pull = PullItem {
            stream: at.id,
            hint: 0,
            consumer: parts.span(consumer.as_bytes()),
            reply: parts.span(b"inbox"),
            headers: Span::default(),
            body: parts.span(body.as_bytes()),
        };
        self.send_items(parts, vec![Item::Pull(pull)], at.seen)
    }

    /// Answers a delivery, and asks for a confirmation if so wished.
    pub fn ack(&self, at: Route, of: &Delivered, body: &str, confirm: bool) -> Sent {
        let ack = parse_ack_subject(of.reply.as_bytes()).expect("an ack subject");
        let mut parts = Parts::default();
        let reply = if confirm { confirmation(&of.consumer, of.seq) } else { String::new() };
        let item = AckItem {
            stream: at.id,
            hint: 0,
            consumer: parts.span(of.consumer.as_bytes()),
            delivered: ack.delivered,
            stream_seq: ack.stream_seq,
            consumer_seq: ack.consumer_seq,
            reply: parts.span(reply.as_bytes()),
            body: parts.span(body.as_bytes()),
        };
        self.send_items(parts, vec![Item::Ack(item)], at.seen)
    }
}
