//! `STREAM.INFO` with what grows with the stream: put together in parts, between which the sequencer
//! serves everything else.
//!
//! What changes meanwhile may be in the answer or not; its totals are those of the last part. One
//! question is worked on at a time, so half an answer is in memory once; the others wait.

use super::Engine;
use crate::op::{OpOutcome, OpResult, Respond};
use crate::sink::Sink;
use crate::stream::{DeletedWalk, SubjectWalk};
use nuthatch_log::{LogAccess, StreamId, Timestamp};
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
    /// When the next part is due.
    pub(super) const fn next_at(&self) -> Option<Timestamp> {
        self.next_at
    }
}

impl<S: Sink> Engine<S> {
    /// Answers at once what takes one part, and otherwise in its turn.
    pub(super) fn stream_info<L: LogAccess>(
        &mut self,
        id: StreamId,
        mut details: Details,
        respond: Respond,
        log: &mut L,
    ) {
        self.streams.expire(id, log);
        let is_plain = details.subjects.is_none() && details.deleted.is_none();
        if (is_plain || self.details.waiting.is_empty())
            && let Some(answer) = self.details_part(id, &mut details, log)
        {
            return respond(answer);
        }
        if self.details.waiting.len() >= QUESTIONS_MAX {
            return respond(Err(JsError::STREAM_TOO_MANY_REQUESTS));
        }
        self.details.waiting.push_back(Question { id, details, respond });
        self.details.next_at.get_or_insert(log.now());
    }

    /// One part of the question that has waited longest, if it is time.
    pub(super) fn run_details<L: LogAccess>(&mut self, log: &mut L) {
        if self.details.next_at.is_none_or(|at| at > log.now()) {
            return;
        }
        self.details.next_at = None;
        let Some(mut first) = self.details.waiting.pop_front() else { return };
        match self.details_part(first.id, &mut first.details, log) {
            Some(answer) => {
                self.out.flush();
                (first.respond)(answer);
            }
            None => self.details.waiting.push_front(first),
        }
        if !self.details.waiting.is_empty() {
            self.details.next_at = Some(log.now());
        }
    }

    /// Goes on with the walks; the answer once both are done.
    fn details_part<L: LogAccess>(
        &mut self,
        id: StreamId,
        details: &mut Details,
        log: &mut L,
    ) -> Option<OpResult> {
        let slot = match self.streams.shown(id) {
            Ok(slot) => slot,
            Err(error) => return Some(Err(error)),
        };
        let mut steps = PART_STEPS;
        let stream = &slot.stream;
        let subjects = &mut details.subjects;
        if subjects.as_mut().is_some_and(|walk| !stream.walk_subjects(walk, &mut steps)) {
            return None;
        }
        let deleted = &mut details.deleted;
        if deleted.as_mut().is_some_and(|walk| !stream.walk_deleted(walk, &mut steps)) {
            return None;
        }
        let mut info = stream.info(log.now(), slot.consumers.len());
        if let Some(walk) = deleted.take() {
            info.state.deleted = walk.into_list(info.state.first_seq);
        }
        let walk = subjects.take();
        let subjects_total = walk.as_ref().map_or(0, |walk| walk.total);
        info.state.subjects = walk.map(|walk| walk.page).filter(|page| !page.is_empty());
        Some(Ok(OpOutcome::Stream { info: Box::new(info), subjects_total }))
    }
}
