//! Ownership of a log. Each owner has an epoch, taken by creating the fence object of that
//! number; an owner is over as soon as the next number exists. Whoever wants to acknowledge
//! something first stores it and *then* looks for the next fence: a later owner lists what is
//! stored only after making its fence, so it either sees what was stored, or was seen.
//!
//! Fences are never removed: a key that was removed could be created again, by an owner that slept.

use crate::bucket::{Bucket, BucketError};
use crate::names::{FENCES, fence, fence_key, left};
use crate::numbered::numbered;
use crate::rules;
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An owner that writes nothing looks this often whether it has been replaced, in milliseconds.
pub const OWNER_CHECK_MS: u64 = 5_000;

/// Another server has become the owner.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "another server has taken over the log in {place} (epoch {by}, ours was {ours}): {who}; \
     this one acknowledges nothing any more"
)]
pub struct Fenced {
    /// The log's place.
    pub place: String,
    /// Epoch of this server.
    pub ours: u32,
    /// Epoch of the other.
    pub by: u32,
    /// How the other names itself.
    pub who: String,
}

impl From<Fenced> for io::Error {
    fn from(fenced: Fenced) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, fenced)
    }
}

/// Scheme of addresses of directories.
const DIRECTORY: &str = "file:";

/// The epochs whose fences are there, ascending.
///
/// # Errors
/// Those of [`numbered`].
pub fn fences(bucket: &Bucket) -> io::Result<Vec<u32>> {
    Ok(numbered(bucket, FENCES, "fence", fence_key)?.0)
}

/// How the owner of an epoch named itself; `None` if its fence is not there.
///
/// # Errors
/// [`BucketError`].
pub fn name_of(bucket: &Bucket, epoch: u32) -> Result<Option<String>, BucketError> {
    match bucket.get(&fence(epoch)) {
        Ok(body) => Ok(Some(who_of(&body))),
        Err(BucketError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn who_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.split_once(' ').map_or("unknown", |(_, who)| who.trim()).to_owned()
}

/// An epoch that this process has taken.
pub struct Owner {
    bucket: Arc<Bucket>,
    epoch: u32,
    fenced: AtomicBool,
    /// When it was last looked, by the bucket's clock.
    checked: Mutex<Duration>,
}

impl Owner {
    /// Becomes the owner: ends whoever was. `who` is for people; `nonce` must be unique. The
    /// epoch is above `used`, whatever fences there are: should somebody have removed them, what
    /// was written under earlier epochs must not be met again.
    ///
    /// # Errors
    /// Those of [`fences`].
    pub fn take(bucket: Arc<Bucket>, who: &str, nonce: u128, used: u32) -> io::Result<Self> {
        let newest = fences(&bucket)?.last().copied().unwrap_or(0);
        let used = if rules::EPOCH_ABOVE_CATALOG.holds() { used } else { 0 };
        let mut epoch = newest.max(used) + 1;
        loop {
            let body = Bytes::from(format!("{nonce:032x} {who}\n"));
            let made = if rules::FENCE_CREATED.holds() {
                bucket.create(&fence(epoch), &body)
            } else {
                bucket.put(&fence(epoch), body.into())
            };
            match made {
                Ok(()) => break,
                // Another was faster: it is the one to be replaced.
                Err(BucketError::Exists { .. }) => epoch += 1,
                Err(error) => return Err(error.into()),
            }
        }
        let (fenced, checked) = (AtomicBool::new(false), Mutex::new(bucket.monotonic()));
        Ok(Self { bucket, epoch, fenced, checked })
    }

    /// Notes that the log is closed and that this owner writes nothing any more. Only people rely on
    /// it, so it is tried once, and a failure does no harm.
    pub fn leave(&self) {
        if !self.is_fenced() {
            let _ = self.bucket.create_once(&left(self.epoch), Bytes::from_static(b"left\n"));
        }
    }

    /// The epoch taken.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Fails if another has become the owner. What was stored before a call that succeeds is seen
    /// by every later owner.
    ///
    /// # Errors
    /// [`Fenced`], and the store's errors: then nothing is known.
    pub fn check(&self) -> io::Result<()> {
        let next = self.next_fence();
        self.check_place()?;
        if !self.is_fenced() {
            self.note_look(self.bucket.exists(&next)?);
        }
        if self.is_fenced() { Err(self.describe(&next).into()) } else { Ok(()) }
    }

    /// The key under which a later owner's fence would be.
    #[must_use]
    pub fn next_fence(&self) -> String {
        fence(self.epoch + 1)
    }

    /// Takes in what a look for [`Owner::next_fence`] has shown.
    pub fn note_look(&self, found: bool) {
        if found && rules::LOOK_BEFORE_ACK.holds() {
            self.fenced.store(true, Ordering::Release);
        } else {
            *self.checked.lock() = self.bucket.monotonic();
        }
    }

    /// A directory that is not mounted any more is another, empty one: what is stored there would be
    /// acknowledged and gone once it is mounted again. Buckets do not do that, and there the question
    /// would cost a request.
    fn check_place(&self) -> io::Result<()> {
        if !rules::OWN_FENCE.holds()
            || !self.is_in_directory()
            || self.bucket.exists(&fence(self.epoch))?
        {
            return Ok(());
        }
        let place = self.bucket.label();
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the fence of this server has vanished from {place}: is it still mounted?"),
        ))
    }

    /// True if [`Owner::check`] has more to look for than [`Owner::next_fence`].
    #[must_use]
    pub fn is_in_directory(&self) -> bool {
        self.bucket.label().starts_with(DIRECTORY)
    }

    fn describe(&self, next: &str) -> Fenced {
        let body = self.bucket.get(next).unwrap_or_default();
        let who = who_of(&body);
        let place = self.bucket.label().to_owned();
        Fenced { place, ours: self.epoch, by: self.epoch + 1, who }
    }

    /// True if a check has failed because there is another owner. Costs one load.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// True if the last successful check is so long ago that an idle owner should look again.
    #[must_use]
    pub fn is_check_due(&self) -> bool {
        let since = self.bucket.monotonic().saturating_sub(*self.checked.lock());
        since >= Duration::from_millis(OWNER_CHECK_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketOptions, ObjectDisk, ObjectDiskOptions, open_url};
    use nuthatch_log::Epoch;
    use nuthatch_log::env::{Disk, Ownership};
    use object_store::memory::InMemory;
    use object_store::path::Path;

    fn open(bucket: &Arc<Bucket>) -> ObjectDisk {
        ObjectDisk::open(Arc::clone(bucket), ObjectDiskOptions::default()).expect("opens")
    }

    #[test]
    fn no_epoch_comes_twice_though_fences_were_removed() {
        let store = Arc::new(InMemory::new());
        let options = BucketOptions::default();
        let bucket = Bucket::new(store, Path::from("log"), "memory".to_owned(), options);
        let bucket = Arc::new(bucket.expect("threads"));
        let owners = [open(&bucket), open(&bucket), open(&bucket)];
        let fences = bucket.list(FENCES).expect("lists");
        let keys = fences.into_iter().map(|fence| fence.key).collect();
        bucket.delete_all(keys).expect("removed");
        let tenure = open(&bucket).take().expect("asked").expect("free");
        assert_eq!(tenure.epoch(), Some(Epoch(4)));
        assert!(owners[2].check().is_err());
    }

    #[test]
    fn nothing_is_acknowledged_in_a_directory_that_is_another_one_by_now() {
        let dir = std::env::temp_dir().join(format!("nuthatch-unmounted-{}", std::process::id()));
        let (mounted, away) = (dir.join("mounted"), dir.join("away"));
        std::fs::create_dir_all(&mounted).expect("a directory");
        let address = format!("file://{}", mounted.display());
        let options = BucketOptions::default();
        let bucket = Arc::new(open_url(&address, "log", options).expect("a bucket"));
        let disk = open(&bucket);
        let file = disk.create("x.seg").expect("creates");
        file.write_at(b"one", 0).expect("writes");
        file.sync().expect("stored");
        std::fs::rename(&mounted, &away).expect("moves");
        std::fs::create_dir(&mounted).expect("a directory");
        file.write_at(b"two", 3).expect("writes");
        let error = file.sync().expect_err("nobody may hear of it");
        assert!(error.to_string().contains("still mounted"), "{error}");
        std::fs::remove_dir_all(&mounted).expect("goes");
        std::fs::rename(&away, &mounted).expect("moves");
        file.sync().expect("it is back");
        std::fs::remove_dir_all(&dir).expect("goes");
    }
}
