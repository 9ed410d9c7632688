//! The first of the two steps in which a server takes over a log in a bucket: everything that can
//! be known without owning the log is asked before the fence ends another server.
//!
//! A server with several logs prepares all of them, and only then takes any: a start that is refused
//! because of one log leaves the owners of the others alone.

use crate::bucket::Bucket;
use crate::cache::BlockCache;
use crate::cache::disk::{CacheDir, DiskCache};
use crate::catalog::CatalogVersions;
use crate::disk::{ObjectDisk, ObjectDiskOptions};
use crate::listing::Listing;
use crate::numbered;
use crate::owner::{self, Owner};
use crate::rehearsal::Rehearsal;
use crate::view::BucketView;
use crate::{manifest, names, rules, selftest};
use nuthatch_log::env::{Disk, OverlayDisk, SeededEntropy, SystemClock};
use nuthatch_log::{
    CatalogError, Chain, Entropy, Log, LogOptions, Machine, OpenError, RecoveryReport,
};
use std::io;
use std::sync::Arc;

/// A log whose owner is at work may change while it is looked at. What was found wrong counts when
/// two looks in a row show the same objects; after so many looks it counts all the same.
const LOOKS_MAX: usize = 32;

/// A log in a bucket, looked at and not taken. Nothing of the log was changed, no fence was made,
/// and another server that owns it does not notice.
pub struct PreparedDisk {
    bucket: Arc<Bucket>,
    options: ObjectDiskOptions,
    entropy: SeededEntropy,
    cache: Cache,
    /// `None`: no log was ever there.
    view: Option<Arc<BucketView>>,
}

/// Cache that readers of the log will share.
enum Cache {
    /// Of a log that is there: what was read before the log is taken need not be fetched again.
    Ready(Arc<BlockCache>),
    /// Of a bucket without a log, whose blocks cannot be told from those of another yet.
    Unscoped(Option<CacheDir>),
}

impl ObjectDisk {
    /// Looks at everything in `bucket` that needs no ownership: whether the store answers and has
    /// what a log needs (tried out under `selftest/`, which is removed again), whether the bucket is
    /// a tier, whether this program can read the fences, the newest catalog and the manifests,
    /// whether every segment of the chain has objects; and takes the directory of the disk cache.
    ///
    /// # Errors
    /// The store cannot be used ([`crate::SelfTestError`] inside) or fails; `InvalidData` if what
    /// describes the log is damaged or of a later version; `WouldBlock` if another server uses the
    /// directory of the disk cache.
    pub fn prepare(bucket: Arc<Bucket>, options: ObjectDiskOptions) -> io::Result<PreparedDisk> {
        let mut entropy = SeededEntropy::new(options.seed);
        selftest::run(&bucket, nonce(&mut entropy)).map_err(io::Error::other)?;
        crate::tier::refuse_tier(&bucket)?;
        numbered::report_strangers(&bucket)?;
        let dir = options.disk_cache.clone().map(CacheDir::lock).transpose()?;
        let Some(first) = owner::fences(&bucket)?.first().copied() else {
            let cache = Cache::Unscoped(dir);
            return Ok(PreparedDisk { bucket, options, entropy, cache, view: None });
        };
        let cache = block_cache(&bucket, dir, first, options.cache_bytes)?;
        if !rules::ASKED_BEFORE_FENCE.holds() {
            let cache = Cache::Ready(cache);
            return Ok(PreparedDisk { bucket, options, entropy, cache, view: None });
        }
        let view = Some(look(&bucket, &cache)?);
        let mut prepared =
            PreparedDisk { bucket, options, entropy, cache: Cache::Ready(cache), view };
        prepared.ask(|view| check_chain(&**view))?;
        Ok(prepared)
    }
}

impl PreparedDisk {
    /// The bucket, for its counters.
    #[must_use]
    pub const fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// True if a log was there when this looked.
    #[must_use]
    pub const fn has_log(&self) -> bool {
        self.view.is_some()
    }

    /// Identity of the log that was there when this looked; none: no log was ever there.
    ///
    /// # Errors
    /// What names the log is damaged or of a later version, or the store's.
    pub fn identity(&self) -> io::Result<Option<u64>> {
        let Some(view) = &self.view else { return Ok(None) };
        let chain = Chain::read(&**view).map_err(|error| match error {
            CatalogError::Io(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })?;
        Ok(chain.map(|chain| chain.log_id))
    }

    /// As [`PreparedDisk::rehearse_with`], without what runs on the log: what is in records and
    /// snapshots is not looked at.
    ///
    /// # Errors
    /// As [`PreparedDisk::rehearse_with`].
    pub fn rehearse(&mut self, options: &LogOptions) -> Result<Option<RecoveryReport>, OpenError> {
        self.rehearse_with(options, || Rehearsal)
    }

    /// Recovers the log in memory as [`Log::open`] would, into a machine that is made for that and
    /// sends nothing to anybody, and throws the outcome away: whether this version can read the log,
    /// and whether it is whole. What is read stays in the cache for the opening itself. `None`: there
    /// is no log yet.
    ///
    /// # Errors
    /// What opening the log would be refused with.
    pub fn rehearse_with<M: Machine>(
        &mut self,
        options: &LogOptions,
        machine: impl Fn() -> M,
    ) -> Result<Option<RecoveryReport>, OpenError> {
        let quiet = LogOptions { report: nuthatch_log::Reporter::default(), ..options.clone() };
        self.ask(|view| {
            let below = Arc::clone(view) as Arc<dyn Disk>;
            let disk = Arc::new(OverlayDisk::new(below));
            let entropy = Box::new(SeededEntropy::new(0));
            let clock = Arc::new(SystemClock::default());
            let opened = Log::open(quiet.clone(), disk, clock, entropy, machine());
            opened.map(|(_, report)| report)
        })
    }

    /// Becomes the owner of the log, which ends any other, and reads what is there.
    ///
    /// # Errors
    /// The store's; `InvalidData` if what describes the log has been damaged since
    /// [`ObjectDisk::prepare`]. The fence stays then, and a note that its owner has left.
    pub fn take(self) -> io::Result<ObjectDisk> {
        let Self { bucket, options, mut entropy, cache, view: _ } = self;
        let used = CatalogVersions::newest_epoch(&bucket)?;
        let early = if rules::FENCE_BEFORE_LISTING.holds() {
            None
        } else {
            Some(Listing::of(&bucket, u32::MAX)?)
        };
        let taken = Owner::take(Arc::clone(&bucket), &options.who, nonce(&mut entropy), used);
        let owner = Arc::new(taken?);
        let opened = cache.ready(&bucket, options.cache_bytes).and_then(|cache| {
            ObjectDisk::open_as(Arc::clone(&owner), options, cache, entropy.next(), early)
        });
        if opened.is_err() {
            owner.leave();
        }
        opened
    }

    /// Asks something of the log as it is. While an owner is at work its objects come and go between
    /// two requests, so a refusal counts when the objects were the same before and after.
    fn ask<T, E>(
        &mut self,
        question: impl Fn(&Arc<BucketView>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let (Some(mut view), Cache::Ready(cache)) = (self.view.clone(), &self.cache) else {
            return Ok(None);
        };
        let mut looks = 1;
        loop {
            let error = match question(&view) {
                Ok(answer) => {
                    self.view = Some(view);
                    return Ok(Some(answer));
                }
                Err(error) => error,
            };
            match look(&self.bucket, cache) {
                Ok(again) if looks < LOOKS_MAX && !again.shows_the_same_as(&view) => view = again,
                // Without another look the first one counts.
                Ok(_) | Err(_) => return Err(error),
            }
            looks += 1;
        }
    }
}

impl Cache {
    /// The cache for a log that this process owns.
    fn ready(self, bucket: &Arc<Bucket>, cache_bytes: usize) -> io::Result<Arc<BlockCache>> {
        match self {
            Self::Ready(cache) => Ok(cache),
            Self::Unscoped(dir) => {
                let fences = owner::fences(bucket)?;
                let first = fences.first().copied().ok_or_else(|| {
                    let text = format!("the fence just made is not shown by {}", bucket.label());
                    io::Error::other(text)
                })?;
                block_cache(bucket, dir, first, cache_bytes)
            }
        }
    }
}

/// A cache of a bucket's log: on the disk, blocks are known by the first fence that is there, which
/// is different after the bucket was emptied.
fn block_cache(
    bucket: &Arc<Bucket>,
    dir: Option<CacheDir>,
    first_fence: u32,
    cache_bytes: usize,
) -> io::Result<Arc<BlockCache>> {
    let on_disk = match dir {
        None => None,
        Some(dir) => {
            let fence = bucket.get(&names::fence(first_fence))?;
            let scope = format!("{} {:08x}", bucket.label(), manifest::crc(&fence));
            Some(DiskCache::start(dir, scope, bucket.reporter())?)
        }
    };
    Ok(Arc::new(BlockCache::new(Arc::clone(bucket), cache_bytes, on_disk)))
}

/// The log as it is now. What its owner removes between a listing and a request is looked for again.
fn look(bucket: &Arc<Bucket>, cache: &Arc<BlockCache>) -> io::Result<Arc<BucketView>> {
    let mut looks = 1;
    loop {
        match BucketView::sharing(Arc::clone(bucket), Arc::clone(cache)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && looks < LOOKS_MAX => {
                looks += 1
            }
            view => return view.map(Arc::new),
        }
    }
}

/// Whether the catalog's content is one that this program reads, and every segment in it is there.
fn check_chain(disk: &dyn Disk) -> io::Result<()> {
    let invalid = |text: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the log in {}: {text}", disk.label()))
    };
    let chain = Chain::read(disk).map_err(|error| match error {
        CatalogError::Io(error) => error,
        error => invalid(error.to_string()),
    })?;
    let there = disk.list("")?;
    match chain.iter().flat_map(|chain| &chain.files).find(|file| !there.contains(file)) {
        None => Ok(()),
        Some(missing) => Err(invalid(format!("segment {missing} is missing"))),
    }
}

fn nonce(entropy: &mut SeededEntropy) -> u128 {
    u128::from(entropy.next()) << 64 | u128::from(entropy.next())
}
