//! A stream with the state that the engine keeps beside it.

use super::batches::Batches;
use super::consumers::Consumers;
use super::interest::Sweep;
use super::migration::MigrationState;
use super::reads::ParkedReads;
use crate::index::MessageIndex;
use crate::records::Delete;
use crate::rules::RELEASES_BEFORE_CHANGES;
use crate::sink::Sink;
use crate::stream::{Stream, refusal};
use nuthatch_log::{AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, Timestamp, Urgency};
use nuthatch_protocol::js::RetentionPolicy;
use nuthatch_protocol::jserror::JsError;
use std::sync::Arc;

/// A stream, its consumers and its waiting reads.
pub(super) struct StreamSlot<S: Sink> {
    pub(super) stream: Stream,
    pub(super) consumers: Consumers<S::Target>,
    pub(super) reads: ParkedReads<S::Peer>,
    /// Batches on their way; `None` without any for a while.
    pub(super) batches: Option<Box<Batches>>,
    /// JetStream domain; empty: none.
    pub(super) domain: Arc<str>,
    /// Start of every publish acknowledgement, up to the sequence.
    pub(super) ack_prefix: Box<[u8]>,
    /// The delete record is in the log: nothing is accepted any more.
    pub(super) deleting: bool,
    /// The newest commit that this stream took part in.
    pub(super) committed_in: Lsn,
    /// When the deadline queue calls.
    pub(super) scheduled: Option<Timestamp>,
    /// What expires is not looked at before: the last look could not log it.
    pub(super) expire_after: Timestamp,
    /// A schedule is due, and what it needs is being read or has not committed.
    pub(super) schedules_wait: bool,
    /// The stream's removals when its full consumers looked last.
    pub(super) removals_seen: u64,
    /// They are to look again.
    pub(super) is_freed: bool,
    /// Dropped because of a consumer in memory, or expired, and not in the log yet. At most one range for each
    /// message that was there when the log last took some.
    pub(super) undeleted: Delete,
    /// The sweep for messages that no consumer needs, if one is in progress.
    pub(super) sweep: Option<Sweep>,
    /// Its state in a migration between logs.
    pub(super) migration: MigrationState,
    /// Recovery: records that may have changed what readers see.
    pub(super) replayed: u64,
}

impl<S: Sink> StreamSlot<S> {
    /// True if anything is to be done when messages of the stream commit.
    #[inline]
    pub(super) fn is_followed(&self) -> bool {
        !self.reads.is_empty()
            || !self.consumers.caught_up.is_empty()
            || self.stream.routes().republishes()
    }

    /// The stream's first full consumer begins to wait: it has seen all removals up to now.
    pub(super) fn note_removals(&mut self) {
        self.removals_seen = self.stream.contents().removal_cursor();
    }

    /// The stream has another name now.
    pub(super) fn rename(&mut self) {
        self.ack_prefix = ack_prefix(&self.stream.config().name, &self.domain);
    }

    /// True if messages may come with sequences of their own: to a mirror, and to what is not
    /// (yet) a stream that others use. A restore or an import that has come to its end takes no
    /// more of them, whoever still sends.
    pub(super) fn takes_copies(&self) -> bool {
        self.stream.config().mirror.is_some()
            || self.stream.limits().restoring
            || matches!(self.migration, MigrationState::Arriving)
    }

    /// Writes the `Expire` record that is due, if one is.
    ///
    /// # Errors
    /// The log has no room; it stays due.
    pub(super) fn log_expiry<L: LogAccess>(&mut self, log: &mut L) -> Result<(), AppendError> {
        let Some(seq) = self.stream.unwritten().due_expiry() else { return Ok(()) };
        let record = RecordRef {
            kind: RecordKind::Expire,
            stream: self.stream.id(),
            seq: Seq(seq),
            timestamp: log.now(),
            subject: b"",
            headers: b"",
            body: b"",
        };
        let lsn = log.append(&record, Urgency::Lazy, true)?.lsn;
        self.stream.contents_mut().note_change(lsn);
        self.stream.unwritten_mut().expiry_logged(seq);
        Ok(())
    }

    /// Writes the progress of every consumer that has any to tell, and what else was dropped, so that
    /// the log knows which messages exist.
    ///
    /// # Errors
    /// The log has no room; what was not written stays to be logged.
    pub(super) fn log_progress<L: LogAccess>(&mut self, log: &mut L) -> Result<(), AppendError> {
        self.log_undeleted(log)?;
        self.consumers.log_progress(self.stream.id(), log)?;
        self.stream.unwritten_mut().set_releases_logged();
        Ok(())
    }

    /// Before a control record of the stream: what its consumers let go is logged, so that a replay
    /// finds the same messages.
    ///
    /// # Errors
    /// The log has no room.
    pub(super) fn log_releases<L: LogAccess>(&mut self, log: &mut L) -> Result<(), JsError> {
        // Under interest retention progress matters that let nothing go yet: what another consumer
        // lets go later is gone because of it.
        let matters = self.stream.unwritten().released().messages > 0
            || self.stream.limits().retention == RetentionPolicy::Interest;
        if !matters || !RELEASES_BEFORE_CHANGES.holds() {
            return Ok(());
        }
        self.log_progress(log).map_err(refusal)
    }

    /// Removes what consumer `index` has let go and no other one needs. Returns whether the log must
    /// be told of it: it will not learn it from the consumers' own records if one of them is in
    /// memory, be it this one or another that had let go before.
    pub(super) fn release<L: LogAccess>(
        &mut self,
        index: u32,
        released: &mut Vec<Seq>,
        log: &mut L,
    ) -> bool {
        let id = self.stream.id();
        let is_interest = self.stream.limits().retention == RetentionPolicy::Interest;
        let is_memory = self.consumers.any_memory();
        let was_empty = self.undeleted.ranges.is_empty();
        for seq in released.drain(..) {
            let Some(subject) = self.stream.contents().held_subject(seq) else { continue };
            if is_interest && self.consumers.any_needs(self.stream.contents(), seq, subject, index)
            {
                continue;
            }
            self.stream.release(seq.0, &mut |seq, weight| log.dead(id, seq, weight));
            if is_memory {
                self.undeleted.add(seq.0);
            }
        }
        was_empty && !self.undeleted.ranges.is_empty()
    }

    pub(super) fn new(stream: Stream, domain: Arc<str>) -> Self {
        let ack_prefix = ack_prefix(&stream.config().name, &domain);
        Self {
            stream,
            consumers: Consumers::default(),
            reads: ParkedReads::default(),
            batches: None,
            domain,
            ack_prefix,
            deleting: false,
            committed_in: Lsn(0),
            scheduled: None,
            expire_after: Timestamp::NONE,
            schedules_wait: false,
            removals_seen: 0,
            is_freed: false,
            undeleted: Delete::default(),
            sweep: None,
            migration: MigrationState::Here,
            replayed: 0,
        }
    }
}

/// `{"stream":"S","seq":`, with the domain between them if there is one.
fn ack_prefix(stream: &str, domain: &str) -> Box<[u8]> {
    let stream = serde_json::Value::from(stream);
    let text = if domain.is_empty() {
        format!("{{\"stream\":{stream},\"seq\":")
    } else {
        let domain = serde_json::Value::from(domain);
        format!("{{\"stream\":{stream},\"domain\":{domain},\"seq\":")
    };
    text.into_bytes().into_boxed_slice()
}
