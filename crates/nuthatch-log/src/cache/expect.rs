//! Checks that a frame read back is the one that belongs at its position. A disk that misplaces
//! writes leaves whole frames, with the right salt and checksums, where others were. Accepted as
//! those, they would make the messages of the overwritten ones look as if they had never been
//! stored.

use crate::frame::codec::RecordPeek;
use crate::frame::{FrameFault, FrameHeader, flags};
use crate::record::RecordKind;
use crate::segment::SegmentHeader;
use crate::types::{Lsn, Seq, StreamId};

/// Chain value that the next frame must carry.
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

/// What a frame must match, as known before it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// The index knows a message in it, and where it starts. A message is in one frame of a segment
    /// only.
    Message {
        /// Whose.
        stream: StreamId,
        /// Its sequence.
        seq: Seq,
        /// Offset where it starts in the frame.
        offset: u32,
    },
    /// It comes right behind this frame.
    Behind(Link),
    /// It is this frame, as was found when what lies before it could not be read.
    Is(Link),
}

impl Expect {
    /// True if a frame whose checksums fit is the one. `image` is the frame, unpacked.
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
    if segment.owns(&header) && header.lsn >= segment.base {
        Ok(header)
    } else {
        Err(FrameFault::Chain)
    }
}
