//! The newest removals of a stream, for consumers that count what is pending for them.

use nuthatch_log::Seq;
use std::collections::VecDeque;

/// Removals that are remembered per stream. A consumer that falls further behind counts again.
pub const JOURNAL_ENTRIES_MAX: usize = 16 * 1024;

/// Sequences and subjects of removed messages, oldest first, the oldest dropped when full.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<(u64, u32)>,
    /// Removals so far; the position after the newest entry.
    cursor: u64,
}

impl Journal {
    /// Notes a removal. With nobody reading, only the cursor moves.
    #[inline]
    pub fn note(&mut self, seq: u64, subject: u32, has_readers: bool) {
        self.cursor += 1;
        if !has_readers {
            self.entries.clear();
            return;
        }
        if self.entries.len() == JOURNAL_ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((seq, subject));
    }

    /// Position to pass to [`Journal::since`] later.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Removals since `cursor`; `None` if they are not all remembered.
    pub fn since(&self, cursor: u64) -> Option<impl Iterator<Item = (Seq, u32)> + '_> {
        let missed = usize::try_from(self.cursor.checked_sub(cursor)?).ok()?;
        let skip = self.entries.len().checked_sub(missed)?;
        Some(self.entries.range(skip..).map(|&(seq, subject)| (Seq(seq), subject)))
    }
}
