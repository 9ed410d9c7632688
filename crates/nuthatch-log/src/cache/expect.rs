//! Whether a frame that was read is the one that belongs there. A disk that writes to the wrong place
//! leaves frames that are whole, with the right salt and sums, where others were: they must not pass
//! for those, or what is not in them would pass for never stored.

use crate::frame::codec::RecordPeek;
use crate::frame::{FrameFault, FrameHeader, flags, pack};
use crate::record::RecordKind;
use crate::segment::SegmentHeader;
use crate::types::{Lsn, Seq, StreamId};

/// What the frame behind a frame is chained to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The frame's position.
    pub lsn: Lsn,
    /// Its header's checksum.
    pub header_crc: u32,
}

impl Link {
    /// That of a frame.
    #[must_use]
    pub const fn of(header: &FrameHeader) -> Self {
        Self { lsn: header.lsn, header_crc: header.header_crc }
    }
}

/// What is known of a frame before it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// The index knows a message in it, and where it starts. A message is in one frame of a segment
    /// only.
    Message {
        /// Whose.
        stream: StreamId,
        /// Its sequence.
        seq: Seq,
        /// Where it starts in the frame.
        offset: u32,
    },
    /// It comes right behind this frame.
    Behind(Link),
    /// It is this frame, as was found when what lies before it could not be read.
    Is(Link),
}

impl Expect {
    /// Whether a frame whose checksums fit is the one. `image` is the frame, unpacked.
    #[must_use]
    pub fn is_met(&self, header: &FrameHeader, image: &[u8]) -> bool {
        let compacted = header.flags & flags::COMPACTED != 0;
        match *self {
            Self::Message { stream, seq, offset } => {
                let peek = image.get(offset as usize..).and_then(RecordPeek::at);
                peek.is_some_and(|peek| {
                    (peek.kind, peek.stream, peek.seq) == (RecordKind::Message as u8, stream, seq)
                })
            }
            Self::Behind(before) => {
                let next = compacted || header.lsn == before.lsn.next();
                header.prev_crc == before.header_crc && next
            }
            Self::Is(frame) => Link::of(header) == frame,
        }
    }

    /// The position that the frame must have, where that is known.
    #[must_use]
    pub const fn lsn(&self) -> Option<Lsn> {
        match self {
            Self::Message { .. } => None,
            Self::Behind(before) => Some(before.lsn.next()),
            Self::Is(frame) => Some(frame.lsn),
        }
    }
}

/// A header at the start of `bytes` that frames of this segment may have.
///
/// # Errors
/// Why it is none.
pub fn header_in(bytes: &[u8], segment: &SegmentHeader) -> Result<FrameHeader, FrameFault> {
    let header = FrameHeader::decode(bytes, segment.salt)?;
    let compacted = header.flags & flags::COMPACTED != 0;
    let fits = header.epoch == segment.epoch
        && compacted == segment.compacted
        && (segment.packed || !pack::is_packed(&header))
        && header.lsn >= segment.base;
    if fits { Ok(header) } else { Err(FrameFault::Chain) }
}
