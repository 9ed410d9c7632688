//! The logs in a directory.

use nuthatch_log::OwnableDisk;
use nuthatch_log::env::ReadOnlyDisk;
use nuthatch_object::{
    Bucket, BucketOptions, BucketView, MovedAway, TierView, moved_away, open_url,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Below a store directory, our logs are here.
const OUR_DIRECTORY: &str = "nuthatch";

/// A log's directory, and what was typed for it.
#[derive(Clone, Debug)]
pub struct LogLocation {
    /// The directory with its catalog.
    pub dir: PathBuf,
    /// The directory that was named.
    pub named: PathBuf,
}

/// The logs in a directory: itself, those of a store directory, or those of `DIR/nuthatch`.
///
/// # Errors
/// It cannot be read, or there is no log in it.
pub fn logs_under(dir: &Path) -> io::Result<Vec<LogLocation>> {
    let mut found = Vec::new();
    if is_log(dir)? {
        found.push(dir.to_owned());
    } else {
        for parent in [dir.to_owned(), dir.join(OUR_DIRECTORY)] {
            found.extend(logs_in(&parent)?);
        }
    }
    if found.is_empty() {
        let what = "there is no log: give the server's store directory (its -sd), or a directory \
                    with a catalog and segments";
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    found.sort();
    Ok(found.into_iter().map(|found| LogLocation { dir: found, named: dir.to_owned() }).collect())
}

fn logs_in(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut logs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && is_log(&path)? {
            logs.push(path);
        }
    }
    Ok(logs)
}

/// The entries of a directory; errors say of which.
fn read_dir(dir: &Path) -> io::Result<std::fs::ReadDir> {
    std::fs::read_dir(dir).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot list {}: {error}", dir.display()))
    })
}

fn is_log(dir: &Path) -> io::Result<bool> {
    for entry in read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // The directory of this name beside a keeper is the catalog of all quorum logs.
        if (name == "catalog" && !entry.path().is_dir()) || name.ends_with(".seg") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How long a bucket's failures are retried while a command runs.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// The name of the log that a server has without being told to.
pub const DEFAULT_LOG: &str = "default";

/// The bucket of the log `name` at `address`; asks it for nothing.
///
/// # Errors
/// The address, or that its directory is not there.
pub fn bucket(address: &str, name: &str) -> io::Result<Arc<Bucket>> {
    // Looking makes no directories.
    if address.strip_prefix("file://").is_some_and(|path| !Path::new(path).is_dir()) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such directory"));
    }
    let options = BucketOptions { retry_for: RETRY_FOR, ..BucketOptions::default() };
    open_url(address, name, options).map(Arc::new).map_err(io::Error::other)
}

/// The log `name` in the bucket at `address`, for looking only.
///
/// # Errors
/// The address, the store's, or that there is no log.
pub fn in_bucket(address: &str, name: &str) -> io::Result<BucketView> {
    BucketView::open(bucket(address, name)?)
}

/// A log's directory for looking only, with what was moved from it, which is in the bucket that the
/// directory names.
///
/// # Errors
/// The directory cannot be read, nor the note of what was moved; the address of the bucket makes no
/// sense.
pub fn in_directory(dir: &Path) -> io::Result<(Arc<dyn OwnableDisk>, Option<MovedAway>)> {
    let local: Arc<dyn OwnableDisk> = Arc::new(ReadOnlyDisk::open(dir)?);
    // Without the note what was moved would pass for missing, and be given up.
    let Some(moved) = moved_away(&*local)? else { return Ok((local, None)) };
    let (address, name) = moved.place.rsplit_once('/').unwrap_or((&moved.place, ""));
    let bucket = bucket(address, name)?;
    // What does not answer is not to pass for damage.
    bucket.exists("tier")?;
    let view = TierView::open(local, bucket)?;
    Ok((Arc::new(view), Some(moved)))
}
