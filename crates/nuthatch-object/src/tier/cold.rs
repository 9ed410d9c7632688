//! Segments in the bucket: written in parts, compared, read in blocks, removed.

use super::note::{MoveStage, NoteEntry};
use super::stub::{STUB_DIR, StubFault};
use crate::bucket::Bucket;
use crate::cache::{BlockCache, Stretch};
use crate::extents::to_usize;
use crate::names::{self, DATA, DataKey};
use crate::rules;
use nuthatch_log::env::{DiskFile, read_exact_at};
use object_store::PutPayload;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A segment becomes objects of this size, unless told otherwise.
pub const PART_BYTES: u64 = 8 << 20;

/// Parts of a segment that are uploaded or compared at a time: with [`PART_BYTES`] the memory that
/// moving takes.
const PARTS_AT_A_TIME: usize = 4;

/// After a read that failed, so long nothing is read that can wait.
const AVOIDED_FOR: Duration = Duration::from_secs(30);

/// The bucket of a tier.
pub struct ColdStore {
    /// The bucket.
    pub bucket: Arc<Bucket>,
    /// Cache of its blocks.
    pub cache: Arc<BlockCache>,
    /// When the last read failed, by the bucket's clock; none if it did not.
    failed: Mutex<Option<Duration>>,
    /// Segments whose ends on the local disk could not be read.
    unreadable_ends: AtomicU64,
}

/// A part of a segment: where it begins, and its bytes.
fn parts(entry: &NoteEntry) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (bytes, step) = (entry.bytes, entry.part_bytes.max(1));
    let count = bytes.div_ceil(step);
    (0..count).map(move |n| (n * step, step.min(bytes - n * step)))
}

impl ColdStore {
    /// Segments in `bucket`, with `cache_bytes` of them in memory.
    pub fn new(bucket: Arc<Bucket>, cache_bytes: usize) -> Self {
        let cache = Arc::new(BlockCache::new(Arc::clone(&bucket), cache_bytes, None));
        Self { bucket, cache, failed: Mutex::default(), unreadable_ends: AtomicU64::new(0) }
    }

    /// Counts and tells that the ends of a segment are read from the bucket although they are on the
    /// local disk, where they stay.
    pub fn note_unreadable_ends(&self, name: &str, why: &StubFault) {
        self.unreadable_ends.fetch_add(1, Ordering::Relaxed);
        let what = format!("the ends of {name} in {STUB_DIR}/ are read from the bucket: {why}");
        self.bucket.report(&what);
    }

    /// How many segments that was.
    pub fn unreadable_ends(&self) -> u64 {
        self.unreadable_ends.load(Ordering::Relaxed)
    }

    /// True if the last read did not fail, or that was a while ago.
    pub fn is_at_hand(&self) -> bool {
        let since = |at: Duration| self.bucket.monotonic().saturating_sub(at);
        self.failed.lock().is_none_or(|at| since(at) >= AVOIDED_FOR)
    }

    /// Writes a segment. Ends early if `go_on` says so.
    pub fn upload(
        &self,
        file: &dyn DiskFile,
        name: &str,
        entry: &NoteEntry,
        go_on: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let all: Vec<_> = parts(entry).collect();
        for some in all.chunks(PARTS_AT_A_TIME) {
            go_on()?;
            let mut objects = Vec::with_capacity(some.len());
            for (at, len) in some {
                let bytes = read_local(file, *at, *len)?;
                let key = names::part(name, *at, entry.epoch);
                objects.push((key, PutPayload::from(bytes)));
            }
            self.bucket.put_all(objects)?;
        }
        Ok(())
    }

    /// True if the bucket holds exactly what the local file does.
    pub fn holds(
        &self,
        file: &dyn DiskFile,
        name: &str,
        entry: &NoteEntry,
        go_on: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<bool> {
        if !rules::MOVE_COMPARED.holds() {
            return Ok(true);
        }
        let all: Vec<_> = parts(entry).collect();
        for some in all.chunks(PARTS_AT_A_TIME) {
            go_on()?;
            for (at, len) in some {
                let key = names::part(name, *at, entry.epoch);
                let there = match self.bucket.get(&key) {
                    Ok(there) => there,
                    Err(crate::BucketError::NotFound { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                };
                if there != read_local(file, *at, *len)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Removes a segment.
    pub fn remove(&self, name: &str, entry: &NoteEntry) -> io::Result<()> {
        let keys = parts(entry).map(|(at, _)| names::part(name, at, entry.epoch)).collect();
        Ok(self.bucket.delete_all(keys)?)
    }

    /// A segment of which nothing is noted here: the newest one of `bytes` that is complete.
    pub fn find(&self, name: &str, bytes: u64) -> io::Result<Option<NoteEntry>> {
        let listed = self.bucket.list(&format!("{DATA}/{name}"))?;
        let mut found: Vec<(u32, u64, u64)> = Vec::new();
        for object in listed {
            if let Some(DataKey::Part { offset, epoch, .. }) = names::data_key(&object.key) {
                found.push((epoch, offset, object.bytes));
            }
        }
        found.sort_unstable_by_key(|(epoch, offset, _)| (std::cmp::Reverse(*epoch), *offset));
        let complete = found.chunk_by(|a, b| a.0 == b.0).find_map(|objects| {
            let (epoch, _, part_bytes) = *objects.first()?;
            let entry = NoteEntry { stage: MoveStage::Moved, epoch, bytes, part_bytes };
            let sizes = objects.iter().map(|(_, offset, size)| (*offset, *size));
            (part_bytes > 0 && sizes.eq(parts(&entry))).then_some(entry)
        });
        Ok(complete)
    }

    /// Fills `into` from `at` on, which must be within the segment.
    pub fn read(&self, name: &str, entry: &NoteEntry, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at + into.len() as u64;
        let mut from = at;
        while from < end {
            let Stretch { key, size, from: skip, to } = stretch(name, entry, from, end);
            let target = to_usize(from - at);
            let step = to_usize(to - skip);
            let read = self.cache.read(&key, size, skip, &mut into[target..target + step]);
            *self.failed.lock() = read.is_err().then(|| self.bucket.monotonic());
            read?;
            from += step as u64;
        }
        Ok(())
    }

    /// Fetches what is going to be read.
    pub fn read_ahead(&self, name: &str, entry: &NoteEntry, from: u64, to: u64) {
        let (mut at, end) = (from, to.min(entry.bytes));
        let mut stretches = Vec::new();
        while at < end {
            let next = stretch(name, entry, at, end);
            at += next.to - next.from;
            stretches.push(next);
        }
        self.cache.ahead(&stretches);
    }
}

/// The part of `at..end` that lies in the object that holds `at`.
fn stretch(name: &str, entry: &NoteEntry, at: u64, end: u64) -> Stretch {
    let step = entry.part_bytes.max(1);
    let start = at / step * step;
    let size = step.min(entry.bytes.saturating_sub(start));
    let key = names::part(name, start, entry.epoch).into();
    Stretch { key, size, from: at - start, to: (end - start).min(size) }
}

/// Bytes of a local file, where an error says which side failed.
fn read_local(file: &dyn DiskFile, at: u64, len: u64) -> io::Result<Vec<u8>> {
    read_exact_at(file, at, to_usize(len))
        .map_err(|error| io::Error::new(error.kind(), LocalRead(error)))
}

/// Bytes of a local file that are looked at in one go for anything but zeros.
const BLANK_STEP_BYTES: usize = 256 << 10;

/// True if nothing but zeros follows the first `bytes` of a local file: what was allocated for a
/// segment and is cut off some time after it was sealed.
pub fn ends_at(file: &dyn DiskFile, bytes: u64) -> io::Result<bool> {
    let mut step = vec![0; BLANK_STEP_BYTES];
    let mut at = bytes;
    loop {
        match file.read_at(&mut step, at) {
            Ok(0) => return Ok(true),
            Ok(n) if step[..n].iter().any(|byte| *byte != 0) => return Ok(false),
            Ok(n) => at += n as u64,
            Err(error) => return Err(io::Error::new(error.kind(), LocalRead(error))),
        }
    }
}

/// A segment could not be read from the local disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the segment from the local disk: {0}")]
pub struct LocalRead(#[source] io::Error);
