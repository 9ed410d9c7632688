//! The files of a keeper as they are at one entry, for who only reads them, while later entries go on being applied.

use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile, Medium, WriteOrder};
use nuthatch_quorum::types::Lsn;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The names that there were at an entry. What is in a file may come of later ones: it is what the log's next owner reads, or
/// less, and bytes that frames were read from do not change.
pub struct ReplicaView {
    files: BTreeMap<String, Arc<dyn DiskFile>>,
    applied: Lsn,
    label: String,
    end: Option<End>,
}

/// Says that nothing is to be read any more.
type End = Arc<dyn Fn() -> bool + Send + Sync>;

/// A file that is only read.
struct ReadFile {
    file: Arc<dyn DiskFile>,
    end: Option<End>,
}

impl ReadFile {
    fn check(&self) -> io::Result<()> {
        match &self.end {
            Some(end) if end() => Err(io::Error::other("it is not to be read any more")),
            _ => Ok(()),
        }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "only the log's owner changes its files"))
}

/// As for a bucket, space is not set aside: it would be replicated, and no sync has metadata to write here. As on a disk,
/// frames are written one at a time (A2).
pub(crate) const MEDIUM: Medium =
    Medium { is_local: false, write_order: WriteOrder::OneAtATime, ..Medium::LOCAL };

/// Those of some paths that are in a directory, as their names there.
pub(crate) fn names_in<'a>(dir: &str, paths: impl Iterator<Item = &'a String>) -> Vec<String> {
    let split = |path: &String| match path.rsplit_once('/') {
        Some((inside, name)) => (inside == dir).then(|| name.to_owned()),
        None => dir.is_empty().then(|| path.clone()),
    };
    paths.filter_map(split).collect()
}

impl ReplicaView {
    pub(crate) fn new(
        files: BTreeMap<String, Arc<dyn DiskFile>>,
        applied: Lsn,
        label: String,
    ) -> Self {
        Self { files, applied, label, end: None }
    }

    /// The same files; reading them fails once `end` says so.
    pub(crate) fn until(self, end: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { end: Some(Arc::new(end)), ..self }
    }

    /// The last entry that was applied. One of a later view is smaller only where the files have begun anew.
    #[must_use]
    pub const fn applied(&self) -> Lsn {
        self.applied
    }
}

impl Disk for ReplicaView {
    fn create(&self, _path: &str) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(ReadFile { file: Arc::clone(file), end: self.end.clone() }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Ok(names_in(dir, self.files.keys()))
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        refused()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn medium(&self) -> Medium {
        MEDIUM
    }

    fn label(&self) -> String {
        self.label.clone()
    }
}

impl DiskFile for ReadFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        refused()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check()?;
        self.file.read_at(into, offset)
    }

    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.check()?;
        self.file.read_shared(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    /// Everything in it was read from the keeper's journal, or has been made durable.
    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }
}
