//! The segment that was open when the log stopped: its end is found by scanning, torn bytes are set
//! aside, and it is sealed where its good frames end.

use super::{DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context};
use crate::catalog::SegmentEntry;
use crate::segment::scan::{Beyond, look_beyond};
use crate::segment::{FooterBuilder, FrameScanner, Scanned, Segment};
use crate::store::TORN_DIR;
use std::io;
use std::sync::Arc;

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

    /// A segment whose first frame was never completely written leaves the chain.
    fn drop_empty(&mut self, entry: &SegmentEntry) -> Result<(), OpenError> {
        self.report.segments -= 1;
        self.catalog.segments.retain(|other| other.id != entry.id);
        self.catalog.store(&*self.disk).map_err(io_context("catalog"))?;
        self.disk.remove(&entry.file_name()).map_err(io_context(entry.file_name()))
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
        if beyond.end > end.offset {
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
        let aside = self.disk.create(&format!("{TORN_DIR}/{name}-{from}"))?;
        aside.write_at(&bytes, 0)?;
        aside.sync()?;
        self.disk.sync_dir(TORN_DIR)?;
        self.report.torn_frames += beyond.frames.max(1);
        self.report.torn_bytes += len as u64;
        Ok(())
    }
}
