//! Files in main memory for `memory` logs. Frames are kept by reference, not copied, and the byte
//! budget is the disk's capacity.

use super::{Disk, DiskFile, Medium, Onlooker, Ownership, Tenure};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk in main memory; clones share it. Nothing survives the last clone.
#[derive(Clone)]
pub struct RamDisk(Arc<RamShared>);

struct RamShared {
    files: Mutex<BTreeMap<String, Arc<RamFile>>>,
    budget: Arc<Budget>,
}

/// What files count against; they know this and not the disk, which knows them.
struct Budget {
    used: AtomicU64,
    capacity: u64,
}

impl RamDisk {
    /// An empty disk that takes `capacity` bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let budget = Arc::new(Budget { used: AtomicU64::new(0), capacity });
        Self(Arc::new(RamShared { files: Mutex::new(BTreeMap::new()), budget }))
    }
}

impl Budget {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Disk for RamDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = Mutex::new(Extents::default());
        let file = Arc::new(RamFile { state, budget: Arc::clone(&self.0.budget) });
        self.0.files.lock().insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let files = self.0.files.lock();
        Ok(files.get(path).ok_or(io::ErrorKind::NotFound)?.clone())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let gone = self.0.files.lock().remove(path);
        gone.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let files = self.0.files.lock();
        let split = |path: &String| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent == dir).then(|| name.to_owned())
        };
        Ok(files.keys().filter_map(split).collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.0.budget.capacity.saturating_sub(self.0.budget.used.load(Ordering::Relaxed)))
    }

    fn medium(&self) -> Medium {
        Medium::MEMORY
    }

    fn label(&self) -> String {
        "memory".to_owned()
    }
}

impl Ownership for RamDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        Ok(Some(Box::new(Onlooker)))
    }
}

/// Pieces by offset, never overlapping, and the length that counts against the budget.
#[derive(Default)]
struct Extents {
    pieces: BTreeMap<u64, Bytes>,
    len: u64,
}

struct RamFile {
    state: Mutex<Extents>,
    budget: Arc<Budget>,
}

impl Drop for RamFile {
    fn drop(&mut self) {
        self.budget.give(self.state.get_mut().len);
    }
}

impl Extents {
    /// Removes what lies in `start..end`, cutting pieces that reach over its borders.
    fn clear(&mut self, start: u64, end: u64) {
        let before = self.pieces.range(..start).next_back().map(|(at, piece)| (*at, piece.clone()));
        if let Some((at, piece)) = before
            && at + piece.len() as u64 > start
        {
            self.pieces.insert(at, piece.slice(..to_usize(start - at)));
            if at + piece.len() as u64 > end {
                self.pieces.insert(end, piece.slice(to_usize(end - at)..));
            }
        }
        let inside: Vec<u64> = self.pieces.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            let Some(piece) = self.pieces.remove(&at) else { continue };
            if at + piece.len() as u64 > end {
                self.pieces.insert(end, piece.slice(to_usize(end - at)..));
            }
        }
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl RamFile {
    fn grow(&self, state: &mut Extents, end: u64) -> io::Result<()> {
        if end > state.len {
            self.budget.take(end - state.len)?;
            state.len = end;
        }
        Ok(())
    }
}

impl DiskFile for RamFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_shared(&Bytes::copy_from_slice(bytes), offset)
    }

    fn write_shared(&self, bytes: &Bytes, offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = offset + bytes.len() as u64;
        self.grow(&mut state, end)?;
        state.clear(offset, end);
        state.pieces.insert(offset, bytes.clone());
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        let end = state.len.min(offset + into.len() as u64);
        let n = to_usize(end.saturating_sub(offset));
        into[..n].fill(0);
        let first = state.pieces.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        for (at, piece) in state.pieces.range(first..end.max(first)) {
            let from = to_usize(offset.saturating_sub(*at)).min(piece.len());
            let target = to_usize((*at + from as u64) - offset);
            let count = (piece.len() - from).min(n.saturating_sub(target));
            into[target..target + count].copy_from_slice(&piece[from..from + count]);
        }
        Ok(n)
    }

    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let state = self.state.lock();
        if let Some((at, piece)) = state.pieces.range(..=offset).next_back() {
            let from = to_usize(offset - at);
            if from < piece.len() && piece.len() - from >= len {
                return Ok(piece.slice(from..from + len));
            }
        }
        drop(state);
        let mut bytes = BytesMut::zeroed(len);
        let n = self.read_at(&mut bytes, offset)?;
        bytes.truncate(n);
        Ok(bytes.freeze())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        self.grow(&mut state, len)?;
        let old = state.len;
        state.clear(len, old.max(len));
        self.budget.give(old - len);
        state.len = len;
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        self.grow(&mut state, offset + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_writes_read_back() {
        let disk = RamDisk::new(1 << 20);
        let file = disk.create("f").expect("create");
        let mut model = vec![0u8; 300];
        let mut random = crate::env::SeededEntropy::new(3);
        for round in 1..=200u8 {
            let (at, len) = (random.below(200), random.below(100) + 1);
            let bytes = vec![round; to_usize(len)];
            file.write_at(&bytes, at).expect("write");
            model[to_usize(at)..to_usize(at + len)].copy_from_slice(&bytes);
            let mut back = vec![9; 300];
            let n = file.read_at(&mut back, 0).expect("read");
            assert_eq!(back[..n], model[..n]);
        }
    }

    #[test]
    fn the_budget_is_kept_and_given_back() {
        let disk = RamDisk::new(100);
        let file = disk.create("f").expect("create");
        assert!(file.allocate(0, 101).is_err());
        file.allocate(0, 100).expect("fits");
        file.set_len(10).expect("shrinks");
        assert_eq!(disk.free_bytes().expect("free"), 90);
        drop(file);
        disk.remove("f").expect("remove");
        assert_eq!(disk.free_bytes().expect("free"), 100);
    }

    #[test]
    fn nothing_survives_the_last_clone() {
        let disk = RamDisk::new(100);
        drop(disk.create("f").expect("create"));
        let shared = Arc::downgrade(&disk.0);
        drop(disk.clone());
        assert!(shared.upgrade().is_some());
        drop(disk);
        assert!(shared.upgrade().is_none());
    }
}
