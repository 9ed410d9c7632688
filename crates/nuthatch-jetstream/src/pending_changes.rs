//! Changes of streams: who may change an account's streams, and which names are claimed by changes that
//! take long, in a log whose bucket does not answer for example.
//!
//! [`nuthatch_streams::control::changes`] decides about that. Here tasks wait for what it grants them.

use crate::registry::Registry;
use crate::stream_subjects::tree_of;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::subject::tree::SubjectTree;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
pub(super) use nuthatch_streams::control::changes::CHANGE_TIMEOUT;
use nuthatch_streams::control::changes::{ChangeId, Changes, Claim, Effect, Event};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// Stands for a log of another node where a change says which log it waits for.
pub(super) const ELSEWHERE: LogId = LogId(0);

/// What a change of a stream with this configuration claims.
pub(super) fn claim(engine: LogId, config: impl Into<Arc<StreamConfig>>) -> Claim {
    Claim::new(engine.0, config)
}

/// What a change claims that concerns a name and nothing else.
pub(super) fn claim_of_name(engine: LogId, name: &str) -> Claim {
    Claim::of_name(engine.0, name)
}

/// What a change is told that waits for the right: it has it, or this log keeps it.
type Told = Result<(), LogId>;

/// The changes that are under way; their callers hold no lock.
pub(super) struct PendingChanges {
    /// What the machine's time is counted from.
    origin: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    machine: Changes,
    /// The number of the next change.
    next: u64,
    waiting: FxHashMap<ChangeId, oneshot::Sender<Told>>,
}

impl Default for PendingChanges {
    fn default() -> Self {
        Self { origin: Instant::now(), inner: Mutex::default() }
    }
}

impl PendingChanges {
    /// Tells the machine what happened, and tasks what follows. Returns when a change that has begun
    /// is late.
    fn step(&self, inner: &mut Inner, id: ChangeId, event: Event) -> Option<Instant> {
        let mut late_at = None;
        for effect in inner.machine.step(id, event, self.origin.elapsed()) {
            let (other, told) = match effect {
                Effect::Wait(_, until) => {
                    late_at = Some(self.origin + until);
                    continue;
                }
                Effect::Grant(other) => (other, Ok(())),
                Effect::Refuse(other, log) => (other, Err(LogId(log))),
            };
            if let Some(waiting) = inner.waiting.remove(&other) {
                // Who does not wait any more ends its change, and the right goes on.
                let _ = waiting.send(told);
            }
        }
        late_at
    }

    /// The log that a change of this stream waits for.
    pub(super) fn engine_of(&self, account: AccountId, name: &str) -> Option<LogId> {
        self.inner.lock().machine.claimed(account, name).map(LogId)
    }

    /// The subjects of other streams' pending changes.
    pub(super) fn subjects_beside(
        &self,
        account: AccountId,
        name: &str,
    ) -> Vec<Arc<SubjectTree<()>>> {
        let inner = self.inner.lock();
        let others = inner.machine.claims_beside(account, name);
        others.map(|claim| claim.subjects.clone()).collect()
    }

    /// Streams that the registry does not have (yet).
    pub(super) fn count(&self, account: AccountId, registry: &Registry) -> usize {
        self.beside(account, registry).len()
    }

    /// Bytes that those reserve.
    pub(super) fn reserved_bytes(
        &self,
        account: AccountId,
        storage: StorageType,
        registry: &Registry,
    ) -> u64 {
        let beside = self.beside(account, registry).into_iter();
        let bytes = beside.filter(|config| config.storage == storage);
        let bytes = bytes.map(|config| u64::try_from(config.max_bytes).unwrap_or(0));
        bytes.fold(0, u64::saturating_add)
    }

    fn beside(&self, account: AccountId, registry: &Registry) -> Vec<Arc<StreamConfig>> {
        let inner = self.inner.lock();
        let own = inner.machine.claims(account);
        let new = own.filter(|claim| registry.get(account, &claim.config.name).is_none());
        new.map(|claim| claim.config.clone()).collect()
    }
}

/// The right to change the streams of an account, for one of them; let go when it is dropped.
pub(super) struct Changing {
    changes: Arc<PendingChanges>,
    id: ChangeId,
}

impl Changing {
    pub(super) fn new(changes: &Arc<PendingChanges>) -> Self {
        let mut inner = changes.inner.lock();
        inner.next += 1;
        Self { changes: changes.clone(), id: ChangeId(inner.next) }
    }

    /// Tells the machine what happened to this change, and waits until it has the right.
    pub(super) async fn until_granted(&self, event: Event) -> Told {
        let granted = {
            let mut inner = self.changes.inner.lock();
            let (sender, granted) = oneshot::channel();
            inner.waiting.insert(self.id, sender);
            self.changes.step(&mut inner, self.id, event);
            granted
        };
        granted.await.expect("who waits is told")
    }

    fn step(&self, event: Event) -> Option<Instant> {
        self.changes.step(&mut self.changes.inner.lock(), self.id, event)
    }

    /// Waits for `work`, which changes the claimed stream and has reached the log when it is polled
    /// for the first time. Returns its outcome, and the right to change the registry, which others
    /// have had meanwhile if it took long.
    pub(super) async fn settle<T>(self, claim: Claim, work: impl Future<Output = T>) -> (T, Self) {
        let config = claim.config.clone();
        let mut work = Box::pin(work);
        let late_at = self.step(Event::Begun(claim)).expect("a change that has begun can be late");
        if let Ok(outcome) = timeout_at(late_at.into(), &mut work).await {
            self.step(Event::Answered);
            return (outcome, self);
        }
        let subjects = Arc::new(tree_of(&config.subjects).await);
        self.step(Event::Late(subjects));
        let outcome = work.await;
        let granted = self.until_granted(Event::Answered).await;
        granted.expect("the name was claimed by this change");
        (outcome, self)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut inner = self.changes.inner.lock();
        inner.waiting.remove(&self.id);
        self.changes.step(&mut inner, self.id, Event::Ended);
    }
}

#[cfg(test)]
pub(super) mod tests;
