//! Power cuts under the real engine: streams, limits and duplicate windows over a log whose disk
//! forgets what was not synced.
//!
//! At each seeded moment the disk stops; any subset of what was not synced is dropped or torn, and
//! the log is opened again with the recovery code of the server. What was acknowledged must be
//! there with its sequence and payload, in order, and no sequence may be given out twice. Atomic
//! batches, which span several frames here, must be there as a whole or not at all. Counters go on
//! where they were. The same harness must find losses when nothing is synced.

#[path = "../../../tests/seeds.rs"]
mod seeds;

use bytes::Bytes;
use nuthatch_log::env::{Fault, ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{
    Compression, Disk, Log, LogCore, LogHandle, LogOptions, OpenError, StreamId, SyncPolicy,
};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_streams::op::GetMessage;
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op, OpOutcome,
    OpResult, PublishItem, Sink, Span,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Power cuts in one history.
const CUTS: u64 = 4;
/// Histories of the test that must find nothing: 1,200 cut points.
const HISTORIES: u64 = 300;
/// Messages that the limited stream keeps.
const KEPT: u64 = 7;
/// Turns in which one event must be done.
const TURNS_MAX: usize = 10_000;

const PLAIN: StreamId = StreamId(1);
const LIMITED: StreamId = StreamId(2);
/// Takes atomic batches only.
const BATCHED: StreamId = StreamId(3);
/// Counts one subject up by one, so that totals are sequences.
const COUNTING: StreamId = StreamId(4);
const STREAMS: [StreamId; 4] = [PLAIN, LIMITED, BATCHED, COUNTING];

type Answers = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// Keeps answers by the number that is their reply subject.
struct Recorder(Answers);

impl Sink for Recorder {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        let number = std::str::from_utf8(message.subject).ok().and_then(|text| text.parse().ok());
        let number = number.expect("replies are numbers here");
        self.0.lock().expect("lock").insert(number, message.body.to_vec());
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

struct Rig {
    core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    clock: Arc<ManualClock>,
    answers: Answers,
}

fn options(sync: SyncPolicy) -> LogOptions {
    LogOptions {
        sync,
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

impl Rig {
    /// With odd salts, whatever is sealed is merged, sorted by stream and compressed.
    fn open(sync: SyncPolicy, disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let plain = options(sync);
        if salt.is_multiple_of(2) {
            return Self::open_with(plain, disk, salt);
        }
        let cold = LogOptions {
            merge: true,
            compression: Compression::Zstd,
            cold_after_ms: 0,
            own_segment_bytes: 1500,
            segment_frames: 20,
            compact_memory_bytes: 2000,
            ..plain
        };
        Self::open_with(cold, disk, salt)
    }

    fn open_with(options: LogOptions, disk: &MemDisk, salt: u64) -> Result<Self, OpenError> {
        let answers = Answers::default();
        let engine = Engine::new(EngineConfig::default(), Recorder(answers.clone()));
        let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
        let entropy = Box::new(SeededEntropy::new(salt));
        let disk = Arc::new(disk.clone());
        let (core, _) = Log::open(options, disk, clock.clone(), entropy, engine)?;
        let handle = core.handle();
        Ok(Self { core, handle, clock, answers })
    }

    fn run(&mut self, event: Event<()>) {
        assert!(self.handle.send(event, 1).is_ok(), "the queue has room");
        for _ in 0..TURNS_MAX {
            let progress = self.core.turn().progress;
            if !progress && self.core.is_idle() {
                return;
            }
            if !progress {
                // Failed, or waiting for time to pass.
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// Lets the log do what time asks for.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// Publishes one message and returns the answer.
    fn publish_one(&mut self, stream: StreamId, token: u64) -> String {
        let mut buf = Vec::new();
        let items = vec![publish_item(&mut buf, stream, token, &token.to_le_bytes())];
        self.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
        let answer = self.answers.lock().expect("lock").remove(&token);
        String::from_utf8(answer.expect("an answer")).expect("text")
    }

    /// `None`: the log failed before there was an outcome.
    fn op(&mut self, op: Op) -> Option<OpResult> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        self.run(Event::Op(
            op,
            Box::new(move |outcome| {
                *slot.lock().expect("lock") = Some(outcome);
            }),
        ));
        for _ in 0..TURNS_MAX {
            if result.lock().expect("lock").is_some() || !self.core.turn().progress {
                break;
            }
        }
        std::mem::take(&mut *result.lock().expect("lock"))
    }

    fn streams(&mut self) -> Vec<StreamId> {
        match self.op(Op::Catalog) {
            Some(Ok(OpOutcome::Catalog { streams, .. })) => streams.iter().map(|s| s.id).collect(),
            other => panic!("no catalog: {other:?}"),
        }
    }

    fn last_seq(&mut self, stream: StreamId) -> u64 {
        let op = Op::StreamInfo {
            id: stream,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        match self.op(op) {
            Some(Ok(OpOutcome::Stream { info, .. })) => info.state.last_seq,
            other => panic!("no information: {other:?}"),
        }
    }

    fn read(&mut self, stream: StreamId, seq: u64) -> Option<Vec<u8>> {
        let request = GetMessage { seq, ..GetMessage::default() };
        match self.op(Op::GetMessage { id: stream, request }) {
            Some(Ok(OpOutcome::Message(found))) => Some(found.body),
            Some(Err(error)) if error.err_code == 10037 => None,
            other => panic!("message {seq} of {stream}: {other:?}"),
        }
    }
}

fn create(stream: StreamId) -> Op {
    let config = StreamConfig {
        name: format!("S{stream}"),
        subjects: vec![format!("s{stream}.>")],
        allow_atomic: stream == BATCHED,
        allow_msg_counter: stream == COUNTING,
        max_msgs_per_subject: if stream == COUNTING { 3 } else { -1 },
        max_msgs: if stream == LIMITED { KEPT.cast_signed() } else { -1 },
        ..StreamConfig::default()
    };
    let config = validate::stream_config(config, &Limits::default()).expect("a valid stream");
    Op::CreateStream { id: stream, account: AccountId::GLOBAL, config: Box::new(config) }
}

/// One publish into a batch buffer; the reply subject is `token`.
fn publish_item(buf: &mut Vec<u8>, stream: StreamId, token: u64, body: &[u8]) -> Item {
    let mut span = |bytes: &[u8]| {
        let start = buf.len() as u32;
        buf.extend_from_slice(bytes);
        Span { start, end: buf.len() as u32 }
    };
    let subject = span(format!("s{stream}.{}", token % 5).as_bytes());
    let reply = span(token.to_string().as_bytes());
    let id = format!("NATS/1.0\r\nNats-Msg-Id: {token}\r\n\r\n");
    let headers = if token.is_multiple_of(3) { span(id.as_bytes()) } else { Span::default() };
    let body = span(body);
    Item::Publish(PublishItem { stream, hint: 0, subject, reply, headers, body })
}

/// A message of an atomic batch; only the last one, which commits it, has a reply subject.
fn batch_item(buf: &mut Vec<u8>, token: u64, (index, count): (u64, u64), body: &[u8]) -> Item {
    let mut span = |bytes: &[u8]| {
        let start = buf.len() as u32;
        buf.extend_from_slice(bytes);
        Span { start, end: buf.len() as u32 }
    };
    let is_last = index + 1 == count;
    let subject = span(format!("s{BATCHED}.{}", index % 3).as_bytes());
    let reply = if is_last { span(token.to_string().as_bytes()) } else { Span::default() };
    let commit = if is_last { "Nats-Batch-Commit: 1\r\n" } else { "" };
    let headers = span(
        format!(
            "NATS/1.0\r\nNats-Batch-Id: {token}\r\nNats-Batch-Sequence: {}\r\n{commit}\r\n",
            index + 1
        )
        .as_bytes(),
    );
    let body = span(body);
    Item::Publish(PublishItem { stream: BATCHED, hint: 0, subject, reply, headers, body })
}

/// An increment of the counter.
fn increment_item(buf: &mut Vec<u8>, token: u64) -> Item {
    let mut span = |bytes: &[u8]| {
        let start = buf.len() as u32;
        buf.extend_from_slice(bytes);
        Span { start, end: buf.len() as u32 }
    };
    let subject = span(format!("s{COUNTING}.hits").as_bytes());
    let reply = span(token.to_string().as_bytes());
    let headers = span(b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n");
    let body = Span::default();
    Item::Publish(PublishItem { stream: COUNTING, hint: 0, subject, reply, headers, body })
}

/// What the outside world knows.
struct History {
    chance: SeededEntropy,
    acked: BTreeMap<(StreamId, u64), Vec<u8>>,
    created: Vec<StreamId>,
    next_token: u64,
    /// The largest total that was acknowledged.
    counted: u64,
}

impl History {
    fn work(&mut self, rig: &mut Rig) {
        for stream in STREAMS {
            if !self.created.contains(&stream) {
                match rig.op(create(stream)) {
                    Some(Ok(_)) => self.created.push(stream),
                    _ => return,
                }
            }
        }
        for _ in 0..120 {
            if self.chance.below(8) == 0 && !self.publish_atomic(rig) {
                return;
            }
            if self.chance.below(12) == 0 && !self.count(rig) {
                return;
            }
            if self.chance.below(10) == 0 {
                rig.clock.advance(Duration::from_millis(self.chance.below(300)));
            }
            if !self.publish(rig) {
                return;
            }
        }
    }

    /// Publishes a batch; `false` once something was refused, that is, the disk is gone.
    fn publish(&mut self, rig: &mut Rig) -> bool {
        let (mut buf, mut items, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=self.chance.below(5) {
            let stream = STREAMS[self.chance.below(2) as usize];
            self.next_token += 1;
            let mut body = self.next_token.to_le_bytes().to_vec();
            body.resize(8 + self.chance.below(400) as usize, self.next_token as u8);
            items.push(publish_item(&mut buf, stream, self.next_token, &body));
            sent.push((stream, self.next_token, body));
        }
        rig.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
        let mut all = true;
        for (stream, token, body) in sent {
            let answer = rig.answers.lock().expect("lock").remove(&token);
            let ack = answer.map(|text| String::from_utf8_lossy(&text).into_owned());
            let Some(seq) = ack.as_deref().and_then(sequence) else {
                all = false;
                continue;
            };
            let before = self.acked.insert((stream, seq), body);
            assert!(before.is_none(), "sequence {seq} of {stream} was given out twice");
        }
        all
    }

    /// Publishes an atomic batch; `false` once it was refused.
    fn publish_atomic(&mut self, rig: &mut Rig) -> bool {
        self.next_token += 1;
        let (token, count) = (self.next_token, 1 + self.chance.below(12));
        let (mut buf, mut items, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            let mut body = [token.to_le_bytes(), count.to_le_bytes()].concat();
            body.resize(16 + self.chance.below(600) as usize, index as u8);
            items.push(batch_item(&mut buf, token, (index, count), &body));
            bodies.push(body);
        }
        rig.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
        let answer = rig.answers.lock().expect("lock").remove(&token);
        let ack = answer.map(|text| String::from_utf8_lossy(&text).into_owned());
        let Some(last) = ack.as_deref().and_then(sequence) else { return false };
        for (seq, body) in (last + 1 - count..).zip(bodies) {
            let before = self.acked.insert((BATCHED, seq), body);
            assert!(before.is_none(), "sequence {seq} of a batch was given out twice");
        }
        true
    }

    /// Counts a few times in one go; `false` once that was refused.
    fn count(&mut self, rig: &mut Rig) -> bool {
        let first = self.next_token + 1;
        self.next_token += 1 + self.chance.below(4);
        let mut buf = Vec::new();
        let items =
            (first..=self.next_token).map(|token| increment_item(&mut buf, token)).collect();
        rig.run(Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }));
        // The total may have to be read first.
        rig.settle();
        for token in first..=self.next_token {
            let answer = rig.answers.lock().expect("lock").remove(&token);
            let ack = answer.map(|text| String::from_utf8_lossy(&text).into_owned());
            let Some(seq) = ack.as_deref().and_then(sequence) else { return false };
            let total = format!("\"val\":\"{seq}\"");
            assert!(ack.is_some_and(|ack| ack.contains(&total)), "total and sequence differ");
            assert!(seq > self.counted, "{seq} was acknowledged twice");
            self.counted = seq;
        }
        true
    }

    /// The counter stands at least where it was acknowledged to stand.
    fn check_counter(&self, rig: &mut Rig) -> Result<(), String> {
        if !self.created.contains(&COUNTING) {
            return Ok(());
        }
        let last = rig.last_seq(COUNTING);
        if last < self.counted {
            return Err(format!("the counter fell from {} to {last}", self.counted));
        }
        if last == 0 {
            return Ok(());
        }
        match rig.read(COUNTING, last) {
            Some(body) if body == format!("{{\"val\":\"{last}\"}}").as_bytes() => Ok(()),
            other => Err(format!("message {last} of the counter is {other:?}")),
        }
    }

    /// Every batch of which anything is there is there as a whole.
    fn check_batches(&self, rig: &mut Rig) -> Result<(), String> {
        if !self.created.contains(&BATCHED) {
            return Ok(());
        }
        let last = rig.last_seq(BATCHED);
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for seq in 1..=last {
            if let Some(body) = rig.read(BATCHED, seq) {
                *seen.entry(body[..16].to_vec()).or_default() += 1;
            }
        }
        for (head, found) in seen {
            let count = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
            if found != count {
                return Err(format!("{found} of the {count} messages of a batch are there"));
            }
        }
        Ok(())
    }

    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        let there = rig.streams();
        for stream in &self.created {
            if !there.contains(stream) {
                return Err(format!("stream {stream} is lost"));
            }
        }
        self.created = there;
        self.check_batches(rig)?;
        self.check_counter(rig)?;
        for ((stream, seq), body) in &self.acked {
            let newest = self.acked.range((*stream, 0)..=(*stream, u64::MAX)).next_back();
            let newest = newest.map_or(0, |((_, seq), _)| *seq);
            match rig.read(*stream, *seq) {
                Some(found) if found == *body => {}
                Some(_) => return Err(format!("message {seq} of {stream} changed")),
                // Messages that were stored but never acknowledged count towards the limit too.
                None if *stream == LIMITED && seq + KEPT <= newest + 6 => {}
                None => return Err(format!("message {seq} of {stream} is lost")),
            }
        }
        Ok(())
    }
}

/// The sequence in a positive acknowledgement.
fn sequence(ack: &str) -> Option<u64> {
    if ack.contains("\"error\"") {
        return None;
    }
    let digits = ack.split("\"seq\":").nth(1)?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn history(sync: SyncPolicy, seed: u64) -> Result<u64, String> {
    let mut disk = MemDisk::default();
    let chance = SeededEntropy::new(seed);
    let mut history =
        History { chance, acked: BTreeMap::new(), created: Vec::new(), next_token: 0, counted: 0 };
    let mut trace = 0_u64;
    for cut in 0..CUTS {
        disk.inject(Fault::PowerCut(disk.operations() + 1 + history.chance.below(250)));
        let salt = seed * 31 + cut;
        match Rig::open(sync, &disk, salt) {
            Ok(mut rig) => history.work(&mut rig),
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        trace = trace.rotate_left(9) ^ disk.trace();
        disk = disk.crash(seed ^ (cut << 32));
        let mut rig = Rig::open(sync, &disk, salt ^ 7)
            .map_err(|error| format!("does not open after a cut: {error}"))?;
        history.check(&mut rig)?;
        // What this look did to the disk is lost as well.
        disk = disk.crash(salt);
    }
    Ok(trace)
}

fn failures(sync: SyncPolicy, seeds: impl Iterator<Item = u64>) -> Vec<String> {
    seeds
        .filter_map(|seed| history(sync, seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect()
}

#[test]
fn acknowledged_messages_survive_power_cuts() {
    let failures = failures(SyncPolicy::Always, seeds::seeds(0..HISTORIES));
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
}

#[test]
fn the_harness_bites_without_syncs() {
    let failures = failures(SyncPolicy::Never, 0..60);
    assert!(failures.len() > 5, "only {} of 60 histories lost anything", failures.len());
}

/// A duplicate window whose ids no single record takes: dead segments are given back all the same,
/// and the ids are known after a restart.
#[test]
fn a_large_duplicate_window_does_not_stop_compaction() {
    const MESSAGES: u64 = 400;
    let options = LogOptions { max_record_bytes: 4096, ..options(SyncPolicy::Always) };
    let disk = MemDisk::default();
    let mut rig = Rig::open_with(options.clone(), &disk, 1).expect("opens");
    assert!(matches!(rig.op(create(LIMITED)), Some(Ok(_))));
    for n in 1..=MESSAGES {
        rig.publish_one(LIMITED, 3 * n);
        rig.clock.advance(Duration::from_millis(100));
        rig.settle();
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 0 && stats.states_refused == 0, "{stats:?}");
    for name in disk.list("").expect("lists").iter().filter(|n| n.starts_with("checkpoint-")) {
        disk.remove(name).expect("removes");
    }
    let mut rig = Rig::open_with(options, &disk.crash(1), 2).expect("opens");
    for n in [1, MESSAGES / 2, MESSAGES] {
        let ack = rig.publish_one(LIMITED, 3 * n);
        assert!(ack.contains("\"duplicate\": true") && sequence(&ack) == Some(n), "{ack}");
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..10 {
        assert_eq!(history(SyncPolicy::Always, seed), history(SyncPolicy::Always, seed));
    }
}
