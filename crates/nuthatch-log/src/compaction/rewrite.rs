//! Writing the compacted segments: live messages only, each stream's together.

use super::live::Live;
use super::output::{Finished, Output, Writing};
use super::plan::{Plan, Planned, Portion};
use super::{CompactionFault, Pace, Survey, for_each_frame};
use crate::catalog::{Catalog, SegmentEntry, SegmentState};
use crate::frame::RecordIter;
use crate::record::RecordKind;
use crate::rules::{COMPACTED_NAME_SYNC, INPUTS_AFTER_CATALOG};
use crate::segment::{SegmentHeader, SegmentId};
use crate::stats::add;
use crate::store::Store;
use crate::types::{Lsn, StreamId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Whose messages are packed, where that pays.
#[derive(Clone, Debug)]
pub enum Packing {
    /// Everybody's.
    All,
    /// Those of these streams.
    Of(FxHashSet<StreamId>),
}

impl Packing {
    /// True if a stream's are.
    #[must_use]
    pub fn wants(&self, stream: StreamId) -> bool {
        match self {
            Self::All => true,
            Self::Of(streams) => streams.contains(&stream),
        }
    }
}

/// Sizes of what a compaction makes and of what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Frames are about this large before they are packed.
    pub frame_bytes: usize,
    /// Frames start at multiples of this.
    pub block_bytes: u32,
    /// A stream with so much gets a segment of its own.
    pub own_bytes: u64,
    /// Records held in memory at a time.
    pub memory_bytes: u64,
    /// In a bucket, so much of a segment at most waits to be stored: the size of its objects.
    pub unstored_bytes: u64,
    /// Bytes read and written in a second.
    pub bytes_per_s: u64,
}

/// A compaction that may go ahead.
pub struct RewriteJob {
    /// The log's files.
    pub store: Arc<Store>,
    /// Their contents, by stream.
    pub survey: Survey,
    /// The messages that are live.
    pub live: Live,
    /// Whose are packed.
    pub packing: Packing,
    /// Sizes.
    pub shape: Shape,
    /// True if the space that was set aside may be used: what is written gives more of it back.
    pub spends_reserve: bool,
    /// Salt of the new segments.
    pub salt: u32,
    /// How fast it goes.
    pub hurry: Arc<AtomicBool>,
}

/// The outcome of a compaction.
pub struct Rewritten {
    /// Contents of the inputs.
    pub survey: Survey,
    /// The new segments, in the order of the chain; none if nothing was live.
    pub outputs: Vec<Output>,
}

/// Records of one portion, by stream.
type Gathered = BTreeMap<StreamId, Vec<u8>>;

impl RewriteJob {
    /// Rewrites, publishes, removes the inputs.
    ///
    /// # Errors
    /// [`CompactionFault`]: the inputs are then all still in place.
    pub fn run(self) -> Result<Rewritten, CompactionFault> {
        let mut names = Vec::new();
        let made = self.write(&mut names).inspect_err(|_| {
            // What cannot be removed now goes at the next start.
            names.iter().for_each(|name| drop(self.store.disk.remove(name)));
        })?;
        // If this fails it may have taken effect all the same: then nothing may be removed, neither
        // the inputs nor the outputs. The next start sees which of them the catalog names.
        if !INPUTS_AFTER_CATALOG.holds() {
            self.remove_inputs();
        }
        self.publish(&made)?;
        self.remove_inputs();
        let outputs = made.into_iter().map(|finished| finished.output).collect();
        Ok(Rewritten { survey: self.survey, outputs })
    }

    /// The positions that the inputs stand for.
    fn range(&self) -> (Lsn, Lsn) {
        let base = self.survey.inputs[0].segment.header.base;
        (base, self.survey.inputs.last().map_or(base, |input| input.end))
    }

    /// A pace for a part of the work.
    pub(super) fn pace(&self) -> Pace {
        Pace::new(Arc::clone(&self.hurry), self.shape.bytes_per_s)
    }

    /// The first block of a segment to be written.
    pub(super) fn header(&self, planned: &Planned) -> SegmentHeader {
        let id = self.store.new_segment_id();
        SegmentHeader {
            log_id: self.store.catalog().log_id,
            id,
            epoch: self.store.epoch,
            base: planned.base,
            salt: self.salt.wrapping_add(id.0.wrapping_mul(2)) | 1,
            block_bytes: self.shape.block_bytes,
            compacted: true,
            packed: planned.streams.iter().any(|stream| self.packing.wants(*stream)),
            key_id: self.store.keys.current(),
        }
    }

    /// Writes all segments, the last one of the chain first, and names them in that order: as long
    /// as one is missing, the inputs are found before what there is of the others.
    fn write(&self, names: &mut Vec<String>) -> Result<Vec<Finished>, CompactionFault> {
        let (own, memory) = (self.shape.own_bytes, self.shape.memory_bytes);
        let plan = Plan::of(&self.live, self.range(), own, memory);
        let mut made = Vec::with_capacity(plan.segments.len());
        let mut writing: Option<Writing<'_>> = None;
        let mut found = 0;
        for portion in &plan.portions {
            if portion.bytes > memory && portion.parts.len() == 1 {
                let (number, stream) = portion.parts[0];
                let out = self.next(&mut writing, &plan.segments[number], &mut made, names)?;
                found += self.pass_on(stream, out)?;
                continue;
            }
            let (records, messages) = self.gather(portion)?;
            found += messages;
            for (number, stream) in &portion.parts {
                let out = self.next(&mut writing, &plan.segments[*number], &mut made, names)?;
                out.add(*stream, records.get(stream).map_or(&[], Vec::as_slice))?;
            }
        }
        if let Some(last) = writing.take() {
            made.push(last.finish()?);
        }
        if found != self.live.messages() {
            // Footer and frames disagree. Whatever the reason, nothing may be dropped.
            return Err(self.survey.malformed());
        }
        self.name_all(&mut made, names)?;
        made.reverse();
        Ok(made)
    }

    /// The segment that a part goes to; the one before it is ended.
    fn next<'a, 'w>(
        &'a self,
        writing: &'w mut Option<Writing<'a>>,
        planned: &'a Planned,
        made: &mut Vec<Finished>,
        names: &mut Vec<String>,
    ) -> Result<&'w mut Writing<'a>, CompactionFault> {
        if writing.as_ref().is_some_and(|other| other.planned() != planned)
            && let Some(other) = writing.take()
        {
            made.push(other.finish()?);
        }
        let out = match writing.take() {
            Some(same) => same,
            None => Writing::begin(self, planned, names)?,
        };
        Ok(writing.insert(out))
    }

    /// Calls `visit` with the bytes of each live record of streams that `wanted` holds for, in the
    /// order of the log. Compacted inputs are read only where streams of `range` lie.
    fn for_each_record(
        &self,
        range: (StreamId, StreamId),
        wanted: &dyn Fn(StreamId) -> bool,
        visit: &mut dyn FnMut(StreamId, &[u8]) -> io::Result<()>,
    ) -> Result<u64, CompactionFault> {
        let mut found = 0;
        let mut pace = self.pace();
        for (number, input) in self.survey.inputs.iter().enumerate() {
            let stretch = if input.segment.header.compacted {
                self.survey.stretch(number, range)
            } else {
                Some((input.segment.first_offset(), input.data_end))
            };
            let Some(stretch) = stretch else { continue };
            for_each_frame(input, stretch, &mut pace, &mut |body, _, _| {
                add(&self.store.stats.compaction_read_bytes, body.len() as u64);
                let mut records = RecordIter::new(body);
                for (at, record) in records.by_ref() {
                    let live = record.kind == RecordKind::Message
                        && wanted(record.stream)
                        && self.live.contains(record.stream, record.seq);
                    if live {
                        found += 1;
                        visit(record.stream, &body[at..at + record.weight()])?;
                    }
                }
                // What this version does not understand is not dropped.
                records.fault.map_or(Ok(()), |_| Err(self.survey.malformed()))
            })?;
        }
        Ok(found)
    }

    /// Gathers the records of a portion by stream, and counts them.
    fn gather(&self, portion: &Portion) -> Result<(Gathered, u64), CompactionFault> {
        let wanted: FxHashSet<StreamId> = portion.parts.iter().map(|(_, id)| *id).collect();
        let mut records = Gathered::new();
        let found = self.for_each_record(
            portion.range(),
            &|stream| wanted.contains(&stream),
            &mut |stream, bytes| {
                records.entry(stream).or_default().extend_from_slice(bytes);
                Ok(())
            },
        )?;
        Ok((records, found))
    }

    /// Writes the records of a stream that is too large to be gathered, as they are found.
    fn pass_on(&self, stream: StreamId, out: &mut Writing<'_>) -> Result<u64, CompactionFault> {
        self.for_each_record((stream, stream), &|other| other == stream, &mut |_, bytes| {
            out.add(stream, bytes)
        })
    }

    /// Gives segments with temporary names their own.
    fn name_all(&self, made: &mut [Finished], names: &mut Vec<String>) -> io::Result<()> {
        let mut renamed = false;
        for finished in made {
            let name = finished.output.segment.header.file_name();
            if finished.name != name {
                self.store.disk.rename(&finished.name, &name)?;
                names.retain(|temporary| *temporary != finished.name);
                names.push(name.clone());
                finished.name = name;
                renamed = true;
            }
        }
        if renamed && COMPACTED_NAME_SYNC.holds() { self.store.disk.sync_dir("") } else { Ok(()) }
    }

    fn is_victim(&self, id: SegmentId) -> bool {
        self.survey.inputs.iter().any(|input| input.segment.id() == id)
    }

    /// Puts the new segments in the place of the old ones, in one step.
    fn publish(&self, made: &[Finished]) -> io::Result<()> {
        let gone = if made.is_empty() { SegmentState::Removed } else { SegmentState::Replaced };
        self.store.publish(|catalog| {
            let is_victim = |entry: &SegmentEntry| self.is_victim(entry.id);
            let at = catalog.segments.iter().position(is_victim).unwrap_or(0);
            catalog.segments.iter_mut().filter(|entry| is_victim(entry)).for_each(|entry| {
                entry.state = gone;
            });
            let entries = made.iter().map(|finished| finished.entry);
            catalog.segments.splice(at..at, entries);
            // The new segments stand for what was removed between the inputs as well.
            let (base, end) = self.range();
            catalog.segments.retain(|entry| {
                let between = entry.base >= base && entry.end <= end;
                made.is_empty() || entry.state != SegmentState::Removed || !between
            });
        })
    }

    /// The inputs are no longer needed. What cannot be removed now goes at the next start.
    fn remove_inputs(&self) {
        let remove = || -> io::Result<()> {
            for input in &self.survey.inputs {
                self.store.disk.remove(&input.segment.header.file_name())?;
            }
            self.store.disk.sync_dir("")?;
            self.store.publish(|catalog| forget_removed(catalog, &|id| self.is_victim(id)))
        };
        let _ = remove();
    }
}

/// Drops entries of replaced segments whose files are gone, and joins removed neighbours, so that
/// the catalog stays as long as the chain.
pub fn forget_removed(catalog: &mut Catalog, gone: &dyn Fn(SegmentId) -> bool) {
    catalog.segments.retain(|entry| entry.state != SegmentState::Replaced || !gone(entry.id));
    let mut joined: Vec<SegmentEntry> = Vec::with_capacity(catalog.segments.len());
    for entry in catalog.segments.drain(..) {
        match joined.last_mut() {
            Some(last)
                if last.state == SegmentState::Removed && entry.state == SegmentState::Removed =>
            {
                last.end = entry.end;
            }
            _ => joined.push(entry),
        }
    }
    catalog.segments = joined;
}

/// Places of every stream in the outputs of a compaction.
impl Rewritten {
    /// The new positions of each stream's messages.
    #[must_use]
    pub fn places(&self) -> FxHashMap<StreamId, Vec<crate::index::IndexPosition>> {
        let mut places = FxHashMap::default();
        for output in &self.outputs {
            for stream in output.footer.streams().iter().filter(|stream| stream.messages > 0) {
                let found = output.footer.places(stream, output.segment.id()).collect();
                places.insert(stream.stream, found);
            }
        }
        places
    }
}
