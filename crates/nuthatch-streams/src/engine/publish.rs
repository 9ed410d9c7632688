//! Publishes in the engine: runs of one stream, acknowledgements, refusals.

use super::Engine;
use super::pending::{Acks, PendingOutput, send_acks};
use crate::event::{ClientBatch, Item, PublishItem};
use crate::rules::{ACK_AFTER_COMMIT, DUPLICATE_AFTER_COMMIT, RELEASES_BEFORE_EVICTIONS};
use crate::sink::{Message, Sink};
use crate::stream::{Admitted, NO_HEADERS, Publish, PublishHeaders, rewritten, scan};
use nuthatch_log::{LogAccess, Lsn, Read, Seq, StreamId};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;

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

/// A reply that is not part of a run of acknowledgements.
enum Outlier {
    Duplicate(u64),
    Refused(JsError),
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
        let maps = stream.is_some_and(|stream| stream.input_transform().is_some());
        let counts = stream.is_some_and(|stream| stream.limits().counter);
        let mut next = start;
        while let Some(Item::Publish(item)) = batch.items.get(next)
            && item.stream == id
        {
            let block = item.headers.of(&batch.buf);
            let scanned;
            let headers = if block.is_empty() {
                &NO_HEADERS
            } else {
                scanned = scan(block);
                &scanned
            };
            let mut publish = publish_of(batch, item);
            if maps && self.map_subject(id, publish.subject, &mut mapped, log) {
                publish.subject = &mapped;
            }
            if counts && let Some(after) = self.await_counters(batch, next, &publish, headers, log)
            {
                next = after;
                continue;
            }
            let is_fast = publish.reply.ends_with(super::fast::REPLY_SUFFIX);
            if is_fast || !headers.batch_id.is_empty() {
                self.end_run(batch, &run, id);
                run.count = 0;
                if is_fast {
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

    /// The stream's own transform of the subjects that come in.
    #[inline]
    pub(super) fn map_subject<L: LogAccess>(
        &self,
        id: StreamId,
        subject: &[u8],
        out: &mut Vec<u8>,
        log: &mut L,
    ) -> bool {
        let slot = self.streams.get(id);
        let Some(transform) = slot.and_then(|slot| slot.stream.input_transform()) else {
            return false;
        };
        let entropy = if transform.is_random() { log.entropy() as u32 } else { 0 };
        out.clear();
        transform.apply(subject, entropy, out)
    }

    /// Publishes again what has committed, where the stream wants that.
    pub(super) fn republish<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.streams.get_mut(id) else { return };
        while let Some(again) = slot.stream.next_republish() {
            // It has just been written: it is in memory. If it is not, its core subscribers miss it,
            // as they may miss any message.
            let Read::Ready(stored) = log.read(id, Seq(again.seq)) else { continue };
            let record = &stored.record;
            let Some((subject, headers, whole)) = slot.stream.republished(again, record) else {
                continue;
            };
            let body = if whole { record.body } else { b"" };
            let message = Message { subject: &subject, reply: b"", headers: &headers, body };
            self.sink.publish(slot.stream.account(), &message);
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
        if let Some(reason) = &self.failed {
            return Err(crate::stream::unavailable(reason));
        }
        let (slot, ledger) = self.streams.live_entry(id)?;
        if self.pending.acks() >= self.config.pending_acks_max {
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

    /// Queues the acknowledgements of a run (or sends them, if the stream wants that) and notes what
    /// it touched.
    fn end_run(&mut self, batch: &ClientBatch<S::Peer>, run: &PublishRun, id: StreamId) {
        if run.count == 0 {
            return;
        }
        let (slot, ledger) = self.streams.entry(id).expect("the stream of the run is there");
        ledger.stored(slot, run.lsn);
        let acks = Acks {
            batch: self.pending.batch_number(),
            first_item: run.first_item as u32,
            count: run.count as u32,
            stream: id,
            first_seq: run.first_seq,
        };
        let limits = slot.stream.limits();
        let is_early = limits.ack_early || !ACK_AFTER_COMMIT.holds();
        if is_early && !limits.no_ack {
            send_acks(batch, &acks, slot, &mut self.scratch.body, &mut self.sink);
        } else if !limits.no_ack {
            self.pending.push(run.lsn, PendingOutput::Acks(acks));
        }
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
                self.answer_odd(batch, item, Outlier::Duplicate(seq))
            }
            Err(error) => self.answer_odd(batch, item, Outlier::Refused(error)),
        }
    }

    /// Refuses a publish.
    pub(super) fn refuse(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        error: JsError,
    ) {
        self.answer_odd(batch, item, Outlier::Refused(error));
    }

    /// A duplicate or a refusal: answered once everything that it may depend on is durable.
    #[cold]
    fn answer_odd(&mut self, batch: &ClientBatch<S::Peer>, item: &PublishItem, odd: Outlier) {
        if item.reply.is_empty() {
            return;
        }
        let slot = self.streams.get(item.stream);
        let body = match odd {
            Outlier::Duplicate(seq) => {
                let mut body = slot.map_or_else(Vec::new, |slot| slot.ack_prefix.to_vec());
                push_u64(&mut body, seq);
                body.extend_from_slice(b",\"duplicate\": true}");
                body
            }
            Outlier::Refused(error) => {
                refusal_body(&error, slot.map_or("", |slot| &slot.stream.config().name))
            }
        };
        let after = slot.and_then(|slot| slot.stream.uncommitted());
        let after = after.filter(|_| DUPLICATE_AFTER_COMMIT.holds());
        self.answer_item(batch, item, body, after);
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
