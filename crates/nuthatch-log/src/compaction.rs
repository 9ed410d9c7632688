//! Giving dead space back, and putting together what lies scattered: segments that hold mostly dead
//! messages, and cold ones of many small parts or of messages that compress, are rewritten into ones
//! that hold only the live messages, each stream's together; segments without a live message are
//! removed.
//!
//! The steps, of which a crash may separate any two: survey what the segments hold; ask the machine
//! what is live; log the states of all streams concerned and make them durable; write the new
//! segments under temporary names (in a bucket: without their first block), sync, name them; enter
//! them into the catalog in place of the old ones; only then remove those. States come first because
//! the dropped records (deletes, purges, expired messages) were what replay would have needed
//! otherwise.

mod live;
mod output;
mod pace;
mod plan;
mod rewrite;

pub use live::Live;
pub use pace::Pace;
pub use rewrite::{Packing, RewriteJob, Rewritten, Shape, forget_removed};

use crate::frame::pack::Packer;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, sealed};
use crate::keys::Keyring;
use crate::segment::footer::RowCursor;
use crate::segment::{Footer, FooterBuilder, FrameScanner, Scanned, Segment, SegmentId};
use crate::types::{Lsn, Seq, StreamId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// Stretches of a segment that are compressed to learn whether that pays.
const SAMPLES: usize = 8;

/// Bytes of each.
const SAMPLE_BYTES: usize = 64 * 1024;

/// A segment to be compacted.
#[derive(Clone)]
pub struct CompactionInput {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Offset where its frames end.
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
        /// Its offset.
        offset: u64,
    },
}

/// Contents of segments, by stream.
pub struct Survey {
    /// The segments, in the order of positions.
    pub inputs: Vec<CompactionInput>,
    /// Every stream with any record in them.
    pub streams: Vec<StreamId>,
    /// Size of samples when packed, in percent; 100 if none were taken.
    pub packed_percent: u64,
    footers: Vec<Footer>,
}

/// A walk over the messages of a survey that can be put off.
#[derive(Default)]
pub struct SurveyCursor {
    footer: usize,
    stream: usize,
    rows: Option<RowCursor>,
}

/// A step of such a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Surveyed {
    /// A message: its stream, sequence and weight.
    Message(StreamId, Seq, u32),
    /// A footer makes no sense, although its checksum fits.
    Malformed,
    /// That were all.
    End,
}

impl Survey {
    /// The next message: segment by segment, each stream's in ascending order.
    pub fn step(&self, cursor: &mut SurveyCursor) -> Surveyed {
        loop {
            let Some(footer) = self.footers.get(cursor.footer) else { return Surveyed::End };
            let Some(stream) = footer.streams().get(cursor.stream) else {
                *cursor = SurveyCursor { footer: cursor.footer + 1, ..SurveyCursor::default() };
                continue;
            };
            let rows = cursor.rows.get_or_insert_with(|| footer.cursor(stream));
            if rows.left() == 0 {
                (cursor.stream, cursor.rows) = (cursor.stream + 1, None);
                continue;
            }
            return match footer.next_message(rows) {
                Some((seq, weight)) => Surveyed::Message(stream.stream, seq, weight),
                None => Surveyed::Malformed,
            };
        }
    }

    /// The fault that reports a survey that contradicts itself.
    #[must_use]
    pub fn malformed(&self) -> CompactionFault {
        let first = &self.inputs[0];
        CompactionFault::Damaged { segment: first.segment.id(), offset: first.data_end }
    }

    /// Range, in a compacted segment, of the frames of streams with ids in `range`: each stream's
    /// are together there, in the order of ids. `None` if there are none.
    fn stretch(&self, input: usize, range: (StreamId, StreamId)) -> Option<(u64, u64)> {
        let (input, footer) = (&self.inputs[input], &self.footers[input]);
        let frames = |stream| footer.places(stream, input.segment.id()).map(|place| place.frame);
        let with_messages = || footer.streams().iter().filter(|stream| stream.messages > 0);
        let inside = |stream: StreamId| (range.0..=range.1).contains(&stream);
        let from = with_messages().filter(|s| inside(s.stream)).filter_map(|s| frames(s).min());
        let from = from.min()?;
        // The frame in which a later stream begins may hold the end of an earlier one.
        let until = with_messages().filter(|s| s.stream > range.1).filter_map(|s| frames(s).min());
        let until = until.min().map_or(input.data_end, |frame| u64::from(frame) + 1);
        Some((u64::from(from), until.min(input.data_end)))
    }
}

/// Finds out what segments hold; with `sample`, also whether packing it would pay.
///
/// # Errors
/// [`CompactionFault`].
pub fn survey(
    inputs: Vec<CompactionInput>,
    sample: bool,
    mut pace: Pace,
) -> Result<Survey, CompactionFault> {
    let mut footers = Vec::with_capacity(inputs.len());
    for input in &inputs {
        footers.push(footer_of(input, &mut pace)?);
    }
    let streams: BTreeSet<_> =
        footers.iter().flat_map(|footer| footer.streams().iter().map(|s| s.stream)).collect();
    let streams = streams.into_iter().filter(|stream| *stream != StreamId::LOG).collect();
    let mut survey = Survey { inputs, streams, footers, packed_percent: 100 };
    if sample {
        survey.packed_percent = sampled_percent(&survey, &mut pace)?;
    }
    Ok(survey)
}

/// Compresses records of a few stretches of the segments. What comes of it decides nothing but
/// whether the work is worth while, so nothing is verified.
fn sampled_percent(survey: &Survey, pace: &mut Pace) -> Result<u64, CompactionFault> {
    let mut places: Vec<(usize, u32)> = Vec::new();
    for (number, footer) in survey.footers.iter().enumerate() {
        let id = survey.inputs[number].segment.id();
        let starts = footer.streams().iter().flat_map(|stream| footer.places(stream, id));
        places.extend(starts.map(|place| (number, place.frame)));
    }
    places.sort_unstable();
    places.dedup();
    let mut packer = Packer::new()?;
    let (mut raw, mut packed) = (0, 0);
    for (number, frame) in places.iter().step_by(places.len().div_ceil(SAMPLES).max(1)) {
        let input = &survey.inputs[*number];
        let bytes = sample_at(&input.segment, *frame)?;
        let records = records_in(&bytes, &input.segment);
        raw += records.len() as u64;
        packed += packer.packed_len(&records)? as u64;
        pace.step(bytes.len() as u64);
    }
    Ok((packed * 100).checked_div(raw).unwrap_or(100))
}

/// The bytes of a sample: of an encrypted frame all, or nothing could be made of it.
fn sample_at(segment: &Segment, frame: u32) -> io::Result<Bytes> {
    let bytes = segment.file.read_shared(u64::from(frame), SAMPLE_BYTES)?;
    match FrameHeader::decode(&bytes, segment.header.salt) {
        Ok(header) if header.key_id.is_some() && header.len as usize > bytes.len() => {
            segment.file.read_shared(u64::from(frame), header.len as usize)
        }
        _ => Ok(bytes),
    }
}

/// The records of frames of which the first begins with these bytes, and the last may be cut short.
fn records_in(bytes: &[u8], segment: &Segment) -> Vec<u8> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(Ok(header)) =
        bytes.get(at..).map(|rest| FrameHeader::decode(rest, segment.header.salt))
    {
        let end = (at + header.len as usize).min(bytes.len());
        if header.key_id.is_some() {
            let opened = sealed::records_of(&segment.keys, &header, &bytes[at..end]);
            records.extend_from_slice(&opened.unwrap_or_default());
        } else {
            records.extend_from_slice(bytes.get(at + FRAME_HEADER_BYTES..end).unwrap_or_default());
        }
        at += header.padded_len(segment.header.block_bytes as usize);
    }
    records
}

/// The footer of a segment, from its file or from its frames.
fn footer_of(input: &CompactionInput, pace: &mut Pace) -> Result<Footer, CompactionFault> {
    let file = &input.segment.file;
    let after = file.len()?.saturating_sub(input.data_end);
    let len = usize::try_from(after).unwrap_or(0);
    let bytes = file.read_shared(input.data_end, len)?.to_vec();
    pace.step(len as u64);
    if let Ok(footer) = Footer::parse(bytes, input.segment.id(), &input.segment.keys) {
        return Ok(footer);
    }
    let header = &input.segment.header;
    let mut builder = FooterBuilder::new(header.id, header.base).compacted(header.compacted);
    let all = (input.segment.first_offset(), input.data_end);
    let damaged = |offset| CompactionFault::Damaged { segment: input.segment.id(), offset };
    for_each_frame(input, all, pace, &mut |body, lsn, offset| {
        builder.add_frame(body, lsn, offset).map_err(|_| damaged(u64::from(offset)))
    })?;
    let built = Footer::parse(builder.encode().0, header.id, &Keyring::default());
    built.map_err(|_| damaged(input.data_end))
}

/// Called for each frame with its records, its position and its offset.
type VisitFrame<'a> = dyn FnMut(&[u8], Lsn, u32) -> Result<(), CompactionFault> + 'a;

/// Calls `visit` for each frame that starts in a stretch of the segment, from one frame's start on.
fn for_each_frame(
    input: &CompactionInput,
    (from, until): (u64, u64),
    pace: &mut Pace,
    visit: &mut VisitFrame<'_>,
) -> Result<(), CompactionFault> {
    let segment = Arc::clone(&input.segment);
    let mut scan = if from == segment.first_offset() {
        FrameScanner::new(segment, input.data_end)
    } else {
        FrameScanner::from_frame(segment, from, input.data_end)
    };
    while scan.at() < until {
        match scan.step()? {
            Scanned::Frame(header, offset) => {
                let body = &scan.frame()[FRAME_HEADER_BYTES..];
                visit(body, header.lsn, u32::try_from(offset).unwrap_or(u32::MAX))?;
                pace.step(u64::from(header.len));
            }
            Scanned::Fault(_, offset) => {
                return Err(CompactionFault::Damaged { segment: input.segment.id(), offset });
            }
            Scanned::End => break,
        }
    }
    Ok(())
}
