//! The log that is in its nodes' memory: what its keepers lie on, and what they keep how long.
//!
//! A keeper of it is a keeper like any other, in a directory in main memory: each start of its process is another disk.
//! Nothing in that directory outlasts the process, so nothing is set aside in it, and its journal is short: who lacks more
//! is given the files.

use crate::journal::Sizes;
use nuthatch_log::env::{Disk, RamDisk};
use nuthatch_quorum::effect::Alarm;
use std::io;
use std::sync::Arc;

/// The name of the log in memory, for people and for placement.
pub const MEMORY_LOG: &str = "memory-quorum";

/// Memory that a keeper may take beside what it is set up for: its journal, and files that take the place of others.
pub const BESIDE_BYTES: u64 = 512 << 20;

/// What a keeper may take for a log that its node is not set up for.
const UNTOLD_BYTES: u64 = 1 << 30;

/// Files of the journal. No zeros are written ahead in memory: each record goes to space that is only counted.
pub(crate) const SIZES: Sizes = Sizes { file: 16 << 20, zero_ahead: 4096, large_record: 0 };

/// When a keeper makes its files what a start would begin with, and how much of the journal it keeps behind that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// After so many bytes of entries.
    pub(crate) mark_bytes: u64,
    /// Files of the journal that stay beside the one that is written.
    pub(crate) files: usize,
    /// As many stay at most for a node that is brought files meanwhile.
    pub(crate) held: usize,
}

/// That of a keeper in memory: 16 MiB, and 16 and 256 MiB of files.
pub(crate) const PACE: Pace = Pace { mark_bytes: 16 << 20, files: 1, held: 16 };

/// The memory of a keeper.
#[derive(Clone)]
pub(crate) struct KeeperMemory {
    disk: RamDisk,
    bytes_max: u64,
}

impl KeeperMemory {
    /// Memory of so many bytes beside [`BESIDE_BYTES`].
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let bytes_max = bytes.unwrap_or(UNTOLD_BYTES).saturating_add(BESIDE_BYTES);
        Self { disk: RamDisk::new(bytes_max), bytes_max }
    }

    /// As a disk.
    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    /// How many bytes it takes, what is allocated included, and how many it may take.
    pub(crate) fn usage(&self) -> io::Result<MemoryUsage> {
        let bytes = self.bytes_max - self.disk.free_bytes()?;
        Ok(MemoryUsage { bytes, bytes_max: self.bytes_max })
    }
}

/// The memory of a node's keeper of the log in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUsage {
    /// Bytes that it takes, what is set aside for it included.
    pub bytes: u64,
    /// Bytes that it may take.
    pub bytes_max: u64,
}

/// What people are told of a log in memory that began anew; none of other alarms.
pub(crate) fn words(alarm: &Alarm) -> Option<String> {
    match alarm {
        Alarm::BeganAnew { epoch, left, of } => Some(format!(
            "the log began anew, empty, with epoch {}: of the {of} nodes that had it in memory {left} still had it, which \
             is no majority, so nobody can tell what was acknowledged. Whatever was in it is lost",
            epoch.0
        )),
        Alarm::LeftOut { last, .. } => Some(format!(
            "the log goes on without what this node had of it, which gives up the {} entries that it had in memory",
            last.0
        )),
        _ => None,
    }
}
