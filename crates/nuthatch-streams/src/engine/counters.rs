//! Counters (ADR-49) beside their stream: what a counter stands at is read from the log where it is
//! not known, while what would add to it waits; and the acknowledgements with totals in them.

use super::Engine;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, Item, PublishItem};
use crate::op::Replica;
use crate::sink::Sink;
use crate::stream::{Publish, PublishHeaders, Stream};
use nuthatch_log::{LogAccess, Lsn, Read, StreamId};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;

/// Publishes behind one that waits for a counter whose counters are read at the same time.
const AHEAD_MAX: usize = 64;

/// True if it is known what a counter stands at; if not, the message that tells is being read, or
/// will be once it has committed.
fn is_known<L: LogAccess>(
    stream: &mut Stream,
    subject: &[u8],
    log: &mut L,
) -> Result<bool, JsError> {
    let (counters, contents) = stream.counters();
    let Some(seq) = counters.unknown(contents, subject) else { return Ok(true) };
    if seq.0 > stream.contents().committed_totals().last_seq {
        return Ok(false);
    }
    match log.read(stream.id(), seq) {
        Read::Pending => Ok(false),
        Read::Ready(stored) => {
            let (counters, contents) = stream.counters();
            counters.learn(contents, &stored.record);
            Ok(true)
        }
        Read::Missing | Read::Damaged | Read::Failing => {
            let why = format!("message {seq}, which holds the counter's value, can not be read");
            Err(JsError::STREAM_STORE_FAILED.with_err(why))
        }
    }
}

impl<S: Sink> Engine<S> {
    /// Before a publish into a counter stream: if what it adds to is not known yet, this one and
    /// those behind it wait. Returns where to go on; `None`: with the publish itself.
    pub(super) fn await_counters<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        at: usize,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        log: &mut L,
    ) -> Option<usize> {
        let Some(Item::Publish(item)) = batch.items.get(at) else { return None };
        let id = item.stream;
        let known = if self.deferred.waits(id) {
            Ok(false)
        } else {
            let slot = self.streams.undeleted(id).filter(|_| !self.out.has_failed());
            slot.map_or(Ok(true), |slot| slot.are_counters_known(publish, found, log))
        };
        let refused = match known {
            Ok(true) => return None,
            Ok(false) => {
                if let Some(slot) = self.streams.get_mut(id) {
                    slot.read_ahead(batch, at + 1, log);
                }
                match self.deferred.hold_for_counter(batch, at, id) {
                    Some(next) => return Some(next),
                    None => JsError::STREAM_TOO_MANY_REQUESTS,
                }
            }
            Err(error) => error,
        };
        self.out.refuse(self.streams.get(id), batch, item, &refused);
        Some(at + 1)
    }

    /// True if everything is known that these messages of a source add to. What can not be read is
    /// said when they are stored.
    pub(super) fn are_sourced_counters_known<L: LogAccess>(
        &mut self,
        id: StreamId,
        copies: &[Replica],
        log: &mut L,
    ) -> bool {
        let counts = self.streams.get(id).is_some_and(|slot| slot.stream.limits().counter);
        if !counts || self.out.has_failed() {
            return true;
        }
        let mut mapped = std::mem::take(&mut self.scratch.subject);
        let mut known = true;
        for copy in copies {
            let Some(slot) = self.streams.get_mut(id) else { break };
            let is_mapped = slot.stream.routes().map(&copy.subject, &mut mapped, log);
            let subject = if is_mapped { &mapped } else { &copy.subject };
            known &= is_known(&mut slot.stream, subject, log).unwrap_or(true);
        }
        self.scratch.subject = mapped;
        known
    }

    /// A publish was counted: acknowledged with the total, once it is durable.
    pub(super) fn answer_counted(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        subject: &[u8],
        (seq, lsn): (u64, Lsn),
    ) {
        let Some((slot, ledger)) = self.streams.entry(item.stream) else { return };
        ledger.stored(slot, lsn);
        let mut body = slot.ack_prefix.to_vec();
        push_u64(&mut body, seq);
        let (counters, contents) = slot.stream.counters();
        if let Some(total) = counters.total(contents, subject, seq) {
            body.extend_from_slice(format!(",\"val\":\"{total}\"").as_bytes());
        }
        body.push(b'}');
        let after = (!slot.stream.limits().ack_early).then_some(lsn);
        self.out.answer(Some(slot), batch, item, body, after);
    }
}

impl<S: Sink> StreamSlot<S> {
    /// True if everything is known that a publish adds to: with the last message of an atomic batch
    /// that is what the whole batch adds to.
    fn are_counters_known<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        log: &mut L,
    ) -> Result<bool, JsError> {
        let (stream, batches) = (&mut self.stream, &self.batches);
        let mut known = found.incr.is_empty() || is_known(stream, publish.subject, log)?;
        if !found.batch_commit.is_empty()
            && let Some(batches) = batches
        {
            for subject in batches.subjects_of(found.batch_id) {
                known &= is_known(stream, subject, log)?;
            }
        }
        Ok(known)
    }

    /// Starts to read what the publishes from `start` on will ask for, so that they do not wait for
    /// one load after the other.
    fn read_ahead<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
        log: &mut L,
    ) {
        if self.stream.routes().input().is_some() {
            return;
        }
        for item in batch.items.iter().skip(start).take(AHEAD_MAX) {
            let Item::Publish(item) = item else { return };
            if item.stream != self.stream.id() {
                return;
            }
            // What can not be read is said when its turn comes.
            let _ = is_known(&mut self.stream, item.subject.of(&batch.buf), log);
        }
    }
}
