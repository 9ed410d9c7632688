//! Behind a frame that cannot be read: where the next good one starts, so that one damaged frame
//! takes nothing with it but what it held.

use super::expect::{Expect, Link, header_in};
use crate::frame::FrameHeader;
use crate::segment::Segment;
use bytes::Bytes;

/// A frame behind one that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// Offset where it starts.
    pub offset: u32,
    /// Its chain value.
    pub link: Link,
}

/// So far at most behind a bad frame the next one is looked for: a little more than the largest frame.
const SEARCHED_BYTES: u64 = 72 * 1024 * 1024;

/// Bytes read at a time.
const CHUNK_BYTES: u64 = 512 * 1024;

/// A search in one segment, up to where its committed frames end.
pub struct Search<'a> {
    segment: &'a Segment,
    end: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl<'a> Search<'a> {
    /// A search up to `end`.
    #[must_use]
    pub const fn new(segment: &'a Segment, end: u64) -> Self {
        Self { segment, end, chunk: Bytes::new(), chunk_at: 0 }
    }

    /// The first good frame behind the one at `bad`, of which `expect` is known. `None` if there is
    /// none, or too far away.
    pub fn behind(&mut self, bad: u32, expect: Expect) -> Option<Resume> {
        let block = u64::from(self.segment.header.block_bytes);
        let bad_header = self.header_at(u64::from(bad));
        let mut at = u64::from(bad) + block;
        let until = self.end.min(at + SEARCHED_BYTES);
        while at < until {
            if let Some(header) = self.header_at(at)
                && self.is_whole(at, &header)
                && self.belongs(at, &header, expect, bad_header.as_ref())
            {
                let offset = u32::try_from(at).ok()?;
                return Some(Resume { offset, link: Link::of(&header) });
            }
            at += block;
        }
        None
    }

    /// A header that frames of the segment may have.
    fn header_at(&mut self, at: u64) -> Option<FrameHeader> {
        let block = self.segment.header.block_bytes as usize;
        if at < self.chunk_at || at >= self.chunk_at + self.chunk.len() as u64 {
            self.chunk = self.read(at, CHUNK_BYTES.min(self.end.checked_sub(at)?));
            self.chunk_at = at;
        }
        let start = usize::try_from(at - self.chunk_at).ok()?;
        let bytes = self.chunk.get(start..)?;
        header_in(&bytes[..bytes.len().min(block)], &self.segment.header).ok()
    }

    /// The readable bytes there; where that is not all, a block of it at least, or zeros for it.
    fn read(&self, at: u64, len: u64) -> Bytes {
        let block = u64::from(self.segment.header.block_bytes);
        for len in [len, block] {
            let len = usize::try_from(len).unwrap_or(0);
            if let Ok(bytes) = self.segment.file.read_shared(at, len)
                && !bytes.is_empty()
            {
                return bytes;
            }
        }
        Bytes::from(vec![0; usize::try_from(block).unwrap_or(0)])
    }

    fn is_whole(&self, at: u64, header: &FrameHeader) -> bool {
        let frame = self.segment.file.read_shared(at, header.len as usize);
        frame.is_ok_and(|frame| header.check_body(&frame).is_ok())
    }

    /// True if a whole frame lies where it was written: it is chained to the bad one, or the next one
    /// that can be found lies behind it in the log as well, and what is known of the positions before it fits.
    fn belongs(
        &mut self,
        at: u64,
        header: &FrameHeader,
        expect: Expect,
        bad: Option<&FrameHeader>,
    ) -> bool {
        if bad.is_some_and(|bad| bad.header_crc == header.prev_crc) {
            return true;
        }
        if self.segment.header.compacted {
            // Their positions say nothing; but each of them has a place of its own in the index.
            return true;
        }
        if expect.lsn().is_some_and(|lsn| header.lsn <= lsn) {
            return false;
        }
        let block = self.segment.header.block_bytes as usize;
        let mut next = at + header.padded_len(block) as u64;
        let until = self.end.min(next + SEARCHED_BYTES);
        while next < until {
            if let Some(other) = self.header_at(next) {
                return other.lsn > header.lsn;
            }
            next += block as u64;
        }
        true
    }
}
