//! Blocks of objects on the local disk, beside those in memory: what a restart would otherwise fetch
//! again. Everything here may be deleted at any time, a running server included.
//!
//! Objects never change and their keys are never used again, so a block that was right stays right.
//! Each file names what it holds and has a checksum; what does not fit is removed and fetched anew.

use crate::manifest::crc;
use crate::rules;
use bytes::Bytes;
use nuthatch_log::Reporter;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

const MAGIC: [u8; 8] = *b"NUTHBLCK";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

/// Bytes before the name: magic, version, checksum, length of the name.
const HEADER_BYTES: usize = 20;

/// Blocks that may wait to be written; further ones are not kept.
const QUEUE_BLOCKS: usize = 8;

/// Suffix of the files of blocks; other files of the directory are left alone.
const SUFFIX: &str = ".block";

/// A block that is being written.
const TEMPORARY_FILE: &str = "new";

/// Held while a server uses the directory.
const LOCK_FILE: &str = "lock";

/// Directory and size of the block cache on the local disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskCacheOptions {
    /// The directory; it is made if need be, and one server's only.
    pub dir: PathBuf,
    /// Bytes that the files there may take.
    pub max_bytes: u64,
}

/// Blocks in a directory.
pub struct DiskCache {
    shared: Arc<DiskCacheShared>,
    queue: SyncSender<Write>,
    _lock: File,
}

struct DiskCacheShared {
    options: DiskCacheOptions,
    /// Tells this bucket from one that was emptied and filled anew under the same keys.
    scope: String,
    index: Mutex<Index>,
    hits: AtomicU64,
    unusable: AtomicU64,
    report: Reporter,
    reported: AtomicBool,
}

struct Write {
    name: String,
    bytes: Bytes,
}

/// Files by hash of their name, and the order in which they were used.
#[derive(Default)]
struct Index {
    files: HashMap<u64, (u64, u64)>,
    by_use: BTreeMap<u64, u64>,
    bytes: u64,
    clock: u64,
}

impl Index {
    fn insert(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        self.clock += 1;
        self.files.insert(hash, (bytes, self.clock));
        self.by_use.insert(self.clock, hash);
        self.bytes += bytes;
    }

    fn remove(&mut self, hash: u64) {
        if let Some((bytes, used)) = self.files.remove(&hash) {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
    }

    fn touch(&mut self, hash: u64) -> bool {
        let Some(bytes) = self.files.get(&hash).map(|(bytes, _)| *bytes) else { return false };
        self.insert(hash, bytes);
        true
    }

    /// Takes files out, the least recently used first, until `bytes` more fit.
    fn make_room(&mut self, bytes: u64, max_bytes: u64) -> Vec<u64> {
        let mut out = Vec::new();
        while self.bytes + bytes > max_bytes {
            let Some(oldest) = self.by_use.first_key_value().map(|(_, hash)| *hash) else { break };
            self.remove(oldest);
            out.push(oldest);
        }
        out
    }
}

/// The directory of a cache, locked for this process, before it is known whose blocks it is to hold.
pub struct CacheDir {
    options: DiskCacheOptions,
    index: Index,
    lock: File,
}

impl CacheDir {
    /// Takes a directory, which is made if need be, and looks at what is in it.
    ///
    /// # Errors
    /// The operating system's; `WouldBlock` if another server uses the directory.
    pub fn lock(options: DiskCacheOptions) -> io::Result<Self> {
        let place = options.dir.display().to_string();
        Self::lock_dir(options)
            .map_err(|error| io::Error::new(error.kind(), format!("cache in {place}: {error}")))
    }

    fn lock_dir(options: DiskCacheOptions) -> io::Result<Self> {
        std::fs::create_dir_all(&options.dir)?;
        let lock = File::create(options.dir.join(LOCK_FILE))?;
        lock.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => {
                let text = "another server uses this directory as its cache";
                io::Error::new(io::ErrorKind::WouldBlock, text)
            }
            std::fs::TryLockError::Error(error) => error,
        })?;
        remove_if_there(&options.dir.join(TEMPORARY_FILE))?;
        let mut index = Index::default();
        for (hash, bytes) in found(&options.dir)? {
            index.insert(hash, bytes);
        }
        Ok(Self { options, index, lock })
    }
}

impl DiskCache {
    /// Uses a directory. `scope` must differ for any two buckets, and for a bucket before and after
    /// it was emptied.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(dir: CacheDir, scope: String, report: Reporter) -> io::Result<Self> {
        let CacheDir { options, mut index, lock } = dir;
        let too_many = index.make_room(0, options.max_bytes);
        let shared = Arc::new(DiskCacheShared {
            options,
            scope,
            index: Mutex::new(index),
            hits: AtomicU64::new(0),
            unusable: AtomicU64::new(0),
            report,
            reported: AtomicBool::new(false),
        });
        too_many.into_iter().for_each(|hash| shared.remove(hash));
        let (queue, writes) = sync_channel(QUEUE_BLOCKS);
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("store-cache".into())
            .spawn(move || writer.serve(&writes))?;
        Ok(Self { shared, queue, _lock: lock })
    }

    /// True if a block is here, as far as is known. Costs no access to the disk.
    #[must_use]
    pub fn contains(&self, object: &str, number: u64) -> bool {
        let hash = hash_of(&self.shared.name(object, number));
        self.shared.index.lock().files.contains_key(&hash)
    }

    /// A block, if it is here and whole.
    #[must_use]
    pub fn get(&self, object: &str, number: u64) -> Option<Bytes> {
        let name = self.shared.name(object, number);
        let hash = hash_of(&name);
        if !self.shared.index.lock().touch(hash) {
            return None;
        }
        let path = self.shared.options.dir.join(file_name(hash));
        let read = std::fs::read(&path).map_err(Unusable::from);
        match read.and_then(|bytes| decode(Bytes::from(bytes), &name)) {
            Ok(block) => {
                self.shared.hits.fetch_add(1, Ordering::Relaxed);
                return Some(block);
            }
            Err(Unusable::Gone) => self.shared.index.lock().remove(hash),
            Err(why @ Unusable::Damaged) => {
                self.shared.note_unusable(&why);
                self.shared.index.lock().remove(hash);
                self.shared.remove(hash);
            }
            // It may be fine: another attempt may show it, and if not, it goes when it is old.
            Err(why @ (Unusable::Version(_) | Unusable::Unread(_))) => {
                self.shared.note_unusable(&why);
            }
        }
        None
    }

    /// Keeps a block, some time later; not if others wait already.
    pub fn put(&self, object: &str, number: u64, bytes: Bytes) {
        let _ = self.queue.try_send(Write { name: self.shared.name(object, number), bytes });
    }

    /// Bytes of the files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.index.lock().bytes
    }

    /// Bytes that they may take.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.shared.options.max_bytes
    }

    /// Blocks found unusable, other than by being deleted from outside.
    #[must_use]
    pub fn unusable(&self) -> u64 {
        self.shared.unusable.load(Ordering::Relaxed)
    }

    /// Blocks that were found here.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::Relaxed)
    }
}

impl DiskCacheShared {
    fn name(&self, object: &str, number: u64) -> String {
        format!("{} {object} {number}", self.scope)
    }

    fn serve(&self, writes: &Receiver<Write>) {
        while let Ok(Write { name, bytes }) = writes.recv() {
            if let Err(error) = self.write(&name, &bytes) {
                self.say_once(&format!("cannot be written: {error}"));
            }
        }
    }

    /// Trouble with a cache costs time, not data: it is told once.
    fn say_once(&self, what: &str) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            self.report.say(&format!("the cache in {} {what}", self.options.dir.display()));
        }
    }

    fn note_unusable(&self, why: &Unusable) {
        self.unusable.fetch_add(1, Ordering::Relaxed);
        self.say_once(&format!("has a block that cannot be used and is fetched anew: {why}"));
    }

    fn remove(&self, hash: u64) {
        if let Err(error) = remove_if_there(&self.options.dir.join(file_name(hash))) {
            self.say_once(&format!("keeps what it should remove: {error}"));
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let hash = hash_of(name);
        let file = encode(name, bytes);
        let size = file.len() as u64;
        if size > self.options.max_bytes {
            return Ok(());
        }
        let gone = self.index.lock().make_room(size, self.options.max_bytes);
        gone.into_iter().for_each(|hash| self.remove(hash));
        // Not synced: what a power cut leaves of it does not have the right checksum.
        let temporary = self.options.dir.join(TEMPORARY_FILE);
        let path = self.options.dir.join(file_name(hash));
        let write = || std::fs::write(&temporary, &file);
        let written = write().or_else(|error| match error.kind() {
            // The directory was deleted: it may be.
            io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.options.dir).and_then(|()| write())
            }
            _ => Err(error),
        });
        if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, path)) {
            // Half a block on a full disk would stay in others' way.
            remove_if_there(&temporary)?;
            return Err(error);
        }
        self.index.lock().insert(hash, size);
        Ok(())
    }
}

/// Removes a file; it may have been removed already.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The blocks in a directory, the least recently written first.
fn found(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let hash = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        let Some(hash) = hash.and_then(|hash| u64::from_str_radix(hash, 16).ok()) else { continue };
        let meta = entry.metadata()?;
        files.push((meta.modified().ok(), hash, meta.len()));
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, hash, bytes)| (hash, bytes)).collect())
}

fn file_name(hash: u64) -> String {
    format!("{hash:016x}{SUFFIX}")
}

/// FNV-1a: equal in every version of this program. Files say what they hold, so that two names with
/// one hash do no harm.
fn hash_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn encode(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + name.len() + bytes.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(bytes);
    let sum = crc(&out[16..]);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Why a block in the directory cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    /// Its file was deleted.
    #[error("it is gone")]
    Gone,
    /// It is not what was written, or another block's.
    #[error("it is damaged")]
    Damaged,
    /// It is whole, and of another version of the format.
    #[error("it has format version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// The disk did not give it.
    #[error("{0}")]
    Unread(#[source] io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::Gone } else { Self::Unread(error) }
    }
}

/// The block in a file, if it is the one that is wanted.
fn decode(file: Bytes, name: &str) -> Result<Bytes, Unusable> {
    if file.len() < HEADER_BYTES || file[..8] != MAGIC {
        return Err(Unusable::Damaged);
    }
    let u32_of = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| file[at + n]));
    if rules::BLOCK_SUM.holds() && u32_of(12) != crc(&file[16..]) {
        return Err(Unusable::Damaged);
    }
    if rules::LATER_VERSION_REFUSED.holds() && u32_of(8) != VERSION {
        return Err(Unusable::Version(u32_of(8)));
    }
    let from = HEADER_BYTES + name.len();
    let is_it = u32_of(16) as usize == name.len()
        && file.get(HEADER_BYTES..from).is_some_and(|named| named == name.as_bytes());
    if is_it || !rules::BLOCK_NAME.holds() {
        Ok(file.slice(from..))
    } else {
        Err(Unusable::Damaged)
    }
}

#[cfg(test)]
mod tests;
