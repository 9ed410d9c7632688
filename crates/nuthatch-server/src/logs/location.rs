//! Locations of a server's logs, for monitoring.

use crate::options::SyncPolicy;
use nuthatch_object::{CacheSnapshot, ObjectDisk, TierStatus, TieredDisk};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Where a log in a directory puts what it cannot use: `docs/format.md`.
const TORN_DIR: &str = "torn";

/// Location of a log. Keeps nothing open.
pub struct LogLocation {
    /// Its name.
    pub name: String,
    /// `local`, `object` or `quorum`.
    pub mode: &'static str,
    /// Its directory, or its address.
    pub home: String,
    /// When its data is made durable; for a bucket always.
    pub sync: SyncPolicy,
    dir: Option<PathBuf>,
    tier: Option<Weak<TieredDisk>>,
    bucket: Option<Weak<ObjectDisk>>,
}

impl LogLocation {
    /// A log in a directory.
    pub fn local(name: &str, dir: &Path, sync: SyncPolicy) -> Self {
        let (name, home) = (name.to_owned(), dir.display().to_string());
        let dir = Some(dir.to_owned());
        Self { name, mode: "local", home, sync, dir, tier: None, bucket: None }
    }

    /// A log in a directory with a bucket behind it.
    pub fn tiered(name: &str, dir: &Path, sync: SyncPolicy, disk: &Arc<TieredDisk>) -> Self {
        Self { tier: Some(Arc::downgrade(disk)), ..Self::local(name, dir, sync) }
    }

    /// A log in a bucket.
    pub fn object(name: &str, disk: &Arc<ObjectDisk>) -> Self {
        let (name, home) = (name.to_owned(), disk.bucket().label().to_owned());
        let (sync, bucket) = (SyncPolicy::Always, Some(Arc::downgrade(disk)));
        Self { name, mode: "object", home, sync, dir: None, tier: None, bucket }
    }

    /// A log on a majority of the nodes of a cluster, perhaps with a bucket behind it.
    pub fn quorum(name: &str, home: String, tier: Option<&Arc<TieredDisk>>) -> Self {
        let (name, sync, tier) = (name.to_owned(), SyncPolicy::Always, tier.map(Arc::downgrade));
        Self { name, mode: "quorum", home, sync, dir: None, tier, bucket: None }
    }

    /// Its name and where it puts files that it cannot use; `None` for a log in a bucket.
    pub fn set_aside(&self) -> Option<(String, PathBuf)> {
        Some((self.name.clone(), self.dir.as_ref()?.join(TORN_DIR)))
    }

    /// Contents of its tier and progress of moves.
    pub fn tier(&self) -> Option<TierStatus> {
        Some(self.tier.as_ref()?.upgrade()?.status())
    }

    /// The cache before its bucket.
    pub fn cache(&self) -> Option<CacheSnapshot> {
        let tier = self.tier.as_ref().and_then(Weak::upgrade);
        let bucket = self.bucket.as_ref().and_then(Weak::upgrade);
        tier.map(|disk| disk.cache()).or_else(|| bucket.map(|disk| disk.cache()))
    }
}
