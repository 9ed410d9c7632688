//! The registry of streams as tasks and connections share it.
//!
//! A stream's subjects are put into the registry and taken out of it in parts: each may have 100,000.
//! Between two parts the registry is let go, which publishers ask for routes, and other tasks have
//! their turn on the thread. Whoever changes a stream holds the right to change the account's streams,
//! so nobody takes the subjects between two parts.

use crate::logs_port::LogsPort;
use crate::registry::{Entry, Registry, SubjectsKey};
use crate::stream_subjects::{SUBJECTS_PART, missing};
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::AccountId;
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::task::yield_now;

/// All streams of this server.
pub(super) struct StreamTable {
    registry: RwLock<Registry>,
    /// Copy of [`Registry::version`] that is read without the lock.
    version: AtomicU64,
    /// Tells those who wait for streams to come or go; holds the version.
    changes: watch::Sender<u64>,
    logs: Arc<dyn LogsPort>,
}

impl StreamTable {
    /// An empty one.
    pub(super) fn new(logs: Arc<dyn LogsPort>) -> Self {
        Self {
            registry: RwLock::default(),
            version: AtomicU64::new(0),
            changes: watch::Sender::new(0),
            logs,
        }
    }

    /// The registry, for looking. Hold it briefly: it stands still meanwhile.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read()
    }

    /// Changes whenever routes or names do: one atomic load.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Hears of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Has those who hear of changes look again: something else that they depend on has changed.
    pub(super) fn wake(&self) {
        self.changes.send_modify(|_| {});
    }

    /// Changes the registry and tells the connections' route caches.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.registry.write();
        let result = change(&mut registry);
        self.version.store(registry.version(), Ordering::Release);
        self.changes.send_replace(registry.version());
        result
    }

    /// A fresh identity, never used before on this server.
    pub(super) fn fresh_id(&self) -> StreamId {
        self.registry.write().fresh_id()
    }

    /// Makes sure that identities below `next` are never handed out.
    pub(super) fn reserve_ids(&self, next: StreamId) {
        self.registry.write().reserve_ids(next);
    }

    /// Where streams with a mirror or sources came, went or changed since the last call.
    pub(super) fn take_changed_copies(&self) -> FxHashSet<StreamRoute> {
        if !self.read().has_changed_copies() {
            return FxHashSet::default();
        }
        self.registry.write().take_changed_copies()
    }

    /// New location of a stream that moved away from `route`.
    pub(super) fn moved(&self, route: StreamRoute) -> Option<StreamRoute> {
        self.read().moved(route)
    }

    /// The entry of a stream or error 10059.
    pub(super) fn entry(&self, account: AccountId, name: &str) -> Result<Arc<Entry>, JsError> {
        self.read().get(account, name).cloned().ok_or(JsError::STREAM_NOT_FOUND)
    }

    /// True if the account has a stream of this name here.
    pub(super) fn has(&self, account: AccountId, name: &str) -> bool {
        self.read().get(account, name).is_some()
    }

    /// At most `max` of the account's streams whose names come behind `after`, by name.
    pub(super) fn part(
        &self,
        account: AccountId,
        after: Option<&str>,
        max: usize,
    ) -> Vec<Arc<Entry>> {
        self.read().of_account_after(account, after).take(max).cloned().collect()
    }

    /// Takes in a new or changed stream, if its log is attached still: one that is detached takes its
    /// streams out after it has left, so none stays. False: it was detached; the stream is in it, and comes with it wherever it
    /// is attached next.
    pub(super) async fn enter(&self, entry: Entry) -> bool {
        let (account, new) = (entry.account, entry.config.clone());
        let (key, old) = {
            let mut registry = self.registry.write();
            let old = registry.get(account, &new.name).map(|old| old.config.clone());
            (registry.key_for(account, &new.name), old)
        };
        let old = old.unwrap_or_default();
        let (added, gone) = (missing(&new, &old).await, missing(&old, &new).await);
        self.in_parts(&added, |registry, part| registry.add_subjects(account, key, part)).await;
        let is_served = self.change(|registry| {
            let is_served = self.logs.is_attached(entry.engine);
            if is_served {
                registry.put(key, entry);
            }
            is_served
        });
        self.drop_subjects(account, key, if is_served { &gone } else { &added }).await;
        is_served
    }

    /// Takes a stream out. From the first part on nothing is routed to it.
    pub(super) async fn leave(&self, account: AccountId, name: &str) {
        let Some((key, entry)) = self.change(|registry| registry.take(account, name)) else {
            return;
        };
        let subjects: Vec<&String> = entry.config.subjects.iter().collect();
        self.in_parts(&subjects, |registry, part| registry.drop_subjects(account, key, part)).await;
    }

    /// Somebody holds the registry.
    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.registry.try_write().is_none()
    }

    async fn drop_subjects(&self, account: AccountId, key: SubjectsKey, gone: &[&String]) {
        if gone.is_empty() {
            return;
        }
        self.in_parts(gone, |registry, part| registry.drop_subjects(account, key, part)).await;
        self.change(|registry| registry.note_change(account, gone.iter().copied()));
    }

    async fn in_parts<'a>(
        &self,
        subjects: &[&'a String],
        mut change: impl FnMut(&mut Registry, Vec<&'a String>),
    ) {
        for (at, part) in subjects.chunks(SUBJECTS_PART).enumerate() {
            if at > 0 {
                yield_now().await;
            }
            change(&mut self.registry.write(), part.to_vec());
        }
    }
}
