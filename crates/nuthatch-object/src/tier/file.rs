//! A file of a tiered log: on the local disk, or moved; which of the two may change while it is open.

use super::cold::ColdStore;
use super::note::NoteEntry;
use super::stub::Stub;
use crate::cache::ahead::Cursors;
use crate::extents::to_usize;
use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile, Reach};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file.
pub struct TieredFile(RwLock<Arc<dyn DiskFile>>);

impl TieredFile {
    /// A file that is `backing` for now.
    pub fn new(backing: Arc<dyn DiskFile>) -> Self {
        Self(RwLock::new(backing))
    }

    /// From now on it is `backing`, whose content is the same. Reads under way end on the old one.
    pub fn set(&self, backing: Arc<dyn DiskFile>) {
        *self.0.write() = backing;
    }

    fn now(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.0.read())
    }
}

impl DiskFile for TieredFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.now().write_at(bytes, offset)
    }

    fn write_shared(&self, bytes: &Bytes, offset: u64) -> io::Result<()> {
        self.now().write_shared(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.now().read_at(into, offset)
    }

    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.now().read_shared(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.now().sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.now().reread()
    }

    fn len(&self) -> io::Result<u64> {
        self.now().len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.now().set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.now().allocate(offset, len)
    }

    fn reach(&self) -> Reach {
        self.now().reach()
    }

    fn doubt(&self, offset: u64, len: u64) {
        self.now().doubt(offset, len);
    }
}

/// A segment in the bucket. It never changes.
pub struct ColdFile {
    store: Arc<ColdStore>,
    /// Disk that may hold its first and last bytes.
    local: Arc<dyn Disk>,
    name: String,
    entry: NoteEntry,
    cursors: Mutex<Cursors>,
    /// It was said that its ends cannot be read here.
    told: AtomicBool,
}

impl ColdFile {
    /// The segment `name` as `entry` says.
    pub fn new(
        store: Arc<ColdStore>,
        local: Arc<dyn Disk>,
        name: String,
        entry: NoteEntry,
    ) -> Self {
        let (cursors, told) = (Mutex::default(), AtomicBool::new(false));
        Self { store, local, name, entry, cursors, told }
    }

    /// Its ends, if they are here and can be read; said and counted once if they cannot.
    fn ends(&self) -> Option<Stub> {
        Stub::read(&*self.local, &self.name, self.entry.bytes).unwrap_or_else(|fault| {
            if !self.told.swap(true, Ordering::Relaxed) {
                self.store.note_unreadable_ends(&self.name, &fault);
            }
            None
        })
    }
}

impl DiskFile for ColdFile {
    /// Recovery would write a footer where it finds none: it goes without, as on a full disk.
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        let text = format!("{} is in the bucket, where it does not change", self.name);
        Err(io::Error::new(io::ErrorKind::StorageFull, text))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = self.entry.bytes.min(offset.saturating_add(into.len() as u64));
        let n = to_usize(end.saturating_sub(offset));
        let into = &mut into[..n];
        let is_end = offset == 0 || end == self.entry.bytes;
        if is_end && self.ends().is_some_and(|stub| stub.fill(offset, into)) {
            return Ok(n);
        }
        self.store.read(&self.name, &self.entry, offset, into)?;
        let window = self.cursors.lock().note(offset, n as u64);
        if window > 0 {
            self.store.read_ahead(&self.name, &self.entry, end, end + window);
        }
        Ok(n)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.entry.bytes)
    }

    /// Called by recovery after a footer that could not be written: there is nothing to cut.
    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn reach(&self) -> Reach {
        if self.store.is_at_hand() { Reach::Remote } else { Reach::Away }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::{Fault, MemDisk};

    #[test]
    fn what_a_failed_sync_has_lost_is_not_seen_through_a_tier() {
        let disk = MemDisk::default();
        let file = TieredFile::new(disk.create("segment").expect("made"));
        file.write_at(b"frame", 0).expect("written");
        disk.inject(Fault::SyncError(0));
        assert!(file.sync().is_err());
        assert_eq!(file.len().expect("told"), 5, "the cache shows it");
        file.reread().expect("read again");
        assert_eq!(file.len().expect("told"), 0);
    }
}
