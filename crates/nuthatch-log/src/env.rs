//! The outside world as traits: time, randomness, files. Everything above runs unchanged on the
//! real ones and on simulated ones, which is how crashes are tested.

pub mod buf;
pub mod clock;
pub mod medium;
pub mod mem;
pub mod overlay;
pub mod ownership;
pub mod ram;
pub mod readonly;
pub mod real;

pub use buf::{AlignedBuf, BufPool};
pub use clock::{Clock, Entropy, ManualClock, SeededEntropy, SystemClock, SystemEntropy};
pub use medium::{Medium, Reach, WriteOrder};
pub use mem::{Fault, MemDisk, SECTOR_BYTES};
pub use overlay::{Change, OverlayDisk};
pub use ownership::{Onlooker, OwnableDisk, Ownership, Standing, Tenure};
pub use ram::RamDisk;
pub use readonly::{ReadOnlyDisk, read_what_can_be_read};
pub use real::{RealDisk, create_dirs};

use crate::rules::{CLEAR_UNFINISHED, REPLACED_NAME_SYNC, REPLACED_SYNC};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// Alignment of buffers, offsets and lengths that direct writes need; also the default block size.
pub const DIRECT_ALIGN: usize = 4096;

/// A directory of files. Paths are relative to it, with `/` between a sub-directory and a name.
///
/// Durability follows POSIX at its worst: a file's bytes are durable after [`DiskFile::sync`], its
/// name (creation, rename, removal) after [`Disk::sync_dir`] of its directory.
pub trait Disk: Send + Sync + 'static {
    /// Creates a file for reading and writing, emptying an existing one.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` and the operating system's.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing the target.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Names of the files in a sub-directory (`""` for the disk's own), sorted.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Creates a sub-directory unless it exists.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, dir: &str) -> io::Result<()>;

    /// Makes the names in a sub-directory durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// The operating system's.
    fn free_bytes(&self) -> io::Result<u64>;

    /// True while no new messages are to be taken, although there is room left for what makes room: deletes,
    /// acknowledgements and compaction. A disk that is full without others needs not say so.
    fn is_short(&self) -> bool {
        false
    }

    /// What there is to know of the medium.
    fn medium(&self) -> Medium;

    /// Label of this disk in messages (a path, or "memory").
    fn label(&self) -> String;
}

/// A directory whose medium knows when files were last changed.
pub trait Dated {
    /// When a file was last changed, where that is known.
    ///
    /// # Errors
    /// The operating system's.
    fn modified(&self, path: &str) -> io::Result<Option<SystemTime>>;
}

/// Hears once whether bytes became durable, from any thread, so it must be quick.
pub type SyncDone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`, extending the file if need be.
    ///
    /// # Errors
    /// The operating system's; the content of the range is then unknown.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// As [`DiskFile::write_at`] for a buffer that will not change any more, which a disk in main
    /// memory may keep instead of copying.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_shared(&self, bytes: &Bytes, offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    /// Fills `into` from `offset`; returns how many bytes there were before the end of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`] into a buffer of its own, which a disk in main memory may share.
    ///
    /// # Errors
    /// As [`DiskFile::read_at`].
    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        let n = self.read_at(&mut bytes, offset)?;
        bytes.truncate(n);
        Ok(Bytes::from(bytes))
    }

    /// Makes all bytes written so far durable.
    ///
    /// # Errors
    /// The operating system's. What was not durable before must be taken as lost.
    fn sync(&self) -> io::Result<()>;

    /// Makes durable what can be made so and forgets what only a cache of the operating system holds,
    /// so that what is read afterwards is what the medium has: after a failed sync a cache may show
    /// bytes that were never written. Nothing to do where there is no such cache; who stands in front
    /// of another file passes it on.
    ///
    /// # Errors
    /// The operating system's.
    fn reread(&self) -> io::Result<()>;

    /// Begins to make durable what was written since the last sync of either kind, and only that:
    /// what several calls are about may become durable in any order. `done` hears of the end. A
    /// [`DiskFile::sync`] after this waits for all of it.
    ///
    /// If there is no gain, it is done before this returns.
    fn sync_later(&self, done: SyncDone) {
        done(self.sync());
    }

    /// The file's length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends the file (with zeros).
    ///
    /// # Errors
    /// The operating system's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space on the medium for `offset..offset + len`, extending the file with zeros, so
    /// that writes there cannot run out of space.
    ///
    /// # Errors
    /// `StorageFull` if the medium has too little room, and the operating system's.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Where its bytes are.
    fn reach(&self) -> Reach {
        Reach::Here
    }

    /// Hears that `len` bytes from an offset on are not what was written. Where they are elsewhere, too, they are
    /// brought again beside, and a later read finds them: nobody waits. Who stands in front of another file passes it
    /// on.
    fn doubt(&self, _offset: u64, _len: u64) {}
}

/// Reads exactly `len` bytes.
///
/// # Errors
/// `UnexpectedEof` if the file ends before, and the operating system's.
pub fn read_exact_at(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    if file.read_at(&mut bytes, offset)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Does a read once more if it fails: what passes at the second attempt was nothing.
///
/// # Errors
/// Those of the second attempt; `NotFound` at once.
pub fn again<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match read() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => read(),
        result => result,
    }
}

/// Writes a small file so that either the old or the new content survives a crash: temporary name,
/// sync, rename, sync of the directory.
///
/// # Errors
/// The disk's. The old content is then still in place, or the new one is.
pub fn replace_file(disk: &dyn Disk, path: &str, content: &[u8]) -> io::Result<()> {
    let temporary = format!("tmp/{}", path.replace('/', "-"));
    let named = disk.create(&temporary).and_then(|file| {
        file.write_at(content, 0)?;
        if REPLACED_SYNC.holds() {
            file.sync()?;
        }
        disk.rename(&temporary, path)
    });
    if let Err(error) = named {
        // What is left of it would take space, most of all where there is none.
        if CLEAR_UNFINISHED.holds() {
            let _ = disk.remove(&temporary);
        }
        return Err(error);
    }
    if !REPLACED_NAME_SYNC.holds() {
        return Ok(());
    }
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))
}

/// True if an error says that the medium is full.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
