//! Removal of messages by limits, by age, and because consumers are done with them.

use super::Stream;
use super::contents::When;
use nuthatch_log::{Seq, Timestamp};

impl Stream {
    /// Removes a message that consumers are done with, at once. The log learns of it from the
    /// consumers' own records.
    pub fn release(&mut self, seq: u64, dead: &mut dyn FnMut(Seq, usize)) -> bool {
        let Some(entry) = self.contents.remove_now(seq) else { return false };
        if !entry.is_doomed() {
            let bytes = self.limits.counted_bytes(entry.weight(), entry.has_headers());
            self.unwritten.release(1, bytes);
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
        while self.contents.assigned_totals().messages > self.limits.messages
            || self.contents.assigned_totals().bytes > self.limits.bytes
        {
            let is_gone = self.contents.drop_message(self.contents.messages().first_kept(), when);
            assert!(is_gone, "a stream above its limits has a message to give");
        }
    }

    /// Lets the oldest messages of a subject go until its limit holds again.
    pub(super) fn enforce_subject(&mut self, subject: u32, when: When) {
        if self.limits.per_subject == 0 {
            return;
        }
        while self.contents.subjects().kept(subject) > self.limits.per_subject {
            let oldest = self.contents.oldest_of(subject);
            let oldest = oldest.expect("a subject above its limit has a message");
            assert!(self.contents.drop_message(oldest, when), "the oldest message is there");
        }
    }

    /// Enforces every limit but age, after a change of configuration; in the order of upstream, as
    /// what goes depends on it.
    pub(super) fn enforce_all(&mut self, when: When) {
        self.enforce_totals(when);
        if self.limits.per_subject > 0 {
            let mut over = Vec::new();
            self.contents.subjects().for_each_match(b">", &mut |id| over.push(id));
            for id in over {
                self.enforce_subject(id, when);
            }
        }
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
        let oldest = self.contents.messages().get(self.contents.messages().first())?;
        Some(oldest.timestamp.plus_nanos(self.limits.age_ns))
    }

    /// Removes what is older than the age limit at `now`; returns how many messages. The record
    /// that says so is written later ([`Unwritten::due_expiry`](super::Unwritten::due_expiry)): until then the clock says it.
    /// Not for streams whose messages have times of their own: see [`Stream::expire_timed`].
    pub fn expire(&mut self, now: Timestamp, dead: &mut dyn FnMut(Seq, usize)) -> u64 {
        let mut expired = 0;
        while self.next_expiry().is_some_and(|at| at <= now) {
            let seq = self.contents.messages().first();
            let entry = self.contents.remove_now(seq).expect("the first message is there");
            dead(Seq(seq), entry.weight());
            self.unwritten.expire(seq);
            expired += 1;
        }
        expired
    }

    /// Recovery: everything up to `seq` has expired.
    pub fn apply_expiry(&mut self, seq: u64) {
        while self.contents.messages().first_kept() <= seq
            && self.contents.drop_message(self.contents.messages().first_kept(), When::Replayed)
        {
        }
        self.unwritten.expire(seq);
        self.unwritten.rehome();
    }
}
