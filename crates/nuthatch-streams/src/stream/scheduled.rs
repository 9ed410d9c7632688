//! Messages that are schedules and messages that schedules make (ADR-51).
//!
//! A schedule is a message like any other, with headers that say when a message is to be made of it
//! and for which subject. What a schedule makes says in its own headers which schedule it was and
//! when that is due next (or that it is over): so a replay of the stored messages comes to the same
//! schedules, and a schedule whose message was stored is not due a second time.

use super::Stream;
use super::admit::{Admitted, Effects, Publish, Refusal};
use super::headers::{PublishHeaders, Rollup, Ttl, parse_ttl, scan};
use super::limits::Limits;
use crate::budget::Budget;
use nuthatch_log::{LogAccess, RecordRef, Timestamp};
use nuthatch_protocol::headers::{self, find_header};
use nuthatch_protocol::js::RetentionPolicy;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::schedule::{Schedule, ScheduleError, check_zone};
use nuthatch_protocol::subject::{self, is_valid_literal};

const PATTERN: &[u8] = b"Nats-Schedule";
const ZONE: &[u8] = b"Nats-Schedule-Time-Zone";
const TARGET: &[u8] = b"Nats-Schedule-Target";
const SOURCE: &[u8] = b"Nats-Schedule-Source";
const SCHEDULE_TTL: &[u8] = b"Nats-Schedule-TTL";
const SCHEDULE_ROLLUP: &[u8] = b"Nats-Schedule-Rollup";
pub(super) const SCHEDULER: &[u8] = b"Nats-Scheduler";
pub(super) const NEXT: &[u8] = b"Nats-Schedule-Next";
/// Value of [`NEXT`]: the schedule is over, and its message goes.
pub(super) const PURGE: &[u8] = b"purge";
const ROLLUP: &[u8] = b"Nats-Rollup";
const ROLLUP_SUBJECT: &[u8] = b"sub";
const TTL: &[u8] = b"Nats-TTL";
const MSG_ID: &[u8] = b"Nats-Msg-Id";

/// The value of a header, nothing if there is none.
pub(super) fn value<'a>(block: &'a [u8], name: &[u8]) -> &'a [u8] {
    find_header(block, name).unwrap_or_default()
}

/// The schedule that a header block describes; `None` if it describes none.
fn read_schedule(block: &[u8]) -> Result<Option<Schedule>, ScheduleError> {
    let (pattern, zone) = (value(block, PATTERN), find_header(block, ZONE));
    if pattern.is_empty() {
        return check_zone(zone).map(|()| None);
    }
    Schedule::parse(pattern, zone).map(Some)
}

/// When a message that was stored at `at` is due as a schedule; `None` if it is none.
pub(super) fn first_due(block: &[u8], at: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let schedule = read_schedule(block).map_err(|error| match error {
        ScheduleError::Pattern => JsError::MESSAGE_SCHEDULES_PATTERN_INVALID,
        ScheduleError::Zone => JsError::MESSAGE_SCHEDULES_TIME_ZONE_INVALID,
    })?;
    let Some(schedule) = schedule else { return Ok(None) };
    match schedule.next(at.0, at.0) {
        Some(due) => Ok(Some(Timestamp(due))),
        None => Err(JsError::MESSAGE_SCHEDULES_PATTERN_INVALID),
    }
}

/// The header block of a schedule with the rollup that leaves one for each subject; `None`: it may
/// stay as it is.
pub(super) fn with_rollup(
    block: &[u8],
    found: &PublishHeaders<'_>,
    limits: &Limits,
) -> Option<Vec<u8>> {
    let wants = limits.schedules
        && found.scheduling
        && found.rollup.is_none()
        && !value(block, PATTERN).is_empty();
    wants.then(|| {
        let mut block = block.to_vec();
        headers::append(&mut block, ROLLUP, ROLLUP_SUBJECT);
        block
    })
}

/// A message that a schedule makes, on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Subject.
    pub subject: Vec<u8>,
    /// Header block.
    pub headers: Vec<u8>,
    /// Payload.
    pub body: Vec<u8>,
    /// The subject whose last message gives headers and payload, if there is one.
    pub source: Option<Vec<u8>>,
    scheduler: Vec<u8>,
    next: Vec<u8>,
    ttl: Vec<u8>,
    rollup: Vec<u8>,
}

impl Made {
    /// The message that the schedule in this one makes at `now`, having been due at `due`; `None`
    /// if it is no schedule.
    #[must_use]
    pub fn new(schedule: &RecordRef<'_>, due: Timestamp, now: Timestamp) -> Option<Self> {
        let block = schedule.headers;
        let when = read_schedule(block).ok()??;
        let target = value(block, TARGET);
        if target.is_empty() || parse_ttl(value(block, SCHEDULE_TTL)) == Ttl::Invalid {
            return None;
        }
        let next = if when.repeats() {
            when.show(when.next(due.0, now.0)?).into_bytes()
        } else {
            PURGE.to_vec()
        };
        let source = value(block, SOURCE);
        let mut made = Self {
            subject: target.to_vec(),
            headers: Vec::new(),
            body: Vec::new(),
            source: (!source.is_empty()).then(|| source.to_vec()),
            scheduler: schedule.subject.to_vec(),
            next,
            ttl: value(block, SCHEDULE_TTL).to_vec(),
            rollup: value(block, SCHEDULE_ROLLUP).to_vec(),
        };
        made.fill(schedule);
        Some(made)
    }

    /// Takes headers and payload from this message.
    pub fn fill(&mut self, content: &RecordRef<'_>) {
        let mut block = Vec::new();
        headers::copy_without(&mut block, content.headers, |name| {
            name.starts_with(PATTERN)
                || name.starts_with(b"Nats-Expected-")
                || [MSG_ID, TTL, ROLLUP].contains(&name)
        });
        headers::append(&mut block, SCHEDULER, &self.scheduler);
        headers::append(&mut block, NEXT, &self.next);
        for (name, value) in [(TTL, &self.ttl), (ROLLUP, &self.rollup)] {
            if !value.is_empty() {
                headers::append(&mut block, name, value);
            }
        }
        self.headers = block;
        self.body = content.body.to_vec();
    }
}

impl Stream {
    /// Checks a publish with headers of schedules. `staged` says of a subject whether its last
    /// message is a schedule if a batch that is being checked has one for it.
    pub(super) fn check_scheduling(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        now: Timestamp,
        staged: impl Fn(&[u8]) -> Option<bool>,
    ) -> Result<(), Refusal> {
        let allowed = self.limits.schedules;
        match first_due(publish.headers, now) {
            Err(_) | Ok(Some(_)) if !allowed => return Err(JsError::MESSAGE_SCHEDULES_DISABLED),
            Err(error) => return Err(error),
            Ok(Some(_)) => self.check_schedule(publish, found)?,
            Ok(None) => {}
        }
        let (next, scheduler) = (value(publish.headers, NEXT), value(publish.headers, SCHEDULER));
        if next.is_empty() && scheduler.is_empty() {
            return Ok(());
        }
        // Clients may end a schedule, nothing else.
        let ends_one = next == PURGE && scheduler != publish.subject && is_valid_literal(scheduler);
        if !ends_one {
            return Err(JsError::MESSAGE_SCHEDULES_SCHEDULER_INVALID);
        }
        if !allowed {
            return Err(JsError::MESSAGE_SCHEDULES_DISABLED);
        }
        if staged(scheduler).unwrap_or_else(|| self.contents.ends_with_schedule(scheduler)) {
            Ok(())
        } else {
            Err(JsError::MESSAGE_SCHEDULES_SCHEDULER_INVALID)
        }
    }

    /// Checks a new schedule, whose pattern is good.
    fn check_schedule(
        &self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
    ) -> Result<(), Refusal> {
        let block = publish.headers;
        let ttl = value(block, SCHEDULE_TTL);
        if parse_ttl(ttl) == Ttl::Invalid && !ttl.is_empty() {
            return Err(JsError::MESSAGE_SCHEDULES_TTL_INVALID);
        }
        if ![&b""[..], ROLLUP_SUBJECT].contains(&value(block, SCHEDULE_ROLLUP)) {
            return Err(JsError::MESSAGE_SCHEDULES_ROLLUP_INVALID);
        }
        if !ttl.is_empty() && !self.limits.ttl {
            return Err(JsError::MESSAGE_TTL_DISABLED);
        }
        let (target, source) = (value(block, TARGET), value(block, SOURCE));
        let is_own = |literal: &[u8]| {
            self.config.subjects.iter().any(|own| subject::matches(own.as_bytes(), literal))
        };
        if !is_valid_literal(target) || target == publish.subject {
            return Err(JsError::MESSAGE_SCHEDULES_TARGET_INVALID);
        }
        let is_odd = source == target || source == publish.subject || !is_valid_literal(source);
        if !source.is_empty() && is_odd {
            return Err(JsError::MESSAGE_SCHEDULES_SOURCE_INVALID);
        }
        if !is_own(target) {
            return Err(JsError::MESSAGE_SCHEDULES_TARGET_INVALID);
        }
        if !source.is_empty() && !is_own(source) {
            return Err(JsError::MESSAGE_SCHEDULES_SOURCE_INVALID);
        }
        match found.rollup {
            None | Some(Rollup::Subject) => Ok(()),
            Some(_) => Err(JsError::MESSAGE_SCHEDULES_ROLLUP_INVALID),
        }
    }

    /// Stores what a schedule has made. `interested` as for [`Stream::publish`].
    ///
    /// # Errors
    /// Why the log or a limit refuses it.
    pub fn publish_made<L: LogAccess>(
        &mut self,
        made: &Publish<'_>,
        log: &mut L,
        budget: &Budget,
        interested: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Admitted, Refusal> {
        self.check_own_size(made)?;
        let found = scan(made.headers);
        let mut effects = Effects { rollup: found.rollup, ..Effects::default() };
        effects.set_times(&found, &self.limits);
        effects.schedule = made.headers;
        if effects.ttl_s > 0 && !budget.has_room_for_timer() {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        let now = log.now().max(self.contents.assigned_totals().last_at);
        if self.limits.retention == RetentionPolicy::Interest && !interested(made.subject) {
            return self.skip(made, &effects, now, log);
        }
        self.store(made, &effects, now, log, budget)
    }
}
