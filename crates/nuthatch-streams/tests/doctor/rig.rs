//! The engine over a log on a simulated disk, and a history of publishes to compare with.

use bytes::Bytes;
use nuthatch_log::doctor::{DecodedState, StateDecoder, StreamPreview};
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{
    Compression, Log, LogCore, LogHandle, LogOptions, OpenError, OwnableDisk, StreamId,
};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_streams::op::GetMessage;
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op, OpOutcome,
    OpResult, PublishItem, Sink, Span, decoded_state,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Messages that the limited stream keeps.
pub const KEPT: u64 = 7;
pub const PLAIN: StreamId = StreamId(1);
pub const LIMITED: StreamId = StreamId(2);
/// Publishes in one life of a log.
const PUBLISHES: u64 = 60;

type Answers = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// Keeps answers by the number that is their reply subject.
pub struct Recorder(Answers);

impl Sink for Recorder {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        let number = std::str::from_utf8(message.subject).ok().and_then(|text| text.parse().ok());
        self.0.lock().expect("lock").insert(number.expect("a number"), message.body.to_vec());
    }
    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}
    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        None
    }
    fn refresh(&mut self, (): &mut ()) -> bool {
        false
    }
    fn ready(&mut self, (): &()) -> bool {
        true
    }
    fn deliver(&mut self, (): &mut (), _: &Delivery<'_>) -> bool {
        false
    }
    fn flush(&mut self) {}
}

pub struct TestStateDecoder;

impl StateDecoder for TestStateDecoder {
    fn state(&self, body: &[u8]) -> Option<DecodedState> {
        decoded_state::state(body)
    }
    fn log_state(&self, body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        decoded_state::log_state(body)
    }
    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
        decoded_state::snapshot(snapshot)
    }
    fn is_later(&self, snapshot: &[u8]) -> bool {
        decoded_state::is_later(snapshot)
    }
    fn advance(&self) -> Vec<u8> {
        decoded_state::advance()
    }
    fn orphan(&self, stream: StreamId, last: u64) -> (String, Vec<u8>) {
        decoded_state::orphan(stream, last)
    }
    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String> {
        let rig = Rig::open_on(disk, 1).map_err(|error| error.to_string())?;
        Ok(rig.core.machine().previews())
    }
}

pub struct Rig {
    pub core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    pub clock: Arc<ManualClock>,
    answers: Answers,
    next_token: u64,
}

/// With odd salts, whatever is sealed is merged, sorted by stream and compressed.
fn options(salt: u64) -> LogOptions {
    let plain = LogOptions {
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
    };
    if salt.is_multiple_of(2) {
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

impl Rig {
    pub fn open(disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(disk.clone()), salt)
    }

    pub fn open_on(disk: Arc<dyn OwnableDisk>, salt: u64) -> Result<Self, OpenError> {
        Self::open_with(disk, salt, options(salt))
    }

    /// A log that writes no checkpoint because one is due.
    pub fn open_rarely_checkpointed(disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let never = u64::MAX;
        let options =
            LogOptions { checkpoint_bytes: never, checkpoint_interval_ms: never, ..options(salt) };
        Self::open_with(Arc::new(disk.clone()), salt, options)
    }

    fn open_with(
        disk: Arc<dyn OwnableDisk>,
        salt: u64,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        let answers = Answers::default();
        let engine = Engine::new(EngineConfig::default(), Recorder(answers.clone()));
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let (core, _) = Log::open(options, disk, clock.clone(), entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, clock, answers, next_token: 1 << 40 })
    }

    fn run(&mut self, event: Event<()>) {
        assert!(self.handle.send(event, 1).is_ok(), "the queue has room");
        self.settle();
    }

    pub fn settle(&mut self) {
        while self.core.turn().progress {}
    }

    fn op(&mut self, op: Op) -> OpResult {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        self.run(Event::Op(op, respond));
        std::mem::take(&mut *result.lock().expect("lock")).expect("an outcome")
    }

    pub fn streams(&mut self) -> Vec<StreamId> {
        match self.op(Op::Catalog) {
            Ok(OpOutcome::Catalog { streams, .. }) => streams.iter().map(|s| s.id).collect(),
            other => panic!("no catalog: {other:?}"),
        }
    }

    pub fn read(&mut self, stream: StreamId, seq: u64) -> Option<Vec<u8>> {
        let request = GetMessage { seq, ..GetMessage::default() };
        match self.op(Op::GetMessage { id: stream, request }) {
            Ok(OpOutcome::Message(found)) => Some(found.body),
            Ok(other) => panic!("message {seq} of {stream}: {other:?}"),
            Err(_) => None,
        }
    }

    pub fn create(&mut self, stream: StreamId) {
        let config = StreamConfig {
            name: format!("S{stream}"),
            subjects: vec![format!("s{stream}.>")],
            max_msgs: if stream == LIMITED { KEPT.cast_signed() } else { -1 },
            ..StreamConfig::default()
        };
        let config = validate::stream_config(config, &Limits::default()).expect("a valid stream");
        let account = AccountId::GLOBAL;
        let op = Op::CreateStream { id: stream, account, config: Box::new(config) };
        assert!(self.op(op).is_ok());
    }

    /// Publishes a message; its sequence.
    pub fn publish_one(&mut self, stream: StreamId) -> u64 {
        self.next_token += 1;
        let token = self.next_token;
        self.publish(stream, token, b"one more")
    }

    fn publish(&mut self, stream: StreamId, token: u64, payload: &[u8]) -> u64 {
        let mut buf = Vec::new();
        let mut span = |bytes: &[u8]| {
            let start = buf.len() as u32;
            buf.extend_from_slice(bytes);
            Span { start, end: buf.len() as u32 }
        };
        let subject = span(format!("s{stream}.{}", token % 5).as_bytes());
        let reply = span(token.to_string().as_bytes());
        let body = span(payload);
        let item = PublishItem { stream, hint: 0, subject, reply, headers: Span::default(), body };
        let items = vec![Item::Publish(item)];
        self.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
        let answer = self.answers.lock().expect("lock").remove(&token).expect("an answer");
        let text = String::from_utf8_lossy(&answer).into_owned();
        let digits = text.split("\"seq\":").nth(1).unwrap_or_else(|| panic!("{text}"));
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().expect("a sequence")
    }
}

/// What the outside world knows.
pub struct History {
    chance: SeededEntropy,
    pub acked: BTreeMap<(StreamId, u64), Vec<u8>>,
    next_token: u64,
}

impl History {
    pub fn new(seed: u64) -> Self {
        Self { chance: SeededEntropy::new(seed), acked: BTreeMap::new(), next_token: 0 }
    }

    pub fn work(&mut self, rig: &mut Rig) {
        for stream in [PLAIN, LIMITED] {
            if !rig.streams().contains(&stream) {
                rig.create(stream);
            }
        }
        for _ in 0..PUBLISHES {
            if self.chance.below(4) == 0 {
                rig.clock.advance(Duration::from_millis(self.chance.below(400)));
                rig.settle();
            }
            let stream = if self.chance.below(3) == 0 { PLAIN } else { LIMITED };
            self.publish_to(rig, stream);
        }
        // A commit marker vouches for the last frame.
        rig.clock.advance(Duration::from_millis(200));
        rig.settle();
    }

    pub fn publish_to(&mut self, rig: &mut Rig, stream: StreamId) {
        self.next_token += 1;
        let mut body = self.next_token.to_le_bytes().to_vec();
        body.resize(8 + self.chance.below(400) as usize, self.next_token as u8);
        let seq = rig.publish(stream, self.next_token, &body);
        assert!(self.acked.insert((stream, seq), body).is_none(), "{seq} of {stream} twice");
    }

    pub fn newest(&self, stream: StreamId) -> u64 {
        let newest = self.acked.range((stream, 0)..=(stream, u64::MAX)).next_back();
        newest.map_or(0, |((_, seq), _)| *seq)
    }

    pub fn was_evicted(&self, stream: StreamId, seq: u64) -> bool {
        stream == LIMITED && seq + KEPT <= self.newest(stream)
    }
}
