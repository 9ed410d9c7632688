//! Reading a footer back: checked once as a whole, then walked in place.

use super::{
    FOOTER_HEADER_BYTES, FOOTER_MAGIC, FOOTER_TRAILER_BYTES, FOOTER_VERSION, MARK_BYTES, Mark,
    PLACE_BYTES, Position, RowState, SEALED_FOOTER_VERSION, STREAM_BYTES, SegmentId, message,
    next_row, seal_context,
};
use crate::bytes::{ByteReader, u32_at, u64_at};
use crate::frame::crc;
use crate::index::IndexPosition;
use crate::keys::{KeyId, Keyring, SealFault};
use crate::later::{Later, Unusable};
use crate::machine::IndexedMessage;
use crate::state_part::StatePiece;
use crate::types::{Lsn, Seq, StreamId};
use std::ops::Range;

/// A footer in memory.
pub struct Footer {
    bytes: Vec<u8>,
    subjects: Vec<Range<u32>>,
    streams: Vec<FooterStream>,
    /// States in the segment.
    pub marks: Vec<Mark>,
}

/// A walk over a stream's messages that can be put off and taken up again.
#[derive(Clone, Copy, Debug)]
pub struct RowCursor {
    at: usize,
    end: usize,
    left: u32,
    state: RowState,
}

impl RowCursor {
    /// Messages not walked over yet.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.left
    }
}

/// A footer's entry for one stream.
#[derive(Clone, Debug)]
pub struct FooterStream {
    /// Whose.
    pub stream: StreamId,
    /// How many messages.
    pub messages: u32,
    /// Sum of their records' bytes, unpacked.
    pub weight: u64,
    /// Position of its last record that is not a state; zero if there is none.
    pub last_at: Position,
    places: Range<usize>,
    rows: Range<usize>,
}

const DAMAGED: Unusable = Unusable::Damaged("its checksum or its sizes do not fit");

impl Footer {
    /// Checks and reads a footer of a segment.
    ///
    /// # Errors
    /// It is not one, damaged, of a later version, or sealed under a key that is not there.
    pub fn parse(mut bytes: Vec<u8>, segment: SegmentId, keys: &Keyring) -> Result<Self, Unusable> {
        if check(&bytes, segment)? == SEALED_FOOTER_VERSION {
            unseal(&mut bytes, segment, keys)?;
            if check(&bytes, segment)? != FOOTER_VERSION {
                return Err(Unusable::Later(Later::Version(u32_at(&bytes, 8))));
            }
        }
        let body_len = bytes.len() - FOOTER_TRAILER_BYTES;
        let subjects = read_subjects(&bytes).ok_or(DAMAGED)?;
        let streams = read_streams(&bytes).ok_or(DAMAGED)?;
        let marks = read_marks(&bytes[..body_len])?;
        Ok(Self { bytes, subjects, streams, marks })
    }

    /// The last position that a footer of a segment is about, of which no more is looked at: no key is
    /// needed for that.
    ///
    /// # Errors
    /// As [`Footer::parse`].
    pub fn end_in(bytes: &[u8], segment: SegmentId) -> Result<Lsn, Unusable> {
        check(bytes, segment).map(|_| Lsn(u64_at(bytes, 48)))
    }

    /// The streams with any record in the segment.
    #[must_use]
    pub fn streams(&self) -> &[FooterStream] {
        &self.streams
    }

    /// Last position that the segment stands for.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(u64_at(&self.bytes, 48))
    }

    /// Places of a stream's messages.
    pub fn places<'a>(
        &'a self,
        stream: &FooterStream,
        segment: SegmentId,
    ) -> impl Iterator<Item = IndexPosition> + 'a {
        self.bytes[stream.places.clone()].chunks_exact(PLACE_BYTES).map(move |place| {
            IndexPosition {
                first: Seq(u64_at(place, 0)),
                last: Seq(u64_at(place, 8)),
                segment,
                frame: u32_at(place, 16),
                record: u32_at(place, 20),
            }
        })
    }

    /// Sum of the bytes of all messages' records, unpacked.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| stream.weight.saturating_add(sum))
    }

    /// Begins a walk over a stream's messages.
    #[must_use]
    pub fn cursor(&self, stream: &FooterStream) -> RowCursor {
        let (at, end) = (stream.rows.start, stream.rows.end);
        RowCursor { at, end, left: stream.messages, state: RowState::default() }
    }

    /// The next message of a walk: its sequence and weight. `None` if none is left, or if the row
    /// makes no sense; the walk is then not over.
    pub fn next_message(&self, cursor: &mut RowCursor) -> Option<(Seq, u32)> {
        if cursor.left == 0 {
            return None;
        }
        let mut rows = ByteReader::new(self.bytes.get(cursor.at..cursor.end)?);
        next_row(&mut rows, &mut cursor.state)?;
        cursor.at = cursor.end - rows.rest().len();
        cursor.left -= 1;
        Some((Seq(cursor.state.seq), cursor.state.weight as u32))
    }

    /// Calls `visit` for each message of a stream, ascending. False if a row makes no sense.
    pub fn for_each_message(
        &self,
        stream: &FooterStream,
        mut visit: impl FnMut(&IndexedMessage<'_>),
    ) -> bool {
        let mut rows = ByteReader::new(&self.bytes[stream.rows.clone()]);
        let mut state = RowState::default();
        for _ in 0..stream.messages {
            let Some(has_headers) = next_row(&mut rows, &mut state) else { return false };
            let number = usize::try_from(state.subject).unwrap_or(usize::MAX);
            let Some(subject) = self.subjects.get(number) else { return false };
            let subject = &self.bytes[subject.start as usize..subject.end as usize];
            visit(&message(stream.stream, &state, subject, has_headers));
        }
        true
    }
}

/// Whether bytes are a footer of a segment, whole; its version.
fn check(bytes: &[u8], segment: SegmentId) -> Result<u32, Unusable> {
    let body_len = bytes.len().checked_sub(FOOTER_TRAILER_BYTES).ok_or(DAMAGED)?;
    if body_len < FOOTER_HEADER_BYTES || bytes[0..8] != FOOTER_MAGIC {
        return Err(Unusable::Damaged("it does not begin like a footer"));
    }
    // Length, trailer and checksum are where they are in every version.
    let fits = u32_at(bytes, 12) as usize == bytes.len()
        && u32_at(bytes, body_len) as usize == bytes.len()
        && bytes[body_len + 8..] == FOOTER_MAGIC
        && u32_at(bytes, body_len + 4) == crc(&bytes[..body_len]);
    if !fits {
        return Err(DAMAGED);
    }
    let version = u32_at(bytes, 8);
    if !matches!(version, FOOTER_VERSION | SEALED_FOOTER_VERSION) {
        return Err(Unusable::Later(Later::Version(version)));
    }
    if u32_at(bytes, 16) != segment.0 {
        return Err(Unusable::Damaged("it belongs to another segment"));
    }
    Ok(version)
}

/// Leaves the footer that is sealed in a checked one.
fn unseal(bytes: &mut Vec<u8>, segment: SegmentId, keys: &Keyring) -> Result<(), Unusable> {
    bytes.truncate(bytes.len() - FOOTER_TRAILER_BYTES);
    let key_id = KeyId(u32_at(bytes, 20));
    if !key_id.is_some() {
        return Err(Unusable::Damaged("it is sealed under no key"));
    }
    let sealed = &mut bytes[FOOTER_HEADER_BYTES..];
    let len = keys.open(key_id, &seal_context(segment), sealed).map_err(|fault| match fault {
        SealFault::NoKey(id) => Unusable::Later(Later::Key(id)),
        SealFault::Unknown => Unusable::Later(Later::Frame),
        SealFault::Broken => Unusable::Damaged("it is not what was sealed under its key"),
    })?;
    bytes.copy_within(FOOTER_HEADER_BYTES..FOOTER_HEADER_BYTES + len, 0);
    bytes.truncate(len);
    Ok(())
}

fn read_subjects(bytes: &[u8]) -> Option<Vec<Range<u32>>> {
    let streams_at = u32_at(bytes, 32) as usize;
    let section = bytes.get(FOOTER_HEADER_BYTES..streams_at)?;
    let mut reader = ByteReader::new(section);
    let count = (u32_at(bytes, 20) as usize).min(section.len());
    let mut subjects = Vec::with_capacity(count);
    while !reader.rest().is_empty() {
        let len = usize::try_from(reader.varint()?).ok()?;
        let start = streams_at - reader.rest().len();
        reader.take(len)?;
        subjects.push(start as u32..(start + len) as u32);
    }
    Some(subjects)
}

fn read_streams(bytes: &[u8]) -> Option<Vec<FooterStream>> {
    let (mut at, end) = (u32_at(bytes, 32) as usize, u32_at(bytes, 36) as usize);
    let mut streams = Vec::new();
    while at < end {
        let fixed = bytes.get(at..at + STREAM_BYTES)?;
        let places_end = at + STREAM_BYTES + u32_at(fixed, 12) as usize * PLACE_BYTES;
        let rows_end = places_end + u32_at(fixed, 8) as usize;
        bytes.get(..rows_end).filter(|_| rows_end <= end)?;
        let record = u16::try_from(u32_at(fixed, 48)).ok()?;
        streams.push(FooterStream {
            stream: StreamId(u32_at(fixed, 0)),
            messages: u32_at(fixed, 4),
            weight: u64_at(fixed, 32),
            last_at: Position { lsn: Lsn(u64_at(fixed, 40)), record },
            places: at + STREAM_BYTES..places_end,
            rows: places_end..rows_end,
        });
        at = rows_end;
    }
    Some(streams)
}

fn read_marks(bytes: &[u8]) -> Result<Vec<Mark>, Unusable> {
    let section = bytes.get(u32_at(bytes, 36) as usize..);
    let section = section.ok_or(Unusable::Damaged("its marks are not in it"))?;
    let read = |mark: &[u8]| {
        let piece = StatePiece::from_u16(u16::from_le_bytes([mark[6], mark[7]]));
        Ok(Mark {
            stream: StreamId(u32_at(mark, 0)),
            at: Position {
                lsn: Lsn(u64_at(mark, 8)),
                record: u16::from_le_bytes([mark[4], mark[5]]),
            },
            frame: u32_at(mark, 16),
            offset: u32_at(mark, 20),
            piece: piece.ok_or(Unusable::Later(Later::StatePiece))?,
        })
    };
    section.chunks_exact(MARK_BYTES).map(read).collect()
}
