//! The streams of a log, which messages each must have, and which of them cannot be read.
//!
//! Up to its newest state (a `StreamState` record or the checkpoint) a stream says itself which
//! messages live. After it sequences are dense, so that a gap across a hole is what the hole took.

use super::{DecodedState, StateDecoder, StreamPreview};
use crate::record::{RecordKind, RecordRef};
use crate::state_part::{PartHead, whole_kind};
use crate::types::{Lsn, StreamId, Timestamp};
use std::collections::BTreeMap;

/// More records than any open segment holds: sequences skip this far if the end of the log is lost.
const LOST_END_RECORDS: u64 = 1 << 25;

/// Messages of a stream that cannot be read any more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lost {
    /// The stream.
    pub stream: StreamId,
    /// Its name; empty if nothing tells it.
    pub name: String,
    /// First sequence.
    pub first: u64,
    /// Last sequence.
    pub last: u64,
}

/// A stream whose last sequence may have been in a hole: its next message must not get it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uncertain {
    /// The stream.
    pub stream: StreamId,
    /// Its name, if anything tells it.
    pub name: String,
    /// The last sequence that is known.
    pub last: u64,
    /// At most so many more were given out.
    pub more_max: u64,
}

/// Evidence about one stream.
#[derive(Default)]
struct StreamInventory {
    name: String,
    is_configured: bool,
    is_gone: bool,
    has_messages: bool,
    first: u64,
    last: u64,
    holes_seen: u64,
    records_seen: u64,
    /// Records of it that were lost and may have given out sequences.
    unsure: u64,
    state: Option<(Lsn, DecodedState)>,
    gaps: Vec<(u64, u64)>,
    /// Messages that can be read, in the order in which they lie in the log.
    readable: Vec<(u64, u64)>,
    /// Those among them that lie in compacted segments: a start takes them only from a state that
    /// knows them.
    compacted: Vec<(u64, u64)>,
}

/// Evidence about every stream of a log.
#[derive(Default)]
pub struct Inventory {
    streams: BTreeMap<StreamId, StreamInventory>,
    /// States in parts, as far as their parts have come.
    parts: BTreeMap<StreamId, (u32, Vec<u8>)>,
    /// Last parts of states of which a part before them was lost.
    pub void_states: Vec<(StreamId, Lsn)>,
    /// The last position that was lost.
    last_hole: Lsn,
    holes: u64,
    records_lost_max: u64,
    /// The newest time met.
    pub newest: Timestamp,
    /// Records that make no sense to the machine.
    pub not_understood: u64,
}

impl Inventory {
    /// Frames were lost here, with at most so many records.
    pub fn hole(&mut self, last: Lsn, records_max: u64) {
        self.holes += 1;
        self.last_hole = self.last_hole.max(last);
        self.records_lost_max = self.records_lost_max.saturating_add(records_max);
    }

    /// The log may have gone on behind all that is left of it, and nothing tells how far. No checkpoint
    /// or state that is left can cover that.
    pub fn lost_end(&mut self) {
        if self.last_hole.0 < u64::MAX {
            self.hole(Lsn(u64::MAX), LOST_END_RECORDS);
        }
    }

    /// The next record in the order of the log.
    pub fn record(
        &mut self,
        record: &RecordRef<'_>,
        lsn: Lsn,
        compacted: bool,
        decoder: &dyn StateDecoder,
    ) {
        self.newest = self.newest.max(record.timestamp);
        if record.kind == RecordKind::StatePart {
            return self.state_part(record, lsn, decoder);
        }
        if record.kind == RecordKind::LogState {
            return self.log_state(record, decoder);
        }
        let trace = self.streams.entry(record.stream).or_default();
        let seq = record.seq.0;
        match record.kind {
            RecordKind::Message | RecordKind::Advance => {
                if record.kind == RecordKind::Message {
                    trace.has_messages = true;
                    push_joined(&mut trace.readable, seq);
                    if compacted {
                        push_joined(&mut trace.compacted, seq);
                    }
                }
                if trace.first == 0 {
                    trace.first = seq;
                }
                let gap_end = if compacted { 0 } else { seq.saturating_sub(1) };
                trace.saw(seq, gap_end, self.holes, self.records_lost_max, compacted);
            }
            RecordKind::StreamCreate | RecordKind::StreamUpdate => trace.configure(record),
            RecordKind::StreamState => {
                trace.configure(record);
                match decoder.state(record.body) {
                    Some(state) => trace.state = Some((lsn, state)),
                    None => self.not_understood += 1,
                }
                trace.saw(seq, 0, self.holes, self.records_lost_max, false);
            }
            RecordKind::StreamDelete => {
                trace.configure(record);
                trace.is_gone = true;
            }
            _ => {}
        }
    }

    /// Puts a state together; a last part without all before it stands for nothing.
    fn state_part(&mut self, record: &RecordRef<'_>, lsn: Lsn, decoder: &dyn StateDecoder) {
        let Some(PartHead { number, of }) = PartHead::decode(record.headers) else {
            self.not_understood += 1;
            return;
        };
        let parts = self.parts.entry(record.stream).or_default();
        if number == 0 {
            *parts = (0, Vec::new());
        }
        let follows = parts.0 == number;
        if follows {
            parts.0 += 1;
            parts.1.extend_from_slice(record.body);
        }
        if number + 1 < of {
            return;
        }
        let (_, body) = self.parts.remove(&record.stream).unwrap_or_default();
        if follows {
            let kind = whole_kind(record.stream);
            self.record(
                &RecordRef { kind, headers: b"", body: &body, ..*record },
                lsn,
                false,
                decoder,
            );
        } else {
            self.void_states.push((record.stream, lsn));
        }
    }

    fn log_state(&mut self, record: &RecordRef<'_>, decoder: &dyn StateDecoder) {
        let Some((next, live)) = decoder.log_state(record.body) else {
            self.not_understood += 1;
            return;
        };
        for (id, trace) in &mut self.streams {
            trace.is_gone |= *id < next && !live.contains(id);
        }
    }

    /// Takes in the streams of the checkpoint that a restart would use.
    pub fn checkpoint(&mut self, lsn: Lsn, streams: Vec<(StreamId, DecodedState)>) {
        let (holes, lost) = (self.holes, self.records_lost_max);
        let covers_all = lsn >= self.last_hole;
        for (id, state) in streams {
            let trace = self.streams.entry(id).or_default();
            trace.name.clone_from(&state.name);
            trace.is_configured = true;
            let last = state.next.saturating_sub(1);
            if covers_all {
                trace.saw(last, 0, holes, lost, false);
            }
            trace.last = trace.last.max(last);
            if trace.state.as_ref().is_none_or(|(at, _)| *at <= lsn) {
                trace.state = Some((lsn, state));
            }
        }
    }

    /// A footer whose frames are damaged tells which messages there were: the gap they leave is known,
    /// and so is the last sequence.
    pub fn footer_messages(&mut self, stream: StreamId, last: u64, missing: &[u64]) {
        let trace = self.streams.entry(stream).or_default();
        trace.last = trace.last.max(last);
        trace.gaps.extend(missing.iter().map(|seq| (*seq, *seq)));
    }

    /// A footer tells that records of this stream that are no messages were lost.
    pub fn footer_records(&mut self, stream: StreamId, records_max: u64) {
        self.streams.entry(stream).or_default().unsure += records_max;
    }

    /// Streams that are not gone, whose last sequence may lie in a hole.
    #[must_use]
    pub fn uncertain(&self) -> Vec<Uncertain> {
        let unsure = |trace: &StreamInventory| {
            !trace.is_gone && (trace.holes_seen < self.holes || trace.unsure > 0)
        };
        let streams =
            self.streams.iter().filter(|(id, trace)| **id != StreamId::LOG && unsure(trace));
        let to = |(id, trace): (&StreamId, &StreamInventory)| Uncertain {
            stream: *id,
            name: trace.name.clone(),
            last: trace.last,
            more_max: self.records_lost_max - trace.records_seen + trace.unsure,
        };
        streams.map(to).filter(|unsure| unsure.more_max > 0).collect()
    }

    /// Streams with messages that nothing tells the configuration of: first and last sequence.
    #[must_use]
    pub fn unknown(&self) -> Vec<(StreamId, u64, u64)> {
        let unknown =
            |trace: &StreamInventory| trace.has_messages && !trace.is_configured && !trace.is_gone;
        let streams = self.streams.iter().filter(|(_, trace)| unknown(trace));
        streams.map(|(id, trace)| (*id, trace.first, trace.last)).collect()
    }

    /// The messages that were lost, given what the log shows once it is mended, except what is `known`
    /// to be lost already.
    #[must_use]
    pub fn lost(&self, preview: &[StreamPreview], known: &[(StreamId, u64, u64)]) -> Vec<Lost> {
        let mut lost = Vec::new();
        for stream in preview {
            let Some(trace) = self.streams.get(&stream.id) else { continue };
            let mut readable = trace.readable.clone();
            readable.sort_unstable();
            // What lies before a message that has left the stream would have left it too.
            let evicted = readable.iter().map(|(first, last)| match stream.first {
                0 => 0,
                kept if *first < kept => (*last).min(kept - 1),
                _ => 0,
            });
            let evicted = evicted.max().unwrap_or(0);
            let told = known.iter().filter(|(id, ..)| *id == stream.id);
            let mut told: Vec<_> = told.map(|(_, first, last)| (*first, *last)).collect();
            readable.extend(&told);
            told.sort_unstable();
            readable.sort_unstable();
            for (first, last) in subtract(trace.must_have(), &readable) {
                let first = first.max(evicted + 1);
                if first <= last {
                    let name = stream.name.clone();
                    lost.push(Lost { stream: stream.id, name, first, last });
                }
            }
            for (first, last) in subtract(trace.orphans(stream), &told) {
                lost.push(Lost { stream: stream.id, name: stream.name.clone(), first, last });
            }
        }
        lost
    }
}

/// Adds a sequence to ranges that it usually continues.
fn push_joined(ranges: &mut Vec<(u64, u64)>, seq: u64) {
    match ranges.last_mut() {
        Some((_, last)) if *last + 1 == seq => *last = seq,
        _ => ranges.push((seq, seq)),
    }
}

impl StreamInventory {
    fn configure(&mut self, record: &RecordRef<'_>) {
        self.name = String::from_utf8_lossy(record.subject).into_owned();
        self.is_configured = true;
        self.is_gone = false;
    }

    /// Sequence `seq` was given out; what lies between the last one and `gap_end` was lost if a hole
    /// lies between.
    fn saw(&mut self, seq: u64, gap_end: u64, holes: u64, records: u64, compacted: bool) {
        if self.holes_seen < holes && gap_end > self.last {
            self.gaps.push((self.last + 1, gap_end));
        }
        self.last = self.last.max(seq);
        if !compacted {
            (self.holes_seen, self.records_seen, self.unsure) = (holes, records, 0);
        }
    }

    /// Messages in compacted segments that no state knows any more, because the one that was logged
    /// for the compaction is lost: no start takes them up.
    fn orphans(&self, stream: &StreamPreview) -> Vec<(u64, u64)> {
        let known = self.state.as_ref().map_or(0, |(_, state)| state.next.saturating_sub(1));
        let evicted = if stream.messages > 0 { stream.first.saturating_sub(1) } else { 0 };
        let from = known.max(evicted) + 1;
        let mut ranges: Vec<(u64, u64)> = self.compacted.clone();
        ranges.retain(|(_, last)| *last >= from);
        ranges.iter_mut().for_each(|(first, _)| *first = (*first).max(from));
        ranges.sort_unstable();
        subtract(ranges, &stream.live)
    }

    /// The messages that must be there, as far as anything can be missing: in ascending ranges.
    fn must_have(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let mut known = 0;
        if let Some((_, state)) = &self.state
            && state.next > 1
        {
            known = state.next - 1;
            ranges = subtract(vec![(state.floor.max(1), known)], &state.deleted);
        }
        let later = self.gaps.iter().filter(|(_, last)| *last > known);
        ranges.extend(later.map(|(first, last)| ((*first).max(known + 1), *last)));
        ranges.sort_unstable();
        ranges
    }
}

/// Ascending ranges without what ascending `others` cover, neighbours joined.
fn subtract(ranges: Vec<(u64, u64)>, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left: Vec<(u64, u64)> = Vec::new();
    let mut put = |first: u64, last: u64| match left.last_mut() {
        Some((_, end)) if *end + 1 >= first => *end = (*end).max(last),
        _ => left.push((first, last)),
    };
    for (first, last) in ranges {
        let mut at = first;
        let start = others.partition_point(|other| other.0 <= first).saturating_sub(1);
        for other in others[start..].iter().take_while(|other| other.0 <= last) {
            if other.0 > at {
                put(at, other.0 - 1);
            }
            at = at.max(other.1.saturating_add(1));
        }
        if at <= last {
            put(at, last);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::subtract;

    #[test]
    fn ranges_lose_what_others_cover() {
        assert_eq!(subtract(vec![(1, 10)], &[(3, 4), (9, 20)]), [(1, 2), (5, 8)]);
        assert_eq!(subtract(vec![(1, 2), (3, 4)], &[]), [(1, 4)]);
        assert_eq!(subtract(vec![(5, 6)], &[(1, 9)]), []);
        assert_eq!(subtract(vec![(1, 3), (7, 9)], &[(2, 7)]), [(1, 1), (8, 9)]);
    }
}
