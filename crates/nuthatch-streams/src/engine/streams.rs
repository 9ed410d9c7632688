//! Operations on streams: create, update, delete, info, purge, delete of a message.

use super::Engine;
use super::ledger::Ledger;
use super::outputs::Done;
use super::pending::OpOrInfo;
use super::stream_slot::StreamSlot;
use crate::op::{Op, OpOutcome, PurgeRequest, Respond};
use crate::records::{Delete, Purge, StreamRecord, WriterTerm};
use crate::sink::{AccountId, Sink};
use crate::stream::{LAST_SEQ_MAX, When, refusal};
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Urgency};
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig};
use nuthatch_protocol::jserror::JsError;

/// A control record of a stream, awaited.
fn append_control<L: LogAccess>(
    kind: RecordKind,
    id: StreamId,
    seq: u64,
    subject: &[u8],
    body: &[u8],
    privileged: bool,
    log: &mut L,
) -> Result<Lsn, JsError> {
    let record = RecordRef {
        kind,
        stream: id,
        seq: Seq(seq),
        timestamp: log.now(),
        subject,
        headers: b"",
        body,
    };
    Ok(log.append(&record, Urgency::Awaited, privileged).map_err(refusal)?.lsn)
}

impl<S: Sink> Engine<S> {
    /// What the one writer of a stream asks for.
    ///
    /// # Panics
    /// The operation is another one.
    pub(super) fn writer_op<L: LogAccess>(&mut self, op: Op, log: &mut L) -> Done {
        match op {
            Op::Fence { id, term } => {
                self.streams.change(id, |slot, ledger| slot.fence(term, ledger, log))
            }
            Op::Truncate { id, request, term } => self.streams.change(id, |slot, ledger| {
                slot.stream.check_term(term)?;
                slot.purge(&request, ledger, log)
            }),
            other => unreachable!("{other:?} is no operation of a writer"),
        }
    }

    pub(super) fn create_stream<L: LogAccess>(
        &mut self,
        id: StreamId,
        account: AccountId,
        config: Box<StreamConfig>,
        respond: Respond,
        log: &mut L,
    ) {
        if !self.streams.is_fresh(id) {
            return respond(Err(JsError::STREAM_NAME_EXIST));
        }
        let mut body = Vec::new();
        StreamRecord::encode(account, &config, &mut body);
        let name = config.name.clone().into_bytes();
        match append_control(RecordKind::StreamCreate, id, 0, &name, &body, false, log) {
            Err(error) => respond(Err(error)),
            Ok(lsn) => {
                self.streams.create(id, account, config, log.now());
                self.streams.changed(id, lsn);
                let outcome = OpOrInfo::StreamInfo(id, "create");
                self.out.await_commit(lsn, respond, outcome);
            }
        }
    }

    pub(super) fn update_stream<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: Box<StreamConfig>,
        respond: Respond,
        log: &mut L,
    ) {
        match self.log_update(id, config, log) {
            Err(error) => respond(Err(error)),
            Ok(lsn) => {
                let outcome = OpOrInfo::StreamInfo(id, "modify");
                self.out.await_commit(lsn, respond, outcome);
            }
        }
    }

    fn log_update<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: Box<StreamConfig>,
        log: &mut L,
    ) -> Result<Lsn, JsError> {
        self.streams.live(id)?.check_consumer_limits(&config)?;
        self.streams.live(id)?.log_releases(log)?;
        let slot = self.streams.live(id)?;
        let turned_to_interest = config.retention == RetentionPolicy::Interest
            && slot.stream.limits().retention != RetentionPolicy::Interest;
        let mut body = Vec::new();
        StreamRecord::encode(slot.stream.account(), &config, &mut body);
        let name = config.name.clone().into_bytes();
        let lsn = append_control(RecordKind::StreamUpdate, id, 0, &name, &body, false, log)?;
        let slot = self.streams.live(id)?;
        slot.stream.update_config(config, When::Committed(lsn));
        let has_consumers = !slot.consumers.is_empty();
        self.streams.changed(id, lsn);
        if turned_to_interest && has_consumers {
            // Unneeded messages go by deletes of their own.
            self.sweeps.start(id, &mut self.streams, log);
        }
        let slot = self.streams.live(id)?;
        let config = slot.stream.shared_config();
        for index in slot.consumers.indexes() {
            let key = super::consumers::ConsumerKey { stream: id, index };
            self.dispatch.call(key, &mut self.streams, &mut self.out, log, |consumer, env| {
                consumer.stream_changed(&config, env)
            });
            self.dispatch.pump_later(key, &mut self.streams);
        }
        Ok(lsn)
    }

    pub(super) fn delete_stream<L: LogAccess>(
        &mut self,
        id: StreamId,
        respond: Respond,
        log: &mut L,
    ) {
        let name = match self.streams.live(id) {
            Ok(slot) => slot.stream.config().name.clone().into_bytes(),
            Err(error) => return respond(Err(error)),
        };
        match append_control(RecordKind::StreamDelete, id, 0, &name, b"", true, log) {
            Err(error) => respond(Err(error)),
            Ok(lsn) => {
                if let Some(slot) = self.streams.get_mut(id) {
                    slot.deleting = true;
                }
                self.streams.changed(id, lsn);
                self.out.await_commit(lsn, respond, OpOrInfo::StreamDeleted(id));
            }
        }
    }

    /// The delete of a stream is durable: it is gone, and everybody is told.
    pub(super) fn finish_delete<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.streams.get(id) else { return };
        for index in slot.consumers.indexes() {
            let key = super::consumers::ConsumerKey { stream: id, index };
            self.dispatch.unwatch(key, &self.streams);
            let name =
                self.dispatch.call(key, &mut self.streams, &mut self.out, log, |consumer, env| {
                    consumer.on_delete(env);
                    consumer.name().to_owned()
                });
            let name = name.expect("a consumer that is listed is there");
            if let Some(slot) = self.streams.get(id) {
                self.out.advise_consumer(slot, &name, "delete", log);
            }
        }
        let mut slot = self.streams.remove(id).expect("it was there a moment ago");
        let account = slot.stream.account();
        slot.reads.fail(&JsError::STREAM_NOT_FOUND, account, self.out.sink_mut());
        slot.stream.contents().for_each_held(&mut |seq, weight| log.dead(id, seq, weight));
        self.out.advise_stream(&slot, "delete", log);
    }

    pub(super) fn answer_stream_info<L: LogAccess>(
        &mut self,
        id: StreamId,
        action: &'static str,
        respond: Respond,
        log: &mut L,
    ) {
        self.streams.expire(id, log);
        let info = match self.streams.get(id) {
            Some(slot) => slot.stream.info(log.now(), slot.consumers.len()),
            None => return respond(Err(JsError::STREAM_NOT_FOUND)),
        };
        if let Some(slot) = self.streams.get(id) {
            self.out.advise_stream(slot, action, log);
        }
        respond(Ok(OpOutcome::Stream { info: Box::new(info), subjects_total: 0 }));
    }
}

impl<S: Sink> StreamSlot<S> {
    /// New caps for consumers must not be broken by those that exist.
    fn check_consumer_limits(&self, new: &StreamConfig) -> Result<(), JsError> {
        let caps = &new.consumer_limits;
        if *caps == self.stream.config().consumer_limits {
            return Ok(());
        }
        let breaks = |value: i64, cap: i64| cap > 0 && value > cap;
        let names: Vec<&str> = self
            .consumers
            .configs()
            .filter(|config| {
                breaks(config.inactive_threshold, caps.inactive_threshold)
                    || breaks(config.max_ack_pending, caps.max_ack_pending)
            })
            .map(|config| config.name.as_str())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let text = format!("change to limits violates consumers: {}", names.join(", "));
        Err(JsError::STREAM_UPDATE.with_err(text))
    }

    /// Removes what a purge asks for.
    ///
    /// # Errors
    /// The stream does not allow it, or the log has no room.
    pub(super) fn purge<L: LogAccess>(
        &mut self,
        request: &PurgeRequest,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Done {
        if self.stream.limits().sealed {
            return Err(JsError::STREAM_SEALED);
        }
        if self.stream.config().deny_purge {
            return Err(JsError::STREAM_PURGE_FAILED.with_err("stream purge not permitted"));
        }
        if request.seq > 0 && request.keep > 0 || request.seq > LAST_SEQ_MAX {
            return Err(JsError::BAD_REQUEST);
        }
        self.log_releases(log)?;
        let mut body = Vec::new();
        Purge::encode(request, &mut body);
        let last = self.stream.contents().assigned_totals().last_seq;
        let lsn = append_control(RecordKind::Purge, self.stream.id(), last, b"", &body, true, log)?;
        let purged = if self.stream.contents().purges_past_end(request) {
            self.stream.contents_mut().jump_past_end(request.seq, lsn)
        } else {
            self.stream.contents_mut().purge(request, When::Committed(lsn))
        };
        ledger.changed(self, lsn);
        Ok((Some(lsn), OpOutcome::Purged(purged)))
    }

    /// Gives the stream to the writer with this term.
    ///
    /// # Errors
    /// A later writer has it, it is sealed, or the log has no room.
    pub(super) fn fence<L: LogAccess>(
        &mut self,
        term: u64,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Done {
        if self.stream.limits().sealed {
            return Err(JsError::STREAM_SEALED);
        }
        self.stream.check_opening(term)?;
        let mut body = Vec::new();
        WriterTerm::encode(term, &mut body);
        let last_seq = self.stream.contents().assigned_totals().last_seq;
        let (kind, id) = (RecordKind::WriterTerm, self.stream.id());
        // A term that it has already is written too: its record may not be durable yet.
        let lsn = append_control(kind, id, last_seq, b"", &body, true, log)?;
        self.stream.set_writer_term(term);
        ledger.changed(self, lsn);
        Ok((Some(lsn), OpOutcome::Fenced { term, last_seq }))
    }

    /// Removes a message.
    ///
    /// # Errors
    /// The stream does not have it or does not allow that, or the log has no room.
    pub(super) fn delete_message<L: LogAccess>(
        &mut self,
        seq: u64,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Done {
        if self.stream.limits().sealed {
            return Err(JsError::STREAM_SEALED);
        }
        if self.stream.config().deny_delete {
            let error = JsError::STREAM_MSG_DELETE_FAILED;
            return Err(error.with_err("message delete not permitted"));
        }
        if !self.stream.contents().keeps(Seq(seq)) {
            return Err(self.stream.why_missing(seq));
        }
        let mut deletes = Delete::default();
        deletes.add(seq);
        let mut body = Vec::new();
        deletes.encode(&mut body);
        let lsn = append_control(RecordKind::Delete, self.stream.id(), 0, b"", &body, true, log)?;
        self.stream.contents_mut().drop_message(seq, When::Committed(lsn));
        ledger.changed(self, lsn);
        Ok((Some(lsn), OpOutcome::Done))
    }
}
