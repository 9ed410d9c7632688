//! Publishes in the engine: runs of one stream, acknowledgements, refusals.

use super::Engine;
use crate::event::{ClientBatch, Item, PublishItem};
use crate::op::{AskedMessage, OpOutcome, OpResult};
use crate::rules::RELEASES_BEFORE_EVICTIONS;
use crate::sink::{Message, Sink};
use crate::stream::{Admitted, NO_HEADERS, Publish, PublishHeaders, rewritten, scan};
use nuthatch_log::{LogAccess, Lsn, Read, Seq, StreamId};
use nuthatch_protocol::jserror::JsError;

/// Consecutive publishes that got consecutive sequences in one frame.
#[derive(Clone, Copy, Default)]
struct PublishRun {
    lsn: Lsn,
    first_item: usize,
    count: usize,
    first_seq: u64,
}

impl PublishRun {
    fn continues(&self, lsn: Lsn, item: usize, seq: u64) -> bool {
        self.count > 0
            && self.lsn == lsn
            && self.first_item + self.count == item
            && self.first_seq + self.count as u64 == seq
    }
}

impl<S: Sink> Engine<S> {
    /// Takes publishes from `start` on as long as they go to one stream; returns where it stopped.
    pub(super) fn publish_run<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
        id: StreamId,
        log: &mut L,
    ) -> usize {
        if let Some(next) = self.hold_publishes(batch, start, id) {
            return next;
        }
        self.prepare_run(id, log);
        let mut run = PublishRun::default();
        let mut mapped = std::mem::take(&mut self.scratch.subject);
        let stream = self.streams.get(id).map(|slot| &slot.stream);
        let maps = stream.is_some_and(|stream| stream.routes().input().is_some());
        let counts = stream.is_some_and(|stream| stream.limits().counter);
        let mut next = start;
        while let Some(Item::Publish(item)) = batch.items.get(next)
            && item.stream == id
        {
            let block = item.headers.of(&batch.buf);
            let scanned = (!block.is_empty()).then(|| scan(block));
            let headers = scanned.as_ref().unwrap_or(&NO_HEADERS);
            let mut publish = publish_of(batch, item);
            if maps
                && let Some(slot) = self.streams.get(id)
                && slot.stream.routes().map(publish.subject, &mut mapped, log)
            {
                publish.subject = &mapped;
            }
            if counts && let Some(after) = self.await_counters(batch, next, &publish, headers, log)
            {
                next = after;
                continue;
            }
            let is_fast = publish.reply.ends_with(super::fast::REPLY_SUFFIX);
            if is_fast || headers.aside {
                self.end_run(batch, &run, id);
                run.count = 0;
                if headers.transient {
                    self.transient(batch, item, &publish, headers, log);
                } else if is_fast {
                    self.fast(batch, item, &publish, headers, log);
                } else {
                    self.atomic(batch, item, &publish, headers, log);
                }
                next += 1;
                continue;
            }
            match self.admit(&publish, id, headers, log) {
                Ok(Admitted::Sequenced { seq, lsn }) if !counts => {
                    if !run.continues(lsn, next, seq) {
                        self.end_run(batch, &run, id);
                        run = PublishRun { lsn, first_item: next, count: 0, first_seq: seq };
                    }
                    run.count += 1;
                }
                other => {
                    self.end_run(batch, &run, id);
                    run.count = 0;
                    self.answer_alone(batch, item, publish.subject, other);
                }
            }
            next += 1;
        }
        self.end_run(batch, &run, id);
        self.scratch.subject = mapped;
        self.settle_run(id);
        next
    }

    /// Publishes again what has committed, where the stream wants that.
    pub(super) fn republish<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.streams.get_mut(id) else { return };
        while let Some(again) = slot.stream.next_republish() {
            // It has just been written: it is in memory. If it is not, its core subscribers miss it,
            // as they may miss any message.
            let Read::Ready(stored) = log.read(id, Seq(again.seq)) else { continue };
            let record = &stored.record;
            let name = &slot.stream.config().name;
            let Some((subject, headers, whole)) =
                slot.stream.routes().republished(name, again, record)
            else {
                continue;
            };
            let body = if whole { record.body } else { b"" };
            let message = Message { subject: &subject, reply: b"", headers: &headers, body };
            self.out.sink_mut().publish_and_store(slot.stream.account(), &message);
        }
    }

    /// Before a run: what the clock says has expired is gone.
    fn prepare_run<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some((slot, ledger)) = self.streams.entry(id) else { return };
        if slot.stream.limits().age_ns > 0 || slot.stream.is_timed() {
            ledger.expire(slot, log);
        }
    }

    /// After a run: what it took of the budget, and when its messages expire.
    fn settle_run(&mut self, id: StreamId) {
        let Some((slot, ledger)) = self.streams.entry(id) else { return };
        ledger.settle(slot);
        ledger.schedule(slot);
    }

    #[inline]
    fn admit<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        id: StreamId,
        headers: &PublishHeaders<'_>,
        log: &mut L,
    ) -> Result<Admitted, JsError> {
        self.out.check_log()?;
        let (slot, ledger) = self.streams.live_entry(id)?;
        if self.out.pending_acks() >= self.config.pending_acks_max {
            return Err(JsError::STREAM_TOO_MANY_REQUESTS);
        }
        if slot.stream.must_log_releases(publish) && RELEASES_BEFORE_EVICTIONS.holds() {
            slot.log_progress(log).map_err(crate::stream::refusal)?;
        }
        let limits = slot.stream.limits();
        let has_headers = !publish.headers.is_empty();
        let changed = has_headers.then(|| rewritten(publish.headers, headers, limits)).flatten();
        let (stream, consumers) = (&mut slot.stream, &slot.consumers);
        if let Some(block) = &changed {
            let publish = Publish { headers: block, ..*publish };
            return stream.publish(&publish, &scan(block), log, ledger.budget(), |subject| {
                consumers.any_wants(subject)
            });
        }
        stream
            .publish(publish, headers, log, ledger.budget(), |subject| consumers.any_wants(subject))
    }

    /// What a stream would say to a message. Of a batch only what belongs to the message itself is known
    /// before its end: its size.
    pub(super) fn would_take<L: LogAccess>(
        &mut self,
        id: StreamId,
        message: &AskedMessage,
        log: &mut L,
    ) -> OpResult {
        self.out.check_log()?;
        self.prepare_run(id, log);
        let (slot, ledger) = self.streams.live_entry(id)?;
        let (limits, headers) = (slot.stream.limits(), scan(&message.headers));
        let fits = message.headers.len() + message.body_len <= limits.message_bytes;
        if !fits && !limits.sealed {
            return Err(JsError::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
        }
        let subject = &message.subject[..];
        let publish = Publish { subject, reply: b"", headers: &message.headers, body: b"" };
        if headers.aside {
            slot.stream.check_size(&publish)?;
            return Ok(OpOutcome::WouldTake(None));
        }
        let changed = rewritten(&message.headers, &headers, limits);
        let budget = ledger.budget();
        let stored = match &changed {
            Some(block) => {
                let publish = Publish { headers: block, ..publish };
                slot.stream.would_take(&publish, &scan(block), log, budget)
            }
            None => slot.stream.would_take(&publish, &headers, log, budget),
        };
        stored.map(OpOutcome::WouldTake)
    }

    /// Queues the acknowledgements of a run (or sends them, if the stream wants that) and notes what
    /// it touched.
    fn end_run(&mut self, batch: &ClientBatch<S::Peer>, run: &PublishRun, id: StreamId) {
        if run.count == 0 {
            return;
        }
        let (slot, ledger) = self.streams.entry(id).expect("the stream of the run is there");
        ledger.stored(slot, run.lsn);
        let items = (run.first_item, run.count);
        self.out.acknowledge(batch, slot, run.lsn, items, run.first_seq);
    }

    /// Answers a publish that is not part of a run.
    #[cold]
    fn answer_alone(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        subject: &[u8],
        done: Result<Admitted, JsError>,
    ) {
        match done {
            Ok(Admitted::Sequenced { seq, lsn }) => {
                self.answer_counted(batch, item, subject, (seq, lsn));
            }
            Ok(Admitted::Duplicate { seq }) => {
                self.out.tell_duplicate(self.streams.get(item.stream), batch, item, seq);
            }
            Err(error) => self.out.refuse(self.streams.get(item.stream), batch, item, &error),
        }
    }
}

/// A publish as it lies in its batch.
#[inline]
fn publish_of<'a, P>(batch: &'a ClientBatch<P>, item: &PublishItem) -> Publish<'a> {
    Publish {
        subject: item.subject.of(&batch.buf),
        reply: item.reply.of(&batch.buf),
        headers: item.headers.of(&batch.buf),
        body: item.body.of(&batch.buf),
    }
}
