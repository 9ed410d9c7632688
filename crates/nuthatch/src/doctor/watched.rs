//! A disk that tells how much of it has been read, for examinations of large logs.

use std::io;
use std::sync::Arc;

use nuthatch_log::Disk;
use nuthatch_log::env::{DiskFile, Medium, Reach, SyncDone};

use crate::progress::{Progress, Unit};

/// An examination reads every segment this often.
const PASSES: u64 = 2;

/// Passes everything on and counts reads.
struct Watched {
    inner: Arc<dyn Disk>,
    progress: Arc<Progress>,
}

/// A directory that is about to be examined.
pub fn directory(disk: &Arc<dyn Disk>) -> Arc<dyn Disk> {
    let length = |file: &String| disk.open(file).and_then(|file| file.len()).unwrap_or(0);
    let bytes: u64 = disk.list("").unwrap_or_default().iter().map(length).sum();
    over(disk, Some(bytes.saturating_mul(PASSES)))
}

/// A bucket that is about to be examined. It is not asked how much it holds: that would be requests.
pub fn bucket(disk: &Arc<dyn Disk>) -> Arc<dyn Disk> {
    over(disk, None)
}

fn over(disk: &Arc<dyn Disk>, end: Option<u64>) -> Arc<dyn Disk> {
    let progress = Progress::new(format!("Examining {}", disk.label()), Unit::Bytes);
    if let Some(end) = end {
        progress.set_end(end);
    }
    Arc::new(Watched { inner: Arc::clone(disk), progress: Arc::new(progress) })
}

impl Watched {
    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { inner, progress: Arc::clone(&self.progress) })
    }
}

impl Disk for Watched {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }

    fn medium(&self) -> Medium {
        self.inner.medium()
    }

    fn label(&self) -> String {
        self.inner.label()
    }
}

struct WatchedFile {
    inner: Arc<dyn DiskFile>,
    progress: Arc<Progress>,
}

impl DiskFile for WatchedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.inner.read_at(into, offset)?;
        self.progress.add_towards(read as u64);
        Ok(read)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.inner.reread()
    }

    fn sync_later(&self, done: SyncDone) {
        self.inner.sync_later(done);
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
