//! A log as the control plane sees it: operations in the order in which they were sent, made durable some
//! time later, in order, and answered then. What was not durable at a crash is gone, but for a part of it
//! from the front.
//!
//! It does what it is told and checks nothing: what an engine would refuse is to show as a loss here.

use nuthatch_log::StreamId;
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::{StreamConfig, StreamInfo, StreamState, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::refusal_of;
use nuthatch_streams::op::{
    CatalogEntry, CopyStanding, Forgotten, OpResult, Range, RangeRequest, Replica,
};
use nuthatch_streams::rules::{FORGETS_WHO_WAITS, GOES_TO_AFTER_COMMIT, REFUSED_NEVER_SETTLES};
use nuthatch_streams::stream::{Provenance, StreamLocation, read_source};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::{BTreeMap, VecDeque};

/// Names of the two logs.
pub const LOGS: [&str; 2] = ["one", "two"];
/// Messages that one read gives at most.
const RANGE_MAX: usize = 4;

/// A stream in a log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SimStream {
    pub config: StreamConfig,
    /// Names of its consumers.
    pub consumers: Vec<String>,
    /// Bodies, each a number that no other message has.
    pub messages: BTreeMap<u64, Stored>,
    pub last: u64,
    pub provenance: Provenance,
    /// How far it has come with each source.
    pub sourced: BTreeMap<Vec<u8>, u64>,
}

/// A message: its number, and for one of a source its sequence there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub token: u64,
    pub origin_seq: u64,
}

/// The streams of a log.
pub type Streams = BTreeMap<StreamId, SimStream>;

/// What is sent to a log.
#[derive(Debug)]
pub enum Request {
    /// An operation; its outcome has this number.
    Op { number: u64, op: Op },
    /// A message, by its number.
    Publish { id: StreamId, token: u64 },
    /// The stream has left: hand over what waited, forget it.
    Depart { id: StreamId, number: u64 },
    /// What waited in the old log goes on here.
    Install { id: StreamId, held: Vec<u64> },
}

/// What comes back.
#[derive(Debug)]
pub enum Reply {
    Outcome {
        number: u64,
        result: OpResult,
    },
    Acked {
        token: u64,
        seq: u64,
    },
    /// In memory, at once.
    HandedOver {
        held: Vec<u64>,
    },
}

/// What is told once everything before it is durable.
#[derive(Debug)]
enum Answer {
    Outcome { number: u64, result: OpResult },
    Acked { token: u64, seq: u64 },
    Info { number: u64, id: StreamId },
    Read { number: u64, id: StreamId, request: RangeRequest },
    Sourced { number: u64, id: StreamId, key: Vec<u8> },
}

/// What becomes of a stream.
#[derive(Debug)]
enum Change {
    /// It is so.
    Put(Box<SimStream>),
    /// It has another message.
    Append(u64, Stored),
    Remove,
}

/// A change of one stream, if any, and what is told then.
#[derive(Debug)]
struct Job {
    change: Option<(StreamId, Change)>,
    answer: Option<Answer>,
}

/// A log.
#[derive(Default, Debug)]
pub struct SimLog {
    /// What a crash leaves.
    pub durable: Streams,
    live: Streams,
    inbox: VecDeque<Request>,
    jobs: VecDeque<Job>,
    /// Streams whose publishes wait, and those publishes.
    held: BTreeMap<StreamId, Vec<u64>>,
    /// Reads that wait for a message.
    waiting: Vec<(u64, StreamId, RangeRequest)>,
    /// It takes no more writes until a restart.
    pub has_failed: bool,
}

fn refused() -> OpResult {
    Err(JsError::STREAM_STORE_FAILED)
}

/// The error of what may have been done.
pub fn unknown() -> OpResult {
    Err(JsError::CLUSTER_NOT_AVAIL)
}

fn gone() -> OpResult {
    Err(JsError::STREAM_NOT_FOUND)
}

impl SimStream {
    fn entry(&self, id: StreamId) -> CatalogEntry {
        CatalogEntry {
            id,
            account: AccountId::GLOBAL,
            config: self.config.clone().into(),
            created: Time(1),
            provenance: self.provenance.clone(),
            last_seq: self.last,
        }
    }

    fn replica(seq: u64, stored: &Stored) -> Replica {
        Replica {
            seq,
            time: Time(1),
            subject: b"s".to_vec(),
            headers: Vec::new(),
            body: stored.token.to_le_bytes().to_vec(),
        }
    }

    fn range(&self, request: &RangeRequest) -> Range {
        let found = self.messages.range(request.from..).take(RANGE_MAX);
        let messages: Vec<Replica> =
            found.map(|(seq, stored)| Self::replica(*seq, stored)).collect();
        let next = match messages.last() {
            Some(last) if messages.len() == RANGE_MAX => last.seq + 1,
            _ => request.from.max(self.last + 1),
        };
        Range { messages, next, last_seq: self.last }
    }

    /// Takes over messages of an origin, those passed over that are there.
    fn mirror(&mut self, copies: &[Replica], gap_to: u64) {
        for copy in copies.iter().filter(|copy| copy.seq > self.last) {
            let stored = Stored { token: token_of(&copy.body), origin_seq: copy.seq };
            self.messages.insert(copy.seq, stored);
        }
        self.last = self.last.max(gap_to);
    }

    /// Takes over messages of a source, those passed over that are there.
    fn source(&mut self, copies: &[Replica]) {
        for copy in copies {
            let header = find_header(&copy.headers, b"Nats-Stream-Source").expect("a header");
            let (key, origin_seq) = read_source(header).expect("a header of a source");
            let at = self.sourced.entry(key.to_vec()).or_default();
            if origin_seq > *at {
                *at = origin_seq;
                self.last += 1;
                let stored = Stored { token: token_of(&copy.body), origin_seq };
                self.messages.insert(self.last, stored);
            }
        }
    }
}

fn token_of(body: &[u8]) -> u64 {
    u64::from_le_bytes(*body.first_chunk().expect("a number"))
}

/// As an engine sees it.
fn is_refused(copy: &SimStream) -> bool {
    let Provenance { arriving, to, .. } = &copy.provenance;
    *arriving && to.is_some() && REFUSED_NEVER_SETTLES.holds()
}

/// The state that a stream takes along: where it comes from.
fn state_of(log: &str, id: StreamId) -> Vec<u8> {
    format!("{log} {}", id.0).into_bytes()
}

fn location_of(state: &[u8]) -> StreamLocation {
    let text = std::str::from_utf8(state).expect("a state of ours");
    let (log, id) = text.split_once(' ').expect("a state of ours");
    StreamLocation { log: log.to_owned(), stream: StreamId(id.parse().expect("a number")) }
}

impl SimLog {
    /// Sends something; it is handled in the order of these calls.
    pub fn send(&mut self, request: Request) {
        self.inbox.push_back(request);
    }

    /// Handles what was sent; what comes back at once.
    pub fn turn(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(request) = self.inbox.pop_front() {
            match request {
                Request::Op { number, op } => replies.extend(self.op(number, op)),
                Request::Publish { id, token } => self.publish(id, token),
                Request::Depart { id, number } => {
                    let held = self.held.remove(&id).unwrap_or_default();
                    replies.push(Reply::HandedOver { held });
                    if self.has_failed {
                        replies.push(Reply::Outcome { number, result: refused() });
                    } else {
                        self.remove(id, number);
                    }
                }
                Request::Install { id, held } => self.go_on(id, held),
            }
        }
        replies
    }

    /// True if something waits to become durable.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Makes so many changes durable and tells of them.
    pub fn commit(&mut self, count: usize) -> Vec<Reply> {
        let mut replies = Vec::new();
        for _ in 0..count {
            let Some(job) = self.jobs.pop_front() else { break };
            self.apply(job.change);
            replies.extend(job.answer.and_then(|answer| self.tell(answer)));
        }
        let waiting = std::mem::take(&mut self.waiting);
        for (number, id, request) in waiting {
            replies.extend(self.tell(Answer::Read { number, id, request }));
        }
        replies
    }

    fn apply(&mut self, change: Option<(StreamId, Change)>) {
        match change {
            Some((id, Change::Put(stream))) => drop(self.durable.insert(id, *stream)),
            Some((id, Change::Append(seq, stored))) => {
                let stream = self.durable.get_mut(&id).expect("it was there when it was sent");
                stream.last = seq;
                stream.messages.insert(seq, stored);
            }
            Some((id, Change::Remove)) => drop(self.durable.remove(&id)),
            None => {}
        }
    }

    /// A write fails: of what waits so much is durable all the same, and nobody is told.
    pub fn fail(&mut self, kept: usize) -> Vec<Reply> {
        self.has_failed = true;
        let mut replies = Vec::new();
        for (at, job) in std::mem::take(&mut self.jobs).into_iter().enumerate() {
            if at < kept {
                self.apply(job.change);
            }
            replies.extend(match job.answer {
                Some(Answer::Acked { .. }) | None => None,
                Some(Answer::Outcome { number, .. }) => {
                    Some(Reply::Outcome { number, result: unknown() })
                }
                Some(answer) => self.tell(answer),
            });
        }
        self.live = self.durable.clone();
        replies
    }

    /// The process ends: of what waits so much is durable.
    pub fn crash(&mut self, kept: usize) {
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_iter().take(kept).for_each(|job| self.apply(job.change));
        let durable = std::mem::take(&mut self.durable);
        *self = Self { live: durable.clone(), durable, ..Self::default() };
    }

    /// True if what is published to a stream waits.
    pub fn is_held(&self, id: StreamId) -> bool {
        self.held.contains_key(&id)
    }

    /// As an engine sees it: the stream is held, and may go on as this copy.
    fn waits_for(&self, id: StreamId, stream: &SimStream, copy: StreamId) -> bool {
        let to = stream.provenance.to.as_ref();
        self.held.contains_key(&id) && to.is_some_and(|to| to.stream == copy)
    }

    /// How much waits to become durable.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// The streams that are durable, as a start lists them.
    pub fn catalog(&self) -> Vec<CatalogEntry> {
        self.durable.iter().map(|(id, stream)| stream.entry(*id)).collect()
    }

    fn tell(&mut self, answer: Answer) -> Option<Reply> {
        let (number, result) = match answer {
            Answer::Outcome { number, result } => (number, result),
            Answer::Acked { token, seq } => return Some(Reply::Acked { token, seq }),
            Answer::Info { number, id } => (number, self.info(id)),
            Answer::Sourced { number, id, key } => {
                let stream = self.durable.get(&id);
                let at = stream.map(|stream| stream.sourced.get(&key).copied().unwrap_or(0));
                (number, at.map_or_else(gone, |at| Ok(OpOutcome::Sourced(at))))
            }
            Answer::Read { number, id, request } => match self.durable.get(&id) {
                None => (number, gone()),
                Some(stream) => {
                    let range = stream.range(&request);
                    if request.wait && range.next <= request.from {
                        self.waiting.push((number, id, request));
                        return None;
                    }
                    (number, Ok(OpOutcome::Range(range)))
                }
            },
        };
        Some(Reply::Outcome { number, result })
    }

    fn info(&self, id: StreamId) -> OpResult {
        let Some(stream) = self.durable.get(&id) else { return gone() };
        let state = StreamState {
            last_seq: stream.last,
            messages: stream.messages.len() as u64,
            ..StreamState::default()
        };
        let config = stream.config.clone().into();
        let info =
            Box::new(StreamInfo { config, state, created: Time(1), ..StreamInfo::default() });
        Ok(OpOutcome::Stream { info, subjects_total: 0 })
    }

    fn publish(&mut self, id: StreamId, token: u64) {
        if let Some(held) = self.held.get_mut(&id) {
            return held.push(token);
        }
        if self.has_failed {
            return;
        }
        if let Some(stream) = self.live.get_mut(&id) {
            stream.last += 1;
            let seq = stream.last;
            let stored = Stored { token, origin_seq: seq };
            stream.messages.insert(seq, stored);
            let change = Some((id, Change::Append(seq, stored)));
            self.jobs.push_back(Job { change, answer: Some(Answer::Acked { token, seq }) });
        }
    }

    fn go_on(&mut self, id: StreamId, handed: Vec<u64>) {
        let held = self.held.remove(&id).unwrap_or_default();
        handed.into_iter().chain(held).for_each(|token| self.publish(id, token));
    }

    /// Queues a change of a stream and its outcome.
    fn put(&mut self, id: StreamId, stream: SimStream, number: u64, result: OpResult) {
        self.live.insert(id, stream.clone());
        let answer = Some(Answer::Outcome { number, result });
        let change = Some((id, Change::Put(Box::new(stream))));
        self.jobs.push_back(Job { change, answer });
    }

    fn remove(&mut self, id: StreamId, number: u64) {
        self.live.remove(&id);
        let answer = Some(Answer::Outcome { number, result: Ok(OpOutcome::Done) });
        self.jobs.push_back(Job { change: Some((id, Change::Remove)), answer });
    }

    /// Does an operation; what is answered at once.
    fn op(&mut self, number: u64, op: Op) -> Option<Reply> {
        let answer = match op {
            Op::GoesTo { id } if !GOES_TO_AFTER_COMMIT.holds() => {
                let goes_to = |stream: &SimStream| stream.provenance.to.clone();
                let result = self.live.get(&id).map(goes_to).map(OpOutcome::GoesTo);
                return Some(Reply::Outcome { number, result: result.map_or_else(gone, Ok) });
            }
            Op::Hold { id, .. } => {
                self.held.entry(id).or_default();
                return Some(Reply::Outcome { number, result: Ok(OpOutcome::Done) });
            }
            Op::StreamInfo { id, .. } => Answer::Info { number, id },
            Op::Sourced { id, key } => Answer::Sourced { number, id, key },
            Op::ReadRange { id, request } => Answer::Read { number, id, request },
            op => return self.change(number, op),
        };
        if self.jobs.is_empty() {
            return self.tell(answer);
        }
        self.jobs.push_back(Job { change: None, answer: Some(answer) });
        None
    }

    /// What an engine refuses of a stream that moves, since it is not in that state.
    fn refusal(&self, id: StreamId, stream: &SimStream, op: &Op) -> Option<OpResult> {
        let is_other = |copy| !self.waits_for(id, stream, copy);
        match op {
            Op::Settle { .. } | Op::Probe { .. } => is_refused(stream).then(gone),
            Op::Forget { what: Forgotten::Copy, .. } => (!stream.provenance.arriving).then(refused),
            Op::Forget { what: Forgotten::LeftFor(copy), .. } => (FORGETS_WHO_WAITS.holds()
                && is_other(*copy))
            .then_some(Err(JsError::STREAM_MOVE_IN_PROGRESS)),
            // It leaves for another copy, of which nobody has said that it may not.
            Op::Stay { refused: Some(copy), .. } => (self.held.contains_key(&id)
                && is_other(copy.stream))
            .then_some(Err(JsError::STREAM_MOVE_IN_PROGRESS)),
            _ => None,
        }
    }

    fn change(&mut self, number: u64, mut op: Op) -> Option<Reply> {
        let refuse = |result| Some(Reply::Outcome { number, result });
        if self.has_failed {
            return refuse(refused());
        }
        let id = *op.stream_mut().expect("an operation on a stream");
        let known = self.live.get(&id).cloned();
        let mut stream = match (&op, known) {
            (Op::CreateStream { .. } | Op::Arrive { .. }, _) => SimStream::default(),
            (_, Some(stream)) => stream,
            (_, None) => return refuse(gone()),
        };
        if let Some(why) = self.refusal(id, &stream, &op) {
            return refuse(why);
        }
        let mut result = Ok(OpOutcome::Done);
        match op {
            Op::CreateStream { config, .. } => stream.config = *config,
            Op::FinishRestore { config, consumers, .. } => {
                stream.config = *config;
                let names = consumers.into_iter().map(|consumer| consumer.config.name);
                stream.consumers = names.collect();
            }
            Op::RemoveRestored { seqs, .. } => {
                stream.messages.retain(|seq, _| !seqs.contains(seq));
            }
            Op::Arrive { config, from, .. } => {
                stream.config = *config;
                stream.provenance = Provenance::arriving(from);
            }
            Op::DeleteMessage { seq, .. } => drop(stream.messages.remove(&seq)),
            Op::Mirror { copies, gap_to, .. } => stream.mirror(&copies, gap_to),
            Op::Source { copies, .. } => stream.source(&copies),
            Op::Probe { .. } => {}
            Op::Leave { log, to, .. } => {
                let state = state_of(&log, id);
                result = Ok(OpOutcome::Left { state, last_seq: stream.last });
                stream.provenance.to = Some(to);
                self.held.insert(id, Vec::new());
            }
            Op::Stay { refused: None, .. } => {
                self.go_on(id, Vec::new());
                return refuse(Ok(OpOutcome::Done));
            }
            Op::Stay { refused, .. } => {
                stream.provenance.to = refused;
                self.put(id, stream, number, result);
                self.go_on(id, Vec::new());
                return None;
            }
            Op::GoesTo { .. } => result = Ok(OpOutcome::GoesTo(stream.provenance.to.clone())),
            Op::RefuseCopy { .. } if !stream.provenance.arriving => {
                result = Ok(OpOutcome::Copy(CopyStanding::Settled));
            }
            Op::RefuseCopy { log, .. } => {
                stream.provenance.to = Some(refusal_of(&log, id));
                result = Ok(OpOutcome::Copy(CopyStanding::Refused));
            }
            Op::Settle { state, .. } => {
                stream.provenance = Provenance::arrived(location_of(&state));
                self.held.insert(id, Vec::new());
            }
            Op::Forget { .. } | Op::DeleteStream { .. } => {
                self.held.remove(&id);
                self.remove(id, number);
                return None;
            }
            other => panic!("nobody asks for {other:?}"),
        }
        self.put(id, stream, number, result);
        None
    }
}
