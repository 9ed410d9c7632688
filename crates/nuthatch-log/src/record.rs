//! Records: what frames are made of. The kinds are persisted and never renumbered.

use crate::types::{Seq, StreamId, Timestamp};

/// Kind of a record. The numbers are part of the format: stable, never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// A message of a stream: subject, headers, body.
    Message = 1,
    /// Messages of a stream deleted one by one (body: owned by the machine).
    Delete = 2,
    /// Messages of a stream purged by predicate and as-of sequence.
    Purge = 3,
    /// Age expiry up to and including `seq`.
    Expire = 4,
    /// A stream came into being with a configuration.
    StreamCreate = 5,
    /// A stream's configuration changed.
    StreamUpdate = 6,
    /// A stream is gone; every older record of it is dead.
    StreamDelete = 7,
    /// Everything about a stream that its surviving messages cannot tell, as of this frame.
    StreamState = 8,
    /// A consumer was created or its configuration changed.
    ConsumerCreate = 9,
    /// A consumer is gone.
    ConsumerDelete = 10,
    /// Coalesced progress of one consumer.
    ConsumerState = 11,
    /// The sequence of a stream advanced with nothing stored (interest stream without consumers).
    Advance = 12,
    /// The log's own state: next stream id, live streams. Carries [`StreamId::LOG`].
    LogState = 13,
    /// A stream leaves this log; nothing of it is accepted afterwards. In the format, unused yet.
    MoveOut = 14,
    /// A stream continues in this log. In the format, unused yet.
    MoveIn = 15,
    /// A piece of a state that is too large for one record. See [`crate::state_part`].
    StatePart = 16,
    /// The messages that follow are one atomic batch: replayed as a whole or not at all.
    BatchBegin = 17,
    // 18 is reserved for dead letters: this version refuses it, as it does every kind not listed.
    /// A writer has the stream for itself from here on.
    WriterTerm = 19,
}

impl RecordKind {
    /// The kind for a persisted number, or `None` for one this version does not know.
    #[must_use]
    pub const fn from_u8(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Message,
            2 => Self::Delete,
            3 => Self::Purge,
            4 => Self::Expire,
            5 => Self::StreamCreate,
            6 => Self::StreamUpdate,
            7 => Self::StreamDelete,
            8 => Self::StreamState,
            9 => Self::ConsumerCreate,
            10 => Self::ConsumerDelete,
            11 => Self::ConsumerState,
            12 => Self::Advance,
            13 => Self::LogState,
            14 => Self::MoveOut,
            15 => Self::MoveIn,
            16 => Self::StatePart,
            17 => Self::BatchBegin,
            19 => Self::WriterTerm,
            _ => return None,
        })
    }
}

/// A record, borrowed from a frame buffer or about to be copied into one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef<'a> {
    /// Its kind.
    pub kind: RecordKind,
    /// Whose it is.
    pub stream: StreamId,
    /// Its sequence for messages; meaning by kind otherwise.
    pub seq: Seq,
    /// When it was sequenced.
    pub timestamp: Timestamp,
    /// Subject of a message, or a name (consumer, stream) for control records. At most 65,535 bytes.
    pub subject: &'a [u8],
    /// The whole NATS header block of a message (with its `NATS/1.0` line), or empty.
    pub headers: &'a [u8],
    /// Payload, or the control record's own encoding.
    pub body: &'a [u8],
}

/// Bytes a record takes in a frame beyond its subject, headers and body.
pub const RECORD_HEADER_BYTES: usize = 32;

impl RecordRef<'_> {
    /// Bytes the record takes in a frame: the unit in which live and dead space are counted.
    #[must_use]
    pub const fn weight(&self) -> usize {
        RECORD_HEADER_BYTES + self.subject.len() + self.headers.len() + self.body.len()
    }
}
