//! The seam between the log and what runs on it.
//!
//! A [`Machine`] is driven by the sequencer of one log, on one thread, and reaches the log only
//! through [`LogAccess`]. It performs no I/O and reads no clock. Checks run on *assigned* state
//! (what has been appended), readers see *committed* state (what [`Machine::committed`] announced).

use crate::record::RecordRef;
use crate::types::{Lsn, Seq, StreamId, Timestamp};
use bytes::Bytes;

/// How soon a record has to become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Its sender waits: the record starts a frame as soon as the writer is free.
    Awaited,
    /// Its sender does not wait: the record rides the next frame or a timer (`lazy_flush_ms`).
    Lazy,
}

/// Position of an appended record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The frame that holds the record; it is durable once `committed(lsn)` was called for it.
    pub lsn: Lsn,
}

/// Why a record was not appended. Nothing of it is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The medium is full up to the reserve; only deletes, purges, acks and the like may pass.
    #[error(
        "no space left on the log's medium: {available_bytes} bytes left, {needed_bytes} needed"
    )]
    Full {
        /// Bytes the record (with its frame) would take.
        needed_bytes: u64,
        /// Bytes left outside the reserve.
        available_bytes: u64,
    },
    /// The record is larger than a frame may be.
    #[error("record of {size_bytes} bytes exceeds the largest record of {max_bytes} bytes")]
    TooLarge {
        /// Its size.
        size_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// The log stopped after an I/O failure; it takes nothing until the server is restarted.
    #[error("the log has failed and accepts no more writes")]
    Failed,
}

/// Space left on the log's medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Everything is accepted.
    Normal,
    /// Only the reserve is left: [`AppendError::Full`] for messages and creates.
    ReserveOnly,
    /// The reserve is gone as well: only records that free space.
    Exhausted,
}

/// A stored message, borrowed from the tail cache or the block cache.
#[derive(Clone, Copy, Debug)]
pub struct StoredMessage<'a> {
    /// The record itself.
    pub record: RecordRef<'a>,
    /// The buffer that `record` borrows from; `owner.slice_ref(record.body)` shares it without a copy.
    pub owner: &'a Bytes,
}

/// Outcome of [`LogAccess::read`].
#[derive(Clone, Copy, Debug)]
pub enum Read<'a> {
    /// Here it is.
    Ready(StoredMessage<'a>),
    /// Not in memory; a load was started and [`Machine::loaded`] will be called when it is there.
    Pending,
    /// The log has no such message (never stored, or compacted away as dead).
    Missing,
    /// The place that holds it is damaged; that was reported and counted. It is read again when it
    /// is asked for later (the damage may be on the way from the medium), seldom.
    Damaged,
    /// The disk failed to give it; that was reported and counted. Ask again later: until then the
    /// disk is left alone, longer after each failure.
    Failing,
}

/// Operations on the log that are open to a machine during one call.
pub trait LogAccess {
    /// The time of this turn; the same for every call in one turn, never going backwards.
    fn now(&self) -> Timestamp;

    /// Fresh randomness (seeded under simulation).
    fn entropy(&mut self) -> u64;

    /// Appends a record to the frame under construction. Copies the record.
    ///
    /// # Errors
    /// See [`AppendError`]; the machine's assigned state must then not include the record.
    /// `privileged` records (deletes, purges, acks, expiries, states) may spend the reserve.
    fn append(
        &mut self,
        record: &RecordRef<'_>,
        urgency: Urgency,
        privileged: bool,
    ) -> Result<Appended, AppendError>;

    /// Appends a state ([`RecordKind::StreamState`] or [`RecordKind::LogState`]), privileged and
    /// lazy, in several records if it is large. A state that is not in the log to its last byte does
    /// not count; recovery hands whole ones to [`Machine::apply_state`].
    ///
    /// [`RecordKind::StreamState`]: crate::record::RecordKind::StreamState
    /// [`RecordKind::LogState`]: crate::record::RecordKind::LogState
    ///
    /// # Errors
    /// As [`LogAccess::append`]; some parts may be in the log then, and mean nothing.
    fn append_state(&mut self, state: &RecordRef<'_>) -> Result<Appended, AppendError> {
        self.append(state, Urgency::Lazy, true)
    }

    /// Asks that the frame under construction be written although nothing in it is awaited.
    fn flush_soon(&mut self);

    /// The newest committed frame.
    fn committed(&self) -> Lsn;

    /// Reads a committed message. Sequential reads of one stream are cheap: the log remembers
    /// where the previous one ended.
    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_>;

    /// Says that a message no longer counts as live, with the weight it was stored with.
    fn dead(&mut self, stream: StreamId, seq: Seq, weight: usize);

    /// Space left on the medium.
    fn space(&self) -> Space;
}

/// A checkpoint's snapshot could not be used; the log falls back to an older one or a full replay.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("snapshot is not usable: {reason}")]
pub struct SnapshotError {
    /// What is wrong with it.
    pub reason: String,
    /// It, or something in it, is of a later version: a start is refused then, while one that is
    /// damaged is set aside.
    pub is_later: bool,
}

/// Why states were not logged. What is dead then stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StatesError {
    /// The log did not take one.
    #[error("the state of {what} was not taken: {error}", what = StateOf(*stream))]
    Append {
        /// Whose state; [`StreamId::LOG`] for the log's own.
        stream: StreamId,
        /// Why.
        error: AppendError,
    },
    /// The machine met records of a later version and does not know what they mean.
    #[error("{records} records are of a later version")]
    Unreadable {
        /// How many.
        records: u64,
    },
}

/// Names whose state it is.
struct StateOf(StreamId);

impl std::fmt::Display for StateOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == StreamId::LOG {
            f.write_str("the log")
        } else {
            write!(f, "stream {}", self.0)
        }
    }
}

/// A message as a segment's footer describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedMessage<'a> {
    /// Whose it is.
    pub stream: StreamId,
    /// Its sequence.
    pub seq: Seq,
    /// When it was sequenced.
    pub timestamp: Timestamp,
    /// Its subject.
    pub subject: &'a [u8],
    /// [`RecordRef::weight`] of its record.
    pub weight: u32,
    /// True if it has a header block.
    pub has_headers: bool,
}

/// The state machine that runs on a log. All calls come from one thread, the sequencer's.
///
/// Recovery calls, in this order: [`Machine::restore`] (if a checkpoint is usable); then
/// [`Machine::apply_state`] for the newest `StreamState` of each stream (and newest `LogState`)
/// after the checkpoint; then, in log order, [`Machine::reindex`] for surviving messages up to
/// their stream's state or the checkpoint, and [`Machine::apply`] for every record after it; then
/// [`Machine::recovered`].
pub trait Machine: Send + 'static {
    /// The type of events that clients of the log send.
    type Event: Send + 'static;

    /// Handles one event.
    fn step<L: LogAccess>(&mut self, event: Self::Event, log: &mut L);

    /// Every frame up to `lsn` is durable at the level in force: release acks, show to readers.
    fn committed<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L);

    /// A load asked for by [`LogAccess::read`] has ended, for `stream`.
    fn loaded<L: LogAccess>(&mut self, stream: StreamId, log: &mut L);

    /// The earliest moment at which [`Machine::tick`] wants to run.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Time has reached [`Machine::next_deadline`].
    fn tick<L: LogAccess>(&mut self, log: &mut L);

    /// The end of a turn, before the sequencer sleeps or starts a write: hand outputs over.
    fn turn_end(&mut self);

    /// Called right before a frame is sealed, so that coalesced records (consumer progress) can
    /// ride it. Appends must be `Lazy`.
    fn before_seal<L: LogAccess>(&mut self, log: &mut L);

    /// The log failed (fsync error and the like). Whatever is not committed will never be:
    /// answer every waiting publisher with `reason`.
    fn failed(&mut self, reason: &str);

    /// Replaces all state by a snapshot made by [`Machine::snapshot`].
    ///
    /// # Errors
    /// [`SnapshotError`] if it cannot be used; the machine must then be as new.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SnapshotError>;

    /// Appends a snapshot of all state to `out`, as `StreamState` records would hold it: small,
    /// without per-message data (that comes back through [`Machine::reindex`]). Called only between
    /// frames, when everything appended is committed.
    fn snapshot(&self, out: &mut Vec<u8>);

    /// Recovery: adopts a `StreamState` or `LogState` record. They come oldest first.
    ///
    /// A `LogState` also says which streams were gone by then: records of those that are still in
    /// the log (in segments that were not compacted) are withheld if [`Machine::is_gone`] says so.
    fn apply_state(&mut self, record: &RecordRef<'_>);

    /// A standby: what was read was written up to this time, and nothing else may come for long. What only time ends may be
    /// let go of.
    fn pass_time(&mut self, _at: Timestamp) {}

    /// A standby: whether a state that comes in the log, or a part of one, tells of something that the records before it do not:
    /// such a state is only read from the beginning.
    fn is_news(&self, record: &RecordRef<'_>) -> bool;

    /// Recovery, after all states: whether the newest `LogState` tells that a stream which existed
    /// before it was gone by then. Nothing older than that `LogState` is applied for such a stream:
    /// the record of its deletion may have been compacted away while others of it were not.
    fn is_gone(&self, stream: StreamId) -> bool;

    /// Recovery: a surviving message at or before its stream's newest state (or the checkpoint).
    /// Index it if live under that state. No limits are applied, nothing is evicted. Comes from a
    /// segment's footer, so there is no body. Messages of one stream come in ascending order.
    fn reindex(&mut self, message: &IndexedMessage<'_>);

    /// Recovery: the record was committed after the checkpoint and after its stream's state.
    /// Must lead to the same state as appending it did. Returns nothing: limits are recomputed. A standby goes on with this
    /// for as long as another process writes the log, and [`Machine::recovered`] comes when that ends, or never.
    fn apply(&mut self, record: &RecordRef<'_>);

    /// Recovery: how many records handed over so far were not understood. They are as they were
    /// written, so a later version wrote them: the start is refused before it changes anything, and
    /// names the segment.
    fn unreadable_records(&self) -> u64 {
        0
    }

    /// Recovery is over; `dead` space is reported through `log` from now on.
    fn recovered<L: LogAccess>(&mut self, log: &mut L);

    /// Compaction: is this message still needed?
    fn is_live(&self, stream: StreamId, seq: Seq) -> bool;

    /// Compaction: whether this stream's messages are to be compressed whatever the log's own
    /// [`crate::Compression`] is.
    fn compresses(&self, stream: StreamId) -> bool {
        let _ = stream;
        false
    }

    /// True if [`Machine::compresses`] is true of any stream. It may look at all of them: a step of the log asks a fixed
    /// number of times.
    fn compresses_any(&self) -> bool {
        false
    }

    /// Compaction: append a `StreamState` for each of these streams that exists, then one
    /// `LogState`, so that older records of them may go: by [`LogAccess::append_state`].
    ///
    /// # Errors
    /// [`StatesError`]: nothing may be removed then; the log says why and tries again later.
    fn log_states<L: LogAccess>(
        &mut self,
        streams: &[StreamId],
        log: &mut L,
    ) -> Result<(), StatesError>;

    /// Live weight of a stream's messages of these sequences, for the log's accounting after recovery: the sum of
    /// [`RecordRef::weight`] of those that are live; 0 of a stream that is not there. A start asks for all that there are, so
    /// it is to be fast.
    fn live_weight(&self, stream: StreamId, first: Seq, last: Seq) -> u64;
}
