//! State shared by the writer, the compactor and the sequencer: the disk, the catalog, the spare
//! file.

use crate::catalog::Catalog;
use crate::env::{Disk, DiskFile};
use crate::keys::Keyring;
use crate::stats::LogStats;
use crate::types::{Epoch, SegmentId};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sub-directory for files that are not part of the log yet.
pub const TMP_DIR: &str = "tmp";

/// How the names of the log's files begin that are under construction and not replaced by the next
/// attempt: segments to come, outputs of compactions, checkpoints.
const UNFINISHED: [&str; 3] = ["spare-", "compact-", crate::checkpoint::PREFIX];

/// Sub-directory for bytes that recovery cut off.
pub const TORN_DIR: &str = "torn";

/// Space set aside for the time when the medium is full.
pub const RESERVE_FILE: &str = "reserve";

/// The reserve is drawn on in steps of at least this.
const DRAW_BYTES: u64 = 64 * 1024;

/// This share of the reserve is kept for the catalog, whose updates are what frees space.
const CATALOG_SHARE: u64 = 8;

/// A new segment takes at most this share of what is free, so that a small medium is not one
/// segment, of which nothing can be given back.
const SEGMENT_SHARE: u64 = 8;

/// Shared state of one log's files.
pub struct Store {
    /// The disk that holds the files.
    pub disk: Arc<dyn Disk>,
    /// Counters.
    pub stats: Arc<LogStats>,
    /// Epoch of this owner.
    pub epoch: Epoch,
    /// Keys of what is written and read.
    pub keys: Keyring,
    catalog: Mutex<Catalog>,
    spare: Mutex<Option<Spare>>,
    reserve: Mutex<Reserve>,
    spare_bytes: AtomicU64,
    spares_made: AtomicU64,
    open_room: AtomicU64,
}

/// Rest of the reserved space.
#[derive(Default)]
struct Reserve {
    file: Option<Arc<dyn DiskFile>>,
    len: u64,
    target: u64,
}

impl Reserve {
    /// Opens what an earlier owner left, or begins anew.
    fn open(disk: &dyn Disk, target: u64) -> io::Result<Self> {
        let file = match disk.open(RESERVE_FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = disk.create(RESERVE_FILE)?;
                // A start after a power cut may need it.
                disk.sync_dir("")?;
                file
            }
            Err(error) => return Err(error),
        };
        let len = file.len()?;
        Ok(Self { file: Some(file), len, target })
    }
}

/// An allocated file that the next segment will use.
pub struct Spare {
    /// Its name for now. No two spare files share one: the next may be made while this one is
    /// being renamed.
    pub name: String,
    /// The open file.
    pub file: Arc<dyn DiskFile>,
    /// Bytes allocated.
    pub len: u64,
}

impl Store {
    /// Shared state over a catalog that was read or made.
    #[must_use]
    pub fn new(
        disk: Arc<dyn Disk>,
        stats: Arc<LogStats>,
        catalog: Catalog,
        epoch: Epoch,
        keys: Keyring,
    ) -> Self {
        Self {
            disk,
            stats,
            epoch,
            keys,
            catalog: Mutex::new(catalog),
            spare: Mutex::new(None),
            reserve: Mutex::default(),
            spare_bytes: AtomicU64::new(0),
            spares_made: AtomicU64::new(0),
            open_room: AtomicU64::new(0),
        }
    }

    /// A copy of the catalog.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        self.catalog.lock().clone()
    }

    /// Changes the catalog on the disk, then in memory. Nothing changes in memory on an error.
    ///
    /// # Errors
    /// The disk's.
    pub fn publish<R>(&self, change: impl FnOnce(&mut Catalog) -> R) -> io::Result<R> {
        let mut catalog = self.catalog.lock();
        let mut next = catalog.clone();
        let result = change(&mut next);
        next.epoch = next.epoch.max(self.epoch);
        match next.store(&*self.disk) {
            Err(error) if crate::env::is_full(&error) && self.draw(DRAW_BYTES, 0) => {
                next.store(&*self.disk)?;
            }
            stored => stored?,
        }
        *catalog = next;
        Ok(result)
    }

    /// As [`Store::publish`] in memory only: for the job that turns rules off.
    pub fn forget_to_publish(&self, change: impl FnOnce(&mut Catalog)) {
        change(&mut self.catalog.lock());
    }

    /// Takes an identity for a segment; it is persisted with the next [`Store::publish`].
    pub fn new_segment_id(&self) -> SegmentId {
        self.catalog.lock().new_segment_id()
    }

    /// Bytes that frames may take although nothing more is allocated: all of them fit into the
    /// open segment, or all of them fit into the spare one.
    #[must_use]
    pub fn secured(&self) -> u64 {
        self.open_room.load(Ordering::Acquire).max(self.spare_bytes.load(Ordering::Acquire))
    }

    /// Says how many bytes frames may still take in the open segment.
    pub fn set_open_room(&self, bytes: u64) {
        self.open_room.store(bytes, Ordering::Release);
    }

    /// Makes the spare file hold at least `least` bytes, preferably `wanted`.
    ///
    /// # Errors
    /// `StorageFull` if not even `least` can be had, and the disk's.
    pub fn make_spare(&self, least: u64, wanted: u64) -> io::Result<()> {
        let mut spare = self.spare.lock();
        let (name, file, len) = match spare.take() {
            Some(spare) => (spare.name, spare.file, spare.len),
            None => {
                let number = self.spares_made.fetch_add(1, Ordering::Relaxed);
                let name = format!("{TMP_DIR}/spare-{number}");
                let file = self.disk.create(&name)?;
                (name, file, 0)
            }
        };
        let result = allocate_up_to(&*file, len, least, wanted);
        let now = result.as_ref().copied().unwrap_or(len);
        self.spare_bytes.store(now, Ordering::Release);
        *spare = Some(Spare { name, file, len: now });
        result.map(drop)
    }

    /// True if there is a spare file.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.spare.lock().is_some()
    }

    /// Hands the spare file over to become a segment.
    pub fn take_spare(&self) -> Option<Spare> {
        let spare = self.spare.lock().take();
        self.spare_bytes.store(0, Ordering::Release);
        spare
    }

    /// Fills the reserve up; true if it is whole. `wanted` is its size, or what is left to choose:
    /// two segments of `segment_bytes`, but not more than an eighth of what is free.
    ///
    /// # Errors
    /// The disk's, except that it is full.
    pub fn fill_reserve(&self, wanted: Option<u64>, segment_bytes: u64) -> io::Result<bool> {
        let mut reserve = self.reserve.lock();
        if reserve.file.is_none() {
            let chosen = (2 * segment_bytes).min(self.disk.free_bytes()? / SEGMENT_SHARE);
            let target = wanted.unwrap_or(chosen);
            if target == 0 {
                return Ok(true);
            }
            *reserve = Reserve::open(&*self.disk, target)?;
        }
        let (len, target) = (reserve.len, reserve.target);
        if len >= target {
            return Ok(true);
        }
        let Some(file) = &reserve.file else { return Ok(true) };
        match file.allocate(len, target - len) {
            Ok(()) => {
                file.sync()?;
                reserve.len = target;
                Ok(true)
            }
            Err(error) if crate::env::is_full(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives `bytes` of the reserve (or a little more) back to the medium, leaving `floor`; false if
    /// there is no more to give.
    fn draw(&self, bytes: u64, floor: u64) -> bool {
        let mut reserve = self.reserve.lock();
        let left = reserve.len.saturating_sub(bytes.max(DRAW_BYTES)).max(floor);
        let Some(file) = reserve.file.as_ref().filter(|_| left < reserve.len) else { return false };
        if file.set_len(left).is_err() {
            return false;
        }
        reserve.len = left;
        true
    }

    /// As [`Store::draw`] for everything but the catalog, which keeps its share.
    fn draw_for_data(&self, bytes: u64) -> bool {
        let floor = self.reserve.lock().target / CATALOG_SHARE;
        self.draw(bytes, floor)
    }

    /// As [`Store::make_spare`] from the reserve; false if it does not suffice.
    ///
    /// # Errors
    /// The disk's, except that it is full.
    pub fn make_spare_from_reserve(&self, least: u64) -> io::Result<bool> {
        loop {
            match self.make_spare(least, least) {
                Ok(()) => return Ok(true),
                Err(error) if !crate::env::is_full(&error) => return Err(error),
                Err(_) if self.draw_for_data(least) => {}
                Err(_) => return Ok(false),
            }
        }
    }

    /// Reserves space for a compacted segment, from the reserve if need be.
    ///
    /// # Errors
    /// `StorageFull`, and the disk's.
    pub fn allocate_for_compaction(&self, file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
        loop {
            match file.allocate(0, bytes) {
                Err(error) if crate::env::is_full(&error) && self.draw_for_data(bytes) => {}
                result => return result,
            }
        }
    }

    /// Size of the next segment: what is wanted, unless that is a large part of what is free.
    ///
    /// # Errors
    /// The disk's.
    pub fn affordable(&self, wanted: u64, least: u64) -> io::Result<u64> {
        Ok(wanted.min(self.disk.free_bytes()? / SEGMENT_SHARE).max(least))
    }

    /// Removes files under construction that could not be removed when they were given up; returns how
    /// many. The caller sees to it that nothing but the spare file is under construction. Files of
    /// others (a tier below) are not the log's to judge.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn sweep_unfinished(&self) -> io::Result<usize> {
        let spare = self.spare.lock();
        let is_spare = |path: &String| spare.as_ref().is_some_and(|spare| spare.name == *path);
        let is_ours = |name: &String| UNFINISHED.iter().any(|prefix| name.starts_with(prefix));
        let names = self.disk.list(TMP_DIR)?.into_iter().filter(is_ours);
        let left = names.map(|name| format!("{TMP_DIR}/{name}")).filter(|path| !is_spare(path));
        Ok(left.filter(|path| self.disk.remove(path).is_ok()).count())
    }

    /// Removes the spare file, if there is one, to give its space back.
    pub fn drop_spare(&self) {
        if let Some(spare) = self.take_spare() {
            let _ = self.disk.remove(&spare.name);
        }
    }
}

fn allocate_up_to(file: &dyn DiskFile, len: u64, least: u64, wanted: u64) -> io::Result<u64> {
    for target in [wanted, least] {
        if len >= target {
            return Ok(len);
        }
        match file.allocate(len, target - len) {
            Ok(()) => return Ok(target),
            Err(error) if crate::env::is_full(&error) && target > least => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
