//! Reading frames back from a segment: a stretch at a time, every checksum verified.

use crate::env::WriteMode;
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader};
use crate::segment::{Segment, SegmentId};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Bytes read ahead from where a frame was missed.
pub const READ_AHEAD_BYTES: u64 = 512 * 1024;

/// A stretch to read.
pub struct LoadRequest {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Where the first frame starts.
    pub offset: u32,
    /// Nothing at or behind this offset may be read: it is not committed.
    pub end: u64,
    /// How the disk works: memory is read frame by frame, without copying or checking.
    pub mode: WriteMode,
}

/// What came of it.
pub struct Loaded {
    /// The segment.
    pub segment: SegmentId,
    /// Where the first frame starts.
    pub offset: u32,
    /// Whole, checked frames.
    pub result: Result<Bytes, LoadFault>,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The disk failed.
    #[error("read error: {0}")]
    Io(#[from] io::Error),
    /// The first frame is damaged.
    #[error("frame is damaged: {0:?}")]
    Damaged(FrameFault),
}

impl LoadRequest {
    /// Reads the stretch.
    #[must_use]
    pub fn run(&self) -> Loaded {
        let result = if self.mode == WriteMode::Memory { self.one_frame() } else { self.stretch() };
        Loaded { segment: self.segment.id(), offset: self.offset, result }
    }

    fn one_frame(&self) -> Result<Bytes, LoadFault> {
        let head = self.segment.file.read_shared(u64::from(self.offset), FRAME_HEADER_BYTES)?;
        let header = self.header(&head)?;
        let frame = self.segment.file.read_shared(u64::from(self.offset), header.len as usize)?;
        if frame.len() < header.len as usize {
            return Err(LoadFault::Damaged(FrameFault::Short));
        }
        Ok(frame)
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, LoadFault> {
        FrameHeader::decode(bytes, self.segment.header.salt).map_err(LoadFault::Damaged)
    }

    fn stretch(&self) -> Result<Bytes, LoadFault> {
        let left = self.end.saturating_sub(u64::from(self.offset));
        let want = usize::try_from(left.min(READ_AHEAD_BYTES)).unwrap_or(0);
        let mut bytes = self.segment.file.read_shared(u64::from(self.offset), want)?;
        let first = self.header(&bytes)?.len as usize;
        if first > bytes.len() {
            bytes = self.segment.file.read_shared(u64::from(self.offset), first)?;
        }
        let good = self.checked_len(&bytes)?;
        Ok(bytes.slice(..good))
    }

    /// How many of the bytes are whole, undamaged frames (with padding); at least one frame.
    fn checked_len(&self, bytes: &[u8]) -> Result<usize, LoadFault> {
        let block = self.segment.header.block_bytes as usize;
        let mut at = 0;
        loop {
            let fault = match FrameHeader::decode(&bytes[at..], self.segment.header.salt) {
                Ok(header) => match header.check_body(&bytes[at..]) {
                    Ok(()) => {
                        at = (at + header.padded_len(block)).min(bytes.len());
                        if at == bytes.len() { return Ok(at) } else { continue }
                    }
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            return if at == 0 { Err(LoadFault::Damaged(fault)) } else { Ok(at) };
        }
    }
}
