//! The messages of a stream without payloads, by sequence, by subject, by time; what readers see of
//! them, and what has been removed.
//!
//! *Assigned* state is what has been appended to the log. What a record removes is only *doomed* until
//! the record commits, and readers see neither uncommitted messages nor uncommitted removals.

mod commits;
mod lookup;
mod removal;
mod view;

pub use lookup::{GetMessage, Lookup, Selection};
pub use removal::When;
pub(in crate::stream) use view::Differences;

use super::Totals;
use super::admit::Effects;
use super::journal::Journal;
use super::limits::{Limits, counted_bytes};
use super::messages::{Entry, Messages};
use super::scheduled::{NEXT, PURGE, SCHEDULER, first_due, value};
use super::schedules::Schedules;
use super::state::{Compared, LOOKED_AT_ONCE, Recovering};
use super::subjects::Subjects;
use super::timers::Timers;
use commits::Commits;
use nuthatch_log::{IndexedMessage, Lsn, Seq, Timestamp};
use nuthatch_protocol::js::Time;
use roaring::RoaringTreemap;

/// Every message of the table has a subject; totals count those that are not removed.
pub struct Contents {
    messages: Messages,
    subjects: Subjects,
    timers: Timers,
    schedules: Schedules,
    journal: Journal,
    /// True if consumers read the journal.
    has_consumers: bool,
    commits: Commits,
    /// Kept in memory: bytes are counted differently.
    is_in_memory: bool,
}

impl Contents {
    /// No messages; the first one gets sequence `first`. `hash_seed` keys the hashes of subjects.
    pub(super) fn new(first: u64, limits: &Limits, hash_seed: u64) -> Self {
        let totals =
            Totals { last_seq: first - 1, last_at: Timestamp::NONE, messages: 0, bytes: 0 };
        let mut contents = Self {
            messages: Messages::new(first),
            subjects: Subjects::with_seed(hash_seed),
            timers: Timers::default(),
            schedules: Schedules::default(),
            journal: Journal::default(),
            has_consumers: false,
            commits: Commits::new(totals),
            is_in_memory: limits.memory,
        };
        contents.track_order(limits.per_subject);
        contents
    }

    /// The message table.
    #[inline]
    #[must_use]
    pub const fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Subjects with their counts.
    #[inline]
    #[must_use]
    pub const fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    /// Messages with a time of their own.
    #[inline]
    #[must_use]
    pub const fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Messages with a time of their own, to take those that are due.
    pub(super) const fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }

    /// Messages that are schedules.
    #[inline]
    #[must_use]
    pub const fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// Messages that are schedules, to change when they are due.
    pub const fn schedules_mut(&mut self) -> &mut Schedules {
        &mut self.schedules
    }

    /// Bytes of a message as JetStream counts them.
    #[inline]
    fn counted_bytes(&self, entry: &Entry) -> u64 {
        counted_bytes(self.is_in_memory, entry.weight(), entry.has_headers())
    }

    /// Keeps or drops what finds the oldest message of a subject, for a new limit per subject (0:
    /// none).
    pub(super) fn track_order(&mut self, max_per_subject: u64) {
        self.subjects.track_order(max_per_subject, &self.messages);
    }

    /// The id of a subject, new or known. Follow with [`Contents::push`].
    #[inline]
    pub(super) fn intern(&mut self, subject: &[u8]) -> u32 {
        self.subjects.intern(subject)
    }

    /// The last kept message of a subject.
    #[inline]
    pub(super) fn last_of(&mut self, subject: u32) -> Option<u64> {
        self.subjects.last(subject, &self.messages)
    }

    /// The oldest kept message of a subject.
    pub(super) fn oldest_of(&mut self, subject: u32) -> Option<u64> {
        self.subjects.oldest(subject, &self.messages)
    }

    /// Adds a message with the next sequence, which it returns. Inlined always, as what calls it.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry) -> u64 {
        let seq = self.messages.push(entry);
        self.subjects.added(entry.subject, seq);
        let bytes = self.counted_bytes(&entry);
        self.commits.stored(seq, entry.timestamp, bytes);
        seq
    }

    /// The next message gets sequence `next`, if that is not less than it would get.
    #[inline]
    pub(super) fn skip_to(&mut self, next: u64) {
        self.messages.skip_to(next);
    }

    /// Sequences up to `seq` are used up.
    #[inline]
    pub(super) fn advance(&mut self, seq: u64, at: Timestamp) {
        self.messages.skip_to(seq + 1);
        self.commits.advanced(seq, at);
    }

    /// Recovery: begins as a state tells it: its first message, its next sequence, and when the last
    /// one was given out.
    pub(super) fn begin(&mut self, floor: u64, next: u64, last_at: Timestamp) {
        self.messages = Messages::new(floor.clamp(1, next));
        self.commits.advanced(next - 1, last_at);
    }

    /// Of a stream of which nothing is known but its messages: any of them up to `last` may live.
    pub(super) const fn assume_last(&mut self, last: u64) {
        self.commits.set_last(last);
    }

    /// Recovery: indexes a message that a state speaks of and that lives.
    pub(super) fn reindex(&mut self, message: &IndexedMessage<'_>) {
        let seq = message.seq.0;
        let weight = message.weight as usize;
        self.messages.skip_to(seq);
        let subject = self.subjects.intern(message.subject);
        let entry = Entry::new(subject, weight, message.has_headers, message.timestamp);
        self.messages.push(entry);
        self.subjects.added(subject, seq);
        if !self.timers.is_empty() {
            self.timers.reindex(seq, message.timestamp);
        }
        self.schedules.reindex(subject, seq);
        self.commits.indexed(self.counted_bytes(&entry));
    }

    /// Recovery: every message up to `last` that lives has been indexed.
    pub(super) fn reindexed(&mut self, last: u64) {
        self.messages.skip_to(last + 1);
        let messages = &self.messages;
        self.timers.keep_only(|seq| messages.get(seq).is_some());
        self.schedules.reindexed();
    }

    /// Continues in another log, where nothing has been appended.
    ///
    /// # Panics
    /// Something is in flight.
    pub(super) fn rehome(&mut self) {
        self.commits.rehome();
    }

    /// Message `seq` was stored: its subject has a schedule now, or none any more.
    #[cold]
    pub(super) fn note_schedule(&mut self, subject: u32, seq: u64, at: Timestamp, block: &[u8]) {
        match first_due(block, at) {
            Ok(Some(due)) => self.schedules.add(subject, seq, due),
            _ if value(block, SCHEDULER).is_empty() => self.schedules.remove_subject(subject),
            _ => {}
        }
    }

    /// A message with this header block was stored, or its sequence was used up: what it says of the
    /// schedule that made it.
    pub(super) fn note_made(&mut self, block: &[u8], when: When) {
        let (scheduler, next) = (value(block, SCHEDULER), value(block, NEXT));
        if scheduler.is_empty() || next.is_empty() {
            return;
        }
        if next == PURGE {
            self.roll_up_subject(scheduler, 0, when);
        } else if let Some(id) = self.subjects.find(scheduler)
            && let Some(due) =
                std::str::from_utf8(next).ok().and_then(|next| Time::parse(next).ok())
        {
            self.schedules.move_to(id, Timestamp(due.0));
        }
    }

    /// Message `seq`, stored at `at`, has a time of its own.
    pub(super) fn start_timer(&mut self, seq: u64, at: Timestamp, effects: &Effects<'_>) {
        if effects.ttl_s > 0 {
            self.timers.add(seq, at, effects.ttl_s);
        }
        if effects.is_marker {
            self.timers.add_marker(seq);
        }
    }

    /// Compares these messages, a copy, with a state from sequence `from` on: [`LOOKED_AT_ONCE`] ranges.
    #[must_use]
    pub fn compare_with(&self, state: &Recovering, from: u64) -> Compared {
        let (mut compared, mut looks) = (Compared::Whole, 0);
        state.each_live_range(from, |first, last| {
            if looks == LOOKED_AT_ONCE {
                compared = Compared::UpTo(first);
            } else if self.messages.live_between(first, last) != last - first + 1 {
                compared = Compared::Lacks(first, last);
            }
            looks += 1;
            compared == Compared::Whole
        });
        compared
    }

    /// Totals that readers see.
    #[must_use]
    #[inline]
    pub const fn committed_totals(&self) -> &Totals {
        self.commits.committed()
    }

    /// Totals that checks see.
    #[must_use]
    #[inline]
    pub const fn assigned_totals(&self) -> &Totals {
        self.commits.assigned()
    }

    /// The frame that must commit before everything assigned is committed; `None` if it is.
    #[must_use]
    #[inline]
    pub fn uncommitted(&self) -> Option<Lsn> {
        self.commits.uncommitted()
    }

    /// Sets whether consumers read the journal of removals.
    pub const fn set_has_consumers(&mut self, has_consumers: bool) {
        self.has_consumers = has_consumers;
    }

    /// True if the log must keep a message: readers may still ask for it.
    #[must_use]
    #[inline]
    pub fn holds(&self, seq: Seq) -> bool {
        self.messages.get(seq.0).is_some()
    }

    /// True if a message is there for checks: neither dead nor doomed.
    #[must_use]
    #[inline]
    pub fn keeps(&self, seq: Seq) -> bool {
        self.messages.get_kept(seq.0).is_some()
    }

    /// The first message at or after `from` that is there for checks.
    #[must_use]
    pub fn next_kept(&self, from: u64) -> Option<Seq> {
        self.messages.next_kept(from).map(Seq)
    }

    /// Text of a subject; empty if the id is not in use.
    #[must_use]
    #[inline]
    pub fn subject_name(&self, id: u32) -> &[u8] {
        self.subjects.name(id)
    }

    /// Recovery: these messages were deleted.
    pub fn apply_delete(&mut self, first: u64, last: u64) {
        let mut at = self.messages.next_kept(first);
        while let Some(seq) = at.filter(|&seq| seq <= last) {
            self.drop_message(seq, When::Replayed);
            at = self.messages.next_kept(seq + 1);
        }
    }

    /// Subject id of a message that is not dead.
    #[must_use]
    #[inline]
    pub fn held_subject(&self, seq: Seq) -> Option<u32> {
        self.messages.get(seq.0).map(|entry| entry.subject)
    }

    /// Calls `visit` with the subject id of every message after `seen` that readers see.
    pub fn for_each_committed_after(&self, seen: Seq, visit: &mut dyn FnMut(u32)) {
        let mut at = self.messages.next_live(seen.0 + 1);
        while let Some(seq) = at.filter(|&seq| seq <= self.commits.committed().last_seq) {
            if let Some(entry) = self.messages.get(seq) {
                visit(entry.subject);
            }
            at = self.messages.next_live(seq + 1);
        }
    }

    /// Calls `visit` with sequence and weight of every message that is not dead.
    pub fn for_each_held(&self, visit: &mut dyn FnMut(Seq, usize)) {
        self.messages.for_each(|seq, entry| visit(Seq(seq), entry.weight()));
    }

    /// Notes that a record in frame `lsn` led to the totals of now. Returns whether this is the
    /// stream's first record in that frame.
    #[inline]
    pub fn mark(&mut self, lsn: Lsn) -> bool {
        self.commits.mark(lsn)
    }

    /// A record in frame `lsn` changes what readers see once it has committed.
    #[inline]
    pub fn note_change(&mut self, lsn: Lsn) {
        self.commits.note_change(lsn);
    }

    /// The newest frame with such a record; of what was there when the log was opened, the last frame then.
    #[must_use]
    pub const fn changed_in(&self) -> Lsn {
        self.commits.changed_in()
    }

    /// True if a purge past the end waits for its commit, or anything else that was assigned.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.uncommitted().is_some() || self.is_jumping()
    }

    /// Frames up to `lsn` are durable: readers see what they hold. `dead` is told of every message
    /// that is gone now.
    pub fn commit(&mut self, lsn: Lsn, mut dead: impl FnMut(Seq, usize)) {
        self.commits.commit(lsn);
        while let Some(doom) = self.commits.next_removal(lsn) {
            self.bury(doom.first, doom.last, &mut dead);
        }
        if let Some(next) = self.commits.next_jump(lsn) {
            self.messages.skip_to(next);
        }
    }

    /// Recovery is over, or nothing is in flight: everything assigned is committed.
    pub fn commit_all(&mut self) {
        self.commit(Lsn(u64::MAX), |_, _| {});
        self.commits.show_all();
    }

    /// Before the state changes by a record in frame `lsn`: the totals of now belong to the frame
    /// before, if that was another one and has not committed.
    #[inline]
    pub(super) fn mark_before(&mut self, lsn: Lsn) {
        self.commits.mark_before(lsn);
    }

    /// The sequences that do not live: a bitmap, and wide gaps beside it.
    pub(super) fn deleted_sequences(&self) -> (Vec<u8>, Vec<(u64, u64)>) {
        let (mut deleted, mut gaps) = (RoaringTreemap::new(), Vec::new());
        if self.messages.next() - self.messages.first_kept() != self.commits.assigned().messages {
            self.messages.for_each_hole(|first, last| {
                if last - first >= super::state::GAP_MIN {
                    gaps.push((first, last));
                } else {
                    deleted.insert_range(first..=last);
                }
            });
        }
        let mut bytes = Vec::new();
        deleted.serialize_into(&mut bytes).expect("writing to memory does not fail");
        (bytes, gaps)
    }
}
