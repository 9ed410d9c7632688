//! A log's directory in a bucket.

use crate::bucket::Bucket;
use crate::cache::disk::DiskCacheOptions;
use crate::cache::{BlockCache, CacheSnapshot};
use crate::catalog::CatalogVersions;
use crate::extents::{Extents, Piece, Source};
use crate::file::ObjectFile;
use crate::listing::{Listing, load_files, load_listed};
use crate::owner::Owner;
use crate::shared::{LogShared, OnFenced, REMOTE_READERS};
use bytes::Bytes;
use nuthatch_log::Epoch;
use nuthatch_log::env::{Disk, DiskFile, Medium, Ownership, Standing, Tenure};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The catalog's path, as the log knows it.
const CATALOG_PATH: &str = "catalog";

/// Suffix of the files of segments.
const SEGMENT_SUFFIX: &str = ".seg";

/// Files below this directory are only in memory.
const TMP_PREFIX: &str = "tmp/";

/// How a log is kept in a bucket.
#[derive(Clone)]
pub struct ObjectDiskOptions {
    /// How this server names itself to others: host and process, for example.
    pub who: String,
    /// Bytes of objects kept in memory for readers. Default 64 MiB. Up to 32 MiB more are being
    /// fetched ahead of those that read in order.
    pub cache_bytes: usize,
    /// Block cache on the local disk. Default: none.
    pub disk_cache: Option<DiskCacheOptions>,
    /// An object of a file holds at most this much; where a sync writes more, that is cut into
    /// objects of equal size, which are put at the same time. Default 16 MiB.
    pub part_bytes: usize,
    /// For the identities of what is written; must differ between any two openings.
    pub seed: u64,
    /// Called when another server has taken over.
    pub on_fenced: OnFenced,
    /// Who else says until when this process may answer for the log, as the nodes of a cluster do; none: a fence alone ends
    /// its owner.
    pub tenure: Option<Arc<dyn Tenure>>,
}

impl Default for ObjectDiskOptions {
    fn default() -> Self {
        Self {
            who: String::new(),
            cache_bytes: 64 << 20,
            disk_cache: None,
            part_bytes: 16 << 20,
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64),
            on_fenced: Arc::new(|_| {}),
            tenure: None,
        }
    }
}

/// A log's directory in a bucket, taken over by this process.
pub struct ObjectDisk {
    shared: Arc<LogShared>,
    catalog: CatalogVersions,
    files: Mutex<BTreeMap<String, Arc<ObjectFile>>>,
    locked: Arc<AtomicBool>,
    tenure: Option<Arc<dyn Tenure>>,
    _watch: Watch,
}

impl ObjectDisk {
    /// Prepares and takes in one step: tries the store out, becomes the owner of the log in `bucket`
    /// (ending any other), and reads what is there. Whoever opens several logs prepares all of them
    /// first ([`ObjectDisk::prepare`]), so that a refusal takes none of them from its owner.
    ///
    /// # Errors
    /// Those of [`ObjectDisk::prepare`] and [`crate::PreparedDisk::take`].
    pub fn open(bucket: Arc<Bucket>, options: ObjectDiskOptions) -> io::Result<Self> {
        Self::prepare(bucket, options)?.take()
    }

    /// Reads what is there, as its owner; or, with a rule turned off, takes what was there before.
    pub(crate) fn open_as(
        owner: Arc<Owner>,
        options: ObjectDiskOptions,
        cache: Arc<BlockCache>,
        seed: u64,
        early: Option<Listing>,
    ) -> io::Result<Self> {
        let bucket = Arc::clone(cache.bucket());
        let catalog = CatalogVersions::claim(Arc::clone(&bucket), Arc::clone(&owner), seed)?;
        let part_bytes = options.part_bytes.max(1);
        let tenure = options.tenure;
        let shared = LogShared::owned(cache, owner, part_bytes, options.on_fenced);
        let shared = Arc::new(shared);
        let files = match early {
            Some(listing) => load_listed(&shared, listing)?,
            None => load_files(&shared)?,
        };
        let segments = files.iter().filter(|(name, _)| name.ends_with(SEGMENT_SUFFIX));
        shared.cache.warm(segments.flat_map(|(_, file)| file.ends()).collect());
        let files = Mutex::new(files);
        let watch = Watch::start(Arc::clone(&shared))?;
        Ok(Self { shared, catalog, files, locked: Arc::default(), tenure, _watch: watch })
    }

    /// The bucket, for its counters.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.shared.bucket
    }

    /// Counters and sizes of its caches.
    #[must_use]
    pub fn cache(&self) -> CacheSnapshot {
        self.shared.cache.snapshot()
    }

    fn file(&self, path: &str) -> io::Result<Arc<ObjectFile>> {
        Ok(self.files.lock().get(path).ok_or(io::ErrorKind::NotFound)?.clone())
    }

    fn in_memory(&self, content: Bytes) -> Arc<dyn DiskFile> {
        let len = content.len() as u64;
        let piece = Piece { len, source: Source::Memory(content) };
        let extents = Extents::of([(0, piece)], len);
        Arc::new(ObjectFile::stored(Arc::clone(&self.shared), None, extents, BTreeMap::new()))
    }

    /// Stores the file under a name, in place of what may have had it.
    fn store_as(&self, file: &Arc<ObjectFile>, path: &str) -> io::Result<()> {
        file.store_as(path)?;
        let old = self.files.lock().insert(path.to_owned(), Arc::clone(file));
        let kept = file.objects();
        let mut stale = old.map_or(Vec::new(), |old| old.objects());
        stale.retain(|key| !kept.contains(key));
        Ok(self.shared.bucket.delete_all(stale)?)
    }
}

impl Disk for ObjectDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.shared.usable()?;
        let shared = Arc::clone(&self.shared);
        let name = (!path.starts_with(TMP_PREFIX)).then(|| path.to_owned());
        let file = ObjectFile::stored(shared, name, Extents::default(), BTreeMap::new());
        let file = Arc::new(file);
        self.files.lock().insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if path == CATALOG_PATH {
            let body = self.catalog.body().ok_or(io::ErrorKind::NotFound)?;
            return Ok(self.in_memory(body));
        }
        Ok(self.file(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.usable()?;
        let file = self.file(from)?;
        if to == CATALOG_PATH {
            self.catalog.publish(file.content()?)?;
        } else if from.starts_with(TMP_PREFIX) {
            self.store_as(&file, to)?;
        } else {
            // Keys hold names: what was stored under one is stored again under the other.
            let copy = Arc::new(ObjectFile::volatile(Arc::clone(&self.shared)));
            copy.write_shared(&file.content()?, 0)?;
            self.store_as(&copy, to)?;
            self.shared.bucket.delete_all(file.objects())?;
        }
        self.files.lock().remove(from);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.shared.usable()?;
        let file = self.files.lock().remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.shared.bucket.delete_all(file.objects())?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let files = self.files.lock();
        let in_dir = |path: &String| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent == dir).then(|| name.to_owned())
        };
        Ok(files.keys().filter_map(in_dir).collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    /// Names are durable as soon as their objects are.
    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    /// A bucket is never full.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX / 2)
    }

    fn medium(&self) -> Medium {
        Medium::bucket(REMOTE_READERS)
    }

    fn label(&self) -> String {
        self.shared.bucket.label().to_owned()
    }
}

impl Ownership for ObjectDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        if self.locked.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        self.check()?;
        let (shared, locked) = (Arc::clone(&self.shared), Arc::clone(&self.locked));
        Ok(Some(Box::new(Lock { shared, locked, tenure: self.tenure.clone() })))
    }
}

impl ObjectDisk {
    /// Fails if another server has become the owner.
    ///
    /// # Errors
    /// [`crate::Fenced`] inside, or the store's.
    pub fn check(&self) -> io::Result<()> {
        self.shared.check_owner()
    }

    /// Notes, for people, that this process writes nothing to the log any more although it never opened
    /// it; who has it open leaves by closing it.
    pub fn leave(&self) {
        self.shared.leave();
    }
}

/// The log is open in this process.
struct Lock {
    shared: Arc<LogShared>,
    locked: Arc<AtomicBool>,
    tenure: Option<Arc<dyn Tenure>>,
}

impl Tenure for Lock {
    fn epoch(&self) -> Option<Epoch> {
        Some(Epoch(self.shared.epoch()))
    }

    fn standing(&self) -> Standing {
        self.tenure.as_ref().map_or(Standing::Current, |tenure| tenure.standing())
    }

    fn leave(&self) {
        self.shared.leave();
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locked.store(false, Ordering::Release);
    }
}

/// How often the watch looks at the clock; it asks the store only when a check is due.
const WATCH_MS: u64 = 500;

/// Looks from time to time whether an idle owner still is one.
struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(shared: Arc<LogShared>) -> io::Result<Self> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let ended = Arc::clone(&stop);
        let watch = move || {
            let (stop, changed) = &*ended;
            let mut stop = stop.lock();
            while !*stop {
                changed.wait_for(&mut stop, Duration::from_millis(WATCH_MS));
                let due = |owner: &Arc<Owner>| owner.is_check_due() && !owner.is_fenced();
                if !*stop && shared.owner().is_ok_and(due) {
                    // A store that does not answer says nothing about ownership.
                    let _ = shared.check_owner();
                }
            }
        };
        let thread = std::thread::Builder::new().name("log-owner".into()).spawn(watch)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_one();
        // Not awaited when it is this very thread that drops the last reference, or busy asking.
        drop(self.thread.take());
    }
}
