//! Logging of progress, and the confirmations of double acks that wait for it.

use super::{Consumer, Env, Marks};
use crate::index::MessageIndex;
use crate::rules::CONFIRM_AFTER_COMMIT;
use crate::sink::{Message, Sink};
use nuthatch_log::{AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Urgency};
use std::collections::VecDeque;

/// Double acks that may wait for a commit; more are left unconfirmed, so their clients ask again.
const CONFIRMATIONS_MAX: usize = 65_536;

/// Publishes the empty answer to a double ack.
pub(super) fn confirm_now<I, L, S: Sink>(env: &mut Env<'_, I, L, S>, reply: &[u8]) {
    if !reply.is_empty() {
        let message = Message { subject: reply, reply: b"", headers: b"", body: b"" };
        env.sink.publish(env.account, &message);
    }
}

impl<T> Consumer<T> {
    /// Whether progress is to be logged, and how urgently.
    pub fn needs_log(&self) -> Option<Urgency> {
        if self.is_memory() {
            return None;
        }
        match self.logging.confirmations.back() {
            Some((None, _)) => Some(Urgency::Awaited),
            _ => self.logging.dirty.then_some(Urgency::Lazy),
        }
    }

    /// Logs the progress as one `ConsumerState` record (subject: the consumer's name).
    ///
    /// # Errors
    /// [`AppendError`] of the log; the progress stays to be logged.
    pub fn log_state<L: LogAccess>(
        &mut self,
        stream: StreamId,
        log: &mut L,
        urgency: Urgency,
    ) -> Result<(), AppendError> {
        let mut body = std::mem::take(&mut self.logging.buffer);
        body.clear();
        self.encode_progress(&mut body);
        let record = RecordRef {
            kind: RecordKind::ConsumerState,
            stream,
            seq: Seq(0),
            timestamp: log.now(),
            subject: self.config.name.as_bytes(),
            headers: b"",
            body: &body,
        };
        let appended = log.append(&record, urgency, true);
        self.logging.buffer = body;
        let lsn = appended?.lsn;
        self.logging.dirty = false;
        self.logged_at(lsn, log.committed());
        for (waits_for, _) in self.logging.confirmations.iter_mut().rev() {
            if waits_for.is_some() {
                break;
            }
            *waits_for = Some(lsn);
        }
        Ok(())
    }

    /// A record in frame `lsn` holds the progress as it is.
    pub fn logged_at(&mut self, lsn: Lsn, committed: Lsn) {
        let marks = self.marks();
        let logging = &mut self.logging;
        logging.logged = lsn;
        while let Some((_, durable)) = logging.in_flight.pop_front_if(|(at, _)| *at <= committed) {
            logging.durable = durable;
        }
        logging.in_flight.push_back((lsn, marks));
    }

    /// Continues on another log, where everything up to now is durable.
    pub fn rehomed(&mut self) {
        self.logging.logged = Lsn(0);
        self.all_durable();
    }

    /// The progress as it is comes from the log.
    pub(super) fn all_durable(&mut self) {
        self.logging.durable = self.marks();
        self.logging.in_flight = VecDeque::new();
    }

    fn marks(&self) -> Marks {
        Marks {
            floor: self.floor,
            delivered: (self.next_consumer_seq - 1, self.delivered_stream),
            ack_pending: self.pending.len() as u64,
            redelivered: self.pending.redelivered() as u64 + self.exhausted.len(),
        }
    }

    /// The progress that is durable once frames up to `committed` are.
    pub(super) fn durable_marks(&self, committed: Lsn) -> Marks {
        let durable = self.logging.in_flight.iter().rev().find(|(at, _)| *at <= committed);
        durable.map_or(self.logging.durable, |(_, marks)| *marks)
    }

    /// True if a double ack waits for a commit.
    pub fn awaits_commit(&self) -> bool {
        !self.logging.confirmations.is_empty()
    }

    /// Everything up to `lsn` is durable: confirms double acks.
    pub fn committed<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, lsn: Lsn)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let waiting = &mut self.logging.confirmations;
        while waiting.front().is_some_and(|(waits_for, _)| waits_for.is_some_and(|at| at <= lsn)) {
            if let Some((_, reply)) = waiting.pop_front() {
                confirm_now(env, &reply);
            }
        }
    }

    /// Confirms an acknowledgement once everything it changed is durable.
    pub(super) fn confirm<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, reply: &[u8])
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if reply.is_empty() {
            return;
        }
        let logging = &mut self.logging;
        let waits_for = (!logging.dirty).then_some(logging.logged);
        let is_committed = waits_for.is_some_and(|lsn| lsn <= env.log.committed());
        if self.config.mem_storage || is_committed || !CONFIRM_AFTER_COMMIT.holds() {
            confirm_now(env, reply);
        } else if logging.confirmations.len() < CONFIRMATIONS_MAX {
            // An older one may still lack its frame: they must stay in the order of their frames.
            let behind_open = matches!(logging.confirmations.back(), Some((None, _)));
            let waits_for = if behind_open { None } else { waits_for };
            logging.confirmations.push_back((waits_for, reply.into()));
        }
    }
}
