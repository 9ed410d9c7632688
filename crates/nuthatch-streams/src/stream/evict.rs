//! Removal of messages: limits, rollups, purges, deletes, age, and what consumers are done with.

use super::messages::Entry;
use super::{Doom, Stream};
use crate::records::PurgeRequest;
use nuthatch_log::{Lsn, Seq, Timestamp};

/// When a removal becomes visible to readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Once the frame has committed: the record that causes it lies there.
    Committed(Lsn),
    /// At once: the record is being replayed.
    Replayed,
}

impl Stream {
    /// Removes one message by a record; `false` if it does not exist (any more).
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
        self.assigned.messages -= 1;
        self.assigned.bytes -= self.limits.counted_bytes(entry.weight(), entry.has_headers());
        match self.dooms.back_mut() {
            Some(doom) if doom.lsn == lsn && doom.last + 1 == seq => doom.last = seq,
            _ => self.dooms.push_back(Doom { lsn, first: seq, last: seq }),
        }
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
            self.journal.note(seq, entry.subject, self.assigned.messages);
        } else {
            self.journal.note_unread();
        }
        self.timers.remove(seq);
        self.subjects.buried(entry.subject, seq);
    }

    /// Removes a message at once, for readers as well.
    pub(super) fn remove_now(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.messages.remove(seq)?;
        self.schedules.remove(seq);
        let bytes = self.limits.counted_bytes(entry.weight(), entry.has_headers());
        let doomed_in = entry.is_doomed().then(|| self.doom_of(seq));
        if doomed_in.is_none() {
            self.subjects.doomed(entry.subject, seq);
            self.assigned.messages -= 1;
            self.assigned.bytes -= bytes;
        }
        // Totals that were noted while the message counted must not count it any more.
        let counted_before = doomed_in.unwrap_or(Lsn(u64::MAX));
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
        self.subjects_buried(&entry, seq);
        Some(entry)
    }

    fn doom_of(&self, seq: u64) -> Lsn {
        let holds = |doom: &&Doom| (doom.first..=doom.last).contains(&seq);
        self.dooms.iter().find(holds).map_or(Lsn(0), |doom| doom.lsn)
    }

    /// Removes a message that consumers are done with, at once. The log learns of it from the
    /// consumers' own records.
    pub fn release(&mut self, seq: u64, dead: &mut dyn FnMut(Seq, usize)) -> bool {
        let Some(entry) = self.remove_now(seq) else { return false };
        if !entry.is_doomed() {
            self.unlogged.messages += 1;
            self.unlogged.bytes += self.limits.counted_bytes(entry.weight(), entry.has_headers());
        }
        dead(Seq(seq), entry.weight());
        true
    }

    /// Discard old: lets the oldest messages go until the limits on messages and bytes hold again.
    #[inline]
    pub(super) fn enforce_totals(&mut self, when: When) {
        // With discard new, room was checked when the message was admitted. To evict here as well
        // would differ on replay, where consumers' releases may come later than they did.
        if self.limits.discard_new {
            return;
        }
        while self.assigned.messages > self.limits.messages
            || self.assigned.bytes > self.limits.bytes
        {
            let is_gone = self.drop_message(self.messages.first_kept(), when);
            assert!(is_gone, "a stream above its limits has a message to give");
        }
    }

    /// Lets the oldest messages of a subject go until its limit holds again.
    pub(super) fn enforce_subject(&mut self, subject: u32, when: When) {
        if self.limits.per_subject == 0 {
            return;
        }
        while self.subjects.kept(subject) > self.limits.per_subject {
            let oldest = self.subjects.oldest(subject, &self.messages);
            let oldest = oldest.expect("a subject above its limit has a message");
            assert!(self.drop_message(oldest, when), "the oldest message is there");
        }
    }

    /// Enforces every limit but age, after a change of configuration; in the order of upstream, as
    /// what goes depends on it.
    pub(super) fn enforce_all(&mut self, when: When) {
        self.enforce_totals(when);
        if self.limits.per_subject > 0 {
            let mut over = Vec::new();
            self.subjects.for_each_match(b">", &mut |id| over.push(id));
            for id in over {
                self.enforce_subject(id, when);
            }
        }
    }

    /// Removes what a purge asks for; returns how many messages. Deterministic: the same request on
    /// the same assigned state removes the same messages.
    /// Not for purges past the end: see [`Stream::purge_past_end`].
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
        self.assigned.last_seq = next - 1;
    }

    /// As [`Stream::purge_past_end`] by a record in frame `lsn`, of which readers learn when that has
    /// committed. Until then nothing may be stored ([`Stream::is_jumping`]).
    pub fn jump_past_end(&mut self, next: u64, lsn: Lsn) -> u64 {
        let purged = self.purge_before(u64::MAX, When::Committed(lsn));
        self.assigned.last_seq = next - 1;
        self.jump = Some((lsn, next));
        purged
    }

    /// True if a purge past the end waits for its commit.
    #[inline]
    #[must_use]
    pub const fn is_jumping(&self) -> bool {
        self.jump.is_some()
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
            return Wanted { ids: None, first: 0, total: self.assigned.messages };
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
    pub(super) fn roll_up_all(&mut self, last: u64, when: When) {
        self.purge_before(last + 1, when);
    }

    /// A rollup of one subject: only its newest `keep` messages stay.
    pub(super) fn roll_up_subject(&mut self, subject: &[u8], keep: u64, when: When) {
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

    /// When the next message expires; `None` if none ever does.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        if self.is_timed() {
            return self.next_timed();
        }
        if self.limits.age_ns == 0 {
            return None;
        }
        let oldest = self.messages.get(self.messages.first())?;
        Some(oldest.timestamp.plus_nanos(self.limits.age_ns))
    }

    /// Removes what is older than the age limit at `now`; returns how many messages. The record
    /// that says so is written later ([`Stream::due_expiry`]): until then the clock says it.
    /// Not for streams whose messages have times of their own: see [`Stream::expire_timed`].
    pub fn expire(&mut self, now: Timestamp, dead: &mut dyn FnMut(Seq, usize)) -> u64 {
        let mut expired = 0;
        while self.next_expiry().is_some_and(|at| at <= now) {
            let seq = self.messages.first();
            let entry = self.remove_now(seq).expect("the first message is there");
            dead(Seq(seq), entry.weight());
            self.expired_through = seq;
            expired += 1;
        }
        expired
    }

    /// The sequence up to which an `Expire` record is due, if one is.
    #[must_use]
    pub fn due_expiry(&self) -> Option<Seq> {
        (self.expired_through > self.expired_logged).then_some(Seq(self.expired_through))
    }

    /// The record that [`Stream::due_expiry`] asked for is in the log.
    pub const fn expiry_logged(&mut self, seq: Seq) {
        self.expired_logged = seq.0;
    }

    /// Recovery: everything up to `seq` has expired.
    pub fn apply_expiry(&mut self, seq: u64) {
        while self.messages.first_kept() <= seq
            && self.drop_message(self.messages.first_kept(), When::Replayed)
        {}
        self.expired_through = self.expired_through.max(seq);
        self.expired_logged = self.expired_through;
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
