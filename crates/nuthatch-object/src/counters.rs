//! Requests and bytes to the store by kind: what a bucket costs.

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of request, as stores bill them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RequestKind {
    /// An object was written.
    Put,
    /// An object, or a range of one, was read.
    Get,
    /// Whether an object exists.
    Head,
    /// A page of a listing (at most 1000 objects).
    List,
    /// An object was removed.
    Delete,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Put, Self::Get, Self::Head, Self::List, Self::Delete];

    /// Its name in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// Counters of one bucket. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    requests: [AtomicU64; 5],
    retries: AtomicU64,
    put_bytes: AtomicU64,
    get_bytes: AtomicU64,
}

/// Values of [`Counters`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CountersSnapshot {
    /// Requests by [`RequestKind`], retries included.
    pub requests: [u64; 5],
    /// Requests that were repeated because of a transient failure.
    pub retries: u64,
    /// Bytes written.
    pub put_bytes: u64,
    /// Bytes read.
    pub get_bytes: u64,
}

impl CountersSnapshot {
    /// Requests of one kind.
    #[must_use]
    pub const fn of(&self, kind: RequestKind) -> u64 {
        self.requests[kind as usize]
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }
}

impl Counters {
    pub(crate) fn request(&self, kind: RequestKind) {
        self.requests[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn put(&self, bytes: u64) {
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn got(&self, bytes: u64) {
        self.get_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The values now.
    #[must_use]
    pub fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            requests: std::array::from_fn(|n| self.requests[n].load(Ordering::Relaxed)),
            retries: self.retries.load(Ordering::Relaxed),
            put_bytes: self.put_bytes.load(Ordering::Relaxed),
            get_bytes: self.get_bytes.load(Ordering::Relaxed),
        }
    }
}
