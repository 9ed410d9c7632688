//! One stream: configuration, messages (without payloads), subjects, duplicates.
//!
//! *Assigned* state is what has been appended to the log; publishes are checked against it. What a
//! record removes is only *doomed* until the record commits, and readers see neither uncommitted
//! messages nor uncommitted removals. A log that fails stops for good, so nothing is ever undone.

mod admit;
mod batch;
mod counters;
mod dedup;
mod details;
mod evict;
mod headers;
mod info;
mod journal;
mod limits;
mod messages;
mod provenance;
mod replication;
mod restoring;
mod route;
mod scheduled;
mod schedules;
mod state;
mod subjects;
mod timed;
mod timers;
mod view;

pub use crate::records::StreamLocation;
pub use admit::{Admitted, Publish, Refusal, refusal, unavailable, uncertain};
pub use batch::{BATCH_MESSAGES_MAX, BatchRefusal, Committed};
pub use dedup::{Remembered, hash_id};
pub use details::{DELETED_DETAILS_MAX, DeletedWalk, SubjectWalk};
pub use evict::When;
pub use headers::{NO_HEADERS, PublishHeaders, Ttl, scan};
pub use info::{GetMessage, Lookup, SUBJECT_DETAILS_MAX, Selection, wire_time};
pub use limits::Limits;
pub use messages::{Entry, MAX_WEIGHT_BYTES};
pub use provenance::Provenance;
pub use replication::{Replica, Sourced, read_source};
pub use restoring::{importing_config, importing_name, is_restoring, is_staged, staged_config};
pub use route::{Again, Routes};
pub use scheduled::Made;
pub use state::{Compared, LOOKED_AT_ONCE, Recovering, StreamSnapshot};
pub use timed::rewritten;
pub use timers::TTL_NEVER;

pub use crate::budget::Accounted;
use crate::rules::SHOW_COMMITTED;
use crate::sink::AccountId;
use counters::Counters;
use dedup::Dedup;
use journal::Journal;
use messages::Messages;
use nuthatch_log::{Lsn, Seq, StreamId, Timestamp};
use nuthatch_protocol::js::{RetentionPolicy, StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use schedules::Schedules;
use std::collections::VecDeque;
use std::sync::Arc;
use subjects::Subjects;
use timers::Timers;

/// No configuration and no purge may ask for sequences above this one, so that a stream cannot run
/// out of them.
pub const LAST_SEQ_MAX: u64 = i64::MAX as u64;

/// Totals of a stream at some point of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Last sequence given out, whether its message still exists or not.
    pub last_seq: u64,
    /// When it was given out.
    pub last_at: Timestamp,
    /// Messages.
    pub messages: u64,
    /// Their bytes as JetStream counts them.
    pub bytes: u64,
}

/// Totals as of the end of a frame that has not committed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    lsn: Lsn,
    totals: Totals,
}

/// Consecutive sequences that a record in frame `lsn` removes.
#[derive(Clone, Copy, Debug)]
struct Doom {
    lsn: Lsn,
    first: u64,
    last: u64,
}

/// Removals by consumers that no record in the log tells of yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unlogged {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One stream.
pub struct Stream {
    id: StreamId,
    account: AccountId,
    config: Arc<StreamConfig>,
    limits: Limits,
    created: Timestamp,
    messages: Messages,
    subjects: Subjects,
    dedup: Dedup,
    timers: Timers,
    schedules: Schedules,
    counters: Counters,
    routes: Routes,
    /// How far the stream has come with each source.
    sourced: Sourced,
    /// With timers: no message before this one goes by age.
    age_cursor: u64,
    journal: Journal,
    /// True if consumers read the journal.
    has_consumers: bool,
    assigned: Totals,
    committed: Totals,
    /// Ends of uncommitted frames, oldest first: two at most, as many as the log has in flight.
    marks: VecDeque<Mark>,
    /// Uncommitted removals, oldest first.
    dooms: VecDeque<Doom>,
    /// `Nats-Msg-Id` of the last message; empty if it had none.
    last_msg_id: Vec<u8>,
    /// Messages up to here are gone by age; a record says so once `expired_logged` reaches it.
    expired_through: u64,
    expired_logged: u64,
    unlogged: Unlogged,
    /// The next sequence after a purge past the end, once its frame has committed.
    jump: Option<(Lsn, u64)>,
    /// Recovery: the atomic batch whose messages are being read.
    replayed_batch: Option<Box<batch::Replayed>>,
    /// The frame that the newest record went to.
    appending: Lsn,
    /// The same once that frame has committed, else an earlier one.
    settled: Lsn,
    /// Use last reported to the engine's budget.
    accounted: Accounted,
    /// Interest retention: messages up to here are being swept for those that no consumer needs; 0:
    /// none.
    unswept: u64,
    /// The term of the one writer that the stream takes records from; 0: it has none, anybody may
    /// write. Kept for fencing one writer for each stream; nothing sets it yet.
    writer_term: u64,
    /// Its migrations between logs.
    provenance: Provenance,
}

impl Stream {
    /// An empty stream. The configuration has been validated; `hash_seed` keys the hashes of its
    /// subjects against chosen collisions.
    #[must_use]
    pub fn new(
        id: StreamId,
        account: AccountId,
        config: Box<StreamConfig>,
        created: Timestamp,
        hash_seed: u64,
    ) -> Self {
        let config: Arc<StreamConfig> = Arc::from(config);
        let first = config.first_seq.max(1);
        let totals =
            Totals { last_seq: first - 1, last_at: Timestamp::NONE, messages: 0, bytes: 0 };
        let mut stream = Self {
            id,
            account,
            limits: Limits::new(&config),
            routes: Routes::new(&config),
            config,
            created,
            messages: Messages::new(first),
            subjects: Subjects::with_seed(hash_seed),
            dedup: Dedup::default(),
            timers: Timers::default(),
            schedules: Schedules::default(),
            counters: Counters::default(),
            sourced: Sourced::new(),
            age_cursor: 0,
            journal: Journal::default(),
            has_consumers: false,
            assigned: totals,
            committed: totals,
            marks: VecDeque::new(),
            dooms: VecDeque::new(),
            last_msg_id: Vec::new(),
            expired_through: 0,
            expired_logged: 0,
            unlogged: Unlogged::default(),
            jump: None,
            replayed_batch: None,
            appending: Lsn(0),
            settled: Lsn(0),
            accounted: Accounted::default(),
            unswept: 0,
            writer_term: 0,
            provenance: Provenance::default(),
        };
        stream.subjects.track_order(stream.limits.per_subject, &stream.messages);
        stream
    }

    /// Identity.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Account.
    #[must_use]
    pub const fn account(&self) -> AccountId {
        self.account
    }

    /// Configuration.
    #[must_use]
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Configuration, for whoever keeps it: it can hold 100,000 subjects, which are not copied.
    #[must_use]
    pub fn shared_config(&self) -> Arc<StreamConfig> {
        Arc::clone(&self.config)
    }

    /// The part of the configuration that the hot path reads.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When it was created.
    #[must_use]
    pub const fn created(&self) -> Timestamp {
        self.created
    }

    /// Totals that readers see.
    #[must_use]
    pub const fn committed_totals(&self) -> &Totals {
        &self.committed
    }

    /// Totals that checks see.
    #[must_use]
    pub const fn assigned_totals(&self) -> &Totals {
        &self.assigned
    }

    /// The frame that must commit before everything assigned is committed; `None` if it is.
    #[must_use]
    pub fn uncommitted(&self) -> Option<Lsn> {
        self.marks.back().map(|mark| mark.lsn)
    }

    /// The use last reported to the budget, and the present one, which counts as reported from now
    /// on.
    pub fn account_use(&mut self) -> (Accounted, Accounted) {
        let now = Accounted {
            subjects: self.subjects.len(),
            msg_ids: self.dedup.len(),
            timers: self.timers.len() + self.schedules.len(),
            bytes: self.assigned.bytes,
            table_bytes: self.messages.memory_bytes(),
        };
        (std::mem::replace(&mut self.accounted, now), now)
    }

    /// Interest retention: the sequence up to which messages are to be swept for those that no
    /// consumer needs; 0 if there is nothing to sweep.
    #[must_use]
    pub const fn unswept(&self) -> u64 {
        self.unswept
    }

    /// Notes that messages up to `last` are to be looked through; 0: that it is done.
    pub const fn set_unswept(&mut self, last: u64) {
        self.unswept = last;
    }

    /// Recovery: a consumer is gone or wants less, or interest counts from now on.
    pub fn sweep_later(&mut self) {
        if self.limits.retention == RetentionPolicy::Interest {
            self.unswept = self.assigned.last_seq;
        }
    }

    /// Subjects that the budget does not know of yet.
    fn unaccounted_subjects(&self) -> usize {
        self.subjects.len().saturating_sub(self.accounted.subjects)
    }

    /// Bytes that the budget does not know of yet.
    const fn unaccounted_bytes(&self) -> u64 {
        self.assigned.bytes.saturating_sub(self.accounted.bytes)
    }

    /// True if anything of it happens at a time: messages or ids expire, or a schedule is due.
    #[inline]
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.limits.age_ns > 0
            || self.is_timed()
            || !self.schedules.is_empty()
            || self.dedup.len() > 0
    }

    /// When the oldest remembered message id leaves the window.
    #[must_use]
    pub fn next_id_expiry(&self) -> Option<Timestamp> {
        self.dedup.oldest().map(|at| at.plus_nanos(self.limits.window_ns))
    }

    /// Forgets message ids that are older than the window.
    pub fn sweep_ids(&mut self, now: Timestamp) {
        self.dedup.sweep(now, self.limits.window_ns);
    }

    /// Sets whether consumers read the journal of removals.
    pub fn set_has_consumers(&mut self, has_consumers: bool) {
        self.has_consumers = has_consumers;
    }

    /// Removals by consumers that are not in the log yet.
    #[must_use]
    pub const fn unlogged(&self) -> Unlogged {
        self.unlogged
    }

    /// Every consumer's progress is in the log now.
    pub fn set_releases_logged(&mut self) {
        self.unlogged = Unlogged::default();
    }

    /// True if the releases that the log does not know of could make a replay of this publish evict
    /// something else than it does now: then they must be logged first.
    #[inline]
    #[must_use]
    pub fn must_log_releases(&self, publish: &Publish<'_>) -> bool {
        let Unlogged { messages, bytes } = self.unlogged;
        if messages == 0 {
            return false;
        }
        let limits = &self.limits;
        let size = limits.counted_bytes(publish.weight(), !publish.headers.is_empty());
        limits.per_subject > 0
            || self.assigned.messages + messages >= limits.messages
            || self.assigned.bytes.saturating_add(bytes).saturating_add(size) > limits.bytes
    }

    /// True if the log must keep a message: readers may still ask for it.
    #[must_use]
    pub fn holds(&self, seq: Seq) -> bool {
        self.messages.get(seq.0).is_some()
    }

    /// True if a message is there for checks: neither dead nor doomed.
    #[must_use]
    pub fn keeps(&self, seq: Seq) -> bool {
        self.messages.get_kept(seq.0).is_some()
    }

    /// The first message at or after `from` that is there for checks.
    #[must_use]
    pub fn next_kept(&self, from: u64) -> Option<Seq> {
        self.messages.next_kept(from).map(Seq)
    }

    /// The error for the deletion of a message that is not kept. Upstream's file store tells apart
    /// what is outside the stream.
    #[must_use]
    pub fn why_missing(&self, seq: u64) -> JsError {
        if self.config.storage == StorageType::File {
            if seq >= self.messages.next() {
                return JsError::STREAM_MSG_DELETE_FAILED.with_err("stream store EOF");
            }
            if seq < self.messages.first_kept() {
                return JsError::STREAM_MSG_DELETE_FAILED.with_err("no message found");
            }
        }
        JsError::SEQUENCE_NOT_FOUND.with("seq", seq)
    }

    /// Text of a subject; empty if the id is not in use.
    #[must_use]
    pub fn subject_name(&self, id: u32) -> &[u8] {
        self.subjects.name(id)
    }

    /// Recovery: these messages were deleted.
    pub fn apply_delete(&mut self, first: u64, last: u64) {
        let mut at = self.messages.next_kept(first);
        while let Some(seq) = at.filter(|&seq| seq <= last) {
            self.drop_message(seq, When::Replayed);
            at = self.messages.next_kept(seq + 1);
        }
    }

    /// Subject id of a message that is not dead.
    #[must_use]
    pub fn held_subject(&self, seq: Seq) -> Option<u32> {
        self.messages.get(seq.0).map(|entry| entry.subject)
    }

    /// Calls `visit` with the subject id of every message after `seen` that readers see.
    pub fn for_each_committed_after(&self, seen: Seq, visit: &mut dyn FnMut(u32)) {
        let mut at = self.messages.next_live(seen.0 + 1);
        while let Some(seq) = at.filter(|&seq| seq <= self.committed.last_seq) {
            if let Some(entry) = self.messages.get(seq) {
                visit(entry.subject);
            }
            at = self.messages.next_live(seq + 1);
        }
    }

    /// Calls `visit` with sequence and weight of every message that is not dead.
    pub fn for_each_held(&self, visit: &mut dyn FnMut(Seq, usize)) {
        self.messages.for_each(|seq, entry| visit(Seq(seq), entry.weight()));
    }

    /// Notes that a record in frame `lsn` led to the totals of now. Returns whether this is the
    /// stream's first record in that frame.
    pub fn mark(&mut self, lsn: Lsn) -> bool {
        // The totals of now count records of a later frame already; those of the end of `lsn` were
        // noted before the first of them (`mark_before`).
        if lsn < self.appending {
            return false;
        }
        let totals = self.assigned;
        if !SHOW_COMMITTED.holds() {
            self.committed = totals;
        }
        if let Some(mark) = self.marks.back_mut()
            && mark.lsn >= lsn
        {
            mark.totals = totals;
            return false;
        }
        self.marks.push_back(Mark { lsn, totals });
        true
    }

    /// Frames up to `lsn` are durable: readers see what they hold. `dead` is told of every message
    /// that is gone now.
    pub fn commit(&mut self, lsn: Lsn, mut dead: impl FnMut(Seq, usize)) {
        while let Some(mark) = self.marks.front().filter(|mark| mark.lsn <= lsn) {
            self.committed = mark.totals;
            self.marks.pop_front();
        }
        self.settled = lsn.min(self.appending);
        while let Some(doom) = self.dooms.front().filter(|doom| doom.lsn <= lsn).copied() {
            self.bury(doom.first, doom.last, &mut dead);
            self.dooms.pop_front();
        }
        if let Some((_, next)) = self.jump.take_if(|(at, _)| *at <= lsn) {
            self.messages.skip_to(next);
        }
        let (shown, given) = (self.committed.last_seq, self.assigned.last_seq);
        assert!(shown <= given, "readers see {shown}, and only {given} was given out");
    }

    /// Recovery is over, or nothing is in flight: everything assigned is committed.
    pub fn commit_all(&mut self) {
        self.commit(Lsn(u64::MAX), |_, _| {});
        self.committed = self.assigned;
    }

    /// Adopts a configuration (validated against the old one). Limits bite at once.
    pub fn update_config(&mut self, config: Box<StreamConfig>, when: When) {
        self.limits = Limits::new(&config);
        if self.config.subject_transform != config.subject_transform
            || self.config.republish != config.republish
        {
            self.routes = Routes::new(&config);
        }
        self.config = Arc::from(config);
        if self.limits.retention != RetentionPolicy::Interest {
            // Unneeded messages may stay from now on.
            self.unswept = 0;
        }
        self.subjects.track_order(self.limits.per_subject, &self.messages);
        self.enforce_all(when);
    }
}

#[cfg(test)]
mod tests;
