//! Self-test of a store when it is opened: a store that lacks one of these guarantees would lose
//! acknowledged messages without a word, so it is refused.

use crate::bucket::{Bucket, BucketError};
use bytes::Bytes;

/// A store that a log cannot be kept in.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// Creating an object that exists already succeeded, or replaced it.
    #[error(
        "{place} does not support conditional creation (If-None-Match): two servers could write \
         the same log; use a store that does (S3, GCS, Azure, MinIO, Ceph of 2024 or later)"
    )]
    NoConditionalCreate {
        /// The store.
        place: String,
    },
    /// A written object could not be read at once.
    #[error("{place} does not show an object right after it was written ({operation})")]
    NotConsistent {
        /// The store.
        place: String,
        /// The operation that did not show it.
        operation: &'static str,
    },
    /// A request failed.
    #[error("{place} cannot be used: {source}")]
    Store {
        /// The store.
        place: String,
        /// Why.
        source: Box<BucketError>,
    },
}

/// Tries a store out with a few requests below `selftest/`.
///
/// # Errors
/// [`SelfTestError`].
pub fn run(bucket: &Bucket, nonce: u128) -> Result<(), SelfTestError> {
    let place = bucket.label().to_owned();
    let key = format!("selftest/{nonce:032x}");
    let outcome = probe(bucket, &key);
    let cleaned = bucket.delete_all(vec![key]);
    match outcome {
        Err(Probe::Store(source)) => Err(SelfTestError::Store { place, source: source.into() }),
        Err(Probe::Overwrites) => Err(SelfTestError::NoConditionalCreate { place }),
        Err(Probe::Stale(operation)) => Err(SelfTestError::NotConsistent { place, operation }),
        Ok(()) => cleaned.map_err(|source| SelfTestError::Store { place, source: source.into() }),
    }
}

enum Probe {
    Store(BucketError),
    Overwrites,
    Stale(&'static str),
}

impl From<BucketError> for Probe {
    fn from(error: BucketError) -> Self {
        Self::Store(error)
    }
}

fn probe(bucket: &Bucket, key: &str) -> Result<(), Probe> {
    let (first, second) = (Bytes::from_static(b"first attempt"), Bytes::from_static(b"second"));
    bucket.create(key, &first)?;
    match bucket.create(key, &second) {
        Err(BucketError::Exists { .. }) => {}
        Ok(()) => return Err(Probe::Overwrites),
        Err(error) => return Err(error.into()),
    }
    if bucket.get(key)? != first {
        return Err(Probe::Overwrites);
    }
    if bucket.get_range(key, 6..9)? != first.slice(6..9) {
        return Err(Probe::Stale("reading a range"));
    }
    if !bucket.exists(key)? {
        return Err(Probe::Stale("asking whether it exists"));
    }
    if !bucket.list("selftest")?.iter().any(|listed| listed.key == key) {
        return Err(Probe::Stale("listing"));
    }
    Ok(())
}
