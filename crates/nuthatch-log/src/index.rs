//! Positions of messages: exact runs for frames in the tail cache, one position per segment and
//! about every 64 KiB of log for everything older.

use crate::frame::MessageRun;
use crate::stream_map::StreamMap;
use crate::types::{Lsn, SegmentId, Seq, StreamId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// A stream gets a new place when its last one lies this far back in the segment.
pub const PLACE_EVERY_BYTES: u32 = 64 * 1024;

/// Position in a segment from which a range of a stream's messages can be scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPosition {
    /// First message of the stretch.
    pub first: Seq,
    /// Last message of the stretch.
    pub last: Seq,
    /// The segment that holds it.
    pub segment: SegmentId,
    /// Offset where the first message's frame starts in the segment.
    pub frame: u32,
    /// Offset where the first message starts in its frame.
    pub record: u32,
}

/// A run in a frame that is still in the tail cache.
#[derive(Clone, Copy, Debug)]
pub struct TailRun {
    /// The frame.
    pub lsn: Lsn,
    /// Sequence of the run's first message.
    pub first: Seq,
    /// Offset where that message starts in the frame.
    pub offset: u32,
    /// Messages in the run.
    pub count: u32,
}

/// A message that was just read, from where the next one is near.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// None yet.
    None,
    /// In the tail cache: number of the run (counted from the stream's beginning) and offset.
    Tail {
        /// The message.
        seq: Seq,
        /// Its run, counted over the life of the index.
        run: u64,
        /// Offset where it starts in its frame.
        offset: u32,
    },
    /// In a segment.
    Cold {
        /// The message.
        seq: Seq,
        /// Its segment.
        segment: SegmentId,
        /// Offset where its frame starts.
        frame: u32,
        /// Offset where it starts in its frame.
        record: u32,
    },
}

/// Everything known of where one stream's messages are.
pub struct StreamIndex {
    tail: VecDeque<TailRun>,
    evicted_runs: u64,
    places: Vec<IndexPosition>,
    /// The place of the message that died last: the next one is near, as a rule.
    dying: usize,
    /// The message read last.
    pub cursor: Cursor,
}

impl Default for StreamIndex {
    fn default() -> Self {
        Self {
            tail: VecDeque::new(),
            evicted_runs: 0,
            places: Vec::new(),
            dying: 0,
            cursor: Cursor::None,
        }
    }
}

impl StreamIndex {
    /// The run of the tail cache that holds a message, with its number.
    #[must_use]
    pub fn tail_run(&self, seq: Seq) -> Option<(u64, TailRun)> {
        if self.tail.front()?.first > seq {
            return None;
        }
        let after = self.tail.partition_point(|run| run.first <= seq);
        let run = self.tail[after - 1];
        let inside = seq.0 - run.first.0 < u64::from(run.count);
        inside.then_some((self.evicted_runs + after as u64 - 1, run))
    }

    /// A run of the tail cache by its number.
    #[must_use]
    pub fn run_number(&self, number: u64) -> Option<TailRun> {
        let at = number.checked_sub(self.evicted_runs)?;
        self.tail.get(usize::try_from(at).ok()?).copied()
    }

    /// The place whose stretch may hold a message.
    #[must_use]
    pub fn place(&self, seq: Seq) -> Option<&IndexPosition> {
        let after = self.places.partition_point(|place| place.first <= seq);
        self.places.get(after.checked_sub(1)?).filter(|place| seq <= place.last)
    }

    /// The same for a message that has died.
    fn place_of_dead(&mut self, seq: Seq) -> Option<&IndexPosition> {
        let holds = |at: usize| {
            let next = self.places.get(at + 1);
            self.places.get(at)?.first.le(&seq).then_some(())?;
            next.is_none_or(|next| seq < next.first).then_some(at)
        };
        self.dying = match holds(self.dying).or_else(|| holds(self.dying + 1)) {
            Some(at) => at,
            None => self.places.partition_point(|place| place.first <= seq).checked_sub(1)?,
        };
        self.places.get(self.dying).filter(|place| seq <= place.last)
    }

    /// The segments that its messages are in, in their order, with the first and the last sequence that is looked for in each:
    /// what is in a later one again counts there.
    pub fn stretches(&self) -> impl Iterator<Item = (SegmentId, Seq, Seq)> {
        let stretches = self.places.chunk_by(|one, next| one.segment == next.segment);
        let firsts = stretches.clone().skip(1).map(|places| places[0].first.0);
        let ends = firsts.chain([u64::MAX]);
        let stretches = stretches.zip(ends).map(|(places, next)| {
            let (first, last) = (places[0].first, places[places.len() - 1].last);
            (places[0].segment, first, Seq(last.0.min(next.saturating_sub(1))))
        });
        stretches.filter(|(_, first, last)| first <= last)
    }

    /// Adds messages that were just committed or found: `first..=last`, the first of them in
    /// `segment`, in the frame at `frame`, at `record` in that frame.
    pub fn note(&mut self, first: Seq, last: Seq, segment: SegmentId, frame: u32, record: u32) {
        if let Some(place) = self.places.last_mut()
            && place.segment == segment
            && frame + record < place.frame + place.record + PLACE_EVERY_BYTES
        {
            place.last = last;
            return;
        }
        self.places.push(IndexPosition { first, last, segment, frame, record });
    }

    /// Adds places among those that there are; messages are stored in the order of their sequences.
    fn add_places(&mut self, places: Vec<IndexPosition>) {
        self.places.extend(places);
        self.places.sort_unstable_by_key(|place| place.first);
        self.dying = 0;
        self.cursor = Cursor::None;
    }

    /// Appends a place read from a footer.
    pub fn push_place(&mut self, place: IndexPosition) {
        self.places.push(place);
    }
}

/// The index of a log.
#[derive(Default)]
pub struct Index {
    streams: StreamMap<StreamIndex>,
}

impl Index {
    /// A stream's index.
    pub fn get_mut(&mut self, stream: StreamId) -> Option<&mut StreamIndex> {
        self.streams.get_mut(&stream)
    }

    /// A stream's index.
    #[must_use]
    pub fn get(&self, stream: StreamId) -> Option<&StreamIndex> {
        self.streams.get(&stream)
    }

    /// Memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let of = |index: &StreamIndex| {
            size_of::<StreamIndex>() + index.places.capacity() * size_of::<IndexPosition>()
        };
        self.streams.iter().map(|(_, index)| of(index) as u64).sum()
    }

    /// All streams, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &StreamIndex)> {
        self.streams.iter()
    }

    /// A stream's index, made if need be.
    pub fn entry(&mut self, stream: StreamId) -> &mut StreamIndex {
        self.streams.get_or_default(stream)
    }

    /// Adds the runs of a frame that was just committed.
    pub fn commit(&mut self, runs: &[MessageRun], lsn: Lsn, segment: SegmentId, frame: u32) {
        for run in runs {
            let stream = self.streams.get_or_default(run.stream);
            let last = Seq(run.first.0 + u64::from(run.count) - 1);
            let (first, offset, count) = (run.first, run.offset, run.count);
            stream.note(first, last, segment, frame, offset);
            stream.tail.push_back(TailRun { lsn, first, offset, count });
        }
    }

    /// Forgets the runs of the oldest frame of the tail cache.
    pub fn evict(&mut self, runs: &[MessageRun]) {
        for run in runs {
            let Some(stream) = self.streams.get_mut(&run.stream) else { continue };
            let gone = stream.tail.pop_front();
            debug_assert!(gone.is_none_or(|gone| gone.first == run.first));
            stream.evicted_runs += 1;
            if stream.tail.is_empty() {
                stream.tail = VecDeque::new();
            }
        }
    }

    /// The segment that holds a committed message which has died.
    #[must_use]
    pub fn segment_of(&mut self, stream: StreamId, seq: Seq) -> Option<SegmentId> {
        Some(self.streams.get_mut(&stream)?.place_of_dead(seq)?.segment)
    }

    /// Exchanges all places in the segments that are `gone` for others, of which each stream's come in any order.
    pub fn exchange(
        &mut self,
        gone: &FxHashSet<SegmentId>,
        new: FxHashMap<StreamId, Vec<IndexPosition>>,
    ) {
        for (_, stream) in self.streams.iter_mut() {
            stream.places.retain(|place| !gone.contains(&place.segment));
            (stream.dying, stream.cursor) = (0, Cursor::None);
        }
        for (stream, places) in new {
            self.streams.get_or_default(stream).add_places(places);
        }
        self.streams.retain(|_, stream| !stream.places.is_empty() || !stream.tail.is_empty());
    }

    /// Exchanges the places of a stream in the `old` segments for `new` ones (in order, possibly
    /// none); forgets the stream if nothing is left of it.
    pub fn replace(&mut self, stream: StreamId, old: &[SegmentId], new: &[IndexPosition]) {
        let Some(entry) = self.streams.get_mut(&stream) else { return };
        let is_old = |place: &IndexPosition| old.contains(&place.segment);
        let at = entry.places.iter().position(is_old).unwrap_or(entry.places.len());
        entry.places.retain(|place| !is_old(place));
        entry.places.splice(at..at, new.iter().copied());
        entry.cursor = Cursor::None;
        if entry.places.is_empty() && entry.tail.is_empty() {
            self.streams.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_by_run_and_by_place() {
        let mut index = Index::default();
        let stream = StreamId(1);
        let run = |first, offset, count| MessageRun { stream, offset, first: Seq(first), count };
        index.commit(&[run(1, 48, 10), run(11, 4200, 5)], Lsn(1), SegmentId(1), 4096);
        index.commit(&[run(20, 48, 1)], Lsn(2), SegmentId(2), 4096);
        let entry = index.get(stream).expect("known");
        assert_eq!(entry.tail_run(Seq(13)).map(|(n, run)| (n, run.offset)), Some((1, 4200)));
        assert!(entry.tail_run(Seq(16)).is_none());
        assert_eq!(entry.place(Seq(15)).map(|place| place.segment), Some(SegmentId(1)));
        assert!(entry.place(Seq(17)).is_none());
        assert_eq!(index.segment_of(stream, Seq(20)), Some(SegmentId(2)));
    }

    #[test]
    fn a_compacted_segment_takes_the_place_of_its_inputs() {
        let mut index = Index::default();
        let stream = StreamId(1);
        for (segment, seq) in [(1, 1), (2, 5), (3, 9)] {
            index.entry(stream).note(Seq(seq), Seq(seq + 3), SegmentId(segment), 0, 0);
        }
        let place = IndexPosition {
            first: Seq(2),
            last: Seq(6),
            segment: SegmentId(9),
            frame: 0,
            record: 0,
        };
        index.replace(stream, &[SegmentId(1), SegmentId(2)], &[place]);
        assert_eq!(index.segment_of(stream, Seq(6)), Some(SegmentId(9)));
        assert_eq!(index.segment_of(stream, Seq(9)), Some(SegmentId(3)));
        index.replace(stream, &[SegmentId(9), SegmentId(3)], &[]);
        assert!(index.get(stream).is_none());
    }
}
