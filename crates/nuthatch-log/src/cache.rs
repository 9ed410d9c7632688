//! Frames in memory: the recent ones as they were written, and older ones read back from files.

pub mod block;
pub mod expect;
pub mod load;
pub mod resume;

pub use block::BlockCache;
pub use expect::{Expect, Link};
pub use load::{LoadFailure, LoadFault, LoadRequest, Loaded};
pub use resume::Resume;

use crate::frame::MessageRun;
use crate::types::Lsn;
use bytes::Bytes;
use std::collections::VecDeque;

/// Memory that a frame in the tail cache takes besides its bytes and runs.
const FRAME_OVERHEAD_BYTES: usize = 128;

/// A ring of the most recent committed frames under a byte budget.
pub struct TailCache {
    frames: VecDeque<TailFrame>,
    first: Lsn,
    bytes: usize,
    limit: usize,
}

/// A frame in the tail cache.
pub struct TailFrame {
    /// The frame, header included, without padding.
    pub bytes: Bytes,
    /// Memory that they keep.
    pub held_bytes: usize,
    /// Its messages.
    pub runs: Vec<MessageRun>,
}

impl TailFrame {
    fn cost(&self) -> usize {
        self.held_bytes + self.runs.len() * 2 * size_of::<MessageRun>() + FRAME_OVERHEAD_BYTES
    }
}

impl TailCache {
    /// An empty ring of `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { frames: VecDeque::new(), first: Lsn(1), bytes: 0, limit }
    }

    /// Adds the frame that was just committed. Positions are dense.
    pub fn push(&mut self, lsn: Lsn, frame: TailFrame) {
        if self.frames.is_empty() {
            self.first = lsn;
        }
        assert_eq!(lsn.0, self.first.0 + self.frames.len() as u64, "frames commit in order");
        self.bytes += frame.cost();
        self.frames.push_back(frame);
    }

    /// Takes the oldest frame out if the budget is exceeded. The newest one always stays.
    pub fn evict(&mut self) -> Option<TailFrame> {
        if self.bytes <= self.limit || self.frames.len() <= 1 {
            return None;
        }
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.cost();
        self.first = self.first.next();
        Some(frame)
    }

    /// A frame's bytes.
    #[must_use]
    pub fn get(&self, lsn: Lsn) -> Option<&Bytes> {
        let at = usize::try_from(lsn.0.checked_sub(self.first.0)?).ok()?;
        self.frames.get(at).map(|frame| &frame.bytes)
    }

    /// Bytes held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}
