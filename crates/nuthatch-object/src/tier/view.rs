//! A directory whose log has a tier, looked at without changing anything on either side.

use super::cold::ColdStore;
use super::file::ColdFile;
use super::note::{MoveStage, Note};
use crate::bucket::Bucket;
use nuthatch_log::env::{Disk, DiskFile, Medium, OwnableDisk, Ownership, Tenure};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// Bytes of moved segments kept in memory while they are looked at.
const CACHE_BYTES: usize = 32 << 20;

/// Segments moved from a log's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedAway {
    /// The tier's address, the log's name included.
    pub place: String,
    /// Segments there.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Location of the moved segments of the log on `disk`, if there are any.
///
/// # Errors
/// The disk's; `InvalidData` if the note of what was moved is damaged.
pub fn moved_away(disk: &dyn Disk) -> io::Result<Option<MovedAway>> {
    let Some(note) = Note::load(disk)? else { return Ok(None) };
    let moved = || note.entries.values().filter(|entry| entry.stage == MoveStage::Moved);
    let (segments, bytes) = (moved().count() as u64, moved().map(|entry| entry.bytes).sum());
    Ok((segments > 0).then(|| MovedAway { place: note.place.clone(), segments, bytes }))
}

/// A disk for reading only, and what was moved from it.
pub struct TierView {
    local: Arc<dyn OwnableDisk>,
    cold: Arc<ColdStore>,
    note: Note,
}

impl TierView {
    /// Shows the files of `local` and the segments that were moved to `bucket`.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(local: Arc<dyn OwnableDisk>, bucket: Arc<Bucket>) -> io::Result<Self> {
        let note = Note::load(&*local)?.unwrap_or_default();
        Ok(Self { local, cold: Arc::new(ColdStore::new(bucket, CACHE_BYTES)), note })
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading only")
}

impl Disk for TierView {
    fn create(&self, _path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(refused())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.local.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let entry = self.note.entries.get(path).filter(|e| e.stage == MoveStage::Moved);
                let entry = *entry.ok_or(error)?;
                let (cold, local) = (Arc::clone(&self.cold), Arc::clone(&self.local));
                Ok(Arc::new(ColdFile::new(cold, local, path.to_owned(), entry)))
            }
            opened => opened,
        }
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        Err(refused())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.local.list(dir)?.into_iter().collect();
        if dir.is_empty() {
            let moved =
                self.note.entries.iter().filter(|(_, entry)| entry.stage == MoveStage::Moved);
            names.extend(moved.map(|(name, _)| name.clone()));
        }
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn medium(&self) -> Medium {
        self.local.medium()
    }

    fn label(&self) -> String {
        self.local.label()
    }
}

impl Ownership for TierView {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        self.local.take()
    }
}
