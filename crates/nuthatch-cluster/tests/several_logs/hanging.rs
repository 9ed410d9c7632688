//! A disk of which some files hang: whoever writes to one waits until the test lets it go on.

use nuthatch_log::env::{Disk, DiskFile, Medium, MemDisk};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
struct Gate {
    /// Files whose path begins so hang: what is written to them, or only their syncs.
    closed: Option<(String, bool)>,
    waits: usize,
}

/// The disk. Clones are the same one.
#[derive(Clone)]
pub struct Hanging {
    below: MemDisk,
    gate: Arc<(Mutex<Gate>, Condvar)>,
    looks: Arc<AtomicU64>,
}

struct HangingFile {
    path: String,
    below: Arc<dyn DiskFile>,
    disk: Hanging,
}

impl Hanging {
    pub fn new(below: MemDisk) -> Self {
        Self { below, gate: Arc::default(), looks: Arc::default() }
    }

    /// Writes to files whose path begins so hang from now on, and their syncs.
    pub fn hang(&self, prefix: &str) {
        self.gate.0.lock().expect("no panic").closed = Some((prefix.to_owned(), false));
    }

    /// Syncs of files whose path begins so hang from now on.
    pub fn hang_syncs(&self, prefix: &str) {
        self.gate.0.lock().expect("no panic").closed = Some((prefix.to_owned(), true));
    }

    /// Nothing hangs any more.
    pub fn go_on(&self) {
        // At the end of a test that has failed, too.
        self.gate.0.lock().unwrap_or_else(PoisonError::into_inner).closed = None;
        self.gate.1.notify_all();
    }

    /// How often somebody has looked how much room there is.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// How many writes hang now.
    pub fn waits(&self) -> usize {
        self.gate.0.lock().expect("no panic").waits
    }

    fn pass(&self, path: &str, is_sync: bool) {
        let mut gate = self.gate.0.lock().expect("no panic");
        let hangs = |gate: &Gate| {
            let closed = gate.closed.as_ref();
            closed.is_some_and(|(prefix, syncs)| path.starts_with(prefix) && (is_sync || !syncs))
        };
        while hangs(&gate) {
            gate.waits += 1;
            gate = self.gate.1.wait(gate).expect("no panic");
            gate.waits -= 1;
        }
    }

    fn file(&self, path: &str, below: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(HangingFile { path: path.to_owned(), below, disk: self.clone() })
    }
}

impl Disk for Hanging {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.below.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.below.open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.below.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.below.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.below.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.below.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.below.free_bytes()
    }

    fn medium(&self) -> Medium {
        self.below.medium()
    }

    fn label(&self) -> String {
        self.below.label()
    }
}

impl DiskFile for HangingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.pass(&self.path, false);
        self.below.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below.read_at(into, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.pass(&self.path, true);
        self.below.sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.below.reread()
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.allocate(offset, len)
    }
}
