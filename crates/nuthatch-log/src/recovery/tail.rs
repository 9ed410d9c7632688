//! The segment that was open when the log stopped: its end is found by scanning, and it is to be
//! sealed where its good frames end. What lies behind them is a torn tail, or proves damage.

use super::settle::Todo;
use super::{DamageKind, FrameFault, Lsn, Machine, OpenError, Recovery, damage, io_context};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::again;
use crate::rules::{CHECK_ALLOCATED, CHECK_VOUCHED, READ_PAST_CACHES};
use crate::segment::footer::FOOTER_MAGIC;
use crate::segment::scan::{Beyond, look_beyond};
use crate::segment::{FooterBuilder, FrameScanner, Scanned, Segment};
use std::sync::Arc;

/// End of the good frames of the open segment.
struct End {
    offset: u64,
    expected: Lsn,
    fault: Option<FrameFault>,
}

impl<M: Machine> Recovery<M> {
    pub(super) fn open_tail(&mut self, at: usize, entry: SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let name = entry.file_name();
        if !self.catalog.clean && READ_PAST_CACHES.holds() {
            segment.file.reread().map_err(io_context(name.clone()))?;
        }
        let limit = again(|| segment.file.len()).map_err(io_context(name))?;
        let mut builder = FooterBuilder::new(entry.id, entry.base);
        let end = self.scan_tail(&segment, &entry, limit, &mut builder)?;
        self.judge(&segment, &entry, &end, limit)?;
        if end.expected == entry.base {
            self.drop_empty(&entry);
        } else {
            self.plan_seal(at, entry, segment, end.offset, builder, None);
        }
        Ok(())
    }

    /// A segment whose first frame was never completely written leaves the chain. The catalog knows it
    /// until its file is gone: what is left of it after a crash, which may be frames that overtook the
    /// first one, would be newer than a catalog that does not.
    fn drop_empty(&mut self, entry: &SegmentEntry) {
        self.report.segments -= 1;
        let dropped = self.catalog.entry_mut(entry.id).expect("it is being looked at");
        dropped.state = SegmentState::Removed;
        dropped.allocated = 0;
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

    /// Decides whether what lies behind the last good frame is a torn tail, which is to be kept aside.
    /// A later frame that vouches for the missing one proves damage instead, and so does a file that
    /// is shorter than it was.
    fn judge(
        &mut self,
        segment: &Arc<Segment>,
        entry: &SegmentEntry,
        end: &End,
        limit: u64,
    ) -> Result<(), OpenError> {
        let name = entry.file_name();
        let beyond = look_beyond(segment, end.offset, limit);
        let beyond = beyond.map_err(io_context(name))?;
        if beyond.durable >= end.expected && CHECK_VOUCHED.holds() {
            let kind = DamageKind::Frame(end.fault.unwrap_or(FrameFault::Short));
            return Err(damage(entry, end.offset, end.expected, kind));
        }
        if limit < entry.allocated && CHECK_ALLOCATED.holds() {
            return Err(damage(entry, limit, end.expected, DamageKind::Short));
        }
        if beyond.end > end.offset && !is_footer(segment, end.offset, &beyond)? {
            let (segment, from) = (Arc::clone(segment), end.offset);
            self.todo.push(Todo::SetAside { segment, from, beyond });
        }
        Ok(())
    }
}

/// True if what lies behind the last frame is a footer: the segment had been ended, and only the
/// catalog does not know. It is made again.
pub(super) fn is_footer(segment: &Segment, at: u64, beyond: &Beyond) -> Result<bool, OpenError> {
    if beyond.frames > 0 {
        return Ok(false);
    }
    let magic = again(|| segment.file.read_shared(at, FOOTER_MAGIC.len()));
    let magic = magic.map_err(io_context(segment.header.file_name()))?;
    Ok(magic[..] == FOOTER_MAGIC)
}
