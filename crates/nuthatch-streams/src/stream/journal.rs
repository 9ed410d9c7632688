//! The newest removals of a stream, for consumers that count what is pending for them.

use nuthatch_log::Seq;
use std::collections::VecDeque;

/// Most removals that are remembered per stream. A consumer that falls further behind counts again.
pub const JOURNAL_ENTRIES_MAX: u64 = 16 * 1024;
/// So many are remembered however small the stream is.
const JOURNAL_ENTRIES_MIN: u64 = 64;
/// Small streams are soon counted: they remember one removal for so many messages that they hold.
const MESSAGES_PER_ENTRY: u64 = 8;

/// Sequences and subjects of removed messages, oldest first, the oldest dropped when full.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<(u64, u32)>,
    /// Removals so far; the position after the newest entry.
    cursor: u64,
}

impl Journal {
    /// Notes a removal from a stream that holds `messages`.
    #[inline]
    pub fn note(&mut self, seq: u64, subject: u32, messages: u64) {
        self.cursor += 1;
        let most = (messages / MESSAGES_PER_ENTRY).clamp(JOURNAL_ENTRIES_MIN, JOURNAL_ENTRIES_MAX);
        while self.entries.len() as u64 >= most {
            self.entries.pop_front();
        }
        self.entries.push_back((seq, subject));
    }

    /// Counts a removal that no consumer will ask for.
    pub fn note_unread(&mut self) {
        self.cursor += 1;
        self.entries = VecDeque::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_remembers_as_much_as_the_stream_is_large() {
        let mut journal = Journal::default();
        (1..=1000).for_each(|seq| journal.note(seq, 0, 10));
        let newest = journal.since(1000 - JOURNAL_ENTRIES_MIN).expect("remembered");
        assert_eq!(
            newest.map(|(seq, _)| seq.0).collect::<Vec<_>>(),
            (937..=1000).collect::<Vec<_>>()
        );
        assert!(journal.since(1000 - JOURNAL_ENTRIES_MIN - 1).is_none());
        (1..=1000).for_each(|seq| journal.note(seq, 0, 1_000_000));
        assert!(journal.since(1000).is_some());
        journal.note_unread();
        assert!(journal.since(2000).is_none() && journal.since(journal.cursor()).is_some());
    }
}
