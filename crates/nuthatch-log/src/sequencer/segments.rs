//! The chain of segments as the sequencer sees it, with how much of each is still needed.

use crate::compaction::Victim;
use crate::frame::FRAME_HEADER_BYTES;
use crate::options::LogOptions;
use crate::segment::{Segment, SegmentId, Written};
use crate::types::Lsn;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One compaction reads at most this many full segments' worth, and keeps at most half of one: both
/// bound what it holds in memory.
const MAX_VICTIM_SEGMENTS: u64 = 4;

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
    /// Damaged: compaction leaves it alone.
    pub spared: bool,
}

impl SegmentInfo {
    /// Bytes that its live messages would take in a segment of their own.
    fn rewritten_bytes(&self, options: &LogOptions) -> u64 {
        let frames = self.live.div_ceil(options.frame_bytes as u64);
        let live = self.live + frames * FRAME_HEADER_BYTES as u64;
        live.next_multiple_of(u64::from(options.block_bytes))
    }

    /// Whether enough of it is dead to rewrite it: what is live, in whole blocks, takes so much
    /// less. (Compared without the blocks, a small remainder would be rewritten for ever.)
    fn is_victim(&self, options: &LogOptions) -> bool {
        let percent = u64::from(options.compact_below_percent);
        let used = self.data_end.saturating_sub(self.segment.first_offset());
        let pays = self.rewritten_bytes(options).saturating_mul(100) < used.saturating_mul(percent);
        self.sealed && !self.spared && (self.live == 0 || pays)
    }

    /// Whether compaction can read it now. What is all dead goes unread; a file that is elsewhere is
    /// not fetched to be rewritten where space is short, nor while it cannot be had.
    fn can_be_rewritten(&self, space_is_short: bool) -> bool {
        let file = &self.segment.file;
        self.live == 0 || !file.is_remote() || !space_is_short && file.is_at_hand()
    }
}

/// Neighbouring segments to be compacted together.
#[derive(Default)]
struct Group<'a> {
    infos: Vec<&'a SegmentInfo>,
    live: u64,
    bytes: u64,
    gain: u64,
}

impl<'a> Group<'a> {
    fn takes(&self, info: &SegmentInfo, options: &LogOptions) -> bool {
        let live_fits = self.live + info.live <= options.segment_bytes / 2;
        let bytes_fit = self.bytes + info.data_end <= options.segment_bytes * MAX_VICTIM_SEGMENTS;
        info.is_victim(options) && (self.infos.is_empty() || live_fits && bytes_fit)
    }

    fn add(&mut self, info: &'a SegmentInfo, options: &LogOptions) {
        self.live += info.live;
        self.bytes += info.data_end;
        self.gain += info.data_end.saturating_sub(info.rewritten_bytes(options));
        self.infos.push(info);
    }
}

/// All segments that have a file.
#[derive(Default)]
pub struct Segments {
    by_id: FxHashMap<SegmentId, SegmentInfo>,
    open: Option<SegmentId>,
    written: u64,
    /// A message died, or a segment was sealed, since segments were last looked over.
    pub died: bool,
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

    /// Adds a segment that holds what others held before.
    pub fn insert_quietly(&mut self, info: SegmentInfo) {
        self.by_id.insert(info.segment.id(), info);
    }

    /// The same, to be looked over for dead space from before the start.
    #[must_use]
    pub fn with_anything_dead(mut self) -> Self {
        self.died = true;
        self
    }

    /// Keeps compaction away from a segment.
    pub fn spare(&mut self, id: SegmentId) {
        if let Some(info) = self.by_id.get_mut(&id) {
            info.spared = true;
        }
    }

    /// Bytes of frames written or found, ever.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// The segments to compact next: the first neighbours with too much dead space that together
    /// give back at least `least` bytes, within the bounds of one compaction.
    #[must_use]
    pub fn victims(&self, options: &LogOptions, least: u64, space_is_short: bool) -> Vec<Victim> {
        let mut chain: Vec<&SegmentInfo> = self.by_id.values().collect();
        chain.sort_unstable_by_key(|info| (info.segment.header.base, info.end));
        let mut group = Group::default();
        for info in chain {
            let takes = |group: &Group<'_>| {
                group.takes(info, options) && info.can_be_rewritten(space_is_short)
            };
            if !takes(&group) {
                if group.gain >= least {
                    break;
                }
                group = Group::default();
            }
            if takes(&group) {
                group.add(info, options);
            }
        }
        if group.gain < least {
            return Vec::new();
        }
        let victim = |info: &&SegmentInfo| Victim {
            segment: Arc::clone(&info.segment),
            data_end: info.data_end,
            end: info.end,
        };
        group.infos.iter().map(victim).collect()
    }

    /// How many there are, their frames' bytes and their live bytes.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let infos = self.by_id.values();
        infos.fold((0, 0, 0), |(n, bytes, live), info| {
            (n + 1, bytes + info.data_end, live + info.live)
        })
    }

    /// Forgets a segment whose file goes away.
    pub fn remove(&mut self, id: SegmentId) -> Option<SegmentInfo> {
        self.by_id.remove(&id)
    }

    /// Counts a committed frame.
    pub fn note_frame(&mut self, place: &Written, lsn: Lsn, message_bytes: u64) {
        let id = place.segment.id();
        if self.open != Some(id) {
            if let Some(before) = self.open.and_then(|before| self.by_id.get_mut(&before)) {
                before.sealed = true;
                self.died = true;
            }
            self.open = Some(id);
        }
        let info = self.by_id.entry(id).or_insert_with(|| SegmentInfo {
            segment: Arc::clone(&place.segment),
            data_end: 0,
            end: lsn,
            live: 0,
            sealed: false,
            spared: false,
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
            self.died = true;
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
