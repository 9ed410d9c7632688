//! What the files of a log in a bucket have in common: the bucket, the cache, and whether this process
//! owns the log.

use crate::bucket::Bucket;
use crate::cache::BlockCache;
use crate::owner::Owner;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads of a log's files that may be under way at a time.
pub const REMOTE_READERS: usize = 4;

/// Called once, with the reason, when another server has become the owner.
pub type OnFenced = Arc<dyn Fn(&str) + Send + Sync>;

/// State shared by the files of a log.
pub struct LogShared {
    pub bucket: Arc<Bucket>,
    pub cache: Arc<BlockCache>,
    pub part_bytes: usize,
    role: Role,
    on_fenced: OnFenced,
    told: AtomicBool,
}

/// Role of this process for the log.
enum Role {
    Owner(Arc<Owner>),
    /// Reads what owners up to this epoch left.
    ReadOnly(u32),
}

impl LogShared {
    /// For the owner.
    pub fn owned(
        cache: Arc<BlockCache>,
        owner: Arc<Owner>,
        part_bytes: usize,
        on_fenced: OnFenced,
    ) -> Self {
        let (bucket, role) = (Arc::clone(cache.bucket()), Role::Owner(owner));
        Self { bucket, cache, part_bytes, role, on_fenced, told: AtomicBool::new(false) }
    }

    /// For reading only.
    pub fn read_only(cache: Arc<BlockCache>, newest: u32) -> Self {
        let bucket = Arc::clone(cache.bucket());
        let (on_fenced, told): (OnFenced, _) = (Arc::new(|_| {}), AtomicBool::new(false));
        Self { bucket, cache, part_bytes: 1, role: Role::ReadOnly(newest), on_fenced, told }
    }

    /// For the owner that repairs the log.
    pub fn repairer(cache: Arc<BlockCache>, owner: Arc<Owner>) -> Self {
        Self { role: Role::Owner(owner), ..Self::read_only(cache, 0) }
    }

    pub fn epoch(&self) -> u32 {
        match &self.role {
            Role::Owner(owner) => owner.epoch(),
            Role::ReadOnly(newest) => *newest,
        }
    }

    /// The owner, where this process is it.
    pub fn owner(&self) -> io::Result<&Arc<Owner>> {
        match &self.role {
            Role::Owner(owner) => Ok(owner),
            Role::ReadOnly(_) => Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the bucket was opened for reading only",
            )),
        }
    }

    /// Notes that the owner writes nothing any more.
    pub fn leave(&self) {
        if let Role::Owner(owner) = &self.role {
            owner.leave();
        }
    }

    /// Fails if this server is known to be no longer the owner.
    pub fn usable(&self) -> io::Result<()> {
        if self.owner()?.is_fenced() { self.check_owner() } else { Ok(()) }
    }

    /// The key under which a later owner's fence would be, where not finding it is all that
    /// [`LogShared::check_owner`] asks for.
    pub fn next_fence(&self) -> io::Result<Option<String>> {
        let owner = self.owner()?;
        Ok((!owner.is_in_directory()).then(|| owner.next_fence()))
    }

    /// Takes in what a look for [`LogShared::next_fence`] has shown.
    pub fn note_look(&self, found: bool) {
        if let Role::Owner(owner) = &self.role {
            owner.note_look(found);
        }
    }

    /// Fails if this server is no longer the owner; says so once.
    pub fn check_owner(&self) -> io::Result<()> {
        let owner = self.owner()?;
        let checked = owner.check();
        if let Err(error) = &checked
            && owner.is_fenced()
            && !self.told.swap(true, Ordering::AcqRel)
        {
            (self.on_fenced)(&error.to_string());
        }
        checked
    }
}
