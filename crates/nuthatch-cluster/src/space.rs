//! Room on the disk of a node's keepers: what is kept of it for the journals, the catalog, and whatever makes room.
//!
//! All logs of a node and its catalog are on one disk as a rule. While less than [`SpaceKept::short`] is free nobody is to
//! take new messages: deletes, acknowledgements and compaction go on. Below [`SpaceKept::full`] a keeper takes no entries
//! any more, so that what is left suffices for promises and the catalog, and the process goes on until there is room.

use crate::journal::Sizes;
use nuthatch_log::env::Disk;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of the journal takes no more than this part of what is free at the start.
const JOURNAL_PART: u64 = 64;

/// The smallest files of a journal.
const JOURNAL_FILE_MIN: u64 = 4 << 20;

/// What is kept for the catalog and for small files beside the journals.
const BESIDE_BYTES: u64 = 32 << 20;

/// What is kept of that when the disk counts as full.
const BESIDE_FULL_BYTES: u64 = 8 << 20;

/// Bytes that a published byte takes: in the journal and in the files.
const COPIES: u64 = 2;

/// Sizes of the files of a journal on this disk: on a small one they are small.
///
/// # Errors
/// The operating system's.
pub(crate) fn sizes(disk: &dyn Disk) -> io::Result<Sizes> {
    let usual = Sizes::default();
    let part = (disk.free_bytes()? / JOURNAL_PART).max(JOURNAL_FILE_MIN);
    Ok(Sizes { file: usual.file.min(part >> 20 << 20), ..usual })
}

/// What is kept free on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceKept {
    /// With less than that nobody takes new messages.
    pub short: u64,
    /// With less than that a keeper takes no entries.
    pub full: u64,
}

impl SpaceKept {
    /// Nothing: the log is in memory, which others bound.
    pub(crate) const NOTHING: Self = Self { short: 0, full: 0 };

    /// For so many logs on a disk, whose journals' files have so many bytes: each may need two more of these, one when the
    /// disk is full.
    pub(crate) fn of(file_bytes: u64, logs: usize) -> Self {
        let step = file_bytes * logs as u64;
        Self { short: 2 * step + BESIDE_BYTES, full: step + BESIDE_FULL_BYTES }
    }
}

/// What is free on a keeper's disk, as it was last looked at, less what was published since.
#[derive(Debug)]
pub(crate) struct Space {
    kept: SpaceKept,
    free: AtomicU64,
}

impl Space {
    pub(crate) fn new(kept: SpaceKept) -> Self {
        Self { kept, free: AtomicU64::new(u64::MAX) }
    }

    /// True if anything is kept, so that it is to be looked at.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept != SpaceKept::NOTHING
    }

    /// So many bytes are free.
    pub(crate) fn see(&self, free: u64) {
        self.free.store(free, Ordering::Release);
    }

    /// So many bytes were published.
    pub(crate) fn published(&self, bytes: u64) {
        let less = |free: u64| Some(free.saturating_sub(COPIES * bytes));
        let _ = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// No new messages are to be taken.
    pub(crate) fn is_short(&self) -> bool {
        self.free.load(Ordering::Acquire) < self.kept.short
    }

    /// No entries are to be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.free.load(Ordering::Acquire) < self.kept.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::RamDisk;

    #[test]
    fn files_of_a_journal_are_small_on_a_small_disk() {
        let file = |free: u64| sizes(&RamDisk::new(free)).expect("sizes").file;
        assert_eq!(file(1 << 40), 64 << 20);
        assert_eq!(file(320 << 20), 5 << 20);
        assert_eq!(file(100), 4 << 20, "what is written may be read again, and mended");
    }

    #[test]
    fn what_is_published_counts_before_the_disk_is_looked_at_again() {
        let space = Space::new(SpaceKept::of(4 << 20, 3));
        assert!(!space.is_short(), "nothing is known yet");
        space.see(60 << 20);
        assert!(!space.is_short() && !space.is_full());
        space.published(3 << 20);
        assert!(space.is_short() && !space.is_full());
        space.see(19 << 20);
        assert!(space.is_full());
        space.see(60 << 20);
        assert!(!space.is_short() && !space.is_full());
        let memory = Space::new(SpaceKept::NOTHING);
        memory.see(0);
        assert!(!memory.is_short() && !memory.is_full());
    }
}
