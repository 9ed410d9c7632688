//! First pass over the chain: every file is there and is what the catalog says, every footer is at
//! hand, the end is found.

use super::settle::Todo;
use super::tail::is_footer;
use super::{
    DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context, no_records,
};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::{DiskFile, again, read_exact_at};
use crate::later::{Later, Unusable};
use crate::segment::scan::look_beyond;
use crate::segment::{
    Footer, FooterBuilder, FrameScanner, HeaderFault, Mark, Scanned, Segment, SegmentHeader,
};
use crate::sequencer::SegmentInfo;
use crate::types::StreamId;
use std::io;
use std::sync::Arc;

/// Footers are kept in memory between the passes up to this many bytes; others are read again. They
/// are dropped one by one while the machine's own tables, which are larger, grow.
const FOOTERS_KEPT_BYTES: usize = 1024 * 1024 * 1024;

/// A segment's file and what its first block says.
pub(super) type Head = (Arc<dyn DiskFile>, Result<SegmentHeader, HeaderFault>);

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
        let (file, header) = self.head_of(name).map_err(io_context(name))?;
        let header = match header {
            Ok(header) => header,
            Err(HeaderFault::Later(what)) => {
                return Err(OpenError::Unknown { file: name.to_owned(), what });
            }
            Err(HeaderFault::Damaged) => return Ok(false),
        };
        if header.log_id != self.catalog.log_id || header.base <= newest {
            return Ok(false);
        }
        let len = file.len().map_err(io_context(name))?;
        let segment = Segment { header, file };
        let from = segment.first_offset();
        let beyond = look_beyond(&segment, from, len);
        Ok(beyond.map_err(io_context(name))?.frames > 0)
    }

    /// A file and what its first block says.
    pub(super) fn head_of(&self, name: &str) -> io::Result<Head> {
        let file = again(|| self.disk.open(name))?;
        let mut head = [0; crate::segment::SEGMENT_HEADER_BYTES];
        let n = again(|| file.read_at(&mut head, 0))?;
        Ok((file, SegmentHeader::decode(&head[..n])))
    }

    pub(super) fn open_segment(&mut self, entry: &SegmentEntry) -> Result<Arc<Segment>, OpenError> {
        let name = entry.file_name();
        let (file, header) = match self.head_of(&name) {
            Ok(head) => head,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing { segment: name, base: entry.base, end: entry.end });
            }
            Err(error) => return Err(io_context(format!("segment {name}"))(error)),
        };
        match header {
            Ok(header) if matches(&header, entry, self.catalog.log_id) => {
                self.report.segments += 1;
                Ok(Arc::new(Segment { header, file }))
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
        let builder = self.scan_sealed(&segment, &entry)?;
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
        builder.add_frame(body, lsn, at).map_err(|why| no_records(entry, offset, lsn, why))
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

    pub(super) fn step(
        &self,
        scan: &mut FrameScanner,
        entry: &SegmentEntry,
    ) -> Result<Scanned, OpenError> {
        let scanned = scan
            .step()
            .map_err(|error| io_context(format!("segment {}", entry.file_name()))(error))?;
        if let Scanned::Fault(FrameFault::Unknown, _) = scanned {
            return Err(OpenError::Unknown { file: entry.file_name(), what: Later::Frame });
        }
        Ok(scanned)
    }
}

/// Why a sealed segment's footer is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FooterFault {
    /// There was no room for one.
    #[error("has no footer")]
    None,
    /// The disk failed: it may be whole.
    #[error("has a footer that cannot be read ({0})")]
    Io(io::Error),
    /// What was read says so.
    #[error("has no usable footer ({0})")]
    Unusable(Unusable),
}

/// A sealed segment's footer.
pub(super) fn read_footer(segment: &Segment, entry: &SegmentEntry) -> Result<Footer, FooterFault> {
    if entry.footer_len == 0 {
        return Err(FooterFault::None);
    }
    let read = || read_exact_at(&*segment.file, entry.data_end, entry.footer_len as usize);
    let footer = match again(read) {
        Ok(bytes) => Footer::parse(bytes, entry.id).map_err(FooterFault::Unusable)?,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(FooterFault::Unusable(Unusable::Damaged("the file ends in it")));
        }
        Err(error) => return Err(FooterFault::Io(error)),
    };
    if footer.end() == entry.end {
        Ok(footer)
    } else {
        Err(FooterFault::Unusable(Unusable::Damaged("it ends with another position")))
    }
}

fn just_made(builder: &FooterBuilder, entry: &SegmentEntry) -> Footer {
    Footer::parse(builder.encode().0, entry.id).expect("a footer that was just made is valid")
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
