//! A log's files in a bucket, looked at without becoming their owner: nothing is written, no fence is
//! made, and a server that has the log open does not notice.

use crate::bucket::Bucket;
use crate::cache::BlockCache;
use crate::catalog::CatalogVersions;
use crate::extents::{Extents, Piece, Source};
use crate::file::ObjectFile;
use crate::listing::load_files;
use crate::owner;
use crate::shared::{LogShared, REMOTE_READERS};
use crate::survey::{self, Survey};
use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile, Medium, Onlooker, Ownership, Tenure};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The catalog's path, as the log knows it.
const CATALOG_PATH: &str = "catalog";

/// Bytes of objects kept in memory while they are looked at.
const CACHE_BYTES: usize = 32 << 20;

/// The files of a log in a bucket, as they were when this was opened.
pub struct BucketView {
    shared: Arc<LogShared>,
    catalog: Option<Bytes>,
    files: BTreeMap<String, Arc<ObjectFile>>,
}

impl BucketView {
    /// Reads what there is.
    ///
    /// # Errors
    /// The store's; `NotFound` if no log was ever there; `InvalidData` if what describes the log is
    /// damaged.
    pub fn open(bucket: Arc<Bucket>) -> io::Result<Self> {
        let cache = cache(&bucket);
        Self::sharing(bucket, cache)
    }

    /// As [`BucketView::open`], reading through a cache that others use as well.
    pub(crate) fn sharing(bucket: Arc<Bucket>, cache: Arc<BlockCache>) -> io::Result<Self> {
        let newest = owner::fences(&bucket)?.last().copied().ok_or_else(|| no_log(&bucket))?;
        let catalog = CatalogVersions::peek(&bucket)?;
        let shared = Arc::new(LogShared::read_only(cache, newest));
        let files = load_files(&shared)?;
        Ok(Self { shared, catalog, files })
    }

    /// True if two looks at one log found the same catalog and the same objects.
    pub(crate) fn shows_the_same_as(&self, other: &Self) -> bool {
        let objects = |view: &Self| -> Vec<Vec<String>> {
            view.files.values().map(|file| file.objects()).collect()
        };
        self.catalog == other.catalog
            && self.files.keys().eq(other.files.keys())
            && objects(self) == objects(other)
    }

    /// As [`BucketView::open`] of what may be damaged, with what is wrong with its objects. What
    /// describes the log and cannot be read is made up for as well as can be.
    ///
    /// # Errors
    /// The store's; `NotFound` if no log was ever there; `InvalidData` if something is of a later
    /// version.
    pub fn survey(bucket: Arc<Bucket>) -> io::Result<(Self, Survey)> {
        let newest = survey::newest_epoch(&bucket)?.ok_or_else(|| no_log(&bucket))?;
        let shared = Arc::new(LogShared::read_only(cache(&bucket), newest));
        Self::survey_as(&shared)
    }

    /// As [`BucketView::survey`], in a role that was taken before.
    pub(crate) fn survey_as(shared: &Arc<LogShared>) -> io::Result<(Self, Survey)> {
        let (files, survey) = survey::look(shared)?;
        let (shared, catalog) = (Arc::clone(shared), survey.catalog.clone());
        Ok((Self { shared, catalog, files }, survey))
    }

    /// Keys of the objects of a file; none if there is no such file.
    pub(crate) fn objects_of(&self, path: &str) -> Vec<String> {
        self.files.get(path).map_or_else(Vec::new, |file| file.objects())
    }

    /// Epoch of the newest owner.
    #[must_use]
    pub fn newest_owner(&self) -> u32 {
        self.shared.epoch()
    }

    /// The bucket, for its counters.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.shared.bucket
    }
}

/// A cache for looking only.
pub(crate) fn cache(bucket: &Arc<Bucket>) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(Arc::clone(bucket), CACHE_BYTES, None))
}

fn no_log(bucket: &Bucket) -> io::Error {
    let text = format!("there is no log in {}", bucket.label());
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the bucket was opened for reading only")
}

impl Disk for BucketView {
    fn create(&self, _path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(refused())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if path == CATALOG_PATH {
            let body = self.catalog.clone().ok_or(io::ErrorKind::NotFound)?;
            let len = body.len() as u64;
            let extents = Extents::of([(0, Piece { len, source: Source::Memory(body) })], len);
            let shared = Arc::clone(&self.shared);
            return Ok(Arc::new(ObjectFile::stored(shared, None, extents, BTreeMap::new())));
        }
        Ok(Arc::clone(self.files.get(path).ok_or(io::ErrorKind::NotFound)?) as Arc<dyn DiskFile>)
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        Err(refused())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let in_dir = |path: &String| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent == dir).then(|| name.to_owned())
        };
        let mut names: Vec<String> = self.files.keys().filter_map(in_dir).collect();
        if dir.is_empty() && self.catalog.is_some() {
            names.push(CATALOG_PATH.to_owned());
            names.sort();
        }
        Ok(names)
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn medium(&self) -> Medium {
        Medium::bucket(REMOTE_READERS)
    }

    fn label(&self) -> String {
        self.shared.bucket.label().to_owned()
    }
}

impl Ownership for BucketView {
    /// Reading takes no lock.
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        Ok(Some(Box::new(Onlooker)))
    }
}
