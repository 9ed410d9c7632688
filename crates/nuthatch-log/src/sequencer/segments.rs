//! The chain of segments as the sequencer sees it, with how much of each is still needed.

use crate::compaction::CompactionInput;
use crate::env::Reach;
use crate::frame::FRAME_HEADER_BYTES;
use crate::keys::Keyring;
use crate::options::LogOptions;
use crate::segment::{Footer, Segment, SegmentId, Written};
use crate::types::{Lsn, StreamId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// One compaction reads at most this many full segments' worth, and keeps at most half of one: both
/// bound what it holds in memory.
const MAX_VICTIM_SEGMENTS: u64 = 4;

/// Cold segments of so many frames together are worth merging.
const MERGED_FRAMES: u64 = 16;

/// Cold segments are worth rewriting from this part of a full segment on, however few frames.
const COLD_SHARE: u64 = 4;

/// So many neighbouring segments that compactions made, all of them small, are merged.
const MERGED_SEGMENTS: usize = 8;

/// Small is what takes at most this part of a full segment.
const SMALL_SHARE: u64 = 4;

/// A segment with a file.
pub struct SegmentInfo {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Offset where its committed frames end.
    pub data_end: u64,
    /// Last position in it.
    pub end: Lsn,
    /// Weight of its messages that are live, as far as the machine has told.
    pub live: u64,
    /// True if it may not change any more.
    pub sealed: bool,
    /// Damaged: compaction leaves it alone.
    pub spared: bool,
    /// Of a compacted segment: bytes of its messages' records when it was written, unpacked. 0 of
    /// others.
    pub raw_bytes: u64,
    /// Of a compacted segment: the only stream that has messages in it, if there is one only.
    pub only: Option<StreamId>,
    /// When it was sealed.
    pub sealed_at: Timestamp,
    /// It was looked over when it had grown cold, and is good as it is.
    pub settled: bool,
}

impl SegmentInfo {
    /// A segment of which nothing is known to live, open.
    #[must_use]
    pub const fn new(segment: Arc<Segment>, data_end: u64, end: Lsn) -> Self {
        Self {
            segment,
            data_end,
            end,
            live: 0,
            sealed: false,
            spared: false,
            raw_bytes: 0,
            only: None,
            sealed_at: Timestamp::NONE,
            settled: false,
        }
    }

    /// The same of a segment that a compaction made, by its footer.
    #[must_use]
    pub fn compacted(self, footer: &Footer) -> Self {
        let mut streams = footer.streams().iter().filter(|stream| stream.messages > 0);
        let first = streams.next().map(|stream| stream.stream);
        let only = first.filter(|_| streams.next().is_none());
        Self { raw_bytes: footer.weight(), only, ..self }
    }

    /// Bytes that its live messages would take in a segment of their own. What is packed now is
    /// taken to be packed as well then.
    fn rewritten_bytes(&self, options: &LogOptions) -> u64 {
        let used = self.data_end.saturating_sub(self.segment.first_offset());
        let live = match self.raw_bytes {
            0 => self.live,
            raw => (u128::from(self.live) * u128::from(used.min(raw)) / u128::from(raw)) as u64,
        };
        let frames = live.div_ceil(options.frame_bytes as u64);
        let head = FRAME_HEADER_BYTES + Keyring::overhead(self.segment.keys.current());
        let live = live + frames * head as u64;
        live.next_multiple_of(u64::from(options.block_bytes))
    }

    fn is_compacted(&self) -> bool {
        self.segment.header.compacted
    }

    /// When it becomes cold, if it has not been looked over already.
    fn cold_at(&self, options: &LogOptions) -> Option<Timestamp> {
        let fresh = self.sealed && !self.spared && !self.settled && !self.is_compacted();
        fresh.then(|| self.sealed_at.plus_nanos(super::millis(options.cold_after_ms)))
    }

    /// True if it has grown cold. What a log on the disk has moved elsewhere is not fetched again.
    fn is_cold(&self, options: &LogOptions, now: Timestamp) -> bool {
        let here = options.merge || !self.segment.file.reach().is_remote();
        here && self.cold_at(options).is_some_and(|at| at <= now)
    }

    /// Frames of a segment that was not compacted.
    fn frames(&self) -> u64 {
        self.end.0.saturating_sub(self.segment.header.base.0) + 1
    }

    /// True if it is to be written anew because of its key.
    fn is_to_be_rekeyed(&self) -> bool {
        self.sealed && !self.spared && self.segment.header.key_id != self.segment.keys.current()
    }

    fn input(&self) -> CompactionInput {
        let (segment, data_end, end) = (Arc::clone(&self.segment), self.data_end, self.end);
        CompactionInput { segment, data_end, end }
    }

    /// True if enough of it is dead to rewrite it: what is live, in whole blocks, takes so much
    /// less. (Compared without the blocks, a small remainder would be rewritten for ever.)
    fn is_victim(&self, options: &LogOptions) -> bool {
        let percent = u64::from(options.compact_below_percent);
        let used = self.data_end.saturating_sub(self.segment.first_offset());
        let pays = self.rewritten_bytes(options).saturating_mul(100) < used.saturating_mul(percent);
        self.sealed && !self.spared && (self.live == 0 || pays)
    }

    /// True if compaction can read it now. What is all dead goes unread; a file that is elsewhere is
    /// not fetched to be rewritten where space is short, nor while it cannot be had.
    fn can_be_rewritten(&self, space_is_short: bool) -> bool {
        self.live == 0
            || match self.segment.file.reach() {
                Reach::Here => true,
                Reach::Remote => !space_is_short,
                Reach::Away => false,
            }
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
    /// Segments that are being rewritten, and bytes of what died in them meanwhile, by stream.
    watched: FxHashSet<SegmentId>,
    deaths: FxHashMap<StreamId, u64>,
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

    /// The same, to be examined for dead space from before the start. When segments were sealed is
    /// unknown: they count as warm, so that a start is not followed by work.
    #[must_use]
    pub fn inherited_at(mut self, now: Timestamp) -> Self {
        self.died = true;
        self.by_id.values_mut().for_each(|info| info.sealed_at = now);
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
    pub fn inputs(
        &self,
        options: &LogOptions,
        least: u64,
        space_is_short: bool,
    ) -> Vec<CompactionInput> {
        let mut group = Group::default();
        for info in self.chain() {
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
        group.infos.iter().map(|info| info.input()).collect()
    }

    /// All segments in the order of the chain.
    fn chain(&self) -> Vec<&SegmentInfo> {
        let mut chain: Vec<&SegmentInfo> = self.by_id.values().collect();
        chain.sort_unstable_by_key(|info| (info.segment.header.base, info.end));
        chain
    }

    /// The first neighbours that have grown cold and together are worth being looked over, within a
    /// segment's size.
    #[must_use]
    pub fn cold(&self, options: &LogOptions, now: Timestamp) -> Vec<CompactionInput> {
        let is_cold = |info: &SegmentInfo| info.is_cold(options, now);
        let mut run: Vec<&SegmentInfo> = Vec::new();
        for info in self.chain() {
            let bytes: u64 = run.iter().map(|info| info.data_end).sum();
            if !is_cold(info) || bytes + info.data_end > options.segment_bytes {
                if is_worth_looking(&run, options) {
                    break;
                }
                run.clear();
            }
            if is_cold(info) {
                run.push(info);
            }
        }
        if is_worth_looking(&run, options) {
            run.iter().map(|info| info.input()).collect()
        } else {
            Vec::new()
        }
    }

    /// True if a segment is sealed that is under another key than the one in use, none included.
    #[must_use]
    pub fn is_under_another_key(&self) -> bool {
        self.by_id.values().any(SegmentInfo::is_to_be_rekeyed)
    }

    /// The first neighbours that are under another key than the one in use, within a segment's size.
    #[must_use]
    pub fn under_another_key(&self, options: &LogOptions) -> Vec<CompactionInput> {
        let mut run: Vec<&SegmentInfo> = Vec::new();
        let mut bytes = 0;
        for info in self.chain() {
            let takes = info.is_to_be_rekeyed() && info.can_be_rewritten(false);
            let fits = run.is_empty() || bytes + info.data_end <= options.segment_bytes;
            if takes && fits {
                bytes += info.data_end;
                run.push(info);
            } else if !run.is_empty() {
                break;
            }
        }
        run.iter().map(|info| info.input()).collect()
    }

    /// When the next segment grows cold that is not.
    #[must_use]
    pub fn cold_at(&self, options: &LogOptions, now: Timestamp) -> Option<Timestamp> {
        self.by_id.values().filter_map(|info| info.cold_at(options)).filter(|at| *at > now).min()
    }

    /// Neighbours that compactions made or that are cold, all of them small, so many that merging them
    /// leaves at most half of them, within a segment's size.
    #[must_use]
    pub fn small(&self, options: &LogOptions, now: Timestamp) -> Vec<CompactionInput> {
        let most = options.segment_bytes / SMALL_SHARE;
        let mut run: VecDeque<&SegmentInfo> = VecDeque::new();
        let mut bytes = 0;
        for info in self.chain() {
            let is_old = info.is_compacted() && info.sealed && !info.spared;
            if !(is_old || info.is_cold(options, now)) || info.data_end > most {
                run.clear();
                bytes = 0;
                continue;
            }
            run.push_back(info);
            bytes += info.data_end;
            while bytes > options.segment_bytes {
                bytes -= run.pop_front().map_or(bytes, |first| first.data_end);
            }
            // Streams with segments of their own keep one each; the others share one.
            let own: FxHashSet<StreamId> = run.iter().filter_map(|info| info.only).collect();
            if run.len() >= MERGED_SEGMENTS.max(2 * (own.len() + 1)) {
                return run.iter().map(|info| info.input()).collect();
            }
        }
        Vec::new()
    }

    /// These segments are good as they are.
    pub fn settle(&mut self, ids: &[SegmentId]) {
        for id in ids {
            if let Some(info) = self.by_id.get_mut(id) {
                info.settled = true;
            }
        }
    }

    /// Counts what dies in these segments from now on.
    pub fn watch(&mut self, ids: &[SegmentId]) {
        self.watched = ids.iter().copied().collect();
        self.deaths.clear();
    }

    /// Messages that died in the watched segments, by stream.
    pub fn stop_watching(&mut self) -> FxHashMap<StreamId, u64> {
        self.watched.clear();
        std::mem::take(&mut self.deaths)
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

    /// Counts a frame that was committed now; returns by how much that made the totals larger:
    /// segments, and bytes of frames.
    pub fn note_frame(
        &mut self,
        place: &Written,
        lsn: Lsn,
        message_bytes: u64,
        now: Timestamp,
    ) -> (u64, u64) {
        let id = place.segment.id();
        if self.open != Some(id) {
            if let Some(before) = self.open.and_then(|before| self.by_id.get_mut(&before)) {
                before.sealed = true;
                before.sealed_at = now;
                self.died = true;
            }
            self.open = Some(id);
        }
        let fresh = || SegmentInfo::new(Arc::clone(&place.segment), 0, lsn);
        let before = self.by_id.len();
        let info = self.by_id.entry(id).or_insert_with(fresh);
        let grown = place.end.saturating_sub(info.data_end);
        info.data_end = place.end;
        info.end = lsn;
        info.live += message_bytes;
        self.written += place.end - place.offset;
        ((self.by_id.len() - before) as u64, grown)
    }

    /// Counts a dead message; one that is not committed yet counts against the open segment.
    pub fn note_dead(&mut self, id: Option<SegmentId>, stream: StreamId, weight: u64) {
        let Some(id) = id.or(self.open) else { return };
        if let Some(info) = self.by_id.get_mut(&id) {
            info.live = info.live.saturating_sub(weight);
            self.died = true;
        }
        if !self.watched.is_empty() && self.watched.contains(&id) {
            *self.deaths.entry(stream).or_default() += weight;
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

fn is_worth_looking(run: &[&SegmentInfo], options: &LogOptions) -> bool {
    let frames: u64 = run.iter().map(|info| info.frames()).sum();
    let bytes: u64 = run.iter().map(|info| info.data_end).sum();
    options.merge && frames >= MERGED_FRAMES || bytes >= (options.segment_bytes / COLD_SHARE).max(1)
}
