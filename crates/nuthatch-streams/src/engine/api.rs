//! Management operations: dispatch, and those about consumers.

use super::Engine;
use super::advisory::random_name;
use super::consumers::{ConsumerKey, env};
use super::details::Details;
use super::outputs::Done;
use super::pending::OpOrInfo;
use super::stream_slot::StreamSlot;
use crate::consumer::{
    Consumer, ConsumerLimits, Filter, PreparedConsumer, check_create, check_workqueue,
    validate_prepared,
};
use crate::op::{Op, OpOutcome, OpResult, Respond, Usage};
use crate::records::CONSUMER_DELETE_BODY;
use crate::rules::DURABLE_INFO;
use crate::sink::Sink;
use crate::stream::LAST_SEQ_MAX;
use crate::stream::refusal;
use nuthatch_log::{AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Urgency};
use nuthatch_protocol::js::{ConsumerAction, ConsumerConfig, ConsumerInfo, RetentionPolicy};
use nuthatch_protocol::jserror::JsError;

/// Characters of a made-up consumer name, as many as the incumbent's.
const CONSUMER_NAME_CHARS: usize = 8;

impl<S: Sink> Engine<S> {
    /// Runs an operation. Whoever waits is told at once, or once it is durable.
    pub(super) fn op<L: LogAccess>(&mut self, op: Op, respond: Respond, log: &mut L) {
        if writes(&op)
            && let Err(error) = self.out.check_log()
        {
            return respond(Err(error));
        }
        let Some((op, respond)) = self.hold_op(op, respond, log) else { return };
        // Who published without waiting for the acknowledgement and then asks finds the message.
        if let Op::StreamInfo { id, .. } | Op::ConsumerInfo { id, .. } = &op
            && !self.out.has_failed()
            && let Some(lsn) = self.streams.get(*id).and_then(|slot| slot.stream.uncommitted())
            && lsn > log.committed()
        {
            let question = OpOrInfo::Question(Box::new(op));
            return self.out.await_commit(lsn, respond, question);
        }
        self.run_op(op, respond, log);
    }

    pub(super) fn run_op<L: LogAccess>(&mut self, op: Op, respond: Respond, log: &mut L) {
        let done = match op {
            Op::CreateStream { id, account, config } => {
                return self.create_stream(id, account, config, respond, log);
            }
            Op::UpdateStream { id, config } => return self.update_stream(id, config, respond, log),
            Op::DeleteStream { id } => return self.delete_stream(id, respond, log),
            Op::StreamInfo { id, deleted_details, subjects_filter, offset } => {
                let details = Details::new(deleted_details, subjects_filter, offset);
                return self.stream_info(id, details, respond, log);
            }
            Op::Purge { id, request } => return self.purge(id, &request, respond, log),
            Op::DeleteMessage { id, seq } => return self.delete_message(id, seq, respond, log),
            Op::GetMessage { id, request } => return self.get_message(id, request, respond, log),
            Op::CreateConsumer { id, request } => self.create_consumer(id, &request, log),
            Op::DeleteConsumer { id, name } => self.delete_consumer_named(id, &name, log),
            Op::ReadRange { id, request } => return self.read_range(id, request, respond, log),
            Op::Mirror { id, copies, gap_to } => {
                self.store_copies(id, &copies, Some(gap_to), true, log)
            }
            Op::Source { id, copies } => self.store_copies(id, &copies, None, false, log),
            Op::Sourced { id, key } => return respond(self.sourced(id, &key)),
            Op::ResetConsumer { id, name, seq } => self.reset_consumer(id, &name, seq, log),
            Op::UnpinConsumer { id, name, group } => {
                return respond(self.unpin_consumer(id, &name, &group, log));
            }
            Op::ConsumerInfo { id, name } => return respond(self.consumer_info(id, &name, log)),
            Op::ConsumerState { id, name } => return respond(self.consumer_state(id, &name, log)),
            Op::FinishRestore { id, config, consumers } => {
                return self.finish_restore(id, config, &consumers, respond, log);
            }
            Op::RemoveRestored { id, seqs } => self.remove_restored(id, &seqs, log),
            Op::ListConsumers { id, offset, limit, names_only } => {
                return respond(self.list_consumers(id, offset, limit, names_only, log));
            }
            Op::Arrive { id, account, config, from, created } => {
                self.arrive(id, account, &config, (from, created), log)
            }
            Op::Leave { id, log: here, to, config } => {
                return self.leave(id, (here, to), config, respond, log);
            }
            Op::Stay { id, refused } => self.stay(id, refused, log),
            Op::Probe { id } => self.probe(id, log),
            Op::Settle { id, state } => return self.settle(id, state, respond, log),
            Op::Forget { id, only_copy } => self.forget(id, only_copy, log),
            Op::Catalog => {
                return respond(Ok(self.streams.catalog(self.recovery.unreadable_records())));
            }
            Op::SetAccounts(bounds) => {
                self.streams.ledger_mut().budget_mut().set_bounds(bounds);
                return respond(Ok(OpOutcome::Done));
            }
            Op::Usage { account } => {
                let missing_messages = self.out.missing_messages();
                let usage = Usage { missing_messages, ..self.streams.usage(account) };
                return respond(Ok(OpOutcome::Usage(usage)));
            }
        };
        self.out.finish(done, respond);
    }

    /// The limits of the server on consumers, or lower ones of the stream's account.
    fn consumer_limits(&mut self, id: StreamId) -> Result<ConsumerLimits, JsError> {
        let account = self.streams.live(id)?.stream.account();
        let mut limits = self.config.consumers;
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

    fn create_consumer<L: LogAccess>(
        &mut self,
        id: StreamId,
        prepared: &PreparedConsumer,
        log: &mut L,
    ) -> Done {
        let limits = self.consumer_limits(id)?;
        let slot = self.streams.live(id)?;
        let mut config = validate_prepared(prepared, slot.stream.config(), &limits)?;
        let existing = slot.consumers.find(&config.name).filter(|_| !config.name.is_empty());
        let action = prepared.request().action;
        let filter = prepared.filter();
        check_beside(slot, (&config, filter), existing, action, limits.max_consumers)?;
        while config.name.is_empty() {
            let name = random_name(CONSUMER_NAME_CHARS, log);
            if slot.consumers.find(&name).is_none() {
                config.name = name;
            }
        }
        let Some(index) = existing else {
            self.streams.live(id)?.log_releases(log)?;
            return self.add_consumer(id, config, filter.clone(), log);
        };
        let is_same = slot.consumers.get(index).is_some_and(|old| *old.consumer.config() == config);
        let key = ConsumerKey { stream: id, index };
        if is_same {
            let uncommitted = slot.stream.uncommitted();
            return self.consumer_outcome(key, uncommitted, log);
        }
        self.streams.live(id)?.log_releases(log)?;
        self.update_consumer(key, config, filter.clone(), log)
    }

    fn add_consumer<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: ConsumerConfig,
        filter: Filter,
        log: &mut L,
    ) -> Done {
        let (slot, ledger) = self.streams.entry(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        slot.stream.set_has_consumers(true);
        let mut released = Vec::new();
        let stream_config = slot.stream.shared_config();
        let mut env = env(&slot.stream, self.out.sink_mut(), log, &slot.domain, &mut released);
        let consumer = Consumer::create(config, filter, &stream_config, &mut env);
        let lsn = match append_consumer(id, &consumer, log) {
            Ok(lsn) => lsn,
            Err(error) => {
                slot.stream.set_has_consumers(!slot.consumers.is_empty());
                return Err(refusal(error));
            }
        };
        let mut consumer = consumer;
        consumer.logged_at(lsn, log.committed());
        let name = consumer.name().to_owned();
        let index = slot.consumers.insert(consumer);
        ledger.stored(slot, lsn);
        self.out.advise_consumer(slot, &name, "create", log);
        let key = ConsumerKey { stream: id, index };
        self.watch_deliver_subject(key);
        self.consumer_outcome(key, Some(lsn), log)
    }

    fn update_consumer<L: LogAccess>(
        &mut self,
        key: ConsumerKey,
        config: ConsumerConfig,
        filter: Filter,
        log: &mut L,
    ) -> Done {
        self.unwatch_deliver_subject(key);
        let slot = self.streams.get_mut(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        let stream_config = slot.stream.shared_config();
        let appended = self.call(key, log, |consumer, env| {
            let (old, old_filter) = (consumer.config().clone(), consumer.filter().clone());
            consumer.update(config, filter, &stream_config, env);
            let appended = append_consumer(key.stream, consumer, env.log);
            match appended {
                Ok(lsn) => consumer.logged_at(lsn, env.log.committed()),
                Err(_) => consumer.update(old, old_filter, &stream_config, env),
            }
            appended
        });
        self.watch_deliver_subject(key);
        let lsn = appended.ok_or(JsError::CONSUMER_NOT_FOUND)?.map_err(refusal)?;
        self.pump_later(key);
        if let Some((slot, ledger)) = self.streams.entry(key.stream) {
            ledger.stored(slot, lsn);
        }
        // With other filters it may need less.
        self.sweeps.start(key.stream, &mut self.streams, log);
        self.consumer_outcome(key, Some(lsn), log)
    }

    fn reset_consumer<L: LogAccess>(
        &mut self,
        id: StreamId,
        name: &str,
        seq: u64,
        log: &mut L,
    ) -> Done {
        let key = self.streams.consumer_key(id, name)?;
        if seq > LAST_SEQ_MAX {
            return Err(JsError::CONSUMER_INVALID_RESET.with_err("sequence too large"));
        }
        self.streams.live(id)?.log_releases(log)?;
        let config = self.streams.live(id)?.stream.shared_config();
        let done = self.call(key, log, |consumer, env| {
            let seq = consumer
                .reset(seq, &config, env)
                .map_err(|why| JsError::CONSUMER_INVALID_RESET.with_err(why))?;
            let lsn = append_consumer(id, consumer, env.log).map_err(refusal)?;
            consumer.logged_at(lsn, env.log.committed());
            Ok((seq, lsn))
        });
        let (seq, lsn) = done.ok_or(JsError::CONSUMER_NOT_FOUND)??;
        self.pump_later(key);
        self.streams.changed(id, lsn);
        // It may need less than before.
        self.sweeps.start(id, &mut self.streams, log);
        match self.consumer_outcome(key, Some(lsn), log)? {
            (lsn, OpOutcome::Consumer(info)) => Ok((lsn, OpOutcome::Reset { seq, info })),
            other => Ok(other),
        }
    }

    fn unpin_consumer<L: LogAccess>(
        &mut self,
        id: StreamId,
        name: &str,
        group: &str,
        log: &mut L,
    ) -> OpResult {
        let key = self.streams.consumer_key(id, name)?;
        let done = self.call(key, log, |consumer, env| consumer.unpin(group, env));
        done.ok_or(JsError::CONSUMER_NOT_FOUND)??;
        self.pump_later(key);
        Ok(OpOutcome::Done)
    }

    fn consumer_outcome<L: LogAccess>(
        &mut self,
        key: ConsumerKey,
        lsn: Option<Lsn>,
        log: &mut L,
    ) -> Done {
        let info = self.call(key, log, Consumer::info).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        self.pump_later(key);
        Ok((lsn, OpOutcome::Consumer(Box::new(info))))
    }

    fn delete_consumer_named<L: LogAccess>(
        &mut self,
        id: StreamId,
        name: &str,
        log: &mut L,
    ) -> Done {
        let key = self.streams.consumer_key(id, name)?;
        let lsn = self.delete_consumer(key, Urgency::Awaited, log)?;
        Ok((Some(lsn), OpOutcome::Done))
    }

    /// Deletes a consumer: logs it, tells whoever waits, drops what only it needed.
    pub(super) fn delete_consumer<L: LogAccess>(
        &mut self,
        key: ConsumerKey,
        urgency: Urgency,
        log: &mut L,
    ) -> Result<Lsn, JsError> {
        let slot = self.streams.get_mut(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        slot.log_releases(log)?;
        let consumer = slot.consumers.get(key.index).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let name = consumer.consumer.name().to_owned();
        let record = RecordRef {
            kind: RecordKind::ConsumerDelete,
            stream: key.stream,
            seq: Seq(0),
            timestamp: log.now(),
            subject: name.as_bytes(),
            headers: b"",
            body: &CONSUMER_DELETE_BODY,
        };
        let lsn = log.append(&record, urgency, true).map_err(refusal)?.lsn;
        self.unwatch_deliver_subject(key);
        let (slot, ledger) = self.streams.entry(key.stream).ok_or(JsError::STREAM_NOT_FOUND)?;
        if let Some(mut removed) = slot.consumers.remove(key.index) {
            let mut released = Vec::new();
            let mut env = env(&slot.stream, self.out.sink_mut(), log, &slot.domain, &mut released);
            removed.consumer.on_delete(&mut env);
        }
        slot.stream.set_has_consumers(!slot.consumers.is_empty());
        ledger.stored(slot, lsn);
        self.sweeps.start(key.stream, &mut self.streams, log);
        if let Some(slot) = self.streams.get(key.stream) {
            self.out.advise_consumer(slot, &name, "delete", log);
        }
        Ok(lsn)
    }

    fn consumer_info<L: LogAccess>(&mut self, id: StreamId, name: &str, log: &mut L) -> OpResult {
        let slot = self.streams.shown(id)?;
        let index = slot.consumers.find(name).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        let key = ConsumerKey { stream: id, index };
        let info = self.shown_info(key, log).ok_or(JsError::CONSUMER_NOT_FOUND)?;
        Ok(OpOutcome::Consumer(Box::new(info)))
    }

    /// The answer to a question about a consumer: after a failure of the log, only what is durable.
    fn shown_info<L: LogAccess>(&mut self, key: ConsumerKey, log: &mut L) -> Option<ConsumerInfo> {
        if self.out.has_failed() && DURABLE_INFO.holds() {
            return self.call(key, log, Consumer::durable_info);
        }
        self.call(key, log, Consumer::info)
    }

    fn list_consumers<L: LogAccess>(
        &mut self,
        id: StreamId,
        offset: usize,
        limit: usize,
        names_only: bool,
        log: &mut L,
    ) -> OpResult {
        let slot = self.streams.live(id)?;
        let total = slot.consumers.len();
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
                infos.extend(self.shown_info(ConsumerKey { stream: id, index }, log));
            }
        }
        let names = page.into_iter().map(|(name, _)| name).collect();
        Ok(OpOutcome::Consumers { total, names, infos })
    }
}

/// True if an operation needs the log.
const fn writes(op: &Op) -> bool {
    !matches!(
        op,
        Op::StreamInfo { .. }
            | Op::GetMessage { .. }
            | Op::ReadRange { .. }
            | Op::Sourced { .. }
            | Op::ConsumerInfo { .. }
            | Op::ConsumerState { .. }
            | Op::ListConsumers { .. }
            | Op::Catalog
            | Op::SetAccounts(_)
            | Op::Usage { .. }
            // Writes nothing; what was held is refused one by one.
            | Op::Stay { refused: None, .. }
            // Says itself that nothing was written.
            | Op::Settle { .. }
    )
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
    match old {
        Some(old) => {
            if action == ConsumerAction::Create {
                check_create(old.consumer.config(), config)?;
            }
            old.consumer.check_update(config)?;
        }
        None if action == ConsumerAction::Update => return Err(JsError::CONSUMER_DOES_NOT_EXIST),
        None => {
            let own_max = slot.stream.config().max_consumers;
            let max = if own_max > 0 { own_max } else { default_max };
            if usize::try_from(max).is_ok_and(|max| max > 0 && slot.consumers.len() >= max) {
                return Err(JsError::MAXIMUM_CONSUMERS_LIMIT);
            }
        }
    }
    if slot.stream.limits().retention == RetentionPolicy::Workqueue {
        check_workqueue(
            config,
            filter,
            slot.consumers.configs().filter(|other| other.name != config.name),
        )?;
    }
    Ok(())
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
