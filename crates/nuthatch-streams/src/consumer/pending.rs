//! Delivered messages that wait for their acknowledgement, and when each is due again.
//!
//! Entries lie in one ring in the order of their stream sequence. First deliveries come in that
//! order, so a push is an append, an acknowledgement in order a pop, and one out of order an index
//! computation (dense sequences) or a binary search; it leaves a tombstone until the ring is
//! compacted. Deadlines come in the order of delivery as long as the wait is the same for all, so
//! they need a queue and no heap; the odd ones (delays, back-offs) go to a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Stale timers and tombstones are tolerated up to this many beyond the live entries.
const SLACK: usize = 256;

/// State of a pending message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingPlace {
    /// With a client, until its deadline.
    Out,
    /// Due again, in the redelivery queue.
    Due,
    /// Acknowledged: a tombstone.
    Gone,
}

/// One delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Stream sequence.
    pub seq: u64,
    /// Consumer sequence of the first delivery.
    pub consumer_seq: u64,
    /// When it is due again, ns since the epoch.
    pub deadline: i64,
    /// Deliveries so far.
    pub delivered: u32,
    /// Its state.
    pub place: PendingPlace,
}

/// All of them.
#[derive(Default, Debug)]
pub(super) struct Pending {
    ring: VecDeque<Entry>,
    live: usize,
    redelivered: usize,
    due: VecDeque<u64>,
    timers: VecDeque<(i64, u64)>,
    odd_timers: BinaryHeap<Reverse<(i64, u64)>>,
}

impl Pending {
    /// How many wait for an acknowledgement.
    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// How many of them were delivered more than once.
    pub fn redelivered(&self) -> usize {
        self.redelivered
    }

    /// The one with the lowest sequence.
    pub fn front(&self) -> Option<&Entry> {
        self.ring.front()
    }

    /// All of them by rising sequence.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.ring.iter().filter(|entry| entry.place != PendingPlace::Gone)
    }

    fn find(&self, seq: u64) -> Option<usize> {
        let first = self.ring.front()?.seq;
        let guess = usize::try_from(seq.checked_sub(first)?).ok()?;
        let at = match self.ring.get(guess) {
            Some(entry) if entry.seq == seq => guess,
            _ => self.ring.binary_search_by_key(&seq, |entry| entry.seq).ok()?,
        };
        (self.ring[at].place != PendingPlace::Gone).then_some(at)
    }

    /// The entry of a message.
    pub fn get(&self, seq: u64) -> Option<&Entry> {
        self.find(seq).map(|at| &self.ring[at])
    }

    /// A first delivery. Sequences must rise.
    pub fn push(&mut self, seq: u64, consumer_seq: u64, deadline: i64) {
        debug_assert!(self.ring.back().is_none_or(|last| last.seq < seq));
        self.ring.push_back(Entry {
            seq,
            consumer_seq,
            deadline,
            delivered: 1,
            place: PendingPlace::Out,
        });
        self.live += 1;
        self.arm(seq, deadline);
    }

    /// Puts back what was pending before a restart.
    pub fn restore(&mut self, seq: u64, consumer_seq: u64, delivered: u32) {
        let place = PendingPlace::Out;
        self.ring.push_back(Entry { seq, consumer_seq, deadline: i64::MAX, delivered, place });
        self.live += 1;
        self.redelivered += usize::from(delivered > 1);
    }

    /// Gives every entry a new deadline: after a restart, or when the wait was configured anew.
    pub fn rearm(&mut self, mut deadline: impl FnMut(&Entry) -> i64) {
        self.timers.clear();
        self.odd_timers.clear();
        let mut armed: Vec<(i64, u64)> = Vec::with_capacity(self.live);
        for entry in self.ring.iter_mut().filter(|entry| entry.place == PendingPlace::Out) {
            entry.deadline = deadline(entry);
            armed.push((entry.deadline, entry.seq));
        }
        armed.sort_unstable();
        self.timers.extend(armed);
    }

    fn arm(&mut self, seq: u64, deadline: i64) {
        if self.timers.back().is_none_or(|&(last, _)| last <= deadline) {
            self.timers.push_back((deadline, seq));
        } else {
            self.odd_timers.push(Reverse((deadline, seq)));
        }
        if self.timers.len() + self.odd_timers.len() > 2 * self.live + SLACK {
            self.drop_stale_timers();
        }
    }

    fn timer_holds(&self, (deadline, seq): (i64, u64)) -> bool {
        self.get(seq)
            .is_some_and(|entry| entry.place == PendingPlace::Out && entry.deadline == deadline)
    }

    #[cold]
    fn drop_stale_timers(&mut self) {
        let mut timers = std::mem::take(&mut self.timers);
        timers.retain(|&timer| self.timer_holds(timer));
        self.timers = timers;
        let mut odd = std::mem::take(&mut self.odd_timers);
        odd.retain(|&Reverse(timer)| self.timer_holds(timer));
        self.odd_timers = odd;
    }

    /// Removes a message: acknowledged, terminated or gone from the stream.
    pub fn remove(&mut self, seq: u64) -> Option<Entry> {
        let at = self.find(seq)?;
        let entry = self.ring[at];
        self.ring[at].place = PendingPlace::Gone;
        self.live -= 1;
        self.redelivered -= usize::from(entry.delivered > 1);
        while self.ring.front().is_some_and(|first| first.place == PendingPlace::Gone) {
            self.ring.pop_front();
        }
        if self.timers.front().is_some_and(|&(_, timer)| timer == seq) {
            self.timers.pop_front();
        }
        if self.ring.len() > 2 * self.live + SLACK {
            self.ring.retain(|entry| entry.place != PendingPlace::Gone);
        }
        if self.live == 0 {
            self.due.clear();
            self.timers.clear();
            self.odd_timers.clear();
        }
        Some(entry)
    }

    /// Gives a message that is out (or due) a new deadline.
    pub fn postpone(&mut self, seq: u64, deadline: i64) -> bool {
        let Some(at) = self.find(seq) else { return false };
        self.ring[at].deadline = deadline;
        self.ring[at].place = PendingPlace::Out;
        self.arm(seq, deadline);
        true
    }

    /// Queues a message for redelivery; `false` if it is not pending or queued already.
    pub fn make_due(&mut self, seq: u64) -> bool {
        let Some(at) = self.find(seq) else { return false };
        if self.ring[at].place == PendingPlace::Due {
            return false;
        }
        self.ring[at].place = PendingPlace::Due;
        self.due.push_back(seq);
        true
    }

    /// The next message to redeliver. Stays in the queue until [`Pending::redeliver`].
    pub fn next_due(&mut self) -> Option<Entry> {
        while let Some(&seq) = self.due.front() {
            match self.get(seq) {
                Some(entry) if entry.place == PendingPlace::Due => return Some(*entry),
                _ => self.due.pop_front(),
            };
        }
        None
    }

    /// Messages in the redelivery queue (an upper bound).
    pub fn due_len(&self) -> usize {
        self.due.len()
    }

    /// The message that [`Pending::next_due`] showed comes after the others that are due.
    pub fn pass_due(&mut self) {
        if self.due.len() > 1 {
            self.due.rotate_left(1);
        }
    }

    /// The message that [`Pending::next_due`] showed has been delivered once more.
    pub fn redeliver(&mut self, seq: u64, deadline: i64) {
        debug_assert_eq!(self.due.front(), Some(&seq));
        self.due.pop_front();
        let Some(at) = self.find(seq) else { return };
        let entry = &mut self.ring[at];
        self.redelivered += usize::from(entry.delivered == 1);
        entry.delivered = entry.delivered.saturating_add(1);
        entry.deadline = deadline;
        entry.place = PendingPlace::Out;
        self.arm(seq, deadline);
    }

    /// Collects the messages whose deadline has passed, by rising sequence, without queueing them.
    pub fn expired(&mut self, now: i64, out: &mut Vec<u64>) {
        out.clear();
        while let Some(&timer) = self.timers.front().filter(|timer| timer.0 <= now) {
            self.timers.pop_front();
            if self.timer_holds(timer) {
                out.push(timer.1);
            }
        }
        while let Some(&Reverse(timer)) = self.odd_timers.peek().filter(|timer| timer.0.0 <= now) {
            self.odd_timers.pop();
            if self.timer_holds(timer) {
                out.push(timer.1);
            }
        }
        out.sort_unstable();
        out.dedup();
    }

    /// When the next message is due (or a little earlier: stale timers count).
    pub fn next_deadline(&self) -> Option<i64> {
        let queued = self.timers.front().map(|timer| timer.0);
        let odd = self.odd_timers.peek().map(|timer| timer.0.0);
        match (queued, odd) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The latest deadline of all that are out.
    pub fn latest_deadline(&self) -> Option<i64> {
        self.iter()
            .filter(|entry| entry.place == PendingPlace::Out)
            .map(|entry| entry.deadline)
            .max()
    }

    /// Removes everything up to and including a sequence, calling `each` for every one.
    pub fn remove_through(&mut self, seq: u64, mut each: impl FnMut(&Entry)) {
        while let Some(&entry) = self.ring.front().filter(|entry| entry.seq <= seq) {
            self.ring.pop_front();
            if entry.place == PendingPlace::Gone {
                continue;
            }
            self.live -= 1;
            self.redelivered -= usize::from(entry.delivered > 1);
            each(&entry);
        }
        while self.timers.front().is_some_and(|timer| timer.1 <= seq) {
            self.timers.pop_front();
        }
        while self.ring.front().is_some_and(|first| first.place == PendingPlace::Gone) {
            self.ring.pop_front();
        }
        if self.live == 0 {
            self.due.clear();
            self.timers.clear();
            self.odd_timers.clear();
        }
    }
}

#[cfg(test)]
mod tests;
