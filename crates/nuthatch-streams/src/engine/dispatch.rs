//! Calls of consumers: by their clients, in this turn, on commit, at a deadline. Who waits for a
//! receiver, a load, a commit or the end of a turn is on a list of its own, so that no other consumer
//! is looked at when that comes.

use super::consumers::{ConsumerKey, Listed, env, offers_level};
use super::ledger::PROGRESS_LOG_INTERVAL_NS;
use super::outputs::Outputs;
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::consumer::{Ack, Consumer, EndOfPulls, Env, FlowReply, Pull, TickOutcome};
use crate::event::{AckItem, ClientBatch, FlowItem, PullItem};
use crate::sink::Sink;
use crate::stream::Contents;
use nuthatch_log::{LogAccess, Lsn, Seq, StreamId, Timestamp, Urgency};
use nuthatch_protocol::subject;
use rustc_hash::FxHashMap;

/// Consumers that want something later. An entry may be stale: its consumer is asked again.
#[derive(Default)]
pub(super) struct Dispatcher {
    /// Called in this turn: to be pumped at its end.
    called: Vec<ConsumerKey>,
    /// With progress that is not in the log.
    unlogged: Vec<ConsumerKey>,
    /// When it is written at the latest.
    log_at: Option<Timestamp>,
    /// With progress that a double ack waits for: to be logged at the end of this step.
    urgent: Vec<ConsumerKey>,
    /// With a double ack that waits for a commit.
    awaiting: Vec<ConsumerKey>,
    /// Waiting for a receiver.
    slow: Vec<ConsumerKey>,
    /// Waiting for a load of their stream, by index.
    loading: FxHashMap<StreamId, Vec<u32>>,
    /// Push consumers by the subject that they deliver to.
    deliver_subjects: FxHashMap<Box<[u8]>, Vec<ConsumerKey>>,
    /// Keeps its memory between calls.
    released: Vec<Seq>,
}

/// Takes a consumer from a list; `false` if it was not on it any more.
fn take<S: Sink>(
    key: ConsumerKey,
    streams: &mut Streams<S>,
    list: fn(&mut Listed) -> &mut bool,
) -> bool {
    streams.consumer(key).is_some_and(|slot| std::mem::take(list(&mut slot.listed)))
}

impl Dispatcher {
    /// When progress is to be logged.
    pub(super) const fn log_at(&self) -> Option<Timestamp> {
        self.log_at
    }

    /// Calls a consumer and sees to what follows from it.
    pub(super) fn call<S: Sink, L: LogAccess, R>(
        &mut self,
        key: ConsumerKey,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
        call: impl FnOnce(&mut Consumer<S::Target>, &mut Env<'_, Contents, L, S>) -> R,
    ) -> Option<R> {
        let (slot, ledger) = streams.entry(key.stream)?;
        let consumer = slot.consumers.get_mut(key.index)?;
        let mut released = std::mem::take(&mut self.released);
        let mut env = env(&slot.stream, out.sink_mut(), log, &slot.domain, &mut released);
        let outcome = call(&mut consumer.consumer, &mut env);
        if !released.is_empty() {
            let must_tell = slot.release(key.index, &mut released, log);
            ledger.settle(slot);
            if must_tell {
                ledger.delete_later(key.stream, log.now());
            }
        }
        self.released = released;
        self.file(key, streams, log.now());
        Some(outcome)
    }

    /// Puts a consumer on the lists that it belongs to now.
    #[inline]
    fn file<S: Sink>(&mut self, key: ConsumerKey, streams: &mut Streams<S>, now: Timestamp) {
        let (slot, ledger) = streams.entry(key.stream).expect("the consumer was called");
        if slot.consumers.file(key.index) {
            slot.note_removals();
        }
        let entry = slot.consumers.get_mut(key.index).expect("the consumer was called");
        let (consumer, listed) = (&entry.consumer, &mut entry.listed);
        ledger.schedule_consumer(key, &mut entry.scheduled, consumer.next_deadline());
        if consumer.waits_for_receiver() && !std::mem::replace(&mut listed.slow, true) {
            self.slow.push(key);
        }
        if consumer.waits_for_load() && !std::mem::replace(&mut listed.loading, true) {
            self.loading.entry(key.stream).or_default().push(key.index);
        }
        if consumer.awaits_commit() && !std::mem::replace(&mut listed.awaiting, true) {
            self.awaiting.push(key);
        }
        let needs_log = consumer.needs_log();
        if needs_log == Some(Urgency::Awaited) && !std::mem::replace(&mut listed.urgent, true) {
            self.urgent.push(key);
        }
        if needs_log.is_some() && !std::mem::replace(&mut listed.unlogged, true) {
            self.unlogged.push(key);
            self.log_at.get_or_insert(now.plus_nanos(PROGRESS_LOG_INTERVAL_NS));
        }
    }

    /// Pumps a consumer at the end of this turn.
    #[inline]
    pub(super) fn pump_later<S: Sink>(&mut self, key: ConsumerKey, streams: &mut Streams<S>) {
        if let Some(slot) = streams.consumer(key)
            && !std::mem::replace(&mut slot.listed.called, true)
        {
            self.called.push(key);
        }
    }

    /// Lets a consumer deliver, unless its stream is between two logs: then all of them are pumped
    /// at the end of that.
    fn pump<S: Sink, L: LogAccess>(
        &mut self,
        key: ConsumerKey,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        if streams.is_held(key.stream) {
            return;
        }
        let missing = self.call(key, streams, out, log, |consumer, env| {
            consumer.pump(env);
            consumer.take_missing()
        });
        if let Some(Some(seq)) = missing
            && let Some(slot) = streams.get(key.stream)
        {
            out.note_missing(&slot.stream, seq, log);
        }
    }

    /// Calls a consumer at the time that it asked for; `None` if it does not ask for it any more.
    pub(super) fn tick<S: Sink, L: LogAccess>(
        &mut self,
        key: ConsumerKey,
        at: Timestamp,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) -> Option<TickOutcome> {
        let is_held = streams.is_held(key.stream);
        let slot = streams.consumer(key)?;
        slot.scheduled.take_if(|scheduled| *scheduled == at)?;
        if is_held {
            // It is called, and with that scheduled again, once the stream goes on.
            return None;
        }
        let ticked = self.call(key, streams, out, log, |consumer, env| {
            (consumer.tick(env), consumer.take_missing())
        });
        let (outcome, missing) = ticked?;
        if let Some(seq) = missing
            && let Some(slot) = streams.get(key.stream)
        {
            out.note_missing(&slot.stream, seq, log);
        }
        Some(outcome)
    }

    /// An acknowledgement of any kind.
    pub(super) fn ack<S: Sink, L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &AckItem,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let reply = item.reply.of(&batch.buf);
        let Some(key) = find(item.stream, item.consumer.of(&batch.buf), streams) else {
            // As for a pull; only that the header with the subject is missing.
            let account = streams.account_of(item.stream);
            return out.reply(account, batch, item.hint, reply, b"NATS/1.0 503\r\n\r\n");
        };
        let ack = Ack {
            delivered: item.delivered,
            stream_seq: Seq(item.stream_seq),
            consumer_seq: item.consumer_seq,
            reply,
            body: item.body.of(&batch.buf),
        };
        self.call(key, streams, out, log, |consumer, env| consumer.ack(env, &ack));
        self.pump_later(key, streams);
    }

    /// A pull request.
    pub(super) fn pull<S: Sink, L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PullItem,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let (reply, name) = (item.reply.of(&batch.buf), item.consumer.of(&batch.buf));
        let Some(key) = find(item.stream, name, streams) else {
            let account = streams.account_of(item.stream);
            let headers = no_such_consumer(streams.name_of(item.stream), name);
            return out.reply(account, batch, item.hint, reply, &headers);
        };
        if !offers_level(item.headers.of(&batch.buf)) {
            let account = streams.account_of(item.stream);
            return out.refuse_level(account, batch, item.hint, reply);
        }
        let pull = Pull { reply, body: item.body.of(&batch.buf) };
        self.call(key, streams, out, log, |consumer, env| consumer.pull(env, &pull));
        self.pump_later(key, streams);
    }

    /// An answer to a flow control request.
    pub(super) fn flow<S: Sink, L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &FlowItem,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let Some(key) = find(item.stream, item.consumer.of(&batch.buf), streams) else { return };
        let reply = FlowReply {
            subject: item.subject.of(&batch.buf),
            headers: item.headers.of(&batch.buf),
        };
        self.call(key, streams, out, log, |consumer, env| consumer.flow_response(env, &reply));
        self.pump_later(key, streams);
    }

    /// Interest in a subject (or pattern) changed: tells the push consumers that deliver to it. With
    /// `None` all of them look again.
    pub(super) fn interest<S: Sink, L: LogAccess>(
        &mut self,
        changed: Option<&[u8]>,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let keys: Vec<ConsumerKey> = match changed {
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
        for key in keys {
            self.call(key, streams, out, log, Consumer::interest_changed);
            self.pump_later(key, streams);
        }
    }

    /// The log is about to be closed: tells the requests that wait on any consumer.
    pub(super) fn end_pulls<S: Sink, L: LogAccess>(
        &mut self,
        why: EndOfPulls,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let keys_of = |slot: &StreamSlot<S>| {
            let stream = slot.stream.id();
            let indexes = slot.consumers.indexes().into_iter();
            indexes.map(move |index| ConsumerKey { stream, index }).collect::<Vec<_>>()
        };
        let keys: Vec<ConsumerKey> = streams.iter().flat_map(keys_of).collect();
        for key in keys {
            self.call(key, streams, out, log, |consumer, env| consumer.end_pulls(env, why));
        }
    }

    /// Notes where a consumer delivers to, so that changes of interest find it.
    pub(super) fn watch<S: Sink>(&mut self, key: ConsumerKey, streams: &Streams<S>) {
        let slot = streams.get(key.stream).and_then(|slot| slot.consumers.get(key.index));
        if let Some(subject) = slot.and_then(|slot| slot.consumer.deliver_subject()) {
            let keys = self.deliver_subjects.entry(subject.as_bytes().into()).or_default();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }

    /// The reverse of [`Dispatcher::watch`].
    pub(super) fn unwatch<S: Sink>(&mut self, key: ConsumerKey, streams: &Streams<S>) {
        let slot = streams.get(key.stream).and_then(|slot| slot.consumers.get(key.index));
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

    /// The consumers of a stream begin to work, after a recovery or a restore.
    pub(super) fn start<S: Sink, L: LogAccess>(
        &mut self,
        id: StreamId,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let Some(slot) = streams.get(id) else { return };
        let config = slot.stream.shared_config();
        for index in slot.consumers.indexes() {
            let key = ConsumerKey { stream: id, index };
            self.watch(key, streams);
            self.call(key, streams, out, log, |consumer, env| consumer.recovered(&config, env));
            self.pump_later(key, streams);
        }
    }

    /// The consumers of a stream go on, after a migration.
    pub(super) fn resume<S: Sink, L: LogAccess>(
        &mut self,
        id: StreamId,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let Some(slot) = streams.get(id) else { return };
        for index in slot.consumers.indexes() {
            let key = ConsumerKey { stream: id, index };
            self.watch(key, streams);
            self.call(key, streams, out, log, Consumer::interest_changed);
            self.pump_later(key, streams);
        }
    }

    /// Consumers that waited for a receiver go on.
    pub(super) fn wake_slow<S: Sink, L: LogAccess>(
        &mut self,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        for key in std::mem::take(&mut self.slow) {
            if take(key, streams, |listed| &mut listed.slow) {
                self.pump(key, streams, out, log);
            }
        }
    }

    /// Consumers of a stream that waited for a load go on.
    pub(super) fn wake_loading<S: Sink, L: LogAccess>(
        &mut self,
        stream: StreamId,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        for index in self.loading.remove(&stream).unwrap_or_default() {
            let key = ConsumerKey { stream, index };
            if take(key, streams, |listed| &mut listed.loading) {
                self.pump(key, streams, out, log);
            }
        }
    }

    /// Consumers with too many messages out look whether some of them have left their stream.
    pub(super) fn wake_full<S: Sink, L: LogAccess>(
        &mut self,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        for key in streams.take_full(log.now()) {
            if take(key, streams, |listed| &mut listed.full) {
                self.pump(key, streams, out, log);
            }
        }
    }

    /// Messages after `seen` are visible now: whoever waits for them is served.
    pub(super) fn wake_caught_up<S: Sink, L: LogAccess>(
        &mut self,
        stream: StreamId,
        seen: Seq,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        let Some(slot) = streams.get_mut(stream) else { return };
        if slot.consumers.caught_up.is_empty() {
            return;
        }
        for index in slot.consumers.caught_up.wake(&slot.stream, seen) {
            let key = ConsumerKey { stream, index };
            if take(key, streams, |listed| &mut listed.caught_up) {
                self.pump(key, streams, out, log);
            }
        }
    }

    /// Double acks whose frame has committed are confirmed.
    pub(super) fn confirm<S: Sink, L: LogAccess>(
        &mut self,
        lsn: Lsn,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        for key in std::mem::take(&mut self.awaiting) {
            take(key, streams, |listed| &mut listed.awaiting);
            self.call(key, streams, out, log, |consumer, env| consumer.committed(env, lsn));
        }
    }

    /// The end of a step: pumps who was called, logs what is awaited.
    pub(super) fn end_step<S: Sink, L: LogAccess>(
        &mut self,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        for key in std::mem::take(&mut self.called) {
            if take(key, streams, |listed| &mut listed.called) {
                self.pump(key, streams, out, log);
            }
        }
        for key in std::mem::take(&mut self.urgent) {
            take(key, streams, |listed| &mut listed.urgent);
            self.call(key, streams, out, log, |consumer, env| {
                if consumer.needs_log() == Some(Urgency::Awaited) {
                    // Without room it stays to be logged, and the ack unconfirmed.
                    let _ = consumer.log_state(env.stream, env.log, Urgency::Awaited);
                }
            });
        }
    }

    /// Writes the progress of every consumer that has any to tell, and what streams dropped.
    pub(super) fn log_progress<S: Sink, L: LogAccess>(
        &mut self,
        streams: &mut Streams<S>,
        out: &mut Outputs<S>,
        log: &mut L,
    ) {
        self.log_at = None;
        streams.log_undeleted(log);
        let keys = std::mem::take(&mut self.unlogged);
        for &key in &keys {
            take(key, streams, |listed| &mut listed.unlogged);
            self.call(key, streams, out, log, |consumer, env| {
                if consumer.needs_log().is_some() {
                    // Without room it stays to be logged: `file` lists it again.
                    let _ = consumer.log_state(env.stream, env.log, Urgency::Lazy);
                }
            });
        }
        for key in keys {
            if let Some(slot) = streams.get_mut(key.stream) {
                slot.note_if_logged();
            }
        }
    }
}

#[inline]
fn find<S: Sink>(stream: StreamId, name: &[u8], streams: &Streams<S>) -> Option<ConsumerKey> {
    streams.find_consumer(stream, std::str::from_utf8(name).ok()?)
}

/// The incumbent has no subscription for a missing consumer: the client sees "no responders".
fn no_such_consumer(stream: &str, name: &[u8]) -> Vec<u8> {
    let mut headers = b"NATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.".to_vec();
    headers.extend_from_slice(stream.as_bytes());
    headers.push(b'.');
    headers.extend_from_slice(name);
    headers.extend_from_slice(b"\r\n\r\n");
    headers
}
