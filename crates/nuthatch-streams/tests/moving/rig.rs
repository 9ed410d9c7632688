//! One log with an engine on a disk in memory, and what leaves the engine.

use super::{Dark, Lit};
use bytes::Bytes;
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{Log, LogCore, LogHandle, LogOptions, OpenError, StreamId, SyncPolicy};
use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::{CatalogEntry, GetMessage, OpResult};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, AckItem, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op,
    OpOutcome, PublishItem, PullItem, Sink, Span,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Turns in which one event must be done.
const TURNS_MAX: usize = 10_000;
const STREAM: &str = "S";
const CONSUMER: &str = "c";

/// What clients of both logs have got.
#[derive(Default, Debug)]
pub struct Got {
    answers: BTreeMap<u64, String>,
    delivered: Vec<(u64, String)>,
    confirmed: BTreeSet<u64>,
}

pub type Outside = Arc<Mutex<Got>>;

struct Recorder(Outside);

impl Recorder {
    fn take(&self, message: &Message<'_>) {
        let mut got = self.0.lock().expect("lock");
        let subject = String::from_utf8_lossy(message.subject).into_owned();
        if let Ok(token) = subject.parse() {
            let body = String::from_utf8_lossy(message.body).into_owned();
            got.answers.insert(token, body);
        } else if let Some(seq) = subject.strip_prefix("confirm.") {
            got.confirmed.insert(seq.parse().expect("a sequence"));
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
        let Some(ack) = parse_ack_subject(delivery.reply) else { return true };
        let reply = String::from_utf8_lossy(delivery.reply).into_owned();
        self.0.lock().expect("lock").delivered.push((ack.stream_seq, reply));
        true
    }

    fn flush(&mut self) {}
}

pub struct Rig {
    core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    outside: Outside,
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
        // Every state is written in many parts, which cuts separate.
        state_part_bytes: 64,
        ..LogOptions::default()
    }
}

pub fn config() -> Box<StreamConfig> {
    let config = StreamConfig {
        name: STREAM.to_owned(),
        subjects: vec!["s.>".to_owned()],
        max_msgs: -1,
        ..StreamConfig::default()
    };
    Box::new(validate::stream_config(config, &Limits::default()).expect("a valid stream"))
}

pub fn create_consumer(id: StreamId) -> Op {
    let config = ConsumerConfig {
        name: CONSUMER.to_owned(),
        durable_name: CONSUMER.to_owned(),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: 100_000,
        ..ConsumerConfig::default()
    };
    let request = CreateConsumerRequest { config, ..CreateConsumerRequest::default() };
    Op::CreateConsumer { id, request: PreparedConsumer::new(request) }
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

    fn batch(self, items: Vec<Item>) -> Event<()> {
        Event::Batch(ClientBatch { peer: (), buf: Bytes::from(self.0), items })
    }
}

impl Rig {
    pub fn open(disk: &MemDisk, salt: u64, outside: &Outside) -> Result<Self, OpenError> {
        let engine = Engine::new(EngineConfig::default(), Recorder(outside.clone()));
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let (core, _) = Log::open(options(), Arc::new(disk.clone()), clock, entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, outside: outside.clone() })
    }

    pub fn run(&mut self, event: Event<()>) {
        assert!(self.handle.send_anyway(event, 1).is_ok(), "the log takes events");
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// The outcome; the power is gone if there is none, or a refusal.
    pub fn op(&mut self, op: Op) -> Lit<OpOutcome> {
        self.try_op(op).and_then(Result::ok).ok_or(Dark)
    }

    /// The outcome, if there is one.
    pub fn try_op(&mut self, op: Op) -> Option<OpResult> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.run(Event::Op(op, respond));
        for _ in 0..TURNS_MAX {
            if result.lock().expect("lock").is_some() || !self.core.turn().progress {
                break;
            }
        }
        result.lock().expect("lock").take()
    }

    /// True if the log has stopped over a fault.
    pub fn has_stopped(&self) -> bool {
        self.handle.stats().failed > 0
    }

    pub fn catalog(&mut self) -> Vec<CatalogEntry> {
        match self.op(Op::Catalog) {
            Ok(OpOutcome::Catalog { streams, unreadable_records: 0, .. }) => streams,
            Ok(other) => panic!("no catalog: {other:?}"),
            Err(Dark) => panic!("no catalog"),
        }
    }

    pub fn read(&mut self, id: StreamId, seq: u64) -> Option<Vec<u8>> {
        let request = GetMessage { seq, ..GetMessage::default() };
        match self.op(Op::GetMessage { id, request }) {
            Ok(OpOutcome::Message(found)) => Some(found.body),
            _ => None,
        }
    }

    /// Publishes; the reply subjects are the tokens, the message ids too.
    pub fn publish(&mut self, stream: StreamId, publishes: &[(u64, Vec<u8>)]) {
        let lines = |token: u64| format!("Nats-Msg-Id: {token}");
        let sent = publishes.iter().map(|(token, body)| (*token, lines(*token), body.as_slice()));
        self.publish_all(stream, sent);
    }

    /// Publishes as writers with these terms.
    pub fn publish_with_terms(&mut self, stream: StreamId, publishes: &[(u64, u64, Vec<u8>)]) {
        let sent = publishes.iter().map(|(token, term, body)| {
            let lines = format!("Nats-Msg-Id: {token}\r\nNuthatch-Term: {term}");
            (*token, lines, body.as_slice())
        });
        self.publish_all(stream, sent);
    }

    fn publish_all<'a>(
        &mut self,
        stream: StreamId,
        publishes: impl Iterator<Item = (u64, String, &'a [u8])>,
    ) {
        let mut parts = Parts::default();
        let mut items = Vec::new();
        for (token, lines, body) in publishes {
            let id = format!("NATS/1.0\r\n{lines}\r\n\r\n");
            let subject = parts.span(format!("s.{}", token % 5).as_bytes());
            let reply = parts.span(token.to_string().as_bytes());
            let headers = parts.span(id.as_bytes());
            let body = parts.span(body);
            items.push(Item::Publish(PublishItem {
                stream,
                hint: 0,
                subject,
                reply,
                headers,
                body,
            }));
        }
        self.run(parts.batch(items));
    }

    /// Asks for up to five messages.
    pub fn pull(&mut self, stream: StreamId) {
        let mut parts = Parts::default();
        let (consumer, reply) = (parts.span(CONSUMER.as_bytes()), parts.span(b"inbox"));
        let body = parts.span(b"{\"batch\":5,\"no_wait\":true}");
        let pull = PullItem { stream, hint: 0, headers: Span::default(), consumer, reply, body };
        self.run(parts.batch(vec![Item::Pull(pull)]));
    }

    /// Acknowledges a delivery and asks for the confirmation.
    pub fn ack(&mut self, stream: StreamId, seq: u64, ack_subject: &str) {
        let Some(ack) = parse_ack_subject(ack_subject.as_bytes()) else { return };
        let mut parts = Parts::default();
        let consumer = parts.span(CONSUMER.as_bytes());
        let reply = parts.span(format!("confirm.{seq}").as_bytes());
        let body = parts.span(b"+ACK");
        let item = AckItem {
            stream,
            hint: 0,
            consumer,
            delivered: ack.delivered,
            stream_seq: ack.stream_seq,
            consumer_seq: ack.consumer_seq,
            reply,
            body,
        };
        self.run(parts.batch(vec![Item::Ack(item)]));
    }

    pub fn take_answers(&self) -> BTreeMap<u64, String> {
        std::mem::take(&mut self.outside.lock().expect("lock").answers)
    }

    pub fn take_delivered(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.outside.lock().expect("lock").delivered)
    }

    pub fn take_confirmed(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.outside.lock().expect("lock").confirmed)
    }
}

/// The sequence in a positive acknowledgement.
pub fn sequence(ack: &str) -> Option<u64> {
    if ack.contains("\"error\"") {
        return None;
    }
    let digits = ack.split("\"seq\":").nth(1)?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}
