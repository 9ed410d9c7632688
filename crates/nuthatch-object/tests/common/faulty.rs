//! A disk of which one read fails, or one change finds no space: chosen by number, so that a test can
//! go through all of them.
#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use nuthatch_log::env::{Dated, Disk, DiskFile, Medium, Ownership, Tenure};
use nuthatch_object::LocalDisk;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which requests fail, counted from 1; 0: none.
#[derive(Default)]
pub struct Plan {
    /// This read gives EIO.
    pub read_fails: u64,
    /// From this change that takes space on, so many find the disk full.
    pub full_from: u64,
    pub full_times: u64,
    reads: AtomicU64,
    changes: AtomicU64,
    kept: Mutex<String>,
}

impl Plan {
    pub fn read(number: u64) -> Arc<Self> {
        Arc::new(Self { read_fails: number, ..Self::default() })
    }

    pub fn full(from: u64, times: u64) -> Arc<Self> {
        Arc::new(Self { full_from: from, full_times: times, ..Self::default() })
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// This file cannot be removed; none: every file can.
    pub fn keep(&self, path: &str) {
        path.clone_into(&mut self.kept.lock());
    }

    fn on_remove(&self, path: &str) -> io::Result<()> {
        let is_kept = *self.kept.lock() == path;
        if is_kept { Err(io::Error::other("injected: not removed")) } else { Ok(()) }
    }

    fn on_read(&self) -> io::Result<()> {
        let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.read_fails { Err(io::Error::other("injected: EIO")) } else { Ok(()) }
    }

    fn on_change(&self) -> io::Result<()> {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let full = self.full_from..self.full_from + self.full_times;
        if full.contains(&number) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

pub struct FaultyDisk {
    pub below: Arc<dyn LocalDisk>,
    pub plan: Arc<Plan>,
}

struct FaultyFile {
    below: Arc<dyn DiskFile>,
    plan: Arc<Plan>,
}

impl FaultyDisk {
    fn file(&self, below: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { below, plan: Arc::clone(&self.plan) })
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.plan.on_change()?;
        Ok(self.file(self.below.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.below.open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.plan.on_remove(path)?;
        self.below.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.plan.on_read()?;
        self.below.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.below.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.below.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.below.free_bytes()
    }

    fn medium(&self) -> Medium {
        self.below.medium()
    }

    fn label(&self) -> String {
        self.below.label()
    }
}

impl Dated for FaultyDisk {
    fn modified(&self, path: &str) -> io::Result<Option<std::time::SystemTime>> {
        self.below.modified(path)
    }
}

impl Ownership for FaultyDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        self.below.take()
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.plan.on_change()?;
        self.below.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.plan.on_read()?;
        self.below.read_at(into, offset)
    }

    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.plan.on_read()?;
        self.below.read_shared(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.below.reread()
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.below.len()? {
            self.plan.on_change()?;
        }
        self.below.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plan.on_change()?;
        self.below.allocate(offset, len)
    }
}
