//! The disk of a tiered log: the local one, with the segments that were moved shown as if they were
//! still there.

use super::aside::set_aside;
use super::cold::ColdStore;
use super::file::{ColdFile, TieredFile};
use super::mover::Mover;
use super::note::{MoveStage, NOTE_FILE, Note, NoteEntry};
use super::stub::{STUB_DIR, Stub};
use super::{TierOwner, check_tenant};
use crate::bucket::Bucket;
use crate::cache::CacheSnapshot;
use crate::owner::Owner;
use crate::rules;
use crate::shared::REMOTE_READERS;
use nuthatch_log::env::{Dated, Disk, DiskFile, Medium, OwnableDisk, Ownership, Tenure, is_full};
use nuthatch_log::{Chain, Reporter};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

/// The catalog's path: when it changes, a segment may have been sealed.
const CATALOG_PATH: &str = "catalog";

/// Open files remembered before those that were closed are forgotten.
const FILES_PRUNED_AT: usize = 256;

/// When segments move.
#[derive(Clone)]
pub struct TierOptions {
    /// How this server names itself to others: host and process, for example.
    pub who: String,
    /// Segments that were sealed so long ago move.
    pub after_age: Option<Duration>,
    /// The oldest segments move while the log's files on the local disk take more than this.
    pub local_max_bytes: Option<u64>,
    /// They begin to move so much earlier, in bytes: what is written meanwhile.
    pub headroom_bytes: u64,
    /// Bytes of moved segments kept in memory for readers. Default 32 MiB.
    pub cache_bytes: usize,
    /// A segment becomes objects of this size, of which a few are in memory at a time. Default 8 MiB.
    pub part_bytes: u64,
    /// For the identities of what is written; must differ between any two openings.
    pub seed: u64,
    /// Receives reports of failures.
    pub report: Reporter,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            who: String::new(),
            after_age: None,
            local_max_bytes: None,
            headroom_bytes: 0,
            cache_bytes: 32 << 20,
            part_bytes: super::cold::PART_BYTES,
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1u64),
            report: Reporter::default(),
        }
    }
}

/// Contents of a tier and progress of moves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TierStatus {
    /// Its address.
    pub place: String,
    /// Segments that are only there.
    pub moved_segments: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes of the log's files on the local disk, as last counted.
    pub local_bytes: u64,
    /// Segments that should move, as last counted.
    pub waiting_segments: u64,
    /// Segments moved since the start.
    pub moves: u64,
    /// Their bytes.
    pub moves_bytes: u64,
    /// Attempts that failed since the start.
    pub failures: u64,
    /// Files that could not be read and were moved to `torn/` since the start.
    pub set_aside: u64,
    /// Segments whose ends on the local disk could not be read since the start: the bucket was asked.
    pub unreadable_ends: u64,
    /// Why nothing moves, if the last attempt failed.
    pub trouble: Option<String>,
}

/// The note, and whether it may still change.
pub struct NoteState {
    /// The note as it is on the disk.
    pub note: Note,
    /// Nothing on the disk is changed any more.
    pub stopped: bool,
    /// The file on the disk cannot be read: it is set aside before another takes its place.
    pub damaged: bool,
}

/// Gauges and counters.
#[derive(Default)]
pub struct Gauges {
    pub local_bytes: AtomicU64,
    /// Of these, the ends of moved segments.
    pub stub_bytes: AtomicU64,
    pub waiting_segments: AtomicU64,
    pub moves: AtomicU64,
    pub moves_bytes: AtomicU64,
    pub failures: AtomicU64,
    pub set_aside: AtomicU64,
    pub trouble: Mutex<Option<String>>,
}

/// The disk below a tier: one that a log could be opened on, which may know how old its files are.
pub trait LocalDisk: OwnableDisk + Dated {}

impl<T: OwnableDisk + Dated> LocalDisk for T {}

/// State shared by the disk and its mover.
pub struct TierShared {
    pub local: Arc<dyn LocalDisk>,
    pub cold: Arc<ColdStore>,
    pub options: TierOptions,
    pub book: Mutex<NoteState>,
    pub owner: Mutex<Option<Arc<Owner>>>,
    pub gauges: Gauges,
    /// Segments and when they were first seen sealed, where the disk does not know.
    pub first_seen: Mutex<HashMap<String, SystemTime>>,
    /// Segments that the local disk does not read, or of which it holds more than the log knows: they
    /// stay.
    pub unmovable: Mutex<BTreeSet<String>>,
    /// Set when there may be something to do.
    pub signal: (Mutex<bool>, Condvar),
    files: Mutex<HashMap<String, Weak<TieredFile>>>,
}

impl TierShared {
    /// Changes the note on the disk, then in memory.
    pub fn change<R>(
        &self,
        book: &mut NoteState,
        change: impl FnOnce(&mut BTreeMap<String, NoteEntry>) -> R,
    ) -> io::Result<R> {
        if book.stopped {
            return Err(io::Error::other("the log is being closed"));
        }
        let mut next = book.note.clone();
        let result = change(&mut next.entries);
        if book.damaged && rules::NOTE_KEPT.holds() {
            let to = set_aside(&*self.local, NOTE_FILE)?;
            book.damaged = false;
            self.gauges.set_aside.fetch_add(1, Ordering::Relaxed);
            self.options.report.say(&format!("the file 'tier' could not be read: kept as {to}"));
        }
        next.store(&*self.local)?;
        book.note = next;
        Ok(result)
    }

    /// The ends of a segment that is not in the bucket any more go.
    pub fn remove_ends(&self, name: &str) {
        if let Err(error) = Stub::remove(&*self.local, name) {
            self.options.report.say(&format!("the ends of {name} stay for now: {error}"));
        }
    }

    /// Sets space aside for the note; a full disk has none to give.
    pub fn make_spare(&self, note: &Note) {
        match note.make_spare(&*self.local) {
            Err(error) if !is_full(&error) => {
                self.options.report.say(&format!("no space is set aside for 'tier': {error}"));
            }
            _ => {}
        }
    }

    /// Says that there may be something to do.
    pub fn wake(&self) {
        *self.signal.0.lock() = true;
        self.signal.1.notify_one();
    }

    /// An open file goes on under its handle, in the bucket.
    pub fn retarget(self: &Arc<Self>, name: &str, entry: NoteEntry) {
        let open = self.files.lock().get(name).and_then(Weak::upgrade);
        if let Some(file) = open {
            file.set(self.cold_file(name, entry));
        }
    }

    /// An open file goes on under its handle, on the local disk.
    pub fn retarget_local(&self, name: &str) -> io::Result<()> {
        let open = self.files.lock().get(name).and_then(Weak::upgrade);
        if let Some(file) = open {
            file.set(self.local.open(name)?);
        }
        Ok(())
    }

    fn cold_file(&self, name: &str, entry: NoteEntry) -> Arc<dyn DiskFile> {
        let (cold, local) = (Arc::clone(&self.cold), Arc::clone(&self.local));
        Arc::new(ColdFile::new(cold, local, name.to_owned(), entry))
    }

    /// Wraps a file, so that it can be retargeted.
    fn track(&self, path: &str, backing: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let file = Arc::new(TieredFile::new(backing));
        let mut files = self.files.lock();
        if files.len() >= FILES_PRUNED_AT {
            files.retain(|_, file| file.strong_count() > 0);
        }
        files.insert(path.to_owned(), Arc::downgrade(&file));
        file
    }

    /// Bytes of the log's files on the local disk.
    pub fn count_local(&self) -> io::Result<u64> {
        let mut all = 0;
        for dir in ["", "tmp", STUB_DIR] {
            let mut bytes = 0;
            let names = match self.local.list(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                names => names?,
            };
            for name in names {
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                bytes += match self.local.open(&path).and_then(|file| file.len()) {
                    // Removed or renamed just now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    len => len?,
                };
            }
            if dir == STUB_DIR {
                self.gauges.stub_bytes.store(bytes, Ordering::Relaxed);
            }
            all += bytes;
        }
        self.gauges.local_bytes.store(all, Ordering::Relaxed);
        Ok(all)
    }
}

/// A local disk with a bucket behind it.
pub struct TieredDisk {
    shared: Arc<TierShared>,
}

impl TieredDisk {
    /// Puts `bucket` behind the disk of a log. Nothing is changed on either side, and nobody else is
    /// ended: the tier is taken, and segments move, from [`TieredDisk::start`] on. Without an answer
    /// of the bucket it opens all the same, if every segment that is not here has been noted.
    ///
    /// # Errors
    /// `InvalidInput` if the bucket is another log's or a log's home; `Unsupported` if the note of
    /// what was moved is of a later version; the disk's and the store's.
    pub fn open(
        local: Arc<dyn LocalDisk>,
        bucket: Arc<Bucket>,
        options: TierOptions,
    ) -> io::Result<Self> {
        let place = bucket.label().to_owned();
        let (noted, damaged) = match Note::load(&*local) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                options.report.say(&format!("{error}: asking {place} what it holds"));
                (None, true)
            }
            noted => (noted?, false),
        };
        let chain = Chain::read(&*local).map_err(io::Error::other)?;
        check_place(&bucket, noted.as_ref(), chain.as_ref(), &options.report)?;
        let note = Note { place, ..noted.unwrap_or_default() };
        let shared = Arc::new(TierShared {
            cold: Arc::new(ColdStore::new(bucket, options.cache_bytes)),
            local,
            options,
            book: Mutex::new(NoteState { note, stopped: false, damaged }),
            owner: Mutex::default(),
            gauges: Gauges::default(),
            first_seen: Mutex::default(),
            unmovable: Mutex::default(),
            signal: (Mutex::new(true), Condvar::new()),
            files: Mutex::default(),
        });
        let disk = Self { shared };
        if let Some(chain) = &chain {
            disk.find_missing(chain)?;
        }
        Ok(disk)
    }

    /// Segments of the chain that are neither here nor noted may be in the bucket all the same: the
    /// note was lost. Those that are complete are taken for moved.
    fn find_missing(&self, chain: &Chain) -> io::Result<()> {
        let here: BTreeSet<String> = self.shared.local.list("")?.into_iter().collect();
        let mut book = self.shared.book.lock();
        for segment in chain.sealed.iter().filter(|segment| !here.contains(&segment.file)) {
            let noted = book.note.entries.get(&segment.file);
            if noted.is_none_or(|entry| entry.stage != MoveStage::Moved)
                && let Some(entry) = self.shared.cold.find(&segment.file, segment.bytes)?
            {
                book.note.entries.insert(segment.file.clone(), entry);
            }
        }
        Ok(())
    }

    /// Begins to move segments, on a thread of its own named after `name`. The log is open by then, so
    /// that the directory is this process's alone.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(&self, name: &str) -> io::Result<()> {
        Mover::start(name, Arc::clone(&self.shared))
    }

    /// Ends moving: when this returns, nothing of it changes the local disk any more.
    pub fn stop(&self) {
        self.shared.book.lock().stopped = true;
        self.shared.wake();
    }

    /// One step of moving, on the calling thread: for simulations.
    ///
    /// # Errors
    /// The disk's and the store's; everything is as safe as before.
    pub fn step(&self, now: SystemTime) -> io::Result<super::Step> {
        Mover::new(Arc::clone(&self.shared)).step(now)
    }

    /// The bucket, for its counters.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.shared.cold.bucket
    }

    /// Counters and sizes of its cache.
    #[must_use]
    pub fn cache(&self) -> CacheSnapshot {
        self.shared.cold.cache.snapshot()
    }

    /// Contents of the tier and progress of moves.
    #[must_use]
    pub fn status(&self) -> TierStatus {
        let book = self.shared.book.lock();
        let moved = || book.note.entries.values().filter(|entry| entry.stage == MoveStage::Moved);
        let gauges = &self.shared.gauges;
        TierStatus {
            place: book.note.place.clone(),
            moved_segments: moved().count() as u64,
            moved_bytes: moved().map(|entry| entry.bytes).sum(),
            local_bytes: gauges.local_bytes.load(Ordering::Relaxed),
            waiting_segments: gauges.waiting_segments.load(Ordering::Relaxed),
            moves: gauges.moves.load(Ordering::Relaxed),
            moves_bytes: gauges.moves_bytes.load(Ordering::Relaxed),
            failures: gauges.failures.load(Ordering::Relaxed),
            set_aside: gauges.set_aside.load(Ordering::Relaxed),
            unreadable_ends: self.shared.cold.unreadable_ends(),
            trouble: gauges.trouble.lock().clone(),
        }
    }
}

/// True if the bucket can be this log's. One that does not answer can, if the log has used it
/// before.
fn check_place(
    bucket: &Bucket,
    noted: Option<&Note>,
    chain: Option<&Chain>,
    report: &Reporter,
) -> io::Result<()> {
    let known = noted.is_some_and(|note| note.place == bucket.label());
    let has_moved = noted.is_some_and(|note| !note.entries.is_empty());
    match check_tenant(bucket, chain.map(|chain| chain.log_id)) {
        Ok(TierOwner::Nobody) if has_moved => {
            let before = noted.map_or("", |note| note.place.as_str());
            let text = format!(
                "segments of this log were moved to {before}, and {} holds nothing of them",
                bucket.label()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        Ok(_) => Ok(()),
        Err(error) if known && !is_refusal(&error) => {
            report.say(&format!("the tier cannot be reached, going on without it: {error}"));
            Ok(())
        }
        Err(error) if is_refusal(&error) => Err(error),
        Err(error) => {
            let text = format!("{} cannot be used: {error}", bucket.label());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// True if an error is an answer about whose tier it is, not a failure to get one.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

impl Drop for TieredDisk {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Disk for TieredDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.shared.track(path, self.shared.local.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        // A move under way waits, so that the handle is one that it knows of.
        let book = self.shared.book.lock();
        if let Some(open) = self.shared.files.lock().get(path).and_then(Weak::upgrade) {
            return Ok(open);
        }
        match self.shared.local.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let entry = book.note.entries.get(path).filter(|e| e.stage == MoveStage::Moved);
                let entry = *entry.ok_or(error)?;
                Ok(self.shared.track(path, self.shared.cold_file(path, entry)))
            }
            opened => Ok(self.shared.track(path, opened?)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self.shared.local.rename(from, to) {
            // A moved segment that the log does not know is set aside: it stays where it is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut book = self.shared.book.lock();
                if book.note.entries.get(from).is_none_or(|entry| entry.stage != MoveStage::Moved) {
                    return Err(error);
                }
                self.shared.change(&mut book, |entries| {
                    if let Some(entry) = entries.get_mut(from) {
                        entry.stage = MoveStage::Aside;
                    }
                })?;
            }
            renamed => renamed?,
        }
        let mut files = self.shared.files.lock();
        // A reader that has the old file open under the new name keeps it.
        if let Some(file) = files.remove(from) {
            files.insert(to.to_owned(), file);
        } else {
            files.remove(to);
        }
        drop(files);
        if to == CATALOG_PATH {
            self.shared.wake();
        }
        Ok(())
    }

    /// Marks a moved segment as not needed; it is removed from the bucket later.
    fn remove(&self, path: &str) -> io::Result<()> {
        let mut book = self.shared.book.lock();
        let noted = book.note.entries.get(path).map(|entry| entry.stage);
        let was_shown = noted == Some(MoveStage::Moved);
        if matches!(noted, Some(MoveStage::Moved | MoveStage::Moving))
            && !rules::REMOVAL_NOTED.holds()
        {
            book.note.entries.remove(path);
        } else if matches!(noted, Some(MoveStage::Moved | MoveStage::Moving)) {
            self.shared.change(&mut book, |entries| {
                if let Some(entry) = entries.get_mut(path) {
                    entry.stage = MoveStage::Doomed;
                }
            })?;
            self.shared.remove_ends(path);
            self.shared.wake();
        }
        self.shared.files.lock().remove(path);
        match self.shared.local.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && was_shown => Ok(()),
            result => result,
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.shared.local.list(dir)?.into_iter().collect();
        if dir.is_empty() {
            let book = self.shared.book.lock();
            let moved =
                book.note.entries.iter().filter(|(_, entry)| entry.stage == MoveStage::Moved);
            names.extend(moved.map(|(name, _)| name.clone()));
        }
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.shared.local.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.shared.local.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.shared.local.free_bytes()
    }

    fn is_short(&self) -> bool {
        self.shared.local.is_short()
    }

    fn medium(&self) -> Medium {
        Medium { remote_readers: REMOTE_READERS, ..self.shared.local.medium() }
    }

    fn label(&self) -> String {
        self.shared.local.label()
    }
}

impl Ownership for TieredDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        self.shared.local.take()
    }
}
