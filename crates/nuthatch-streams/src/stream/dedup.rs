//! The window in which a message id counts as a duplicate: 128-bit hashes in order of time.

use nuthatch_log::Timestamp;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A message id as it is remembered. Two ids share a hash with a probability that a stream's
/// lifetime does not reach (2⁻⁶⁴ at four billion ids in a window).
pub type IdHash = u128;

/// The hash under which a message id is remembered.
#[must_use]
pub fn hash_id(id: &[u8]) -> IdHash {
    xxhash_rust::xxh3::xxh3_128(id)
}

/// One remembered id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// Its hash.
    pub hash: IdHash,
    /// The sequence that its message got.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

/// The ids of one stream within its window.
#[derive(Debug, Default)]
pub struct Dedup {
    seqs: FxHashMap<IdHash, u64>,
    /// In order of time, for expiry.
    queue: VecDeque<Remembered>,
}

impl Dedup {
    /// Ids remembered, expired ones that were not swept included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// When the oldest id was remembered.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.queue.front().map(|oldest| oldest.at)
    }

    /// Forgets what is older than the window. Amortised O(1) per remembered id.
    pub fn sweep(&mut self, now: Timestamp, window_ns: i64) {
        let horizon = now.0.saturating_sub(window_ns);
        while let Some(oldest) = self.queue.front().filter(|oldest| oldest.at.0 <= horizon) {
            if self.seqs.get(&oldest.hash) == Some(&oldest.seq) {
                self.seqs.remove(&oldest.hash);
            }
            self.queue.pop_front();
        }
    }

    /// The sequence of the message that had this id. Sweep first.
    #[must_use]
    pub fn find(&self, hash: IdHash) -> Option<u64> {
        self.seqs.get(&hash).copied()
    }

    /// Remembers an id.
    pub fn remember(&mut self, id: Remembered) {
        self.seqs.insert(id.hash, id.seq);
        self.queue.push_back(id);
    }

    /// Every remembered id, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Remembered> {
        self.queue.iter()
    }
}
