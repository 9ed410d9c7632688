//! A client's subscription.

use crate::auth::SubjectFilter;
use crate::conn::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A client's subscription. It is in its connection's table and in its account's trie; both drop it
/// when it ends, while caches may keep it a little longer.
pub struct Subscription {
    /// Whose it is.
    pub conn: Arc<Connection>,
    /// The pattern.
    pub subject: Box<[u8]>,
    /// The queue group, if any.
    pub queue: Option<Box<[u8]>>,
    /// The client's name for it.
    pub sid: Box<[u8]>,
    /// Whether the client understands `HMSG`.
    pub headers: bool,
    /// Whether the client may see what it publishes itself.
    pub echo: bool,
    /// Subjects that the pattern covers but the client may not see.
    pub denied: Option<Arc<SubjectFilter>>,
    /// Whether reply subjects of deliveries become publishable (`allow_responses`).
    pub tracks_replies: bool,
    delivered: AtomicU64,
    max: AtomicU64,
    closed: AtomicBool,
}

/// Whether a delivery may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Deliver.
    Deliver,
    /// Deliver; it was the last one, the subscription is over.
    DeliverLast,
    /// The subscription is over.
    Over,
}

impl Subscription {
    /// A new subscription.
    #[must_use]
    pub fn new(conn: Arc<Connection>, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> Self {
        Self {
            conn,
            subject: subject.into(),
            queue: queue.map(Into::into),
            sid: sid.into(),
            headers: true,
            echo: true,
            denied: None,
            tracks_replies: false,
            delivered: AtomicU64::new(0),
            max: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Counts a delivery and says whether it may be made.
    #[inline]
    pub fn admit(&self) -> Admission {
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed) + 1;
        let max = self.max.load(Ordering::Relaxed);
        if max == 0 {
            return if self.is_closed() { Admission::Over } else { Admission::Deliver };
        }
        match delivered.cmp(&max) {
            std::cmp::Ordering::Less => Admission::Deliver,
            std::cmp::Ordering::Equal => Admission::DeliverLast,
            std::cmp::Ordering::Greater => Admission::Over,
        }
    }

    /// Sets the number of deliveries, counted from the beginning, after which it ends.
    /// `false`: that many have been made already.
    pub fn set_max(&self, max: u64) -> bool {
        self.max.store(max, Ordering::Relaxed);
        self.delivered.load(Ordering::Relaxed) < max
    }

    /// Deliveries so far.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// The limit of deliveries; 0: none.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Whether it is over.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends it: whoever still has it in a cache delivers nothing more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("conn", &self.conn.id)
            .field("subject", &String::from_utf8_lossy(&self.subject))
            .field("sid", &String::from_utf8_lossy(&self.sid))
            .finish_non_exhaustive()
    }
}
