//! The segment that was open when the log stopped: its end is found by scanning, and it is to be
//! sealed where its good frames end. What lies behind them is a torn tail, or proves damage.

use super::chain_check::{add_frame, frames_of};
use super::settle::Todo;
use super::{DamageKind, FrameFault, Machine, OpenError, Recovery, damage, io_context};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::again;
use crate::rules::{CHECK_ALLOCATED, CHECK_VOUCHED, READ_PAST_CACHES};
use crate::segment::footer::FOOTER_MAGIC;
use crate::segment::reader::FramesEnd;
use crate::segment::scan::{Beyond, look_beyond};
use crate::segment::{FooterBuilder, Segment};
use std::sync::Arc;

impl<M: Machine> Recovery<M> {
    pub(super) fn open_tail(&mut self, at: usize, entry: SegmentEntry) -> Result<(), OpenError> {
        let segment = self.open_segment(&entry)?;
        let name = entry.file_name();
        if !self.catalog.clean && READ_PAST_CACHES.holds() {
            segment.file.reread().map_err(io_context(name.clone()))?;
        }
        let limit = again(|| segment.file.len()).map_err(io_context(name))?;
        let mut builder = FooterBuilder::new(entry.id, entry.base);
        let mut last = None;
        let end = frames_of(&segment, &entry, limit, |frame| {
            last = Some(frame.offset);
            add_frame(&mut builder, frame, &entry)
        })?;
        self.tail_end = Some((end.point, last));
        self.end_tail((at, entry), segment, (&end, limit), builder)
    }

    /// The frames of the segment that was open end there, in a file of `limit` bytes, and are in `builder`.
    pub(super) fn end_tail(
        &mut self,
        (at, entry): (usize, SegmentEntry),
        segment: Arc<Segment>,
        (end, limit): (&FramesEnd, u64),
        builder: FooterBuilder,
    ) -> Result<(), OpenError> {
        self.judge(&segment, &entry, end, limit)?;
        if end.next == entry.base {
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

    /// Decides whether what lies behind the last good frame is a torn tail, which is to be kept aside.
    /// A later frame that vouches for the missing one proves damage instead, and so does a file that
    /// is shorter than it was.
    fn judge(
        &mut self,
        segment: &Arc<Segment>,
        entry: &SegmentEntry,
        end: &FramesEnd,
        limit: u64,
    ) -> Result<(), OpenError> {
        let name = entry.file_name();
        let beyond = look_beyond(segment, end.offset, limit);
        let beyond = beyond.map_err(io_context(name))?;
        if beyond.durable >= end.next && CHECK_VOUCHED.holds() {
            let kind = DamageKind::Frame(end.fault.unwrap_or(FrameFault::Short));
            return Err(damage(entry, end.offset, end.next, kind));
        }
        if limit < entry.allocated && CHECK_ALLOCATED.holds() {
            return Err(damage(entry, limit, end.next, DamageKind::Short));
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
