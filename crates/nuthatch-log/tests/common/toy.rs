//! The machine of the tests: message streams with a limit, deletes and purges.

use nuthatch_log::{
    AppendError, IndexedMessage, LogAccess, Lsn, Machine, Read, RecordKind, RecordRef, Seq,
    SnapshotError, StatesError, StreamId, Timestamp, Urgency,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a test sends.
#[derive(Clone, Debug)]
pub enum Event {
    Create {
        stream: StreamId,
        max_messages: u64,
    },
    Publish {
        stream: StreamId,
        body: Vec<u8>,
        token: u64,
    },
    Batch(Vec<Event>),
    Delete {
        stream: StreamId,
        seq: u64,
        token: u64,
    },
    Purge {
        stream: StreamId,
        up_to: u64,
    },
    Drop {
        stream: StreamId,
    },
    Lazy {
        stream: StreamId,
    },
    Read {
        stream: StreamId,
        seq: u64,
        token: u64,
    },
    /// A fault of the program.
    Panic,
}

impl Event {
    pub fn weight(&self) -> usize {
        match self {
            Self::Publish { body, .. } => body.len() + 64,
            Self::Batch(events) => events.iter().map(Self::weight).sum(),
            _ => 64,
        }
    }
}

/// What came of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Acked(u64),
    Refused(String),
    Body(Vec<u8>),
    Missing,
    Damaged,
    Failing,
    Failed(String),
    Nothing,
}

/// Outcomes by token, shared with the test.
#[derive(Clone, Default)]
pub struct Outputs {
    by_token: Arc<Mutex<BTreeMap<u64, Outcome>>>,
    next: Arc<AtomicU64>,
}

impl Outputs {
    pub fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn put(&self, token: u64, outcome: Outcome) {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner).insert(token, outcome);
    }

    pub fn get(&self, token: u64) -> Outcome {
        let map = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(&token).cloned().unwrap_or(Outcome::Nothing)
    }

    pub fn take(&self, token: u64) -> Outcome {
        let mut map = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        map.remove(&token).unwrap_or(Outcome::Nothing)
    }
}

/// A stream's state; equal states are the same state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToyStream {
    pub max_messages: u64,
    pub last: u64,
    pub live: BTreeMap<u64, usize>,
}

/// The machine.
pub struct Toy {
    pub streams: BTreeMap<StreamId, ToyStream>,
    /// Bounds from states and snapshots, while messages are being reindexed.
    bounds: BTreeMap<StreamId, (u64, BTreeSet<u64>)>,
    waiting: VecDeque<(Lsn, u64, Outcome)>,
    reads: Vec<(StreamId, u64, u64)>,
    outputs: Outputs,
    pub committed: Lsn,
    pub failed: Option<String>,
    pub dirty_consumer: Option<StreamId>,
    /// Streams whose messages are to be compressed whatever the log does.
    pub compressed: BTreeSet<StreamId>,
    /// How often it was asked whether there are any.
    pub asked_for_compressed: Cell<u64>,
    /// First id not given out by the newest `LogState`, and the streams that were there.
    log_state: Option<(u64, BTreeSet<u64>)>,
    next_id: u64,
    /// Records met in a recovery whose content is of a later version.
    unreadable: u64,
    /// Has every state refused, as on a medium without room for one.
    pub refuses_states: bool,
}

impl Toy {
    pub fn new(outputs: Outputs) -> Self {
        Self {
            streams: BTreeMap::new(),
            bounds: BTreeMap::new(),
            waiting: VecDeque::new(),
            reads: Vec::new(),
            outputs,
            committed: Lsn(0),
            failed: None,
            dirty_consumer: None,
            compressed: BTreeSet::new(),
            asked_for_compressed: Cell::new(0),
            log_state: None,
            next_id: 0,
            unreadable: 0,
            refuses_states: false,
        }
    }

    fn insert(&mut self, stream: StreamId, state: ToyStream) {
        self.next_id = self.next_id.max(u64::from(stream.0) + 1);
        self.streams.insert(stream, state);
    }

    /// Appends a control record that is awaited; true if it was taken.
    fn control<L: LogAccess>(
        log: &mut L,
        kind: RecordKind,
        stream: StreamId,
        seq: u64,
        body: &[u8],
        privileged: bool,
    ) -> Result<Lsn, String> {
        let record = record(kind, stream, seq, log.now(), b"", body);
        log.append(&record, Urgency::Awaited, privileged)
            .map(|appended| appended.lsn)
            .map_err(|error| error.to_string())
    }

    fn publish<L: LogAccess>(&mut self, stream: StreamId, body: &[u8], token: u64, log: &mut L) {
        let Some(last) = self.streams.get(&stream).map(|state| state.last) else {
            return self.outputs.put(token, Outcome::Refused("no such stream".to_owned()));
        };
        let subject = format!("subject.{}", last % 7);
        let now = log.now();
        let record = record(RecordKind::Message, stream, last + 1, now, subject.as_bytes(), body);
        match log.append(&record, Urgency::Awaited, false) {
            Ok(appended) => {
                self.add(stream, last + 1, record.weight(), &mut |seq, weight| {
                    log.dead(stream, Seq(seq), weight);
                });
                self.waiting.push_back((appended.lsn, token, Outcome::Acked(last + 1)));
            }
            Err(error) => self.outputs.put(token, Outcome::Refused(error.to_string())),
        }
    }

    fn add(&mut self, stream: StreamId, seq: u64, weight: usize, dead: &mut dyn FnMut(u64, usize)) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        assert_eq!(seq, state.last + 1, "sequences are dense");
        state.last = seq;
        state.live.insert(seq, weight);
        while state.max_messages > 0 && state.live.len() as u64 > state.max_messages {
            if let Some((seq, weight)) = state.live.pop_first() {
                dead(seq, weight);
            }
        }
    }

    fn remove(&mut self, stream: StreamId, up_to: u64, dead: &mut dyn FnMut(u64, usize)) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let kept = state.live.split_off(&(up_to + 1));
        for (seq, weight) in std::mem::replace(&mut state.live, kept) {
            dead(seq, weight);
        }
    }

    #[allow(clippy::collapsible_match, reason = "an append is an act, not a condition")]
    fn change<L: LogAccess>(&mut self, event: Event, log: &mut L) {
        match event {
            Event::Create { stream, max_messages } => {
                let kind = RecordKind::StreamCreate;
                if Self::control(log, kind, stream, 0, &max_messages.to_le_bytes(), false).is_ok() {
                    self.insert(stream, ToyStream { max_messages, ..Default::default() });
                }
            }
            Event::Delete { stream, seq, token } => self.delete(stream, seq, token, log),
            Event::Purge { stream, up_to } => {
                if Self::control(log, RecordKind::Purge, stream, up_to, b"", true).is_ok() {
                    self.remove(stream, up_to, &mut |seq, w| log.dead(stream, Seq(seq), w));
                }
            }
            Event::Drop { stream } => {
                if Self::control(log, RecordKind::StreamDelete, stream, 0, b"", true).is_ok() {
                    self.remove(stream, u64::MAX - 1, &mut |s, w| log.dead(stream, Seq(s), w));
                    self.streams.remove(&stream);
                }
            }
            _ => {}
        }
    }

    fn delete<L: LogAccess>(&mut self, stream: StreamId, seq: u64, token: u64, log: &mut L) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if !state.live.contains_key(&seq) {
            return self.outputs.put(token, Outcome::Missing);
        }
        match Self::control(log, RecordKind::Delete, stream, seq, b"", true) {
            Ok(lsn) => {
                let weight = state.live.remove(&seq).unwrap_or(0);
                log.dead(stream, Seq(seq), weight);
                self.waiting.push_back((lsn, token, Outcome::Acked(seq)));
            }
            Err(error) => self.outputs.put(token, Outcome::Refused(error)),
        }
    }

    fn serve_reads<L: LogAccess>(&mut self, log: &mut L) {
        for (stream, seq, token) in std::mem::take(&mut self.reads) {
            match log.read(stream, Seq(seq)) {
                Read::Ready(found) => {
                    assert_eq!((found.record.stream, found.record.seq), (stream, Seq(seq)));
                    let shared = found.owner.slice_ref(found.record.body);
                    self.outputs.put(token, Outcome::Body(shared.to_vec()));
                }
                Read::Pending => self.reads.push((stream, seq, token)),
                Read::Missing => self.outputs.put(token, Outcome::Missing),
                Read::Damaged => self.outputs.put(token, Outcome::Damaged),
                Read::Failing => self.outputs.put(token, Outcome::Failing),
            }
        }
    }

    fn encode_state(state: &ToyStream) -> Vec<u8> {
        let floor = state.live.keys().next().copied().unwrap_or(state.last + 1);
        let mut out = Vec::new();
        for number in [state.max_messages, state.last, floor] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for seq in (floor..=state.last).filter(|seq| !state.live.contains_key(seq)) {
            out.extend_from_slice(&seq.to_le_bytes());
        }
        out
    }

    fn adopt_state(&mut self, stream: StreamId, body: &[u8]) {
        self.unreadable += u64::from(has_later_version(body));
        let mut numbers = body.chunks_exact(8).map(le64);
        let mut next = || numbers.next().unwrap_or(0);
        let (max_messages, last, floor) = (next(), next(), next());
        let live = BTreeMap::new();
        self.insert(stream, ToyStream { max_messages, last, live });
        self.bounds.insert(stream, (floor, numbers.collect()));
    }
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

pub fn record<'a>(
    kind: RecordKind,
    stream: StreamId,
    seq: u64,
    timestamp: Timestamp,
    subject: &'a [u8],
    body: &'a [u8],
) -> RecordRef<'a> {
    RecordRef { kind, stream, seq: Seq(seq), timestamp, subject, headers: b"", body }
}

impl Machine for Toy {
    type Event = Event;

    fn step<L: LogAccess>(&mut self, event: Event, log: &mut L) {
        match event {
            Event::Publish { stream, body, token } => self.publish(stream, &body, token, log),
            Event::Batch(events) => events.into_iter().for_each(|event| self.step(event, log)),
            Event::Panic => panic!("as asked for by a test"),
            Event::Read { stream, seq, token } => {
                self.reads.push((stream, seq, token));
                self.serve_reads(log);
            }
            Event::Lazy { stream } => {
                let now = log.now();
                let record = record(RecordKind::ConsumerState, stream, 0, now, b"c", b"lazy");
                let _ = log.append(&record, Urgency::Lazy, true);
            }
            other => self.change(other, log),
        }
    }

    fn committed<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) {
        assert!(lsn > self.committed, "commits move forward");
        self.committed = lsn;
        while self.waiting.front().is_some_and(|(at, ..)| *at <= lsn) {
            if let Some((_, token, outcome)) = self.waiting.pop_front() {
                self.outputs.put(token, outcome);
            }
        }
        self.serve_reads(log);
    }

    fn loaded<L: LogAccess>(&mut self, _stream: StreamId, log: &mut L) {
        self.serve_reads(log);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn tick<L: LogAccess>(&mut self, _log: &mut L) {}

    fn turn_end(&mut self) {}

    fn before_seal<L: LogAccess>(&mut self, log: &mut L) {
        if let Some(stream) = self.dirty_consumer.take() {
            let now = log.now();
            let record = record(RecordKind::ConsumerState, stream, 0, now, b"c", b"coalesced");
            let _ = log.append(&record, Urgency::Lazy, true);
        }
    }

    fn failed(&mut self, reason: &str) {
        self.failed = Some(reason.to_owned());
        for (_, token, _) in self.waiting.drain(..) {
            self.outputs.put(token, Outcome::Failed(reason.to_owned()));
        }
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        let Some((next_id, mut rest)) = snapshot.split_at_checked(8) else {
            return Err(SnapshotError { reason: "cut short".to_owned(), is_later: false });
        };
        if has_later_version(snapshot) {
            return Err(SnapshotError { reason: "another version".to_owned(), is_later: true });
        }
        self.next_id = le64(next_id);
        while let Some((head, after)) = rest.split_at_checked(16) {
            let len = usize::try_from(le64(&head[8..])).unwrap_or(usize::MAX);
            let Some((body, after)) = after.split_at_checked(len) else {
                *self = Self::new(self.outputs.clone());
                return Err(SnapshotError { reason: "cut short".to_owned(), is_later: false });
            };
            self.adopt_state(StreamId(le64(&head[..8]) as u32), body);
            rest = after;
        }
        Ok(())
    }

    fn unreadable_records(&self) -> u64 {
        self.unreadable
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.next_id.to_le_bytes());
        for (stream, state) in &self.streams {
            let body = Self::encode_state(state);
            out.extend_from_slice(&u64::from(stream.0).to_le_bytes());
            out.extend_from_slice(&(body.len() as u64).to_le_bytes());
            out.extend_from_slice(&body);
        }
    }

    fn apply_state(&mut self, record: &RecordRef<'_>) {
        if record.kind == RecordKind::StreamState {
            return self.adopt_state(record.stream, record.body);
        }
        let live: BTreeSet<u64> = record.body.chunks_exact(8).map(le64).collect();
        self.streams.retain(|stream, _| live.contains(&u64::from(stream.0)));
        self.next_id = self.next_id.max(record.seq.0);
        self.log_state = Some((record.seq.0, live));
    }

    fn is_gone(&self, stream: StreamId) -> bool {
        let id = u64::from(stream.0);
        self.log_state.as_ref().is_some_and(|(next, live)| id < *next && !live.contains(&id))
    }

    fn reindex(&mut self, message: &IndexedMessage<'_>) {
        let Some((floor, deleted)) = self.bounds.get(&message.stream) else { return };
        let Some(state) = self.streams.get_mut(&message.stream) else { return };
        let seq = message.seq.0;
        assert!(message.subject.starts_with(b"subject."));
        if seq >= *floor && seq <= state.last && !deleted.contains(&seq) {
            state.live.insert(seq, message.weight as usize);
        }
    }

    fn apply(&mut self, record: &RecordRef<'_>) {
        let (stream, seq) = (record.stream, record.seq.0);
        match record.kind {
            RecordKind::Message => self.add(stream, seq, record.weight(), &mut |_, _| {}),
            RecordKind::StreamCreate if has_later_version(record.body) => self.unreadable += 1,
            RecordKind::StreamCreate => {
                let max_messages = le64(record.body);
                self.insert(stream, ToyStream { max_messages, ..Default::default() });
            }
            RecordKind::Delete => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.live.remove(&seq);
                }
            }
            RecordKind::Purge => self.remove(stream, seq, &mut |_, _| {}),
            RecordKind::StreamDelete => drop(self.streams.remove(&stream)),
            _ => {}
        }
    }

    fn recovered<L: LogAccess>(&mut self, log: &mut L) {
        self.log_state = None;
        self.committed = log.committed();
        self.bounds.clear();
    }

    fn is_live(&self, stream: StreamId, seq: Seq) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.live.contains_key(&seq.0))
    }

    fn compresses(&self, stream: StreamId) -> bool {
        self.compressed.contains(&stream)
    }

    fn compresses_any(&self) -> bool {
        self.asked_for_compressed.set(self.asked_for_compressed.get() + 1);
        !self.compressed.is_empty()
    }

    fn log_states<L: LogAccess>(
        &mut self,
        streams: &[StreamId],
        log: &mut L,
    ) -> Result<(), StatesError> {
        if self.refuses_states {
            let error = AppendError::Full { needed_bytes: 1, available_bytes: 0 };
            return Err(StatesError::Append { stream: StreamId::LOG, error });
        }
        let now = log.now();
        for stream in streams {
            let Some(state) = self.streams.get(stream) else { continue };
            let body = Self::encode_state(state);
            let record = record(RecordKind::StreamState, *stream, 0, now, b"", &body);
            let refused = |error| StatesError::Append { stream: *stream, error };
            log.append_state(&record).map_err(refused)?;
        }
        let mut body = Vec::new();
        for stream in self.streams.keys() {
            body.extend_from_slice(&u64::from(stream.0).to_le_bytes());
        }
        let next = self.next_id;
        let record = record(RecordKind::LogState, StreamId::LOG, next, now, b"", &body);
        let refused = |error| StatesError::Append { stream: StreamId::LOG, error };
        log.append_state(&record).map(drop).map_err(refused)
    }

    fn is_news(&self, record: &RecordRef<'_>) -> bool {
        record.stream != StreamId::LOG && !self.streams.contains_key(&record.stream)
    }

    fn live_weight(&self, stream: StreamId, first: Seq, last: Seq) -> u64 {
        let live = self.streams.get(&stream).map(|state| state.live.range(first.0..=last.0));
        live.into_iter().flatten().map(|(_, weight)| *weight as u64).sum()
    }
}

/// The highest byte of a snapshot's first number serves as its version.
fn has_later_version(snapshot: &[u8]) -> bool {
    snapshot.get(7).is_some_and(|version| *version > 0)
}
