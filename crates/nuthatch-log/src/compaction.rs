//! Giving dead space back: segments that hold mostly dead messages are rewritten into one that
//! holds only the live ones; segments without a live message are removed.
//!
//! The steps, of which a crash may separate any two: survey what the segments hold; ask the machine
//! what is live; log the states of all streams concerned and make them durable; write the new
//! segment under a temporary name, sync, rename; enter it into the catalog in place of the old ones;
//! only then remove those. States come first because the dropped records (deletes, purges, expired
//! messages) were what replay would have needed otherwise.

mod pace;
mod rewrite;

pub use pace::Pace;
pub use rewrite::{RewriteJob, Rewritten, forget_removed};

use crate::segment::footer::FooterStream;
use crate::segment::{Footer, FooterBuilder, FrameScanner, Scanned, Segment, SegmentId};
use crate::types::{Lsn, Seq, StreamId};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// A segment to be compacted.
#[derive(Clone)]
pub struct Victim {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Where its frames end.
    pub data_end: u64,
    /// Last position it stands for.
    pub end: Lsn,
}

/// Why a compaction was given up. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CompactionFault {
    /// The disk failed, or is full.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A frame of a segment is damaged.
    #[error("segment {segment:?} is damaged at offset {offset}")]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// Where.
        offset: u64,
    },
}

/// What segments hold.
pub struct Survey {
    /// The segments, in the order of positions.
    pub victims: Vec<Victim>,
    /// Every stream with any record in them.
    pub streams: Vec<StreamId>,
    /// Their messages: stream, sequence, weight.
    pub messages: Vec<(StreamId, Seq, u32)>,
}

/// Finds out what segments hold.
///
/// # Errors
/// [`CompactionFault`].
pub fn survey(victims: Vec<Victim>, mut pace: Pace) -> Result<Survey, CompactionFault> {
    let (mut streams, mut messages) = (BTreeSet::new(), Vec::new());
    for victim in &victims {
        let footer = footer_of(victim, &mut pace)?;
        for stream in footer.streams() {
            streams.insert(stream.stream);
            collect(&footer, stream, &mut messages);
        }
    }
    streams.remove(&StreamId::LOG);
    let streams = streams.into_iter().collect();
    Ok(Survey { victims, streams, messages })
}

fn collect(footer: &Footer, stream: &FooterStream, out: &mut Vec<(StreamId, Seq, u32)>) {
    footer.for_each_message(stream, |message| {
        out.push((stream.stream, message.seq, message.weight));
    });
}

/// The footer of a segment, from its file or from its frames.
fn footer_of(victim: &Victim, pace: &mut Pace) -> Result<Footer, CompactionFault> {
    let file = &victim.segment.file;
    let after = file.len()?.saturating_sub(victim.data_end);
    let len = usize::try_from(after).unwrap_or(0);
    let bytes = file.read_shared(victim.data_end, len)?.to_vec();
    if let Some(footer) = Footer::parse(bytes, victim.segment.id()) {
        return Ok(footer);
    }
    let mut builder = FooterBuilder::new(victim.segment.id(), victim.segment.header.base);
    for_each_frame(victim, pace, &mut |body, lsn, offset| {
        builder.add_frame(body, lsn, offset);
    })?;
    let offset = victim.data_end;
    let damaged = CompactionFault::Damaged { segment: victim.segment.id(), offset };
    Footer::parse(builder.encode().0, victim.segment.id()).ok_or(damaged)
}

/// Calls `visit` with the records of each frame, its position and its offset.
fn for_each_frame(
    victim: &Victim,
    pace: &mut Pace,
    visit: &mut dyn FnMut(&[u8], Lsn, u32),
) -> Result<(), CompactionFault> {
    let mut scan = FrameScanner::new(Arc::clone(&victim.segment), victim.data_end);
    loop {
        match scan.step()? {
            Scanned::Frame(header, offset) => {
                let body = &scan.frame()[crate::frame::FRAME_HEADER_BYTES..];
                visit(body, header.lsn, u32::try_from(offset).unwrap_or(u32::MAX));
                pace.step();
            }
            Scanned::Fault(_, offset) => {
                return Err(CompactionFault::Damaged { segment: victim.segment.id(), offset });
            }
            Scanned::End => return Ok(()),
        }
    }
}
