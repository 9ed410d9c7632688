//! The schedules of a stream (ADR-51): which message is the schedule of which subject, and when it
//! is due. In order of time, so that looking for the next costs nothing; every change is O(log n).
//! Counted with the timers against the engine's budget.

use nuthatch_log::Timestamp;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    due: Timestamp,
}

/// Schedules by the id of their subject, of which each has one at most.
#[derive(Default, Debug)]
pub struct Schedules {
    by_subject: FxHashMap<u32, Entry>,
    subjects: FxHashMap<u64, u32>,
    queue: BTreeSet<(Timestamp, u64)>,
    /// Recovery: what a state tells, until the message of each has been indexed.
    restored: FxHashMap<u64, Timestamp>,
}

impl Schedules {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_subject.len()
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// Message `seq` is the schedule of its subject now.
    pub fn add(&mut self, subject: u32, seq: u64, due: Timestamp) {
        self.remove_subject(subject);
        self.by_subject.insert(subject, Entry { seq, due });
        self.subjects.insert(seq, subject);
        self.queue.insert((due, seq));
    }

    /// The schedule of a subject, if there is one, is due at another time.
    pub fn move_to(&mut self, subject: u32, due: Timestamp) {
        if let Some(entry) = self.by_subject.get_mut(&subject) {
            self.queue.remove(&(entry.due, entry.seq));
            entry.due = due;
            self.queue.insert((due, entry.seq));
        }
    }

    /// The same for the schedule that message `seq` is.
    pub fn put_off(&mut self, seq: u64, due: Timestamp) {
        if let Some(&subject) = self.subjects.get(&seq) {
            self.move_to(subject, due);
        }
    }

    /// A subject has no schedule any more.
    pub fn remove_subject(&mut self, subject: u32) {
        if let Some(entry) = self.by_subject.remove(&subject) {
            self.subjects.remove(&entry.seq);
            self.queue.remove(&(entry.due, entry.seq));
        }
    }

    /// A message is gone, or about to.
    #[inline]
    pub fn remove(&mut self, seq: u64) {
        if !self.is_empty()
            && let Some(&subject) = self.subjects.get(&seq)
        {
            self.remove_subject(subject);
        }
    }

    /// True if message `seq` is the schedule of a subject.
    pub fn is_schedule(&self, subject: u32, seq: u64) -> bool {
        self.by_subject.get(&subject).is_some_and(|entry| entry.seq == seq)
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// At most `max` that are due at `now`: sequence and when they were due, in order of sequence.
    pub fn due(&self, now: Timestamp, max: usize) -> Vec<(u64, Timestamp)> {
        let due = self.queue.iter().take_while(|(at, _)| *at <= now).take(max);
        let mut due: Vec<(u64, Timestamp)> = due.map(|&(at, seq)| (seq, at)).collect();
        due.sort_unstable();
        due
    }

    /// All, by sequence.
    pub fn sorted(&self) -> Vec<(u64, Timestamp)> {
        self.due(Timestamp(i64::MAX), usize::MAX)
    }

    /// Recovery: what a state tells; [`Schedules::reindex`] follows for each message that lives.
    pub fn restore(&mut self, restored: FxHashMap<u64, Timestamp>) {
        self.restored = restored;
    }

    /// Recovery: a message that the state speaks of lives.
    #[inline]
    pub fn reindex(&mut self, subject: u32, seq: u64) {
        if !self.restored.is_empty()
            && let Some(due) = self.restored.remove(&seq)
        {
            self.add(subject, seq, due);
        }
    }

    /// Recovery: every message that lives has been indexed.
    pub fn reindexed(&mut self) {
        self.restored = FxHashMap::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_one_schedule_and_the_next_one_is_first() {
        let mut schedules = Schedules::default();
        let second = |s: i64| Timestamp(s * 1_000_000_000);
        schedules.add(1, 10, second(5));
        schedules.add(2, 11, second(3));
        schedules.add(1, 12, second(4));
        assert_eq!((schedules.len(), schedules.next()), (2, Some(second(3))));
        schedules.remove(10);
        assert!(schedules.is_schedule(1, 12) && !schedules.is_schedule(1, 10));
        schedules.move_to(2, second(9));
        schedules.move_to(7, second(1));
        assert_eq!(schedules.due(second(9), 9), [(11, second(9)), (12, second(4))]);
        assert_eq!(schedules.due(second(9), 1), [(12, second(4))]);
        schedules.put_off(12, second(20));
        schedules.remove(11);
        assert_eq!(schedules.sorted(), [(12, second(20))]);
        schedules.remove_subject(1);
        assert!(
            schedules.is_empty() && schedules.next().is_none() && schedules.subjects.is_empty()
        );
    }
}
