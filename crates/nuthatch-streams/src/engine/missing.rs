//! Messages that a stream holds and its log does not give: damage, never "no such message".
//!
//! The log reports and counts what it finds damaged itself. What it says it never had is found out
//! by the stream's table, and told once for each message.

use nuthatch_log::{Seq, StreamId};
use rustc_hash::FxHashSet;

/// Messages that are remembered as told. Beyond that every read of another one counts.
const TOLD_MAX: usize = 4096;

/// Messages found missing.
#[derive(Default)]
pub(super) struct MissingMessages {
    told: FxHashSet<(StreamId, Seq)>,
    count: u64,
}

impl MissingMessages {
    /// Messages found missing, since the start.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts a message, unless it is remembered. True if it is to be told.
    pub(super) fn is_news(&mut self, id: StreamId, seq: Seq) -> bool {
        if self.told.contains(&(id, seq)) {
            return false;
        }
        self.count += 1;
        self.told.len() < TOLD_MAX && self.told.insert((id, seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_once_and_memory_is_bounded() {
        let mut missing = MissingMessages::default();
        assert!(missing.is_news(StreamId(1), Seq(1)));
        assert!(!missing.is_news(StreamId(1), Seq(1)));
        assert_eq!(missing.count(), 1);
        for seq in 2..=TOLD_MAX as u64 {
            assert!(missing.is_news(StreamId(1), Seq(seq)));
        }
        assert!(!missing.is_news(StreamId(2), Seq(1)), "counted and not told");
        assert!(!missing.is_news(StreamId(2), Seq(1)));
        assert_eq!(missing.count(), TOLD_MAX as u64 + 2);
    }
}
