//! A log's files in a bucket, looked at without becoming their owner: nothing is written, no fence is
//! made, and a server that has the log open does not notice.

use crate::bucket::Bucket;
use crate::catalog::CatalogVersions;
use crate::disk::{REMOTE_READERS, Shared, load_files};
use crate::extents::{Extents, Piece, Source};
use crate::file::ObjectFile;
use crate::names::{FENCES, fence_generation};
use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile, WriteMode};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The catalog's path, as the log knows it.
const CATALOG_PATH: &str = "catalog";

/// Bytes of objects kept in memory while they are looked at.
const CACHE_BYTES: usize = 32 << 20;

/// The files of a log in a bucket, as they were when this was opened.
pub struct BucketView {
    shared: Arc<Shared>,
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
        let fences = bucket.list(FENCES)?;
        let newest = fences.iter().filter_map(|listed| fence_generation(&listed.key)).max();
        let Some(newest) = newest else {
            let text = format!("there is no log in {}", bucket.label());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let catalog = CatalogVersions::peek(&bucket)?;
        let shared = Arc::new(Shared::onlooker(bucket, newest, CACHE_BYTES));
        let files = load_files(&shared)?;
        Ok(Self { shared, catalog, files })
    }

    /// Generation of the newest owner.
    #[must_use]
    pub fn newest_owner(&self) -> u32 {
        self.shared.generation()
    }

    /// The bucket, for its counters.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.shared.bucket
    }
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

    /// Looking excludes nobody.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn write_mode(&self) -> WriteMode {
        WriteMode::Object
    }

    fn label(&self) -> String {
        self.shared.bucket.label().to_owned()
    }

    fn remote_readers(&self) -> usize {
        REMOTE_READERS
    }
}
