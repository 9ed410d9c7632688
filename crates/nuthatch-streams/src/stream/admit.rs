//! Admission of a publish: checks on assigned state, the record, the metadata, the limits.
//!
//! The order of the checks is the incumbent's (`stream.go`, `processJetStreamMsg` for one replica),
//! so that a message with several faults gets the same error.

use super::Stream;
use super::contents::When;
use super::dedup::{IdHash, Remembered, hash_id};
use super::headers::{NO_HEADERS, PublishHeaders, Rollup, scan};
use super::limits::Limits;
use super::messages::{Entry, MAX_WEIGHT_BYTES};
use crate::budget::Budget;
use crate::records::{Advance, AdvanceRollup};
use crate::rules::REPLAY_IDS;
use nuthatch_log::record::RECORD_HEADER_BYTES;
use nuthatch_log::{AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, Timestamp, Urgency};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::RetentionPolicy;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::has_empty_token;

/// Largest header block of a stored message, in bytes (`JSStreamHeaderExceedsMaximumErr`).
const HEADERS_BYTES_MAX: usize = u16::MAX as usize;
/// A publish, borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// Subject.
    pub subject: &'a [u8],
    /// Reply subject or empty.
    pub reply: &'a [u8],
    /// Header block or empty.
    pub headers: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
}

impl Publish<'_> {
    /// Weight of its record.
    #[inline]
    #[must_use]
    pub const fn weight(&self) -> usize {
        RECORD_HEADER_BYTES + self.subject.len() + self.headers.len() + self.body.len()
    }
}

/// Result of a publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// It has a sequence (stored, or skipped for want of interest) once `lsn` commits.
    Sequenced {
        /// Its sequence.
        seq: u64,
        /// The frame.
        lsn: Lsn,
    },
    /// A message with this id is there already.
    Duplicate {
        /// Its sequence.
        seq: u64,
    },
}

/// Why a publish was refused: the error to answer with.
pub type Refusal = JsError;

/// Effects of the headers of an admitted publish.
#[derive(Clone, Copy, Default)]
pub(super) struct Effects<'a> {
    pub(super) msg_id: &'a [u8],
    pub(super) id_hash: IdHash,
    pub(super) rollup: Option<Rollup<'a>>,
    /// Seconds, 0 for none.
    pub(super) ttl_s: u32,
    pub(super) is_marker: bool,
    /// The header block, if it says something of schedules and the stream allows rollups.
    pub(super) schedule: &'a [u8],
}

impl<'a> Effects<'a> {
    /// Takes note of a header block that says something of schedules.
    pub(super) const fn set_schedule(
        &mut self,
        block: &'a [u8],
        found: &PublishHeaders<'_>,
        limits: &Limits,
    ) {
        if found.scheduling && limits.rollup {
            self.schedule = block;
        }
    }

    /// True if the message is a schedule, if the stream allows any.
    pub(super) fn is_schedule(&self) -> bool {
        find_header(self.schedule, b"Nats-Schedule").is_some_and(|pattern| !pattern.is_empty())
    }

    /// Times at which the message expires or is due, by its headers.
    pub(super) const fn set_times(&mut self, headers: &PublishHeaders<'_>, limits: &Limits) {
        if limits.ttl {
            self.ttl_s = headers.ttl.seconds();
            self.is_marker = headers.is_marker && limits.marker_ttl_s > 0;
        }
    }

    /// True if there is anything to do beside storing the message.
    const fn are_any(&self) -> bool {
        !self.msg_id.is_empty()
            || self.rollup.is_some()
            || self.ttl_s > 0
            || self.is_marker
            || !self.schedule.is_empty()
    }

    /// The body of the record that uses up a sequence with these effects.
    pub(super) fn advance_body(&self) -> Vec<u8> {
        let rollup = match self.rollup {
            Some(Rollup::All) => AdvanceRollup::All,
            Some(Rollup::Subject) => AdvanceRollup::Subject,
            _ => AdvanceRollup::None,
        };
        let mut body = Vec::with_capacity(2 + self.msg_id.len());
        Advance { rollup, msg_id: self.msg_id }.encode(&mut body);
        body
    }
}

impl Stream {
    /// Checks a publish and appends it. `headers` is what [`scan`] found in its header block.
    /// `interested` says whether any consumer wants the subject; asked under interest retention
    /// only.
    ///
    /// # Errors
    /// The error to answer with; nothing has changed then.
    #[inline]
    pub fn publish<'a, L: LogAccess>(
        &mut self,
        publish: &Publish<'a>,
        headers: &PublishHeaders<'a>,
        log: &mut L,
        budget: &Budget,
        interested: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Admitted, Refusal> {
        let now = log.now().max(self.contents.assigned_totals().last_at);
        self.check_size(publish)?;
        let effects = if publish.headers.is_empty() {
            Effects::default()
        } else {
            match self.check_headers(publish, headers, now, budget)? {
                Checked::Go(effects) => effects,
                Checked::Duplicate(seq) => return Ok(Admitted::Duplicate { seq }),
            }
        };
        if self.limits.counter {
            return self.store_counted(publish, headers, &effects, now, log, budget);
        }
        if self.limits.retention == RetentionPolicy::Interest && !interested(publish.subject) {
            return self.skip(publish, &effects, now, log);
        }
        if self.limits.discard_new {
            self.check_room(publish, &effects)?;
        }
        self.store(publish, &effects, now, log, budget)
    }

    /// What is checked of every message of a client, whether it belongs to a batch or not.
    ///
    /// # Errors
    /// 10109, 10054 or 10097; 20001 or 20002 if the stream has one writer, and this is not it.
    #[inline]
    pub fn check_size(&self, publish: &Publish<'_>) -> Result<(), Refusal> {
        if self.limits.guarded {
            self.check_writer(publish)?;
        }
        self.check_bounds(publish)
    }

    /// The same for what the server itself stores: of a source, of a schedule, in place of what was
    /// published.
    ///
    /// # Errors
    /// 10109, 10054 or 10097.
    #[inline]
    pub fn check_own_size(&self, publish: &Publish<'_>) -> Result<(), Refusal> {
        if self.limits.sealed {
            return Err(JsError::STREAM_SEALED);
        }
        self.check_bounds(publish)
    }

    #[inline]
    fn check_bounds(&self, publish: &Publish<'_>) -> Result<(), Refusal> {
        if self.contents.is_jumping() {
            // The engine holds publishes back; so many that it does not are refused.
            return Err(JsError::STREAM_TOO_MANY_REQUESTS);
        }
        let size = publish.headers.len() + publish.body.len();
        if size > self.limits.message_bytes {
            return Err(JsError::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
        }
        if publish.headers.len() > HEADERS_BYTES_MAX {
            return Err(JsError::STREAM_HEADER_EXCEEDS_MAXIMUM);
        }
        Ok(())
    }

    #[cold]
    pub(super) fn check_headers<'a>(
        &mut self,
        publish: &Publish<'a>,
        headers: &PublishHeaders<'a>,
        now: Timestamp,
        budget: &Budget,
    ) -> Result<Checked<'a>, Refusal> {
        if !headers.term.is_empty() {
            self.check_writer(publish)?;
        }
        self.limits.check_increment(publish, headers)?;
        self.check_expected(publish, headers)?;
        if headers.scheduling {
            self.check_scheduling(publish, headers, now, |_| None)?;
        }
        headers.check_source()?;
        let mut effects = Effects { msg_id: headers.msg_id, ..Effects::default() };
        if !headers.msg_id.is_empty() {
            effects.id_hash = hash_id(headers.msg_id);
            self.dedup.sweep(now, self.limits.window_ns);
            if let Some(seq) = self.dedup.find(effects.id_hash) {
                return Ok(Checked::Duplicate(seq));
            }
        }
        if !headers.expected_last_msg_id.is_empty()
            && headers.expected_last_msg_id != self.last_msg_id
        {
            let last = String::from_utf8_lossy(&self.last_msg_id);
            return Err(JsError::STREAM_WRONG_LAST_MSG_ID.with("id", last));
        }
        effects.rollup = self.limits.check_rollup(headers.rollup)?;
        headers.ttl.check_valid()?;
        effects.set_times(headers, &self.limits);
        effects.set_schedule(publish.headers, headers, &self.limits);
        let has_timer = effects.ttl_s > 0 || !effects.schedule.is_empty();
        let has_room = (headers.msg_id.is_empty() || budget.has_room_for_id())
            && (!has_timer || budget.has_room_for_timer());
        if !has_room {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        Ok(Checked::Go(effects))
    }

    fn check_expected(
        &mut self,
        publish: &Publish<'_>,
        headers: &PublishHeaders<'_>,
    ) -> Result<(), Refusal> {
        if !headers.expected_stream.is_empty()
            && headers.expected_stream != self.config.name.as_bytes()
        {
            return Err(JsError::STREAM_NOT_MATCH);
        }
        headers.ttl.check_allowed(self.limits.ttl)?;
        if let Some(expected) = headers.expected_last_subject_seq {
            let subject = match headers.expected_last_subject {
                b"" => publish.subject,
                other => other,
            };
            let last = self.contents.last_of_subject(subject);
            if last != expected {
                return Err(JsError::STREAM_WRONG_LAST_SEQUENCE.with("seq", last));
            }
        } else if !headers.expected_last_subject.is_empty() {
            return Err(JsError::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID);
        }
        match headers.expected_last_seq {
            Some(expected) if expected != self.contents.assigned_totals().last_seq => {
                Err(JsError::STREAM_WRONG_LAST_SEQUENCE
                    .with("seq", self.contents.assigned_totals().last_seq))
            }
            _ => Ok(()),
        }
    }

    /// Discard new: is there room?
    pub(super) fn check_room(
        &mut self,
        publish: &Publish<'_>,
        effects: &Effects<'_>,
    ) -> Result<(), Refusal> {
        let full = |text: &str| Err(JsError::STREAM_STORE_FAILED.with_err(text));
        let has_headers = !publish.headers.is_empty();
        let size = self.limits.counted_bytes(publish.weight(), has_headers);
        // The oldest message of the subject, if the new one would push it out.
        let mut pushed_out = None;
        if self.limits.per_subject > 0
            && let Some(id) = self.contents.subjects().find(publish.subject)
            && self.contents.subjects().kept(id) >= self.limits.per_subject
        {
            if self.limits.discard_new_per_subject && effects.rollup.is_none() {
                return full("maximum messages per subject exceeded");
            }
            pushed_out = self.contents.oldest_of(id);
        }
        if self.contents.assigned_totals().messages >= self.limits.messages && pushed_out.is_none()
        {
            return full("maximum messages exceeded");
        }
        if self.contents.assigned_totals().bytes.saturating_add(size) > self.limits.bytes {
            let freed = pushed_out
                .and_then(|seq| self.contents.messages().get(seq))
                .map_or(0, |entry| self.limits.counted_bytes(entry.weight(), entry.has_headers()));
            if freed < size {
                return full("maximum bytes exceeded");
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn store<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        effects: &Effects<'_>,
        now: Timestamp,
        log: &mut L,
        budget: &Budget,
    ) -> Result<Admitted, Refusal> {
        let weight = publish.weight();
        if weight > MAX_WEIGHT_BYTES {
            return Err(JsError::STREAM_STORE_FAILED.with_err("message too large"));
        }
        if !budget.has_room_for_bytes(self.unaccounted_bytes(), weight as u64) {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        if !budget.account_has_room(self.account, self.unaccounted_bytes(), weight as u64) {
            return Err(JsError::ACCOUNT_RESOURCES_EXCEEDED);
        }
        let known = self.contents.subjects().find(publish.subject);
        if known.is_none() {
            self.check_new_subject(publish.subject, 0, budget)?;
        }
        let seq = self.contents.messages().next();
        let record = RecordRef {
            kind: RecordKind::Message,
            stream: self.id,
            seq: Seq(seq),
            timestamp: now,
            subject: publish.subject,
            headers: publish.headers,
            body: publish.body,
        };
        let lsn = log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn;
        self.contents.mark_before(lsn);
        let subject = known.unwrap_or_else(|| self.contents.intern(publish.subject));
        let entry = Entry::new(subject, weight, !publish.headers.is_empty(), now);
        self.routes.stored(seq, subject, &mut self.contents);
        self.add(publish.subject, entry, effects, When::Committed(lsn));
        Ok(Admitted::Sequenced { seq, lsn })
    }

    #[cold]
    pub(super) fn check_new_subject(
        &self,
        subject: &[u8],
        more: usize,
        budget: &Budget,
    ) -> Result<(), Refusal> {
        // Tokens that look like wildcards are tokens like others here, as upstream.
        if has_empty_token(subject) {
            return Err(JsError::STREAM_STORE_FAILED.with_err("subject is not valid"));
        }
        if !budget.has_room_for_subject(self.unaccounted_subjects() + more) {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        Ok(())
    }

    /// Adds a message that is in the log, and lets go what it pushes out. Inlined always: each
    /// publish does it.
    #[inline(always)]
    pub(super) fn add(&mut self, subject: &[u8], entry: Entry, effects: &Effects<'_>, when: When) {
        let id = entry.subject;
        let previous = match self.limits.per_subject {
            1 => self.contents.last_of(id),
            _ => None,
        };
        let seq = self.contents.push(entry);
        self.last_msg_id.clear();
        if let Some(previous) = previous {
            self.contents.drop_message(previous, when);
        }
        self.enforce_subject(id, when);
        self.enforce_totals(when);
        if self.limits.schedules {
            self.contents.note_schedule(id, seq, entry.timestamp, effects.schedule);
        }
        if effects.are_any() {
            self.contents.start_timer(seq, entry.timestamp, effects);
            self.take_effects(subject, effects, seq, entry.timestamp, 1, when);
        }
    }

    /// The id to remember and the rollup of a message with sequence `seq`; `kept` is 1 if it was
    /// stored, 0 if it was skipped.
    #[cold]
    fn take_effects(
        &mut self,
        subject: &[u8],
        effects: &Effects<'_>,
        seq: u64,
        at: Timestamp,
        kept: u64,
        when: When,
    ) {
        if !effects.msg_id.is_empty() {
            self.last_msg_id.extend_from_slice(effects.msg_id);
            self.dedup.remember(Remembered { hash: effects.id_hash, seq, at });
        }
        match effects.rollup {
            Some(Rollup::All) => self.contents.roll_up_all(seq - 1, when),
            Some(Rollup::Subject) => self.contents.roll_up_subject(subject, kept, when),
            Some(Rollup::Unknown(_)) | None => {}
        }
        if !effects.schedule.is_empty() {
            self.contents.note_made(effects.schedule, when);
        }
    }

    /// Interest retention without a consumer: the sequence is used up and nothing is stored.
    #[cold]
    pub(super) fn skip<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        effects: &Effects<'_>,
        now: Timestamp,
        log: &mut L,
    ) -> Result<Admitted, Refusal> {
        let seq = self.contents.messages().next();
        let body = effects.advance_body();
        let record = RecordRef {
            kind: RecordKind::Advance,
            stream: self.id,
            seq: Seq(seq),
            timestamp: now,
            subject: publish.subject,
            headers: effects.schedule,
            body: &body,
        };
        let lsn = log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn;
        self.contents.mark_before(lsn);
        self.advance(publish.subject, effects, seq, now, When::Committed(lsn));
        Ok(Admitted::Sequenced { seq, lsn })
    }

    pub(super) fn advance(
        &mut self,
        subject: &[u8],
        effects: &Effects<'_>,
        seq: u64,
        at: Timestamp,
        when: When,
    ) {
        self.contents.advance(seq, at);
        self.last_msg_id.clear();
        self.take_effects(subject, effects, seq, at, 0, when);
    }

    /// Recovery: a message that was appended after the stream's newest state.
    pub fn apply_message(&mut self, record: &RecordRef<'_>) {
        if record.seq.0 < self.contents.messages().next() || record.weight() > MAX_WEIGHT_BYTES {
            return;
        }
        if !self.hold_replayed(record) {
            self.apply_stored(record, record.weight());
        }
    }

    /// Recovery: a message; `weight` is that of its record, whose body may have been left out.
    pub(super) fn apply_stored(&mut self, record: &RecordRef<'_>, weight: usize) {
        self.contents.skip_to(record.seq.0);
        let has_headers = !record.headers.is_empty();
        let headers = if has_headers { scan(record.headers) } else { NO_HEADERS };
        let mut effects = self.replayed_effects(headers.msg_id, headers.rollup, record.timestamp);
        effects.set_times(&headers, &self.limits);
        effects.set_schedule(record.headers, &headers, &self.limits);
        self.sourced.note(headers.source);
        let subject = self.contents.intern(record.subject);
        let entry = Entry::new(subject, weight, has_headers, record.timestamp);
        self.add(record.subject, entry, &effects, When::Replayed);
    }

    pub(super) fn replayed_effects<'a>(
        &mut self,
        msg_id: &'a [u8],
        rollup: Option<Rollup<'a>>,
        at: Timestamp,
    ) -> Effects<'a> {
        let rollup = rollup.filter(|_| self.limits.rollup);
        if msg_id.is_empty() || !REPLAY_IDS.holds() {
            return Effects { rollup, ..Effects::default() };
        }
        self.dedup.sweep(at, self.limits.window_ns);
        Effects { msg_id, id_hash: hash_id(msg_id), rollup, ..Effects::default() }
    }

    /// Recovery: a sequence that was used up without a message.
    pub fn apply_advance(&mut self, record: &RecordRef<'_>, advance: &Advance<'_>) {
        if record.seq.0 < self.contents.messages().next() {
            return;
        }
        if !self.hold_replayed(record) {
            self.apply_skipped(record, advance);
        }
    }

    /// Recovery: as [`Stream::apply_advance`], whether it belongs to a batch or not.
    pub(super) fn apply_skipped(&mut self, record: &RecordRef<'_>, advance: &Advance<'_>) {
        self.contents.skip_to(record.seq.0);
        let rollup = match advance.rollup {
            AdvanceRollup::None => None,
            AdvanceRollup::Subject => Some(Rollup::Subject),
            AdvanceRollup::All => Some(Rollup::All),
        };
        let mut effects = self.replayed_effects(advance.msg_id, rollup, record.timestamp);
        if self.limits.rollup {
            effects.schedule = record.headers;
        }
        self.advance(record.subject, &effects, record.seq.0, record.timestamp, When::Replayed);
    }
}

impl Limits {
    /// What a rollup header asks for.
    ///
    /// # Errors
    /// 10050: the stream does not allow it, or it is none.
    pub(super) fn check_rollup<'a>(
        &self,
        rollup: Option<Rollup<'a>>,
    ) -> Result<Option<Rollup<'a>>, Refusal> {
        match rollup {
            None => Ok(None),
            Some(_) if !self.rollup => {
                Err(JsError::STREAM_ROLLUP_FAILED.with_err("rollup not permitted"))
            }
            Some(Rollup::Unknown(value)) => {
                let value = String::from_utf8_lossy(value).to_lowercase();
                let text = format!("rollup value invalid: {value:?}");
                Err(JsError::STREAM_ROLLUP_FAILED.with_err(text))
            }
            known => Ok(known),
        }
    }
}

/// Outcome of the header checks.
pub(super) enum Checked<'a> {
    Go(Effects<'a>),
    Duplicate(u64),
}

/// The error for a client whose message the log does not take.
#[cold]
pub fn refusal(error: AppendError) -> JsError {
    match error {
        AppendError::Full { .. } => JsError::STREAM_STORE_FAILED.with_err(error),
        AppendError::TooLarge { .. } => JsError::STREAM_STORE_FAILED.with_err("message too large"),
        AppendError::Failed => unavailable("the log has failed and accepts no more writes"),
    }
}

/// The error for what waited for its frame when the log stopped: the frame may have reached the medium
/// or not.
#[must_use]
pub fn uncertain(reason: &str) -> JsError {
    let mut error = unavailable(reason);
    error.description = format!(
        "{}; the outcome is unknown: it may be there after the server's restart, or not",
        error.description
    )
    .into();
    error
}

/// 10008 with the reason: nothing was written.
#[must_use]
pub fn unavailable(reason: &str) -> JsError {
    let mut error = JsError::CLUSTER_NOT_AVAIL;
    error.description = format!("{}: {reason}", error.description).into();
    error
}
