//! The footer of a sealed segment: which messages it holds, so that a restart and a compaction need
//! not read the messages themselves.
//!
//! Per stream there is one row per message (sequence, time, weight, subject, whether it has
//! headers), coded against the row before, usually in one or two bytes; and places, from which
//! messages are found. Positions of `StreamState` and `LogState` records are listed as marks.

use super::SegmentId;
use crate::bytes::{put_varint, unzigzag, zigzag};
use crate::frame::{RecordIter, crc};
use crate::index::{IndexPosition, PLACE_EVERY_BYTES};
use crate::keys::{KeyId, Keyring};
use crate::later::Unusable;
use crate::machine::IndexedMessage;
use crate::record::{RecordKind, RecordRef};
use crate::state_part::StatePiece;
use crate::stream_map::StreamMap;
use crate::types::{Lsn, Seq, StreamId, Timestamp};
use rustc_hash::FxHasher;
use std::hash::Hasher;

mod parse;

pub use parse::{Footer, FooterStream, RowCursor};

/// First bytes of a footer, and last bytes of a segment that has one.
pub const FOOTER_MAGIC: [u8; 8] = *b"NUTHFOOT";

/// Version of the footer format.
pub const FOOTER_VERSION: u32 = 1;

/// Version of a footer that holds another one, sealed.
pub const SEALED_FOOTER_VERSION: u32 = 2;

/// Bytes of a footer's header.
pub const FOOTER_HEADER_BYTES: usize = 64;

/// Bytes of the trailer, by which a footer is found from the end of a file.
pub const FOOTER_TRAILER_BYTES: usize = 16;

/// Bytes of the fixed part of a stream in a footer.
const STREAM_BYTES: usize = 56;

/// Bytes of a place.
const PLACE_BYTES: usize = 24;

/// Bytes of a mark.
const MARK_BYTES: usize = 24;

/// Flags of a row. The numbers are part of the format.
mod row {
    /// The sequence is not the next one: its distance, less one, follows.
    pub const GAP: u8 = 1;
    /// The time differs: its zigzag distance follows.
    pub const TIME: u8 = 2;
    /// The weight differs: it follows.
    pub const WEIGHT: u8 = 4;
    /// The subject differs: its number follows.
    pub const SUBJECT: u8 = 8;
    /// The message has headers.
    pub const HEADERS: u8 = 16;
}

/// A record's position in the log: its frame and its number in the frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// The frame.
    pub lsn: Lsn,
    /// The record's number in it, from 0.
    pub record: u16,
}

impl Position {
    /// After every record of a frame.
    #[must_use]
    pub const fn end_of(lsn: Lsn) -> Self {
        Self { lsn, record: u16::MAX }
    }
}

/// Position of a `StreamState` or `LogState` record, or of a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Whose state; [`StreamId::LOG`] for the log's.
    pub stream: StreamId,
    /// Position in the log.
    pub at: Position,
    /// Offset where its frame starts in the segment.
    pub frame: u32,
    /// Offset where it starts in its frame.
    pub offset: u32,
    /// How much of a state it is.
    pub piece: StatePiece,
}

/// Number of slots in the table that recognises subjects seen before: at first, and at most (24 MiB).
/// A subject that finds no slot only costs a second entry in the dictionary.
const SUBJECT_SLOTS_MIN: usize = 1 << 12;
const SUBJECT_SLOTS_MAX: usize = 1 << 21;

/// Slots that are looked at for a subject.
const SUBJECT_PROBES: usize = 8;

/// Number of a subject in the dictionary, and where its text is. Such a number is never given out.
type SubjectSlot = (u32, u32, u32);
const FREE_SLOT: SubjectSlot = (u32::MAX, 0, 0);

/// Collects what a footer says while a segment is written or scanned.
pub struct FooterBuilder {
    segment: SegmentId,
    streams: StreamMap<Column>,
    subjects: Subjects,
    marks: Vec<Mark>,
    base: Lsn,
    end: Lsn,
    /// Messages get a new place at this distance, and where this is 0 in every frame.
    place_every_bytes: u32,
}

#[derive(Default)]
struct Column {
    rows: Vec<u8>,
    messages: u32,
    weight: u64,
    last_at: Position,
    places: Vec<IndexPosition>,
    last: RowState,
}

/// State that the next row is coded against.
#[derive(Clone, Copy, Default, Debug)]
struct RowState {
    seq: u64,
    time: i64,
    weight: u64,
    subject: u64,
}

struct Subjects {
    bytes: Vec<u8>,
    count: u64,
    /// A power of two.
    slots: Box<[SubjectSlot]>,
}

impl Subjects {
    fn new() -> Self {
        let slots = vec![FREE_SLOT; SUBJECT_SLOTS_MIN].into_boxed_slice();
        Self { bytes: Vec::new(), count: 0, slots }
    }

    /// The number of a subject in the dictionary.
    fn number(&mut self, subject: &[u8]) -> u64 {
        let at = self.slot_of(subject);
        let (number, start, end) = self.slots[at];
        if number != FREE_SLOT.0 && &self.bytes[start as usize..end as usize] == subject {
            return u64::from(number);
        }
        put_varint(&mut self.bytes, subject.len() as u64);
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(subject);
        self.slots[at] = (self.count as u32, start, self.bytes.len() as u32);
        self.count += 1;
        if self.count as usize > self.slots.len() / 2 && self.slots.len() < SUBJECT_SLOTS_MAX {
            self.grow();
        }
        self.count - 1
    }

    /// The slot that has a subject; else the one that it takes, from another if need be.
    fn slot_of(&self, subject: &[u8]) -> usize {
        let mut hasher = FxHasher::default();
        hasher.write(subject);
        let (home, mask) = ((hasher.finish() >> 20) as usize, self.slots.len() - 1);
        let mut probes = (home..home + SUBJECT_PROBES).map(|at| at & mask);
        let fits = |at: &usize| {
            let (number, start, end) = self.slots[*at];
            number == FREE_SLOT.0 || &self.bytes[start as usize..end as usize] == subject
        };
        probes.find(fits).unwrap_or(home & mask)
    }

    fn grow(&mut self) {
        let larger = vec![FREE_SLOT; self.slots.len() * 2].into_boxed_slice();
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.0 != FREE_SLOT.0 {
                let at = self.slot_of(&self.bytes[slot.1 as usize..slot.2 as usize]);
                self.slots[at] = slot;
            }
        }
    }
}

impl FooterBuilder {
    /// An empty footer for a segment that starts with `base`.
    #[must_use]
    pub fn new(segment: SegmentId, base: Lsn) -> Self {
        let (streams, subjects) = (StreamMap::default(), Subjects::new());
        let (marks, end) = (Vec::new(), Lsn(base.0 - 1));
        let place_every_bytes = PLACE_EVERY_BYTES;
        Self { segment, streams, subjects, marks, base, end, place_every_bytes }
    }

    /// For a compacted segment: every frame has a position of each stream in it, so that a reader
    /// looking for a message unpacks the one frame that holds it.
    #[must_use]
    pub const fn compacted(mut self, yes: bool) -> Self {
        if yes {
            self.place_every_bytes = 0;
        }
        self
    }

    /// Takes in all records of a frame that starts at `offset` of the segment.
    ///
    /// # Errors
    /// Some bytes are no records, or of a later version.
    pub fn add_frame(&mut self, body: &[u8], lsn: Lsn, offset: u32) -> Result<(), Unusable> {
        let mut records = RecordIter::new(body);
        for (number, (at, record)) in records.by_ref().enumerate() {
            let position = Position { lsn, record: number as u16 };
            let at = (at + crate::frame::FRAME_HEADER_BYTES) as u32;
            self.add(&record, position, offset, at);
        }
        self.end = lsn;
        records.fault.map_or(Ok(()), Err)
    }

    /// Takes in one record.
    pub fn add(&mut self, record: &RecordRef<'_>, at: Position, frame: u32, offset: u32) {
        let column = self.streams.get_or_default(record.stream);
        if let Some(piece) = StatePiece::of(record) {
            self.marks.push(Mark { stream: record.stream, at, frame, offset, piece });
            return;
        }
        match record.kind {
            RecordKind::Message => {
                column.last_at = at;
                let subject = self.subjects.number(record.subject);
                let every = self.place_every_bytes;
                let starts = column.starts_place(frame, offset, every);
                column.add_message(record, subject);
                match column.places.last_mut().filter(|_| !starts) {
                    Some(place) => place.last = record.seq,
                    None => {
                        let (first, last, segment) = (record.seq, record.seq, self.segment);
                        column.places.push(IndexPosition {
                            first,
                            last,
                            segment,
                            frame,
                            record: offset,
                        });
                    }
                }
            }
            _ => column.last_at = at,
        }
    }

    /// The place whose stretch may hold a message of what was taken in so far.
    #[must_use]
    pub fn place(&self, stream: StreamId, seq: Seq) -> Option<&IndexPosition> {
        let places = &self.streams.get(&stream)?.places;
        let after = places.partition_point(|place| place.first <= seq);
        places.get(after.checked_sub(1)?).filter(|place| seq <= place.last)
    }

    /// The last position taken in.
    #[must_use]
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// Says up to where the segment counts, where that is not the last frame's position.
    pub const fn set_end(&mut self, end: Lsn) {
        self.end = end;
    }

    /// The footer's bytes and its checksum.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = vec![0; FOOTER_HEADER_BYTES];
        out.extend_from_slice(&self.subjects.bytes);
        let streams_at = out.len() as u32;
        for (stream, column) in self.streams.iter() {
            column.encode(stream, &mut out);
        }
        let marks_at = out.len() as u32;
        for mark in &self.marks {
            mark.encode(&mut out);
        }
        self.encode_header(&mut out, streams_at, marks_at);
        let sum = finish(&mut out);
        (out, sum)
    }

    /// As [`FooterBuilder::encode`], sealed under a key if there is one: a whole footer inside another one
    /// that tells whose it is, which positions it is about, and the key.
    #[must_use]
    pub fn encode_for(&self, keys: &Keyring, key_id: KeyId) -> (Vec<u8>, u32) {
        let (plain, sum) = self.encode();
        if !key_id.is_some() {
            return (plain, sum);
        }
        let mut out = vec![0; FOOTER_HEADER_BYTES];
        out[0..8].copy_from_slice(&FOOTER_MAGIC);
        out[8..12].copy_from_slice(&SEALED_FOOTER_VERSION.to_le_bytes());
        out[16..20].copy_from_slice(&self.segment.0.to_le_bytes());
        out[20..24].copy_from_slice(&key_id.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.base.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.end.0.to_le_bytes());
        out.extend_from_slice(&plain);
        keys.seal_vec(key_id, &seal_context(self.segment), &mut out, FOOTER_HEADER_BYTES);
        let sum = finish(&mut out);
        (out, sum)
    }

    fn encode_header(&self, out: &mut [u8], streams_at: u32, marks_at: u32) {
        out[0..8].copy_from_slice(&FOOTER_MAGIC);
        out[8..12].copy_from_slice(&FOOTER_VERSION.to_le_bytes());
        out[16..20].copy_from_slice(&self.segment.0.to_le_bytes());
        out[20..24].copy_from_slice(&(self.subjects.count as u32).to_le_bytes());
        out[24..28].copy_from_slice(&(self.streams.len() as u32).to_le_bytes());
        out[28..32].copy_from_slice(&(self.marks.len() as u32).to_le_bytes());
        out[32..36].copy_from_slice(&streams_at.to_le_bytes());
        out[36..40].copy_from_slice(&marks_at.to_le_bytes());
        out[40..48].copy_from_slice(&self.base.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.end.0.to_le_bytes());
    }
}

/// What the seal of a footer binds.
fn seal_context(segment: SegmentId) -> [u8; 5] {
    let [a, b, c, d] = segment.0.to_le_bytes();
    [b'T', a, b, c, d]
}

/// Notes the length and appends the trailer; returns the checksum in it.
fn finish(out: &mut Vec<u8>) -> u32 {
    let total = out.len() + FOOTER_TRAILER_BYTES;
    out[12..16].copy_from_slice(&(total as u32).to_le_bytes());
    let sum = crc(out);
    out.extend_from_slice(&(total as u32).to_le_bytes());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&FOOTER_MAGIC);
    sum
}

impl Column {
    /// True if a message here begins a new place.
    fn starts_place(&self, frame: u32, offset: u32, every_bytes: u32) -> bool {
        let Some(place) = self.places.last() else { return true };
        match every_bytes {
            0 => place.frame != frame,
            _ => frame + offset >= place.frame + place.record + every_bytes,
        }
    }

    fn add_message(&mut self, record: &RecordRef<'_>, subject: u64) {
        let weight = record.weight() as u64;
        self.put_row(record, subject, weight);
        self.messages += 1;
        self.weight += weight;
    }

    fn put_row(&mut self, record: &RecordRef<'_>, subject: u64, weight: u64) {
        let last = self.last;
        let now = RowState { seq: record.seq.0, time: record.timestamp.0, weight, subject };
        let at = self.rows.len();
        let mut flags = if record.headers.is_empty() { 0 } else { row::HEADERS };
        self.rows.push(0);
        if now.seq != last.seq.wrapping_add(1) {
            flags |= row::GAP;
            put_varint(&mut self.rows, now.seq.wrapping_sub(last.seq).wrapping_sub(1));
        }
        if now.time != last.time {
            flags |= row::TIME;
            put_varint(&mut self.rows, zigzag(now.time.wrapping_sub(last.time)));
        }
        if now.weight != last.weight {
            flags |= row::WEIGHT;
            put_varint(&mut self.rows, now.weight);
        }
        if now.subject != last.subject {
            flags |= row::SUBJECT;
            put_varint(&mut self.rows, now.subject);
        }
        self.rows[at] = flags;
        self.last = now;
    }

    fn encode(&self, stream: StreamId, out: &mut Vec<u8>) {
        let first = self.places.first().map_or(0, |place| place.first.0);
        out.extend_from_slice(&stream.0.to_le_bytes());
        out.extend_from_slice(&self.messages.to_le_bytes());
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.places.len() as u32).to_le_bytes());
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&self.last.seq.to_le_bytes());
        out.extend_from_slice(&self.weight.to_le_bytes());
        out.extend_from_slice(&self.last_at.lsn.0.to_le_bytes());
        out.extend_from_slice(&u32::from(self.last_at.record).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for place in &self.places {
            out.extend_from_slice(&place.first.0.to_le_bytes());
            out.extend_from_slice(&place.last.0.to_le_bytes());
            out.extend_from_slice(&place.frame.to_le_bytes());
            out.extend_from_slice(&place.record.to_le_bytes());
        }
        out.extend_from_slice(&self.rows);
    }
}

impl Mark {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.0.to_le_bytes());
        out.extend_from_slice(&self.at.record.to_le_bytes());
        out.extend_from_slice(&(self.piece as u16).to_le_bytes());
        out.extend_from_slice(&self.at.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.frame.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
    }
}

/// One decoded row.
fn message<'a>(
    stream: StreamId,
    state: &RowState,
    subject: &'a [u8],
    has_headers: bool,
) -> IndexedMessage<'a> {
    IndexedMessage {
        stream,
        seq: Seq(state.seq),
        timestamp: Timestamp(state.time),
        subject,
        weight: state.weight as u32,
        has_headers,
    }
}

/// Applies a row to the state before it; `None` if the bytes end.
fn next_row(rows: &mut crate::bytes::ByteReader<'_>, state: &mut RowState) -> Option<bool> {
    let flags = rows.u8()?;
    let gap = if flags & row::GAP == 0 { 0 } else { rows.varint()? };
    state.seq = state.seq.wrapping_add(gap).wrapping_add(1);
    if flags & row::TIME != 0 {
        state.time = state.time.wrapping_add(unzigzag(rows.varint()?));
    }
    if flags & row::WEIGHT != 0 {
        state.weight = rows.varint()?;
    }
    if flags & row::SUBJECT != 0 {
        state.subject = rows.varint()?;
    }
    Some(flags & row::HEADERS != 0)
}

#[cfg(test)]
mod tests;
