//! Which messages a compaction keeps: runs of sequences, stream by stream. Most messages of a
//! segment live or die in long runs, so this stays small however many messages there are.

use crate::types::{Seq, StreamId};
use std::collections::BTreeMap;

/// The messages that live.
#[derive(Default)]
pub struct Live {
    streams: BTreeMap<StreamId, LiveStream>,
}

/// Those of one stream.
#[derive(Default)]
pub struct LiveStream {
    runs: Vec<(Seq, Seq)>,
    /// How many.
    pub messages: u64,
    /// Bytes of their records, unpacked.
    pub bytes: u64,
}

impl Live {
    /// Adds a message. Messages of one stream come in ascending order.
    pub fn add(&mut self, stream: StreamId, seq: Seq, weight: u32) {
        let live = self.streams.entry(stream).or_default();
        live.messages += 1;
        live.bytes += u64::from(weight);
        match live.runs.last_mut() {
            Some((_, last)) if last.next() == seq => *last = seq,
            _ => live.runs.push((seq, seq)),
        }
    }

    /// True if a message is among them.
    #[must_use]
    pub fn contains(&self, stream: StreamId, seq: Seq) -> bool {
        let Some(live) = self.streams.get(&stream) else { return false };
        let after = live.runs.partition_point(|(first, _)| *first <= seq);
        after > 0 && seq <= live.runs[after - 1].1
    }

    /// The streams with any.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &LiveStream)> {
        self.streams.iter().map(|(stream, live)| (*stream, live))
    }

    /// Bytes of a stream's records.
    #[must_use]
    pub fn bytes_of(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, |live| live.bytes)
    }

    /// Bytes of all records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.streams.values().map(|live| live.bytes).sum()
    }

    /// How many there are.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.streams.values().map(|live| live.messages).sum()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_tell_what_lives() {
        let mut live = Live::default();
        for seq in [1, 2, 3, 7, 9, 10] {
            live.add(StreamId(4), Seq(seq), 10);
        }
        live.add(StreamId(2), Seq(5), 1);
        let of_four = |seq| live.contains(StreamId(4), Seq(seq));
        let found: Vec<u64> = (0..12).filter(|seq| of_four(*seq)).collect();
        assert_eq!(found, [1, 2, 3, 7, 9, 10]);
        assert!(!live.contains(StreamId(3), Seq(1)));
        assert_eq!((live.bytes(), live.messages(), live.bytes_of(StreamId(4))), (61, 7, 60));
        assert_eq!(live.streams[&StreamId(4)].runs.len(), 3);
    }
}
