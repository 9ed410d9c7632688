//! Restoring a stream from a backup, all or nothing.
//!
//! A stream that is being restored is a stream of another name ([`crate::stream::staged_config`]), one that cannot
//! be asked for: without subjects, limits, consumers, expiry. Messages come in as into a mirror, with
//! their sequences and times. At the end its consumers and, last of all, its true configuration are
//! logged: that record is the stream's birth. What is found under the other name at a start was
//! never finished and is deleted.

use super::Engine;
use super::consumers::env;
use super::ledger::Ledger;
use super::outputs::Done;
use super::pending::OpOrInfo;
use super::stream_slot::StreamSlot;
use crate::consumer::{Consumer, Filter};
use crate::op::{OpOutcome, Respond};
use crate::records::StreamRecord;
use crate::sink::Sink;
use crate::stream::{When, refusal};
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Urgency};
use nuthatch_protocol::js::{ConsumerSnapshot, RetentionPolicy, StreamConfig};
use nuthatch_protocol::jserror::JsError;

impl<S: Sink> Engine<S> {
    /// Ends a restore: the stream gets its consumers and its true configuration.
    pub(super) fn finish_restore<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: Box<StreamConfig>,
        consumers: &[ConsumerSnapshot],
        respond: Respond,
        log: &mut L,
    ) {
        match self.log_restored(id, config, consumers, log) {
            Err(error) => respond(Err(error)),
            Ok(lsn) => self.out.await_commit(lsn, respond, OpOrInfo::Restored(id)),
        }
    }

    fn log_restored<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: Box<StreamConfig>,
        snapshots: &[ConsumerSnapshot],
        log: &mut L,
    ) -> Result<Lsn, JsError> {
        if !self.streams.live(id)?.stream.limits().restoring {
            return Err(JsError::BAD_REQUEST);
        }
        let mut consumers = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            let consumer = self.restored_consumer(id, &config, snapshot, log)?;
            super::consumer_ops::append_consumer(id, &consumer, log).map_err(refusal)?;
            consumers.push(consumer);
        }
        let slot = self.streams.live(id)?;
        let mut body = Vec::new();
        StreamRecord::encode(slot.stream.account(), &config, &mut body);
        let name = config.name.clone();
        let record = RecordRef {
            kind: RecordKind::StreamUpdate,
            stream: id,
            seq: Seq(0),
            timestamp: log.now(),
            subject: name.as_bytes(),
            headers: b"",
            body: &body,
        };
        let lsn = log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn;
        let slot = self.streams.get_mut(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        slot.stream.update_config(config, When::Committed(lsn));
        slot.rename();
        for consumer in consumers {
            slot.consumers.insert(consumer);
        }
        slot.stream.contents_mut().set_has_consumers(!slot.consumers.is_empty());
        self.streams.changed(id, lsn);
        Ok(lsn)
    }

    fn restored_consumer<L: LogAccess>(
        &mut self,
        id: StreamId,
        config: &StreamConfig,
        snapshot: &ConsumerSnapshot,
        log: &mut L,
    ) -> Result<Consumer<S::Target>, JsError> {
        let slot = self.streams.get_mut(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        let (name, own) = (&snapshot.config.name, snapshot.config.clone());
        let Some(state) = &snapshot.state else {
            let mut released = Vec::new();
            let domain = &slot.domain;
            let mut env = env(&slot.stream, self.out.sink_mut(), log, domain, &mut released);
            let filter = Filter::new(&own);
            return Ok(Consumer::create(own, filter, config, &mut env));
        };
        Consumer::restored(own, state, log.now())
            .map_err(|why| JsError::STREAM_RESTORE.with_err(format!("consumer {name}: {why}")))
    }

    /// A restore is durable: the stream is there, its consumers begin to work.
    pub(super) fn activate_restored<L: LogAccess>(
        &mut self,
        id: StreamId,
        respond: Respond,
        log: &mut L,
    ) {
        self.dispatch.start(id, &mut self.streams, &mut self.out, log);
        if let Some((slot, ledger)) = self.streams.entry(id) {
            ledger.schedule(slot);
            let has_consumers = !slot.consumers.is_empty();
            if slot.stream.limits().retention == RetentionPolicy::Interest && has_consumers {
                self.sweeps.start(id, &mut self.streams, log);
            }
        }
        self.answer_stream_info(id, "create", respond, log);
    }

    /// Recovery: a stream whose restore did not come to its end goes. If the log takes no record,
    /// it is out of sight all the same, and the next start tries again.
    pub(super) fn drop_unfinished_restore<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        self.delete_stream(id, Box::new(|_| ()), log);
        if let Some(slot) = self.streams.get_mut(id) {
            slot.deleting = true;
        }
    }
}

impl<S: Sink> StreamSlot<S> {
    /// Messages that a backup holds and that were deleted later.
    pub(super) fn remove_restored<L: LogAccess>(
        &mut self,
        seqs: &[u64],
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Done {
        if !self.stream.limits().restoring {
            return Err(JsError::BAD_REQUEST);
        }
        let mut deletes = crate::records::Delete::default();
        for &seq in seqs.iter().filter(|&&seq| self.stream.contents().keeps(Seq(seq))) {
            deletes.add(seq);
        }
        if deletes.ranges.is_empty() {
            return Ok((None, OpOutcome::Done));
        }
        let mut body = Vec::new();
        deletes.encode(&mut body);
        let record = RecordRef {
            kind: RecordKind::Delete,
            stream: self.stream.id(),
            seq: Seq(0),
            timestamp: log.now(),
            subject: b"",
            headers: b"",
            body: &body,
        };
        let lsn = log.append(&record, Urgency::Awaited, true).map_err(refusal)?.lsn;
        for (first, last) in deletes.ranges {
            for seq in first..=last {
                self.stream.contents_mut().drop_message(seq, When::Committed(lsn));
            }
        }
        ledger.changed(self, lsn);
        Ok((Some(lsn), OpOutcome::Done))
    }
}
