//! Blocks of objects in memory: what was read once is not paid for twice, and one request serves
//! all who ask for the same block at a time.

use crate::bucket::Bucket;
use crate::extents::to_usize;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// Objects are read in blocks of this size, aligned within the object.
pub const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// Blocks that may be fetched ahead at a time.
const MAX_PREFETCHES: usize = 8;

type Key = (Arc<str>, u64);

/// The cache of one log.
pub struct BlockCache {
    bucket: Arc<Bucket>,
    capacity_bytes: usize,
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
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    #[must_use]
    pub fn new(bucket: Arc<Bucket>, capacity_bytes: usize) -> Self {
        Self { bucket, capacity_bytes, state: Mutex::default(), arrived: Condvar::new() }
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
        let fits = |(_, size): &(Arc<str>, u64)| {
            let fits = *size <= BLOCK_BYTES && *size <= left;
            left -= if fits { *size } else { 0 };
            fits
        };
        let objects: Vec<_> = objects.into_iter().filter(fits).collect();
        let keys = objects.iter().map(|(key, _)| key.to_string()).collect();
        // Whatever is missing is read when it is asked for, and its error told then.
        let read = self.bucket.get_all(keys).unwrap_or_default();
        let mut state = self.state.lock();
        for ((key, _), bytes) in objects.into_iter().zip(read) {
            if let Some(bytes) = bytes {
                state.put((key, 0), bytes, self.capacity_bytes);
            }
        }
    }

    fn block(&self, key: &Key, size: u64) -> io::Result<Bytes> {
        let mut state = self.state.lock();
        loop {
            if let Some(bytes) = state.get(key) {
                return Ok(bytes);
            }
            if state.under_way.insert(key.clone()) {
                break;
            }
            self.arrived.wait(&mut state);
        }
        drop(state);
        let fetched = self.bucket.get_range(&key.0, range(key.1, size));
        let mut state = self.state.lock();
        state.under_way.remove(key);
        self.arrived.notify_all();
        let bytes = fetched?;
        state.put(key.clone(), bytes.clone(), self.capacity_bytes);
        Ok(bytes)
    }

    /// Begins to fetch the block that holds `at`, unless it is here or enough others are under way.
    pub fn prefetch(self: &Arc<Self>, object: &Arc<str>, size: u64, at: u64) {
        let key = (Arc::clone(object), at / BLOCK_BYTES);
        let mut state = self.state.lock();
        let known = state.blocks.contains_key(&key) || state.under_way.contains(&key);
        if known || at >= size || state.under_way.len() >= MAX_PREFETCHES {
            return;
        }
        state.under_way.insert(key.clone());
        drop(state);
        let arrival = Arrival { cache: Arc::clone(self), key };
        let range = range(at / BLOCK_BYTES, size);
        self.bucket.get_range_later(object, range, move |bytes| arrival.end(bytes));
    }
}

/// A fetch in the background; whoever waits is woken even if it is dropped half way.
struct Arrival {
    cache: Arc<BlockCache>,
    key: Key,
}

impl Arrival {
    fn end(self, bytes: Option<Bytes>) {
        if let Some(bytes) = bytes {
            let capacity = self.cache.capacity_bytes;
            self.cache.state.lock().put(self.key.clone(), bytes, capacity);
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.cache.state.lock().under_way.remove(&self.key);
        self.cache.arrived.notify_all();
    }
}

fn range(number: u64, size: u64) -> std::ops::Range<u64> {
    let start = number * BLOCK_BYTES;
    start..(start + BLOCK_BYTES).min(size)
}
