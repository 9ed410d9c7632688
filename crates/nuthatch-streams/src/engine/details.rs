//! `STREAM.INFO` with what grows with the stream: put together in parts, between which the sequencer
//! serves everything else.
//!
//! What changes meanwhile may be in the answer or not; its totals are those of the last part. One
//! question is worked on at a time, so half an answer is in memory once; the others wait.

use super::outputs::Outputs;
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::op::{OpOutcome, OpResult, Respond};
use crate::sink::Sink;
use crate::stream::{DeletedWalk, SubjectWalk};
use nuthatch_log::{StreamId, Timestamp};
use nuthatch_protocol::jserror::JsError;
use std::collections::VecDeque;

/// Steps of one part ([`SubjectWalk`], [`DeletedWalk`]): about a millisecond.
pub(super) const PART_STEPS: usize = 32 * 1024;
/// Questions that may wait; beyond that they are refused.
pub(super) const QUESTIONS_MAX: usize = 256;

/// What is asked for beside a stream's totals, and how much of it is there.
pub(super) struct Details {
    subjects: Option<SubjectWalk>,
    deleted: Option<DeletedWalk>,
}

impl Details {
    pub(super) fn new(with_deleted: bool, subjects_filter: String, offset: usize) -> Self {
        let subjects = (!subjects_filter.is_empty()).then_some(subjects_filter);
        Self {
            subjects: subjects.map(|filter| SubjectWalk::new(filter, offset)),
            deleted: with_deleted.then(DeletedWalk::default),
        }
    }

    /// Goes on with the walks; the answer once both are done.
    fn go_on<S: Sink>(
        &mut self,
        slot: Result<&StreamSlot<S>, JsError>,
        now: Timestamp,
    ) -> Option<OpResult> {
        let slot = match slot {
            Ok(slot) => slot,
            Err(error) => return Some(Err(error)),
        };
        let mut steps = PART_STEPS;
        let (stream, subjects) = (&slot.stream, &mut self.subjects);
        if subjects.as_mut().is_some_and(|walk| !walk.go_on(stream.contents(), &mut steps)) {
            return None;
        }
        let deleted = &mut self.deleted;
        if deleted.as_mut().is_some_and(|walk| !walk.go_on(stream.contents(), &mut steps)) {
            return None;
        }
        let mut info = stream.info(now, slot.consumers.listed());
        if let Some(walk) = deleted.take() {
            info.state.deleted = walk.into_list(info.state.first_seq);
        }
        let walk = subjects.take();
        let subjects_total = walk.as_ref().map_or(0, |walk| walk.total);
        info.state.subjects = walk.map(|walk| walk.page).filter(|page| !page.is_empty());
        Some(Ok(OpOutcome::Stream { info: Box::new(info), subjects_total }))
    }
}

struct Question {
    id: StreamId,
    details: Details,
    respond: Respond,
}

/// Questions in the order in which they came; the first one is being answered.
#[derive(Default)]
pub(super) struct DetailQuestions {
    waiting: VecDeque<Question>,
    next_at: Option<Timestamp>,
}

impl DetailQuestions {
    /// Answers at once what takes one part, and otherwise in its turn.
    pub(super) fn ask<S: Sink>(
        &mut self,
        id: StreamId,
        mut details: Details,
        respond: Respond,
        streams: &Streams<S>,
        now: Timestamp,
    ) {
        let is_plain = details.subjects.is_none() && details.deleted.is_none();
        if (is_plain || self.waiting.is_empty())
            && let Some(answer) = details.go_on(streams.shown(id), now)
        {
            return respond(answer);
        }
        if self.waiting.len() >= QUESTIONS_MAX {
            return respond(Err(JsError::STREAM_TOO_MANY_REQUESTS));
        }
        self.waiting.push_back(Question { id, details, respond });
        self.next_at.get_or_insert(now);
    }

    /// One part of the question that has waited longest, if it is time.
    pub(super) fn run<S: Sink>(
        &mut self,
        streams: &Streams<S>,
        out: &mut Outputs<S>,
        now: Timestamp,
    ) {
        if self.next_at.is_none_or(|at| at > now) {
            return;
        }
        self.next_at = None;
        let Some(mut first) = self.waiting.pop_front() else { return };
        match first.details.go_on(streams.shown(first.id), now) {
            Some(answer) => {
                out.flush();
                (first.respond)(answer);
            }
            None => self.waiting.push_front(first),
        }
        if !self.waiting.is_empty() {
            self.next_at = Some(now);
        }
    }

    /// When the next part is due.
    pub(super) const fn next_at(&self) -> Option<Timestamp> {
        self.next_at
    }
}
