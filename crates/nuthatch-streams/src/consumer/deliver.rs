//! The delivery loop: the next message, the next receiver, the ack subject, the books.

use super::ack::release;
use super::advisory::{About, Advisory, REASON_DELETED, REASON_UNREADABLE, send};
use super::cursor::Next;
use super::life::{Status, pending_headers, send_status};
use super::priority::Load;
use super::pull::WaitQueue;
use super::{Consumer, Env, Mode, Stop};
use crate::index::MessageIndex;
use crate::rules::WAIT_FOR_READABLE;
use crate::sink::{AccountId, Delivery, Sink};
use nuthatch_log::{LogAccess, Read, Seq, StoredMessage};
use nuthatch_protocol::js::AckPolicy;
use nuthatch_protocol::wire::write::{AckReply, push_ack_reply, push_u64};

/// Messages delivered in one call, so that one consumer does not keep the sequencer for itself.
const ROUND_MESSAGES: u32 = 1_024;
/// Bytes delivered in one call.
const ROUND_BYTES: u64 = 4 << 20;
/// Messages passed over in one call because they do not match.
const ROUND_LOOKS: u64 = 1 << 20;

/// A consumer whose next message cannot be read asks for it again this often.
const UNREADABLE_RECHECK_NS: i64 = 1_000_000_000;

/// Messages and bytes left in a round.
struct Budget {
    messages: u32,
    bytes: u64,
    looks: u64,
}

/// The message to deliver next.
#[derive(Clone, Copy)]
struct Candidate {
    seq: u64,
    /// Deliveries including this one.
    delivered: u32,
}

/// Whose turn it is among the pull requests.
pub(super) enum Turn {
    Head,
    Nobody,
    AllSlow,
    /// No request can take a message now.
    NoneFits,
}

impl Turn {
    const fn stop(&self) -> Option<Stop> {
        match self {
            Self::Head => None,
            Self::Nobody => Some(Stop::NoReceiver),
            Self::AllSlow => Some(Stop::SlowReceiver),
            Self::NoneFits => Some(Stop::NoneFits),
        }
    }
}

/// Result of trying to deliver a candidate.
enum Outcome {
    Delivered(u64),
    /// The log cannot give it now.
    Unreadable,
    /// The log does not have it.
    Missing,
    /// Its receiver is gone: try the next one.
    Refused,
    Stop(Stop),
}

impl<T> Consumer<T> {
    /// Takes account of what was stored and removed in the stream since the last call.
    pub(super) fn sync<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let mut gone = std::mem::take(&mut self.scratch.seqs);
        gone.clear();
        let (index, pending, exhausted) = (env.index, &self.pending, &mut self.exhausted);
        let idle = pending.is_empty() && exhausted.is_empty();
        self.cursor.sync(index, &mut self.filter, |removed| match removed {
            _ if idle => {}
            Some(seq) => {
                exhausted.remove(seq);
                if pending.get(seq).is_some() {
                    gone.push(seq);
                }
            }
            None => {
                let lost = |seq: u64| index.get(Seq(seq)).is_none();
                gone.extend(pending.iter().map(|entry| entry.seq).filter(|&seq| lost(seq)));
                *exhausted = exhausted.iter().filter(|&seq| !lost(seq)).collect();
            }
        });
        for &seq in &gone {
            self.forget(env, seq);
        }
        self.scratch.seqs = gone;
    }

    /// A message left the stream while it waited for its acknowledgement.
    #[cold]
    fn forget<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, seq: u64)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let Some(entry) = self.pending.remove(seq) else { return };
        self.logging.changed();
        self.activity.acked = env.log.now().0;
        self.move_floor();
        let about = About {
            stream_seq: seq,
            consumer_seq: entry.consumer_seq,
            deliveries: u64::from(entry.delivered),
        };
        send(env, &self.config.name, about, Advisory::Terminated(REASON_DELETED));
    }

    /// Delivers until something stops it.
    pub(super) fn run<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if self.mode.wants_sweep(env.log.now().0) {
            if self.stop == Stop::AckPending {
                // With the first heartbeat or expiry they have waited for acknowledgements long enough.
                self.end_one_shots(env);
            }
            self.sweep_requests(env);
        }
        let paused_until = self.pause_end(env.log.now());
        let held_until = self.activity.held_until;
        self.stop = match paused_until {
            Some(until) => Stop::Until(until),
            None if held_until > env.log.now().0 => Stop::Until(held_until),
            None => self.deliver_round(env),
        };
        if self.stop == Stop::Unreadable {
            self.activity.recheck_at = env.log.now().0.saturating_add(UNREADABLE_RECHECK_NS);
        }
        if self.stop == Stop::EndOfStream
            && self.replay.as_ref().is_some_and(|replay| self.cursor.next > replay.until)
        {
            self.replay = None;
        }
        let nothing_comes =
            matches!(self.stop, Stop::EndOfStream | Stop::Unreadable | Stop::NoneFits);
        if nothing_comes || paused_until.is_some() {
            self.end_one_shots(env);
        }
    }

    /// Requests that do not wait are over.
    fn end_one_shots<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        if self.mode.end_one_shots(env, now) {
            self.activity.last = now;
        }
    }

    fn deliver_round<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> Stop
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let mut budget =
            Budget { messages: ROUND_MESSAGES, bytes: ROUND_BYTES, looks: ROUND_LOOKS };
        if !self.push_is_open(env) {
            return Stop::NoReceiver;
        }
        loop {
            if let Some(stop) = self.mode.stop(env.sink) {
                return stop;
            }
            if budget.messages == 0 || budget.bytes == 0 {
                return Stop::Budget;
            }
            let candidate = match self.next_candidate(env, &mut budget) {
                Ok(candidate) => candidate,
                Err(stop) => return stop,
            };
            match self.deliver(env, candidate) {
                Outcome::Delivered(bytes) => {
                    budget.messages -= 1;
                    budget.bytes = budget.bytes.saturating_sub(bytes);
                    self.record_delivery(env, candidate, bytes);
                }
                Outcome::Unreadable | Outcome::Missing if !WAIT_FOR_READABLE.holds() => {
                    self.cursor.pass(candidate.seq);
                }
                Outcome::Unreadable => return self.wait_for_readable(env, candidate),
                Outcome::Missing => {
                    self.activity.missing = candidate.seq;
                    return self.wait_for_readable(env, candidate);
                }
                Outcome::Refused => {}
                Outcome::Stop(stop) => {
                    if candidate.delivered > 1 && matches!(stop, Stop::NoReceiver | Stop::NoneFits)
                    {
                        // No request takes this one: the next request is served with another.
                        self.pending.pass_due();
                    }
                    return stop;
                }
            }
        }
    }

    #[inline]
    fn next_candidate<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        budget: &mut Budget,
    ) -> Result<Candidate, Stop>
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        while let Some(entry) = self.pending.next_due() {
            if !self.terms.is_spent(entry.delivered) {
                let delivered = entry.delivered.saturating_add(1);
                return Ok(Candidate { seq: entry.seq, delivered });
            }
            self.exhaust(env, entry.seq);
        }
        if self.pending.len() >= self.terms.max_ack_pending {
            return Err(Stop::AckPending);
        }
        match self.cursor.find(env.index, &mut self.filter, &mut budget.looks) {
            Next::Found(seq, _) => Ok(Candidate { seq, delivered: 1 }),
            Next::End => Err(Stop::EndOfStream),
            Next::Budget => Err(Stop::Budget),
        }
    }

    /// Reads a message and hands it to a receiver. The books are kept by `record_delivery`.
    fn deliver<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, candidate: Candidate) -> Outcome
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if self.priorities.are_any()
            && let Some(outcome) = self.choose_request(env, candidate)
        {
            return outcome;
        }
        let now = env.log.now().0;
        let chosen = self.priorities.are_any();
        let Env { log, sink, account, stream, .. } = env;
        let stored = match log.read(*stream, Seq(candidate.seq)) {
            Read::Ready(stored) => stored,
            Read::Pending => return Outcome::Stop(Stop::Loading),
            Read::Missing => return Outcome::Missing,
            Read::Damaged | Read::Failing => return Outcome::Unreadable,
        };
        let message = &stored.record;
        self.write_reply(candidate, message.timestamp.0);
        let (headers, body) = if self.config.headers_only {
            headers_with_size(&mut self.scratch.headers, message.headers, message.body.len());
            (self.scratch.headers.as_slice(), &b""[..])
        } else {
            (message.headers, message.body)
        };
        let headers = match self.priorities.pin_id() {
            Some(id) => {
                headers_with_pin(&mut self.scratch.pinned, headers, id);
                self.scratch.pinned.as_slice()
            }
            None => headers,
        };
        let delivery = Delivery {
            subject: message.subject,
            reply: &self.scratch.reply,
            headers,
            body,
            owner: (!self.config.headers_only).then_some(stored.owner),
        };
        let bytes = size_of_delivery(&delivery);
        if let Some(until) = self.held_until(&stored, bytes, now) {
            return Outcome::Stop(Stop::Until(until));
        }
        match &mut self.mode {
            Mode::Push(push) => {
                let taken = push.target.as_mut().is_some_and(|to| sink.deliver(to, &delivery));
                if !taken {
                    push.target = None;
                    self.watch_inactivity(now);
                    return Outcome::Refused;
                }
            }
            Mode::Pull(queue) => {
                let turn = if chosen {
                    Turn::Head
                } else {
                    next_turn(queue, *sink, *account, bytes, now, &mut self.activity.last)
                };
                if let Some(stop) = turn.stop() {
                    return Outcome::Stop(stop);
                }
                let taken = queue.head().is_some_and(|to| sink.deliver(&mut to.target, &delivery));
                if !taken {
                    queue.pop();
                    return Outcome::Refused;
                }
            }
        }
        if let Some(replay) = &mut self.replay {
            (replay.last_stored_at, replay.last_sent_at) = (message.timestamp.0, now);
        }
        Outcome::Delivered(bytes)
    }

    /// Priority groups: brings the request whose turn it is to the head, or says why there is none.
    /// Reads the message for its size; it is read again (from memory) to be delivered.
    #[cold]
    fn choose_request<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        candidate: Candidate,
    ) -> Option<Outcome>
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let (bytes, timestamp) = match env.log.read(env.stream, Seq(candidate.seq)) {
            Read::Ready(stored) => {
                let record = &stored.record;
                let body = if self.config.headers_only { 0 } else { record.body.len() };
                (record.subject.len() + record.headers.len() + body, record.timestamp.0)
            }
            Read::Pending => return Some(Outcome::Stop(Stop::Loading)),
            Read::Missing | Read::Damaged | Read::Failing => return None,
        };
        self.write_reply(candidate, timestamp);
        let bytes = (bytes + self.scratch.reply.len()) as u64;
        let (pending, ack_pending) = (self.cursor.pending(), self.pending.len() as u64);
        let load = Load { pending, ack_pending };
        let Mode::Pull(queue) = &mut self.mode else {
            return Some(Outcome::Stop(Stop::NoReceiver));
        };
        let turn = self.priorities.turn(queue, env, &self.config.name, bytes, load);
        turn.stop().map(Outcome::Stop)
    }

    #[inline]
    fn write_reply(&mut self, candidate: Candidate, timestamp_ns: i64) {
        let first = candidate.delivered == 1;
        let reply = AckReply {
            delivered: u64::from(candidate.delivered),
            stream_seq: candidate.seq,
            consumer_seq: self.next_consumer_seq,
            timestamp_ns,
            pending: self.cursor.pending().saturating_sub(u64::from(first)),
        };
        self.scratch.reply.clear();
        push_ack_reply(&mut self.scratch.reply, &self.scratch.ack_prefix, &reply);
    }

    /// Until when replay pace or rate limit hold a message back.
    #[inline]
    fn held_until(&self, stored: &StoredMessage<'_>, bytes: u64, now: i64) -> Option<i64> {
        let replay = self.replay.as_ref();
        let held = replay.and_then(|replay| replay.held_until(stored.record.timestamp.0, now));
        held.or_else(|| self.mode.held_until(bytes, now))
    }

    /// Keeps the books of a delivery that was taken.
    #[inline]
    fn record_delivery<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        candidate: Candidate,
        bytes: u64,
    ) where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let (seq, now) = (candidate.seq, env.log.now().0);
        let consumer_seq = self.next_consumer_seq;
        self.next_consumer_seq += 1;
        self.logging.changed();
        self.activity.delivered = now;
        let deadline = now.saturating_add(self.terms.wait_after(candidate.delivered));
        if candidate.delivered > 1 {
            self.pending.redeliver(seq, deadline);
        } else {
            self.cursor.pass(seq);
            self.delivered_stream = seq;
            if self.terms.ack_policy == AckPolicy::None {
                self.move_floor();
                release(env, seq);
            } else {
                self.pending.push(seq, consumer_seq, deadline);
            }
        }
        if matches!(self.mode, Mode::Pull(_)) {
            self.activity.last = now;
        }
        let waits_for_flow = self.terms.ack_policy == AckPolicy::FlowControl
            && self.pending.len() >= self.terms.max_ack_pending;
        self.mode.delivered(env, &self.config, bytes, now, waits_for_flow);
    }

    /// The log cannot give a message back, now or ever: the consumer stops there and says so, once.
    ///
    /// It does not pass over it, as nats-server does where its store has no such message. Whoever
    /// reads a stream to act on all of it (a queue of orders, a replica, a watcher) would take the
    /// rest for everything, and nobody can tell from outside that something is missing. So it waits until the disk works again, the files are repaired, or
    /// somebody who knows what the message was worth deletes it from the stream.
    #[cold]
    fn wait_for_readable<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        candidate: Candidate,
    ) -> Stop
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let seq = candidate.seq;
        if std::mem::replace(&mut self.activity.unreadable, seq) != seq {
            let consumer_seq = self.pending.get(seq).map_or(0, |entry| entry.consumer_seq);
            let deliveries = u64::from(candidate.delivered) - 1;
            let about = About { stream_seq: seq, consumer_seq, deliveries };
            send(env, &self.config.name, about, Advisory::Unreadable(REASON_UNREADABLE));
        }
        Stop::Unreadable
    }
}

/// Bytes of a delivery as JetStream counts them for `max_bytes` and flow control.
#[inline]
fn size_of_delivery(delivery: &Delivery<'_>) -> u64 {
    let parts = [delivery.subject, delivery.reply, delivery.headers, delivery.body];
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Finds a pull request that takes a message of this size, dropping those that are over.
#[inline]
fn next_turn<S: Sink>(
    queue: &mut WaitQueue<S::Target>,
    sink: &mut S,
    account: AccountId,
    bytes: u64,
    now: i64,
    last_active: &mut i64,
) -> Turn {
    let mut slow = 0;
    loop {
        if slow > 0 && slow >= queue.len() {
            return Turn::AllSlow;
        }
        let Some(head) = queue.head() else { return Turn::Nobody };
        if head.expires <= now {
            let headers = pending_headers(head.remaining, head.bytes_left);
            send_status(sink, account, &head.reply, Status::RequestTimeout, &headers);
            *last_active = head.expires.max(*last_active);
        } else if !sink.refresh(&mut head.target) {
            // There is no subscriber any more, so no status is sent.
        } else if !sink.ready(&head.target) {
            queue.rotate();
            slow += 1;
            continue;
        } else if head.bytes_left > 0 && bytes > head.bytes_left as u64 {
            let headers = pending_headers(head.remaining, head.bytes_left);
            send_status(sink, account, &head.reply, Status::TooLargeForRequest, &headers);
        } else {
            return Turn::Head;
        }
        queue.pop();
    }
}

/// A header block with the pin of the client that it is for.
fn headers_with_pin(out: &mut Vec<u8>, headers: &[u8], id: &str) {
    out.clear();
    out.extend_from_slice(headers);
    nuthatch_protocol::headers::append(out, b"Nats-Pin-Id", id.as_bytes());
}

/// A header block with the size of the payload that is left out.
fn headers_with_size(out: &mut Vec<u8>, headers: &[u8], body_bytes: usize) {
    out.clear();
    match headers.strip_suffix(b"\r\n") {
        Some(open) if !open.is_empty() => out.extend_from_slice(open),
        _ => out.extend_from_slice(b"NATS/1.0\r\n"),
    }
    out.extend_from_slice(b"Nats-Msg-Size: ");
    push_u64(out, body_bytes as u64);
    out.extend_from_slice(b"\r\n\r\n");
}
