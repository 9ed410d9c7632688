//! A stream with the state that the engine keeps beside it.

use super::batches::Batches;
use super::consumers::Consumers;
use super::interest::Sweep;
use super::migration::MigrationState;
use super::reads::ParkedRead;
use crate::records::Delete;
use crate::sink::Sink;
use crate::stream::Stream;
use nuthatch_log::{Lsn, Timestamp};
use std::sync::Arc;

/// A stream, its consumers and its waiting reads.
pub(super) struct StreamSlot<S: Sink> {
    pub(super) stream: Stream,
    pub(super) consumers: Consumers<S::Target>,
    /// Reads that wait for a load or a commit, oldest first.
    pub(super) parked: Vec<ParkedRead<S::Peer>>,
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
}

impl<S: Sink> StreamSlot<S> {
    /// True if anything is to be done when messages of the stream commit.
    #[inline]
    pub(super) fn is_followed(&self) -> bool {
        !self.parked.is_empty() || !self.consumers.caught_up.is_empty() || self.stream.republishes()
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

    pub(super) fn new(stream: Stream, domain: Arc<str>) -> Self {
        let ack_prefix = ack_prefix(&stream.config().name, &domain);
        Self {
            stream,
            consumers: Consumers::default(),
            parked: Vec::new(),
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
