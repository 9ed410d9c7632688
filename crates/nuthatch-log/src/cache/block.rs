//! Stretches of segments read back from files, checked once, under a byte budget.

use super::expect::Link;
use super::load::Stretch;
use crate::frame::{FRAME_HEADER_BYTES, codec::RecordPeek};
use crate::record::RecordKind;
use crate::segment::SegmentId;
use crate::types::{Lsn, Seq, StreamId};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// A position in a segment: where a frame starts and an offset inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FramePosition {
    /// Offset where the frame starts in the segment.
    pub frame: u32,
    /// Offset in the frame.
    pub record: u32,
}

/// Outcome of looking for a message from a position on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStep {
    /// It starts here.
    Found(FramePosition),
    /// A later message came first, or the segment ended: there is no such message.
    Passed,
    /// The frame at this offset is not in memory; the one before it, if the walk came from there.
    Absent(u32, Option<Link>),
}

/// Reading ahead looks for what is missing at most this many stretches further on: packed frames
/// are a stretch each.
const FOLLOWED_STRETCHES: usize = 8;

struct Extent {
    bytes: Bytes,
    /// Offset where the frame behind it starts.
    end: u32,
    /// One frame that was packed.
    unpacked: bool,
    /// Chain value that the frame behind it must carry.
    last: Link,
    used: bool,
    /// Something was found in it, so what follows it will probably be wanted.
    followed: bool,
}

/// Whole frames by segment and offset. Evicts what was not used for longest, roughly (second
/// chance, first in first out).
pub struct BlockCache {
    extents: BTreeMap<(SegmentId, u32), Extent>,
    order: VecDeque<(SegmentId, u32)>,
    bytes: usize,
    limit: usize,
}

impl BlockCache {
    /// An empty cache of `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { extents: BTreeMap::new(), order: VecDeque::new(), bytes: 0, limit }
    }

    /// Bytes held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds checked frames of a segment. The newest extent always stays.
    pub fn insert(&mut self, segment: SegmentId, stretch: Stretch) {
        let Stretch { offset, end, bytes, unpacked, last } = stretch;
        let key = (segment, offset);
        self.bytes += bytes.len();
        let extent = Extent { bytes, end, unpacked, last, used: true, followed: false };
        match self.extents.insert(key, extent) {
            Some(old) => self.bytes -= old.bytes.len(),
            None => self.order.push_back(key),
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.limit && self.order.len() > 1 {
            let Some(key) = self.order.pop_front() else { return };
            let Some(extent) = self.extents.get_mut(&key) else { continue };
            if std::mem::take(&mut extent.used) {
                self.order.push_back(key);
            } else {
                self.bytes -= extent.bytes.len();
                self.extents.remove(&key);
            }
        }
    }

    /// Forgets a segment that is going away.
    pub fn forget(&mut self, segment: SegmentId) {
        let keys: Vec<_> =
            self.extents.range((segment, 0)..=(segment, u32::MAX)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(extent) = self.extents.remove(&key) {
                self.bytes -= extent.bytes.len();
            }
        }
        self.order.retain(|(id, _)| *id != segment);
    }

    /// The extent that holds a frame, and where the frame starts in it.
    fn extent(&mut self, segment: SegmentId, frame: u32) -> Option<(&Extent, usize)> {
        let range = (segment, 0)..=(segment, frame);
        let (key, extent) = self.extents.range_mut(range).next_back()?;
        let start = (frame - key.1) as usize;
        let inside = !extent.unpacked || start == 0;
        if !inside || start + FRAME_HEADER_BYTES > extent.bytes.len() {
            return None;
        }
        extent.used = true;
        Some((extent, start))
    }

    /// The bytes from a record on, and the buffer that owns them.
    pub fn record(&mut self, segment: SegmentId, at: FramePosition) -> Option<(&[u8], &Bytes)> {
        let (extent, start) = self.extent(segment, at.frame)?;
        let record = extent.bytes.get(start + at.record as usize..)?;
        Some((record, &extent.bytes))
    }

    /// Offset and chain value of the first frame behind `frame` that is not in memory, the first
    /// time this is asked of the extent that holds `frame`.
    pub fn read_ahead(&mut self, segment: SegmentId, frame: u32) -> Option<(u32, Link)> {
        let range = (segment, 0)..=(segment, frame);
        let (_, extent) = self.extents.range_mut(range).next_back()?;
        if std::mem::replace(&mut extent.followed, true) {
            return None;
        }
        let (mut end, mut last) = (extent.end, extent.last);
        for _ in 0..FOLLOWED_STRETCHES {
            match self.extents.get(&(segment, end)) {
                Some(next) => (end, last) = (next.end, next.last),
                None => return Some((end, last)),
            }
        }
        None
    }

    /// Looks for a message in the frames from `at` up to `end` of the segment.
    pub fn find(
        &mut self,
        segment: SegmentId,
        block: u32,
        mut at: FramePosition,
        end: u64,
        wanted: (StreamId, Seq),
    ) -> ReadStep {
        let mut before = None;
        while u64::from(at.frame) < end {
            let Some((extent, start)) = self.extent(segment, at.frame) else {
                return ReadStep::Absent(at.frame, before);
            };
            let len = crate::bytes::u32_at(&extent.bytes, start);
            let Some(frame) = extent.bytes.get(start..start + len as usize) else {
                return ReadStep::Absent(at.frame, before);
            };
            let next =
                if extent.unpacked { extent.end } else { at.frame + len.next_multiple_of(block) };
            match find_in_frame(frame, at.record.max(FRAME_HEADER_BYTES as u32), wanted) {
                FrameWalk::Found(record) => {
                    return ReadStep::Found(FramePosition { frame: at.frame, record });
                }
                FrameWalk::Passed => return ReadStep::Passed,
                FrameWalk::End => {}
            }
            before = Some(link_of(frame));
            at = FramePosition { frame: next, record: 0 };
        }
        ReadStep::Passed
    }
}

/// Chain value that the frame behind this one must carry. Unpacked, a frame has the checksums that
/// it has in the file.
fn link_of(frame: &[u8]) -> Link {
    Link { lsn: Lsn(crate::bytes::u64_at(frame, 20)), header_crc: crate::bytes::u32_at(frame, 4) }
}

/// Outcome of looking through one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameWalk {
    /// The message starts at this offset.
    Found(u32),
    /// A later message of the stream came first.
    Passed,
    /// Neither it nor a later one is in the frame.
    End,
}

/// Looks for a message from offset `from` of a checked frame on.
#[must_use]
pub fn find_in_frame(frame: &[u8], from: u32, wanted: (StreamId, Seq)) -> FrameWalk {
    let mut at = from as usize;
    while let Some(peek) = frame.get(at..).and_then(RecordPeek::at) {
        if peek.stream == wanted.0 && peek.kind == RecordKind::Message as u8 {
            if peek.seq == wanted.1 {
                return FrameWalk::Found(at as u32);
            }
            if peek.seq > wanted.1 {
                return FrameWalk::Passed;
            }
        }
        at += peek.len;
    }
    FrameWalk::End
}

#[cfg(test)]
mod tests;
