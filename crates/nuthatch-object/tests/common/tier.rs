//! A log with a tier, driven on the calling thread.
#![allow(dead_code, reason = "each test file uses its own part")]

use crate::common::{History, Rig, tiny};
use nuthatch_log::LogOptions;
use nuthatch_log::env::{Disk, MemDisk, OwnableDisk};
use nuthatch_object::{Bucket, BucketOptions, LocalDisk, Step, TierOptions, TieredDisk};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub fn options() -> LogOptions {
    LogOptions { first_segment_bytes: 4096, segment_bytes: 8192, ..tiny() }
}

/// Moves all that is sealed beyond a few segments, in several objects each.
pub fn tier_options(seed: u64) -> TierOptions {
    TierOptions {
        local_max_bytes: Some(24 << 10),
        cache_bytes: 0,
        part_bytes: 3000,
        seed,
        ..TierOptions::default()
    }
}

pub fn bucket(store: Arc<dyn ObjectStore>, retry_for: Duration) -> Arc<Bucket> {
    let options = BucketOptions { retry_first_ms: 0, retry_for, ..BucketOptions::default() };
    let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), options);
    Arc::new(bucket.expect("threads"))
}

pub fn patient(store: Arc<dyn ObjectStore>) -> Arc<Bucket> {
    bucket(store, Duration::from_secs(600))
}

pub fn tiered(
    local: &MemDisk,
    bucket: Arc<Bucket>,
    options: TierOptions,
) -> io::Result<Arc<TieredDisk>> {
    TieredDisk::open(Arc::new(local.clone()), bucket, options).map(Arc::new)
}

pub struct Process {
    pub rig: Rig,
    pub tier: Arc<TieredDisk>,
}

impl Process {
    pub fn start(local: &MemDisk, bucket: Arc<Bucket>, seed: u64) -> Result<Self, String> {
        Self::with(local, bucket, tier_options(seed), seed)
    }

    pub fn with(
        local: &MemDisk,
        bucket: Arc<Bucket>,
        tier_options: TierOptions,
        seed: u64,
    ) -> Result<Self, String> {
        // Space for what goes on when the disk is full.
        let reserve_bytes = Some(if tier_options.headroom_bytes > 0 { 48 << 10 } else { 0 });
        Self::on(Arc::new(local.clone()), bucket, tier_options, reserve_bytes, seed)
    }

    pub fn on(
        local: Arc<dyn LocalDisk>,
        bucket: Arc<Bucket>,
        tier_options: TierOptions,
        reserve_bytes: Option<u64>,
        seed: u64,
    ) -> Result<Self, String> {
        let tier =
            TieredDisk::open(local, bucket, tier_options).map_err(|error| error.to_string())?;
        let tier = Arc::new(tier);
        let disk = Arc::clone(&tier) as Arc<dyn OwnableDisk>;
        let options = LogOptions { reserve_bytes, ..options() };
        let rig = Rig::open_seeded(options, disk, seed).map_err(|error| error.to_string())?;
        Ok(Self { rig, tier })
    }

    /// Moves until there is nothing to do, or something fails; how many segments moved.
    pub fn move_all(&self) -> (u64, io::Result<()>) {
        let mut moved = 0;
        loop {
            match self.tier.step(SystemTime::UNIX_EPOCH) {
                Ok(Step::Idle(None)) => return (moved, Ok(())),
                Ok(Step::Moved(_)) => moved += 1,
                Ok(_) => {}
                Err(error) => return (moved, Err(error)),
            }
        }
    }
}

pub fn segments(disk: &dyn Disk) -> usize {
    let names = disk.list("").unwrap_or_default();
    names.iter().filter(|name| name.ends_with(".seg")).count()
}

/// A log with a few dozen segments, most of them moved.
pub fn moved_log(seed: u64) -> (Arc<InMemory>, MemDisk, History) {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let mut history = History::new(seed);
    let (local_max_bytes, after_age) = (None, Some(Duration::ZERO));
    let tier = TierOptions { local_max_bytes, after_age, ..tier_options(seed) };
    let bucket = patient(Arc::clone(&inner) as _);
    let mut process = Process::with(&local, bucket, tier, seed).expect("opens");
    history.work(&mut process.rig, 200);
    history.collect(&process.rig);
    let (moved, result) = process.move_all();
    result.expect("moves");
    assert!(moved > 5, "{moved}");
    process.rig.core.close().expect("closes");
    drop(process);
    (inner, local.survive(), history)
}

pub fn keys(inner: &Arc<InMemory>, part: &str) -> Vec<Path> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let all = futures_util::TryStreamExt::try_collect::<Vec<_>>(inner.list(None));
    let mut all: Vec<Path> =
        runtime.block_on(all).expect("lists").into_iter().map(|meta| meta.location).collect();
    all.retain(|path| path.as_ref().contains(part));
    all
}

pub fn delete(inner: &Arc<InMemory>, path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(inner.delete(path)).expect("deletes");
}
