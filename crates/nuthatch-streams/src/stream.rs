//! One stream: configuration, messages (without payloads), subjects, duplicates.
//!
//! *Assigned* state is what has been appended to the log; publishes are checked against it. What a
//! record removes is only *doomed* until the record commits, and readers see neither uncommitted
//! messages nor uncommitted removals. A log that fails stops for good, so nothing is ever undone.

mod admit;
mod batch;
mod contents;
mod counters;
mod dedup;
mod details;
mod evict;
mod headers;
mod identity;
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
mod trial;
mod unwritten;
mod writer;

pub use crate::records::StreamLocation;
pub use admit::{Admitted, Publish, Refusal, refusal, unavailable, uncertain};
pub use batch::{BATCH_MESSAGES_MAX, BatchRefusal, Committed};
pub use contents::{Contents, GetMessage, Lookup, Selection, When};
pub use dedup::{Remembered, hash_id};
pub use details::{DELETED_DETAILS_MAX, DeletedWalk, SubjectWalk};
pub use headers::{NO_HEADERS, PublishHeaders, Ttl, scan};
pub use identity::{short_hash, stream_identity};
pub use info::{SUBJECT_DETAILS_MAX, wire_time};
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
pub use unwritten::{Unlogged, Unwritten};
pub use writer::TERM_HEADER;

pub use crate::budget::Accounted;
use crate::sink::AccountId;
pub use counters::Counters;
use dedup::Dedup;
use nuthatch_log::{StreamId, Timestamp};
use nuthatch_protocol::js::{RetentionPolicy, StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use std::sync::Arc;

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

/// One stream.
pub struct Stream {
    id: StreamId,
    account: AccountId,
    config: Arc<StreamConfig>,
    limits: Limits,
    created: Timestamp,
    contents: Contents,
    dedup: Dedup,
    counters: Counters,
    routes: Routes,
    /// How far the stream has come with each source.
    sourced: Sourced,
    /// With timers: no message before this one goes by age.
    age_cursor: u64,
    /// `Nats-Msg-Id` of the last message; empty if it had none.
    last_msg_id: Vec<u8>,
    unwritten: Unwritten,
    /// Recovery: the atomic batch whose messages are being read.
    replayed_batch: Option<Box<batch::Replayed>>,
    /// Use last reported to the engine's budget.
    accounted: Accounted,
    /// The term of the one writer that the stream takes records from; 0: it has none, anybody may
    /// write.
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
        let limits = Limits::new(&config);
        Self {
            id,
            account,
            contents: Contents::new(config.first_seq.max(1), &limits, hash_seed),
            limits,
            routes: Routes::new(&config),
            config,
            created,
            dedup: Dedup::default(),
            counters: Counters::default(),
            sourced: Sourced::default(),
            age_cursor: 0,
            last_msg_id: Vec::new(),
            unwritten: Unwritten::default(),
            replayed_batch: None,
            accounted: Accounted::default(),
            writer_term: 0,
            provenance: Provenance::default(),
        }
    }

    /// What the log does not know of it yet.
    #[inline]
    #[must_use]
    pub const fn unwritten(&self) -> &Unwritten {
        &self.unwritten
    }

    /// What the log does not know of it yet, to say that it does.
    pub const fn unwritten_mut(&mut self) -> &mut Unwritten {
        &mut self.unwritten
    }

    /// Values of its counters, with the messages that hold them.
    pub const fn counters(&mut self) -> (&mut Counters, &mut Contents) {
        (&mut self.counters, &mut self.contents)
    }

    /// Its transforms of subjects.
    #[inline]
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The next message that readers see by now and that has not been published again.
    pub fn next_republish(&mut self) -> Option<Again> {
        self.routes.next_republish(self.contents.committed_totals().last_seq)
    }

    /// Its messages.
    #[inline]
    #[must_use]
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Its messages, to look them up (which remembers what was found), to remove them by records, and
    /// to show what has committed.
    #[inline]
    pub const fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// Identity.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Account.
    #[must_use]
    #[inline]
    pub const fn account(&self) -> AccountId {
        self.account
    }

    /// Configuration.
    #[must_use]
    #[inline]
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
    #[inline]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When it was created.
    #[must_use]
    pub const fn created(&self) -> Timestamp {
        self.created
    }

    /// The use last reported to the budget, and the present one, which counts as reported from now
    /// on.
    #[inline]
    pub fn account_use(&mut self) -> (Accounted, Accounted) {
        let now = Accounted {
            subjects: self.contents.subjects().len(),
            msg_ids: self.dedup.len(),
            timers: self.contents.timers().len() + self.contents.schedules().len(),
            bytes: self.contents.assigned_totals().bytes,
            table_bytes: self.contents.messages().memory_bytes(),
        };
        (std::mem::replace(&mut self.accounted, now), now)
    }

    /// Recovery: a consumer is gone or wants less, or interest counts from now on.
    pub fn sweep_later(&mut self) {
        if self.limits.retention == RetentionPolicy::Interest {
            self.unwritten.set_unswept(self.contents.assigned_totals().last_seq);
        }
    }

    /// Subjects that the budget does not know of yet.
    fn unaccounted_subjects(&self) -> usize {
        self.contents.subjects().len().saturating_sub(self.accounted.subjects)
    }

    /// Bytes that the budget does not know of yet.
    #[inline]
    const fn unaccounted_bytes(&self) -> u64 {
        self.contents.assigned_totals().bytes.saturating_sub(self.accounted.bytes)
    }

    /// True if anything of it happens at a time: messages or ids expire, or a schedule is due.
    #[inline]
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.limits.age_ns > 0
            || self.is_timed()
            || !self.contents.schedules().is_empty()
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

    /// Message ids that it remembers.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.dedup.len()
    }

    /// True if the releases that the log does not know of could make a replay of this publish evict
    /// something else than it does now: then they must be logged first.
    #[inline]
    #[must_use]
    pub fn must_log_releases(&self, publish: &Publish<'_>) -> bool {
        let Unlogged { messages, bytes } = self.unwritten.released();
        if messages == 0 {
            return false;
        }
        let limits = &self.limits;
        let size = limits.counted_bytes(publish.weight(), !publish.headers.is_empty());
        limits.per_subject > 0
            || self.contents.assigned_totals().messages + messages >= limits.messages
            || self.contents.assigned_totals().bytes.saturating_add(bytes).saturating_add(size)
                > limits.bytes
    }

    /// The error for the deletion of a message that is not kept. Upstream's file store tells apart
    /// what is outside the stream.
    #[must_use]
    pub fn why_missing(&self, seq: u64) -> JsError {
        if self.config.storage == StorageType::File {
            if seq >= self.contents.messages().next() {
                return JsError::STREAM_MSG_DELETE_FAILED.with_err("stream store EOF");
            }
            if seq < self.contents.messages().first_kept() {
                return JsError::STREAM_MSG_DELETE_FAILED.with_err("no message found");
            }
        }
        JsError::SEQUENCE_NOT_FOUND.with("seq", seq)
    }

    /// Adopts a configuration (validated against the old one). Limits bite at once.
    pub fn update_config(&mut self, config: Box<StreamConfig>, when: When) {
        self.limits = Limits::new(&config);
        self.guard();
        if self.config.subject_transform != config.subject_transform
            || self.config.republish != config.republish
        {
            self.routes = Routes::new(&config);
        }
        self.config = Arc::from(config);
        if self.limits.retention != RetentionPolicy::Interest {
            // Unneeded messages may stay from now on.
            self.unwritten.set_unswept(0);
        }
        self.contents.track_order(self.limits.per_subject);
        self.enforce_all(when);
    }
}

#[cfg(test)]
mod tests;
