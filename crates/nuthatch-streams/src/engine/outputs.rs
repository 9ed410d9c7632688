//! Everything that leaves an engine: answers, each behind what it depends on, and advisories.

use super::advisory;
use super::batches::Abandoned;
use super::missing::MissingMessages;
use super::pending::{Acks, Answer, OpOrInfo, Pending, PendingOutput, Transient};
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, PublishItem};
use crate::op::{OpOutcome, Respond};
use crate::rules::{ACK_AFTER_COMMIT, ANSWER_AFTER_COMMIT, DUPLICATE_AFTER_COMMIT};
use crate::sink::{AccountId, Message, Sink};
use crate::stream::{Stream, is_staged, unavailable, uncertain};
use nuthatch_log::{LogAccess, Lsn, Seq};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use std::sync::Arc;

/// Bytes of transient messages that may wait for commits; above it they are refused (10167).
const TRANSIENT_BYTES_MAX: usize = 16 << 20;

/// The outcome of an operation and the frame it waits for, if any; or the refusal.
pub(super) type Done = Result<(Option<Lsn>, OpOutcome), JsError>;

/// Answers to one client leave in the order in which they arose. Once the log has failed nothing
/// waits any more.
pub(super) struct Outputs<S: Sink> {
    sink: S,
    pending: Pending<S::Peer>,
    /// JetStream domain that advisories name; empty: none.
    domain: Arc<str>,
    /// Why the log failed, if it did.
    failed: Option<String>,
    missing: MissingMessages,
    /// Keeps its memory between calls.
    body: Vec<u8>,
}

impl<S: Sink> Outputs<S> {
    /// Nothing waits.
    pub(super) fn new(sink: S, domain: Arc<str>) -> Self {
        let missing = MissingMessages::default();
        Self { sink, pending: Pending::default(), domain, failed: None, missing, body: Vec::new() }
    }

    /// Receives the outputs.
    pub(super) const fn sink(&self) -> &S {
        &self.sink
    }

    /// Receives the outputs.
    #[inline]
    pub(super) const fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// True if the log has failed.
    #[inline]
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether anything can be logged.
    ///
    /// # Errors
    /// 10008 with the reason why the log failed.
    #[inline]
    pub(super) fn check_log(&self) -> Result<(), JsError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(unavailable(reason)),
        }
    }

    /// Acknowledgements and other answers to publishes that wait.
    #[inline]
    pub(super) const fn pending_acks(&self) -> usize {
        self.pending.acks()
    }

    /// Messages that streams hold and the log did not give.
    pub(super) const fn missing_messages(&self) -> u64 {
        self.missing.count()
    }

    /// Hands over what is staged. Before an operation's outcome is told: it takes another way to its
    /// client. Without this, a consumer's info could say that nothing is pending and be there before
    /// the messages themselves, and clients take that for an empty consumer.
    pub(super) fn flush(&mut self) {
        self.sink.flush();
    }

    /// Answers an operation: refusals at once, outcomes with their frame.
    pub(super) fn finish(&mut self, done: Done, respond: Respond) {
        match done {
            Ok((None, outcome)) => respond(Ok(outcome)),
            Ok((Some(_), outcome)) if !ANSWER_AFTER_COMMIT.holds() => respond(Ok(outcome)),
            Ok((Some(lsn), outcome)) => {
                self.await_commit(lsn, respond, OpOrInfo::Ready(Box::new(Ok(outcome))));
            }
            Err(error) => respond(Err(error)),
        }
    }

    /// Answers an operation when frame `lsn` has committed.
    pub(super) fn await_commit(&mut self, lsn: Lsn, respond: Respond, outcome: OpOrInfo) {
        self.pending.push(lsn, PendingOutput::Op(respond, outcome));
    }

    /// Keeps what of a batch is still needed for answers that wait.
    pub(super) fn keep(&mut self, batch: ClientBatch<S::Peer>) {
        self.pending.keep(batch);
    }

    /// The next operation whose frame has committed, with its outcome. Acknowledgements and answers
    /// before it leave.
    pub(super) fn next_committed(
        &mut self,
        lsn: Lsn,
        streams: &Streams<S>,
    ) -> Option<(Respond, OpOrInfo)> {
        while let Some(waiting) = self.pending.pop(lsn) {
            match waiting {
                PendingOutput::Acks(acks) => {
                    if let Some(batch) = self.pending.batch(acks.batch)
                        && let Some(slot) = streams.get(acks.stream)
                    {
                        acks.send(batch, slot, &mut self.body, &mut self.sink);
                    }
                }
                PendingOutput::Answer(answer) => send_answer(&answer, &mut self.sink),
                PendingOutput::Transient(message) => message.send(&mut self.sink),
                PendingOutput::Op(respond, outcome) => {
                    self.flush();
                    return Some((respond, outcome));
                }
            }
        }
        self.pending.settle();
        None
    }

    /// Acknowledges `count` publishes of the batch in hand with consecutive sequences, from item
    /// `first_item` on: when frame `lsn` has committed, or at once if the stream wants that.
    pub(super) fn acknowledge(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        slot: &StreamSlot<S>,
        lsn: Lsn,
        (first_item, count): (usize, usize),
        first_seq: u64,
    ) {
        let limits = slot.stream.limits();
        if limits.no_ack {
            return;
        }
        let acks = Acks {
            batch: self.pending.batch_number(),
            first_item: first_item as u32,
            count: count as u32,
            stream: slot.stream.id(),
            first_seq,
        };
        if limits.ack_early || !ACK_AFTER_COMMIT.holds() {
            acks.send(batch, slot, &mut self.body, &mut self.sink);
        } else {
            self.pending.push(lsn, PendingOutput::Acks(acks));
        }
    }

    /// Answers the sender of an item behind everything that waits, and not before frame `after` has
    /// committed; unless it gave no reply subject or the stream (`None`: it is not there) does not
    /// acknowledge.
    pub(super) fn answer(
        &mut self,
        slot: Option<&StreamSlot<S>>,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        body: Vec<u8>,
        after: Option<Lsn>,
    ) {
        if item.reply.is_empty() || slot.is_some_and(|slot| slot.stream.limits().no_ack) {
            return;
        }
        let answer = Answer {
            account: slot.map_or(AccountId::GLOBAL, |slot| slot.stream.account()),
            stream: item.stream,
            peer: batch.peer.clone(),
            hint: item.hint,
            reply: item.reply.of(&batch.buf).into(),
            body: body.into_boxed_slice(),
        };
        match (after, self.pending.last_lsn()) {
            _ if self.has_failed() => send_answer(&answer, &mut self.sink),
            (None, None) => send_answer(&answer, &mut self.sink),
            (after, last) => {
                let lsn = after.unwrap_or_default().max(last.unwrap_or_default());
                self.pending.push(lsn, PendingOutput::Answer(Box::new(answer)));
            }
        }
    }

    /// Sends a message that is not stored behind frame `after` and everything that waits.
    ///
    /// # Errors
    /// 10167: so many bytes wait already.
    pub(super) fn tell_followers(
        &mut self,
        message: Transient,
        after: Option<Lsn>,
    ) -> Result<(), JsError> {
        match (after, self.pending.last_lsn()) {
            (None, None) => message.send(&mut self.sink),
            (after, last) => {
                if self.pending.transient_bytes() + message.bytes() > TRANSIENT_BYTES_MAX {
                    return Err(JsError::STREAM_TOO_MANY_REQUESTS);
                }
                let lsn = after.unwrap_or_default().max(last.unwrap_or_default());
                self.pending.push(lsn, PendingOutput::Transient(Box::new(message)));
            }
        }
        Ok(())
    }

    /// Answers a client with a status at once, if it gave a reply subject.
    pub(super) fn reply(
        &mut self,
        account: AccountId,
        batch: &ClientBatch<S::Peer>,
        hint: u32,
        reply: &[u8],
        headers: &[u8],
    ) {
        if !reply.is_empty() {
            let message = Message { subject: reply, reply: b"", headers, body: b"" };
            self.sink.reply(account, &batch.peer, hint, &message);
        }
    }

    /// A request asks for an API level that we do not have (ADR-44).
    #[cold]
    pub(super) fn refuse_level(
        &mut self,
        account: AccountId,
        batch: &ClientBatch<S::Peer>,
        hint: u32,
        reply: &[u8],
    ) {
        let headers = b"NATS/1.0 412 Required Api Level\r\n\r\n";
        self.reply(account, batch, hint, reply, headers);
    }

    /// Refuses a publish.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        slot: Option<&StreamSlot<S>>,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        error: &JsError,
    ) {
        if item.reply.is_empty() {
            return;
        }
        let body = refusal_body(error, slot.map_or("", |slot| &slot.stream.config().name));
        self.answer(slot, batch, item, body, dependence(slot));
    }

    /// Answers a publish whose message id was there already, with message `seq`.
    #[cold]
    pub(super) fn tell_duplicate(
        &mut self,
        slot: Option<&StreamSlot<S>>,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        seq: u64,
    ) {
        if item.reply.is_empty() {
            return;
        }
        let mut body = slot.map_or_else(Vec::new, |slot| slot.ack_prefix.to_vec());
        push_u64(&mut body, seq);
        body.extend_from_slice(b",\"duplicate\": true}");
        self.answer(slot, batch, item, body, dependence(slot));
    }

    /// The log failed: whether the frames that replies wait for reached the medium is unknown. They
    /// are never shown in this life; a restart finds out.
    pub(super) fn fail(&mut self, reason: &str, streams: &Streams<S>) {
        self.failed = Some(reason.to_owned());
        let error = uncertain(reason);
        while let Some(waiting) = self.pending.pop(Lsn(u64::MAX)) {
            match waiting {
                PendingOutput::Acks(acks) => {
                    let batch = self.pending.batch(acks.batch);
                    let batch = batch.expect("a batch stays until it is answered");
                    if let Some(slot) = streams.get(acks.stream) {
                        acks.refuse(batch, slot, &error, &mut self.sink);
                    }
                }
                PendingOutput::Answer(mut answer) => {
                    // Its content depends on writes whose fate is unknown.
                    let name = streams.name_of(answer.stream);
                    answer.body = refusal_body(&error, name).into_boxed_slice();
                    send_answer(&answer, &mut self.sink);
                }
                // What it follows may never be seen.
                PendingOutput::Transient(_) => {}
                PendingOutput::Op(respond, _) => respond(Err(error.clone())),
            }
        }
        self.pending.settle();
    }

    /// Tells that an atomic batch was given up (ADR-50).
    pub(super) fn advise_batch<L: LogAccess>(
        &mut self,
        slot: &StreamSlot<S>,
        batch: &[u8],
        why: Abandoned,
        log: &mut L,
    ) {
        let name = &slot.stream.config().name;
        let (subject, body) = advisory::batch_abandoned(&self.domain, name, batch, why, log);
        self.advise(slot.stream.account(), &subject, &body);
    }

    /// Tells that a stream was created, modified or deleted. `action` is `create`, `modify` or
    /// `delete`.
    pub(super) fn advise_stream<L: LogAccess>(
        &mut self,
        slot: &StreamSlot<S>,
        action: &str,
        log: &mut L,
    ) {
        let stream = &slot.stream.config().name;
        if !is_staged(stream) {
            let (subject, body) = advisory::stream_action(&self.domain, stream, action, log);
            self.advise(slot.stream.account(), &subject, &body);
        }
    }

    /// Tells that a consumer was created or deleted.
    pub(super) fn advise_consumer<L: LogAccess>(
        &mut self,
        slot: &StreamSlot<S>,
        consumer: &str,
        action: &str,
        log: &mut L,
    ) {
        let stream = &slot.stream.config().name;
        let names = (stream.as_str(), consumer);
        let (subject, body) = advisory::consumer_action(&self.domain, names, action, log);
        self.advise(slot.stream.account(), &subject, &body);
    }

    /// The log does not have a message that the stream holds: counts it, and tells it once.
    #[cold]
    pub(super) fn note_missing<L: LogAccess>(&mut self, stream: &Stream, seq: Seq, log: &mut L) {
        if self.missing.is_news(stream.id(), seq) {
            let name = &stream.config().name;
            let (subject, body) = advisory::unreadable(&self.domain, name, seq, log);
            self.advise(stream.account(), &subject, &body);
        }
    }

    fn advise(&mut self, account: AccountId, subject: &str, body: &[u8]) {
        let subject = subject.as_bytes();
        let message = Message { subject, reply: b"", headers: b"", body };
        self.sink.publish_and_store(account, &message);
    }
}

/// The frame that a refusal or a duplicate waits for: the newest that it may depend on.
fn dependence<S: Sink>(slot: Option<&StreamSlot<S>>) -> Option<Lsn> {
    let after = slot.and_then(|slot| slot.stream.contents().uncommitted());
    after.filter(|_| DUPLICATE_AFTER_COMMIT.holds())
}

fn send_answer<S: Sink>(answer: &Answer<S::Peer>, sink: &mut S) {
    let message = Message { subject: &answer.reply, reply: b"", headers: b"", body: &answer.body };
    sink.reply(answer.account, &answer.peer, answer.hint, &message);
}

/// `{"error":{…},"stream":"S","seq":0}`.
pub(super) fn refusal_body(error: &JsError, stream: &str) -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Refused<'a> {
        error: &'a JsError,
        stream: &'a str,
        seq: u64,
    }
    serde_json::to_vec(&Refused { error, stream, seq: 0 }).expect("numbers and strings")
}
