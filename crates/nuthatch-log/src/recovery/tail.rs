//! The segment that was open when the log stopped: its end is found by scanning, torn bytes are set
//! aside, and it is sealed where its good frames end.

use super::{
    Catalog, DamageKind, FrameFault, FrameScanner, Lsn, Machine, OpenError, Recovery, Scanned,
    Segment, SegmentEntry, SegmentState, damage, io_context,
};
use crate::segment::scan::{Beyond, look_beyond};
use crate::store::TORN_DIR;
use std::io;
use std::sync::Arc;

impl<M: Machine> Recovery<M> {
    pub(super) fn replay_open(&mut self, at: usize, entry: &SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(entry)?;
        let name = entry.file_name();
        let limit = segment.file.len().map_err(io_context(name.clone()))?;
        let mut scan = FrameScanner::new(Arc::clone(&segment), limit);
        let mut data_end = segment.first_offset();
        let fault = loop {
            match self.step(&mut scan, entry)? {
                Scanned::Frame(header, offset) => {
                    self.replay_frame(scan.frame(), header.lsn, entry, offset)?;
                    data_end =
                        offset + header.padded_len(segment.header.block_bytes as usize) as u64;
                }
                Scanned::Fault(fault, offset) => {
                    data_end = offset;
                    break Some(fault);
                }
                Scanned::End => break None,
            }
        };
        let data_end = data_end.min(limit);
        let end = Lsn(scan.expected().0 - 1);
        self.cut(&segment, entry, data_end, limit, fault, scan.expected())?;
        self.insert_segment(&segment, data_end, end);
        self.seal_in_catalog(at, end, data_end)
    }

    /// Decides whether what lies behind the last good frame is a torn tail, and cuts it off.
    fn cut(
        &mut self,
        segment: &Segment,
        entry: &SegmentEntry,
        data_end: u64,
        limit: u64,
        fault: Option<FrameFault>,
        expected: Lsn,
    ) -> Result<(), OpenError> {
        let name = entry.file_name();
        let beyond = look_beyond(segment, data_end, limit).map_err(io_context(name.clone()))?;
        if beyond.durable >= expected {
            let kind = DamageKind::Frame(fault.unwrap_or(FrameFault::Short));
            return Err(damage(entry, data_end, expected, kind));
        }
        if beyond.end > data_end {
            self.set_aside(segment, &name, data_end, &beyond).map_err(io_context(name.clone()))?;
        }
        let shorten = || {
            segment.file.set_len(data_end)?;
            segment.file.sync()
        };
        shorten().map_err(io_context(name))
    }

    fn set_aside(
        &mut self,
        segment: &Segment,
        name: &str,
        data_end: u64,
        beyond: &Beyond,
    ) -> io::Result<()> {
        let len = usize::try_from(beyond.end - data_end).unwrap_or(usize::MAX);
        let bytes = segment.file.read_shared(data_end, len)?;
        let aside = self.disk.create(&format!("{TORN_DIR}/{name}-{data_end}"))?;
        aside.write_at(&bytes, 0)?;
        aside.sync()?;
        self.disk.sync_dir(TORN_DIR)?;
        self.report.torn_frames += beyond.frames.max(1);
        self.report.torn_bytes += len as u64;
        Ok(())
    }

    fn seal_in_catalog(&mut self, at: usize, end: Lsn, data_end: u64) -> Result<(), OpenError> {
        let mut next: Catalog = self.catalog.clone();
        next.segments[at].end = end;
        next.segments[at].data_end = data_end;
        next.segments[at].state = SegmentState::Sealed;
        next.store(&*self.disk).map_err(io_context("catalog"))?;
        self.catalog = next;
        Ok(())
    }
}
