//! The frame under construction: one copy per record into an aligned buffer, and a list of runs
//! (neighbouring messages of one stream) from which the index is fed when the frame commits.

use super::sum::{BodySum, PIECE_BYTES, SUM_AT_ONCE_BYTES};
use super::{FRAME_HEADER_BYTES, MAX_FRAME_RECORDS, codec::encode_record_head, encode_record};
use crate::env::{AlignedBuf, BufPool};
use crate::record::{RecordKind, RecordRef};
use crate::types::{Lsn, Seq, StreamId, Timestamp};

/// A run is cut after this many bytes, so that finding a message inside one stays short.
const RUN_BYTES: usize = 4096;

/// Neighbouring messages of one stream with consecutive sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageRun {
    /// Whose.
    pub stream: StreamId,
    /// Offset where the first one starts in the frame.
    pub offset: u32,
    /// Sequence of the first one.
    pub first: Seq,
    /// How many.
    pub count: u32,
}

/// A frame being filled.
pub struct FrameBuilder {
    buf: AlignedBuf,
    count: usize,
    runs: Vec<MessageRun>,
    message_bytes: u64,
    sum: BodySum,
    /// The position the frame will have.
    pub lsn: Lsn,
    /// A sender awaits a record in it, or a flush was asked for.
    pub awaited: bool,
    /// When the first record that a sender awaits was appended.
    pub awaited_since: Option<Timestamp>,
    /// When the first lazy record was appended.
    pub lazy_since: Option<Timestamp>,
}

/// A full frame on its way to the medium. Its header is completed by the writer, which alone knows
/// the segment it goes to.
pub struct SealedFrame {
    /// Header room and records.
    pub buf: AlignedBuf,
    /// Bytes used.
    pub len: usize,
    /// Records in it.
    pub count: u16,
    /// Their checksum, as far as it is known.
    pub sum: BodySum,
    /// Its position.
    pub lsn: Lsn,
    /// See [`super::flags`].
    pub flags: u16,
}

/// Description of a frame that is being written.
pub struct FrameMeta {
    /// Its position.
    pub lsn: Lsn,
    /// Records in it.
    pub count: u16,
    /// Bytes used.
    pub len: usize,
    /// Its messages.
    pub runs: Vec<MessageRun>,
    /// Sum of the weights of its messages.
    pub message_bytes: u64,
    /// See [`super::flags`].
    pub flags: u16,
    /// When the first record that a sender awaits was appended.
    pub awaited_since: Option<Timestamp>,
}

impl FrameBuilder {
    /// An empty frame for position `lsn` with room for about `expected` bytes.
    #[must_use]
    pub fn new(pool: &BufPool, expected: usize, lsn: Lsn) -> Self {
        let mut buf = pool.take(expected);
        buf.extend(&[0; FRAME_HEADER_BYTES]);
        Self {
            buf,
            count: 0,
            runs: Vec::new(),
            message_bytes: 0,
            sum: BodySum::default(),
            lsn,
            awaited: false,
            awaited_since: None,
            lazy_since: None,
        }
    }

    /// Bytes used, header included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True if it holds no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if it cannot count another record.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.count >= MAX_FRAME_RECORDS
    }

    /// Copies a record in, moving to a larger buffer if need be.
    pub fn push(&mut self, pool: &BufPool, record: &RecordRef<'_>) {
        let offset = self.buf.len();
        let end = offset + record.weight();
        if end > self.buf.capacity() {
            self.grow(pool, end);
        }
        let weight = if record.body.len() < SUM_AT_ONCE_BYTES {
            encode_record(record, &mut self.buf)
        } else {
            self.encode_and_sum(record)
        };
        self.count += 1;
        if record.kind == RecordKind::Message {
            self.message_bytes += weight as u64;
            self.note(record, offset as u32);
        }
    }

    fn encode_and_sum(&mut self, record: &RecordRef<'_>) -> usize {
        let weight = encode_record_head(record, &mut self.buf);
        for piece in record.body.chunks(PIECE_BYTES) {
            self.buf.extend(piece);
            self.sum.catch_up(&self.buf);
        }
        weight
    }

    fn note(&mut self, record: &RecordRef<'_>, offset: u32) {
        if let Some(run) = self.runs.last_mut()
            && run.stream == record.stream
            && run.first.0 + u64::from(run.count) == record.seq.0
            && ((offset - run.offset) as usize) < RUN_BYTES
        {
            run.count += 1;
            return;
        }
        let (stream, first) = (record.stream, record.seq);
        self.runs.push(MessageRun { stream, offset, first, count: 1 });
    }

    #[cold]
    fn grow(&mut self, pool: &BufPool, needed: usize) {
        let wanted = needed.max(self.buf.capacity() * 2).min(super::MAX_FRAME_BYTES);
        let mut larger = pool.take(wanted);
        larger.extend(&self.buf);
        self.buf = larger;
    }

    /// Ends the frame.
    #[must_use]
    pub fn seal(self, flags: u16) -> (SealedFrame, FrameMeta) {
        let (len, lsn, count) = (self.buf.len(), self.lsn, self.count as u16);
        let meta = FrameMeta {
            lsn,
            count,
            len,
            runs: self.runs,
            message_bytes: self.message_bytes,
            flags,
            awaited_since: self.awaited_since,
        };
        (SealedFrame { buf: self.buf, len, count, sum: self.sum, lsn, flags }, meta)
    }
}
