//! Blocks of objects in memory: what was read once is not paid for twice, and one request serves
//! all who ask for the same block at a time. What is read in order is fetched ahead, several blocks
//! with one request. Behind it there may be a cache on the local disk ([`disk`]).
//!
//! Memory: the capacity, and at most [`AHEAD_BLOCKS_MAX`] blocks that are being fetched ahead.

pub mod ahead;
pub mod disk;

use crate::bucket::Bucket;
use crate::extents::to_usize;
use bytes::Bytes;
use disk::DiskCache;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects are read in blocks of this size, aligned within the object.
pub const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// Blocks that may be being fetched ahead at a time.
const AHEAD_BLOCKS_MAX: usize = 16;

/// Neighbouring blocks that one request fetches ahead: 8 MiB.
const FETCH_BLOCKS: u64 = 4;

/// Of the capacity, one part in this many may be under way ahead of readers: what is fetched is not
/// to push out what was fetched just before.
const AHEAD_SHARE: usize = 4;

type Key = (Arc<str>, u64);

/// A stretch of an object that will be read soon.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The object's key.
    pub key: Arc<str>,
    /// The object's size in bytes.
    pub size: u64,
    /// Offset where the stretch begins in the object.
    pub from: u64,
    /// Offset where it ends.
    pub to: u64,
}

impl Stretch {
    fn blocks(&self) -> std::ops::Range<u64> {
        self.from / BLOCK_BYTES..self.to.min(self.size).div_ceil(BLOCK_BYTES)
    }

    /// The same up to where a large request ends, so that requests do not come in crumbs.
    fn blocks_to_fetch(&self) -> std::ops::Range<u64> {
        let std::ops::Range { start, end } = self.blocks();
        start..end.next_multiple_of(FETCH_BLOCKS).min(self.size.div_ceil(BLOCK_BYTES))
    }
}

/// Counters and sizes of a bucket's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheSnapshot {
    /// Bytes in memory.
    pub bytes: u64,
    /// Bytes that may be in memory.
    pub capacity_bytes: u64,
    /// Blocks asked for that were in memory, or on their way.
    pub hits: u64,
    /// Blocks asked for that were not.
    pub misses: u64,
    /// Of the misses, those that the disk cache had.
    pub disk_hits: u64,
    /// Blocks of the disk cache that were damaged, of a later version, or not given by the disk.
    pub disk_unusable: u64,
    /// Bytes in the disk cache.
    pub disk_bytes: u64,
    /// Bytes that may be there; 0: there is none.
    pub disk_capacity_bytes: u64,
}

/// The cache of one log.
pub struct BlockCache {
    bucket: Arc<Bucket>,
    capacity_bytes: usize,
    disk: Option<DiskCache>,
    hits: AtomicU64,
    misses: AtomicU64,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Key, (Bytes, u64)>,
    by_use: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
    under_way: HashSet<Key>,
}

impl State {
    fn get(&mut self, key: &Key) -> Option<Bytes> {
        let (bytes, used) = self.blocks.get_mut(key)?;
        self.clock += 1;
        self.by_use.remove(used);
        self.by_use.insert(self.clock, key.clone());
        *used = self.clock;
        Some(bytes.clone())
    }

    fn put(&mut self, key: Key, bytes: Bytes, capacity_bytes: usize) {
        self.clock += 1;
        self.bytes += bytes.len();
        self.by_use.insert(self.clock, key.clone());
        if let Some((old, used)) = self.blocks.insert(key, (bytes, self.clock)) {
            self.bytes -= old.len();
            self.by_use.remove(&used);
        }
        while self.bytes > capacity_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some((gone, _)) = self.blocks.remove(&oldest) {
                self.bytes -= gone.len();
            }
        }
    }

    fn knows(&self, key: &Key) -> bool {
        self.blocks.contains_key(key) || self.under_way.contains(key)
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` in memory, before one on the disk if there is one.
    #[must_use]
    pub fn new(bucket: Arc<Bucket>, capacity_bytes: usize, disk: Option<DiskCache>) -> Self {
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        let (state, arrived) = (Mutex::default(), Condvar::new());
        Self { bucket, capacity_bytes, disk, hits, misses, state, arrived }
    }

    /// The bucket it caches.
    #[must_use]
    pub const fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Its counters and sizes.
    #[must_use]
    pub fn snapshot(&self) -> CacheSnapshot {
        CacheSnapshot {
            bytes: self.state.lock().bytes as u64,
            capacity_bytes: self.capacity_bytes as u64,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            disk_hits: self.disk.as_ref().map_or(0, DiskCache::hits),
            disk_unusable: self.disk.as_ref().map_or(0, DiskCache::unusable),
            disk_bytes: self.disk.as_ref().map_or(0, DiskCache::bytes),
            disk_capacity_bytes: self.disk.as_ref().map_or(0, DiskCache::max_bytes),
        }
    }

    /// Fills `into` from `at` on in an object of `size` bytes.
    ///
    /// # Errors
    /// The store's; `UnexpectedEof` if the object is shorter than it was.
    pub fn read(&self, key: &Arc<str>, size: u64, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at + into.len() as u64;
        let mut from = at;
        while from < end {
            let number = from / BLOCK_BYTES;
            let block = self.block(&(Arc::clone(key), number), size)?;
            let start = to_usize(from - number * BLOCK_BYTES);
            let step = to_usize(end - from).min(block.len().saturating_sub(start));
            if step == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let target = to_usize(from - at);
            into[target..target + step].copy_from_slice(&block[start..start + step]);
            from += step as u64;
        }
        Ok(())
    }

    /// Reads whole objects of at most a block each at the same time, up to half of what the cache
    /// takes: what is going to be asked for one by one.
    pub fn warm(&self, objects: Vec<(Arc<str>, u64)>) {
        let mut left = self.capacity_bytes as u64 / 2;
        let fits = |(key, size): &(Arc<str>, u64)| {
            let fits = *size <= BLOCK_BYTES && *size <= left && !self.is_on_disk(key, 0);
            left -= if fits { *size } else { 0 };
            fits
        };
        let objects: Vec<_> = objects.into_iter().filter(fits).collect();
        let keys = objects.iter().map(|(key, _)| key.to_string()).collect();
        // Whatever is missing is read when it is asked for, and its error told then.
        let read = self.bucket.get_all(keys).unwrap_or_default();
        for ((key, _), bytes) in objects.into_iter().zip(read) {
            if let Some(bytes) = bytes {
                self.keep((key, 0), bytes);
            }
        }
    }

    fn is_on_disk(&self, object: &Arc<str>, number: u64) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.contains(object, number))
    }

    /// Puts a block that came from the bucket into memory, and on the disk.
    fn keep(&self, key: Key, bytes: Bytes) {
        if let Some(disk) = &self.disk {
            disk.put(&key.0, key.1, bytes.clone());
        }
        self.state.lock().put(key, bytes, self.capacity_bytes);
    }

    fn block(&self, key: &Key, size: u64) -> io::Result<Bytes> {
        let mut state = self.state.lock();
        loop {
            if let Some(bytes) = state.get(key) {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(bytes);
            }
            if state.under_way.insert(key.clone()) {
                break;
            }
            self.arrived.wait(&mut state);
        }
        drop(state);
        self.misses.fetch_add(1, Ordering::Relaxed);
        // Waiters are woken, whatever happens.
        let _arrival =
            PendingFetch { cache: self, object: Arc::clone(&key.0), blocks: key.1..key.1 + 1 };
        if let Some(bytes) = self.disk.as_ref().and_then(|disk| disk.get(&key.0, key.1)) {
            self.state.lock().put(key.clone(), bytes.clone(), self.capacity_bytes);
            return Ok(bytes);
        }
        let bytes = self.bucket.get_range(&key.0, range(key.1..key.1 + 1, size))?;
        self.keep(key.clone(), bytes.clone());
        Ok(bytes)
    }

    /// Begins to fetch stretches that follow what is being read, in order, unless the first half of
    /// them is here or on its way already: then it is too early for another large request.
    pub fn ahead(self: &Arc<Self>, stretches: &[Stretch]) {
        let wanted: u64 = stretches.iter().map(|stretch| stretch.to - stretch.from).sum();
        let mut state = self.state.lock();
        if wanted == 0 || self.runway(&state, stretches) >= wanted.div_ceil(2) {
            return;
        }
        let fetches = self.plan(&mut state, stretches);
        drop(state);
        for (object, size, blocks) in fetches {
            let range = range(blocks.clone(), size);
            let arrival =
                PendingFetch { cache: Arc::clone(self), object: Arc::clone(&object), blocks };
            self.bucket.get_range_later(&object, range, move |bytes| arrival.end(bytes));
        }
    }

    /// Bytes of the stretches before the first block that is not at hand.
    fn runway(&self, state: &State, stretches: &[Stretch]) -> u64 {
        let mut bytes = 0;
        for stretch in stretches {
            let mut at = stretch.from;
            for number in stretch.blocks() {
                let key = (Arc::clone(&stretch.key), number);
                if !state.knows(&key) && !self.is_on_disk(&key.0, number) {
                    return bytes;
                }
                let end = ((number + 1) * BLOCK_BYTES).min(stretch.to);
                bytes += end - at;
                at = end;
            }
        }
        bytes
    }

    /// Chooses what to fetch, and marks it as under way.
    fn plan(
        &self,
        state: &mut State,
        stretches: &[Stretch],
    ) -> Vec<(Arc<str>, u64, std::ops::Range<u64>)> {
        let share = self.capacity_bytes / AHEAD_SHARE / to_usize(BLOCK_BYTES);
        let most = share.clamp(1, AHEAD_BLOCKS_MAX);
        let mut fetches: Vec<(Arc<str>, u64, std::ops::Range<u64>)> = Vec::new();
        for stretch in stretches {
            for number in stretch.blocks_to_fetch() {
                let key = (Arc::clone(&stretch.key), number);
                if state.knows(&key) || self.is_on_disk(&key.0, number) {
                    continue;
                }
                if state.under_way.len() >= most {
                    return fetches;
                }
                state.under_way.insert(key);
                match fetches.last_mut() {
                    Some((object, _, blocks))
                        if *object == stretch.key
                            && blocks.end == number
                            && blocks.end - blocks.start < FETCH_BLOCKS =>
                    {
                        blocks.end += 1;
                    }
                    _ => {
                        let object = Arc::clone(&stretch.key);
                        fetches.push((object, stretch.size, number..number + 1));
                    }
                }
            }
        }
        fetches
    }
}

/// A fetch in progress; waiters are woken even if it is dropped half way.
struct PendingFetch<C: std::ops::Deref<Target = BlockCache>> {
    cache: C,
    object: Arc<str>,
    blocks: std::ops::Range<u64>,
}

impl<C: std::ops::Deref<Target = BlockCache>> PendingFetch<C> {
    fn end(self, bytes: Option<Bytes>) {
        let Some(bytes) = bytes else { return };
        for (number, block) in self.blocks.clone().zip(bytes.chunks(to_usize(BLOCK_BYTES))) {
            // A copy: a slice would keep the whole answer in memory for as long as any block of it.
            self.cache.keep((Arc::clone(&self.object), number), Bytes::copy_from_slice(block));
        }
    }
}

impl<C: std::ops::Deref<Target = BlockCache>> Drop for PendingFetch<C> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        for number in self.blocks.clone() {
            state.under_way.remove(&(Arc::clone(&self.object), number));
        }
        drop(state);
        self.cache.arrived.notify_all();
    }
}

fn range(blocks: std::ops::Range<u64>, size: u64) -> std::ops::Range<u64> {
    blocks.start * BLOCK_BYTES..(blocks.end * BLOCK_BYTES).min(size)
}
