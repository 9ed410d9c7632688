//! A machine that follows a log which somebody else writes: when this process is to write it, only what it has not read yet
//! is read.
//!
//! It begins like a start, reads every frame behind that in its order, and keeps what a start makes of the log: the machine,
//! where messages are, which segments are sealed. It takes no states in: records in front of one it has seen itself. Where it
//! has not, and where only a state tells of something, it says so, and is to be begun anew. It changes nothing on the disk.
//!
//! What a start would mend on the way (a damaged footer, a checkpoint that cannot be used) it leaves as it is, or has a start
//! read all: see [`StandbyError::Changed`].

mod reading;

pub use reading::{StandbyLog, StandbyReader};

use super::chain_check::{add_frame, frames_on, just_made};
use super::replay::push_places;
use super::settle::Todo;
use super::{DamageKind, OpenError, Read, Recovery, damage, io_context, no_records};
use crate::catalog::{Catalog, SegmentEntry, SegmentState};
use crate::checkpoint;
use crate::env::{Disk, again};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::index::Index;
use crate::keys::Keyring;
use crate::later::{Later, Unusable};
use crate::machine::Machine;
use crate::options::{LogOptions, Reporter};
use crate::rules::READ_PAST_CACHES;
use crate::segment::reader::{FramesEnd, GoodFrame, SegmentFile, read_footer};
use crate::segment::scan::ScanPoint;
use crate::segment::{Footer, FooterBuilder, FrameScanner, Scanned, Segment, SegmentId};
use crate::sequencer::SegmentInfo;
use crate::state_part::StatePiece;
use crate::types::{Lsn, StreamId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Bytes of frames that one call of [`Standby::follow`] reads, about: who is to write the log may wait for one.
const STEP_BYTES: u64 = 1 << 20;

/// Why a standby cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// The log was changed in a way that it has not seen; it is to be begun anew.
    #[error("the log has changed: {what}")]
    Changed {
        /// In which way.
        what: &'static str,
    },
    /// What a start would be refused for, too, or was while the files changed.
    #[error(transparent)]
    Open(#[from] OpenError),
}

const fn changed<T>(what: &'static str) -> Result<T, StandbyError> {
    Err(StandbyError::Changed { what })
}

/// A sealed segment whose places are known.
struct Sealed {
    entry: SegmentEntry,
    /// As in [`SegmentInfo`].
    raw_bytes: u64,
    /// As in [`SegmentInfo`].
    only: Option<StreamId>,
}

/// A segment that is not sealed, as far as it was read. Its places are not in the index yet.
struct Tail {
    entry: SegmentEntry,
    builder: FooterBuilder,
    at: ScanPoint,
    /// Where its last frame is; none without one.
    last_frame: Option<u64>,
}

impl Tail {
    /// True if the frame that was read last is still there. Those in front of it are then as well: each has the sum of the one
    /// before it.
    fn is_there(&self, segment: &Segment) -> Result<bool, OpenError> {
        let Some(at) = self.last_frame else { return Ok(true) };
        let head = again(|| segment.file.read_shared(at, FRAME_HEADER_BYTES));
        let head = head.map_err(io_context(self.entry.file_name()))?;
        let header = FrameHeader::decode(&head, segment.header.salt).ok();
        Ok(header.is_some_and(|header| self.at.is_behind(&header)))
    }
}

/// See the [module](self).
pub struct Standby<M> {
    log_id: u64,
    keys: Keyring,
    machine: M,
    index: Index,
    sealed: FxHashMap<SegmentId, Sealed>,
    tail: Option<Tail>,
    last: Lsn,
    /// Frames read by [`Standby::follow`], or since a start has begun.
    frames: u64,
    /// Records in them.
    records: u64,
    /// When the newest record was written that it has followed.
    newest: Timestamp,
}

impl<M: Machine> Standby<M> {
    /// Reads a log into a machine; `None` if there is none yet.
    ///
    /// # Errors
    /// As for a start.
    pub fn begin(
        keys: &crate::keys::Keys,
        disk: &Arc<dyn Disk>,
        machine: M,
    ) -> Result<Option<Self>, StandbyError> {
        let loaded = Catalog::load(&**disk);
        let place = || disk.label();
        let loaded = loaded.map_err(|source| OpenError::Catalog { place: place(), source })?;
        let Some(catalog) = loaded else { return Ok(None) };
        // It encrypts nothing.
        let keys = Keyring::new(keys, &mut crate::env::SystemEntropy::default());
        let options = LogOptions { report: Reporter::default(), ..LogOptions::default() };
        let read = (options, Arc::clone(disk), catalog, keys);
        Self::of(Recovery::new(read, machine).read()?).map(Some)
    }

    fn of(recovery: Recovery<M>) -> Result<Self, StandbyError> {
        let mut standby = Self {
            log_id: recovery.stored.log_id,
            keys: recovery.keys,
            machine: recovery.machine,
            index: recovery.index,
            sealed: FxHashMap::default(),
            tail: None,
            last: recovery.catalog.end(),
            frames: 0,
            records: 0,
            newest: Timestamp::NONE,
        };
        let mut builders = builders(recovery.todo);
        for entry in recovery.stored.segments {
            match entry.state {
                SegmentState::Sealed => {
                    check_footer(&entry)?;
                    if builders.contains_key(&entry.id) {
                        // A start writes it anew.
                        return changed("a sealed segment has no usable footer");
                    }
                    let info = recovery.segments.get(entry.id).expect("it was opened");
                    let (raw_bytes, only) = (info.raw_bytes, info.only);
                    standby.sealed.insert(entry.id, Sealed { entry, raw_bytes, only });
                }
                SegmentState::Open => {
                    let empty = || FooterBuilder::new(entry.id, entry.base);
                    let builder = builders.remove(&entry.id).unwrap_or_else(empty);
                    let (at, last_frame) = recovery.tail_end.expect("it was looked for");
                    standby.tail = Some(Tail { entry, builder, at, last_frame });
                }
                SegmentState::Removed | SegmentState::Replaced => {}
            }
        }
        if let Some(tail) = &standby.tail {
            standby.index.exchange(&FxHashSet::from_iter([tail.entry.id]), FxHashMap::default());
        }
        Ok(standby)
    }

    /// Identity of the log.
    #[must_use]
    pub const fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The last position that it has read.
    #[must_use]
    pub const fn last(&self) -> Lsn {
        self.last
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to set what no record tells.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Has the machine let go of what was only to be kept for a time.
    pub fn pass_time(&mut self) {
        self.machine.pass_time(self.newest);
    }

    /// Memory that its index of messages takes, about: what the machine takes the machine knows.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// Reads on; true if there may be more that is there already.
    ///
    /// # Errors
    /// It must be begun anew: it has read in part what it could not read to its end.
    pub fn follow(&mut self, disk: &Arc<dyn Disk>) -> Result<bool, StandbyError> {
        let loaded = Catalog::load(&**disk);
        let place = || disk.label();
        let loaded = loaded.map_err(|source| OpenError::Catalog { place: place(), source })?;
        let Some(catalog) = loaded else { return changed("its catalog is gone") };
        self.follow_to(disk, &catalog)
    }

    /// All that the log has, if that can be read.
    pub(super) fn caught_up(
        mut self,
        disk: &Arc<dyn Disk>,
        catalog: &Catalog,
        report: &Reporter,
    ) -> Option<Self> {
        (self.frames, self.records) = (0, 0);
        match self.catch_up(disk, catalog) {
            Ok(()) => Some(self),
            Err(why) => {
                report.note(&format!("what a standby has read is not used: {why}"));
                None
            }
        }
    }

    fn catch_up(&mut self, disk: &Arc<dyn Disk>, catalog: &Catalog) -> Result<(), StandbyError> {
        let open = catalog.segments.iter().filter(|entry| entry.state == SegmentState::Open);
        if !catalog.clean && READ_PAST_CACHES.holds() {
            for name in open.map(SegmentEntry::file_name) {
                let reread = disk.open(&name).and_then(|file| file.reread());
                reread.map_err(io_context(name))?;
            }
        }
        while self.follow_to(disk, catalog)? {}
        let names = checkpoint::names(&**disk).map_err(io_context("listing checkpoints"))?;
        match names.iter().any(|name| checkpoint::named_lsn(name) > Some(self.last)) {
            // Whether its end is lost a start judges that reads everything.
            true => changed("a checkpoint covers more than there is"),
            false => Ok(()),
        }
    }

    fn follow_to(&mut self, disk: &Arc<dyn Disk>, catalog: &Catalog) -> Result<bool, StandbyError> {
        if catalog.log_id != self.log_id {
            return changed("it is another log");
        }
        self.exchange_compacted(disk, catalog)?;
        let mut rest = STEP_BYTES;
        for entry in &catalog.segments {
            let is_read = self.sealed.contains_key(&entry.id);
            if has_file(entry) && !is_read && !self.follow_segment(disk, entry, &mut rest)? {
                return Ok(true);
            }
        }
        if catalog.end() > self.last {
            return changed("frames were not read before they were removed");
        }
        Ok(false)
    }

    /// Takes in what compactions have made of segments, and lets go of what is gone.
    fn exchange_compacted(
        &mut self,
        disk: &Arc<dyn Disk>,
        catalog: &Catalog,
    ) -> Result<(), StandbyError> {
        let here: FxHashSet<_> =
            catalog.segments.iter().filter(|entry| has_file(entry)).map(|entry| entry.id).collect();
        let gone: FxHashSet<_> =
            self.sealed.keys().copied().filter(|id| !here.contains(id)).collect();
        let made = catalog.segments.iter().filter(|entry| has_file(entry) && entry.compacted);
        let made: Vec<_> = made.filter(|entry| !self.sealed.contains_key(&entry.id)).collect();
        if self.tail.as_ref().is_some_and(|tail| !here.contains(&tail.entry.id)) {
            self.tail = None;
        }
        if gone.is_empty() && made.is_empty() {
            return Ok(());
        }
        if made.iter().any(|entry| entry.end > self.last) {
            return changed("frames were not read before they were compacted");
        }
        // All are read before any of them counts.
        let made = made.into_iter().map(|entry| Ok((*entry, self.open_footer(disk, entry)?)));
        let made = made.collect::<Result<Vec<_>, StandbyError>>()?;
        let mut places: FxHashMap<StreamId, Vec<_>> = FxHashMap::default();
        for (entry, (segment, footer)) in made {
            for stream in footer.streams().iter().filter(|stream| stream.messages > 0) {
                places.entry(stream.stream).or_default().extend(footer.places(stream, entry.id));
            }
            self.note_sealed(entry, segment, &footer);
        }
        self.sealed.retain(|id, _| !gone.contains(id));
        self.index.exchange(&gone, places);
        Ok(())
    }

    fn note_sealed(&mut self, entry: SegmentEntry, segment: Arc<Segment>, footer: &Footer) {
        let info = SegmentInfo::new(segment, entry.data_end, entry.end);
        let info = if entry.compacted { info.compacted(footer) } else { info };
        let (raw_bytes, only) = (info.raw_bytes, info.only);
        self.sealed.insert(entry.id, Sealed { entry, raw_bytes, only });
    }

    fn open_footer(
        &self,
        disk: &Arc<dyn Disk>,
        entry: &SegmentEntry,
    ) -> Result<(Arc<Segment>, Footer), StandbyError> {
        check_footer(entry)?;
        let segment = self.open(disk, entry)?;
        match read_footer(&segment, entry) {
            Ok(footer) => Ok((segment, footer)),
            Err(_) => changed("a compacted segment has no readable footer"),
        }
    }

    fn open(
        &self,
        disk: &Arc<dyn Disk>,
        entry: &SegmentEntry,
    ) -> Result<Arc<Segment>, StandbyError> {
        let name = entry.file_name();
        let found = SegmentFile::open(&**disk, &name).map_err(io_context(name))?;
        match found.header {
            Ok(header) if header.is_of(entry, self.log_id) && self.keys.has(header.key_id) => {
                Ok(Arc::new(Segment { header, file: found.file, keys: self.keys.clone() }))
            }
            _ => changed("a segment is not what the catalog says, or its key is missing"),
        }
    }

    /// Reads on in a segment that was not compacted, and is not known to its end; false if `rest` is used up.
    fn follow_segment(
        &mut self,
        disk: &Arc<dyn Disk>,
        entry: &SegmentEntry,
        rest: &mut u64,
    ) -> Result<bool, StandbyError> {
        let segment = self.open(disk, entry)?;
        let is_sealed = entry.state == SegmentState::Sealed;
        let limit = match is_sealed {
            true => entry.data_end,
            false => again(|| segment.file.len()).map_err(io_context(entry.file_name()))?,
        };
        self.begin_tail(entry, &segment)?;
        let mut tail = self.tail.take().expect("it was begun");
        if !tail.is_there(&segment)? {
            return changed("a frame that was read is gone");
        }
        let mut scan = FrameScanner::resume(Arc::clone(&segment), tail.at, limit);
        let mut is_end = false;
        while *rest > 0 && !is_end {
            let from = scan.at();
            is_end = !self.follow_frame(&mut scan, entry, &mut tail)?;
            *rest = rest.saturating_sub(scan.at() - from);
        }
        self.tail = Some(tail);
        match is_end && is_sealed {
            true => self.end_segment(entry, segment),
            false => Ok(is_end),
        }
    }

    /// Reads one frame; false: there is none yet.
    fn follow_frame(
        &mut self,
        scan: &mut FrameScanner,
        entry: &SegmentEntry,
        tail: &mut Tail,
    ) -> Result<bool, StandbyError> {
        let scanned = scan.step().map_err(io_context(entry.file_name()))?;
        let (header, offset) = match scanned {
            Scanned::Frame(header, offset) => (header, offset),
            Scanned::Fault(..) | Scanned::End => return Ok(false),
        };
        let frame = GoodFrame { header, offset, end: scan.at(), bytes: scan.frame() };
        add_frame(&mut tail.builder, &frame, entry)?;
        self.apply(&frame, entry)?;
        (tail.at, tail.last_frame) = (scan.point(), Some(offset));
        Ok(true)
    }

    fn begin_tail(
        &mut self,
        entry: &SegmentEntry,
        segment: &Arc<Segment>,
    ) -> Result<(), StandbyError> {
        if self.tail.as_ref().is_some_and(|tail| tail.entry.id == entry.id) {
            return Ok(());
        }
        if self.tail.as_ref().is_some_and(|tail| tail.entry.base <= tail.builder.end())
            || entry.base != self.last.next()
        {
            return changed("frames were not read before others were written");
        }
        let builder = FooterBuilder::new(entry.id, entry.base);
        let at = FrameScanner::new(Arc::clone(segment), 0).point();
        self.tail = Some(Tail { entry: *entry, builder, at, last_frame: None });
        Ok(())
    }

    /// A segment was sealed, and read to where its frames were to end.
    fn end_segment(
        &mut self,
        entry: &SegmentEntry,
        segment: Arc<Segment>,
    ) -> Result<bool, StandbyError> {
        check_footer(entry)?;
        let tail = self.tail.take().expect("it was read");
        if tail.at.at != entry.data_end || self.last != entry.end {
            return changed("a segment ends elsewhere than its frames do");
        }
        let footer = just_made(&tail.builder, entry);
        push_places(&mut self.index, &footer, entry.id);
        self.note_sealed(*entry, segment, &footer);
        Ok(true)
    }

    fn apply(&mut self, frame: &GoodFrame<'_>, entry: &SegmentEntry) -> Result<(), StandbyError> {
        self.frames += 1;
        let mut records = frame.records();
        for (_, record) in records.by_ref() {
            self.records += 1;
            self.newest = self.newest.max(record.timestamp);
            if StatePiece::of(&record).is_none() {
                self.machine.apply(&record);
            } else if self.machine.is_news(&record) {
                return changed("a stream has come that only its state tells of");
            }
        }
        self.last = frame.header.lsn;
        let unread = self.machine.unreadable_records() > 0;
        let fault = records.fault.or(unread.then_some(Unusable::Later(Later::RecordBody)));
        match fault {
            Some(why) => Err(no_records(entry, frame.offset, frame.header.lsn, why).into()),
            None => Ok(()),
        }
    }
}

impl<M: Machine> Recovery<M> {
    /// What a start makes of a log that a standby has read to its end.
    pub(super) fn of_standby(read: Read, standby: Standby<M>) -> Result<Self, OpenError> {
        let Standby { machine, index, mut sealed, mut tail, last, frames, records, .. } = standby;
        let mut recovery = Self { index, ..Self::new(read, machine) };
        recovery.report.standby = last;
        (recovery.report.frames, recovery.report.records) = (frames, records);
        recovery.report.checkpoint = recovery.look_at_checkpoints()?;
        recovery.check_files()?;
        let entries = recovery.catalog.segments.clone();
        for (at, entry) in entries.into_iter().enumerate() {
            match entry.state {
                SegmentState::Sealed => {
                    let known = sealed.remove(&entry.id).expect("it was read");
                    recovery.open_known(known)?;
                }
                SegmentState::Open => {
                    let tail = tail.take().filter(|tail| tail.entry.id == entry.id);
                    recovery.open_known_tail((at, entry), tail.expect("it was read"))?;
                }
                SegmentState::Removed | SegmentState::Replaced => {}
            }
        }
        Ok(recovery)
    }

    fn open_known(&mut self, known: Sealed) -> Result<(), OpenError> {
        let Sealed { entry, raw_bytes, only } = known;
        let segment = self.open_segment(&entry)?;
        let len = again(|| segment.file.len()).map_err(io_context(entry.file_name()))?;
        if len < entry.data_end {
            return Err(damage(&entry, len, entry.end, DamageKind::Short));
        }
        if len > entry.data_end + u64::from(entry.footer_len) {
            self.todo.push(Todo::Cut { segment: Arc::clone(&segment), entry });
        }
        let info = SegmentInfo::new(segment, entry.data_end, entry.end);
        self.segments.insert(SegmentInfo { sealed: true, raw_bytes, only, ..info });
        Ok(())
    }

    fn open_known_tail(
        &mut self,
        (at, entry): (usize, SegmentEntry),
        tail: Tail,
    ) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let limit = again(|| segment.file.len()).map_err(io_context(entry.file_name()))?;
        // It stops where it has stopped before, and says why.
        let scan = FrameScanner::resume(Arc::clone(&segment), tail.at, limit);
        let unread = |frame: &GoodFrame<'_>| {
            panic!("frame {} was written while its log was opened", frame.header.lsn)
        };
        let end: FramesEnd = frames_on(scan, &entry, unread)?;
        self.end_tail((at, entry), segment, (&end, limit), tail.builder)?;
        for link in std::mem::take(&mut self.links) {
            let footer = link.footer.expect("what was just made is kept");
            push_places(&mut self.index, &footer, link.entry.id);
        }
        Ok(())
    }
}

fn has_file(entry: &SegmentEntry) -> bool {
    matches!(entry.state, SegmentState::Open | SegmentState::Sealed)
}

/// A start would write the footer that is missing.
fn check_footer(entry: &SegmentEntry) -> Result<(), StandbyError> {
    match entry.footer_len {
        0 => changed("a sealed segment has no footer"),
        _ => Ok(()),
    }
}

/// Footers of segments that were not sealed when they were read.
fn builders(todo: Vec<Todo>) -> FxHashMap<SegmentId, FooterBuilder> {
    let builder = |todo| match todo {
        Todo::Seal { id, builder, .. } => Some((id, builder)),
        _ => None,
    };
    todo.into_iter().filter_map(builder).collect()
}
