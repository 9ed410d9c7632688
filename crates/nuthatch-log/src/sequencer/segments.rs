//! The chain of segments as the sequencer sees it, with how much of each is still needed.

use crate::options::LogOptions;
use crate::segment::{Segment, SegmentId, Written};
use crate::types::Lsn;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A segment with a file.
pub struct SegmentInfo {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Where its committed frames end.
    pub data_end: u64,
    /// Last position in it.
    pub end: Lsn,
    /// Weight of its messages that are live, as far as the machine has told.
    pub live: u64,
    /// Whether it may not change any more.
    pub sealed: bool,
}

/// All segments that have a file.
#[derive(Default)]
pub struct Segments {
    by_id: FxHashMap<SegmentId, SegmentInfo>,
    open: Option<SegmentId>,
    written: u64,
}

impl Segments {
    /// A segment.
    #[must_use]
    pub fn get(&self, id: SegmentId) -> Option<&SegmentInfo> {
        self.by_id.get(&id)
    }

    /// Adds a segment.
    pub fn insert(&mut self, info: SegmentInfo) {
        self.written += info.data_end;
        self.by_id.insert(info.segment.id(), info);
    }

    /// Forgets a segment whose file goes away.
    pub fn remove(&mut self, id: SegmentId) -> Option<SegmentInfo> {
        self.by_id.remove(&id)
    }

    /// All segments, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &SegmentInfo> {
        self.by_id.values()
    }

    /// Counts a committed frame.
    pub fn note_frame(&mut self, place: &Written, lsn: Lsn, message_bytes: u64) {
        let id = place.segment.id();
        if self.open != Some(id) {
            if let Some(before) = self.open.and_then(|before| self.by_id.get_mut(&before)) {
                before.sealed = true;
            }
            self.open = Some(id);
        }
        let info = self.by_id.entry(id).or_insert_with(|| SegmentInfo {
            segment: Arc::clone(&place.segment),
            data_end: 0,
            end: lsn,
            live: 0,
            sealed: false,
        });
        info.data_end = place.end;
        info.end = lsn;
        info.live += message_bytes;
        self.written += place.end - place.offset;
    }

    /// Counts a dead message; one that is not committed yet counts against the open segment.
    pub fn note_dead(&mut self, id: Option<SegmentId>, weight: u64) {
        if let Some(info) = id.or(self.open).and_then(|id| self.by_id.get_mut(&id)) {
            info.live = info.live.saturating_sub(weight);
        }
    }

    /// Counts a live message found by recovery.
    pub fn note_live(&mut self, id: SegmentId, weight: u64) {
        if let Some(info) = self.by_id.get_mut(&id) {
            info.live += weight;
        }
    }

    /// Size of the next segment: they grow with the log.
    #[must_use]
    pub fn next_size(&self, options: &LogOptions) -> u64 {
        let least = options.first_segment_bytes.min(options.segment_bytes);
        self.written.clamp(least, options.segment_bytes)
    }
}
