//! The parts of `STREAM.INFO` that grow with the stream: its subjects with their counts, and the
//! sequences that are gone. Each is a walk that stops when its steps are used up, and goes on there.
//!
//! What changes behind a walk is not seen by it: a stream that is at rest is told exactly.

use super::SUBJECT_DETAILS_MAX;
use super::contents::{Contents, Differences};
use crate::index::MessageIndex;
use nuthatch_log::Seq;
use nuthatch_protocol::subject;
use std::collections::BTreeMap;

/// Deleted sequences that are listed at most.
pub const DELETED_DETAILS_MAX: usize = 1_000_000;
/// What putting a subject into the answer counts for, in subjects looked at.
const SHOWN_STEPS: usize = 8;
/// Subjects that a pattern finds at once, in one step of a walk each.
const FOUND_AT_ONCE: usize = 1_024;

/// A page of the subjects that match a pattern, in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectWalk {
    pattern: String,
    /// Subjects to skip.
    offset: usize,
    next_id: u32,
    is_done: bool,
    /// Those that matched so far.
    pub total: usize,
    /// The page, with counts.
    pub page: BTreeMap<String, u64>,
}

impl SubjectWalk {
    /// A walk that has not begun.
    #[must_use]
    pub const fn new(pattern: String, offset: usize) -> Self {
        Self { pattern, offset, next_id: 0, is_done: false, total: 0, page: BTreeMap::new() }
    }

    /// Goes on until it is done (`true`) or has used up its steps.
    pub fn go_on(&mut self, contents: &Contents, steps: &mut usize) -> bool {
        if self.is_done {
            return true;
        }
        let (differences, subjects) = (contents.differences(), contents.subjects());
        if self.next_id == 0
            && is_prefix(self.pattern.as_bytes())
            && let Some(ids) = subjects.matching(self.pattern.as_bytes(), FOUND_AT_ONCE)
        {
            for id in ids {
                self.show(id, contents, &differences, steps);
            }
            self.is_done = true;
            return true;
        }
        while (self.next_id as usize) < subjects.id_bound() {
            if *steps == 0 {
                return false;
            }
            let id = self.next_id;
            self.next_id += 1;
            *steps -= 1;
            let name = subjects.name(id);
            if !name.is_empty() && subject::matches(self.pattern.as_bytes(), name) {
                self.show(id, contents, &differences, steps);
            }
        }
        self.is_done = true;
        true
    }

    fn show(&mut self, id: u32, contents: &Contents, differences: &Differences, steps: &mut usize) {
        let count = contents.committed_count(id, differences);
        if count == 0 {
            return;
        }
        self.total += 1;
        if self.total > self.offset && self.page.len() < SUBJECT_DETAILS_MAX {
            *steps = steps.saturating_sub(SHOWN_STEPS);
            let name = String::from_utf8_lossy(contents.subjects().name(id)).into_owned();
            self.page.insert(name, count);
        }
    }
}

/// The deleted sequences between the first and the last message.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeletedWalk {
    next: u64,
    deleted: Vec<u64>,
}

impl DeletedWalk {
    /// Goes on until it is done (`true`) or has used up its steps. A sequence is one step, whether
    /// its message is there or not.
    pub fn go_on(&mut self, contents: &Contents, steps: &mut usize) -> bool {
        self.next = self.next.max(contents.first().0);
        while self.deleted.len() < DELETED_DETAILS_MAX {
            if *steps == 0 {
                return false;
            }
            let live = contents.next_live(Seq(self.next)).map(|live| live.0);
            let end = live.unwrap_or(contents.committed_totals().last_seq + 1);
            let room = (DELETED_DETAILS_MAX - self.deleted.len()).min(*steps);
            let until = end.min(self.next.saturating_add(room as u64));
            *steps = steps.saturating_sub(1 + until.saturating_sub(self.next) as usize);
            self.deleted.extend(self.next..until);
            self.next = self.next.max(until);
            match live {
                _ if until < end => {}
                Some(live) => self.next = live + 1,
                None => return true,
            }
        }
        true
    }

    /// What was found, from the stream's first message on.
    #[must_use]
    pub fn into_list(mut self, first_seq: u64) -> Vec<u64> {
        let gone = self.deleted.partition_point(|&seq| seq < first_seq);
        self.deleted.drain(..gone);
        self.deleted
    }
}

/// True if only the last token of a pattern can be a wildcard: what it matches is found without
/// looking at anything else.
fn is_prefix(pattern: &[u8]) -> bool {
    let last = pattern.iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
    !subject::has_wildcard(&pattern[..last.saturating_sub(1)])
}
