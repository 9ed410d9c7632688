//! The subscriptions of a connection, by the client's names for them, and the memory that they take.

use super::subscription_bytes::{SubscriptionBytes, bytes_of};
use crate::shares::Shares;
use crate::subscription::Subscription;
use nuthatch_protocol::subject::matches;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::hash_map::IntoValues;
use std::sync::Arc;

/// A table with less room keeps it.
pub(super) const SHRINK_FROM: usize = 16 * 1024;
/// Room is given back when less than this share of it is in use.
const SHRINK_SHARE: usize = 8;

type Table = FxHashMap<Box<[u8]>, Arc<Subscription>>;

/// The subscriptions of a connection.
#[derive(Default)]
pub(super) struct Subscriptions {
    table: Mutex<Table>,
    /// What those take; locked behind them.
    bytes: Mutex<SubscriptionBytes>,
}

/// What became of a subscription that a client has asked for.
pub(crate) enum Added {
    /// It is there.
    New(Arc<Subscription>),
    /// There is one of this name already.
    Known(Arc<Subscription>),
    /// The connection has as many as it may have, or they take as much memory as they may.
    TooMany,
    /// It was none.
    Invalid,
}

/// How much a connection's subscriptions may take.
pub(super) struct Bounds<'a> {
    pub(super) count_max: usize,
    pub(super) bytes_max: usize,
    pub(super) account: AccountId,
    pub(super) shares: &'a Arc<Shares>,
}

impl Subscriptions {
    /// Adds what `make` makes, if there is none of this name and room for it.
    pub(super) fn add(
        &self,
        sid: &[u8],
        bounds: &Bounds<'_>,
        make: impl FnOnce() -> Option<Subscription>,
    ) -> Added {
        let mut table = self.table.lock();
        if let Some(known) = table.get(sid) {
            return Added::Known(known.clone());
        }
        if table.len() >= bounds.count_max {
            return Added::TooMany;
        }
        let Some(sub) = make() else { return Added::Invalid };
        let bytes = bytes_of(&sub.subject, sub.queue.as_deref(), sid);
        let Bounds { bytes_max, account, shares, .. } = *bounds;
        if !self.bytes.lock().take(shares, account, bytes, bytes_max) {
            return Added::TooMany;
        }
        let sub = Arc::new(sub);
        table.insert(sid.into(), sub.clone());
        Added::New(sub)
    }

    /// Removes one; `false`: it is not there.
    pub(super) fn remove(&self, sub: &Arc<Subscription>) -> bool {
        let mut table = self.table.lock();
        let is_there = table.get(&sub.sid).is_some_and(|known| Arc::ptr_eq(known, sub));
        if is_there {
            table.remove(&sub.sid);
            self.uncharge(sub);
            if table.capacity() >= SHRINK_FROM && table.len() < table.capacity() / SHRINK_SHARE {
                table.shrink_to_fit();
            }
        }
        is_there
    }

    /// Puts `new` in the place of `old`, if it is there.
    pub(super) fn replace(&self, old: &Arc<Subscription>, new: &Arc<Subscription>) -> bool {
        let mut table = self.table.lock();
        let place = table.get_mut(&old.sid).filter(|known| Arc::ptr_eq(known, old));
        place.map(|place| *place = new.clone()).is_some()
    }

    /// True if this one is there.
    pub(super) fn has(&self, sub: &Arc<Subscription>) -> bool {
        self.table.lock().get(&sub.sid).is_some_and(|known| Arc::ptr_eq(known, sub))
    }

    /// Takes all out. Each is to be [uncharged](Self::uncharge) when it ends.
    pub(super) fn take(&self) -> IntoValues<Box<[u8]>, Arc<Subscription>> {
        std::mem::take(&mut *self.table.lock()).into_values()
    }

    /// The memory of one that has left the table is free.
    pub(super) fn uncharge(&self, sub: &Subscription) {
        let bytes = bytes_of(&sub.subject, sub.queue.as_deref(), &sub.sid);
        self.bytes.lock().give_back(bytes);
    }

    pub(super) fn get(&self, sid: &[u8]) -> Option<Arc<Subscription>> {
        self.table.lock().get(sid).cloned()
    }

    /// A plain one that covers a subject.
    pub(super) fn covering(&self, subject: &[u8]) -> Option<Arc<Subscription>> {
        let table = self.table.lock();
        let covers =
            |sub: &&Arc<Subscription>| sub.queue.is_none() && matches(&sub.subject, subject);
        table.values().find(covers).cloned()
    }

    /// At most so many.
    pub(super) fn some(&self, max: usize) -> Vec<Arc<Subscription>> {
        self.table.lock().values().take(max).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.lock().used()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.lock().capacity()
    }
}
