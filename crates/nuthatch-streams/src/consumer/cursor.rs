//! A consumer's position in its stream: which message comes next and how many are still to come.
//!
//! The number of messages to come is exact whenever [`Cursor::sync`] has run against the index and
//! the index has not changed since. Unfiltered it is one subtraction; filtered it is kept up to date
//! from the messages and removals since the last call, and counted anew only if the index's journal
//! of removals does not reach back far enough.

use super::filter::Filter;
use crate::index::{MessageIndex, MessageMeta};
use nuthatch_log::Seq;
use std::collections::VecDeque;

/// Non-matching messages passed before it is asked whether a jump is possible.
const PROBE_AFTER: u64 = 4_096;
/// Passing a message costs about this much of looking at a subject.
const SUBJECT_COST: u64 = 8;

/// Messages of a `last_per_subject` start: only these up to `resume`, everything after it.
#[derive(Debug, Default)]
struct SkipList {
    /// `sequence << 1 | removed`, rising.
    seqs: VecDeque<u64>,
    /// Entries that are not removed.
    live: u64,
}

/// Result of the search for the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// This one.
    Found(u64, MessageMeta),
    /// Nothing more that matches.
    End,
    /// The budget was spent on messages that do not match.
    Budget,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The next stream sequence to look at.
    pub next: u64,
    /// Up to here only the last message of each subject, as of the start; 0: no such start.
    pub resume: u64,
    skip: Option<SkipList>,
    /// Matching live messages in `next..=seen` (after the skip list).
    count: u64,
    /// Messages up to here are counted.
    seen: u64,
    removal_cursor: u64,
    counted: bool,
    /// The count may be off: a removed message's subject was not known.
    uncertain: bool,
    /// Subjects the last probe had to look at.
    probe_cost: u64,
}

impl Cursor {
    /// A position, uncounted.
    pub fn at(next: u64) -> Self {
        Self {
            next,
            resume: 0,
            skip: None,
            count: 0,
            seen: 0,
            removal_cursor: 0,
            counted: false,
            uncertain: false,
            probe_cost: 0,
        }
    }

    /// The filter or the meaning of "everything" has changed: count anew next time.
    pub fn recount_later(&mut self) {
        self.counted = false;
    }

    /// Starts (or continues after a restart) with the last message of every subject up to `resume`.
    pub fn start_last_per_subject<I: MessageIndex>(
        &mut self,
        index: &I,
        filter: &Filter,
        resume: u64,
    ) {
        let mut seqs = Vec::new();
        filter.for_each_subject(index, &mut |_, _, _, last| {
            if last.0 >= self.next && last.0 <= resume {
                seqs.push(last.0 << 1);
            }
        });
        seqs.sort_unstable();
        self.resume = resume;
        self.skip = Some(SkipList { live: seqs.len() as u64, seqs: seqs.into() });
        if let Some(first) = self.skip.as_ref().and_then(|skip| skip.seqs.front()) {
            self.next = first >> 1;
        }
        self.finish_skip_list();
        self.counted = false;
    }

    fn finish_skip_list(&mut self) {
        if self.skip.as_ref().is_some_and(|skip| skip.live == 0) {
            self.skip = None;
            self.next = self.next.max(self.resume + 1);
            self.resume = 0;
        }
    }

    /// First sequence beyond the skip list.
    fn tail(&self) -> u64 {
        if self.skip.is_some() { self.resume + 1 } else { self.next }
    }

    /// Messages still to be delivered for the first time. Exact after [`Cursor::sync`].
    pub fn pending(&self) -> u64 {
        self.count + self.skip.as_ref().map_or(0, |skip| skip.live)
    }

    /// True if the message lies ahead of the position and will be delivered if it matches.
    pub fn is_ahead(&self, seq: u64) -> bool {
        match &self.skip {
            Some(skip) if seq <= self.resume => skip.find(seq).is_some(),
            _ => seq >= self.next,
        }
    }

    /// Takes account of what was stored and removed since the last call. `removed` is told of every
    /// removed sequence, or of `None` if the journal did not reach back.
    pub fn sync<I: MessageIndex>(
        &mut self,
        index: &I,
        filter: &mut Filter,
        mut removed: impl FnMut(Option<u64>),
    ) {
        let cursor = index.removal_cursor();
        if !self.counted {
            removed(None);
            self.prune_skip_list(index);
            self.removal_cursor = cursor;
            return self.recount(index, filter);
        }
        if cursor != self.removal_cursor {
            match index.removed_since(self.removal_cursor) {
                Some(gone) => gone.for_each(|(seq, subject)| {
                    removed(Some(seq.0));
                    self.forget(index, filter, seq.0, subject);
                }),
                None => {
                    removed(None);
                    self.prune_skip_list(index);
                    self.counted = false;
                }
            }
            self.removal_cursor = cursor;
        }
        if !self.counted {
            self.recount(index, filter);
        } else if filter.is_all() {
            self.seen = index.last().0;
            self.count = index.live_after(Seq(self.tail().saturating_sub(1)));
        } else {
            self.count_new(index, filter);
        }
        self.finish_skip_list();
    }

    fn forget<I: MessageIndex>(&mut self, index: &I, filter: &mut Filter, seq: u64, subject: u32) {
        if let Some(skip) = &mut self.skip
            && seq <= self.resume
        {
            return skip.remove(seq);
        }
        if seq < self.next || seq > self.seen || filter.is_all() {
            return;
        }
        let (matched, certain) = filter.matched_removed(index, subject);
        self.uncertain |= !certain;
        if matched {
            self.count = self.count.saturating_sub(1);
        }
    }

    fn prune_skip_list<I: MessageIndex>(&mut self, index: &I) {
        if let Some(skip) = &mut self.skip {
            skip.seqs.retain(|&entry| entry & 1 == 0 && index.get(Seq(entry >> 1)).is_some());
            skip.live = skip.seqs.len() as u64;
        }
        self.finish_skip_list();
    }

    /// Counts what was stored since the last call.
    fn count_new<I: MessageIndex>(&mut self, index: &I, filter: &mut Filter) {
        let last = index.last().0;
        let from = (self.seen + 1).max(self.tail());
        if from <= last {
            self.count += count_range(index, filter, from, last);
        }
        self.seen = self.seen.max(last);
    }

    /// Counts exactly, without reading more than it must.
    #[cold]
    fn recount<I: MessageIndex>(&mut self, index: &I, filter: &mut Filter) {
        let (first, last, tail) = (index.first().0, index.last().0, self.tail());
        (self.counted, self.uncertain, self.seen) = (true, false, last);
        if filter.is_all() || tail > last {
            self.count = index.live_after(Seq(tail.saturating_sub(1)));
            return;
        }
        let (mut total, mut ahead, mut undecided, mut subjects) = (0, 0, 0_u64, 0);
        filter.for_each_subject(index, &mut |_, count, low, high| {
            subjects += 1;
            total += count;
            if low.0 >= tail {
                ahead += count;
            } else if high.0 >= tail {
                undecided += 1;
            }
        });
        self.probe_cost = subjects;
        self.count = if undecided == 0 {
            ahead
        } else if last - tail <= tail.saturating_sub(first) {
            count_range(index, filter, tail, last)
        } else {
            u64::saturating_sub(total, count_range(index, filter, first, tail - 1))
        };
    }

    /// Makes a possibly uncertain count exact.
    pub fn certify<I: MessageIndex>(&mut self, index: &I, filter: &mut Filter) {
        if self.uncertain {
            self.recount(index, filter);
        }
    }

    /// True if a count of nothing is wrong. Only a certain one may end the search.
    #[cold]
    fn is_more<I: MessageIndex>(&mut self, index: &I, filter: &mut Filter) -> bool {
        self.certify(index, filter);
        self.count > 0
    }

    /// The next message to deliver; the position stays at it (see [`Cursor::pass`]). `budget` is
    /// reduced by the messages that had to be looked at.
    #[inline]
    pub fn find<I: MessageIndex>(
        &mut self,
        index: &I,
        filter: &mut Filter,
        budget: &mut u64,
    ) -> Next {
        if self.skip.is_some() {
            return self.find_in_skip_list(index, filter, budget);
        }
        if self.count == 0 && !self.is_more(index, filter) {
            self.next = self.next.max(self.seen + 1);
            return Next::End;
        }
        if let Some(meta) = index.get(Seq(self.next))
            && filter.matches(index, meta.subject)
        {
            return Next::Found(self.next, meta);
        }
        self.search(index, filter, budget)
    }

    fn find_in_skip_list<I: MessageIndex>(
        &mut self,
        index: &I,
        filter: &mut Filter,
        budget: &mut u64,
    ) -> Next {
        while let Some(skip) = &mut self.skip {
            match skip.seqs.front().copied() {
                Some(entry) if entry & 1 == 0 => {
                    self.next = entry >> 1;
                    match index.get(Seq(self.next)) {
                        Some(meta) => return Next::Found(self.next, meta),
                        None => skip.remove(self.next),
                    }
                }
                Some(_) => drop(skip.seqs.pop_front()),
                None => skip.live = 0,
            }
            self.finish_skip_list();
        }
        self.find(index, filter, budget)
    }

    fn search<I: MessageIndex>(
        &mut self,
        index: &I,
        filter: &mut Filter,
        budget: &mut u64,
    ) -> Next {
        let mut probe_at = PROBE_AFTER.max(self.probe_cost * SUBJECT_COST);
        let mut passed = 0_u64;
        while let Some(seq) = index.next_live(Seq(self.next)) {
            self.next = seq.0;
            let Some(meta) = index.get(seq) else {
                self.next += 1;
                continue;
            };
            if filter.matches(index, meta.subject) {
                return Next::Found(seq.0, meta);
            }
            self.next += 1;
            passed += 1;
            if passed >= *budget {
                *budget = 0;
                return Next::Budget;
            }
            if passed >= probe_at {
                self.jump(index, filter);
                probe_at = passed + passed.max(self.probe_cost * SUBJECT_COST);
            }
        }
        *budget -= passed;
        self.next = self.next.max(index.last().0 + 1);
        (self.count, self.uncertain) = (0, false);
        Next::End
    }

    /// Moves the position to where the next match can be at the earliest.
    fn jump<I: MessageIndex>(&mut self, index: &I, filter: &Filter) {
        let (mut earliest, mut subjects, next) = (index.last().0 + 1, 0, self.next);
        filter.for_each_subject(index, &mut |_, _, low, high| {
            subjects += 1;
            if high.0 >= next {
                earliest = earliest.min(low.0.max(next));
            }
        });
        self.probe_cost = subjects;
        self.next = self.next.max(earliest);
    }

    /// The message that [`Cursor::find`] found is done with: delivered, or not readable.
    #[inline]
    pub fn pass(&mut self, seq: u64) {
        debug_assert_eq!(seq, self.next);
        if self.skip.is_some() {
            return self.pass_skip_list(seq);
        }
        self.next = seq + 1;
        self.count = self.count.saturating_sub(1);
    }

    fn pass_skip_list(&mut self, seq: u64) {
        if let Some(skip) = &mut self.skip {
            skip.remove(seq);
            if skip.seqs.front().is_some_and(|entry| entry >> 1 == seq) {
                skip.seqs.pop_front();
            }
        }
        self.next = seq + 1;
        self.finish_skip_list();
    }
}

impl SkipList {
    fn find(&self, seq: u64) -> Option<usize> {
        let at = self.seqs.binary_search_by_key(&seq, |entry| entry >> 1).ok()?;
        (self.seqs[at] & 1 == 0).then_some(at)
    }

    fn remove(&mut self, seq: u64) {
        if let Some(at) = self.find(seq) {
            self.seqs[at] |= 1;
            self.live -= 1;
        }
    }
}

/// Live messages in `from..=to` that match.
fn count_range<I: MessageIndex>(index: &I, filter: &mut Filter, from: u64, to: u64) -> u64 {
    let (mut at, mut count) = (from, 0);
    while at <= to {
        if let Some(meta) = index.get(Seq(at)) {
            count += u64::from(filter.matches(index, meta.subject));
            at += 1;
            continue;
        }
        match index.next_live(Seq(at)) {
            Some(seq) => at = seq.0,
            None => break,
        }
    }
    count
}
