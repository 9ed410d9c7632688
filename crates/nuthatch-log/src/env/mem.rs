//! A simulated disk with two images: what the process sees, and what a power cut leaves.
//!
//! Every write, length change, creation, rename and removal is volatile until the matching sync.
//! [`MemDisk::crash`] keeps any subset of what was not synced, cutting writes at 512-byte sectors.
//! Faults are injected by operation number, so that a seed names one exact history.

use super::{Disk, DiskFile, SeededEntropy, WriteMode};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The unit that a medium writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// What may go wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// From this operation (counted from 1) on, nothing works: the power is gone.
    PowerCut(u64),
    /// The first file sync at or after this operation fails with EIO, once. What it was to make durable
    /// is dropped: it can be read as before, and the next sync, which succeeds, knows nothing of it.
    SyncError(u64),
    /// The first write at or after this operation fails with EIO, once.
    WriteError(u64),
    /// So many reads of files fail with EIO, from now on.
    ReadErrors(u64),
    /// The read of this number (see [`MemDisk::reads`]) fails with EIO, once.
    ReadError(u64),
    /// The first creation, rename, or write of new bytes at or after this operation finds the medium
    /// full, once.
    NoSpace(u64),
    /// The bytes of the first write to a segment at or after this operation are put so many bytes further on (or before), and success is reported.
    Misdirected(u64, i64),
    /// The first such write at or after this operation is not made, and success is reported.
    Lost(u64),
}

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

#[derive(Clone, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<FileOp>,
    /// A sync failed: what can be read is not what the medium has, and will not be.
    dropped: bool,
}

#[derive(Clone)]
enum FileOp {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone)]
enum NameOp {
    Link { path: String, inode: u64 },
    Unlink { path: String },
    Rename { from: String, to: String, inode: u64 },
    MakeDir { path: String },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Write,
    Sync,
    Other,
}

fn eio(what: &str) -> io::Error {
    io::Error::other(format!("injected: {what}"))
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

/// Names of files and sub-directories after a power cut. What was in a directory that is gone is gone.
fn surviving_names(
    state: &State,
    chance: &mut SeededEntropy,
) -> (BTreeMap<String, u64>, BTreeSet<String>) {
    let mut names = state.durable.clone();
    let mut dirs = state.durable_dirs.clone();
    let style = chance.below(4);
    for op in &state.unsynced_names {
        let kept = match style {
            0 => false,
            1 => true,
            _ => chance.below(2) == 0,
        };
        match op {
            NameOp::MakeDir { path } if kept => drop(dirs.insert(path.clone())),
            op if kept => apply_name(&mut names, op),
            _ => {}
        }
    }
    let gone = |path: &str| {
        state.dirs.iter().any(|dir| {
            let below = path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
            below && !dirs.contains(dir)
        })
    };
    names.retain(|path, _| !gone(path));
    (names, dirs)
}

fn apply_name(names: &mut BTreeMap<String, u64>, op: &NameOp) {
    match op {
        NameOp::Link { path, inode } => drop(names.insert(path.clone(), *inode)),
        NameOp::Unlink { path } => drop(names.remove(path)),
        NameOp::MakeDir { .. } => {}
        NameOp::Rename { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

impl Inode {
    fn apply(image: &mut Vec<u8>, op: &FileOp) {
        match op {
            FileOp::SetLen(len) => image.resize(*len, 0),
            FileOp::Write { offset, bytes } => overwrite(image, *offset, bytes),
        }
    }

    fn change(&mut self, op: FileOp) {
        Self::apply(&mut self.live, &op);
        self.unsynced.push(op);
    }

    fn drop_dirty(&mut self) {
        self.dropped |= !self.unsynced.is_empty();
        self.unsynced.clear();
    }

    fn sync(&mut self) {
        for op in self.unsynced.drain(..) {
            Self::apply(&mut self.durable, &op);
        }
    }

    fn after_crash(&self, chance: &mut SeededEntropy) -> Vec<u8> {
        let mut image = self.durable.clone();
        for op in &self.unsynced {
            match op {
                FileOp::SetLen(_) if chance.below(2) == 0 => Self::apply(&mut image, op),
                FileOp::SetLen(_) => {}
                FileOp::Write { offset, bytes } => tear(&mut image, *offset, bytes, chance),
            }
        }
        image
    }
}

fn overwrite(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(bytes);
}

/// Applies the sectors of a write that `chance` lets through: none, all, a prefix or any subset.
fn tear(image: &mut Vec<u8>, offset: usize, bytes: &[u8], chance: &mut SeededEntropy) {
    let style = chance.below(4);
    let sectors = bytes.len().div_ceil(SECTOR_BYTES) as u64 + 1;
    let prefix = chance.below(sectors + 1);
    let (mut at, mut sector) = (0, 0);
    while at < bytes.len() {
        let step = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
        let end = (at + step).min(bytes.len());
        let kept = match style {
            0 => false,
            1 => true,
            2 => sector < prefix,
            _ => chance.below(2) == 0,
        };
        if kept {
            overwrite(image, offset + at, &bytes[at..end]);
        }
        (at, sector) = (end, sector + 1);
    }
}

impl State {
    /// Counts an operation and raises the fault that is due. A write or a name change at the moment
    /// of a power cut still happens (volatile); a sync does not.
    /// Uses up one of the reads that are to fail, if any are left.
    fn read_fault(&mut self) -> io::Result<()> {
        self.reads += 1;
        let now = self.reads;
        if let Some(at) = self.faults.iter().position(|f| *f == Fault::ReadError(now)) {
            self.faults.remove(at);
            return Err(eio("read"));
        }
        for fault in &mut self.faults {
            if let Fault::ReadErrors(left @ 1..) = fault {
                *left -= 1;
                return Err(eio("read"));
            }
        }
        Ok(())
    }

    fn operation(&mut self, kind: Operation, detail: u64) -> io::Result<()> {
        self.operations += 1;
        let now = self.operations;
        self.trace = (self.trace ^ detail ^ (kind as u64) << 60)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(23)
            ^ now;
        let due = self.faults.iter().position(|fault| match fault {
            Fault::PowerCut(at) => now >= *at,
            Fault::SyncError(at) => now >= *at && kind == Operation::Sync,
            Fault::WriteError(at) => now >= *at && kind == Operation::Write,
            Fault::ReadErrors(_)
            | Fault::ReadError(_)
            | Fault::NoSpace(_)
            | Fault::Misdirected(..)
            | Fault::Lost(_) => false,
        });
        match due.map(|i| (i, self.faults[i])) {
            None => Ok(()),
            Some((_, Fault::PowerCut(_))) => Err(eio("power lost")),
            Some((i, fault)) => {
                self.faults.remove(i);
                Err(eio(&format!("{fault:?}")))
            }
        }
    }

    /// Raises the fault of a full medium for an operation that takes new space.
    fn has_space(&mut self) -> io::Result<()> {
        let next = self.operations + 1;
        let due = |fault: &Fault| matches!(fault, Fault::NoSpace(at) if next >= *at);
        match self.faults.iter().position(due) {
            Some(at) => {
                self.faults.remove(at);
                Err(io::ErrorKind::StorageFull.into())
            }
            None => Ok(()),
        }
    }

    /// Where a write to a segment really goes; `None`: nowhere.
    fn astray(&mut self, inode: u64, offset: u64) -> Option<u64> {
        let next = self.operations + 1;
        let is_segment = self.live.iter().any(|(path, id)| *id == inode && path.ends_with(".seg"));
        let due = |fault: &Fault| matches!(fault, Fault::Misdirected(at, _) | Fault::Lost(at) if is_segment && next >= *at);
        let Some(at) = self.faults.iter().position(due) else { return Some(offset) };
        match self.faults.remove(at) {
            Fault::Misdirected(_, by) => Some(offset.saturating_add_signed(by)),
            _ => None,
        }
    }

    fn has_power(&self) -> io::Result<()> {
        let lost =
            |fault: &Fault| matches!(fault, Fault::PowerCut(at) if self.operations + 1 > *at);
        if self.faults.iter().any(lost) { Err(eio("power lost")) } else { Ok(()) }
    }

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

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.0.lock();
        if state.locked {
            return Ok(None);
        }
        state.locked = true;
        Ok(Some(Box::new(MemLock(self.clone()))))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.0.lock();
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn write_mode(&self) -> WriteMode {
        WriteMode::Direct
    }

    fn label(&self) -> String {
        "simulated disk".to_owned()
    }
}

struct MemLock(MemDisk);

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
        if let Some(offset) = state.astray(self.inode, offset) {
            let op = FileOp::Write { offset: index(offset), bytes: bytes.to_vec() };
            state.inode(self.inode).change(op);
        }
        let hash = u64::from(crate::frame::crc(bytes)) ^ offset << 20 ^ self.inode;
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
