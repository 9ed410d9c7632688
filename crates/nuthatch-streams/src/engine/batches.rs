//! Atomic batches on their way (ADR-50): messages are kept in memory until the commit, and given up
//! when their publisher leaves a gap or falls silent. A restart forgets them: their publisher then
//! hears 10176 and sends the batch again.

use super::Engine;
use super::fast::FastBatch;
use super::ledger::Ledger;
use super::outputs::refusal_body;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, PublishItem};
use crate::sink::Sink;
use crate::stream::{BATCH_MESSAGES_MAX, BatchRefusal, Limits, Publish, PublishHeaders, rewritten};
use nuthatch_log::{LogAccess, Lsn, StreamId, Timestamp};
use nuthatch_protocol::headers;
use nuthatch_protocol::js::is_level_met;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use rustc_hash::FxHashMap;

/// Atomic batches open at once in one stream, by default.
pub const ATOMIC_PER_STREAM_MAX: usize = 50;
/// Atomic batches open at once in all streams of a log, by default.
pub const ATOMIC_MAX: usize = 1000;
/// Bytes that the messages of all open atomic batches of a log may take.
pub const STAGED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A batch without a message for so long is given up by default, ns.
pub const BATCH_IDLE_NS: i64 = 10_000_000_000;
/// Longest id of a batch, in bytes.
pub(super) const BATCH_ID_BYTES_MAX: usize = 64;
/// Memory of a staged message beside its bytes.
const STAGED_MESSAGE_BYTES: usize = 64;

/// Limits on batches of both kinds, each counted by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Open at once in one stream; `None`: [`ATOMIC_PER_STREAM_MAX`] and
    /// [`FAST_PER_STREAM_MAX`](super::fast::FAST_PER_STREAM_MAX).
    pub per_stream: Option<usize>,
    /// Open at once in all streams of a log; `None`: [`ATOMIC_MAX`] and
    /// [`FAST_MAX`](super::fast::FAST_MAX).
    pub total: Option<usize>,
    /// Messages of one atomic batch.
    pub messages: usize,
    /// A batch without a message for so long is given up, ns.
    pub idle_ns: i64,
}

impl Default for BatchLimits {
    fn default() -> Self {
        let (messages, idle_ns) = (BATCH_MESSAGES_MAX, BATCH_IDLE_NS);
        Self { per_stream: None, total: None, messages, idle_ns }
    }
}

/// Why an atomic batch was given up; the words of its advisory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abandoned {
    Timeout,
    Large,
    Incomplete,
    Unsupported,
}

impl Abandoned {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Large => "large",
            Self::Incomplete => "incomplete",
            Self::Unsupported => "unsupported",
        }
    }
}

/// A message of a batch that has not been committed.
struct StagedMessage {
    /// Subject, header block, payload.
    bytes: Box<[u8]>,
    subject_end: u32,
    headers_end: u32,
}

impl StagedMessage {
    fn new(publish: &Publish<'_>, headers: &[u8]) -> Self {
        let subject_end = publish.subject.len();
        let headers_end = subject_end + headers.len();
        let mut bytes = Vec::with_capacity(headers_end + publish.body.len());
        bytes.extend_from_slice(publish.subject);
        bytes.extend_from_slice(headers);
        bytes.extend_from_slice(publish.body);
        let (subject_end, headers_end) = (subject_end as u32, headers_end as u32);
        Self { bytes: bytes.into_boxed_slice(), subject_end, headers_end }
    }

    const fn size(&self) -> usize {
        self.bytes.len() + STAGED_MESSAGE_BYTES
    }

    fn publish(&self) -> Publish<'_> {
        let (subject, rest) = self.bytes.split_at(self.subject_end as usize);
        let (headers, body) = rest.split_at((self.headers_end - self.subject_end) as usize);
        Publish { subject, reply: b"", headers, body }
    }

    /// Adds `Nats-Batch-Commit: 1`, as the last message of a batch that an end-of-batch message
    /// commits has it.
    fn mark_last(&mut self) {
        let publish = self.publish();
        let mut block = publish.headers.to_vec();
        headers::append(&mut block, b"Nats-Batch-Commit", b"1");
        *self = Self::new(&publish, &block);
    }
}

/// An atomic batch on its way.
struct AtomicBatch {
    messages: Vec<StagedMessage>,
    bytes: usize,
    last_at: Timestamp,
}

/// The batches of one stream.
#[derive(Default)]
pub(super) struct Batches {
    atomic: FxHashMap<Box<[u8]>, AtomicBatch>,
    pub(super) fast: FxHashMap<Box<[u8]>, FastBatch>,
    /// When to look for batches that have fallen silent; `None` without batches.
    pub(super) check_at: Option<Timestamp>,
}

/// Use and limits of all batches of an engine.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BatchTotals {
    pub(super) limits: BatchLimits,
    atomic: usize,
    pub(super) fast: usize,
    staged_bytes: usize,
}

/// The request in a commit header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    No,
    /// This message is the last one.
    Yes,
    /// The message before was the last one; this one is not stored.
    EndOfBatch,
}

/// Effect of a message on its batch.
enum Fate {
    /// Staged; more are awaited.
    Staged,
    /// Every message is there.
    Commit(AtomicBatch),
    /// It is gone.
    Refused(JsError, Option<Abandoned>),
}

/// What became of a message of an atomic batch: the last sequence of a batch that is stored with it,
/// how many messages that has, and the frame to wait for; or the refusal, and why the batch is gone if
/// others are to be told.
type AtomicOutcome = Result<Option<(u64, usize, Lsn)>, (JsError, Option<Abandoned>)>;

impl BatchTotals {
    /// Nothing yet.
    pub(super) fn new(limits: BatchLimits) -> Self {
        Self { limits, ..Self::default() }
    }
}

impl Batches {
    /// The subjects of what an atomic batch has so far.
    pub(super) fn subjects_of(&self, id: &[u8]) -> impl Iterator<Item = &[u8]> {
        let batch = self.atomic.get(id);
        batch.into_iter().flat_map(|batch| &batch.messages).map(|message| message.publish().subject)
    }

    /// True if there is nothing on its way.
    fn is_empty(&self) -> bool {
        self.atomic.is_empty() && self.fast.is_empty()
    }

    fn remove(&mut self, id: &[u8], totals: &mut BatchTotals) -> Option<AtomicBatch> {
        let batch = self.atomic.remove(id)?;
        totals.atomic -= 1;
        totals.staged_bytes -= batch.bytes;
        Some(batch)
    }

    /// The batch that a message with this sequence belongs to; opened by the first message.
    fn open(
        &mut self,
        id: &[u8],
        seq: u64,
        size: u64,
        now: Timestamp,
        totals: &mut BatchTotals,
    ) -> Result<(), JsError> {
        if self.atomic.contains_key(id) {
            return Ok(());
        }
        if seq != 1 {
            return Err(if size > totals.limits.messages as u64 {
                too_large(&totals.limits)
            } else {
                JsError::ATOMIC_PUBLISH_INCOMPLETE_BATCH
            });
        }
        let limits = &totals.limits;
        if self.atomic.len() >= limits.per_stream.unwrap_or(ATOMIC_PER_STREAM_MAX)
            || totals.atomic >= limits.total.unwrap_or(ATOMIC_MAX)
        {
            return Err(JsError::ATOMIC_PUBLISH_TOO_MANY_INFLIGHT);
        }
        self.check_at.get_or_insert(now.plus_nanos(limits.idle_ns));
        let batch = AtomicBatch { messages: Vec::new(), bytes: 0, last_at: now };
        self.atomic.insert(id.into(), batch);
        totals.atomic += 1;
        Ok(())
    }

    /// Takes a message in; `id` is open.
    fn take(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        limits: &Limits,
        now: Timestamp,
        totals: &mut BatchTotals,
    ) -> Fate {
        let id = found.batch_id;
        let commit = match found.batch_commit {
            b"" => Commit::No,
            b"1" => Commit::Yes,
            b"eob" => Commit::EndOfBatch,
            _ => return Fate::Refused(JsError::ATOMIC_PUBLISH_INVALID_BATCH_COMMIT, None),
        };
        if !is_level_met(found.required_level) {
            return Fate::Refused(JsError::REQUIRED_API_LEVEL, Some(Abandoned::Unsupported));
        }
        let Some(batch) = self.atomic.get_mut(id) else {
            return Fate::Refused(JsError::ATOMIC_PUBLISH_INCOMPLETE_BATCH, None);
        };
        batch.last_at = now;
        let seq = batch.messages.len() as u64 + 1;
        let is_empty_end = seq == 1 && commit == Commit::EndOfBatch;
        if parse_digits(found.batch_seq) != Some(seq) || is_empty_end {
            let error = JsError::ATOMIC_PUBLISH_INCOMPLETE_BATCH;
            return Fate::Refused(error, Some(Abandoned::Incomplete));
        }
        if commit != Commit::EndOfBatch {
            if batch.messages.len() >= totals.limits.messages {
                return Fate::Refused(too_large(&totals.limits), Some(Abandoned::Large));
            }
            let rewritten = stored_headers(publish.headers, found, limits);
            let message =
                StagedMessage::new(publish, rewritten.as_deref().unwrap_or(publish.headers));
            if totals.staged_bytes + message.size() > STAGED_BYTES_MAX {
                return Fate::Refused(JsError::INSUFFICIENT_RESOURCES, Some(Abandoned::Large));
            }
            totals.staged_bytes += message.size();
            batch.bytes += message.size();
            batch.messages.push(message);
        } else if let Some(last) = batch.messages.last_mut() {
            last.mark_last();
        }
        if commit == Commit::No {
            return Fate::Staged;
        }
        match self.remove(id, totals) {
            Some(batch) => Fate::Commit(batch),
            None => Fate::Refused(JsError::ATOMIC_PUBLISH_INCOMPLETE_BATCH, None),
        }
    }

    /// Ids of atomic batches that have fallen silent; sets when to look again.
    fn sweep(&mut self, now: Timestamp, totals: &mut BatchTotals) -> Vec<Box<[u8]>> {
        let idle_ns = totals.limits.idle_ns;
        let horizon = now.plus_nanos(-idle_ns);
        let mut oldest: Option<Timestamp> = None;
        let mut silent = Vec::new();
        for (id, batch) in &self.atomic {
            if batch.last_at <= horizon {
                silent.push(id.clone());
            } else {
                oldest = Some(oldest.map_or(batch.last_at, |at| at.min(batch.last_at)));
            }
        }
        for id in &silent {
            self.remove(id, totals);
        }
        let before = self.fast.len();
        self.fast.retain(|_, batch| batch.last_at > horizon);
        totals.fast -= before - self.fast.len();
        for batch in self.fast.values() {
            oldest = Some(oldest.map_or(batch.last_at, |at| at.min(batch.last_at)));
        }
        self.check_at = oldest.map(|at| at.plus_nanos(idle_ns));
        silent
    }

    /// They go to another engine.
    pub(super) fn leave(&self, totals: &mut BatchTotals) {
        let (atomic, fast, staged_bytes) = self.totals();
        totals.atomic -= atomic;
        totals.fast -= fast;
        totals.staged_bytes -= staged_bytes;
    }

    /// They come from another engine.
    pub(super) fn join(&self, totals: &mut BatchTotals) {
        let (atomic, fast, staged_bytes) = self.totals();
        totals.atomic += atomic;
        totals.fast += fast;
        totals.staged_bytes += staged_bytes;
    }

    fn totals(&self) -> (usize, usize, usize) {
        let staged_bytes = self.atomic.values().map(|batch| batch.bytes).sum();
        (self.atomic.len(), self.fast.len(), staged_bytes)
    }
}

/// The header block of a batch's message as it is stored, where that differs: without the header
/// that only the server reads, and otherwise as [`rewritten`].
pub(super) fn stored_headers(
    block: &[u8],
    found: &PublishHeaders<'_>,
    limits: &Limits,
) -> Option<Vec<u8>> {
    let changed = rewritten(block, found, limits);
    if found.required_level.is_empty() {
        return changed;
    }
    let mut block = changed.unwrap_or_else(|| block.to_vec());
    headers::remove(&mut block, b"Nats-Required-Api-Level");
    Some(block)
}

fn too_large(limits: &BatchLimits) -> JsError {
    JsError::ATOMIC_PUBLISH_TOO_LARGE_BATCH.with("size", limits.messages)
}

/// Decimal digits as a number.
pub(super) fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

impl<S: Sink> Engine<S> {
    /// A message of an atomic batch. Answers it itself.
    #[cold]
    pub(super) fn atomic<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        log: &mut L,
    ) {
        let entry = self.out.check_log().and_then(|()| self.streams.live_entry(item.stream));
        let done = entry
            .map_err(|error| (error, None))
            .and_then(|(slot, ledger)| slot.atomic(publish, found, ledger, log));
        self.streams.schedule(item.stream);
        let slot = self.streams.get(item.stream);
        let name = self.streams.name_of(item.stream);
        let (body, after) = match done {
            Ok(None) => (Vec::new(), None),
            Ok(Some((last_seq, count, lsn))) => {
                let prefix = slot.map_or(&b""[..], |slot| &slot.ack_prefix);
                (batch_ack(prefix, last_seq, found.batch_id, count), Some(lsn))
            }
            Err((error, why)) => {
                if let (Some(slot), Some(why)) = (slot, why) {
                    self.out.advise_batch(slot, found.batch_id, why, log);
                }
                (
                    refusal_body(&error, name),
                    slot.and_then(|slot| slot.stream.contents().uncommitted()),
                )
            }
        };
        self.out.answer(slot, batch, item, body, after);
    }

    /// Gives up the batches of a stream that have fallen silent.
    pub(super) fn sweep_batches<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let now = log.now();
        let Some((slot, ledger)) = self.streams.entry(id) else { return };
        let Some(batches) =
            slot.batches.as_mut().filter(|b| b.check_at.is_some_and(|at| at <= now))
        else {
            return;
        };
        let silent = batches.sweep(now, &mut ledger.batches);
        if batches.is_empty() {
            slot.batches = None;
        }
        for batch in silent {
            self.out.advise_batch(slot, &batch, Abandoned::Timeout, log);
        }
    }
}

impl<S: Sink> StreamSlot<S> {
    /// Checks what does not need the batch, and puts the message into it.
    fn stage(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        now: Timestamp,
        totals: &mut BatchTotals,
    ) -> Result<Fate, JsError> {
        self.stream.check_size(publish)?;
        if !self.stream.limits().atomic {
            return Err(JsError::ATOMIC_PUBLISH_DISABLED);
        }
        if found.batch_id.len() > BATCH_ID_BYTES_MAX {
            return Err(JsError::ATOMIC_PUBLISH_INVALID_BATCH_ID);
        }
        let seq = parse_digits(found.batch_seq).ok_or(JsError::ATOMIC_PUBLISH_MISSING_SEQ)?;
        let size = seq - u64::from(found.batch_commit == b"eob" && seq > 0);
        let batches = self.batches.get_or_insert_default();
        batches.open(found.batch_id, seq, size, now, totals)?;
        Ok(batches.take(publish, found, self.stream.limits(), now, totals))
    }

    /// A message of an atomic batch.
    fn atomic<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> AtomicOutcome {
        match self.stage(publish, found, log.now(), &mut ledger.batches) {
            Ok(Fate::Staged) => Ok(None),
            Ok(Fate::Commit(whole)) => {
                self.commit_atomic(&whole, ledger, log).map(Some).map_err(|error| (error, None))
            }
            Ok(Fate::Refused(error, why)) => {
                if let Some(batches) = &mut self.batches {
                    batches.remove(found.batch_id, &mut ledger.batches);
                }
                Err((error, why))
            }
            Err(error) => Err((error, None)),
        }
    }

    /// Stores a batch: its last sequence, how many messages, and the frame to wait for.
    fn commit_atomic<L: LogAccess>(
        &mut self,
        whole: &AtomicBatch,
        ledger: &mut Ledger,
        log: &mut L,
    ) -> Result<(u64, usize, Lsn), JsError> {
        let publishes: Vec<Publish<'_>> =
            whole.messages.iter().map(StagedMessage::publish).collect();
        self.log_releases(log)?;
        let (stream, consumers) = (&mut self.stream, &self.consumers);
        let done = stream
            .commit_batch(&publishes, log, ledger.budget(), |subject| consumers.any_wants(subject));
        let (result, lsn) = match done {
            Ok(done) => (Ok((done.last_seq, publishes.len(), done.lsn)), Some(done.lsn)),
            Err(BatchRefusal::Checked(error)) => (Err(error), None),
            Err(BatchRefusal::Broken(error, lsn)) => (Err(error), lsn),
        };
        if let Some(lsn) = lsn {
            ledger.changed(self, lsn);
        }
        result
    }
}

/// `{"stream":"S","seq":N,"batch":"ID","count":N}`.
pub(super) fn batch_ack(prefix: &[u8], seq: u64, id: &[u8], count: usize) -> Vec<u8> {
    let mut body = prefix.to_vec();
    push_u64(&mut body, seq);
    body.extend_from_slice(b",\"batch\":");
    let id = String::from_utf8_lossy(id);
    body.extend_from_slice(serde_json::Value::from(id.as_ref()).to_string().as_bytes());
    body.extend_from_slice(b",\"count\":");
    push_u64(&mut body, count as u64);
    body.push(b'}');
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_configuration() {
        let limits = BatchLimits { per_stream: Some(2), total: Some(3), messages: 5, idle_ns: 7 };
        let mut totals = BatchTotals::new(limits);
        let (mut one, mut other) = (Batches::default(), Batches::default());
        let mut open = |batches: &mut Batches, id: &str, seq: u64, size: u64| {
            let opened = batches.open(id.as_bytes(), seq, size, Timestamp(0), &mut totals);
            opened.map_err(|error| error.err_code).err()
        };
        assert_eq!(open(&mut one, "a", 1, 1), None);
        assert_eq!(open(&mut one, "b", 1, 1), None);
        assert_eq!(open(&mut one, "c", 1, 1), Some(10210), "two in a stream");
        assert_eq!(open(&mut other, "a", 1, 1), None);
        assert_eq!(open(&mut other, "b", 1, 1), Some(10210), "three in a log");
        assert_eq!(open(&mut other, "x", 7, 6), Some(10199), "five messages");
        assert_eq!((one.check_at, open(&mut other, "x", 7, 5)), (Some(Timestamp(7)), Some(10176)));
    }
}
