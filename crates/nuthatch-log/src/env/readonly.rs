//! A directory that is only looked at: no file is created, changed or opened for writing, so that it
//! works on a read-only mount and beside a living server.

use super::{Disk, DiskFile, Medium, Ownership, Tenure};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A block that cannot be read is skipped in steps of this.
const UNREADABLE_STEP_BYTES: usize = 4096;

/// A directory of the operating system, for reading only. Whatever would change it is an error.
pub struct ReadOnlyDisk {
    root: PathBuf,
}

impl ReadOnlyDisk {
    /// Looks at `root`.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::read_dir(root)?;
        Ok(Self { root: root.to_owned() })
    }

    /// True if another process has the directory's lock: a server runs on it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn is_in_use(&self) -> io::Result<bool> {
        let dir = File::open(&self.root)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading only")
}

impl Disk for ReadOnlyDisk {
    fn create(&self, _path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(refused())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnlyFile(File::open(self.root.join(path))?)))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        Err(refused())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.root.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.is_empty() => {
                return Ok(Vec::new());
            }
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
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
        Medium::LOCAL
    }

    fn label(&self) -> String {
        self.root.display().to_string()
    }
}

impl Ownership for ReadOnlyDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        let dir = File::open(&self.root)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(dir))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

struct ReadOnlyFile(File);

impl DiskFile for ReadOnlyFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(refused())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }

    /// A read-only directory never syncs, so a cache may still show what a failed sync has lost.
    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(refused())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(refused())
    }
}

/// Ranges of a file that the medium does not give back: first byte, and the one after the last.
pub type Unreadable = Vec<(u64, u64)>;

/// Reads `len` bytes from the start of a file although parts of it may not be readable: those come
/// as zeros, and their ranges are told. Shorter if the file is.
///
/// # Errors
/// Its length cannot be had.
pub fn read_what_can_be_read(file: &dyn DiskFile, len: usize) -> io::Result<(Vec<u8>, Unreadable)> {
    let len = len.min(usize::try_from(file.len()?).unwrap_or(usize::MAX));
    let (mut bytes, mut unreadable) = (vec![0; len], Unreadable::new());
    if file.read_at(&mut bytes, 0).is_ok_and(|n| n == len) {
        return Ok((bytes, unreadable));
    }
    for at in (0..len).step_by(UNREADABLE_STEP_BYTES) {
        let end = (at + UNREADABLE_STEP_BYTES).min(len);
        if file.read_at(&mut bytes[at..end], at as u64).is_err() {
            bytes[at..end].fill(0);
            match unreadable.last_mut() {
                Some((_, last)) if *last == at as u64 => *last = end as u64,
                _ => unreadable.push((at as u64, end as u64)),
            }
        }
    }
    Ok((bytes, unreadable))
}
