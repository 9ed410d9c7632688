//! Walking the frames of a segment from the front, with every check that the format offers.

use super::Segment;
use crate::env::again;
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, flags, sealed};
use crate::rules::CHECK_CHAIN;
use crate::types::Lsn;
use std::io;
use std::sync::Arc;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// One step of a scan.
#[derive(Debug)]
pub enum Scanned {
    /// A good frame: its header, where it starts, and its bytes in [`FrameScanner::frame`].
    Frame(FrameHeader, u64),
    /// No good frame at this offset.
    Fault(FrameFault, u64),
    /// The limit was reached exactly.
    End,
}

/// Where a scan of a segment goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanPoint {
    /// Offset of the next frame.
    pub at: u64,
    /// The position that it must have.
    pub next: Lsn,
    prev_crc: Option<u32>,
}

impl ScanPoint {
    /// True if this frame is the last one in front of it.
    #[must_use]
    pub fn is_behind(&self, header: &FrameHeader) -> bool {
        self.prev_crc == Some(header.header_crc) && header.lsn.next() == self.next
    }
}

/// Walks frames from the start of a segment up to a limit.
pub struct FrameScanner {
    segment: Arc<Segment>,
    buf: Vec<u8>,
    buf_at: u64,
    at: u64,
    limit: u64,
    /// Chain value that the next frame must carry; `None` where the scan begins between frames.
    prev_crc: Option<u32>,
    next_lsn: Lsn,
    frame: (usize, usize),
    /// The frame just scanned, if it was encrypted or packed.
    image: Option<Vec<u8>>,
    /// Frames are neither decrypted nor unpacked.
    as_stored: bool,
}

impl FrameScanner {
    /// Scans `segment` up to `limit` bytes of its file (its data's end, or its length).
    #[must_use]
    pub fn new(segment: Arc<Segment>, limit: u64) -> Self {
        Self {
            buf: Vec::new(),
            buf_at: 0,
            at: segment.first_offset(),
            limit,
            prev_crc: Some(segment.header.checksum()),
            next_lsn: segment.header.base,
            frame: (0, 0),
            image: None,
            as_stored: false,
            segment,
        }
    }

    /// Goes on where another scan of the same segment was.
    #[must_use]
    pub fn resume(segment: Arc<Segment>, from: ScanPoint, limit: u64) -> Self {
        let ScanPoint { at, next, prev_crc } = from;
        Self { at, next_lsn: next, prev_crc, ..Self::new(segment, limit) }
    }

    /// Where it is.
    #[must_use]
    pub const fn point(&self) -> ScanPoint {
        ScanPoint { at: self.at, next: self.next_lsn, prev_crc: self.prev_crc }
    }

    /// Scans a compacted segment from a frame that starts at `from`, as an index tells, up to
    /// `limit`.
    #[must_use]
    pub fn from_frame(segment: Arc<Segment>, from: u64, limit: u64) -> Self {
        Self { at: from, prev_crc: None, ..Self::new(segment, limit) }
    }

    /// Scans frames as they are stored, for whoever lacks their key and wants to know that they are whole.
    #[must_use]
    pub fn as_stored(segment: Arc<Segment>, limit: u64) -> Self {
        Self { as_stored: true, ..Self::new(segment, limit) }
    }

    /// Where the next frame starts.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The position that the next frame must have.
    #[must_use]
    pub const fn expected(&self) -> Lsn {
        self.next_lsn
    }

    /// The bytes of the frame just scanned, header included, without padding; what they are decrypted
    /// and unpacked.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.image.as_deref().unwrap_or(&self.buf[self.frame.0..self.frame.1])
    }

    /// The next frame. After a fault the scanner stays where it is.
    ///
    /// # Errors
    /// The disk's.
    pub fn step(&mut self) -> io::Result<Scanned> {
        if self.at >= self.limit {
            return Ok(Scanned::End);
        }
        let offset = self.at;
        self.fill(FRAME_HEADER_BYTES)?;
        let header = match FrameHeader::decode(self.window(), self.segment.header.salt) {
            Ok(header) => header,
            Err(fault) => return Ok(Scanned::Fault(fault, offset)),
        };
        self.fill(header.len as usize)?;
        if let Err(fault) = header.check_body(self.window()) {
            return Ok(Scanned::Fault(fault, offset));
        }
        if CHECK_CHAIN.holds() && !self.follows(&header) {
            return Ok(Scanned::Fault(FrameFault::Chain, offset));
        }
        self.image = None;
        if !self.as_stored {
            let frame = &self.window()[..header.len as usize];
            match sealed::image(&self.segment.keys, &header, frame) {
                Ok(image) => self.image = image,
                Err(fault) => return Ok(Scanned::Fault(fault, offset)),
            }
        }
        self.accept(&header);
        Ok(Scanned::Frame(header, offset))
    }

    fn follows(&self, header: &FrameHeader) -> bool {
        let compacted = header.flags & flags::COMPACTED != 0;
        self.prev_crc.is_none_or(|prev_crc| header.prev_crc == prev_crc)
            && self.segment.header.owns(header)
            && (compacted || header.lsn == self.next_lsn)
    }

    fn accept(&mut self, header: &FrameHeader) {
        let start = usize::try_from(self.at - self.buf_at).unwrap_or(0);
        self.frame = (start, start + header.len as usize);
        self.at += header.padded_len(self.segment.header.block_bytes as usize) as u64;
        self.prev_crc = Some(header.header_crc);
        self.next_lsn = header.lsn.next();
    }

    fn window(&self) -> &[u8] {
        let start = usize::try_from(self.at - self.buf_at).unwrap_or(0);
        self.buf.get(start..).unwrap_or(&[])
    }

    /// Makes sure that the window holds `len` bytes, unless the limit or the file ends before.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        if self.window().len() >= len {
            return Ok(());
        }
        let left = usize::try_from(self.limit - self.at).unwrap_or(usize::MAX);
        let want = len.max(CHUNK_BYTES).min(left);
        self.buf.resize(want, 0);
        let n = again(|| self.segment.file.read_at(&mut self.buf, self.at))?;
        self.buf.truncate(n);
        self.buf_at = self.at;
        Ok(())
    }
}

/// Classification of the bytes behind the point where the frames of a segment stop.
#[derive(Clone, Copy, Default, Debug)]
pub struct Beyond {
    /// Frame headers of this segment that are intact there.
    pub frames: u64,
    /// The newest durable position that one of them knew of.
    pub durable: Lsn,
    /// End of the last bytes that are not zero.
    pub end: u64,
}

/// Looks at every block behind `from` for frames of the same segment and other non-zero bytes.
///
/// # Errors
/// The disk's.
pub fn look_beyond(segment: &Segment, from: u64, limit: u64) -> io::Result<Beyond> {
    let block = segment.header.block_bytes as usize;
    let mut found = Beyond { end: from, ..Beyond::default() };
    let mut chunk = vec![0; CHUNK_BYTES.next_multiple_of(block)];
    let mut at = from;
    while at < limit {
        let n = again(|| segment.file.read_at(&mut chunk, at))?;
        if n == 0 {
            break;
        }
        for (i, bytes) in chunk[..n].chunks(block).enumerate() {
            let offset = at + (i * block) as u64;
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                found.end = offset + last as u64 + 1;
                note_header(segment, bytes, &mut found);
            }
        }
        at += n as u64;
    }
    Ok(found)
}

fn note_header(segment: &Segment, block: &[u8], found: &mut Beyond) {
    if let Ok(header) = FrameHeader::decode(block, segment.header.salt)
        && header.epoch == segment.header.epoch
    {
        found.frames += 1;
        found.durable = found.durable.max(header.durable_lsn);
    }
}
