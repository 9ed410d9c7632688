//! The streams of an engine and the identities that it may still give.

use super::consumers::{ConsumerKey, ConsumerSlot};
use super::migration::MigrationState;
use super::stream_slot::StreamSlot;
use crate::op::{CatalogEntry, OpOutcome, Usage};
use crate::records::LogState;
use crate::sink::{AccountId, Sink};
use crate::stream::{Stream, wire_time};
use nuthatch_log::{StreamId, StreamMap, Timestamp};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use std::sync::Arc;

/// Streams by identity. Identities come in order: a replay takes one that is smaller than others in a
/// state of the log, and is not in it, for that of a stream that was deleted.
pub(super) struct Streams<S: Sink> {
    slots: StreamMap<Box<StreamSlot<S>>>,
    /// No id at or above this one was ever used here.
    next_id: StreamId,
    /// Streams between two logs, whose traffic waits.
    in_migration: usize,
    /// JetStream domain of all of them; empty: none.
    domain: Arc<str>,
    /// Keys the hashes of their subjects.
    hash_seed: u64,
}

impl<S: Sink> Streams<S> {
    /// No streams.
    pub(super) fn new(domain: Arc<str>, hash_seed: u64) -> Self {
        Self {
            slots: StreamMap::default(),
            next_id: StreamId(1),
            in_migration: 0,
            domain,
            hash_seed,
        }
    }

    /// Keys the hashes of subjects.
    pub(super) const fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// Ids below this one were used.
    pub(super) fn raise_next_id(&mut self, next: StreamId) {
        self.next_id = self.next_id.max(next);
    }

    /// True if an identity may be given to a new stream.
    pub(super) fn is_fresh(&self, id: StreamId) -> bool {
        id >= self.next_id && !self.slots.contains_key(&id)
    }

    /// A stream, one that is being deleted included.
    #[inline]
    pub(super) fn get(&self, id: StreamId) -> Option<&StreamSlot<S>> {
        self.slots.get(&id).map(|slot| &**slot)
    }

    /// A stream to change, one that is being deleted included.
    #[inline]
    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut StreamSlot<S>> {
        self.slots.get_mut(&id).map(|slot| &mut **slot)
    }

    /// A stream that exists and is not being deleted.
    ///
    /// # Errors
    /// 10059.
    #[inline]
    pub(super) fn live(&mut self, id: StreamId) -> Result<&mut StreamSlot<S>, JsError> {
        match self.slots.get_mut(&id) {
            Some(slot) if !slot.deleting => Ok(slot),
            _ => Err(JsError::STREAM_NOT_FOUND),
        }
    }

    /// A stream as questions see it: it is there until its delete is durable. Whoever asks, does not
    /// wait for the answer and deletes is answered from what was there.
    ///
    /// # Errors
    /// 10059.
    pub(super) fn shown(&self, id: StreamId) -> Result<&StreamSlot<S>, JsError> {
        self.get(id).ok_or(JsError::STREAM_NOT_FOUND)
    }

    /// A stream whose delete record is not in the log.
    pub(super) fn undeleted(&mut self, id: StreamId) -> Option<&mut StreamSlot<S>> {
        self.get_mut(id).filter(|slot| !slot.deleting)
    }

    /// A consumer, if it is (still) there.
    #[inline]
    pub(super) fn consumer(&mut self, key: ConsumerKey) -> Option<&mut ConsumerSlot<S::Target>> {
        self.get_mut(key.stream)?.consumers.get_mut(key.index)
    }

    /// The consumer of this name of a stream that is not being deleted.
    ///
    /// # Errors
    /// 10059 or 10014.
    pub(super) fn consumer_key(&self, id: StreamId, name: &str) -> Result<ConsumerKey, JsError> {
        let slot = self.get(id).filter(|slot| !slot.deleting).ok_or(JsError::STREAM_NOT_FOUND)?;
        let index = slot.consumers.find(name).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        Ok(ConsumerKey { stream: id, index })
    }

    /// The account of a stream; the global one if it is not there.
    pub(super) fn account_of(&self, id: StreamId) -> AccountId {
        self.get(id).map_or(AccountId::GLOBAL, |slot| slot.stream.account())
    }

    /// The name of a stream; empty if it is not there.
    pub(super) fn name_of(&self, id: StreamId) -> &str {
        self.get(id).map_or("", |slot| slot.stream.config().name.as_str())
    }

    /// All streams, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamSlot<S>> {
        self.slots.values().map(|slot| &**slot)
    }

    /// All streams to change, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamSlot<S>> {
        self.slots.values_mut().map(|slot| &mut **slot)
    }

    /// Identities of all streams, in order.
    pub(super) fn ids(&self) -> Vec<StreamId> {
        let mut ids: Vec<StreamId> = self.slots.keys().collect();
        ids.sort_unstable();
        ids
    }

    /// Adds a new stream, or one that a record tells of, without consumers.
    pub(super) fn create(
        &mut self,
        id: StreamId,
        account: AccountId,
        config: Box<StreamConfig>,
        created: Timestamp,
    ) {
        self.add(Stream::new(id, account, config, created, self.hash_seed));
    }

    /// Adds a stream, without consumers.
    pub(super) fn add(&mut self, stream: Stream) -> &mut StreamSlot<S> {
        let id = stream.id();
        self.insert(Box::new(StreamSlot::new(stream, Arc::clone(&self.domain))));
        self.get_mut(id).expect("it was added a moment ago")
    }

    /// Takes a stream in, in the place of one with its identity.
    pub(super) fn insert(&mut self, slot: Box<StreamSlot<S>>) {
        let id = slot.stream.id();
        self.raise_next_id(StreamId(id.0.saturating_add(1)));
        self.in_migration += usize::from(slot.migration.holds());
        if let Some(before) = self.slots.insert(id, slot) {
            self.in_migration -= usize::from(before.migration.holds());
        }
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, id: StreamId) -> Option<Box<StreamSlot<S>>> {
        let slot = self.slots.remove(&id)?;
        self.in_migration -= usize::from(slot.migration.holds());
        Some(slot)
    }

    /// A stream gets to another state of its migration between logs. Returns the one before.
    ///
    /// # Panics
    /// There is no such stream.
    pub(super) fn migrate(&mut self, id: StreamId, state: MigrationState) -> MigrationState {
        let slot = self.slots.get_mut(&id).expect("a stream that migrates is there");
        let held = slot.migration.holds();
        self.in_migration += usize::from(state.holds());
        self.in_migration -= usize::from(held);
        std::mem::replace(&mut slot.migration, state)
    }

    /// True if any stream is between two logs.
    #[inline]
    pub(super) const fn any_held(&self) -> bool {
        self.in_migration > 0
    }

    /// True if a stream is between two logs: nothing of it changes.
    #[inline]
    pub(super) fn is_held(&self, id: StreamId) -> bool {
        self.any_held() && self.get(id).is_some_and(|slot| slot.migration.holds())
    }

    /// Recovery: only these streams are there.
    pub(super) fn retain(&mut self, is_there: impl Fn(StreamId) -> bool) {
        assert!(!self.any_held(), "nothing moves while a log is read");
        self.slots.retain(|id, _| is_there(id));
    }

    /// Recovery: begins again without streams.
    pub(super) fn clear(&mut self) {
        *self = Self::new(Arc::clone(&self.domain), self.hash_seed);
    }

    /// Which streams there are, for the log.
    pub(super) fn log_state(&self) -> LogState {
        let there = self.iter().filter(|slot| !slot.deleting);
        let mut live: Vec<StreamId> = there.map(|slot| slot.stream.id()).collect();
        live.sort_unstable();
        LogState { next_id: self.next_id, live }
    }

    /// The answer to [`Op::Catalog`](crate::Op::Catalog).
    pub(super) fn catalog(&self, unreadable_records: u64) -> OpOutcome {
        let mut streams: Vec<CatalogEntry> = self
            .iter()
            .filter(|slot| !slot.deleting)
            .map(|slot| CatalogEntry {
                id: slot.stream.id(),
                account: slot.stream.account(),
                config: slot.stream.config().clone(),
                created: wire_time(slot.stream.created()),
                provenance: slot.stream.provenance().clone(),
                last_seq: slot.stream.assigned_totals().last_seq,
            })
            .collect();
        streams.sort_unstable_by_key(|entry| entry.id);
        OpOutcome::Catalog { streams, next_id: self.next_id, unreadable_records }
    }

    /// What the streams of an account, or of all accounts, hold.
    pub(super) fn usage(&self, account: Option<AccountId>) -> Usage {
        let mut usage = Usage::default();
        for slot in self.iter() {
            if slot.deleting
                || slot.stream.provenance().arriving
                || account.is_some_and(|wanted| wanted != slot.stream.account())
            {
                continue;
            }
            let totals = slot.stream.committed_totals();
            usage.streams += 1;
            usage.consumers += slot.consumers.len() as u64;
            usage.messages += totals.messages;
            usage.bytes += totals.bytes;
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::NullSink;

    fn streams(ids: &[u32]) -> Streams<NullSink> {
        let mut streams = Streams::new("".into(), 0);
        for &id in ids {
            let config = StreamConfig { name: format!("S{id}"), ..StreamConfig::default() };
            streams.create(StreamId(id), AccountId(id % 2), Box::new(config), Timestamp(1));
        }
        streams
    }

    #[test]
    fn an_identity_is_given_once() {
        let mut streams = streams(&[1, 5]);
        assert!(!streams.is_fresh(StreamId(3)) && streams.is_fresh(StreamId(6)));
        assert!(streams.remove(StreamId(5)).is_some());
        assert!(!streams.is_fresh(StreamId(5)), "what was deleted does not come back");
        streams.raise_next_id(StreamId(9));
        streams.raise_next_id(StreamId(2));
        assert!(!streams.is_fresh(StreamId(8)) && streams.is_fresh(StreamId(9)));
        assert_eq!(streams.log_state().live, [StreamId(1)]);
    }

    #[test]
    fn a_stream_that_is_being_deleted_is_shown_and_not_used() {
        let mut streams = streams(&[1, 2]);
        streams.get_mut(StreamId(2)).expect("it is there").deleting = true;
        assert!(streams.live(StreamId(2)).is_err() && streams.shown(StreamId(2)).is_ok());
        assert!(streams.consumer_key(StreamId(2), "C").is_err());
        assert_eq!(streams.usage(None).streams, 1);
        assert_eq!(streams.usage(Some(AccountId(0))).streams, 0);
        assert_eq!((streams.name_of(StreamId(2)), streams.name_of(StreamId(3))), ("S2", ""));
    }

    #[test]
    fn streams_between_two_logs_are_counted() {
        let mut streams = streams(&[1, 2]);
        let settled = || MigrationState::Settled(Vec::new());
        streams.migrate(StreamId(1), settled());
        streams.migrate(StreamId(1), settled());
        assert!(streams.is_held(StreamId(1)) && !streams.is_held(StreamId(2)));
        let slot = streams.remove(StreamId(1)).expect("it is there");
        assert!(!streams.any_held());
        streams.insert(slot);
        assert!(streams.any_held());
        streams.migrate(StreamId(1), MigrationState::Here);
        assert!(!streams.any_held());
    }
}
