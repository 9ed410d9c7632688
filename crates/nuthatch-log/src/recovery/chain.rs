//! First pass over the chain: every file is there and is what the catalog says, every footer is at
//! hand, the end is found.

use super::{DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::compaction::forget_removed;
use crate::env::{DiskFile, read_exact_at};
use crate::segment::writer::{FooterRef, append_footer};
use crate::segment::{
    Footer, FooterBuilder, FrameScanner, HeaderFault, Mark, Scanned, Segment, SegmentHeader,
};
use crate::sequencer::SegmentInfo;
use crate::store::TORN_DIR;
use crate::types::StreamId;
use std::io;
use std::sync::Arc;

/// Footers are kept in memory between the passes up to this many bytes; others are read again. They
/// are dropped one by one while the machine's own tables, which are larger, grow.
const FOOTERS_KEPT_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes that are looked at at a time where a file may be all zeros.
const BLANK_STEP_BYTES: usize = 1024 * 1024;

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
        let names = self.disk.list("").map_err(io_context("listing files"))?;
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
            if !known && self.is_newer(name, newest).map_err(io_context(name.clone()))? {
                return Err(OpenError::Stale { segment: name.clone() });
            }
        }
        Ok(())
    }

    /// Whether a file is a segment of this log with frames behind those that the catalog knows.
    fn is_newer(&self, name: &str, newest: Lsn) -> io::Result<bool> {
        let file = self.disk.open(name)?;
        let len = file.len()?;
        let mut head = [0; crate::segment::SEGMENT_HEADER_BYTES];
        let n = file.read_at(&mut head, 0)?;
        let Ok(header) = SegmentHeader::decode(&head[..n]) else { return Ok(false) };
        if header.log_id != self.catalog.log_id || header.base <= newest {
            return Ok(false);
        }
        let segment = Segment { header, file };
        let from = segment.first_offset();
        Ok(crate::segment::scan::look_beyond(&segment, from, len)?.frames > 0)
    }

    /// Removes what earlier steps left half done: inputs of a compaction that was published, and
    /// a segment that was named but never entered into the catalog. The latter goes only if there
    /// is no frame in it; otherwise it is set aside.
    pub(super) fn clear_leftovers(&mut self) -> Result<(), OpenError> {
        for name in self.disk.list("").map_err(io_context("listing files"))? {
            if !name.ends_with(".seg") {
                continue;
            }
            let known = self.catalog.segments.iter().find(|entry| entry.file_name() == name);
            let result = match known.map(|entry| entry.state) {
                None => self.clear_orphan(&name),
                Some(SegmentState::Removed | SegmentState::Replaced) => self.disk.remove(&name),
                Some(SegmentState::Open | SegmentState::Sealed) => Ok(()),
            };
            result.map_err(io_context(name))?;
        }
        self.forget_replaced()
    }

    /// Entries of inputs whose files are gone now say nothing any more, nor do those of segments that
    /// never held a frame.
    fn forget_replaced(&mut self) -> Result<(), OpenError> {
        let never_held =
            |entry: &SegmentEntry| entry.state == SegmentState::Removed && entry.end < entry.base;
        let is_over =
            |entry: &SegmentEntry| entry.state == SegmentState::Replaced || never_held(entry);
        if !self.catalog.segments.iter().any(is_over) {
            return Ok(());
        }
        let mut next = self.catalog.clone();
        next.segments.retain(|entry| !never_held(entry));
        forget_removed(&mut next, &|_| true);
        self.disk.sync_dir("").map_err(io_context("the directory"))?;
        next.store(&*self.disk).map_err(io_context("catalog"))?;
        self.catalog = next;
        Ok(())
    }

    /// Whether a file that the catalog does not know is the output of a compaction that ended before
    /// it was entered: everything in it is still in its inputs, which the catalog knows. Not if any
    /// file of the chain is missing: then the catalog may be an old one, and this the only copy.
    fn is_unfinished_compaction(&self, header: &SegmentHeader) -> bool {
        let mut chain =
            self.catalog.segments.iter().filter(|entry| entry.state == SegmentState::Sealed);
        header.compacted
            && header.log_id == self.catalog.log_id
            && chain.clone().any(|entry| (entry.base..=entry.end).contains(&header.base))
            && chain.all(|entry| self.disk.open(&entry.file_name()).is_ok())
    }

    fn clear_orphan(&self, name: &str) -> io::Result<()> {
        let file = self.disk.open(name)?;
        let len = file.len()?;
        let mut head = [0; crate::segment::SEGMENT_HEADER_BYTES];
        let n = file.read_at(&mut head, 0)?;
        let has_frames = match SegmentHeader::decode(&head[..n]) {
            // In a bucket the first block may be missing alone.
            Err(_) => !is_blank(&*file, len)?,
            Ok(header) if self.is_unfinished_compaction(&header) => false,
            Ok(header) => {
                let segment = Segment { header, file };
                let from = segment.first_offset();
                crate::segment::scan::look_beyond(&segment, from, len)?.frames > 0
            }
        };
        if !has_frames {
            return self.disk.remove(name);
        }
        self.options.report.say(&format!("{name} does not belong to the log: set aside"));
        self.disk.rename(name, &format!("{TORN_DIR}/{name}"))?;
        self.disk.sync_dir(TORN_DIR)
    }

    pub(super) fn open_segment(&mut self, entry: &SegmentEntry) -> Result<Arc<Segment>, OpenError> {
        let name = entry.file_name();
        let file = match self.disk.open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing { segment: name, base: entry.base, end: entry.end });
            }
            Err(error) => return Err(io_context(format!("segment {name}"))(error)),
        };
        let mut head = [0; crate::segment::SEGMENT_HEADER_BYTES];
        let n = file.read_at(&mut head, 0).map_err(io_context(format!("segment {name}")))?;
        match SegmentHeader::decode(&head[..n]) {
            Ok(header) if matches(&header, entry, self.catalog.log_id) => {
                self.report.segments += 1;
                Ok(Arc::new(Segment { header, file }))
            }
            Ok(_) | Err(HeaderFault::Damaged) => {
                Err(damage(entry, 0, entry.base, DamageKind::SegmentHeader))
            }
            Err(HeaderFault::Version(version)) => {
                Err(OpenError::Unknown { segment: name, what: format!("version {version}") })
            }
        }
    }

    fn open_sealed(&mut self, at: usize, entry: SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let len = segment.file.len().map_err(io_context(entry.file_name()))?;
        if len < entry.data_end {
            return Err(damage(&entry, len, entry.end, DamageKind::Short));
        }
        if let Some(footer) = read_footer(&segment, &entry) {
            self.add_link(entry, segment, footer);
            return Ok(());
        }
        self.options
            .report
            .say(&format!("segment {} has no usable footer: reading all of it", entry.file_name()));
        let builder = self.scan_sealed(&segment, &entry)?;
        self.seal(at, entry, segment, entry.data_end, &builder)
    }

    /// Reads every frame of a sealed segment, where any damage is an error.
    fn scan_sealed(
        &mut self,
        segment: &Arc<Segment>,
        entry: &SegmentEntry,
    ) -> Result<FooterBuilder, OpenError> {
        let mut builder = FooterBuilder::new(entry.id, entry.base).compacted(entry.compacted);
        let mut scan = FrameScanner::new(Arc::clone(segment), entry.data_end);
        loop {
            match self.step(&mut scan, entry)? {
                Scanned::Frame(header, offset) => {
                    self.add_frame(&mut builder, &scan, header.lsn, offset, entry)?;
                }
                Scanned::Fault(fault, offset) => {
                    return Err(damage(entry, offset, scan.expected(), DamageKind::Frame(fault)));
                }
                Scanned::End => break,
            }
        }
        if entry.compacted {
            builder.set_end(entry.end);
        } else if scan.expected() != entry.end.next() {
            let kind = DamageKind::MissingFrames;
            return Err(damage(entry, entry.data_end, scan.expected(), kind));
        }
        Ok(builder)
    }

    pub(super) fn add_frame(
        &mut self,
        builder: &mut FooterBuilder,
        scan: &FrameScanner,
        lsn: Lsn,
        offset: u64,
        entry: &SegmentEntry,
    ) -> Result<(), OpenError> {
        let body = &scan.frame()[crate::frame::FRAME_HEADER_BYTES..];
        let at = u32::try_from(offset).unwrap_or(u32::MAX);
        if builder.add_frame(body, lsn, at) {
            Ok(())
        } else {
            Err(damage(entry, offset, lsn, DamageKind::Record))
        }
    }

    /// Gives a segment its footer and enters its end into the catalog.
    pub(super) fn seal(
        &mut self,
        at: usize,
        mut entry: SegmentEntry,
        segment: Arc<Segment>,
        data_end: u64,
        builder: &FooterBuilder,
    ) -> Result<(), OpenError> {
        let name = entry.file_name();
        let written = append_footer(&*segment.file, data_end, builder);
        let FooterRef { len, crc } = written.map_err(io_context(name))?;
        entry.end = builder.end();
        entry.data_end = data_end;
        (entry.footer_len, entry.footer_crc) = (len, crc);
        entry.state = SegmentState::Sealed;
        let mut next = self.catalog.clone();
        next.segments[at] = entry;
        next.store(&*self.disk).map_err(io_context("catalog"))?;
        self.catalog = next;
        let footer = Footer::parse(builder.encode().0, entry.id);
        self.add_link(entry, segment, footer.expect("a footer that was just made is valid"));
        Ok(())
    }

    fn add_link(&mut self, entry: SegmentEntry, segment: Arc<Segment>, footer: Footer) {
        let info = SegmentInfo::new(Arc::clone(&segment), entry.data_end, entry.end);
        let info = if entry.compacted { info.compacted(&footer) } else { info };
        self.segments.insert(SegmentInfo { sealed: true, ..info });
        let marks = footer.marks.clone();
        let streams = footer.streams().iter().map(|stream| stream.stream).collect();
        self.footer_bytes += entry.footer_len as usize;
        // One that found no room on the disk cannot be read again.
        let keep = self.footer_bytes <= FOOTERS_KEPT_BYTES || entry.footer_len == 0;
        self.links.push(Link { entry, segment, marks, streams, footer: keep.then_some(footer) });
    }

    pub(super) fn step(
        &self,
        scan: &mut FrameScanner,
        entry: &SegmentEntry,
    ) -> Result<Scanned, OpenError> {
        let scanned = scan
            .step()
            .map_err(|error| io_context(format!("segment {}", entry.file_name()))(error))?;
        if let Scanned::Fault(FrameFault::Unknown, _) = scanned {
            let what = "flags or a key of a later version".to_owned();
            return Err(OpenError::Unknown { segment: entry.file_name(), what });
        }
        Ok(scanned)
    }
}

/// Whether all of a file reads as zeros.
fn is_blank(file: &dyn DiskFile, len: u64) -> io::Result<bool> {
    let mut chunk = vec![0; BLANK_STEP_BYTES];
    let mut at = 0;
    while at < len {
        let n = file.read_at(&mut chunk, at)?;
        if n == 0 || chunk[..n].iter().any(|byte| *byte != 0) {
            return Ok(n == 0);
        }
        at += n as u64;
    }
    Ok(true)
}

/// A sealed segment's footer, if it has one that is whole.
pub(super) fn read_footer(segment: &Segment, entry: &SegmentEntry) -> Option<Footer> {
    if entry.footer_len == 0 {
        return None;
    }
    let bytes = read_exact_at(&*segment.file, entry.data_end, entry.footer_len as usize).ok()?;
    let footer = Footer::parse(bytes, entry.id)?;
    (footer.end() == entry.end).then_some(footer)
}

fn matches(header: &SegmentHeader, entry: &SegmentEntry, log_id: u64) -> bool {
    header.log_id == log_id
        && header.id == entry.id
        && header.epoch == entry.epoch
        && header.base == entry.base
        && header.salt == entry.salt
        && header.compacted == entry.compacted
        && header.block_bytes.is_power_of_two()
}
