//! Atomic batches (ADR-50): every message is checked before the first one is appended, all of them
//! become visible with the commit of the last one's frame, and a replay that finds only a part of
//! them (the machine stopped between two frames) leaves the part out.
//!
//! The rules for headers inside a batch are the incumbent's (`checkMsgHeadersPreClusteredProposal`).

use super::Stream;
use super::admit::{Effects, Publish, Refusal, refusal};
use super::contents::When;
use super::counters::{Counted, Counter};
use super::dedup::{IdHash, hash_id};
use super::headers::{NO_HEADERS, PublishHeaders, Rollup, scan};
use super::messages::{Entry, MAX_WEIGHT_BYTES};
use crate::budget::Budget;
use crate::records::{Advance, BatchBegin};
use crate::rules::BATCH_WHOLE;
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, Timestamp, Urgency};
use nuthatch_protocol::js::RetentionPolicy;
use nuthatch_protocol::jserror::JsError;
use rustc_hash::{FxHashMap, FxHashSet};

/// Messages of one atomic batch by default (`streamDefaultMaxAtomicBatchSize`).
pub const BATCH_MESSAGES_MAX: usize = 1000;

/// A batch that has its sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Sequence of the last message.
    pub last_seq: u64,
    /// The frame whose commit makes the batch visible.
    pub lsn: Lsn,
}

/// Why a batch was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchRefusal {
    /// A check failed; nothing has changed.
    Checked(Refusal),
    /// The log refused in the middle: the batch's sequences are used up and nothing of it is there.
    /// The frame says when readers learn of it.
    Broken(Refusal, Option<Lsn>),
}

impl From<Refusal> for BatchRefusal {
    fn from(error: Refusal) -> Self {
        Self::Checked(error)
    }
}

/// Changes that the messages checked so far would make.
#[derive(Default)]
struct Staged<'a> {
    ids: FxHashSet<IdHash>,
    subjects: FxHashMap<&'a [u8], StagedSubject>,
    /// Values of counters.
    counters: FxHashMap<&'a [u8], Counter>,
    /// Results of checks of a subject's last sequence.
    expected: FxHashMap<&'a [u8], u64>,
    messages: u64,
    bytes: u64,
    weight: u64,
    new_subjects: usize,
}

impl<'a> Staged<'a> {
    /// Checks one message against the stream and what was staged before it.
    fn check(
        &mut self,
        stream: &mut Stream,
        publish: &Publish<'a>,
        now: Timestamp,
        budget: &Budget,
    ) -> Result<(Effects<'a>, Option<Counted>), Refusal> {
        stream.check_size(publish)?;
        let mut effects = Effects::default();
        let mut headers = NO_HEADERS;
        if !publish.headers.is_empty() {
            headers = scan(publish.headers);
            effects = self.check_headers(stream, publish, &headers, now, budget)?;
        }
        let mut counted = None;
        let mut whole = *publish;
        if stream.limits.counter {
            let staged = self.counters.get(publish.subject);
            let counted = counted.insert(stream.counters.count(
                &mut stream.contents,
                publish,
                &headers,
                staged,
            )?);
            whole = counted.publish(publish);
            stream.check_own_size(&whole)?;
        }
        if whole.weight() > MAX_WEIGHT_BYTES {
            return Err(JsError::STREAM_STORE_FAILED.with_err("message too large"));
        }
        let bytes = stream.limits.counted_bytes(whole.weight(), !whole.headers.is_empty());
        self.bytes += bytes;
        self.weight += whole.weight() as u64;
        self.check_room(stream, publish.subject, &effects, budget)?;
        if let Some(counted) = &counted {
            self.counters.insert(publish.subject, counted.counter.clone());
        }
        Ok((effects, counted))
    }

    fn check_headers(
        &mut self,
        stream: &mut Stream,
        publish: &Publish<'a>,
        headers: &PublishHeaders<'a>,
        now: Timestamp,
        budget: &Budget,
    ) -> Result<Effects<'a>, Refusal> {
        if !headers.expected_last_msg_id.is_empty() {
            let error = JsError::ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH;
            return Err(error.with("header", "Nats-Expected-Last-Msg-Id"));
        }
        if !headers.term.is_empty() {
            stream.check_writer(publish)?;
        }
        stream.limits.check_increment(publish, headers)?;
        if !headers.expected_stream.is_empty()
            && headers.expected_stream != stream.config.name.as_bytes()
        {
            return Err(JsError::STREAM_NOT_MATCH);
        }
        headers.ttl.check_allowed(stream.limits.ttl)?;
        headers.ttl.check_valid()?;
        let mut effects = Effects { msg_id: headers.msg_id, ..Effects::default() };
        effects.set_times(headers, &stream.limits);
        effects.set_schedule(publish.headers, headers, &stream.limits);
        let has_timer = effects.ttl_s > 0 || !effects.schedule.is_empty();
        if has_timer && !budget.has_room_for_timer() {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        if !headers.msg_id.is_empty() {
            effects.id_hash = hash_id(headers.msg_id);
            if !self.ids.insert(effects.id_hash) || stream.dedup.find(effects.id_hash).is_some() {
                return Err(JsError::ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE);
            }
            if !budget.has_room_for_id() {
                return Err(JsError::INSUFFICIENT_RESOURCES);
            }
        }
        headers.check_source()?;
        if stream.limits.counter && headers.incr.is_empty() {
            return Err(JsError::MESSAGE_INCR_MISSING);
        }
        self.check_expected(stream, publish, headers)?;
        if headers.scheduling {
            let ends_with_schedule = |subject: &[u8]| Some(self.subjects.get(subject)?.is_schedule);
            stream.check_scheduling(publish, headers, now, ends_with_schedule)?;
        }
        effects.rollup = stream.limits.check_rollup(headers.rollup)?;
        self.check_rollup(publish, effects.rollup)?;
        Ok(effects)
    }

    fn check_expected(
        &mut self,
        stream: &mut Stream,
        publish: &Publish<'a>,
        headers: &PublishHeaders<'a>,
    ) -> Result<(), Refusal> {
        if let Some(expected) = headers.expected_last_seq {
            let last = stream.contents.assigned_totals().last_seq + self.messages;
            if expected != last {
                return Err(JsError::STREAM_WRONG_LAST_SEQUENCE.with("seq", last));
            }
            if self.messages > 0 {
                return Err(JsError::STREAM_WRONG_LAST_SEQUENCE_CONSTANT);
            }
        }
        let Some(expected) = headers.expected_last_subject_seq else {
            return match headers.expected_last_subject {
                b"" => Ok(()),
                _ => Err(JsError::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID),
            };
        };
        let subject = match headers.expected_last_subject {
            b"" => publish.subject,
            other => other,
        };
        if self.subjects.contains_key(subject) {
            return Err(JsError::STREAM_WRONG_LAST_SEQUENCE_CONSTANT);
        }
        let last = match self.expected.get(subject) {
            Some(&last) => last,
            None => stream.contents.last_of_subject(subject),
        };
        if last != expected {
            return Err(JsError::STREAM_WRONG_LAST_SEQUENCE.with("seq", last));
        }
        self.expected.insert(subject, last);
        Ok(())
    }

    /// Counts the message, and looks for room: in the stream with discard new, and in the budget.
    fn check_room(
        &mut self,
        stream: &Stream,
        subject: &'a [u8],
        effects: &Effects<'_>,
        budget: &Budget,
    ) -> Result<(), Refusal> {
        let known = stream.contents.subjects().find(subject);
        let of_subject = self.subjects.entry(subject).or_default();
        if known.is_none() && of_subject.messages == 0 {
            self.new_subjects += 1;
            stream.check_new_subject(subject, self.new_subjects - 1, budget)?;
        }
        of_subject.messages += 1;
        of_subject.is_schedule = effects.is_schedule();
        self.messages += 1;
        if !budget.has_room_for_bytes(stream.unaccounted_bytes(), self.weight) {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        if !budget.account_has_room(stream.account, stream.unaccounted_bytes(), self.weight) {
            return Err(JsError::ACCOUNT_RESOURCES_EXCEEDED);
        }
        if !stream.limits.discard_new {
            return Ok(());
        }
        let full = |text: &str| Err(JsError::STREAM_STORE_FAILED.with_err(text));
        if stream.contents.assigned_totals().messages.saturating_add(self.messages)
            > stream.limits.messages
        {
            return full("maximum messages exceeded");
        }
        if stream.contents.assigned_totals().bytes.saturating_add(self.bytes) > stream.limits.bytes
        {
            return full("maximum bytes exceeded");
        }
        let kept = known.map_or(0, |id| stream.contents.subjects().kept(id));
        if stream.limits.discard_new_per_subject
            && effects.rollup.is_none()
            && kept + of_subject.messages > stream.limits.per_subject
        {
            return full("maximum messages per subject exceeded");
        }
        Ok(())
    }

    /// A rollup must come before whatever it would remove of its own batch.
    fn check_rollup(
        &self,
        publish: &Publish<'_>,
        rollup: Option<Rollup<'_>>,
    ) -> Result<(), Refusal> {
        let text = match rollup {
            Some(Rollup::Subject) if self.subjects.contains_key(publish.subject) => {
                "batch rollup sub invalid"
            }
            Some(Rollup::All) if self.messages > 0 => "batch rollup all invalid",
            _ => return Ok(()),
        };
        Err(JsError::STREAM_ROLLUP_FAILED.with_err(text))
    }
}

/// The part of a batch that goes to one subject.
#[derive(Clone, Copy, Default)]
struct StagedSubject {
    messages: u64,
    /// True if the last one is a schedule.
    is_schedule: bool,
}

/// A checked message.
struct Checked<'a> {
    publish: Publish<'a>,
    effects: Effects<'a>,
    /// In a counter stream: what is stored in its place.
    counted: Option<Counted>,
    /// True if it is stored; otherwise no consumer wants it and its sequence is used up.
    stored: bool,
}

impl Stream {
    /// Checks the messages of an atomic batch and appends them. `interested` as for
    /// [`Stream::publish`].
    ///
    /// # Errors
    /// [`BatchRefusal`]; nothing of the batch will ever be seen.
    pub fn commit_batch<L: LogAccess>(
        &mut self,
        messages: &[Publish<'_>],
        log: &mut L,
        budget: &Budget,
        mut interested: impl FnMut(&[u8]) -> bool,
    ) -> Result<Committed, BatchRefusal> {
        let now = log.now().max(self.contents.assigned_totals().last_at);
        self.dedup.sweep(now, self.limits.window_ns);
        let mut staged = Staged::default();
        let mut checked = Vec::with_capacity(messages.len());
        for publish in messages {
            let (effects, counted) = staged.check(self, publish, now, budget)?;
            let stored =
                self.limits.retention != RetentionPolicy::Interest || interested(publish.subject);
            checked.push(Checked { publish: *publish, effects, counted, stored });
        }
        self.append_batch(&checked, now, log)
    }

    /// Appends what has been checked, and only then changes the stream: with the last frame.
    fn append_batch<L: LogAccess>(
        &mut self,
        checked: &[Checked<'_>],
        now: Timestamp,
        log: &mut L,
    ) -> Result<Committed, BatchRefusal> {
        let first = self.contents.messages().next();
        let end = first + checked.len() as u64;
        let mut body = Vec::new();
        BatchBegin::encode(checked.len() as u32, &mut body);
        let begin =
            RecordRef { body: &body, ..self.batch_record(RecordKind::BatchBegin, first, now) };
        let mut lsn = log.append(&begin, Urgency::Awaited, false).map_err(refusal)?.lsn;
        self.contents.mark_before(lsn);
        for (message, seq) in checked.iter().zip(first..) {
            match self.append_member(message, seq, now, log) {
                Ok(at) => lsn = at,
                Err(error) => {
                    self.give_up_batch(end, now);
                    return Err(BatchRefusal::Broken(error, Some(lsn)));
                }
            }
        }
        self.contents.mark_before(lsn);
        let when = When::Committed(lsn);
        for (message, seq) in checked.iter().zip(first..) {
            let publish = &message.whole();
            if message.stored {
                let subject = self.contents.intern(publish.subject);
                let has_headers = !publish.headers.is_empty();
                let entry = Entry::new(subject, publish.weight(), has_headers, now);
                self.routes.stored(seq, subject, &mut self.contents);
                self.add(publish.subject, entry, &message.effects, when);
                if let Some(counted) = &message.counted {
                    let counter = counted.counter.clone();
                    self.counters.know(&self.contents, publish.subject, seq, counter);
                }
            } else {
                self.advance(publish.subject, &message.effects, seq, now, when);
            }
        }
        Ok(Committed { last_seq: end - 1, lsn })
    }

    const fn batch_record(&self, kind: RecordKind, seq: u64, at: Timestamp) -> RecordRef<'static> {
        RecordRef {
            kind,
            stream: self.id,
            seq: Seq(seq),
            timestamp: at,
            subject: b"",
            headers: b"",
            body: b"",
        }
    }

    fn append_member<L: LogAccess>(
        &self,
        message: &Checked<'_>,
        seq: u64,
        now: Timestamp,
        log: &mut L,
    ) -> Result<Lsn, Refusal> {
        let publish = &message.whole();
        let skipped;
        let record = if message.stored {
            RecordRef {
                subject: publish.subject,
                headers: publish.headers,
                body: publish.body,
                ..self.batch_record(RecordKind::Message, seq, now)
            }
        } else {
            skipped = message.effects.advance_body();
            RecordRef {
                subject: publish.subject,
                headers: message.effects.schedule,
                body: &skipped,
                ..self.batch_record(RecordKind::Advance, seq, now)
            }
        };
        Ok(log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn)
    }

    /// Nothing of a batch that ends before sequence `end` is there; its sequences are used up, as
    /// records with some of them are in the log.
    fn give_up_batch(&mut self, end: u64, at: Timestamp) {
        self.contents.advance(end - 1, at);
        self.last_msg_id.clear();
    }

    /// Recovery: a batch of `count` records from `record` on begins.
    pub fn begin_replayed_batch(&mut self, record: &RecordRef<'_>, count: u32) {
        self.end_replayed_batch();
        let first = record.seq.0;
        if first < self.contents.messages().next() {
            return;
        }
        let end = first + u64::from(count);
        let at = record.timestamp;
        self.replayed_batch = Some(Box::new(Replayed { end, at, held: Vec::new() }));
    }

    /// Recovery: true while the last record of a batch has not been read.
    #[must_use]
    pub const fn is_mid_batch(&self) -> bool {
        self.replayed_batch.is_some()
    }

    /// Recovery: takes a record of the batch that is being read; `false` if it belongs to none.
    /// The batch takes effect with its last record.
    pub(super) fn hold_replayed(&mut self, record: &RecordRef<'_>) -> bool {
        let Some(batch) = &mut self.replayed_batch else { return false };
        if record.seq.0 >= batch.end {
            self.end_replayed_batch();
            return false;
        }
        batch.held.push(OwnedRecord::new(record));
        if record.seq.0 + 1 == batch.end
            && let Some(batch) = self.replayed_batch.take()
        {
            for held in batch.held {
                self.apply_held(&held);
            }
        }
        true
    }

    fn apply_held(&mut self, held: &OwnedRecord) {
        let record = RecordRef {
            subject: &held.subject,
            headers: &held.headers,
            body: &held.advance,
            ..self.batch_record(held.kind, held.seq, held.at)
        };
        if held.kind == RecordKind::Message {
            self.apply_stored(&record, held.weight);
        } else if let Ok(advance) = Advance::decode(&held.advance) {
            self.apply_skipped(&record, &advance);
        }
    }

    /// Recovery: whatever comes next is not of the batch that was being read. If it is not whole,
    /// nothing of it counts.
    pub fn end_replayed_batch(&mut self) {
        if let Some(batch) = self.replayed_batch.take() {
            if !BATCH_WHOLE.holds() {
                return batch.held.iter().for_each(|held| self.apply_held(held));
            }
            self.give_up_batch(batch.end, batch.at);
        }
    }
}

impl Checked<'_> {
    /// The message as it is stored.
    fn whole(&self) -> Publish<'_> {
        self.counted.as_ref().map_or(self.publish, |counted| counted.publish(&self.publish))
    }
}

/// A batch while its records are being replayed. As many messages are held as one batch may have,
/// without their payloads.
pub(super) struct Replayed {
    /// One past its last sequence.
    end: u64,
    at: Timestamp,
    held: Vec<OwnedRecord>,
}

/// A record that owns what its replay needs.
struct OwnedRecord {
    kind: RecordKind,
    seq: u64,
    at: Timestamp,
    weight: usize,
    subject: Box<[u8]>,
    headers: Box<[u8]>,
    /// The body of an `Advance`; empty for messages.
    advance: Box<[u8]>,
}

impl OwnedRecord {
    fn new(record: &RecordRef<'_>) -> Self {
        let advance = if record.kind == RecordKind::Advance { record.body } else { b"" };
        Self {
            kind: record.kind,
            seq: record.seq.0,
            at: record.timestamp,
            weight: record.weight(),
            subject: record.subject.into(),
            headers: record.headers.into(),
            advance: advance.into(),
        }
    }
}
