//! Writing a segment anew from what can be read of it.
//!
//! A position that was lost gets an empty frame, because positions of a segment are dense. Frames
//! behind it are chained to it; their records stay what they were.

use super::examine::Examiner;
use super::salvage::{Piece, Salvage};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::{Disk, DiskFile};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, crc};
use crate::segment::writer::append_footer;
use crate::segment::{FooterBuilder, MAX_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::types::Lsn;
use std::io;
use std::sync::Arc;

/// Frames on their way to a file.
pub struct Frames {
    file: Arc<dyn DiskFile>,
    header: SegmentHeader,
    at: u64,
    prev_crc: u32,
    footer: FooterBuilder,
}

impl Frames {
    /// Begins a segment with its first block.
    pub fn begin(file: Arc<dyn DiskFile>, header: SegmentHeader) -> io::Result<Self> {
        let first = SEGMENT_HEADER_BYTES.next_multiple_of(header.block_bytes as usize);
        let mut block = vec![0; first];
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        file.write_at(&block, 0)?;
        let footer = FooterBuilder::new(header.id, header.base);
        Ok(Self { file, header, at: first as u64, prev_crc: header.checksum(), footer })
    }

    /// Adds a frame with these records. `like` tells everything but the chain.
    pub fn add(&mut self, like: &FrameHeader, body: &[u8]) -> io::Result<()> {
        let len = FRAME_HEADER_BYTES + body.len();
        let padded = len.next_multiple_of(self.header.block_bytes as usize);
        if self.at + padded as u64 > MAX_SEGMENT_BYTES {
            return Err(io::Error::other("a mended segment would be too long"));
        }
        let mut bytes = vec![0; padded];
        bytes[FRAME_HEADER_BYTES..len].copy_from_slice(body);
        let header = FrameHeader {
            len: len as u32,
            body_crc: crc(body),
            salt: self.header.salt,
            epoch: self.header.epoch,
            prev_crc: self.prev_crc,
            ..*like
        };
        if let Some(head) = bytes.first_chunk_mut() {
            self.prev_crc = header.encode(head);
        }
        self.file.write_at(&bytes, self.at)?;
        if !self.footer.add_frame(body, header.lsn, self.at as u32) {
            return Err(io::Error::other(format!("frame {} holds bytes that are no records", header.lsn)));
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
        let written = append_footer(&*self.file, self.at, &self.footer)?;
        let header = self.header;
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
        let mut frames = Frames::begin(self.disk.create(&entry.file_name())?, header)?;
        for piece in &found.pieces {
            match piece {
                Piece::Frame { offset, header } => {
                    let at = *offset as usize;
                    let body = &found.image[at + FRAME_HEADER_BYTES..at + header.len as usize];
                    frames.add(header, body)?;
                }
                Piece::Hole(hole) if !entry.compacted => frames.fill(hole.first, hole.last)?,
                Piece::Hole(_) => {}
            }
        }
        let new = frames.finish(entry.compacted.then_some(entry.end))?;
        self.replace_entry(entry.id, new);
        Ok(())
    }
}
