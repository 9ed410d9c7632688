//! Totals of a stream as checks see them and as readers see them, and what lies between the two:
//! frames that have not committed, and removals by records in them.

use crate::rules::SHOW_COMMITTED;
use crate::stream::Totals;
use nuthatch_log::{Lsn, Timestamp};
use std::collections::VecDeque;

/// Totals as of the end of a frame that has not committed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    lsn: Lsn,
    totals: Totals,
}

/// Consecutive sequences that a record in frame `lsn` removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Doom {
    lsn: Lsn,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Readers never see more than was given out; frames are marked and removals are doomed in the order
/// of the log.
#[derive(Debug)]
pub(super) struct Commits {
    assigned: Totals,
    committed: Totals,
    /// Ends of uncommitted frames, oldest first: two at most, as many as the log has in flight.
    marks: VecDeque<Mark>,
    /// Uncommitted removals, oldest first.
    dooms: VecDeque<Doom>,
    /// The next sequence after a purge past the end, once its frame has committed.
    jump: Option<(Lsn, u64)>,
    /// The frame that the newest record went to.
    appending: Lsn,
    /// The same once that frame has committed, else an earlier one.
    settled: Lsn,
    /// The newest frame with a record that changed what readers see, or will.
    changed_in: Lsn,
}

impl Commits {
    /// Nothing is in flight.
    pub(super) const fn new(totals: Totals) -> Self {
        Self {
            assigned: totals,
            committed: totals,
            marks: VecDeque::new(),
            dooms: VecDeque::new(),
            jump: None,
            appending: Lsn(0),
            settled: Lsn(0),
            changed_in: Lsn(0),
        }
    }

    /// A record in frame `lsn` changes what readers see.
    #[inline]
    pub(super) fn note_change(&mut self, lsn: Lsn) {
        self.changed_in = self.changed_in.max(lsn);
    }

    /// The newest frame that [`Commits::note_change`] was told of.
    pub(super) const fn changed_in(&self) -> Lsn {
        self.changed_in
    }

    /// Totals that checks see.
    #[inline]
    pub(super) const fn assigned(&self) -> &Totals {
        &self.assigned
    }

    /// Totals that readers see.
    #[inline]
    pub(super) const fn committed(&self) -> &Totals {
        &self.committed
    }

    /// The frame that must commit before everything assigned is committed; `None` if it is.
    #[inline]
    pub(super) fn uncommitted(&self) -> Option<Lsn> {
        self.marks.back().map(|mark| mark.lsn)
    }

    /// Uncommitted removals, oldest first.
    pub(super) fn dooms(&self) -> impl Iterator<Item = &Doom> {
        self.dooms.iter()
    }

    /// True if a purge past the end waits for its commit.
    #[inline]
    pub(super) const fn is_jumping(&self) -> bool {
        self.jump.is_some()
    }

    /// Continues in another log, where nothing has been appended.
    ///
    /// # Panics
    /// Something is in flight.
    pub(super) fn rehome(&mut self) {
        let is_quiet = self.marks.is_empty() && self.dooms.is_empty() && self.jump.is_none();
        assert!(is_quiet, "nothing of a stream that leaves is in flight");
        (self.appending, self.settled, self.changed_in) = (Lsn(0), Lsn(0), Lsn(0));
    }

    /// A message was stored.
    #[inline]
    pub(super) const fn stored(&mut self, seq: u64, at: Timestamp, bytes: u64) {
        self.advanced(seq, at);
        self.indexed(bytes);
    }

    /// Recovery: a message that totals do not count yet is there.
    #[inline]
    pub(super) const fn indexed(&mut self, bytes: u64) {
        self.assigned.messages += 1;
        self.assigned.bytes += bytes;
    }

    /// Sequences up to `seq` are used up.
    #[inline]
    pub(super) const fn advanced(&mut self, seq: u64, at: Timestamp) {
        self.assigned.last_seq = seq;
        self.assigned.last_at = at;
    }

    /// The last sequence is another one.
    pub(super) const fn set_last(&mut self, seq: u64) {
        self.assigned.last_seq = seq;
    }

    /// The next sequence is `next` once frame `lsn` has committed; checks see that at once.
    pub(super) const fn jump(&mut self, next: u64, lsn: Lsn) {
        self.assigned.last_seq = next - 1;
        self.jump = Some((lsn, next));
    }

    /// A record in frame `lsn` removes a message.
    pub(super) fn doom(&mut self, seq: u64, bytes: u64, lsn: Lsn) {
        self.assigned.messages -= 1;
        self.assigned.bytes -= bytes;
        match self.dooms.back_mut() {
            Some(doom) if doom.lsn == lsn && doom.last + 1 == seq => doom.last = seq,
            _ => self.dooms.push_back(Doom { lsn, first: seq, last: seq }),
        }
    }

    /// A message is gone at once, for readers as well. `is_doomed`: a record has removed it already.
    pub(super) fn removed(&mut self, seq: u64, bytes: u64, is_doomed: bool) {
        // Totals that were noted while the message counted must not count it any more.
        let mut counted_before = Lsn(u64::MAX);
        if is_doomed {
            counted_before = self.doom_of(seq);
        } else {
            self.assigned.messages -= 1;
            self.assigned.bytes -= bytes;
        }
        for mark in self.marks.iter_mut().filter(|mark| mark.lsn < counted_before) {
            if mark.totals.last_seq >= seq {
                mark.totals.messages -= 1;
                mark.totals.bytes -= bytes;
            }
        }
        if self.committed.last_seq >= seq {
            self.committed.messages = self.committed.messages.saturating_sub(1);
            self.committed.bytes = self.committed.bytes.saturating_sub(bytes);
        }
    }

    fn doom_of(&self, seq: u64) -> Lsn {
        let holds = |doom: &&Doom| (doom.first..=doom.last).contains(&seq);
        self.dooms.iter().find(holds).map_or(Lsn(0), |doom| doom.lsn)
    }

    /// Before the state changes by a record in frame `lsn`: the totals of now belong to the frame
    /// before, if that was another one and has not committed.
    #[inline]
    pub(super) fn mark_before(&mut self, lsn: Lsn) {
        if self.appending != lsn {
            if self.appending > self.settled {
                self.mark(self.appending);
            }
            self.appending = lsn;
        }
    }

    /// Notes that a record in frame `lsn` led to the totals of now. Returns whether this is the
    /// stream's first record in that frame.
    #[inline]
    pub(super) fn mark(&mut self, lsn: Lsn) -> bool {
        // The totals of now count records of a later frame already; those of the end of `lsn` were
        // noted before the first of them (`mark_before`).
        if lsn < self.appending {
            return false;
        }
        let totals = self.assigned;
        if !SHOW_COMMITTED.holds() {
            self.committed = totals;
        }
        if let Some(mark) = self.marks.back_mut()
            && mark.lsn >= lsn
        {
            mark.totals = totals;
            return false;
        }
        self.marks.push_back(Mark { lsn, totals });
        true
    }

    /// Frames up to `lsn` are durable: readers see what they hold. What they remove is to be taken by
    /// [`Commits::next_removal`], and then [`Commits::next_jump`].
    pub(super) fn commit(&mut self, lsn: Lsn) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.lsn <= lsn) {
            self.committed = mark.totals;
        }
        self.settled = lsn.min(self.appending);
    }

    /// The next removal that frames up to `lsn` make.
    pub(super) fn next_removal(&mut self, lsn: Lsn) -> Option<Doom> {
        self.dooms.pop_front_if(|doom| doom.lsn <= lsn)
    }

    /// The next sequence, if a purge past the end in a frame up to `lsn` sets it.
    ///
    /// # Panics
    /// Readers see more than was given out.
    pub(super) fn next_jump(&mut self, lsn: Lsn) -> Option<u64> {
        let (shown, given) = (self.committed.last_seq, self.assigned.last_seq);
        assert!(shown <= given, "readers see {shown}, and only {given} was given out");
        self.jump.take_if(|(at, _)| *at <= lsn).map(|(_, next)| next)
    }

    /// Everything assigned is committed.
    pub(super) const fn show_all(&mut self) {
        self.committed = self.assigned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits() -> Commits {
        Commits::new(Totals { last_seq: 0, last_at: Timestamp::NONE, messages: 0, bytes: 0 })
    }

    fn store(commits: &mut Commits, seq: u64, lsn: Lsn) {
        commits.mark_before(lsn);
        commits.stored(seq, Timestamp(1), 10);
    }

    #[test]
    fn a_frame_shows_what_was_there_at_its_end() {
        let mut commits = commits();
        store(&mut commits, 1, Lsn(1));
        store(&mut commits, 2, Lsn(2));
        assert!(!commits.mark(Lsn(1)), "its end was noted before the first record of the next");
        assert!(commits.mark(Lsn(2)));
        commits.commit(Lsn(1));
        assert_eq!((commits.committed().messages, commits.uncommitted()), (1, Some(Lsn(2))));
        commits.commit(Lsn(2));
        assert_eq!((commits.committed(), commits.uncommitted()), (&commits.assigned, None));
    }

    #[test]
    fn what_is_doomed_counts_for_readers_until_its_frame_commits() {
        let mut commits = commits();
        for seq in 1..=3 {
            store(&mut commits, seq, Lsn(1));
        }
        commits.mark(Lsn(1));
        commits.commit(Lsn(1));
        commits.mark_before(Lsn(2));
        commits.doom(1, 10, Lsn(2));
        commits.doom(2, 10, Lsn(2));
        commits.mark(Lsn(2));
        assert_eq!((commits.assigned().messages, commits.committed().messages), (1, 3));
        commits.removed(2, 10, true);
        assert_eq!((commits.assigned().messages, commits.committed().messages), (1, 2));
        assert_eq!(commits.next_removal(Lsn(1)), None);
        commits.commit(Lsn(2));
        assert_eq!(commits.next_removal(Lsn(2)), Some(Doom { lsn: Lsn(2), first: 1, last: 2 }));
        assert_eq!((commits.next_removal(Lsn(2)), commits.committed().messages), (None, 1));
    }

    #[test]
    fn a_jump_is_seen_with_its_commit() {
        let mut commits = commits();
        commits.jump(100, Lsn(3));
        assert!(commits.is_jumping());
        assert_eq!((commits.next_jump(Lsn(2)), commits.next_jump(Lsn(3))), (None, Some(100)));
        assert!(!commits.is_jumping());
    }
}
