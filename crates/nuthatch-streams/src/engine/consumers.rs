//! Calling consumers: by name, in this turn, on commit, at a deadline; and what they let go.

use super::Engine;
use super::caught_up::CaughtUp;
use super::ledger::PROGRESS_LOG_INTERVAL_NS;
use crate::consumer::{Ack, Consumer, Env, Pull};
use crate::event::{AckItem, ClientBatch, FlowItem, PullItem};
use crate::index::MessageIndex;
use crate::sink::{Message, Sink};
use crate::stream::Stream;
use nuthatch_log::{AppendError, LogAccess, Lsn, Seq, StreamId, Timestamp, Urgency};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::is_level_met;
use nuthatch_protocol::js::{ConsumerConfig, RetentionPolicy};
use nuthatch_protocol::subject;
use rustc_hash::FxHashMap;

/// A consumer of an engine. The index may be reused after a delete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConsumerKey {
    pub(super) stream: StreamId,
    pub(super) index: u32,
}

/// A consumer with what the engine keeps beside it.
pub(super) struct ConsumerSlot<T> {
    pub(super) consumer: Consumer<T>,
    pub(super) scheduled: Option<Timestamp>,
    /// On which of the engine's lists it is.
    pub(super) listed: Listed,
}

/// Membership in lists.
#[derive(Clone, Copy, Default)]
pub(super) struct Listed {
    called: bool,
    unlogged: bool,
    urgent: bool,
    awaiting: bool,
    pub(super) slow: bool,
    pub(super) loading: bool,
    pub(super) full: bool,
    dirty: bool,
    pub(super) caught_up: bool,
}

/// The consumers of one stream.
pub(super) struct Consumers<T> {
    by_name: FxHashMap<Box<str>, u32>,
    slots: Vec<Option<Box<ConsumerSlot<T>>>>,
    free: Vec<u32>,
    /// How many keep their state in memory only.
    in_memory: usize,
    /// Those that want new messages at once.
    pub(super) caught_up: CaughtUp,
    /// Those with as many messages out as they may have. Entries may be stale.
    pub(super) full: Vec<u32>,
    /// Those with progress that is not in the log, so that a change of the stream that must log it
    /// first does not look at all of them. Entries may be stale.
    dirty: Vec<u32>,
}

impl<T> Default for Consumers<T> {
    fn default() -> Self {
        Self {
            by_name: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            in_memory: 0,
            caught_up: CaughtUp::default(),
            full: Vec::new(),
            dirty: Vec::new(),
        }
    }
}

impl<T> Consumers<T> {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// True if any of them keeps its state in memory only.
    pub(super) fn any_memory(&self) -> bool {
        self.in_memory > 0
    }

    /// True if no consumer has progress to log. Forgets those that were logged meanwhile.
    pub(super) fn all_logged(&mut self) -> bool {
        while let Some(&index) = self.dirty.last() {
            if let Some(slot) = self.get_mut(index) {
                if slot.consumer.needs_log().is_some() {
                    return false;
                }
                slot.listed.dirty = false;
            }
            self.dirty.pop();
        }
        true
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, index: u32) -> Option<&ConsumerSlot<T>> {
        self.slots.get(index as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut ConsumerSlot<T>> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, consumer: Consumer<T>) -> u32 {
        self.in_memory += usize::from(consumer.is_memory());
        if let Some(index) = self.find(consumer.name()) {
            if let Some(slot) = self.get_mut(index) {
                let old = std::mem::replace(&mut slot.consumer, consumer);
                self.in_memory -= usize::from(old.is_memory());
            }
            return index;
        }
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.by_name.insert(consumer.name().into(), index);
        let slot = ConsumerSlot { consumer, scheduled: None, listed: Listed::default() };
        if index as usize == self.slots.len() {
            self.slots.push(Some(Box::new(slot)));
        } else {
            self.slots[index as usize] = Some(Box::new(slot));
        }
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Box<ConsumerSlot<T>>> {
        let slot = self.slots.get_mut(index as usize)?.take()?;
        self.by_name.remove(slot.consumer.name());
        self.in_memory -= usize::from(slot.consumer.is_memory());
        self.free.push(index);
        Some(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Consumer<T>> {
        self.slots.iter().flatten().map(|slot| &slot.consumer)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Consumer<T>> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.consumer)
    }

    pub(super) fn configs(&self) -> impl Iterator<Item = &ConsumerConfig> {
        self.iter().map(Consumer::config)
    }

    pub(super) fn indexes(&self) -> Vec<u32> {
        let mut indexes: Vec<u32> = self.by_name.values().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    /// Names in order, with indexes.
    pub(super) fn sorted(&self) -> Vec<(&str, u32)> {
        let mut names: Vec<(&str, u32)> =
            self.by_name.iter().map(|(name, &index)| (&**name, index)).collect();
        names.sort_unstable();
        names
    }

    /// They have come from another engine: they are on none of this one's lists, and what waits for
    /// a frame waits for none of this log's.
    pub(super) fn unpack(&mut self) {
        self.caught_up = CaughtUp::default();
        self.full.clear();
        self.dirty.clear();
        for slot in self.slots.iter_mut().flatten() {
            slot.scheduled = None;
            slot.listed = Listed::default();
            slot.consumer.rehomed();
        }
    }

    /// True if any consumer wants messages on this subject.
    #[inline]
    pub(super) fn any_wants(&self, subject: &[u8]) -> bool {
        self.iter().any(|consumer| consumer.wants(subject))
    }

    /// Writes the progress of those that have any to tell.
    ///
    /// # Errors
    /// The log has no room; what was not written stays to be logged.
    pub(super) fn log_progress<L: LogAccess>(
        &mut self,
        stream: StreamId,
        log: &mut L,
    ) -> Result<(), AppendError> {
        while let Some(&index) = self.dirty.last() {
            if let Some(slot) = self.get_mut(index) {
                if slot.consumer.needs_log().is_some() {
                    slot.consumer.log_state(stream, log, Urgency::Lazy)?;
                }
                slot.listed.dirty = false;
            }
            self.dirty.pop();
        }
        Ok(())
    }

    /// True if any consumer but `except` still needs a message.
    pub(super) fn any_needs(
        &mut self,
        stream: &Stream,
        seq: Seq,
        subject: u32,
        except: u32,
    ) -> bool {
        self.slots.iter_mut().enumerate().any(|(index, slot)| {
            index as u32 != except
                && slot.as_mut().is_some_and(|slot| slot.consumer.needs(stream, seq, subject))
        })
    }
}

/// The surroundings of a consumer of `stream`.
pub(super) fn env<'a, L, S>(
    stream: &'a Stream,
    sink: &'a mut S,
    log: &'a mut L,
    domain: &'a str,
    released: &'a mut Vec<Seq>,
) -> Env<'a, Stream, L, S> {
    let removes = stream.limits().retention != RetentionPolicy::Limits;
    Env {
        index: stream,
        log,
        sink,
        account: stream.account(),
        stream: stream.id(),
        stream_name: &stream.config().name,
        domain,
        released: removes.then_some(released),
    }
}

/// True if we have the API level that a request's headers ask for, if they do.
pub(super) fn offers_level(headers: &[u8]) -> bool {
    headers.is_empty() || find_header(headers, b"Nats-Required-Api-Level").is_none_or(is_level_met)
}

impl<S: Sink> Engine<S> {
    /// Calls a consumer and sees to what follows from it.
    pub(super) fn call<L: LogAccess, R>(
        &mut self,
        key: ConsumerKey,
        log: &mut L,
        call: impl FnOnce(&mut Consumer<S::Target>, &mut Env<'_, Stream, L, S>) -> R,
    ) -> Option<R> {
        let (slot, ledger) = self.streams.entry(key.stream)?;
        let consumer = slot.consumers.get_mut(key.index)?;
        let mut released = std::mem::take(&mut self.scratch.released);
        let mut env = env(&slot.stream, self.out.sink_mut(), log, &slot.domain, &mut released);
        let outcome = call(&mut consumer.consumer, &mut env);
        if !released.is_empty() {
            let must_tell = slot.release(key.index, &mut released, log);
            ledger.settle(slot);
            if must_tell {
                ledger.delete_later(key.stream, log.now());
            }
        }
        self.scratch.released = released;
        self.file(key, log.now());
        Some(outcome)
    }

    /// Puts a consumer on the lists that it belongs to now.
    fn file(&mut self, key: ConsumerKey, now: Timestamp) {
        let (slot, ledger) = self.streams.entry(key.stream).expect("the consumer was called");
        let consumers = &mut slot.consumers;
        let entry = consumers.slots.get_mut(key.index as usize);
        let entry = entry.and_then(|slot| slot.as_deref_mut()).expect("the consumer was called");
        let (consumer, listed) = (&entry.consumer, &mut entry.listed);
        ledger.schedule_consumer(key, &mut entry.scheduled, consumer.next_deadline());
        if consumer.has_caught_up() && !std::mem::replace(&mut listed.caught_up, true) {
            consumers.caught_up.push(key.index, consumer.config());
        }
        if consumer.waits_for_receiver() && !std::mem::replace(&mut listed.slow, true) {
            self.lists.slow.push(key);
        }
        if consumer.waits_for_load() && !std::mem::replace(&mut listed.loading, true) {
            self.lists.loading.entry(key.stream).or_default().push(key.index);
        }
        if consumer.is_full() && !std::mem::replace(&mut listed.full, true) {
            if consumers.full.is_empty() {
                slot.removals_seen = slot.stream.removal_cursor();
            }
            consumers.full.push(key.index);
        }
        if consumer.awaits_commit() && !std::mem::replace(&mut listed.awaiting, true) {
            self.lists.awaiting.push(key);
        }
        let needs_log = consumer.needs_log();
        if needs_log.is_some() && !std::mem::replace(&mut listed.dirty, true) {
            consumers.dirty.push(key.index);
        }
        if needs_log == Some(Urgency::Awaited) && !std::mem::replace(&mut listed.urgent, true) {
            self.lists.urgent.push(key);
        }
        if needs_log.is_some() && !std::mem::replace(&mut listed.unlogged, true) {
            self.lists.unlogged.push(key);
            let at = now.plus_nanos(PROGRESS_LOG_INTERVAL_NS);
            self.lists.log_at.get_or_insert(at);
        }
    }

    pub(super) fn listed(&mut self, key: ConsumerKey) -> Option<&mut Listed> {
        self.streams.consumer(key).map(|consumer| &mut consumer.listed)
    }

    /// Pumps a consumer at the end of this turn.
    pub(super) fn pump_later(&mut self, key: ConsumerKey) {
        if let Some(listed) = self.listed(key)
            && !std::mem::replace(&mut listed.called, true)
        {
            self.lists.called.push(key);
        }
    }

    fn key(&self, stream: StreamId, name: &[u8]) -> Option<ConsumerKey> {
        self.streams.consumer_key(stream, std::str::from_utf8(name).ok()?).ok()
    }

    pub(super) fn ack<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &AckItem,
        log: &mut L,
    ) {
        let reply = item.reply.of(&batch.buf);
        let Some(key) = self.key(item.stream, item.consumer.of(&batch.buf)) else {
            if !reply.is_empty() {
                // As for a pull; only that the header with the subject is missing.
                let account = self.streams.account_of(item.stream);
                let headers = b"NATS/1.0 503\r\n\r\n";
                let message = Message { subject: reply, reply: b"", headers, body: b"" };
                self.out.sink_mut().reply(account, &batch.peer, item.hint, &message);
            }
            return;
        };
        let ack = Ack {
            delivered: item.delivered,
            stream_seq: Seq(item.stream_seq),
            consumer_seq: item.consumer_seq,
            reply,
            body: item.body.of(&batch.buf),
        };
        self.call(key, log, |consumer, env| consumer.ack(env, &ack));
        self.pump_later(key);
    }

    pub(super) fn pull<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PullItem,
        log: &mut L,
    ) {
        let reply = item.reply.of(&batch.buf);
        let Some(key) = self.key(item.stream, item.consumer.of(&batch.buf)) else {
            let name = item.consumer.of(&batch.buf);
            self.no_such_consumer(batch, item.stream, item.hint, name, reply);
            return;
        };
        if !offers_level(item.headers.of(&batch.buf)) {
            return self.refuse_level(batch, item.stream, item.hint, reply);
        }
        let pull = Pull { reply, body: item.body.of(&batch.buf) };
        self.call(key, log, |consumer, env| consumer.pull(env, &pull));
        self.pump_later(key);
    }

    /// A request asks for an API level that we do not have (ADR-44).
    #[cold]
    pub(super) fn refuse_level(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        stream: StreamId,
        hint: u32,
        reply: &[u8],
    ) {
        if reply.is_empty() {
            return;
        }
        let account = self.streams.account_of(stream);
        let headers = b"NATS/1.0 412 Required Api Level\r\n\r\n";
        let message = Message { subject: reply, reply: b"", headers, body: b"" };
        self.out.sink_mut().reply(account, &batch.peer, hint, &message);
    }

    /// The incumbent has no subscription for a missing consumer: the client sees "no responders".
    fn no_such_consumer(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        stream: StreamId,
        hint: u32,
        name: &[u8],
        reply: &[u8],
    ) {
        if reply.is_empty() {
            return;
        }
        let stream = self.streams.get(stream).map(|slot| &slot.stream);
        let account = stream.map_or_else(Default::default, Stream::account);
        let mut headers = b"NATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.".to_vec();
        headers.extend_from_slice(stream.map_or("", |s| &s.config().name).as_bytes());
        headers.push(b'.');
        headers.extend_from_slice(name);
        headers.extend_from_slice(b"\r\n\r\n");
        let message = Message { subject: reply, reply: b"", headers: &headers, body: b"" };
        self.out.sink_mut().reply(account, &batch.peer, hint, &message);
    }

    pub(super) fn flow<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &FlowItem,
        log: &mut L,
    ) {
        let Some(key) = self.key(item.stream, item.consumer.of(&batch.buf)) else { return };
        let subject = item.subject.of(&batch.buf);
        self.call(key, log, |consumer, _| consumer.flow_response(subject));
        self.pump_later(key);
    }

    /// Interest in a subject (or pattern) changed: tells the push consumers that deliver to it. With
    /// `None` all of them look again, and pull consumers that wait do as well.
    pub(super) fn interest<L: LogAccess>(&mut self, changed: Option<&[u8]>, log: &mut L) {
        let mut keys: Vec<ConsumerKey> = match changed {
            Some(literal) if !subject::has_wildcard(literal) => {
                self.deliver_subjects.get(literal).cloned().unwrap_or_default()
            }
            _ => {
                let concerns =
                    |deliver: &[u8]| changed.is_none_or(|p| subject::matches(p, deliver));
                let map = self.deliver_subjects.iter();
                map.filter(|(deliver, _)| concerns(deliver)).flat_map(|(_, k)| k).copied().collect()
            }
        };
        if changed.is_none() {
            for slot in self.streams.iter() {
                let stream = slot.stream.id();
                let caught_up = slot.consumers.caught_up.iter();
                keys.extend(caught_up.map(|index| ConsumerKey { stream, index }));
            }
        }
        for key in keys {
            self.call(key, log, Consumer::interest_changed);
            self.pump_later(key);
        }
    }

    /// Notes where a consumer delivers to, so that changes of interest find it.
    pub(super) fn watch_deliver_subject(&mut self, key: ConsumerKey) {
        let slot = self.streams.get(key.stream).and_then(|slot| slot.consumers.get(key.index));
        if let Some(subject) = slot.and_then(|slot| slot.consumer.deliver_subject()) {
            let keys = self.deliver_subjects.entry(subject.as_bytes().into()).or_default();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }

    /// The reverse of [`Engine::watch_deliver_subject`].
    pub(super) fn unwatch_deliver_subject(&mut self, key: ConsumerKey) {
        let slot = self.streams.get(key.stream).and_then(|slot| slot.consumers.get(key.index));
        let subject = slot.and_then(|slot| slot.consumer.deliver_subject());
        if let Some(subject) = subject.map(str::as_bytes)
            && let Some(keys) = self.deliver_subjects.get_mut(subject)
        {
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                self.deliver_subjects.remove(subject);
            }
        }
    }

    /// Double acks whose frame has committed are confirmed.
    pub(super) fn confirm_double_acks<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) {
        for key in std::mem::take(&mut self.lists.awaiting) {
            if let Some(listed) = self.listed(key) {
                listed.awaiting = false;
                self.call(key, log, |consumer, env| consumer.committed(env, lsn));
            }
        }
    }

    /// Lets a consumer deliver, unless its stream is between two logs: then all of them are pumped
    /// at the end of that.
    pub(super) fn pump<L: LogAccess>(&mut self, key: ConsumerKey, log: &mut L) {
        if self.streams.is_held(key.stream) {
            return;
        }
        let missing = self.call(key, log, |consumer, env| {
            consumer.pump(env);
            consumer.take_missing()
        });
        if let Some(Some(seq)) = missing
            && let Some(slot) = self.streams.get(key.stream)
        {
            self.out.note_missing(slot, seq, log);
        }
    }

    /// The end of a step: pumps who was called, logs what is awaited.
    pub(super) fn end_step<L: LogAccess>(&mut self, log: &mut L) {
        for key in std::mem::take(&mut self.lists.called) {
            if let Some(listed) = self.listed(key) {
                listed.called = false;
                self.pump(key, log);
            }
        }
        self.log_awaited(log);
    }

    /// Logs the progress that double acks wait for.
    fn log_awaited<L: LogAccess>(&mut self, log: &mut L) {
        for key in std::mem::take(&mut self.lists.urgent) {
            let Some(listed) = self.listed(key) else { continue };
            listed.urgent = false;
            self.call(key, log, |consumer, env| {
                if consumer.needs_log() == Some(Urgency::Awaited) {
                    // Without room it stays to be logged, and the ack unconfirmed.
                    let _ = consumer.log_state(env.stream, env.log, Urgency::Awaited);
                }
            });
        }
    }

    /// Writes the progress of every consumer that has any to tell.
    pub(super) fn log_progress<L: LogAccess>(&mut self, log: &mut L) {
        self.lists.log_at = None;
        self.streams.log_undeleted(log);
        let keys = std::mem::take(&mut self.lists.unlogged);
        for &key in &keys {
            let Some(listed) = self.listed(key) else { continue };
            listed.unlogged = false;
            self.call(key, log, |consumer, env| {
                if consumer.needs_log().is_some() {
                    // Without room it stays to be logged: `file` lists it again.
                    let _ = consumer.log_state(env.stream, env.log, Urgency::Lazy);
                }
            });
        }
        for key in keys {
            let Some(slot) = self.streams.get_mut(key.stream) else { continue };
            slot.note_if_logged();
        }
    }
}
