//! First pass over the chain: every file is there and is what the catalog says, every footer is at
//! hand, the end is found.

use super::settle::Todo;
use super::tail::is_footer;
use super::{
    DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context, no_records,
};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::again;
use crate::keys::Keyring;
use crate::later::{Later, Unusable};
use crate::segment::reader::{
    FooterFault, FramesEnd, GoodFrame, SegmentFile, read_footer, read_on,
};
use crate::segment::scan::look_beyond;
use crate::segment::{Footer, FooterBuilder, FrameScanner, HeaderFault, Mark, Segment};
use crate::sequencer::SegmentInfo;
use crate::types::StreamId;
use std::io;
use std::sync::Arc;

/// Footers are kept in memory between the passes up to this many bytes; others are read again. They
/// are dropped one by one while the machine's own tables, which are larger, grow.
const FOOTERS_KEPT_BYTES: usize = 1024 * 1024 * 1024;

/// A segment of the chain.
pub(super) struct Link {
    pub entry: SegmentEntry,
    pub segment: Arc<Segment>,
    pub marks: Vec<Mark>,
    pub streams: Vec<StreamId>,
    pub footer: Option<Footer>,
}

impl<M: Machine> Recovery<M> {
    pub(super) fn open_chain(&mut self) -> Result<(), OpenError> {
        for entry in self.catalog.segments.clone() {
            let at = self.catalog.segments.iter().position(|other| other.id == entry.id);
            let at = at.expect("entries leave the chain only when it is their turn");
            match entry.state {
                SegmentState::Sealed => self.open_sealed(at, entry)?,
                SegmentState::Open => self.open_tail(at, entry)?,
                SegmentState::Removed | SegmentState::Replaced => {}
            }
        }
        Ok(())
    }

    /// Before anything is changed: every segment of the chain has its file, and no segment with frames
    /// was written after the catalog, which knows each before a frame goes into it.
    pub(super) fn check_files(&self) -> Result<(), OpenError> {
        let names = again(|| self.disk.list("")).map_err(io_context("listing files"))?;
        for entry in &self.catalog.segments {
            let segment = entry.file_name();
            let has_file = matches!(entry.state, SegmentState::Open | SegmentState::Sealed);
            if has_file && names.binary_search(&segment).is_err() {
                return Err(OpenError::Missing { segment, base: entry.base, end: entry.end });
            }
        }
        let newest = self.catalog.segments.iter().map(|entry| entry.base).max().unwrap_or_default();
        for name in names.iter().filter(|name| name.ends_with(".seg")) {
            let known = self.catalog.segments.iter().any(|entry| entry.file_name() == *name);
            if !known && self.is_newer(name, newest)? {
                return Err(OpenError::Stale { segment: name.clone() });
            }
        }
        Ok(())
    }

    /// True if a file is a segment of this log with frames behind those that the catalog knows.
    fn is_newer(&self, name: &str, newest: Lsn) -> Result<bool, OpenError> {
        let found = SegmentFile::open(&*self.disk, name).map_err(io_context(name))?;
        match found.header {
            Err(HeaderFault::Later(what)) => {
                Err(OpenError::Unknown { file: name.to_owned(), what })
            }
            Ok(header) if header.log_id == self.catalog.log_id && header.base > newest => {
                found.has_frames().map_err(io_context(name))
            }
            Ok(_) | Err(HeaderFault::Damaged) => Ok(false),
        }
    }

    pub(super) fn open_segment(&mut self, entry: &SegmentEntry) -> Result<Arc<Segment>, OpenError> {
        let name = entry.file_name();
        let found = match SegmentFile::open(&*self.disk, &name) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing { segment: name, base: entry.base, end: entry.end });
            }
            Err(error) => return Err(io_context(format!("segment {name}"))(error)),
        };
        match found.header {
            Ok(header) if header.is_of(entry, self.catalog.log_id) => {
                let (key_id, keys) = (header.key_id, self.keys.clone());
                if !keys.has(key_id) {
                    return Err(OpenError::Key { segment: name, key_id, configured: keys.names() });
                }
                self.report.segments += 1;
                Ok(Arc::new(Segment { header, file: found.file, keys }))
            }
            Ok(_) | Err(HeaderFault::Damaged) => {
                Err(damage(entry, 0, entry.base, DamageKind::SegmentHeader))
            }
            Err(HeaderFault::Later(what)) => Err(OpenError::Unknown { file: name, what }),
        }
    }

    fn open_sealed(&mut self, at: usize, entry: SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let name = entry.file_name();
        let len = again(|| segment.file.len()).map_err(io_context(name.clone()))?;
        if len < entry.data_end {
            return Err(damage(&entry, len, entry.end, DamageKind::Short));
        }
        let why = match read_footer(&segment, &entry) {
            Ok(footer) => {
                if len > entry.data_end + u64::from(entry.footer_len) {
                    self.todo.push(Todo::Cut { segment: Arc::clone(&segment), entry });
                }
                self.add_link(entry, segment, footer, false);
                return Ok(());
            }
            Err(FooterFault::Unusable(Unusable::Later(what))) => {
                return Err(OpenError::Unknown { file: name, what });
            }
            Err(why) => why,
        };
        self.options.report.say(&format!("segment {name} {why}: reading all of it"));
        let builder = scan_sealed(&segment, &entry)?;
        match why {
            FooterFault::None => {
                self.plan_aside(&segment, &entry, len)?;
                self.plan_seal(at, entry, segment, entry.data_end, builder, None);
            }
            FooterFault::Unusable(_) => {
                self.report.unusable += 1;
                self.plan_seal(at, entry, segment, entry.data_end, builder, Some(len))
            }
            // It may be whole: nothing is written over it.
            FooterFault::Io(_) => {
                self.report.unusable += 1;
                self.add_link(entry, segment, just_made(&builder, &entry), true);
            }
        }
        Ok(())
    }

    /// A sealed segment without a footer may still have a torn tail behind its frames, for which
    /// there was no room in `torn/`: it is set aside before a footer is written over it.
    fn plan_aside(
        &mut self,
        segment: &Arc<Segment>,
        entry: &SegmentEntry,
        len: u64,
    ) -> Result<(), OpenError> {
        let from = entry.data_end;
        let beyond = look_beyond(segment, from, len).map_err(io_context(entry.file_name()))?;
        if beyond.end > from && !is_footer(segment, from, &beyond)? {
            self.todo.push(Todo::SetAside { segment: Arc::clone(segment), from, beyond });
        }
        Ok(())
    }

    /// Notes that a segment is to be sealed where its frames end. `old_footer` is the length of a
    /// file whose footer cannot be used and is set aside before another one is written over it.
    pub(super) fn plan_seal(
        &mut self,
        at: usize,
        mut entry: SegmentEntry,
        segment: Arc<Segment>,
        data_end: u64,
        builder: FooterBuilder,
        old_footer: Option<u64>,
    ) {
        entry.end = builder.end();
        entry.data_end = data_end;
        (entry.footer_len, entry.footer_crc, entry.allocated) = (0, 0, 0);
        entry.state = SegmentState::Sealed;
        self.catalog.segments[at] = entry;
        let footer = just_made(&builder, &entry);
        self.add_link(entry, Arc::clone(&segment), footer, true);
        self.todo.push(Todo::Seal { id: entry.id, segment, data_end, builder, old_footer });
    }

    fn add_link(
        &mut self,
        entry: SegmentEntry,
        segment: Arc<Segment>,
        footer: Footer,
        only_here: bool,
    ) {
        let info = SegmentInfo::new(Arc::clone(&segment), entry.data_end, entry.end);
        let info = if entry.compacted { info.compacted(&footer) } else { info };
        self.segments.insert(SegmentInfo { sealed: true, ..info });
        let marks = footer.marks.clone();
        let streams = footer.streams().iter().map(|stream| stream.stream).collect();
        self.footer_bytes += entry.footer_len as usize;
        // One that is not on the disk, or not yet, cannot be read again.
        let keep = self.footer_bytes <= FOOTERS_KEPT_BYTES || only_here;
        self.links.push(Link { entry, segment, marks, streams, footer: keep.then_some(footer) });
    }
}

/// Reads the frames of a segment of the chain up to `limit`, or to the first that is not good; one of a
/// later version is refused.
pub(super) fn frames_of(
    segment: &Arc<Segment>,
    entry: &SegmentEntry,
    limit: u64,
    visit: impl FnMut(&GoodFrame<'_>) -> Result<(), OpenError>,
) -> Result<FramesEnd, OpenError> {
    frames_on(FrameScanner::new(Arc::clone(segment), limit), entry, visit)
}

/// As [`frames_of`], of the frames that a scanner has before it.
pub(super) fn frames_on(
    scan: FrameScanner,
    entry: &SegmentEntry,
    visit: impl FnMut(&GoodFrame<'_>) -> Result<(), OpenError>,
) -> Result<FramesEnd, OpenError> {
    let unreadable = |error| io_context(format!("segment {}", entry.file_name()))(error);
    let end = read_on(scan, unreadable, visit)?;
    match end.fault {
        Some(FrameFault::Unknown) => {
            Err(OpenError::Unknown { file: entry.file_name(), what: Later::Frame })
        }
        Some(FrameFault::Key(id)) => {
            Err(OpenError::Unknown { file: entry.file_name(), what: Later::Key(id) })
        }
        _ => Ok(end),
    }
}

/// As [`frames_of`] for a sealed segment, where any damage is an error.
pub(super) fn sealed_frames(
    segment: &Arc<Segment>,
    entry: &SegmentEntry,
    visit: impl FnMut(&GoodFrame<'_>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let end = frames_of(segment, entry, entry.data_end, visit)?;
    match end.fault {
        Some(fault) => Err(damage(entry, end.offset, end.next, DamageKind::Frame(fault))),
        None if !entry.compacted && end.next != entry.end.next() => {
            Err(damage(entry, entry.data_end, end.next, DamageKind::MissingFrames))
        }
        None => Ok(()),
    }
}

/// Reads every frame of a sealed segment that has no footer to go by.
fn scan_sealed(segment: &Arc<Segment>, entry: &SegmentEntry) -> Result<FooterBuilder, OpenError> {
    let mut builder = FooterBuilder::new(entry.id, entry.base).compacted(entry.compacted);
    sealed_frames(segment, entry, |frame| add_frame(&mut builder, frame, entry))?;
    if entry.compacted {
        builder.set_end(entry.end);
    }
    Ok(builder)
}

/// Takes a frame into a footer that is being made.
pub(super) fn add_frame(
    builder: &mut FooterBuilder,
    frame: &GoodFrame<'_>,
    entry: &SegmentEntry,
) -> Result<(), OpenError> {
    let (at, lsn) = (u32::try_from(frame.offset).unwrap_or(u32::MAX), frame.header.lsn);
    let added = builder.add_frame(frame.body(), lsn, at);
    added.map_err(|why| no_records(entry, frame.offset, lsn, why))
}

pub(super) fn just_made(builder: &FooterBuilder, entry: &SegmentEntry) -> Footer {
    let parsed = Footer::parse(builder.encode().0, entry.id, &Keyring::default());
    parsed.expect("a footer that was just made is valid")
}
