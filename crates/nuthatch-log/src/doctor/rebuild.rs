//! Writing a segment anew from what can be read of it.
//!
//! A position that was lost gets an empty frame, because positions of a segment are dense. Frames
//! behind it are chained to it; their records stay what they were.

use super::examine::Examiner;
use super::salvage::{Expected, Piece, Salvage, salvage};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::{Disk, read_exact_at};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, RecordIter, crc, sealed};
use crate::record::RecordKind;
use crate::segment::writer::append_footer;
use crate::segment::{
    FooterBuilder, MAX_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader,
};
use crate::types::{Lsn, StreamId};
use std::io;

/// Frames on their way to a file.
pub struct Frames {
    segment: Segment,
    at: u64,
    prev_crc: u32,
    footer: FooterBuilder,
}

impl Frames {
    /// Begins a segment with its first block.
    pub fn begin(segment: Segment) -> io::Result<Self> {
        let header = segment.header;
        let first = SEGMENT_HEADER_BYTES.next_multiple_of(header.block_bytes as usize);
        let mut block = vec![0; first];
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        segment.file.write_at(&block, 0)?;
        let footer = FooterBuilder::new(header.id, header.base).compacted(header.compacted);
        Ok(Self { segment, at: first as u64, prev_crc: header.checksum(), footer })
    }

    /// Adds a frame with these records, sealed as the segment is. `like` tells everything but the chain.
    pub fn add(&mut self, like: &FrameHeader, records: &[u8]) -> io::Result<()> {
        let like = FrameHeader { key_id: self.segment.header.key_id, ..*like };
        self.add_stored(&like, &sealed::body_of(&self.segment.keys, &like, records))
    }

    /// Adds a frame with this body, as it is stored. `like` tells everything but the chain.
    fn add_stored(&mut self, like: &FrameHeader, body: &[u8]) -> io::Result<()> {
        let len = FRAME_HEADER_BYTES + body.len();
        let segment = self.segment.header;
        let padded = len.next_multiple_of(segment.block_bytes as usize);
        if self.at + padded as u64 > MAX_SEGMENT_BYTES {
            return Err(io::Error::other("a mended segment would be too long"));
        }
        let mut bytes = vec![0; padded];
        bytes[FRAME_HEADER_BYTES..len].copy_from_slice(body);
        let header = FrameHeader {
            len: len as u32,
            body_crc: crc(body),
            salt: segment.salt,
            epoch: segment.epoch,
            prev_crc: self.prev_crc,
            ..*like
        };
        if let Some(head) = bytes.first_chunk_mut() {
            self.prev_crc = header.encode(head);
        }
        self.segment.file.write_at(&bytes, self.at)?;
        let records = sealed::records_of(&self.segment.keys, &header, &bytes);
        let mut listed = |body: &[u8]| self.footer.add_frame(body, header.lsn, self.at as u32);
        if !records.is_ok_and(|body| listed(&body).is_ok()) {
            return Err(io::Error::other(format!(
                "frame {} holds bytes that are no records",
                header.lsn
            )));
        }
        self.at += padded as u64;
        Ok(())
    }

    /// An empty frame for each lost position.
    fn fill(&mut self, first: Lsn, last: Lsn) -> io::Result<()> {
        for lsn in first.0..=last.0 {
            let durable_lsn = Lsn(lsn - 1);
            self.add(&FrameHeader { lsn: Lsn(lsn), durable_lsn, ..FrameHeader::default() }, b"")?;
        }
        Ok(())
    }

    /// Seals the segment; `end` where positions do not tell the end.
    pub fn finish(mut self, end: Option<Lsn>) -> io::Result<SegmentEntry> {
        if let Some(end) = end {
            self.footer.set_end(end);
        }
        let written = append_footer(&self.segment, self.at, &self.footer, false)?;
        let header = self.segment.header;
        Ok(SegmentEntry {
            id: header.id,
            epoch: header.epoch,
            base: header.base,
            end: self.footer.end(),
            data_end: self.at,
            footer_len: written.len,
            footer_crc: written.crc,
            salt: header.salt,
            state: SegmentState::Sealed,
            compacted: header.compacted,
            allocated: 0,
        })
    }
}

impl Examiner<'_> {
    /// Writes a segment anew and enters it into the catalog in place of the old one.
    pub(super) fn write_segment(
        &mut self,
        entry: &SegmentEntry,
        header: SegmentHeader,
        found: &Salvage,
    ) -> io::Result<()> {
        self.write_segment_without(entry, header, found, None)
    }

    /// As [`Examiner::write_segment`], without the parts of a stream's state in one frame.
    fn write_segment_without(
        &mut self,
        entry: &SegmentEntry,
        header: SegmentHeader,
        found: &Salvage,
        void: Option<(StreamId, Lsn)>,
    ) -> io::Result<()> {
        let (file, keys) = (self.disk.create(&entry.file_name())?, self.keys.clone());
        let mut frames = Frames::begin(Segment { header, file, keys })?;
        for piece in &found.pieces {
            match piece {
                Piece::Frame { offset, header } => {
                    let at = *offset as usize;
                    let frame = &found.image[at..at + header.len as usize];
                    match void.filter(|(_, lsn)| *lsn == header.lsn) {
                        Some((stream, _)) => {
                            let records = sealed::records_of(&self.keys, header, frame);
                            let (records, count) =
                                without_parts(&records.unwrap_or_default(), stream);
                            frames.add(&FrameHeader { count, ..*header }, &records)?;
                        }
                        None => frames.add_stored(header, &frame[FRAME_HEADER_BYTES..])?,
                    }
                }
                Piece::Hole(hole) if !entry.compacted => frames.fill(hole.first, hole.last)?,
                Piece::Hole(_) => {}
            }
        }
        let new = frames.finish(entry.compacted.then_some(entry.end))?;
        self.replace_entry(entry.id, new);
        Ok(())
    }

    /// A state of which a part was lost stands for nothing: its last part goes, so that the state
    /// before it counts.
    pub(super) fn drop_void_states(&mut self) -> io::Result<()> {
        for (stream, lsn) in std::mem::take(&mut self.inventory.void_states) {
            self.seal_open()?;
            let holds = |entry: &&SegmentEntry| {
                entry.state == SegmentState::Sealed && (entry.base..=entry.end).contains(&lsn)
            };
            let Some(entry) = self.catalog.segments.iter().find(holds).copied() else { continue };
            let file = self.disk.open(&entry.file_name())?;
            let image = read_exact_at(&*file, 0, entry.data_end as usize)?;
            let Ok(header) = SegmentHeader::decode(&image) else { continue };
            let (limit, end) = (entry.data_end, Some(entry.end));
            let known = Expected { limit, end, likely: false, keys: &self.keys };
            let found = salvage(image, header, known);
            self.write_segment_without(&entry, header, &found, Some((stream, lsn)))?;
        }
        Ok(())
    }
}

/// A frame's records without the parts of a stream's state, and how many are left.
fn without_parts(body: &[u8], stream: StreamId) -> (Vec<u8>, u16) {
    let (mut left, mut count) = (Vec::with_capacity(body.len()), 0);
    for (at, record) in RecordIter::new(body) {
        if record.kind != RecordKind::StatePart || record.stream != stream {
            left.extend_from_slice(&body[at..at + record.weight()]);
            count += 1;
        }
    }
    (left, count)
}
