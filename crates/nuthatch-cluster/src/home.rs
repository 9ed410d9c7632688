//! Where a log of a node is, and what follows from that for its keeper.

use crate::files;
use crate::in_bucket::{self, Binding};
use crate::in_memory::{self, KeeperMemory, Pace};
use crate::space::SpaceKept;
use nuthatch_quorum::effect::Alarm;

/// Where a log of a node is.
pub(crate) enum Home {
    /// On its nodes' disks.
    Disks,
    /// In its nodes' memory.
    Memory(KeeperMemory),
    /// In a bucket; its keepers lie in directories that may go at any time.
    Bucket(Binding),
}

impl Home {
    /// True if the log may begin anew where too few keepers are left.
    pub(crate) fn begins_anew(&self) -> bool {
        !matches!(self, Self::Disks)
    }

    /// `file_bytes`: size of the files of the journal.
    pub(crate) fn pace(&self, file_bytes: u64) -> Pace {
        match self {
            Self::Disks => Pace { mark_bytes: file_bytes, ..files::ON_DISK },
            Self::Memory(_) | Self::Bucket(_) => in_memory::PACE,
        }
    }

    /// What is kept free on the disk of a keeper of one of so many logs.
    pub(crate) fn space_kept(&self, file_bytes: u64, logs: usize) -> SpaceKept {
        match self {
            Self::Memory(_) => SpaceKept::NOTHING,
            Self::Disks | Self::Bucket(_) => SpaceKept::of(file_bytes, logs),
        }
    }

    pub(crate) fn words(&self) -> fn(&Alarm) -> Option<String> {
        match self {
            Self::Disks | Self::Memory(_) => in_memory::words,
            Self::Bucket(_) => in_bucket::words,
        }
    }
}
