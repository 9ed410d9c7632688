//! A local log with a bucket behind it: sealed segments move there when they are old enough or the
//! local disk holds enough, and are read from there as if they had stayed.
//!
//! [`TieredDisk`] is a [`nuthatch_log::Disk`] over another one. The log does not know where a segment
//! is: a file that was moved while it is open goes on under the same handle.
//!
//! Keys, below the log's prefix:
//!
//! ```text
//! tier                            whose segments these are; made once, never removed
//! fence/{gen}                     made once by each server that moves; never removed
//! data/{segment}/{offset}.{gen}   bytes of a segment from an offset on
//! ```
//!
//! The steps of a move, of which each is safe to die after: noted on the local disk that it begins
//! ([`note`]); uploaded under keys of this server's epoch; read back and compared; still the
//! owner of the tier; noted as moved; removed from the local disk. Only the note says that a segment
//! is gone from here, and it is written when the bucket has been seen to hold all of it.

mod aside;
mod cold;
mod disk;
mod file;
mod mover;
mod note;
mod stub;
mod view;

pub use disk::{LocalDisk, TierOptions, TierStatus, TieredDisk};
pub use mover::Step;
pub use view::{MovedAway, TierView, moved_away};

use crate::bucket::{Bucket, BucketError};
use crate::catalog;
use crate::manifest::LATER_VERSION;
use crate::rules;
use bytes::Bytes;
use std::io;

/// Key of the object that says whose segments these are.
const IDENTITY: &str = "tier";

/// First line of that object.
const IDENTITY_HEAD: &str = "nuthatch tier 1";

/// Start of that line, whatever the version.
const IDENTITY_NAME: &str = "nuthatch tier ";

/// Owner of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TierOwner {
    /// No log yet.
    Nobody,
    /// The log of this identity.
    Log(u64),
}

/// Asks a bucket whose tier it is.
fn tenant(bucket: &Bucket) -> io::Result<TierOwner> {
    let body = match bucket.get(IDENTITY) {
        Ok(body) => body,
        Err(BucketError::NotFound { .. }) => {
            if catalog::numbers(bucket)?.is_empty() {
                return Ok(TierOwner::Nobody);
            }
            let text = format!("{} is the home of a log: give the tier its own", bucket.label());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&body);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let id = (head == IDENTITY_HEAD).then(|| lines.next()).flatten();
    let id = id.and_then(|line| u64::from_str_radix(line.strip_prefix("log ")?, 16).ok());
    id.map(TierOwner::Log).ok_or_else(|| {
        let is_later = head != IDENTITY_HEAD && head.starts_with(IDENTITY_NAME);
        let what = if is_later { LATER_VERSION } else { "it makes no sense" };
        let text = format!("{IDENTITY} in {} cannot be used: {what}", bucket.label());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Fails if the tier is another log's.
fn check_tenant(bucket: &Bucket, log_id: Option<u64>) -> io::Result<TierOwner> {
    let tenant = tenant(bucket)?;
    match tenant {
        TierOwner::Log(owner) if log_id != Some(owner) && rules::ONE_LOG.holds() => {
            let text = format!(
                "{} holds the segments of another log ({owner:016x}): give this one a bucket or a \
                 prefix of its own",
                bucket.label()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        tenant => Ok(tenant),
    }
}

/// Says whose segments these are, for good. `nonce` must be unique.
fn settle(bucket: &Bucket, log_id: u64, who: &str, nonce: u128) -> io::Result<()> {
    let body = format!("{IDENTITY_HEAD}\nlog {log_id:016x}\nfirst {nonce:032x} {who}\n");
    match bucket.create(IDENTITY, &Bytes::from(body)) {
        Ok(()) => Ok(()),
        Err(BucketError::Exists { .. }) => check_tenant(bucket, Some(log_id)).map(drop),
        Err(error) => Err(error.into()),
    }
}

/// Fails if a bucket is the tier of a log: another log cannot live in it.
///
/// # Errors
/// `InvalidInput`, and the store's.
pub fn refuse_tier(bucket: &Bucket) -> io::Result<()> {
    if !bucket.exists(IDENTITY)? {
        return Ok(());
    }
    let text = format!(
        "{} holds segments that a local log has moved there: a log cannot live in it",
        bucket.label()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
