//! Plan of a compaction's output: which segments, for which positions and streams, and in which
//! portions the records are gathered.
//!
//! A stream with much data gets a segment of its own; the others share one, in which each stream's
//! messages lie together. The segments divide the positions of the inputs among themselves, so the
//! chain stays one: only their order counts, and each stream is in exactly one of them.

use super::live::Live;
use crate::types::{Lsn, StreamId};

/// Segments of their own that one compaction makes at most.
const MAX_OWN_SEGMENTS: usize = 63;

/// A segment to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// First position that it stands for.
    pub base: Lsn,
    /// Last position that it stands for.
    pub end: Lsn,
    /// Whose messages it holds, ascending.
    pub streams: Vec<StreamId>,
    /// Bytes of their records.
    pub bytes: u64,
}

/// Streams whose records are gathered in one reading of the inputs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Portion {
    /// Number of the segment that each belongs to, in the order of writing.
    pub parts: Vec<(usize, StreamId)>,
    /// Bytes of their records.
    pub bytes: u64,
}

impl Portion {
    /// The first and the last stream of the portion, by id.
    #[must_use]
    pub fn range(&self) -> (StreamId, StreamId) {
        let ids = || self.parts.iter().map(|(_, stream)| *stream);
        (ids().min().unwrap_or_default(), ids().max().unwrap_or_default())
    }
}

/// All of it.
#[derive(Debug)]
pub struct Plan {
    /// The segments, in the order of the chain.
    pub segments: Vec<Planned>,
    /// The portions, in the order of writing: the last segment first, so that a recovery that finds
    /// the first one by its name alone finds all of them.
    pub portions: Vec<Portion>,
}

impl Plan {
    /// Plans the compaction of inputs that stand for `base..=end`. Streams of at least `own_bytes`
    /// get segments of their own, as far as there are positions; a portion holds at most
    /// `memory_bytes`, or a single stream.
    #[must_use]
    pub fn of(live: &Live, (base, end): (Lsn, Lsn), own_bytes: u64, memory_bytes: u64) -> Self {
        let segments = divide(live, (base, end), own_bytes);
        let mut portions = vec![Portion::default()];
        for (number, segment) in segments.iter().enumerate().rev() {
            for stream in &segment.streams {
                let bytes = live.bytes_of(*stream);
                let last = portions.len() - 1;
                if !portions[last].parts.is_empty() && portions[last].bytes + bytes > memory_bytes {
                    portions.push(Portion::default());
                }
                let last = portions.len() - 1;
                portions[last].parts.push((number, *stream));
                portions[last].bytes += bytes;
            }
        }
        Self { segments, portions }
    }
}

fn divide(live: &Live, (base, end): (Lsn, Lsn), own_bytes: u64) -> Vec<Planned> {
    // One position is left for those that share.
    let positions = usize::try_from(end.0.saturating_sub(base.0)).unwrap_or(usize::MAX);
    let mut large: Vec<(u64, StreamId)> = live
        .iter()
        .filter(|(_, of)| of.bytes >= own_bytes)
        .map(|(stream, of)| (of.bytes, stream))
        .collect();
    large.sort_unstable_by(|a, b| b.cmp(a));
    large.truncate(positions.min(MAX_OWN_SEGMENTS));
    let mut own: Vec<StreamId> = large.into_iter().map(|(_, stream)| stream).collect();
    own.sort_unstable();
    let mut groups: Vec<Vec<StreamId>> = own.iter().map(|stream| vec![*stream]).collect();
    let shared: Vec<StreamId> =
        live.iter().map(|(stream, _)| stream).filter(|s| own.binary_search(s).is_err()).collect();
    if !shared.is_empty() {
        groups.push(shared);
    }
    let last = groups.len().saturating_sub(1);
    let planned = groups.into_iter().enumerate().map(|(number, streams)| {
        let at = Lsn(base.0 + number as u64);
        let bytes = streams.iter().map(|stream| live.bytes_of(*stream)).sum();
        Planned { base: at, end: if number == last { end } else { at }, streams, bytes }
    });
    planned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Seq;
    use proptest::prelude::*;

    fn live(weights: &[(u32, u32)]) -> Live {
        let mut live = Live::default();
        for (stream, weight) in weights {
            live.add(StreamId(*stream), Seq(1), *weight);
        }
        live
    }

    #[test]
    fn large_streams_get_segments_of_their_own() {
        let live = live(&[(1, 10), (2, 500), (3, 20), (4, 300), (5, 5)]);
        let plan = Plan::of(&live, (Lsn(11), Lsn(20)), 100, 400);
        let streams: Vec<Vec<u32>> =
            plan.segments.iter().map(|s| s.streams.iter().map(|id| id.0).collect()).collect();
        assert_eq!(streams, [vec![2], vec![4], vec![1, 3, 5]]);
        let ranges: Vec<_> = plan.segments.iter().map(|s| (s.base.0, s.end.0)).collect();
        assert_eq!(ranges, [(11, 11), (12, 12), (13, 20)]);
        let portions: Vec<u64> = plan.portions.iter().map(|portion| portion.bytes).collect();
        assert_eq!(portions, [335, 500]);
        assert_eq!(plan.portions[1].range(), (StreamId(2), StreamId(2)));
    }

    #[test]
    fn the_largest_come_first_where_there_are_few_positions() {
        let live = live(&[(1, 200), (2, 500), (3, 300)]);
        let plan = Plan::of(&live, (Lsn(1), Lsn(2)), 100, 1 << 20);
        assert_eq!(plan.segments.len(), 2);
        assert_eq!(plan.segments[0].streams, [StreamId(2)]);
        let plan = Plan::of(&live, (Lsn(1), Lsn(1)), 100, 1 << 20);
        assert_eq!(plan.segments.len(), 1);
        assert_eq!((plan.segments[0].base, plan.segments[0].end), (Lsn(1), Lsn(1)));
    }

    proptest! {
        /// Positions are divided without gap or overlap; each stream is in one segment, and its
        /// records are gathered once, segment after segment.
        #[test]
        fn nothing_is_left_out_and_nothing_twice(
            weights in proptest::collection::btree_map(1u32..200, 1u32..2000, 1..60),
            positions in 0u64..80, own in 1u64..2000, memory in 1u64..5000,
        ) {
            let live = live(&weights.iter().map(|(s, w)| (*s, *w)).collect::<Vec<_>>());
            let (base, end) = (Lsn(7), Lsn(7 + positions));
            let plan = Plan::of(&live, (base, end), own, memory);
            let mut next = base;
            for segment in &plan.segments {
                prop_assert_eq!(segment.base, next);
                prop_assert!(segment.end >= segment.base);
                next = segment.end.next();
            }
            prop_assert_eq!(next, end.next());
            let planned: Vec<_> = plan.segments.iter().enumerate().rev()
                .flat_map(|(n, s)| s.streams.iter().map(move |id| (n, *id))).collect();
            let gathered: Vec<_> =
                plan.portions.iter().flat_map(|portion| portion.parts.clone()).collect();
            prop_assert_eq!(&planned, &gathered);
            let mut streams: Vec<u32> = planned.iter().map(|(_, id)| id.0).collect();
            streams.sort_unstable();
            prop_assert_eq!(streams, weights.keys().copied().collect::<Vec<_>>());
            for portion in &plan.portions {
                prop_assert!(portion.parts.len() == 1 || portion.bytes <= memory);
            }
        }
    }
}
