//! The log as a machine sees it: frames under construction, what is committed, where things are.

use super::io::Loader;
use super::read_backoff::ReadBackoffs;
use super::reads::FrameWalker;
use super::segments::Segments;
use crate::cache::{BlockCache, TailCache, TailFrame};
use crate::env::{BufPool, Clock, Entropy, Medium};
use crate::frame::{FRAME_HEADER_BYTES, FrameBuilder, FrameMeta, SealedFrame};
use crate::index::Index;
use crate::keys::Keyring;
use crate::machine::{AppendError, Appended, LogAccess, Read, Space, Urgency};
use crate::options::LogOptions;
use crate::record::{RecordKind, RecordRef};
use crate::segment::Written;
use crate::state_part::{PartHead, STATE_PART_BYTES, StatePiece};
use crate::stats::{LogStats, add, set};
use crate::store::Store;
use crate::types::{Lsn, Seq, StreamId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Unused frame buffers kept for the next frames; where frames are large, two of them.
const POOL_IDLE_BYTES: usize = 16 * 1024 * 1024;

/// When so many frames wait for the writer, the sequencer stops taking events.
const PENDING_FRAMES: usize = 2;

/// The same in bytes. One large frame that waits is enough while the next one is built: with them and
/// those that are under way, [`LogOptions::object`] bounds what is in memory besides the tail cache.
const PENDING_BYTES: usize = 8 * 1024 * 1024;

/// How long a full medium is left alone before allocation is tried again.
const FULL_RETRY_NANOS: i64 = 50_000_000;

/// Everything of a log but the machine on it.
pub struct LogInner {
    pub(super) options: LogOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Box<dyn Entropy>,
    pub(super) stats: Arc<LogStats>,
    pub(super) store: Arc<Store>,
    pub(super) medium: Medium,
    pub(super) now: Timestamp,
    pub(super) pool: BufPool,
    pub(super) frame: FrameBuilder,
    pub(super) frame_limit: usize,
    pub(super) pending: VecDeque<(SealedFrame, FrameMeta)>,
    pub(super) promised: u64,
    pub(super) index: Index,
    pub(super) tail: TailCache,
    pub(super) blocks: BlockCache,
    pub(super) segments: Segments,
    pub(super) loader: Loader,
    pub(super) loading: FxHashMap<(crate::segment::SegmentId, u32), Vec<StreamId>>,
    pub(super) read_backoffs: ReadBackoffs,
    /// Reads that wait for a frame, by stream.
    pub(super) walks: FxHashMap<StreamId, FrameWalker>,
    pub(super) committed: Lsn,
    pub(super) durable: Lsn,
    pub(super) space: Space,
    pub(super) full_since: Option<Timestamp>,
    pub(super) failed: Option<String>,
    /// Bytes of the states that the compaction under way has logged.
    pub(super) state_bytes: u64,
    expected_frame: usize,
    /// Bytes that encryption adds to a frame.
    seal_bytes: usize,
}

/// The parts that a log starts with.
pub struct Parts {
    /// Options.
    pub options: LogOptions,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Box<dyn Entropy>,
    /// Files.
    pub store: Arc<Store>,
    /// Positions of messages.
    pub index: Index,
    /// The chain.
    pub segments: Segments,
    /// Last position in the log.
    pub last: Lsn,
}

impl LogInner {
    /// A log that goes on after `parts.last`.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let pool = BufPool::new(POOL_IDLE_BYTES.max(2 * parts.options.frame_bytes));
        let frame = FrameBuilder::new(&pool, 0, parts.last.next());
        let now = parts.clock.now();
        Self {
            now,
            medium: parts.store.disk.medium(),
            stats: Arc::clone(&parts.store.stats),
            tail: TailCache::new(parts.options.tail_cache_bytes),
            blocks: BlockCache::new(parts.options.block_cache_bytes),
            pool,
            frame,
            frame_limit: 0,
            pending: VecDeque::new(),
            promised: 0,
            loader: Loader::inline(),
            loading: FxHashMap::default(),
            read_backoffs: ReadBackoffs::default(),
            walks: FxHashMap::default(),
            committed: parts.last,
            durable: parts.last,
            space: Space::Normal,
            full_since: None,
            failed: None,
            state_bytes: 0,
            expected_frame: 0,
            seal_bytes: Keyring::overhead(parts.store.keys.current()),
            options: parts.options,
            clock: parts.clock,
            entropy: parts.entropy,
            store: parts.store,
            index: parts.index,
            segments: parts.segments.inherited_at(now),
        }
    }

    /// Takes the time for a turn.
    pub(super) fn tick_clock(&mut self) {
        self.now = self.now.max(self.clock.now());
    }

    /// True if frames that wait hold so much that no more events should be taken. `handed_over` are
    /// the bytes of those that wait at the writer already.
    pub(super) fn is_backed_up(&self, handed_over: impl Iterator<Item = usize>) -> bool {
        let here = self.pending.iter().map(|(frame, _)| frame.len);
        let (mut frames, mut bytes) = (0, 0);
        for len in here.chain(handed_over) {
            frames += 1;
            bytes += len;
        }
        frames >= PENDING_FRAMES || bytes >= PENDING_BYTES
    }

    /// Ends the frame under construction and begins the next.
    pub(super) fn seal_current(&mut self, flags: u16) {
        let next = self.frame.lsn.next();
        self.expected_frame = self.frame.len().max(self.expected_frame / 2);
        let fresh = FrameBuilder::new(&self.pool, self.expected_frame, next);
        let full = std::mem::replace(&mut self.frame, fresh);
        self.promised += self.padded(full.len());
        self.frame_limit = 0;
        self.pending.push_back(full.seal(flags));
    }

    fn padded(&self, len: usize) -> u64 {
        ((len + self.seal_bytes) as u64).next_multiple_of(u64::from(self.options.block_bytes))
    }

    /// Room for a record that does not fit into what is known to be free: ends a frame that is
    /// large enough, secures space on the medium.
    #[cold]
    pub(super) fn make_room(&mut self, weight: usize, privileged: bool) -> Result<(), AppendError> {
        let over = self.frame.len() + weight > self.options.frame_bytes;
        if !self.frame.is_empty() && (over || self.frame.is_full()) {
            self.seal_current(0);
        }
        let len = self.frame.len() + weight;
        self.secure(len, privileged)?;
        let secured = self.store.secured().saturating_sub(self.promised);
        let secured = usize::try_from(secured).unwrap_or(usize::MAX);
        let block = self.options.block_bytes as usize;
        let whole_blocks = (secured / block * block).saturating_sub(self.seal_bytes);
        self.frame_limit = self.options.frame_bytes.max(len).min(whole_blocks);
        Ok(())
    }

    /// Sees to it that the frame can grow to `len` bytes without running out of space.
    fn secure(&mut self, len: usize, privileged: bool) -> Result<(), AppendError> {
        let needed = self.promised + self.padded(len);
        if !privileged && self.store.disk.is_short() {
            self.set_space(self.space.max(Space::ReserveOnly));
            return Err(self.full(needed));
        }
        let open = privileged || self.space == Space::Normal;
        if open && self.store.secured() >= needed {
            return Ok(());
        }
        let recently = |since: Timestamp| self.now < since.plus_nanos(FULL_RETRY_NANOS);
        if !privileged && self.full_since.is_some_and(recently) {
            return Err(self.full(needed));
        }
        let secured = self.find_space(needed, privileged);
        match secured {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.full_since = Some(self.now);
                Err(self.full(needed))
            }
            Err(error) => {
                self.failed = Some(format!("cannot allocate space: {error}"));
                Err(AppendError::Failed)
            }
        }
    }

    /// Allocates from the medium, or for privileged records from the reserve. False if it is full.
    fn find_space(&mut self, needed: u64, privileged: bool) -> io::Result<bool> {
        let options = &self.options;
        let (reserve, segment_bytes) = (options.reserve_bytes, options.segment_bytes);
        let least = needed + u64::from(options.block_bytes);
        let wanted = self.segments.next_size(options).max(least);
        if self.store.fill_reserve(reserve, segment_bytes)? {
            if self.store.secured() >= needed {
                self.set_space(Space::Normal);
                return Ok(true);
            }
            let wanted = self.store.affordable(wanted, least)?;
            match self.store.make_spare(least, wanted) {
                Ok(()) => {
                    self.set_space(Space::Normal);
                    return Ok(true);
                }
                Err(error) if crate::env::is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if !privileged {
            self.set_space(self.space.max(Space::ReserveOnly));
            return Ok(false);
        }
        let found = self.store.secured() >= needed || self.store.make_spare_from_reserve(least)?;
        self.set_space(if found { Space::ReserveOnly } else { Space::Exhausted });
        Ok(found)
    }

    fn set_space(&mut self, space: Space) {
        let is_short = space == Space::Normal && self.store.disk.is_short();
        let space = if is_short { Space::ReserveOnly } else { space };
        if space == Space::Normal {
            self.full_since = None;
        }
        if space != self.space {
            self.options.report.say(match space {
                Space::Normal => "there is space on the medium again",
                Space::ReserveOnly => "the medium is full up to the reserve: no new messages",
                Space::Exhausted => "the medium is full and the reserve is spent",
            });
        }
        self.space = space;
        set(&self.stats.space, space as u64);
    }

    fn full(&self, needed: u64) -> AppendError {
        add(&self.stats.full_refusals, 1);
        let available = self.store.secured().saturating_sub(self.promised);
        AppendError::Full { needed_bytes: needed - self.promised, available_bytes: available }
    }

    /// A frame is on the medium (and durable, if the policy wants that): readers may see it.
    pub(super) fn note_committed(&mut self, meta: FrameMeta, place: Written) {
        assert_eq!(meta.lsn, self.committed.next(), "frames commit in order");
        self.committed = meta.lsn;
        let offset = u32::try_from(place.offset).expect("segments stay below 4 GiB");
        let segment = place.segment.id();
        let (segments, bytes) =
            self.segments.note_frame(&place, meta.lsn, meta.message_bytes, self.now);
        add(&self.stats.segments, segments);
        add(&self.stats.segment_bytes, bytes);
        add(&self.stats.live_bytes, meta.message_bytes);
        self.index.commit(&meta.runs, meta.lsn, segment, offset);
        self.promised -= self.padded(meta.len);
        add(&self.stats.frames, 1);
        add(&self.stats.records, u64::from(meta.count));
        add(&self.stats.frame_bytes, meta.len as u64);
        set(&self.stats.committed_lsn, meta.lsn.0);
        let (bytes, held_bytes) = (place.bytes, place.held_bytes);
        self.tail.push(meta.lsn, TailFrame { bytes, held_bytes, runs: meta.runs });
        while let Some(old) = self.tail.evict() {
            self.index.evict(&old.runs);
        }
        set(&self.stats.tail_bytes, self.tail.bytes() as u64);
    }

    pub(super) fn note_durable(&mut self, lsn: Lsn) {
        assert!(lsn >= self.durable && lsn <= self.committed.next());
        self.durable = lsn;
        set(&self.stats.durable_lsn, lsn.0);
    }

    fn admit(
        &mut self,
        record: &RecordRef<'_>,
        weight: usize,
        privileged: bool,
    ) -> Result<(), AppendError> {
        self.check(record, weight)?;
        let is_short = || self.space != Space::Normal || self.store.disk.is_short();
        let refused = !privileged && is_short();
        if refused || self.frame.len() + weight > self.frame_limit || self.frame.is_full() {
            self.make_room(weight, privileged)?;
        }
        Ok(())
    }

    pub(super) fn publish_segment_stats(&self) {
        let (segments, bytes, live) = self.segments.totals();
        set(&self.stats.segments, segments);
        set(&self.stats.segment_bytes, bytes);
        set(&self.stats.live_bytes, live);
    }

    fn check(&self, record: &RecordRef<'_>, weight: usize) -> Result<(), AppendError> {
        if self.failed.is_some() {
            return Err(AppendError::Failed);
        }
        let max = self.options.max_record_bytes.min(crate::frame::MAX_RECORD_BYTES);
        if weight > max || record.subject.len() > usize::from(u16::MAX) {
            let (size_bytes, max_bytes) = (weight as u64, max as u64);
            return Err(AppendError::TooLarge { size_bytes, max_bytes });
        }
        Ok(())
    }
}

impl LogAccess for LogInner {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn entropy(&mut self) -> u64 {
        self.entropy.next()
    }

    fn append(
        &mut self,
        record: &RecordRef<'_>,
        urgency: Urgency,
        privileged: bool,
    ) -> Result<Appended, AppendError> {
        let weight = record.weight();
        self.admit(record, weight, privileged)?;
        if StatePiece::of(record).is_some() {
            self.state_bytes += weight as u64;
        }
        self.frame.push(&self.pool, record);
        match urgency {
            Urgency::Awaited => {
                self.frame.awaited = true;
                self.frame.awaited_since.get_or_insert(self.now);
            }
            Urgency::Lazy => {
                self.frame.lazy_since.get_or_insert(self.now);
            }
        }
        Ok(Appended { lsn: self.frame.lsn })
    }

    fn append_state(&mut self, state: &RecordRef<'_>) -> Result<Appended, AppendError> {
        let part_bytes = self.options.state_part_bytes.clamp(1, STATE_PART_BYTES);
        if state.body.len() <= part_bytes {
            return self.append(state, Urgency::Lazy, true);
        }
        let count = state.body.len().div_ceil(part_bytes);
        let max_bytes = part_bytes as u64 * u64::from(u32::MAX);
        let size_bytes = state.body.len() as u64;
        let of =
            u32::try_from(count).map_err(|_| AppendError::TooLarge { size_bytes, max_bytes })?;
        let mut appended = Appended { lsn: self.frame.lsn };
        for (number, body) in (0..of).zip(state.body.chunks(part_bytes)) {
            let headers = &PartHead { number, of }.encode();
            let part = RecordRef { kind: RecordKind::StatePart, headers, body, ..*state };
            appended = self.append(&part, Urgency::Lazy, true)?;
        }
        Ok(appended)
    }

    fn flush_soon(&mut self) {
        self.frame.awaited |= !self.frame.is_empty();
    }

    fn committed(&self) -> Lsn {
        self.committed
    }

    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        self.read_message(stream, seq)
    }

    fn dead(&mut self, stream: StreamId, seq: Seq, weight: usize) {
        let segment = self.index.segment_of(stream, seq);
        self.segments.note_dead(segment, stream, weight as u64);
    }

    fn space(&self) -> Space {
        self.space
    }
}

const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(16));
