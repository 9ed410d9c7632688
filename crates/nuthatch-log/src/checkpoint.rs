//! Checkpoints: snapshots of the machine that spare a restart most of the replay. Two are kept.
//! They say nothing about the log itself: one that does not fit it is not used.

use crate::bytes::{u32_at, u64_at};
use crate::catalog::{Catalog, SegmentState};
use crate::env::{Disk, read_exact_at, replace_file};
use crate::frame::crc;
use crate::keys::{KeyId, Keyring, SealFault};
use crate::later::{Later, Unusable};
use crate::types::{Epoch, Lsn};
use std::io;

const MAGIC: [u8; 8] = *b"NUTHCKPT";

/// Version of the checkpoint format.
pub const CHECKPOINT_VERSION: u32 = 1;

/// Version of a checkpoint whose snapshot is sealed.
pub const SEALED_VERSION: u32 = 2;

/// Bytes in front of the snapshot.
pub const HEADER_BYTES: usize = 48;

/// First part of the names of checkpoints.
pub const PREFIX: &str = "checkpoint-";

/// How many checkpoints are kept.
const KEPT: usize = 2;

/// A longer checkpoint is neither written nor read.
const MAX_CHECKPOINT_BYTES: u64 = 4 << 30;

/// Which state of the log a checkpoint stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Covers {
    /// Identity of the log.
    pub log_id: u64,
    /// Everything up to this frame is in it, nothing behind.
    pub lsn: Lsn,
    /// Epoch of that frame's writer: the same position of another epoch is another frame.
    pub epoch: Epoch,
}

/// Room for the header in front of a snapshot that is about to be made.
#[must_use]
pub fn begin() -> Vec<u8> {
    vec![0; HEADER_BYTES]
}

/// Completes the header of `bytes` (begun by [`begin`]), seals the snapshot, writes the file, removes old
/// ones.
///
/// # Errors
/// The disk's; `FileTooLarge`, before anything is written, if no start would read it.
pub fn write(disk: &dyn Disk, covers: Covers, bytes: Vec<u8>, keys: &Keyring) -> io::Result<()> {
    replace(disk, covers, bytes, keys)?;
    let names = names(disk)?;
    for old in names.iter().rev().skip(KEPT) {
        disk.remove(old)?;
    }
    Ok(())
}

/// As [`write`], beside what is there.
///
/// # Errors
/// As [`write`].
pub fn replace(
    disk: &dyn Disk,
    covers: Covers,
    mut bytes: Vec<u8>,
    keys: &Keyring,
) -> io::Result<()> {
    let key_id = keys.current();
    check_len((bytes.len() + Keyring::overhead(key_id)) as u64)?;
    let version = if key_id.is_some() { SEALED_VERSION } else { CHECKPOINT_VERSION };
    if key_id.is_some() {
        keys.seal_vec(key_id, &seal_context(covers), &mut bytes, HEADER_BYTES);
    }
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].fill(0);
    bytes[36..40].copy_from_slice(&key_id.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&covers.log_id.to_le_bytes());
    bytes[24..32].copy_from_slice(&covers.lsn.0.to_le_bytes());
    bytes[32..36].copy_from_slice(&covers.epoch.0.to_le_bytes());
    let len = (bytes.len() - HEADER_BYTES) as u64;
    bytes[40..48].copy_from_slice(&len.to_le_bytes());
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    replace_file(disk, &format!("{PREFIX}{:020}", covers.lsn.0), &bytes)
}

/// What the seal binds besides the snapshot.
fn seal_context(covers: Covers) -> [u8; 13] {
    let mut context = [b'C'; 13];
    context[1..9].copy_from_slice(&covers.lsn.0.to_le_bytes());
    context[9..13].copy_from_slice(&covers.epoch.0.to_le_bytes());
    context
}

fn check_len(len: u64) -> io::Result<()> {
    if len <= MAX_CHECKPOINT_BYTES {
        return Ok(());
    }
    let text = format!(
        "a checkpoint of {len} bytes would be longer than {MAX_CHECKPOINT_BYTES}, which is the most that \
         a start reads: starts replay from the last one that was written"
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
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

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointFault {
    /// The disk failed: it may be whole.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file was read and is damaged, or of a later version.
    #[error("{0}")]
    Unusable(Unusable),
}

/// A checkpoint that was read.
pub struct Checkpoint {
    /// What it covers.
    pub covers: Covers,
    /// Key under which it is sealed.
    pub key_id: KeyId,
    /// Its bytes, decrypted: the snapshot behind the header.
    pub bytes: Vec<u8>,
}

impl Checkpoint {
    /// Its snapshot.
    #[must_use]
    pub fn snapshot(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

/// Reads a checkpoint file.
///
/// # Errors
/// [`CheckpointFault`].
pub fn read(disk: &dyn Disk, name: &str, keys: &Keyring) -> Result<Checkpoint, CheckpointFault> {
    let damaged = |what| Err(CheckpointFault::Unusable(Unusable::Damaged(what)));
    let whole = || -> io::Result<Option<Vec<u8>>> {
        let file = disk.open(name)?;
        let len = file.len()?;
        if len > MAX_CHECKPOINT_BYTES {
            return Ok(None);
        }
        read_exact_at(&*file, 0, usize::try_from(len).unwrap_or(usize::MAX)).map(Some)
    };
    let Some(mut bytes) = crate::env::again(whole)? else {
        return damaged("it is longer than checkpoints are");
    };
    if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
        return damaged("it does not begin like a checkpoint");
    }
    let sum = u32_at(&bytes, 12);
    bytes[12..16].fill(0);
    if sum != crc(&bytes) || u64_at(&bytes, 40) != (bytes.len() - HEADER_BYTES) as u64 {
        return damaged("its checksum does not fit");
    }
    let (version, key_id) = (u32_at(&bytes, 8), KeyId(u32_at(&bytes, 36)));
    if !matches!(version, CHECKPOINT_VERSION | SEALED_VERSION) {
        return Err(CheckpointFault::Unusable(Unusable::Later(Later::Version(version))));
    }
    if key_id.is_some() != (version == SEALED_VERSION) {
        return Err(CheckpointFault::Unusable(Unusable::Later(Later::Header)));
    }
    let covers = Covers {
        log_id: u64_at(&bytes, 16),
        lsn: Lsn(u64_at(&bytes, 24)),
        epoch: Epoch(u32_at(&bytes, 32)),
    };
    if key_id.is_some() {
        unseal(&mut bytes, covers, key_id, keys).map_err(CheckpointFault::Unusable)?;
    }
    Ok(Checkpoint { covers, key_id, bytes })
}

fn unseal(
    bytes: &mut Vec<u8>,
    covers: Covers,
    key_id: KeyId,
    keys: &Keyring,
) -> Result<(), Unusable> {
    let sealed = &mut bytes[HEADER_BYTES..];
    let len = keys.open(key_id, &seal_context(covers), sealed).map_err(|fault| match fault {
        SealFault::NoKey(id) => Unusable::Later(Later::Key(id)),
        SealFault::Unknown => Unusable::Later(Later::Frame),
        SealFault::Broken => Unusable::Damaged("it is not what was sealed under its key"),
    })?;
    bytes.truncate(HEADER_BYTES + len);
    Ok(())
}

/// True if the log still holds the very frame that a checkpoint ends with.
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

/// True if a checkpoint proves that positions behind the log's last one were durable: no earlier
/// owner wrote it, and it covers them.
#[must_use]
pub fn is_ahead(covers: Covers, catalog: &Catalog, end: Lsn) -> bool {
    let newest = catalog.segments.iter().map(|entry| entry.epoch).max();
    covers.log_id == catalog.log_id && Some(covers.epoch) >= newest && covers.lsn > end
}

/// The position in the name of a checkpoint whose content says nothing any more, if it is behind the
/// log's last one: the file had its name when all that it covers was durable. In a bucket an owner
/// that was superseded may have written it.
pub fn name_is_ahead(disk: &dyn Disk, name: &str, end: Lsn) -> Option<Lsn> {
    named_lsn(name).filter(|covers| disk.medium().is_local && *covers > end)
}

/// The position in a checkpoint's name.
pub(crate) fn named_lsn(name: &str) -> Option<Lsn> {
    name.strip_prefix(PREFIX)?.parse().ok().map(Lsn)
}

#[cfg(test)]
mod tests {
    use super::{MAX_CHECKPOINT_BYTES, check_len};
    use std::io::ErrorKind;

    #[test]
    fn what_no_start_would_read_is_not_written() {
        assert!(check_len(MAX_CHECKPOINT_BYTES).is_ok());
        let error = check_len(MAX_CHECKPOINT_BYTES + 1).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }
}
