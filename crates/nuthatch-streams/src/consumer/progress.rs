//! Logging of progress, and the confirmations of double acks that wait for it.

use super::{Consumer, Env, Floor};
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

/// Progress not yet logged, and the replies that wait for it.
#[derive(Debug, Default)]
pub(super) struct Logging {
    dirty: bool,
    /// Frame of the last record.
    logged: Lsn,
    /// Reply subjects of double acks, with the frame they wait for once it is known.
    confirmations: VecDeque<(Option<Lsn>, Box<[u8]>)>,
    buffer: Vec<u8>,
    /// Progress that is durable.
    durable: Marks,
    /// Progress in frames that were not durable when the newest of them was written, in their order.
    in_flight: VecDeque<(Lsn, Marks)>,
}

/// The part of a logged progress that consumer info shows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Marks {
    pub(super) floor: Floor,
    /// Consumer sequence and stream sequence of the last delivery.
    pub(super) delivered: (u64, u64),
    pub(super) ack_pending: u64,
    pub(super) redelivered: u64,
}

impl Logging {
    /// There is progress that no record tells of.
    #[inline]
    pub(super) const fn changed(&mut self) {
        self.dirty = true;
    }

    /// Whether progress is to be logged, and how urgently.
    #[inline]
    fn needs_log(&self) -> Option<Urgency> {
        match self.confirmations.back() {
            Some((None, _)) => Some(Urgency::Awaited),
            _ => self.dirty.then_some(Urgency::Lazy),
        }
    }

    /// A record in frame `lsn` holds the progress as it is: those who waited for one wait for that.
    fn written(&mut self, lsn: Lsn, committed: Lsn, marks: Marks) {
        self.dirty = false;
        self.logged_at(lsn, committed, marks);
        for (waits_for, _) in self.confirmations.iter_mut().rev() {
            if waits_for.is_some() {
                break;
            }
            *waits_for = Some(lsn);
        }
    }

    /// Progress lies in frame `lsn`; frames up to `committed` are durable.
    fn logged_at(&mut self, lsn: Lsn, committed: Lsn, marks: Marks) {
        self.logged = lsn;
        while let Some((_, durable)) = self.in_flight.pop_front_if(|(at, _)| *at <= committed) {
            self.durable = durable;
        }
        self.in_flight.push_back((lsn, marks));
    }

    /// The progress comes from the log.
    pub(super) fn all_durable(&mut self, marks: Marks) {
        self.durable = marks;
        self.in_flight = VecDeque::new();
    }

    /// The progress that is durable once frames up to `committed` are.
    pub(super) fn durable(&self, committed: Lsn) -> Marks {
        let durable = self.in_flight.iter().rev().find(|(at, _)| *at <= committed);
        durable.map_or(self.durable, |(_, marks)| *marks)
    }

    /// The next double ack that is confirmed once frames up to `lsn` are durable.
    fn next_confirmed(&mut self, lsn: Lsn) -> Option<Box<[u8]>> {
        let is_due = |(waits_for, _): &mut (Option<Lsn>, _)| waits_for.is_some_and(|at| at <= lsn);
        self.confirmations.pop_front_if(is_due).map(|(_, reply)| reply)
    }

    /// True if everything is durable once frames up to `committed` are.
    #[inline]
    fn is_durable(&self, committed: Lsn) -> bool {
        !self.dirty && self.logged <= committed
    }

    /// A double ack waits for the record that tells of it. Beyond [`CONFIRMATIONS_MAX`] it is left
    /// unconfirmed.
    fn await_record(&mut self, reply: &[u8]) {
        if self.confirmations.len() < CONFIRMATIONS_MAX {
            // An older one may still lack its frame: they must stay in the order of their frames.
            let behind_open = matches!(self.confirmations.back(), Some((None, _)));
            let waits_for = (!self.dirty && !behind_open).then_some(self.logged);
            self.confirmations.push_back((waits_for, reply.into()));
        }
    }
}

impl<T> Consumer<T> {
    /// Whether progress is to be logged, and how urgently.
    #[inline]
    pub fn needs_log(&self) -> Option<Urgency> {
        if self.is_memory() { None } else { self.logging.needs_log() }
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
        let marks = self.marks();
        self.logging.written(lsn, log.committed(), marks);
        Ok(())
    }

    /// A record in frame `lsn` holds the progress as it is.
    pub fn logged_at(&mut self, lsn: Lsn, committed: Lsn) {
        let marks = self.marks();
        self.logging.logged_at(lsn, committed, marks);
    }

    /// Continues on another log, where everything up to now is durable.
    pub fn rehomed(&mut self) {
        let marks = self.marks();
        self.logging.logged = Lsn(0);
        self.logging.all_durable(marks);
    }

    pub(super) fn marks(&self) -> Marks {
        Marks {
            floor: self.floor,
            delivered: (self.next_consumer_seq - 1, self.delivered_stream),
            ack_pending: self.pending.len() as u64,
            redelivered: self.pending.redelivered() as u64 + self.exhausted.len(),
        }
    }

    /// True if a double ack waits for a commit.
    #[inline]
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
        while let Some(reply) = self.logging.next_confirmed(lsn) {
            confirm_now(env, &reply);
        }
    }

    /// Confirms an acknowledgement once everything it changed is durable.
    #[inline]
    pub(super) fn confirm<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, reply: &[u8])
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if reply.is_empty() {
            return;
        }
        let is_durable = self.logging.is_durable(env.log.committed());
        if self.is_memory() || is_durable || !CONFIRM_AFTER_COMMIT.holds() {
            confirm_now(env, reply);
        } else {
            self.logging.await_record(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(floor: u64) -> Marks {
        Marks { floor: Floor { consumer: floor, stream: floor }, ..Marks::default() }
    }

    #[test]
    fn confirmations_leave_in_the_order_of_their_frames() {
        let mut logging = Logging::default();
        logging.changed();
        logging.await_record(b"one");
        assert_eq!(logging.needs_log(), Some(Urgency::Awaited));
        logging.written(Lsn(3), Lsn(2), marks(1));
        assert_eq!((logging.needs_log(), logging.next_confirmed(Lsn(2))), (None, None));
        logging.await_record(b"same frame");
        logging.changed();
        logging.await_record(b"the next one");
        assert_eq!(logging.next_confirmed(Lsn(3)).as_deref(), Some(&b"one"[..]));
        assert_eq!(logging.next_confirmed(Lsn(3)).as_deref(), Some(&b"same frame"[..]));
        assert_eq!(logging.next_confirmed(Lsn(9)), None, "no record tells of it yet");
        logging.written(Lsn(9), Lsn(9), marks(2));
        assert_eq!(logging.next_confirmed(Lsn(9)).as_deref(), Some(&b"the next one"[..]));
    }

    #[test]
    fn what_is_durable_follows_the_commits() {
        let mut logging = Logging::default();
        logging.written(Lsn(1), Lsn(0), marks(1));
        logging.written(Lsn(2), Lsn(0), marks(2));
        let floor = |logging: &Logging, lsn| logging.durable(Lsn(lsn)).floor.consumer;
        assert_eq!((floor(&logging, 0), floor(&logging, 1), floor(&logging, 5)), (0, 1, 2));
        logging.written(Lsn(6), Lsn(1), marks(3));
        assert_eq!(floor(&logging, 0), 1, "it does not go back");
        assert!(logging.is_durable(Lsn(6)) && !logging.is_durable(Lsn(5)));
    }
}
