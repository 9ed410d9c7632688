//! Which messages arrived: finds what was lost, came twice, or came out of order.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::stamp::Stamp;

/// Messages of one sender that can be told apart. A stamp beyond it counts as foreign, so that a
/// damaged one cannot reserve unbounded memory: this many bits are 128 MiB.
const MAX_SEQ: u64 = 1 << 30;

/// Senders that can be told apart, for the same reason.
const MAX_SENDERS: usize = 100_000;

/// Messages seen by receivers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    senders: BTreeMap<u32, Bits>,
    /// Messages that came again.
    duplicates: u64,
    /// Messages that came after a later one of the same sender on the same receiver.
    reordered: u64,
    /// Messages that are not ours.
    foreign: u64,
    /// Highest sequence by sender, of one receiver.
    #[serde(skip)]
    last: BTreeMap<u32, u64>,
}

impl Seen {
    /// Notes a message.
    pub fn note(&mut self, stamp: Option<Stamp>) {
        let known = |stamp: &Stamp| {
            stamp.seq < MAX_SEQ
                && (self.senders.len() < MAX_SENDERS || self.senders.contains_key(&stamp.sender))
        };
        let Some(stamp) = stamp.filter(known) else {
            self.foreign += 1;
            return;
        };
        if !self.senders.entry(stamp.sender).or_default().set(stamp.seq) {
            self.duplicates += 1;
            return;
        }
        let last = self.last.entry(stamp.sender).or_insert(stamp.seq);
        if stamp.seq < *last {
            self.reordered += 1;
        }
        *last = stamp.seq.max(*last);
    }

    /// Adds what another receiver has seen. A message seen by both came twice.
    pub fn merge(&mut self, other: &Self) {
        for (sender, bits) in &other.senders {
            self.duplicates += self.senders.entry(*sender).or_default().merge(bits);
        }
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.foreign += other.foreign;
    }

    /// Compares with what the senders know to be safe: how many messages each, counted from 0.
    pub fn verdict(&self, confirmed: &BTreeMap<u32, u64>) -> Verdict {
        let empty = Bits::default();
        let bits = |sender: &u32| self.senders.get(sender).unwrap_or(&empty);
        let received: u64 = self.senders.values().map(Bits::count).sum();
        let lost = confirmed.iter().map(|(sender, sent)| sent - bits(sender).count_below(*sent));
        Verdict {
            confirmed: confirmed.values().sum(),
            received,
            lost: lost.sum(),
            duplicated: self.duplicates,
            reordered: self.reordered,
            foreign: self.foreign,
        }
    }
}

/// Fate of the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Messages whose sends completed.
    pub confirmed: u64,
    /// Different messages received.
    pub received: u64,
    /// Confirmed and not received.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later one of the same sender, on the same connection.
    pub reordered: u64,
    /// Received without having been sent in this run.
    pub foreign: u64,
}

/// A growing set of small numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    /// Adds a number; says whether it is new.
    fn set(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Adds all of another set and returns how many were there already.
    fn merge(&mut self, other: &Self) -> u64 {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut both = 0;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            both += u64::from((*mine & theirs).count_ones());
            *mine |= theirs;
        }
        both
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many numbers below `limit` are in it.
    fn count_below(&self, limit: u64) -> u64 {
        let whole = (limit / 64) as usize;
        let full: u64 = self.0.iter().take(whole).map(|word| u64::from(word.count_ones())).sum();
        let mask = (1u64 << (limit % 64)) - 1;
        full + self.0.get(whole).map_or(0, |word| u64::from((word & mask).count_ones()))
    }
}

impl Serialize for Bits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Ok(Self(words.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sender: u32, seq: u64) -> Option<Stamp> {
        Some(Stamp { sender, seq, sent_ns: 0 })
    }

    fn seen(stamps: &[(u32, u64)]) -> Seen {
        let mut seen = Seen::default();
        for (sender, seq) in stamps {
            seen.note(stamp(*sender, *seq));
        }
        seen
    }

    #[test]
    fn lost_doubled_and_swapped() {
        let mut all = seen(&[(1, 0), (1, 2), (1, 1), (1, 1), (2, 0)]);
        all.merge(&seen(&[(1, 0), (1, 70)]));
        all.note(None);
        all.note(stamp(1, MAX_SEQ));
        let verdict = all.verdict(&BTreeMap::from([(1, 80), (2, 1), (3, 5)]));
        let expected = Verdict {
            confirmed: 86,
            received: 5,
            lost: 76 + 5,
            duplicated: 2,
            reordered: 1,
            foreign: 2,
        };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn a_message_sent_but_not_confirmed_is_not_lost() {
        let all = seen(&[(1, 0), (1, 1), (1, 2)]);
        assert_eq!(all.verdict(&BTreeMap::from([(1, 2)])).lost, 0);
        assert_eq!(all.verdict(&BTreeMap::from([(1, 64)])).lost, 61);
    }

    #[test]
    fn survives_json() {
        let before = seen(&[(1, 0), (1, 200), (9, 63), (9, 64)]);
        let json = serde_json::to_string(&before).unwrap();
        let after: Seen = serde_json::from_str(&json).unwrap();
        assert_eq!(after.senders, before.senders);
    }
}
