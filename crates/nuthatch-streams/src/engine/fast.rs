//! Fast batches (ADR-50): messages without an acknowledgement each, told apart by their reply
//! subjects `<prefix>.<id>.<flow>.<ok|fail>.<seq>.<op>.$FI`. Every so many messages one flow
//! message says how far everything is durable; the last one is acknowledged like a batch.
//!
//! Nothing is atomic here: what was stored stays. A restart forgets the batches (10208).

use super::Engine;
use super::batches::{
    BATCH_ID_BYTES_MAX, BatchTotals, Batches, batch_ack, parse_digits, stored_headers,
};
use super::ledger::Ledger;
use super::outputs::refusal_body;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, PublishItem};
use crate::sink::Sink;
use crate::stream::{Admitted, Publish, PublishHeaders, scan};
use nuthatch_log::{LogAccess, Timestamp};
use nuthatch_protocol::js::is_level_met;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use serde::Serialize;

/// Reply subjects of fast batches end like this.
pub(super) const REPLY_SUFFIX: &[u8] = b".$FI";
/// Fast batches open at once in one stream, by default.
pub const FAST_PER_STREAM_MAX: usize = 1000;
/// Fast batches open at once in all streams of a log, by default.
pub const FAST_MAX: usize = 50_000;
/// Messages between two flow messages, of all batches of a stream together.
const FLOW_MESSAGES_MAX: usize = 4096;
/// The same where the client names no number.
const FLOW_MESSAGES_DEFAULT: u16 = 10;

/// Operation of a message on its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FastStep {
    /// Begins or continues it.
    Append,
    /// Is its last message.
    Commit,
    /// Ends it without being stored.
    EndOfBatch,
    /// Asks how far it is.
    Ping,
}

/// Parameters of a fast batch, as its reply subject carries them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FastReply<'a> {
    id: &'a [u8],
    seq: u64,
    flow: u16,
    gap_ok: bool,
    step: FastStep,
}

impl<'a> FastReply<'a> {
    /// Reads a reply subject that ends with [`REPLY_SUFFIX`]; `None` if it is not of this form.
    fn parse(reply: &'a [u8]) -> Option<Self> {
        let rest = reply.strip_suffix(REPLY_SUFFIX)?;
        let mut tokens = rest.rsplitn(6, |&b| b == b'.');
        let op = parse_digits(tokens.next()?)?;
        let seq = parse_digits(tokens.next()?).filter(|&seq| seq > 0 && seq < u64::MAX)?;
        let gap_ok = match tokens.next()? {
            b"ok" => true,
            b"fail" => false,
            _ => return None,
        };
        let flow = match parse_digits(tokens.next()?) {
            None | Some(0) => FLOW_MESSAGES_DEFAULT,
            Some(flow) => u16::try_from(flow).unwrap_or(u16::MAX),
        };
        let id = tokens.next()?;
        // There is a prefix before the id.
        tokens.next()?;
        let step = match (op, seq) {
            (0, 1) | (1, 2..) => FastStep::Append,
            (2, _) => FastStep::Commit,
            (3, 2..) => FastStep::EndOfBatch,
            (4, _) => FastStep::Ping,
            _ => return None,
        };
        Some(Self { id, seq, flow, gap_ok, step })
    }
}

/// A fast batch on its way.
#[derive(Debug)]
pub(super) struct FastBatch {
    pub(super) last_at: Timestamp,
    /// Last sequence of the batch that was taken (or skipped, where gaps are allowed).
    last: u64,
    /// Sequence that its last message got in the stream.
    stream_seq: u64,
    /// Sequence of the batch that the last flow message told of.
    told: u64,
    /// A flow message every so many messages.
    every: u16,
    /// The same as the client allows it at most.
    every_max: u16,
    gap_ok: bool,
}

#[derive(Serialize)]
struct FlowError<'a> {
    r#type: &'static str,
    seq: u64,
    error: &'a JsError,
}

fn flow_ack(seq: u64, messages: u16) -> Vec<u8> {
    let mut body = Vec::with_capacity(48);
    body.extend_from_slice(b"{\"type\":\"ack\",\"seq\":");
    push_u64(&mut body, seq);
    body.extend_from_slice(b",\"msgs\":");
    push_u64(&mut body, u64::from(messages));
    body.push(b'}');
    body
}

fn flow_gap(last_seq: u64, seq: u64) -> Vec<u8> {
    format!("{{\"type\":\"gap\",\"last_seq\":{last_seq},\"seq\":{seq}}}").into_bytes()
}

fn flow_error(seq: u64, error: &JsError) -> Vec<u8> {
    // Numbers and strings: cannot fail.
    serde_json::to_vec(&FlowError { r#type: "err", seq, error }).expect("numbers and strings")
}

impl FastBatch {
    /// The usual case, for which nothing else has to be looked at: the next message in order, not
    /// the last one. Then it is taken.
    fn takes_next(&mut self, reply: &FastReply<'_>, found: &PublishHeaders<'_>) -> bool {
        let is_next = reply.step == FastStep::Append
            && reply.seq == self.last + 1
            && self.last > 0
            && found.required_level.is_empty();
        self.last += u64::from(is_next);
        is_next
    }

    /// The flow message that is due after the message just taken, if one is. `batches` share what
    /// the stream allows.
    fn flow_due(&mut self, batches: usize) -> Option<Vec<u8>> {
        let every = u64::from(self.every);
        if self.last < self.told + every {
            return None;
        }
        self.told += (self.last - self.told) / every * every;
        let share = (FLOW_MESSAGES_MAX / batches.max(1)).max(1);
        let most = u16::try_from(share).unwrap_or(u16::MAX).min(self.every_max);
        if self.every < most {
            self.every = self.every.saturating_mul(2).min(most);
        } else if self.every > most {
            self.every = (self.every / 2).max(most);
        }
        Some(flow_ack(self.told, self.every))
    }
}

/// Up to two replies to the client, in order.
#[derive(Default)]
struct FastReplies {
    first: Option<Vec<u8>>,
    second: Option<Vec<u8>>,
}

impl FastReplies {
    const fn one(body: Vec<u8>) -> Self {
        Self { first: Some(body), second: None }
    }
}

/// Decision before a message is stored.
enum Before {
    /// The message is not stored; tell this.
    Done(FastReplies),
    /// It is; tell this at once.
    Store(Option<Vec<u8>>),
}

impl Batches {
    fn remove_fast(&mut self, id: &[u8], totals: &mut BatchTotals) -> Option<FastBatch> {
        let batch = self.fast.remove(id)?;
        totals.fast -= 1;
        Some(batch)
    }

    fn open_fast(
        &mut self,
        reply: &FastReply<'_>,
        now: Timestamp,
        totals: &mut BatchTotals,
    ) -> Result<(), JsError> {
        if reply.seq != 1 || reply.step == FastStep::Ping {
            return Err(JsError::BATCH_PUBLISH_UNKNOWN_BATCH_ID);
        }
        let limits = totals.limits;
        if self.fast.len() >= limits.per_stream.unwrap_or(FAST_PER_STREAM_MAX)
            || totals.fast >= limits.total.unwrap_or(FAST_MAX)
        {
            return Err(JsError::BATCH_PUBLISH_TOO_MANY_INFLIGHT);
        }
        let alone = self.fast.is_empty();
        let every = if alone { reply.flow.min(FLOW_MESSAGES_MAX as u16) } else { 1 };
        let batch = FastBatch {
            last_at: now,
            last: 0,
            stream_seq: 0,
            told: 0,
            every,
            every_max: reply.flow,
            gap_ok: reply.gap_ok,
        };
        self.fast.insert(reply.id.into(), batch);
        totals.fast += 1;
        self.check_at.get_or_insert(now.plus_nanos(limits.idle_ns));
        Ok(())
    }

    /// The batch is over: its acknowledgement.
    fn finish_fast(&mut self, id: &[u8], prefix: &[u8], totals: &mut BatchTotals) -> Vec<u8> {
        let (seq, count) =
            self.remove_fast(id, totals).map_or((0, 0), |batch| (batch.stream_seq, batch.last));
        batch_ack(prefix, seq, id, usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Gaps, pings and ends.
    fn before_store(
        &mut self,
        reply: &FastReply<'_>,
        prefix: &[u8],
        totals: &mut BatchTotals,
    ) -> Before {
        let count = self.fast.len();
        let Some(batch) = self.fast.get_mut(reply.id) else {
            return Before::Done(FastReplies::default());
        };
        if reply.step == FastStep::Ping {
            return Before::Done(self.ping(reply, prefix, count, totals));
        }
        let mut told = FastReplies::default();
        let expected = batch.last + 1;
        if reply.seq != expected {
            told.first = Some(flow_gap(expected, reply.seq));
            if !batch.gap_ok || reply.seq < expected {
                told.second = Some(self.finish_fast(reply.id, prefix, totals));
                return Before::Done(told);
            }
        }
        if reply.step == FastStep::EndOfBatch {
            batch.last = reply.seq - 1;
            told.second = Some(self.finish_fast(reply.id, prefix, totals));
            return Before::Done(told);
        }
        batch.last = reply.seq;
        if reply.seq == 1 && reply.step == FastStep::Append {
            told.first = Some(flow_ack(0, batch.every));
        }
        Before::Store(told.first)
    }

    fn ping(
        &mut self,
        reply: &FastReply<'_>,
        prefix: &[u8],
        count: usize,
        totals: &mut BatchTotals,
    ) -> FastReplies {
        let Some(batch) = self.fast.get_mut(reply.id) else { return FastReplies::default() };
        if reply.seq <= batch.last {
            return FastReplies::one(flow_ack(batch.told, batch.every));
        }
        let mut told = FastReplies::one(flow_gap(batch.last + 1, reply.seq + 1));
        if batch.gap_ok {
            batch.last = reply.seq;
            let due = batch.flow_due(count);
            told.second = Some(due.unwrap_or_else(|| flow_ack(batch.told, batch.every)));
        } else {
            told.second = Some(self.finish_fast(reply.id, prefix, totals));
        }
        told
    }
}

impl<S: Sink> Engine<S> {
    /// A message whose reply subject says that it belongs to a fast batch. Answers it itself.
    #[inline]
    pub(super) fn fast<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        log: &mut L,
    ) {
        let entry = self.out.check_log().and_then(|()| self.streams.live_entry(item.stream));
        match entry.and_then(|(slot, ledger)| slot.fast(publish, found, ledger, log)) {
            Ok(FastReplies { first: None, second: None }) => {}
            Ok(told) => self.tell_fast(batch, item, told),
            Err(error) => {
                let name = self.streams.name_of(item.stream);
                let told = FastReplies::one(refusal_body(&error, name));
                self.tell_fast(batch, item, told);
            }
        }
    }

    /// Tells of a fast batch what is true once everything assigned so far has committed.
    #[cold]
    fn tell_fast(&mut self, batch: &ClientBatch<S::Peer>, item: &PublishItem, told: FastReplies) {
        for body in told.first.into_iter().chain(told.second) {
            let slot = self.streams.get(item.stream);
            let late = slot.filter(|slot| !slot.stream.limits().ack_early);
            let after = late.and_then(|slot| slot.stream.contents().uncommitted());
            self.out.answer(slot, batch, item, body, after);
        }
        self.streams.schedule(item.stream);
    }
}

impl<S: Sink> StreamSlot<S> {
    /// A message of a fast batch.
    fn fast<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Result<FastReplies, JsError> {
        self.stream.check_size(publish)?;
        if !self.stream.limits().batched {
            return Err(JsError::BATCH_PUBLISH_DISABLED);
        }
        let reply =
            FastReply::parse(publish.reply).ok_or(JsError::BATCH_PUBLISH_INVALID_PATTERN)?;
        if reply.id.len() > BATCH_ID_BYTES_MAX {
            return Err(JsError::BATCH_PUBLISH_INVALID_BATCH_ID);
        }
        let totals = &mut ledger.batches;
        let batches = self.batches.get_or_insert_default();
        let is_next = match batches.fast.get_mut(reply.id) {
            Some(batch) => {
                batch.last_at = log.now();
                batch.takes_next(&reply, found)
            }
            None => {
                batches.open_fast(&reply, log.now(), totals)?;
                false
            }
        };
        let mut at_once = None;
        if !is_next {
            if !is_level_met(found.required_level) {
                batches.remove_fast(reply.id, totals);
                return Err(JsError::REQUIRED_API_LEVEL);
            }
            match batches.before_store(&reply, &self.ack_prefix, totals) {
                Before::Done(told) => return Ok(told),
                Before::Store(told) => at_once = told,
            }
        }
        let stored = self.store_fast(publish, found, ledger, log);
        Ok(self.after_store(&reply, stored, at_once, &mut ledger.batches))
    }

    #[inline]
    fn store_fast<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Result<Admitted, JsError> {
        if self.stream.must_log_releases(publish) {
            self.log_progress(log).map_err(crate::stream::refusal)?;
        }
        let rewritten = stored_headers(publish.headers, found, self.stream.limits());
        let scanned;
        let (mut publish, mut found) = (*publish, found);
        if let Some(block) = &rewritten {
            publish.headers = block;
            scanned = scan(block);
            found = &scanned;
        }
        let (stream, consumers) = (&mut self.stream, &self.consumers);
        let stored = stream.publish(&publish, found, log, ledger.budget(), |subject| {
            consumers.any_wants(subject)
        })?;
        if let Admitted::Sequenced { lsn, .. } = stored {
            ledger.stored(self, lsn);
        }
        Ok(stored)
    }

    /// Replies after a message was stored, or was not.
    fn after_store(
        &mut self,
        reply: &FastReply<'_>,
        stored: Result<Admitted, JsError>,
        at_once: Option<Vec<u8>>,
        totals: &mut BatchTotals,
    ) -> FastReplies {
        let (prefix, name) = (&self.ack_prefix, &self.stream.config().name);
        let Some(batches) = &mut self.batches else { return FastReplies::default() };
        let count = batches.fast.len();
        let Some(batch) = batches.fast.get_mut(reply.id) else { return FastReplies::default() };
        let commits = reply.step == FastStep::Commit;
        // The incumbent answers the very first message like any publish where gaps are no way on.
        let is_alone = batch.last == 1 && !batch.gap_ok;
        match stored {
            Ok(Admitted::Sequenced { seq, .. }) => {
                batch.stream_seq = seq;
                let second = if commits {
                    Some(batches.finish_fast(reply.id, prefix, totals))
                } else {
                    batch.flow_due(count)
                };
                FastReplies { first: at_once, second }
            }
            Ok(Admitted::Duplicate { seq }) if commits && is_alone => {
                batches.remove_fast(reply.id, totals);
                FastReplies::one(duplicate_ack(prefix, seq, reply.id, reply.seq))
            }
            Ok(Admitted::Duplicate { .. }) if commits => FastReplies {
                first: at_once,
                second: Some(batches.finish_fast(reply.id, prefix, totals)),
            },
            Ok(Admitted::Duplicate { .. }) => {
                FastReplies { first: at_once, second: batch.flow_due(count) }
            }
            Err(error) if is_alone => {
                let body = refusal_body(&error, name);
                batches.remove_fast(reply.id, totals);
                FastReplies::one(body)
            }
            Err(error) if batch.gap_ok && !commits => {
                FastReplies { first: at_once, second: Some(flow_error(reply.seq, &error)) }
            }
            Err(error) => {
                batch.last -= 1;
                let second = Some(batches.finish_fast(reply.id, prefix, totals));
                FastReplies { first: Some(flow_error(reply.seq, &error)), second }
            }
        }
    }
}

/// The acknowledgement of a batch that was one message, which had been stored before.
fn duplicate_ack(prefix: &[u8], seq: u64, id: &[u8], count: u64) -> Vec<u8> {
    let body = batch_ack(prefix, seq, id, usize::try_from(count).unwrap_or(usize::MAX));
    let marker = b",\"batch\":";
    let Some(at) = body.windows(marker.len()).rposition(|window| window == marker) else {
        return body;
    };
    [&body[..at], b",\"duplicate\": true", &body[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subjects_are_read_from_the_end() {
        let parse = |text: &'static str| FastReply::parse(text.as_bytes());
        let reply = parse("_INBOX.a.b.uuid.500.fail.7.1.$FI").expect("an append");
        assert_eq!((reply.id, reply.seq, reply.flow), (&b"uuid"[..], 7, 500));
        assert_eq!((reply.gap_ok, reply.step), (false, FastStep::Append));
        assert_eq!(parse("p.u.0.ok.1.0.$FI").map(|r| (r.flow, r.gap_ok)), Some((10, true)));
        assert_eq!(parse("p.u.70000.ok.1.0.$FI").map(|r| r.flow), Some(u16::MAX));
        assert_eq!(parse("p.u.1.ok.9.2.$FI").map(|r| r.step), Some(FastStep::Commit));
        assert_eq!(parse("p.u.1.ok.9.3.$FI").map(|r| r.step), Some(FastStep::EndOfBatch));
        assert_eq!(parse("p.u.1.ok.9.4.$FI").map(|r| r.step), Some(FastStep::Ping));
        for wrong in [
            "p.u.1.ok.0.0.$FI",
            "p.u.1.ok.2.0.$FI",
            "p.u.1.ok.1.1.$FI",
            "p.u.1.ok.1.3.$FI",
            "p.u.1.maybe.1.0.$FI",
            "p.u.1.ok.1.5.$FI",
            "p.u.1.ok.18446744073709551615.1.$FI",
            "1.ok.1.0.$FI",
            "$FI",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
