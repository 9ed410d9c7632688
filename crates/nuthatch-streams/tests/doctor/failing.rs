//! A disk some of whose bytes cannot be read, for good: a medium that fails, or permissions.

use nuthatch_log::Disk;
use nuthatch_log::env::{DiskFile, Medium, MemDisk, Ownership, Tenure};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What the medium answers (`EIO`).
pub const INPUT_OUTPUT_ERROR: i32 = 5;
/// What the operating system answers where permissions are missing (`EACCES`).
pub const PERMISSION_DENIED: i32 = 13;

/// What fails of a file.
#[derive(Clone)]
pub enum Failing {
    /// Reading these bytes.
    Bytes(Range<u64>),
    /// Opening it.
    Opening(i32),
}

/// A disk of which a file fails.
pub struct FailingDisk {
    pub inner: MemDisk,
    pub file: String,
    pub failing: Failing,
}

struct FailingFile {
    inner: Arc<dyn DiskFile>,
    failing: Range<u64>,
}

impl Disk for FailingDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(path)
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if path != self.file {
            return self.inner.open(path);
        }
        match &self.failing {
            Failing::Opening(errno) => Err(io::Error::from_raw_os_error(*errno)),
            Failing::Bytes(failing) => {
                let (inner, failing) = (self.inner.open(path)?, failing.clone());
                Ok(Arc::new(FailingFile { inner, failing }))
            }
        }
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

impl Ownership for FailingDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        self.inner.take()
    }
}

impl DiskFile for FailingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < self.failing.end && self.failing.start < offset + into.len() as u64 {
            return Err(io::Error::from_raw_os_error(INPUT_OUTPUT_ERROR));
        }
        self.inner.read_at(into, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
    fn reread(&self) -> io::Result<()> {
        self.inner.reread()
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
}
