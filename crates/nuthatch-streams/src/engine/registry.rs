//! The streams of an engine and the identities that it may still give.

use super::consumers::{ConsumerKey, ConsumerSlot};
use super::deadlines::Who;
use super::ledger::Ledger;
use super::migration::MigrationState;
use super::outputs::Done;
use super::stream_slot::StreamSlot;
use crate::op::{CatalogEntry, OpOutcome, StreamSize, Usage};
use crate::records::LogState;
use crate::rules::LOG_EXPIRY;
use crate::sink::{AccountId, Sink};
use crate::stream::{Stream, wire_time};
use nuthatch_log::{LogAccess, Lsn, Seq, StreamId, StreamMap, Timestamp};
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
    /// Consumers in memory outlive an owner of the log ([`crate::EngineConfig::memory_consumers_outlive`]).
    outlive: bool,
    ledger: Ledger,
}

impl<S: Sink> Streams<S> {
    /// No streams.
    pub(super) fn new(domain: Arc<str>, hash_seed: u64, ledger: Ledger) -> Self {
        let slots = StreamMap::default();
        let outlive = false;
        Self { slots, next_id: StreamId(1), in_migration: 0, domain, hash_seed, outlive, ledger }
    }

    /// Whether consumers in memory of all streams to come are logged as all others.
    pub(super) fn set_outlive(&mut self, outlive: bool) {
        self.outlive = outlive;
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

    /// What the streams have in common.
    #[inline]
    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the streams have in common, to change it.
    #[inline]
    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// A stream to change, with the ledger.
    #[inline]
    pub(super) fn entry(&mut self, id: StreamId) -> Option<(&mut StreamSlot<S>, &mut Ledger)> {
        Some((self.slots.get_mut(&id)?, &mut self.ledger))
    }

    /// As [`Streams::live`], with the ledger.
    ///
    /// # Errors
    /// 10059.
    #[inline]
    pub(super) fn live_entry(
        &mut self,
        id: StreamId,
    ) -> Result<(&mut StreamSlot<S>, &mut Ledger), JsError> {
        match self.slots.get_mut(&id) {
            Some(slot) if !slot.deleting => Ok((slot, &mut self.ledger)),
            _ => Err(JsError::STREAM_NOT_FOUND),
        }
    }

    /// Changes a stream that is not being deleted.
    ///
    /// # Errors
    /// 10059, or why it does not change.
    pub(super) fn change(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut StreamSlot<S>, &mut Ledger) -> Done,
    ) -> Done {
        let (slot, ledger) = self.live_entry(id)?;
        change(slot, ledger)
    }

    /// A record of the stream lies in frame `lsn`: its effects become visible with it.
    pub(super) fn changed(&mut self, id: StreamId, lsn: Lsn) {
        if let Some((slot, ledger)) = self.entry(id) {
            ledger.changed(slot, lsn);
        }
    }

    /// Makes sure that the stream is called when something of it is due.
    pub(super) fn schedule(&mut self, id: StreamId) {
        if let Some((slot, ledger)) = self.entry(id) {
            ledger.schedule(slot);
        }
    }

    /// Lets messages go whose time is over.
    pub(super) fn expire<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        if let Some((slot, ledger)) = self.entry(id) {
            ledger.expire(slot, log);
        }
    }

    /// Shows what has committed; returns the streams concerned, each with the last sequence that
    /// readers saw before.
    pub(super) fn commit<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) -> Vec<(StreamId, Seq)> {
        let mut committed = Vec::new();
        while let Some(id) = self.ledger.next_committed(lsn) {
            if let Some((slot, ledger)) = self.entry(id)
                && slot.committed_in != lsn
            {
                committed.push((id, ledger.commit(slot, lsn, log)));
            }
        }
        committed
    }

    /// The streams and consumers whose time has come, each with the time that it asked for.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<(Timestamp, Who)> {
        let slots = &self.slots;
        self.ledger.take_due(now, |at, who| {
            let scheduled = match who {
                Who::Stream(id) => slots.get(&id).and_then(|slot| slot.scheduled),
                Who::Consumer(key) => {
                    let slot = slots.get(&key.stream);
                    slot.and_then(|slot| slot.consumers.get(key.index)).and_then(|c| c.scheduled)
                }
            };
            scheduled == Some(at)
        })
    }

    /// Consumers with as many messages out as they may have, of streams that messages have left, if
    /// it is time to look.
    pub(super) fn take_full(&mut self, now: Timestamp) -> Vec<ConsumerKey> {
        let mut full = Vec::new();
        for stream in self.ledger.take_freed(now) {
            let Some(slot) = self.get_mut(stream) else { continue };
            slot.is_freed = false;
            slot.note_removals();
            let indexes = std::mem::take(&mut slot.consumers.full);
            full.extend(indexes.into_iter().map(|index| ConsumerKey { stream, index }));
        }
        full
    }

    /// Writes the `Expire` records that are due.
    pub(super) fn log_expiries<L: LogAccess>(&mut self, log: &mut L) {
        if !LOG_EXPIRY.holds() {
            return;
        }
        for id in self.ledger.take_expiring() {
            if let Some(slot) = self.undeleted(id)
                && slot.log_expiry(log).is_err()
            {
                self.ledger.expire_again(id);
            }
        }
    }

    /// Logs the deletes that are due, with the next frame or when their time has come.
    pub(super) fn log_undeleted<L: LogAccess>(&mut self, log: &mut L) {
        for id in self.ledger.take_undeleted() {
            let Some(slot) = self.undeleted(id) else { continue };
            match slot.log_undeleted(log) {
                Err(_) => self.ledger.delete_later(id, log.now()),
                Ok(()) => slot.note_if_logged(),
            }
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
        match self.get(id) {
            Some(slot) if !slot.deleting => {
                self.find_consumer(id, name).ok_or(JsError::CONSUMER_NOT_FOUND)
            }
            _ => Err(JsError::STREAM_NOT_FOUND),
        }
    }

    /// As [`Streams::consumer_key`], for clients' traffic: no error is made.
    #[inline]
    pub(super) fn find_consumer(&self, id: StreamId, name: &str) -> Option<ConsumerKey> {
        let slot = self.get(id).filter(|slot| !slot.deleting)?;
        let index = slot.consumers.find(name)?;
        Some(ConsumerKey { stream: id, index })
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

    /// Takes a stream in, in the place of one with its identity. What its consumers are is in the log, as far as it has any.
    pub(super) fn insert(&mut self, mut slot: Box<StreamSlot<S>>) {
        let id = slot.stream.id();
        slot.consumers.set_outlive(self.outlive);
        self.raise_next_id(StreamId(id.0.saturating_add(1)));
        self.in_migration += usize::from(slot.migration.holds());
        self.ledger.join(&slot);
        if let Some(before) = self.slots.insert(id, slot) {
            self.in_migration -= usize::from(before.migration.holds());
        }
    }

    /// Takes a stream out: nothing of it counts any more.
    pub(super) fn remove(&mut self, id: StreamId) -> Option<Box<StreamSlot<S>>> {
        let mut slot = self.slots.remove(&id)?;
        self.in_migration -= usize::from(slot.migration.holds());
        self.ledger.leave(&mut slot);
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
        self.slots.clear();
        (self.next_id, self.in_migration) = (StreamId(1), 0);
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
                config: Arc::new(slot.stream.config().clone()),
                created: wire_time(slot.stream.created()),
                provenance: slot.stream.provenance().clone(),
                last_seq: slot.stream.contents().assigned_totals().last_seq,
            })
            .collect();
        streams.sort_unstable_by_key(|entry| entry.id);
        OpOutcome::Catalog { streams, next_id: self.next_id, unreadable_records }
    }

    /// How far a stream has come with a source.
    ///
    /// # Errors
    /// 10059.
    pub(super) fn sourced(&mut self, id: StreamId, key: &[u8]) -> Result<OpOutcome, JsError> {
        Ok(OpOutcome::Sourced(self.live(id)?.stream.sourced().last(key)))
    }

    /// What the streams of an account, or of all accounts, hold.
    pub(super) fn usage(&self, account: Option<AccountId>, missing_messages: u64) -> Usage {
        let mut usage = Usage { missing_messages, ..Usage::default() };
        for slot in self.present() {
            if account.is_some_and(|wanted| wanted != slot.stream.account()) {
                continue;
            }
            let totals = slot.stream.contents().committed_totals();
            usage.streams += 1;
            usage.consumers += slot.consumers.len() as u64;
            usage.messages += totals.messages;
            usage.bytes += totals.bytes;
        }
        usage
    }

    /// Streams that are neither being deleted nor on their way here.
    fn present(&self) -> impl Iterator<Item = &StreamSlot<S>> {
        self.iter().filter(|slot| !slot.deleting && !slot.stream.provenance().arriving)
    }

    /// What each stream holds.
    pub(super) fn sizes(&self) -> Vec<StreamSize> {
        let size = |slot: &StreamSlot<S>| {
            let totals = slot.stream.contents().committed_totals();
            StreamSize {
                id: slot.stream.id(),
                account: slot.stream.account(),
                messages: totals.messages,
                bytes: totals.bytes,
                last_seq: totals.last_seq,
                last_at: (totals.last_seq > 0).then(|| wire_time(totals.last_at)),
                consumers: slot.consumers.listed() as u64,
            }
        };
        self.present().map(size).collect()
    }
}

#[cfg(test)]
impl<S: Sink> Streams<S> {
    /// No streams, and bounds that no test reaches.
    pub(super) fn empty() -> Self {
        let budget = crate::budget::Budget::new(1000, 1000, 1 << 20, 1 << 20);
        Self::new("".into(), 0, Ledger::new(budget, super::BatchLimits::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::NullSink;

    fn streams(ids: &[u32]) -> Streams<NullSink> {
        let mut streams = Streams::empty();
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
        assert_eq!(streams.usage(None, 0).streams, 1);
        let sizes = streams.sizes();
        let expected = StreamSize {
            id: StreamId(1),
            account: AccountId(1),
            messages: 0,
            bytes: 0,
            last_seq: 0,
            last_at: None,
            consumers: 0,
        };
        assert_eq!(sizes, [expected]);
        assert_eq!(streams.usage(Some(AccountId(0)), 0).streams, 0);
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
