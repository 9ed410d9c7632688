//! A simulated disk with two images: what the process sees, and what a power cut leaves.
//!
//! Every write, length change, creation, rename and removal is volatile until the matching sync.
//! [`MemDisk::crash`] keeps any subset of what was not synced, cutting writes at 512-byte sectors.
//! Faults are injected by operation number, so that a seed names one exact history.

mod fault;
mod image;

pub use fault::Fault;
pub use image::SECTOR_BYTES;

use super::{Dated, Disk, DiskFile, Medium, Ownership, SeededEntropy, Tenure};
use fault::Operation;
use image::{FileOp, Inode, NameOp, StaleWrite, apply_name, surviving_names};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct MemDisk(Arc<Mutex<State>>);

struct State {
    inodes: BTreeMap<u64, Inode>,
    live: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    unsynced_names: Vec<NameOp>,
    next_inode: u64,
    capacity: u64,
    faults: Vec<Fault>,
    /// Sub-directories that were made, and those of them whose names are durable.
    dirs: BTreeSet<String>,
    durable_dirs: BTreeSet<String>,
    operations: u64,
    reads: u64,
    trace: u64,
    locked: bool,
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Default for MemDisk {
    fn default() -> Self {
        Self::with_capacity(u64::MAX)
    }
}

impl MemDisk {
    /// An empty disk of `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: BTreeMap::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            unsynced_names: Vec::new(),
            next_inode: 1,
            capacity,
            faults: Vec::new(),
            dirs: BTreeSet::new(),
            durable_dirs: BTreeSet::new(),
            operations: 0,
            reads: 0,
            trace: 0,
            locked: false,
        })))
    }

    /// Arms a fault.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Disarms every fault.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Changes how many bytes fit.
    pub fn set_capacity(&self, capacity: u64) {
        self.0.lock().capacity = capacity;
    }

    /// Mutating operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Reads of files so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// A hash of every mutating operation so far: equal histories have equal traces.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.0.lock().trace
    }

    /// The disk after the process was killed: everything written is there, synced or not.
    #[must_use]
    pub fn survive(&self) -> Self {
        let state = self.0.lock();
        let survivor = Self::with_capacity(state.capacity);
        let mut after = survivor.0.lock();
        after.next_inode = state.next_inode;
        after.live = state.live.clone();
        after.durable = state.live.clone();
        after.dirs = state.dirs.clone();
        after.durable_dirs = state.dirs.clone();
        for (id, inode) in &state.inodes {
            let mut kept = inode.clone();
            if !inode.dropped {
                kept.unsynced.clear();
                kept.durable = inode.live.clone();
            }
            kept.forget_stale();
            after.inodes.insert(*id, kept);
        }
        drop(after);
        survivor
    }

    /// The disk after a power cut: all that was synced, and of the rest what `seed` chooses.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut chance = SeededEntropy::new(seed);
        let state = self.0.lock();
        let survivor = Self::with_capacity(state.capacity);
        let mut after = survivor.0.lock();
        after.next_inode = state.next_inode;
        let (names, dirs) = surviving_names(&state, &mut chance);
        after.durable = names;
        (after.dirs, after.durable_dirs) = (dirs.clone(), dirs);
        after.live = after.durable.clone();
        for inode in after.durable.values().copied().collect::<Vec<_>>() {
            let bytes = state.inodes[&inode].after_crash(&mut chance);
            let whole = Inode { live: bytes.clone(), durable: bytes, ..Inode::default() };
            after.inodes.insert(inode, whole);
        }
        drop(after);
        survivor
    }

    /// Flips one bit of a file, in what is seen and in what survives.
    pub fn flip_bit(&self, path: &str, byte: usize, bit: u8) {
        let mut state = self.0.lock();
        let Some(inode) = state.live.get(path).copied() else { return };
        let Some(inode) = state.inodes.get_mut(&inode) else { return };
        for image in [&mut inode.live, &mut inode.durable] {
            if let Some(byte) = image.get_mut(byte) {
                *byte ^= 1 << (bit & 7);
            }
        }
    }

    /// Length of a file as the process sees it.
    #[must_use]
    pub fn file_len(&self, path: &str) -> Option<usize> {
        let state = self.0.lock();
        state.live.get(path).map(|inode| state.inodes[inode].live.len())
    }

    /// Lets another process lock the directory, as after the end of this one.
    pub fn release_lock(&self) {
        self.0.lock().locked = false;
    }
}

impl State {
    fn used(&self) -> u64 {
        self.live.values().map(|inode| self.inodes[inode].live.len() as u64).sum()
    }

    fn grow(&self, inode: u64, end: u64) -> io::Result<()> {
        let now = self.inodes[&inode].live.len() as u64;
        let more = end.saturating_sub(now);
        if more > 0 && self.used().saturating_add(more) > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn rename_op(&mut self, op: NameOp) {
        apply_name(&mut self.live, &op);
        self.unsynced_names.push(op);
    }

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.entry(inode).or_default()
    }
}

fn detail(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

impl Disk for MemDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.has_power()?;
        state.has_space()?;
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.rename_op(NameOp::Link { path: path.to_owned(), inode });
        state.operation(Operation::Other, detail(path))?;
        Ok(Arc::new(MemFile { state: Arc::clone(&self.0), inode }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.0.lock();
        let inode = *state.live.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemFile { state: Arc::clone(&self.0), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.has_power()?;
        let inode = *state.live.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.has_space()?;
        let (from, to) = (from.to_owned(), to.to_owned());
        let hash = detail(&to);
        state.rename_op(NameOp::Rename { from, to, inode });
        state.operation(Operation::Other, hash)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.has_power()?;
        if !state.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename_op(NameOp::Unlink { path: path.to_owned() });
        state.operation(Operation::Other, detail(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        let inside = state.live.keys().filter(|path| directory(path) == dir);
        Ok(inside.map(|path| path.rsplit('/').next().unwrap_or(path).to_owned()).collect())
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.has_power()?;
        if state.dirs.insert(dir.to_owned()) {
            state.unsynced_names.push(NameOp::MakeDir { path: dir.to_owned() });
            state.operation(Operation::Other, detail(dir))?;
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.has_power()?;
        state.operation(Operation::Other, detail(dir))?;
        let concerns = |op: &NameOp| match op {
            NameOp::Link { path, .. } | NameOp::Unlink { path } | NameOp::MakeDir { path } => {
                directory(path) == dir
            }
            NameOp::Rename { to, .. } => directory(to) == dir,
        };
        let ops = std::mem::take(&mut state.unsynced_names);
        let (synced, left): (Vec<_>, Vec<_>) = ops.into_iter().partition(concerns);
        for op in &synced {
            if let NameOp::MakeDir { path } = op {
                state.durable_dirs.insert(path.clone());
            }
            apply_name(&mut state.durable, op);
        }
        state.unsynced_names = left;
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.0.lock();
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn medium(&self) -> Medium {
        Medium::LOCAL
    }

    fn label(&self) -> String {
        "simulated disk".to_owned()
    }
}

impl Ownership for MemDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        let mut state = self.0.lock();
        if state.locked {
            return Ok(None);
        }
        state.locked = true;
        Ok(Some(Box::new(MemLock(self.clone()))))
    }
}

/// The simulated medium keeps no times.
impl Dated for MemDisk {
    fn modified(&self, _path: &str) -> io::Result<Option<SystemTime>> {
        Ok(None)
    }
}

struct MemLock(MemDisk);

impl Tenure for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.0.release_lock();
    }
}

struct MemFile {
    state: Arc<Mutex<State>>,
    inode: u64,
}

impl DiskFile for MemFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.has_power()?;
        let end = offset + bytes.len() as u64;
        if end > state.inode(self.inode).live.len() as u64 {
            state.has_space()?;
        }
        state.grow(self.inode, end)?;
        if state.goes_stale(self.inode) {
            let inode = state.inode(self.inode);
            inode.stale.push(StaleWrite::of(&inode.live, index(offset), bytes));
        }
        if let Some(offset) = state.astray(self.inode, offset) {
            let op = FileOp::Write { offset: index(offset), bytes: bytes.to_vec() };
            state.inode(self.inode).change(op);
        }
        let hash = u64::from(crate::bytes::crc(bytes)) ^ offset << 20 ^ self.inode;
        state.operation(Operation::Write, hash)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        state.read_fault()?;
        let live = &state.inode(self.inode).live;
        let start = index(offset).min(live.len());
        let end = start.saturating_add(into.len()).min(live.len());
        into[..end - start].copy_from_slice(&live[start..end]);
        Ok(end - start)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.has_power()?;
        if let Err(error) = state.operation(Operation::Sync, self.inode) {
            if state.has_power().is_ok() {
                state.inode(self.inode).drop_dirty();
            }
            return Err(error);
        }
        state.inode(self.inode).sync();
        Ok(())
    }

    fn reread(&self) -> io::Result<()> {
        self.sync()?;
        let mut state = self.state.lock();
        let inode = state.inode(self.inode);
        inode.live = inode.durable.clone();
        inode.dropped = false;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().inode(self.inode).live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.has_power()?;
        if len > state.inode(self.inode).live.len() as u64 {
            state.has_space()?;
        }
        state.grow(self.inode, len)?;
        state.inode(self.inode).change(FileOp::SetLen(index(len)));
        state.operation(Operation::Other, len ^ self.inode << 40)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset + len > self.len()? { self.set_len(offset + len) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_is_sure_to_survive() {
        let disk = MemDisk::default();
        let file = disk.create("a").expect("create");
        file.write_at(&[1; 2048], 0).expect("write");
        file.sync().expect("sync");
        disk.sync_dir("").expect("sync dir");
        file.write_at(&[2; 2048], 1024).expect("write");
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let after = disk.crash(seed);
            let file = after.open("a").expect("survives");
            let mut bytes = vec![0; 3072];
            let n = file.read_at(&mut bytes, 0).expect("read");
            assert_eq!(bytes[..1024], [1; 1024]);
            outcomes.insert(bytes[..n].to_vec());
        }
        assert!(outcomes.len() > 4, "different seeds tear differently");
    }

    #[test]
    fn a_stale_write_is_seen_until_the_process_ends() {
        let disk = MemDisk::default();
        let file = disk.create("a.seg").expect("create");
        file.write_at(&[1; 600], 0).and_then(|()| file.sync()).expect("writes");
        disk.sync_dir("").expect("sync dir");
        disk.inject(Fault::Stale(0));
        file.write_at(&[2; 600], 100).and_then(|()| file.sync()).expect("writes");
        file.write_at(&[3; 50], 200).and_then(|()| file.sync()).expect("writes");
        let content = |disk: &MemDisk| {
            let file = disk.open("a.seg").expect("there");
            super::super::read_exact_at(&*file, 0, 700).expect("reads")
        };
        let live = content(&disk);
        assert_eq!((live[100], live[200], live[699]), (2, 3, 2));
        for after in [disk.survive(), disk.crash(1)] {
            let bytes = content(&after);
            assert_eq!((bytes[100], bytes[200], bytes[250], bytes[699]), (1, 3, 1, 0));
        }
    }

    #[test]
    fn an_unsynced_rename_may_be_lost_and_may_be_kept() {
        let disk = MemDisk::default();
        disk.create("a").expect("create");
        disk.sync_dir("").expect("sync dir");
        disk.rename("a", "b").expect("rename");
        let names: std::collections::BTreeSet<_> =
            (0..32).map(|seed| disk.crash(seed).list("").expect("list")).collect();
        assert_eq!(names.len(), 2);
    }
}
