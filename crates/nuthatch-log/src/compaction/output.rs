//! A compacted segment on its way to its file.
//!
//! On a disk it is written under a temporary name and gets its own when it is whole. In a bucket a
//! file that has no name yet is only in memory, so there it has its name from the start and is
//! stored as it grows; what it lacks until the end is its first block, without which it is no
//! segment to anybody.

use super::plan::Planned;
use super::rewrite::RewriteJob;
use super::{CompactionFault, Pace};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::{AlignedBuf, DiskFile};
use crate::frame::pack::{PACK_HEAD_BYTES, Packer};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, RecordIter, crc, flags, sealed};
use crate::keys::{Keyring, SEAL_HEAD_BYTES};
use crate::segment::writer::append_footer;
use crate::segment::{
    Footer, FooterBuilder, MAX_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader,
};
use crate::stats::add;
use crate::store::TMP_DIR;
use crate::types::{Lsn, StreamId};
use std::io;
use std::sync::Arc;

/// A compacted segment.
pub struct Output {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Offset where its frames end.
    pub data_end: u64,
    /// Last position it stands for.
    pub end: Lsn,
    /// Its footer.
    pub footer: Footer,
}

/// One that is being written.
pub struct Writing<'a> {
    job: &'a RewriteJob,
    planned: &'a Planned,
    name: String,
    file: Arc<dyn DiskFile>,
    header: SegmentHeader,
    at: u64,
    stored: u64,
    prev_crc: u32,
    body: Vec<u8>,
    count: u16,
    /// True if the records in `body` are to be packed.
    packs: bool,
    packer: Option<Packer>,
    pace: Pace,
    footer: FooterBuilder,
}

/// A segment that is whole and durable, perhaps under a temporary name.
pub struct Finished {
    /// The name it has.
    pub name: String,
    /// Its measures.
    pub output: Output,
    /// Its entry in the catalog.
    pub entry: SegmentEntry,
}

impl<'a> Writing<'a> {
    /// Begins the segment. `names` learns the names of what is made, to be removed if it fails.
    pub fn begin(
        job: &'a RewriteJob,
        planned: &'a Planned,
        names: &mut Vec<String>,
    ) -> Result<Self, CompactionFault> {
        let header = job.header(planned);
        let name = if is_direct(job) {
            header.file_name()
        } else {
            format!("{TMP_DIR}/compact-{}", header.id.0)
        };
        let file = job.store.disk.create(&name)?;
        names.push(name.clone());
        let blocks = 2 * u64::from(header.block_bytes);
        let expected = planned.bytes + planned.bytes / 8 + blocks;
        if job.spends_reserve {
            job.store.allocate_for_compaction(&*file, expected)?;
        } else {
            file.allocate(0, expected)?;
        }
        let packer = if header.packed { Some(Packer::new()?) } else { None };
        let pace = job.pace();
        let mut writing = Self {
            job,
            planned,
            name,
            file,
            header,
            at: 0,
            stored: 0,
            prev_crc: header.checksum(),
            body: Vec::new(),
            count: 0,
            packs: false,
            packer,
            pace,
            footer: FooterBuilder::new(header.id, header.base).compacted(true),
        };
        writing.at = SEGMENT_HEADER_BYTES.next_multiple_of(header.block_bytes as usize) as u64;
        writing.stored = writing.at;
        if !is_direct(job) {
            writing.put_first_block()?;
        }
        Ok(writing)
    }

    /// Which planned segment this is.
    pub const fn planned(&self) -> &Planned {
        self.planned
    }

    fn put_first_block(&self) -> io::Result<()> {
        let first = SEGMENT_HEADER_BYTES.next_multiple_of(self.header.block_bytes as usize);
        let mut block = AlignedBuf::zeroed(first);
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(&self.header.encode());
        self.file.write_at(&block, 0)
    }

    /// Adds records of a stream.
    pub fn add(&mut self, stream: StreamId, records: &[u8]) -> io::Result<()> {
        let packs = self.packer.is_some() && self.job.packing.wants(stream);
        if packs != self.packs {
            self.flush()?;
            self.packs = packs;
        }
        for (at, record) in RecordIter::new(records) {
            let weight = record.weight();
            let full = self.body.len() + weight + FRAME_HEADER_BYTES > self.job.shape.frame_bytes;
            if (full && self.count > 0) || self.count == u16::MAX {
                self.flush()?;
            }
            self.body.extend_from_slice(&records[at..at + weight]);
            self.count += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let (mut buf, header) = self.frame()?;
        let padded = buf.len();
        if self.at + padded as u64 > MAX_SEGMENT_BYTES {
            return Err(io::Error::other("a compacted segment would be too long"));
        }
        let head = buf.first_chunk_mut().expect("a frame buffer holds a header");
        self.prev_crc = header.encode(head);
        let shared = buf.into_bytes(padded);
        self.file.write_shared(&shared, self.at)?;
        let listed = self.footer.add_frame(&self.body, self.planned.end, self.at as u32);
        listed.expect("it consists of records that were just read");
        self.at += padded as u64;
        add(&self.job.store.stats.compaction_written_bytes, padded as u64);
        self.store_what_waits()?;
        self.pace.step(padded as u64);
        self.body.clear();
        self.count = 0;
        Ok(())
    }

    /// The header of the next frame, but for its length and checksum.
    const fn frame_header(&self, packed: bool) -> FrameHeader {
        FrameHeader {
            len: 0,
            header_crc: 0,
            body_crc: 0,
            salt: self.header.salt,
            flags: flags::COMPACTED | if packed { flags::PACKED } else { 0 },
            count: self.count,
            lsn: self.planned.end,
            durable_lsn: self.planned.end,
            epoch: self.header.epoch,
            prev_crc: self.prev_crc,
            key_id: self.header.key_id,
        }
    }

    /// The padded frame with room for its header, and that header.
    fn frame(&mut self) -> io::Result<(AlignedBuf, FrameHeader)> {
        let (block, key_id) = (self.header.block_bytes as usize, self.header.key_id);
        let packed = match self.packer.as_mut().filter(|_| self.packs) {
            Some(packer) => packer.pack(&self.body)?,
            None => None,
        };
        let (stats, is_packed) = (&self.job.store.stats, packed.is_some());
        let body_len = packed.map_or(self.body.len(), |(_, rest)| PACK_HEAD_BYTES + rest.len());
        let len = FRAME_HEADER_BYTES + body_len + Keyring::overhead(key_id);
        let mut buf = AlignedBuf::with_capacity(len.next_multiple_of(block));
        let room = if key_id.is_some() { SEAL_HEAD_BYTES } else { 0 };
        buf.extend_zeros(FRAME_HEADER_BYTES + room);
        match packed {
            Some((head, rest)) => {
                buf.extend(&head);
                buf.extend(rest);
                add(&stats.packed_bytes, self.body.len() as u64);
                add(&stats.packed_into_bytes, body_len as u64);
            }
            None => buf.extend(&self.body),
        }
        let header = self.frame_header(is_packed);
        if key_id.is_some() {
            let records = FRAME_HEADER_BYTES + room;
            let (head, tag) = sealed::seal(&self.job.store.keys, &header, &mut buf[records..]);
            buf[FRAME_HEADER_BYTES..records].copy_from_slice(&head);
            buf.extend(&tag);
        }
        let body_crc = crc(&buf[FRAME_HEADER_BYTES..len]);
        buf.extend_zeros(len.next_multiple_of(block) - len);
        Ok((buf, FrameHeader { len: len as u32, body_crc, ..header }))
    }

    /// In a bucket, what is written is only in memory until it is synced.
    fn store_what_waits(&mut self) -> io::Result<()> {
        let most = self.job.shape.unstored_bytes;
        let most = most - (self.job.shape.frame_bytes as u64).min(most / 2);
        if is_direct(self.job) && self.at - self.stored >= most {
            self.file.sync()?;
            self.stored = self.at;
        }
        Ok(())
    }

    /// Ends the segment: everything of it is durable afterwards.
    pub fn finish(mut self) -> Result<Finished, CompactionFault> {
        self.flush()?;
        let Self { file, at: data_end, mut footer, header, planned, .. } = self;
        footer.set_end(planned.end);
        let keys = self.job.store.keys.clone();
        let segment = Arc::new(Segment { header, file: Arc::clone(&file), keys });
        let written = append_footer(&segment, data_end, &footer, false)?;
        if is_direct(self.job) {
            let first = SEGMENT_HEADER_BYTES.next_multiple_of(header.block_bytes as usize);
            let mut block = AlignedBuf::zeroed(first);
            block[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
            file.write_at(&block, 0)?;
            file.sync()?;
        }
        let entry = SegmentEntry {
            id: header.id,
            epoch: header.epoch,
            base: header.base,
            end: planned.end,
            data_end,
            footer_len: written.len,
            footer_crc: written.crc,
            salt: header.salt,
            state: SegmentState::Sealed,
            compacted: true,
            allocated: 0,
        };
        let footer = Footer::parse(footer.encode().0, header.id, &Keyring::default())
            .map_err(|_| io::Error::other("a footer that was just made is not valid"))?;
        let output = Output { segment, data_end, end: planned.end, footer };
        Ok(Finished { name: self.name, output, entry })
    }
}

/// True if the segment has its name from the start.
fn is_direct(job: &RewriteJob) -> bool {
    job.store.disk.medium().names_are_keys
}
