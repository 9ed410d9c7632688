//! Operations on the consumers of a stream.

use super::advisory::random_name;
use super::consumers::{ConsumerKey, env};
use super::dispatch::Dispatcher;
use super::interest::Sweeps;
use super::outputs::{Done, Outputs};
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::consumer::{
    Consumer, ConsumerLimits, Env, Filter, PreparedConsumer, check_alone, check_create,
    check_workqueue, validate_prepared,
};
use crate::op::{OpOutcome, OpResult};
use crate::records::CONSUMER_DELETE_BODY;
use crate::rules::DURABLE_INFO;
use crate::sink::Sink;
use crate::stream::{Contents, LAST_SEQ_MAX, refusal};
use nuthatch_log::{AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Urgency};
use nuthatch_protocol::js::{
    ConsumerAction, ConsumerConfig, ConsumerInfo, ConsumerSnapshot, CreateConsumerRequest,
    RetentionPolicy, StreamConfig,
};
use nuthatch_protocol::jserror::JsError;

/// Characters of a made-up consumer name, as many as the incumbent's.
const CONSUMER_NAME_CHARS: usize = 8;

/// What one operation on consumers uses of an engine.
pub(super) struct ConsumerOps<'a, S: Sink, L: LogAccess> {
    dispatch: &'a mut Dispatcher,
    streams: &'a mut Streams<S>,
    sweeps: &'a mut Sweeps,
    out: &'a mut Outputs<S>,
    /// Those of the server.
    limits: &'a ConsumerLimits,
    log: &'a mut L,
}

impl<'a, S: Sink, L: LogAccess> ConsumerOps<'a, S, L> {
    /// For one operation.
    pub(super) const fn new(
        dispatch: &'a mut Dispatcher,
        streams: &'a mut Streams<S>,
        sweeps: &'a mut Sweeps,
        out: &'a mut Outputs<S>,
        limits: &'a ConsumerLimits,
        log: &'a mut L,
    ) -> Self {
        Self { dispatch, streams, sweeps, out, limits, log }
    }

    fn call<R>(
        &mut self,
        key: ConsumerKey,
        call: impl FnOnce(&mut Consumer<S::Target>, &mut Env<'_, Contents, L, S>) -> R,
    ) -> Option<R> {
        self.dispatch.call(key, self.streams, self.out, self.log, call)
    }

    /// The limits of the server on consumers, or lower ones of the stream's account.
    fn limits_of(&mut self, id: StreamId) -> Result<ConsumerLimits, JsError> {
        let account = self.streams.live(id)?.stream.account();
        let mut limits = *self.limits;
        let Some(bounds) = self.streams.ledger().budget().bounds_of(account) else {
            return Ok(limits);
        };
        // 0 is no limit in both.
        let lower = |one: i64, other: i64| {
            if one > 0 && other > 0 { one.min(other) } else { one.max(other) }
        };
        limits.max_ack_pending = lower(limits.max_ack_pending, bounds.max_ack_pending);
        limits.max_consumers = lower(limits.max_consumers, bounds.max_consumers);
        Ok(limits)
    }

    pub(super) fn create(&mut self, id: StreamId, prepared: &PreparedConsumer) -> Done {
        let limits = self.limits_of(id)?;
        let slot = self.streams.live(id)?;
        let mut config = validate_prepared(prepared, slot.stream.config(), &limits)?;
        let existing = slot.consumers.find(&config.name).filter(|_| !config.name.is_empty());
        let existing = existing.map(|index| ConsumerKey { stream: id, index });
        if let Some(key) = existing {
            // The notice that its listener has gone may still be on its way.
            self.call(key, Consumer::push_is_open);
        }
        let slot = self.streams.live(id)?;
        if let Some(old) = existing.and_then(|key| slot.consumers.get(key.index)) {
            keep_start(&mut config, old.consumer.config());
        }
        let action = prepared.request().action;
        let filter = prepared.filter();
        if existing.is_some() && is_created_anew(prepared.request(), &config, slot.stream.config())
        {
            return Err(JsError::CONSUMER_ALREADY_EXISTS);
        }
        let index = existing.map(|key| key.index);
        check_beside(slot, (&config, filter), index, action, limits.max_consumers)?;
        while config.name.is_empty() {
            let name = random_name(CONSUMER_NAME_CHARS, self.log);
            if slot.consumers.find(&name).is_none() {
                config.name = name;
            }
        }
        let Some(key) = existing else {
            self.streams.live(id)?.log_releases(self.log)?;
            return self.add(id, config, filter.clone(), prepared.is_held());
        };
        let is_same =
            slot.consumers.get(key.index).is_some_and(|old| *old.consumer.config() == config);
        if is_same && !config.sourcing {
            let uncommitted = slot.stream.contents().uncommitted();
            return self.outcome(key, uncommitted);
        }
        self.streams.live(id)?.log_releases(self.log)?;
        self.update(key, config, filter.clone())
    }

    fn add(&mut self, id: StreamId, config: ConsumerConfig, filter: Filter, held: bool) -> Done {
        let (slot, ledger) = self.streams.entry(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        slot.stream.contents_mut().set_has_consumers(true);
        let mut released = Vec::new();
        let stream_config = slot.stream.shared_config();
        let mut env = env(&slot.stream, self.out.sink_mut(), self.log, &slot.domain, &mut released);
        let consumer = Consumer::create(config, filter, &stream_config, &mut env);
        let lsn = match append_consumer(id, &consumer, self.log) {
            Ok(lsn) => lsn,
            Err(error) => {
                slot.stream.contents_mut().set_has_consumers(!slot.consumers.is_empty());
                return Err(refusal(error));
            }
        };
        let mut consumer = consumer;
        consumer.logged_at(lsn, self.log.committed());
        if held {
            consumer.hold(self.log.now());
        }
        let name = consumer.name().to_owned();
        let index = slot.consumers.insert(consumer);
        ledger.stored(slot, lsn);
        self.out.advise_consumer(slot, &name, "create", self.log);
        let key = ConsumerKey { stream: id, index };
        self.dispatch.watch(key, self.streams);
        self.outcome(key, Some(lsn))
    }

    fn update(&mut self, key: ConsumerKey, config: ConsumerConfig, filter: Filter) -> Done {
        self.dispatch.unwatch(key, self.streams);
        let slot = self.streams.get_mut(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        let stream_config = slot.stream.shared_config();
        let appended = self.call(key, |consumer, env| {
            let (old, old_filter) = (consumer.config().clone(), consumer.filter().clone());
            consumer.update(config, filter, &stream_config, env);
            if consumer.config().sourcing {
                // Whoever copies begins anew behind what it has let go.
                consumer.reset(0, &stream_config, env).expect("it is where it was before");
            }
            let appended = append_consumer(key.stream, consumer, env.log);
            match appended {
                Ok(lsn) => consumer.logged_at(lsn, env.log.committed()),
                Err(_) => consumer.update(old, old_filter, &stream_config, env),
            }
            appended
        });
        self.dispatch.watch(key, self.streams);
        let lsn = appended.ok_or(JsError::CONSUMER_NOT_FOUND)?.map_err(refusal)?;
        self.dispatch.pump_later(key, self.streams);
        if let Some((slot, ledger)) = self.streams.entry(key.stream) {
            ledger.stored(slot, lsn);
        }
        // With other filters it may need less.
        self.sweeps.start(key.stream, self.streams, self.log);
        self.outcome(key, Some(lsn))
    }

    pub(super) fn reset(&mut self, id: StreamId, name: &str, seq: u64) -> Done {
        let key = self.streams.consumer_key(id, name)?;
        if seq > LAST_SEQ_MAX {
            return Err(JsError::CONSUMER_INVALID_RESET.with_err("sequence too large"));
        }
        self.streams.live(id)?.log_releases(self.log)?;
        let config = self.streams.live(id)?.stream.shared_config();
        let done = self.call(key, |consumer, env| {
            let seq = consumer
                .reset(seq, &config, env)
                .map_err(|why| JsError::CONSUMER_INVALID_RESET.with_err(why))?;
            let lsn = append_consumer(id, consumer, env.log).map_err(refusal)?;
            consumer.logged_at(lsn, env.log.committed());
            Ok((seq, lsn))
        });
        let (seq, lsn) = done.ok_or(JsError::CONSUMER_NOT_FOUND)??;
        self.dispatch.pump_later(key, self.streams);
        self.streams.changed(id, lsn);
        // It may need less than before.
        self.sweeps.start(id, self.streams, self.log);
        match self.outcome(key, Some(lsn))? {
            (lsn, OpOutcome::Consumer(info)) => Ok((lsn, OpOutcome::Reset { seq, info })),
            other => Ok(other),
        }
    }

    /// A consumer that was held back delivers.
    pub(super) fn start(&mut self, id: StreamId, name: &str) -> OpResult {
        let key = self.streams.consumer_key(id, name)?;
        self.call(key, |consumer, _| consumer.start());
        self.dispatch.pump_later(key, self.streams);
        Ok(OpOutcome::Done)
    }

    pub(super) fn unpin(&mut self, id: StreamId, name: &str, group: &str) -> OpResult {
        let key = self.streams.consumer_key(id, name)?;
        let done = self.call(key, |consumer, env| consumer.unpin(group, env));
        done.ok_or(JsError::CONSUMER_NOT_FOUND)??;
        self.dispatch.pump_later(key, self.streams);
        Ok(OpOutcome::Done)
    }

    fn outcome(&mut self, key: ConsumerKey, lsn: Option<Lsn>) -> Done {
        let info = self.call(key, Consumer::info).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        self.dispatch.pump_later(key, self.streams);
        Ok((lsn, OpOutcome::Consumer(Box::new(info))))
    }

    pub(super) fn delete_named(&mut self, id: StreamId, name: &str) -> Done {
        let key = self.streams.consumer_key(id, name)?;
        let lsn = self.delete(key, Urgency::Awaited)?;
        Ok((Some(lsn), OpOutcome::Done))
    }

    /// After a start: consumers in memory are gone, as after a deletion that nobody is told of. One that
    /// could not be logged as gone stays until the next start, and so does one of a stream that keeps messages for its
    /// consumers only: a restart takes no message away that was acknowledged.
    pub(super) fn forget_memory(&mut self, id: StreamId) -> Result<(), JsError> {
        let may_forget = |slot: &&StreamSlot<S>| {
            slot.stream.config().retention == RetentionPolicy::Limits && slot.consumers.any_memory()
        };
        let Some(slot) = self.streams.get(id).filter(may_forget) else { return Ok(()) };
        for index in slot.consumers.indexes() {
            let slot = self.streams.get(id).and_then(|slot| slot.consumers.get(index));
            if slot.is_some_and(|slot| slot.consumer.is_memory()) {
                self.remove(ConsumerKey { stream: id, index }, Urgency::Lazy)?;
            }
        }
        Ok(())
    }

    /// Deletes a consumer: logs it, tells whoever waits, drops what only it needed.
    pub(super) fn delete(&mut self, key: ConsumerKey, urgency: Urgency) -> Result<Lsn, JsError> {
        let (name, lsn) = self.remove(key, urgency)?;
        if let Some(slot) = self.streams.get(key.stream) {
            self.out.advise_consumer(slot, &name, "delete", self.log);
        }
        Ok(lsn)
    }

    /// [`ConsumerOps::delete`], without an advisory: the consumer's name, and the frame.
    fn remove(&mut self, key: ConsumerKey, urgency: Urgency) -> Result<(String, Lsn), JsError> {
        let slot = self.streams.get_mut(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        slot.log_releases(self.log)?;
        let consumer = slot.consumers.get(key.index).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let name = consumer.consumer.name().to_owned();
        let record = RecordRef {
            kind: RecordKind::ConsumerDelete,
            stream: key.stream,
            seq: Seq(0),
            timestamp: self.log.now(),
            subject: name.as_bytes(),
            headers: b"",
            body: &CONSUMER_DELETE_BODY,
        };
        let lsn = self.log.append(&record, urgency, true).map_err(refusal)?.lsn;
        self.dispatch.unwatch(key, self.streams);
        let (slot, ledger) = self.streams.entry(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        if let Some(mut removed) = slot.consumers.remove(key.index) {
            let mut released = Vec::new();
            let mut env =
                env(&slot.stream, self.out.sink_mut(), self.log, &slot.domain, &mut released);
            removed.consumer.on_delete(&mut env);
        }
        slot.stream.contents_mut().set_has_consumers(!slot.consumers.is_empty());
        ledger.stored(slot, lsn);
        self.sweeps.start(key.stream, self.streams, self.log);
        Ok((name, lsn))
    }

    pub(super) fn info(&mut self, id: StreamId, name: &str) -> OpResult {
        let slot = self.streams.shown(id)?;
        let index = slot.consumers.find(name).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let key = ConsumerKey { stream: id, index };
        let info = self.shown_info(key).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        Ok(OpOutcome::Consumer(Box::new(info)))
    }

    /// The answer to a question about a consumer: after a failure of the log, only what is durable.
    fn shown_info(&mut self, key: ConsumerKey) -> Option<ConsumerInfo> {
        if self.out.has_failed() && DURABLE_INFO.holds() {
            return self.call(key, Consumer::durable_info);
        }
        self.call(key, Consumer::info)
    }

    pub(super) fn list(
        &mut self,
        id: StreamId,
        offset: usize,
        limit: usize,
        names_only: bool,
    ) -> OpResult {
        let slot = self.streams.live(id)?;
        let total = slot.consumers.listed();
        let page: Vec<(String, u32)> = slot
            .consumers
            .sorted()
            .into_iter()
            .skip(offset)
            .take(limit)
            .map(|(name, index)| (name.to_owned(), index))
            .collect();
        let mut infos = Vec::new();
        if !names_only {
            for &(_, index) in &page {
                infos.extend(self.shown_info(ConsumerKey { stream: id, index }));
            }
        }
        let names = page.into_iter().map(|(name, _)| name).collect();
        Ok(OpOutcome::Consumers { total, names, infos })
    }

    /// The configuration and the progress of a consumer.
    pub(super) fn state(&mut self, id: StreamId, name: &str) -> OpResult {
        let slot = self.streams.live(id)?;
        let index = slot.consumers.find(name).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let found = slot.consumers.get(index).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let consumer = &found.consumer;
        let (config, state) = (consumer.config().clone(), consumer.snapshot_state(self.log.now()));
        let snapshot = ConsumerSnapshot { config, state: Some(state) };
        Ok(OpOutcome::ConsumerState(Box::new(snapshot)))
    }
}

/// True if a request to create an ephemeral leaves its threshold to the server: then it never is the
/// consumer that exists (which has one), and the client is not told that it has what another one made.
fn is_created_anew(
    request: &CreateConsumerRequest,
    config: &ConsumerConfig,
    stream: &StreamConfig,
) -> bool {
    request.action == ConsumerAction::Create
        && config.durable_name.is_empty()
        && request.config.inactive_threshold <= 0
        && stream.consumer_limits.inactive_threshold <= 0
}

/// A durable consumer that copies goes on where it is, wherever its other side would begin.
fn keep_start(config: &mut ConsumerConfig, old: &ConsumerConfig) {
    if config.sourcing && !config.durable_name.is_empty() {
        config.deliver_policy = old.deliver_policy;
        config.opt_start_seq = old.opt_start_seq;
        config.opt_start_time = old.opt_start_time;
    }
}

/// Checks a consumer against the others of its stream.
fn check_beside<S: Sink>(
    slot: &StreamSlot<S>,
    (config, filter): (&ConsumerConfig, &Filter),
    existing: Option<u32>,
    action: ConsumerAction,
    default_max: i64,
) -> Result<(), JsError> {
    let old = existing.and_then(|index| slot.consumers.get(index));
    let is_queue = slot.stream.limits().retention == RetentionPolicy::Workqueue;
    let others = || slot.consumers.configs().filter(|other| other.name != config.name);
    match old {
        Some(old) => {
            if action == ConsumerAction::Create {
                check_create(old.consumer.config(), config)?;
            }
            // Which error comes first is as upstream, which has no rule against taking all filters away.
            let alone = if is_queue { check_alone(config, filter, others()) } else { Ok(()) };
            match alone {
                Err(error) if error != JsError::CONSUMER_WQ_MULTIPLE_UNFILTERED => {
                    return Err(error);
                }
                _ => old.consumer.check_update(config)?,
            }
        }
        None if action == ConsumerAction::Update => return Err(JsError::CONSUMER_DOES_NOT_EXIST),
        None => {
            let own_max = slot.stream.config().max_consumers;
            let max = if own_max > 0 { own_max } else { default_max };
            let counts = !config.direct && !config.sourcing;
            let is_full = |max| max > 0 && slot.consumers.limited() >= max;
            if counts && usize::try_from(max).is_ok_and(is_full) {
                return Err(JsError::MAXIMUM_CONSUMERS_LIMIT);
            }
        }
    }
    if is_queue { check_workqueue(config, filter, others()) } else { Ok(()) }
}

/// Logs a consumer that was created or updated.
pub(super) fn append_consumer<T, L: LogAccess>(
    id: StreamId,
    consumer: &Consumer<T>,
    log: &mut L,
) -> Result<Lsn, AppendError> {
    let mut body = Vec::new();
    consumer.encode(&mut body);
    let record = RecordRef {
        kind: RecordKind::ConsumerCreate,
        stream: id,
        seq: Seq(0),
        timestamp: log.now(),
        subject: consumer.name().as_bytes(),
        headers: b"",
        body: &body,
    };
    Ok(log.append(&record, Urgency::Awaited, false)?.lsn)
}
