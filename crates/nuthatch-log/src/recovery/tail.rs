//! The segment that was open when the log stopped: its end is found by scanning, torn bytes are set
//! aside, and it is sealed where its good frames end.

use super::{DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::segment::footer::FOOTER_MAGIC;
use crate::segment::scan::{Beyond, look_beyond};
use crate::segment::{FooterBuilder, FrameScanner, Scanned, Segment};
use crate::store::TORN_DIR;
use std::io;
use std::sync::Arc;

/// Torn tails kept in `torn/` for somebody to look at, the newest ones.
const TORN_TAILS_MAX: usize = 32;
/// Their bytes: above this fewer are kept.
const TORN_BYTES_MAX: u64 = 64 << 20;
/// So many are kept however large they are.
const TORN_TAILS_MIN: usize = 4;

/// Where the good frames of the open segment end.
struct End {
    offset: u64,
    expected: Lsn,
    fault: Option<FrameFault>,
}

impl<M: Machine> Recovery<M> {
    pub(super) fn open_tail(&mut self, at: usize, entry: SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let name = entry.file_name();
        let limit = segment.file.len().map_err(io_context(name))?;
        let mut builder = FooterBuilder::new(entry.id, entry.base);
        let end = self.scan_tail(&segment, &entry, limit, &mut builder)?;
        self.cut(&segment, &entry, &end, limit)?;
        if end.expected == entry.base {
            return self.drop_empty(&entry);
        }
        self.seal(at, entry, segment, end.offset, &builder)
    }

    /// A segment whose first frame was never completely written leaves the chain. The catalog knows it
    /// until its file is gone: what is left of it after a crash, which may be frames that overtook the
    /// first one, would be newer than a catalog that does not.
    fn drop_empty(&mut self, entry: &SegmentEntry) -> Result<(), OpenError> {
        self.report.segments -= 1;
        let dropped = self.catalog.entry_mut(entry.id).expect("it is being looked at");
        dropped.state = SegmentState::Removed;
        self.catalog.store(&*self.disk).map_err(io_context("catalog"))?;
        self.disk.remove(&entry.file_name()).map_err(io_context(entry.file_name()))?;
        self.disk.sync_dir("").map_err(io_context("the directory"))?;
        self.catalog.segments.retain(|other| other.id != entry.id);
        self.catalog.store(&*self.disk).map_err(io_context("catalog"))
    }

    fn scan_tail(
        &mut self,
        segment: &Arc<Segment>,
        entry: &SegmentEntry,
        limit: u64,
        builder: &mut FooterBuilder,
    ) -> Result<End, OpenError> {
        let mut scan = FrameScanner::new(Arc::clone(segment), limit);
        let mut offset = segment.first_offset();
        loop {
            let fault = match self.step(&mut scan, entry)? {
                Scanned::Frame(header, at) => {
                    self.add_frame(builder, &scan, header.lsn, at, entry)?;
                    offset = at + header.padded_len(segment.header.block_bytes as usize) as u64;
                    continue;
                }
                Scanned::Fault(fault, _) => Some(fault),
                Scanned::End => None,
            };
            return Ok(End { offset, expected: scan.expected(), fault });
        }
    }

    /// Decides whether what lies behind the last good frame is a torn tail, and keeps it aside. A
    /// later frame that vouches for the missing one proves damage instead.
    fn cut(
        &mut self,
        segment: &Segment,
        entry: &SegmentEntry,
        end: &End,
        limit: u64,
    ) -> Result<(), OpenError> {
        let name = entry.file_name();
        let beyond = look_beyond(segment, end.offset, limit);
        let beyond = beyond.map_err(io_context(name.clone()))?;
        if beyond.durable >= end.expected {
            let kind = DamageKind::Frame(end.fault.unwrap_or(FrameFault::Short));
            return Err(damage(entry, end.offset, end.expected, kind));
        }
        if beyond.end > end.offset && !is_footer(segment, end.offset, &beyond)? {
            self.set_aside(segment, &name, end.offset, &beyond).map_err(io_context(name))?;
        }
        Ok(())
    }

    fn set_aside(
        &mut self,
        segment: &Segment,
        name: &str,
        from: u64,
        beyond: &Beyond,
    ) -> io::Result<()> {
        let len = usize::try_from(beyond.end - from).unwrap_or(usize::MAX);
        let bytes = segment.file.read_shared(from, len)?;
        self.trim_torn()?;
        let aside = self.disk.create(&format!("{TORN_DIR}/{name}-{from}"))?;
        aside.write_at(&bytes, 0)?;
        aside.sync()?;
        self.disk.sync_dir(TORN_DIR)?;
        self.report.torn_frames += beyond.frames.max(1);
        self.report.torn_bytes += len as u64;
        Ok(())
    }

    /// Removes the oldest torn tails if there are too many, and says so. Files that recovery found
    /// and does not know stay: only somebody who looks at them can say what they are worth.
    fn trim_torn(&self) -> io::Result<()> {
        let mut tails = Vec::new();
        let mut bytes = 0;
        for name in self.disk.list(TORN_DIR)?.into_iter().filter(|name| name.contains(".seg-")) {
            let path = format!("{TORN_DIR}/{name}");
            let len = self.disk.open(&path)?.len()?;
            bytes += len;
            tails.push((path, len));
        }
        // Names begin with generation and position: they sort by age.
        let mut left = tails.len();
        for (path, len) in tails {
            let many = left >= TORN_TAILS_MAX || bytes > TORN_BYTES_MAX;
            if !many || left < TORN_TAILS_MIN {
                break;
            }
            self.options
                .report
                .say(&format!("{path}, an old torn tail of {len} bytes, is removed"));
            self.disk.remove(&path)?;
            (left, bytes) = (left - 1, bytes - len);
        }
        Ok(())
    }
}

/// Whether what lies behind the last frame is a footer: the segment had been ended, and only the
/// catalog does not know. It is made again.
fn is_footer(segment: &Segment, at: u64, beyond: &Beyond) -> Result<bool, OpenError> {
    if beyond.frames > 0 {
        return Ok(false);
    }
    let magic = segment.file.read_shared(at, FOOTER_MAGIC.len());
    let magic = magic.map_err(io_context(segment.header.file_name()))?;
    Ok(magic[..] == FOOTER_MAGIC)
}
