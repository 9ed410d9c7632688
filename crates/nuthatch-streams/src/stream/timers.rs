//! Messages with a time of their own (ADR-43): when each of them goes, and which are delete markers.
//!
//! A heap in order of time whose stale entries are dropped when met, and swept when they are the
//! larger part; so a removal costs O(1) and an expiry O(log n). What is kept here is counted
//! against the engine's budget.

use nuthatch_log::Timestamp;
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A time to live in seconds that never ends.
pub const TTL_NEVER: u32 = u32::MAX;
/// The heap is swept when it holds more than this and twice what is live.
const SWEEP_ABOVE_ENTRIES: usize = 1024;

/// Times to live of one stream's messages.
#[derive(Debug, Default)]
pub struct Timers {
    /// Seconds by sequence, [`TTL_NEVER`] included.
    ttls: FxHashMap<u64, u32>,
    /// When messages go; may hold entries of messages that went otherwise.
    due: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// Delete markers: they go without leaving another one.
    markers: RoaringTreemap,
}

const fn ends_at(at: Timestamp, ttl_s: u32) -> Timestamp {
    at.plus_nanos((ttl_s as i64).saturating_mul(1_000_000_000))
}

impl Timers {
    /// Messages with a time to live.
    pub fn len(&self) -> usize {
        self.ttls.len()
    }

    /// True if no message has one.
    pub fn is_empty(&self) -> bool {
        self.ttls.is_empty()
    }

    /// A message that was stored at `at` goes after `ttl_s` seconds.
    pub fn add(&mut self, seq: u64, at: Timestamp, ttl_s: u32) {
        self.ttls.insert(seq, ttl_s);
        self.start(seq, at, ttl_s);
    }

    fn start(&mut self, seq: u64, at: Timestamp, ttl_s: u32) {
        if ttl_s == TTL_NEVER {
            return;
        }
        if self.due.len() >= SWEEP_ABOVE_ENTRIES.max(2 * self.ttls.len()) {
            let ttls = &self.ttls;
            self.due.retain(|Reverse((_, seq))| ttls.contains_key(seq));
        }
        self.due.push(Reverse((ends_at(at, ttl_s), seq)));
    }

    /// A message is a delete marker.
    pub fn add_marker(&mut self, seq: u64) {
        self.markers.insert(seq);
    }

    /// A message is gone.
    #[inline]
    pub fn remove(&mut self, seq: u64) {
        if !self.ttls.is_empty() {
            self.ttls.remove(&seq);
        }
        if !self.markers.is_empty() {
            self.markers.remove(seq);
        }
    }

    /// True if a message is exempt from the stream's age limit.
    pub fn is_never(&self, seq: u64) -> bool {
        self.ttls.get(&seq) == Some(&TTL_NEVER)
    }

    /// True if a message is a delete marker.
    pub fn is_marker(&self, seq: u64) -> bool {
        self.markers.contains(seq)
    }

    /// When the next message goes, possibly one that went already.
    pub fn next(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A message whose time is over at `now`; each is given once.
    pub fn pop(&mut self, now: Timestamp) -> Option<u64> {
        while let Some(&Reverse((at, seq))) = self.due.peek() {
            if at > now {
                return None;
            }
            self.due.pop();
            if self.ttls.contains_key(&seq) {
                return Some(seq);
            }
        }
        None
    }

    /// Times to live by sequence, in order.
    pub fn sorted(&self) -> Vec<(u64, u32)> {
        let mut all: Vec<(u64, u32)> = self.ttls.iter().map(|(&seq, &ttl)| (seq, ttl)).collect();
        all.sort_unstable();
        all
    }

    /// Markers.
    pub const fn markers(&self) -> &RoaringTreemap {
        &self.markers
    }

    /// Recovery: what a state tells; [`Timers::reindex`] follows for each message that lives.
    pub fn restore(&mut self, ttls: FxHashMap<u64, u32>, markers: RoaringTreemap) {
        self.ttls = ttls;
        self.markers = markers;
    }

    /// Recovery: a message that the state speaks of lives.
    pub fn reindex(&mut self, seq: u64, at: Timestamp) {
        if let Some(&ttl_s) = self.ttls.get(&seq) {
            self.start(seq, at, ttl_s);
        }
    }

    /// Recovery: every message that lives has been indexed.
    pub fn keep_only(&mut self, lives: impl Fn(u64) -> bool) {
        self.ttls.retain(|&seq, _| lives(seq));
        let gone: Vec<u64> = self.markers.iter().filter(|&seq| !lives(seq)).collect();
        for seq in gone {
            self.markers.remove(seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_entries_are_neither_given_nor_kept_for_ever() {
        let mut timers = Timers::default();
        let second = |s: i64| Timestamp(s * 1_000_000_000);
        timers.add(1, second(0), 5);
        timers.add(2, second(0), 1);
        timers.add(3, second(0), TTL_NEVER);
        assert_eq!(timers.next(), Some(second(1)));
        timers.remove(2);
        assert_eq!(timers.pop(second(4)), None);
        assert_eq!(timers.pop(second(5)), Some(1));
        assert_eq!(timers.pop(second(9)), None);
        assert!(timers.is_never(3) && timers.len() == 2);
        for seq in 10..100_000 {
            timers.add(seq, second(0), 1000);
            timers.remove(seq);
        }
        assert!(timers.due.len() <= 2 * SWEEP_ABOVE_ENTRIES, "{}", timers.due.len());
    }
}
