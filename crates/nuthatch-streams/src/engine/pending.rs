//! Outputs that wait for their commit, in the order in which they arose.
//!
//! A run of publishes is remembered as (batch, items, first sequence) and its acknowledgements are
//! written when the frame has committed: no allocation per message. A refusal that may depend on an
//! uncommitted write queues behind it.

use super::outputs::refusal_body;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, Item, PublishItem, Span};
use crate::op::{Op, OpResult, Respond};
use crate::sink::{AccountId, Message, Sink};
use nuthatch_log::{Lsn, StreamId};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use std::collections::VecDeque;

/// An answer to one client.
pub(super) struct Answer<P> {
    pub(super) account: AccountId,
    /// The stream that it is about.
    pub(super) stream: StreamId,
    pub(super) peer: P,
    pub(super) hint: u32,
    pub(super) reply: Box<[u8]>,
    pub(super) body: Box<[u8]>,
}

/// A message that is not stored, behind what it follows.
pub(super) struct Transient {
    pub(super) account: AccountId,
    pub(super) subject: Box<[u8]>,
    pub(super) headers: Box<[u8]>,
    pub(super) body: Box<[u8]>,
}

impl Transient {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.subject.len() + self.headers.len() + self.body.len()
    }

    pub(super) fn send<S: Sink>(&self, sink: &mut S) {
        let Self { account, subject, headers, body } = self;
        sink.publish(*account, &Message { subject, reply: b"", headers, body });
    }
}

/// Acknowledgements of consecutive items of a batch with consecutive sequences.
#[derive(Clone, Copy)]
pub(super) struct Acks {
    pub(super) batch: u64,
    pub(super) first_item: u32,
    pub(super) count: u32,
    pub(super) stream: StreamId,
    pub(super) first_seq: u64,
}

/// An output that waits for its commit.
pub(super) enum PendingOutput<P> {
    /// Acknowledgements of a run.
    Acks(Acks),
    /// One answer, written already.
    Answer(Box<Answer<P>>),
    /// A message that is not stored, for those who follow the stream.
    Transient(Box<Transient>),
    /// The outcome of an operation.
    Op(Respond, OpOrInfo),
}

/// An outcome, or where to find it at the time of the commit.
pub(super) enum OpOrInfo {
    /// This; boxed, so that acknowledgements, which are many, are small entries.
    Ready(Box<OpResult>),
    /// The information of a stream that was created or updated, with the advisory to send.
    StreamInfo(StreamId, &'static str),
    /// A stream is gone for good.
    StreamDeleted(StreamId),
    /// A stream has been restored.
    Restored(StreamId),
    /// A question about what had been assigned when it was asked.
    Question(Box<Op>),
}

/// The queue.
pub(super) struct Pending<P> {
    queue: VecDeque<(Lsn, PendingOutput<P>)>,
    /// Batches that entries of the queue refer to, the first one numbered `first_batch`.
    batches: VecDeque<ClientBatch<P>>,
    first_batch: u64,
    /// Acknowledgements and other answers to publishes in the queue.
    acks: usize,
    /// Bytes of messages in the queue that are not stored.
    transient_bytes: usize,
    /// True if any of them belongs to the batch in hand.
    is_batch_waited_for: bool,
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            batches: VecDeque::new(),
            first_batch: 0,
            acks: 0,
            transient_bytes: 0,
            is_batch_waited_for: false,
        }
    }
}

impl<P> Pending<P> {
    /// Acknowledgements and other answers to publishes that wait.
    pub(super) const fn acks(&self) -> usize {
        self.acks
    }

    /// Bytes of messages that are not stored and wait.
    pub(super) const fn transient_bytes(&self) -> usize {
        self.transient_bytes
    }

    /// The frame after which a new answer keeps the order; `None`: nothing waits.
    pub(super) fn last_lsn(&self) -> Option<Lsn> {
        self.queue.back().map(|(lsn, _)| *lsn)
    }

    /// Number that the batch in hand gets if anything of it waits.
    pub(super) fn batch_number(&self) -> u64 {
        self.first_batch + self.batches.len() as u64
    }

    /// Queues something behind frame `lsn` and everything before it.
    pub(super) fn push(&mut self, lsn: Lsn, waiting: PendingOutput<P>) {
        match &waiting {
            PendingOutput::Acks(acks) => {
                self.acks += acks.count as usize;
                self.is_batch_waited_for = true;
            }
            PendingOutput::Answer(_) => self.acks += 1,
            PendingOutput::Transient(message) => self.transient_bytes += message.bytes(),
            PendingOutput::Op(..) => {}
        }
        let lsn = self.last_lsn().map_or(lsn, |last| last.max(lsn));
        self.queue.push_back((lsn, waiting));
    }

    /// Keeps what of the batch in hand is still needed if anything of it waits: where its answers
    /// go. The read buffer is free again at once, so a small message never pins a large one.
    pub(super) fn keep(&mut self, mut batch: ClientBatch<P>) {
        if !std::mem::take(&mut self.is_batch_waited_for) {
            return;
        }
        let reply_len = |item: &Item| match item {
            Item::Publish(publish) => publish.reply.of(&batch.buf).len(),
            _ => 0,
        };
        let mut replies = Vec::with_capacity(batch.items.iter().map(reply_len).sum());
        for item in &mut batch.items {
            if let Item::Publish(publish) = item {
                let start = replies.len() as u32;
                replies.extend_from_slice(publish.reply.of(&batch.buf));
                publish.reply = Span { start, end: replies.len() as u32 };
            }
        }
        batch.buf = replies.into();
        self.batches.push_back(batch);
    }

    /// The next thing to tell after frame `lsn` has committed.
    pub(super) fn pop(&mut self, lsn: Lsn) -> Option<PendingOutput<P>> {
        if self.queue.front()?.0 > lsn {
            return None;
        }
        let (_, waiting) = self.queue.pop_front()?;
        match &waiting {
            PendingOutput::Acks(acks) => {
                self.acks -= acks.count as usize;
                while self.first_batch < acks.batch && self.batches.pop_front().is_some() {
                    self.first_batch += 1;
                }
            }
            PendingOutput::Answer(_) => self.acks -= 1,
            PendingOutput::Transient(message) => self.transient_bytes -= message.bytes(),
            PendingOutput::Op(..) => {}
        }
        Some(waiting)
    }

    pub(super) fn batch(&self, number: u64) -> Option<&ClientBatch<P>> {
        self.batches.get(usize::try_from(number.checked_sub(self.first_batch)?).ok()?)
    }

    /// Gives back the memory of batches once nothing waits.
    pub(super) fn settle(&mut self) {
        if self.queue.is_empty() {
            self.first_batch += self.batches.len() as u64;
            self.batches.clear();
        }
    }
}

impl Acks {
    /// The publishes of the run.
    fn publishes<'a, P>(
        &self,
        batch: &'a ClientBatch<P>,
    ) -> impl Iterator<Item = &'a PublishItem> + use<'a, P> {
        let items = batch.items.iter().skip(self.first_item as usize).take(self.count as usize);
        items.filter_map(|item| match item {
            Item::Publish(publish) => Some(publish),
            _ => None,
        })
    }

    /// Writes and sends the acknowledgements. `body` is scratch space.
    pub(super) fn send<S: Sink>(
        &self,
        batch: &ClientBatch<S::Peer>,
        slot: &StreamSlot<S>,
        body: &mut Vec<u8>,
        sink: &mut S,
    ) {
        let account = slot.stream.account();
        body.clear();
        body.extend_from_slice(&slot.ack_prefix);
        for (publish, seq) in self.publishes(batch).zip(self.first_seq..) {
            if publish.reply.is_empty() {
                continue;
            }
            body.truncate(slot.ack_prefix.len());
            push_u64(body, seq);
            body.push(b'}');
            let reply = publish.reply.of(&batch.buf);
            let message = Message { subject: reply, reply: b"", headers: b"", body };
            sink.reply(account, &batch.peer, publish.hint, &message);
        }
    }

    /// Sends the same error to all.
    pub(super) fn refuse<S: Sink>(
        &self,
        batch: &ClientBatch<S::Peer>,
        slot: &StreamSlot<S>,
        error: &JsError,
        sink: &mut S,
    ) {
        let body = refusal_body(error, &slot.stream.config().name);
        for publish in self.publishes(batch).filter(|publish| !publish.reply.is_empty()) {
            let reply = publish.reply.of(&batch.buf);
            let message = Message { subject: reply, reply: b"", headers: b"", body: &body };
            sink.reply(slot.stream.account(), &batch.peer, publish.hint, &message);
        }
    }
}
