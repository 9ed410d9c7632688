//! Removal of messages by records: deletes, purges, rollups.

use super::Contents;
use crate::records::PurgeRequest;
use crate::stream::messages::Entry;
use nuthatch_log::{Lsn, Seq};

/// When a removal becomes visible to readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Once the frame has committed: the record that causes it lies there.
    Committed(Lsn),
    /// At once: the record is being replayed.
    Replayed,
}

impl Contents {
    /// Removes one message by a record; `false` if it does not exist (any more).
    #[inline]
    pub fn drop_message(&mut self, seq: u64, when: When) -> bool {
        match when {
            When::Committed(lsn) => self.doom(seq, lsn),
            When::Replayed => self.remove_now(seq).is_some(),
        }
    }

    fn doom(&mut self, seq: u64, lsn: Lsn) -> bool {
        let Some(entry) = self.messages.doom(seq) else { return false };
        self.schedules.remove(seq);
        self.subjects.doomed(entry.subject, seq);
        self.commits.doom(seq, self.counted_bytes(&entry), lsn);
        true
    }

    /// Removes what was doomed in a range.
    pub(super) fn bury(&mut self, first: u64, last: u64, dead: &mut dyn FnMut(Seq, usize)) {
        // A doomed message is live unless something else has removed it since.
        let mut at = Some(first);
        while let Some(seq) = at {
            if self.messages.get(seq).is_some_and(|entry| entry.is_doomed())
                && let Some(entry) = self.messages.remove(seq)
            {
                self.subjects_buried(&entry, seq);
                dead(Seq(seq), entry.weight());
            }
            at = if seq < last { self.messages.next_live(seq + 1) } else { None };
            at = at.filter(|&seq| seq <= last);
        }
    }

    fn subjects_buried(&mut self, entry: &Entry, seq: u64) {
        if self.has_consumers {
            self.journal.note(seq, entry.subject, self.commits.assigned().messages);
        } else {
            self.journal.note_unread();
        }
        self.timers.remove(seq);
        self.subjects.buried(entry.subject, seq);
    }

    /// Removes a message at once, for readers as well.
    pub(in crate::stream) fn remove_now(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.messages.remove(seq)?;
        self.schedules.remove(seq);
        if !entry.is_doomed() {
            self.subjects.doomed(entry.subject, seq);
        }
        self.commits.removed(seq, self.counted_bytes(&entry), entry.is_doomed());
        self.subjects_buried(&entry, seq);
        Some(entry)
    }

    /// Removes what a purge asks for; returns how many messages. Deterministic: the same request on
    /// the same assigned state removes the same messages.
    /// Not for purges past the end: see [`Contents::purge_past_end`].
    pub fn purge(&mut self, request: &PurgeRequest, when: When) -> u64 {
        let all = request.filter.is_empty() || request.filter == ">";
        match (request.seq, request.keep) {
            // "Up to but not including 1" is nothing.
            (1, _) => 0,
            (0, 0) if all => self.purge_before(u64::MAX, when),
            (seq, 0) if all => self.purge_before(seq, when),
            _ => self.purge_matching(request, when),
        }
    }

    /// Recovery: a purge that moves the last sequence to the one before `next`.
    pub fn purge_past_end(&mut self, next: u64) {
        while self.remove_now(self.messages.first()).is_some() {}
        self.messages.skip_to(next);
        self.commits.set_last(next - 1);
    }

    /// As [`Contents::purge_past_end`] by a record in frame `lsn`, of which readers learn when that has
    /// committed. Until then nothing may be stored ([`Contents::is_jumping`]).
    pub fn jump_past_end(&mut self, next: u64, lsn: Lsn) -> u64 {
        let purged = self.purge_before(u64::MAX, When::Committed(lsn));
        self.commits.jump(next, lsn);
        purged
    }

    /// True if a purge past the end waits for its commit.
    #[inline]
    #[must_use]
    pub const fn is_jumping(&self) -> bool {
        self.commits.is_jumping()
    }

    /// True if a purge moves the stream's last sequence.
    #[must_use]
    pub fn purges_past_end(&self, request: &PurgeRequest) -> bool {
        (request.filter.is_empty() || request.filter == ">") && request.seq > self.messages.next()
    }

    fn purge_before(&mut self, end: u64, when: When) -> u64 {
        let mut purged = 0;
        while self.messages.first_kept() < end.min(self.messages.next()) {
            let is_gone = self.drop_message(self.messages.first_kept(), when);
            assert!(is_gone, "the first message is there");
            purged += 1;
        }
        purged
    }

    fn purge_matching(&mut self, request: &PurgeRequest, when: When) -> u64 {
        let filter = if request.filter.is_empty() { ">" } else { &request.filter };
        let wanted = self.matching(filter.as_bytes());
        let Some(left) = wanted.total.checked_sub(request.keep) else { return 0 };
        let end = if request.seq == 0 { u64::MAX } else { request.seq };
        self.purge_wanted(&wanted, end, left, when)
    }

    /// Removes the oldest `left` wanted messages before `end`.
    fn purge_wanted(&mut self, wanted: &Wanted, end: u64, mut left: u64, when: When) -> u64 {
        let mut purged = 0;
        let mut at = self.messages.next_kept(wanted.first);
        while let Some(seq) = at.filter(|&seq| seq < end && left > 0) {
            let is_wanted = self.messages.get(seq).is_some_and(|e| wanted.contains(e.subject));
            if is_wanted && self.drop_message(seq, when) {
                purged += 1;
                left -= 1;
            }
            at = self.messages.next_kept(seq + 1);
        }
        purged
    }

    fn matching(&self, filter: &[u8]) -> Wanted {
        if filter == b">" {
            return Wanted { ids: None, first: 0, total: self.commits.assigned().messages };
        }
        let (mut ids, mut first, mut total) = (Vec::new(), u64::MAX, 0);
        self.subjects.for_each_match(filter, &mut |id| {
            if self.subjects.kept(id) > 0 {
                ids.push(id);
                first = first.min(self.subjects.first_bound(id));
                total += self.subjects.kept(id);
            }
        });
        ids.sort_unstable();
        Wanted { ids: Some(ids), first, total }
    }

    /// A rollup of the whole stream: only the message after `last` stays.
    pub(in crate::stream) fn roll_up_all(&mut self, last: u64, when: When) {
        self.purge_before(last + 1, when);
    }

    /// A rollup of one subject: only its newest `keep` messages stay.
    pub(in crate::stream) fn roll_up_subject(&mut self, subject: &[u8], keep: u64, when: When) {
        let Some(id) = self.subjects.find(subject) else { return };
        let total = self.subjects.kept(id);
        let mut left = total.saturating_sub(keep);
        if self.subjects.has_order() {
            while left > 0
                && let Some(seq) = self.subjects.oldest(id, &self.messages)
                && self.drop_message(seq, when)
            {
                left -= 1;
            }
            return;
        }
        let wanted = Wanted { ids: Some(vec![id]), first: self.subjects.first_bound(id), total };
        self.purge_wanted(&wanted, u64::MAX, left, when);
    }
}

/// Messages by subject.
struct Wanted {
    /// Sorted ids; `None`: all.
    ids: Option<Vec<u32>>,
    /// None of them comes before this one.
    first: u64,
    /// How many there are.
    total: u64,
}

impl Wanted {
    fn contains(&self, id: u32) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.binary_search(&id).is_ok())
    }
}
