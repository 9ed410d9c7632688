//! Checkpoints: snapshots of the machine that spare a restart most of the replay. Two are kept.
//! They say nothing about the log itself: one that does not fit it is not used.

use crate::bytes::{u32_at, u64_at};
use crate::catalog::{Catalog, SegmentState};
use crate::env::{Disk, read_exact_at, replace_file};
use crate::frame::crc;
use crate::machine::Machine;
use crate::recovery::Recovery;
use crate::types::{Epoch, Lsn};
use std::io;

const MAGIC: [u8; 8] = *b"NUTHCKPT";

/// Version of the checkpoint format that this code writes, and the only one it reads.
pub const CHECKPOINT_VERSION: u32 = 1;

/// Bytes in front of the snapshot.
pub const HEADER_BYTES: usize = 48;

/// First part of the names of checkpoints.
pub const PREFIX: &str = "checkpoint-";

/// How many checkpoints are kept.
const KEPT: usize = 2;

/// A checkpoint longer than this is not read.
const MAX_CHECKPOINT_BYTES: u64 = 4 << 30;

/// Which state of the log a checkpoint stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Covers {
    /// Identity of the log.
    pub log_id: u64,
    /// Everything up to this frame is in it, nothing behind.
    pub lsn: Lsn,
    /// Who wrote that frame: the same position of another generation is another frame.
    pub epoch: Epoch,
}

/// Room for the header in front of a snapshot that is about to be made.
#[must_use]
pub fn begin() -> Vec<u8> {
    vec![0; HEADER_BYTES]
}

/// Completes the header of `bytes` (begun by [`begin`]), writes the file, removes old ones.
///
/// # Errors
/// The disk's.
pub fn write(disk: &dyn Disk, covers: Covers, mut bytes: Vec<u8>) -> io::Result<()> {
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&covers.log_id.to_le_bytes());
    bytes[24..32].copy_from_slice(&covers.lsn.0.to_le_bytes());
    bytes[32..36].copy_from_slice(&covers.epoch.0.to_le_bytes());
    let len = (bytes.len() - HEADER_BYTES) as u64;
    bytes[40..48].copy_from_slice(&len.to_le_bytes());
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    replace_file(disk, &format!("{PREFIX}{:020}", covers.lsn.0), &bytes)?;
    let names = names(disk)?;
    for old in names.iter().rev().skip(KEPT) {
        disk.remove(old)?;
    }
    Ok(())
}

/// Names of the checkpoint files, the oldest first.
///
/// # Errors
/// The disk's.
pub fn names(disk: &dyn Disk) -> io::Result<Vec<String>> {
    let mut names = disk.list("")?;
    names.retain(|name| name.starts_with(PREFIX));
    Ok(names)
}

/// Reads a checkpoint file: what it covers and its bytes, the snapshot behind the header.
///
/// # Errors
/// Why it cannot be used.
pub fn read(disk: &dyn Disk, name: &str) -> Result<(Covers, Vec<u8>), String> {
    let whole = || -> io::Result<Vec<u8>> {
        let file = disk.open(name)?;
        let len = file.len()?.min(MAX_CHECKPOINT_BYTES);
        read_exact_at(&*file, 0, usize::try_from(len).unwrap_or(usize::MAX))
    };
    let mut bytes = whole().map_err(|error| error.to_string())?;
    if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
        return Err("it does not begin like a checkpoint".to_owned());
    }
    let sum = u32_at(&bytes, 12);
    bytes[12..16].fill(0);
    if sum != crc(&bytes) || u64_at(&bytes, 40) != (bytes.len() - HEADER_BYTES) as u64 {
        return Err("its checksum does not fit".to_owned());
    }
    if u32_at(&bytes, 8) != CHECKPOINT_VERSION {
        return Err(format!("it has version {}", u32_at(&bytes, 8)));
    }
    let covers = Covers {
        log_id: u64_at(&bytes, 16),
        lsn: Lsn(u64_at(&bytes, 24)),
        epoch: Epoch(u32_at(&bytes, 32)),
    };
    Ok((covers, bytes))
}

/// Whether the log still holds the very frame that a checkpoint ends with.
#[must_use]
pub fn fits(covers: Covers, catalog: &Catalog) -> bool {
    let holds = |entry: &crate::catalog::SegmentEntry| {
        (entry.base..=entry.end).contains(&covers.lsn)
            && entry.state != SegmentState::Replaced
            && (entry.epoch == covers.epoch
                || entry.compacted
                || entry.state == SegmentState::Removed)
    };
    covers.log_id == catalog.log_id && catalog.segments.iter().any(holds)
}

impl<M: Machine> Recovery<M> {
    /// Restores the newest usable checkpoint into the machine. One that is not usable is removed:
    /// everything in it can be had from the log.
    pub(crate) fn restore_checkpoint(&mut self) -> Option<Lsn> {
        let names = names(&*self.disk).unwrap_or_default();
        for name in names.iter().rev() {
            match self.try_checkpoint(name) {
                Ok(lsn) => return Some(lsn),
                Err(why) => {
                    self.options.report.say(&format!("{name} is not used: {why}"));
                    let _ = self.disk.remove(name);
                }
            }
        }
        None
    }

    fn try_checkpoint(&mut self, name: &str) -> Result<Lsn, String> {
        let (covers, bytes) = read(&*self.disk, name)?;
        if !fits(covers, &self.catalog) {
            return Err("it does not belong to the log as it is".to_owned());
        }
        let restored = self.machine.restore(&bytes[HEADER_BYTES..]);
        restored.map_err(|error| error.to_string())?;
        Ok(covers.lsn)
    }
}
