//! Direct gets from a log that is followed: by a standby of it, on another node than the one that owns the log.
//!
//! The owner says whether a stream is just as it was at the position up to which the standby has read
//! ([`Engine::is_as_at`]). If it is, the standby answers what the owner would, and by the same code; if the standby has read on
//! meanwhile it does not, since the owner may not show yet what it has read.

use super::Engine;
use super::outputs::Outputs;
use super::reads::{DirectAsker, ParkedRead, ReadEnv};
use super::stream_slot::StreamSlot;
use crate::rules::{FOLLOWED_AS_VOUCHED, UNWRITTEN_IS_CHANGED};
use crate::sink::{AccountId, Delivery, Message, Sink};
use crate::stream::{Stream, Unlogged};
use crate::validate::answers_stale;
use bytes::Bytes;
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, StreamId};
use nuthatch_protocol::js::RetentionPolicy;
use rustc_hash::FxHashMap;

/// About what a stream takes without messages, subjects and consumers (measured, as the others are).
const STREAM_BYTES: u64 = 2048;
/// A subject of a stream.
const SUBJECT_BYTES: u64 = 128;
/// A message id of a duplicate window.
const ID_BYTES: u64 = 96;
/// A consumer, without what it waits for.
const CONSUMER_BYTES: u64 = 2048;

/// Bytes of one answer, or of all answers to one request, that a standby gives: more than that the owner is asked for.
const FOLLOWED_BYTES_MAX: usize = 8 << 20;

/// The streams of a standby by name.
pub(super) type Names = FxHashMap<(AccountId, Box<str>), StreamId>;

/// A stream of a log that is followed, as somebody saw it who may ask its owner whether it is so still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowedStream {
    /// Its identity in the log.
    pub id: StreamId,
    /// How often records have changed it since the standby began.
    pub changes: u64,
    /// Its configuration has gets answered without asking the owner.
    pub is_stale: bool,
}

/// An answer to a direct get, without its subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowedAnswer {
    /// Header block or empty.
    pub headers: Vec<u8>,
    /// Payload.
    pub body: Vec<u8>,
}

/// How far a direct get has come with one look at the standby.
#[derive(Debug)]
pub enum FollowedStep {
    /// These are the answers, in their order.
    Answered(Vec<FollowedAnswer>),
    /// A message is not in memory: to be read from the disk, then to be gone on with.
    Pending,
    /// The owner has to answer.
    NotHere,
}

/// A direct get on its way.
pub struct FollowedGet {
    account: AccountId,
    stream: FollowedStream,
    /// What stands behind the stream's name in the subject of the request.
    subject: Bytes,
    body: Bytes,
    waiting: Option<ParkedRead<()>>,
    out: Outputs<Collected>,
    headers: Vec<u8>,
}

/// Answers that wait until all are there.
#[derive(Default)]
struct Collected {
    answers: Vec<FollowedAnswer>,
    bytes: usize,
}

impl Sink for Collected {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        self.bytes += message.headers.len() + message.body.len();
        let (headers, body) = (message.headers.to_vec(), message.body.to_vec());
        self.answers.push(FollowedAnswer { headers, body });
    }

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        None
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        false
    }

    fn ready(&mut self, (): &()) -> bool {
        false
    }

    fn deliver(&mut self, (): &mut (), _: &Delivery<'_>) -> bool {
        false
    }

    fn flush(&mut self) {}
}

impl FollowedGet {
    /// A request for a stream of an account whose subject goes on with `subject` behind the stream's name.
    #[must_use]
    pub fn new(
        (account, stream): (AccountId, FollowedStream),
        subject: Bytes,
        body: Bytes,
    ) -> Self {
        let out = Outputs::new(Collected::default(), "".into());
        Self { account, stream, subject, body, waiting: None, out, headers: Vec::new() }
    }

    /// Goes on with what the stream holds.
    fn step<L: LogAccess>(&mut self, stream: &mut Stream, log: &mut L) -> FollowedStep {
        let asker = || DirectAsker { peer: (), hint: 0, reply: Box::default() };
        let read = match self.waiting.take() {
            Some(read) => Ok(read),
            None => ParkedRead::direct(stream, (&self.subject, &self.body), asker()),
        };
        let (out, headers) = (&mut self.out, &mut self.headers);
        match read {
            Ok(read) => self.waiting = read.answer(&mut ReadEnv { stream, out, headers, log }),
            Err((asker, status)) => asker.send_status(out.sink_mut(), stream.account(), status),
        }
        let collected = self.out.sink_mut();
        if collected.bytes > FOLLOWED_BYTES_MAX {
            return FollowedStep::NotHere;
        }
        match self.waiting {
            Some(_) => FollowedStep::Pending,
            None => FollowedStep::Answered(std::mem::take(&mut collected.answers)),
        }
    }
}

impl<S: Sink> StreamSlot<S> {
    /// True if readers see what they would see in the log up to a position, and nothing that is under way changes it.
    fn is_as_at(&self, position: Lsn) -> bool {
        let (contents, unwritten) = (self.stream.contents(), self.stream.unwritten());
        let is_written = self.undeleted.ranges.is_empty()
            && unwritten.due_expiry().is_none()
            && unwritten.released() == Unlogged::default();
        // What consumers let go under another retention is logged later, and depends on all of them.
        self.stream.limits().retention == RetentionPolicy::Limits
            && contents.changed_in() <= position
            && !contents.is_unsettled()
            && (is_written || !UNWRITTEN_IS_CHANGED.holds())
            && !self.deleting
            && !self.migration.holds()
    }
}

impl<S: Sink> Engine<S> {
    /// True if a stream, without what is due by now, is as the log says up to a position: who has read that far can answer what
    /// is asked now.
    pub(super) fn is_as_at<L: LogAccess>(
        &mut self,
        id: StreamId,
        position: Lsn,
        log: &mut L,
    ) -> bool {
        self.streams.expire(id, log);
        self.streams.get(id).is_some_and(|slot| slot.is_as_at(position))
    }

    /// A standby that has been read to the end of its log: from now on its streams are found by their names.
    pub fn name_streams(&mut self) {
        let named = self.streams.iter().map(|slot| (name_of(&slot.stream), slot.stream.id()));
        self.names = Some(Box::new(named.collect()));
    }

    /// A standby: the stream of an account that has this name and serves direct gets.
    #[must_use]
    pub fn followed(&self, account: AccountId, name: &str) -> Option<FollowedStream> {
        let id = *self.names.as_ref()?.get(&(account, name.into()))?;
        let slot = self.streams.get(id)?;
        let config = slot.stream.config();
        let is_served = config.allow_direct && !slot.stream.provenance().arriving;
        let stream = FollowedStream {
            id,
            changes: slot.replayed,
            is_stale: answers_stale(&config.metadata),
        };
        (is_served && !slot.stream.is_mid_batch()).then_some(stream)
    }

    /// A standby: goes on with a direct get. `log` reads what was followed, and says [`nuthatch_log::Read::Pending`] of all that
    /// it does not have at hand.
    pub fn followed_get<L: LogAccess>(
        &mut self,
        get: &mut FollowedGet,
        log: &mut L,
    ) -> FollowedStep {
        let FollowedStream { id, changes, is_stale } = get.stream;
        let Some(slot) = self.streams.get_mut(id) else { return FollowedStep::NotHere };
        let is_vouched = slot.replayed == changes || !FOLLOWED_AS_VOUCHED.holds();
        // A node said which stream it is, and an account sees its own only.
        if slot.stream.account() != get.account {
            return FollowedStep::NotHere;
        }
        if slot.stream.is_mid_batch() || !(is_stale || is_vouched) {
            return FollowedStep::NotHere;
        }
        self.recovery.show(slot);
        get.step(&mut slot.stream, log)
    }

    /// Before a record is replayed: a stream that it deletes has no name any more, and one that it changes perhaps another.
    pub(super) fn unname(&mut self, record: &RecordRef<'_>) {
        if let Some(names) = &mut self.names
            && matches!(record.kind, RecordKind::StreamDelete | RecordKind::StreamUpdate)
            && let Some(slot) = self.streams.get(record.stream)
        {
            let name = name_of(&slot.stream);
            if names.get(&name) == Some(&record.stream) {
                names.remove(&name);
            }
        }
    }

    /// After a record was replayed: counts it, unless it is about consumers only, and names a stream that it has made.
    pub(super) fn note_replayed(&mut self, record: &RecordRef<'_>) {
        use RecordKind::{ConsumerCreate, ConsumerDelete, ConsumerState};
        use RecordKind::{StreamCreate, StreamState, StreamUpdate};
        // Before that nobody has seen it.
        if self.names.is_none() {
            return;
        }
        let Some(slot) = self.streams.get_mut(record.stream) else { return };
        if !matches!(record.kind, ConsumerCreate | ConsumerDelete | ConsumerState) {
            slot.replayed += 1;
        }
        if let Some(names) = &mut self.names
            && matches!(record.kind, StreamCreate | StreamState | StreamUpdate)
        {
            names.insert(name_of(&slot.stream), record.stream);
        }
    }

    /// Bytes of memory that the streams take, about.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let of = |slot: &StreamSlot<S>| {
            let contents = slot.stream.contents();
            STREAM_BYTES
                + contents.messages().memory_bytes()
                + contents.subjects().len() as u64 * SUBJECT_BYTES
                + slot.stream.ids() as u64 * ID_BYTES
                + slot.consumers.len() as u64 * CONSUMER_BYTES
        };
        self.streams.iter().map(of).sum()
    }
}

fn name_of(stream: &Stream) -> (AccountId, Box<str>) {
    (stream.account(), stream.config().name.as_str().into())
}
