//! What the streams of an engine have in common: memory and bytes that they use together, the frames
//! that hold their records, and what is due when.

use super::batches::{BatchLimits, BatchTotals};
use super::consumers::ConsumerKey;
use super::deadlines::{Deadlines, Who};
use super::outputs::Done;
use super::stream_slot::StreamSlot;
use crate::budget::{AccountBounds, Budget};
use crate::index::MessageIndex;
use crate::op::OpOutcome;
use crate::rules::{MARK_CHANGES, RELEASES_BEFORE_CHANGES};
use crate::sink::{AccountId, Sink};
use crate::stream::Accounted;
use nuthatch_log::{LogAccess, Lsn, Seq, StreamId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// How long progress and drops without a waiting reply stay out of the log, ns.
pub(super) const PROGRESS_LOG_INTERVAL_NS: i64 = 250_000_000;
/// Consumers with as many messages out as they may have look at most this often whether some of
/// them have left the stream.
const FULL_RECHECK_NS: i64 = 250_000_000;

/// Streams that something is to be done for, and when.
#[derive(Default)]
struct Chores {
    streams: Vec<StreamId>,
    at: Option<Timestamp>,
}

impl Chores {
    /// Within `delay_ns` of now. What is due earlier stays so.
    fn add(&mut self, id: StreamId, now: Timestamp, delay_ns: i64) {
        self.streams.push(id);
        self.at.get_or_insert(now.plus_nanos(delay_ns));
    }

    fn take(&mut self) -> Vec<StreamId> {
        self.at = None;
        std::mem::take(&mut self.streams)
    }
}

/// The use of every stream here is in the budget as it was reported last; frames are in their order.
pub(super) struct Ledger {
    budget: Budget,
    /// Open batches of all streams.
    pub(super) batches: BatchTotals,
    deadlines: Deadlines,
    /// Streams with records in uncommitted frames, in the order of the frames.
    frames: VecDeque<(Lsn, StreamId)>,
    /// Streams with an `Expire` record due.
    expiring: Vec<StreamId>,
    /// Streams with drops that no consumer's record will tell of.
    undeleted: Chores,
    /// Streams that messages have left while some of their consumers had too many out.
    freed: Chores,
    /// Nothing is logged any more.
    has_log_failed: bool,
}

impl Ledger {
    /// Nothing is used and nothing is due.
    pub(super) fn new(budget: Budget, batches: BatchLimits) -> Self {
        Self {
            budget,
            batches: BatchTotals::new(batches),
            deadlines: Deadlines::default(),
            frames: VecDeque::new(),
            expiring: Vec::new(),
            undeleted: Chores::default(),
            freed: Chores::default(),
            has_log_failed: false,
        }
    }

    /// Bounds and use.
    #[inline]
    pub(super) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Replaces the limits of accounts.
    pub(super) fn set_bounds(&mut self, bounds: FxHashMap<AccountId, AccountBounds>) -> Done {
        self.budget.set_bounds(bounds);
        Ok((None, OpOutcome::Done))
    }

    /// The log takes no more records.
    pub(super) const fn fail(&mut self) {
        self.has_log_failed = true;
    }

    /// Reports what a stream uses now.
    #[inline]
    pub(super) fn settle<S: Sink>(&mut self, slot: &mut StreamSlot<S>) {
        self.budget.settle(slot.stream.account(), slot.stream.account_use());
    }

    /// A record of the stream lies in frame `lsn`: its effects become visible with it.
    pub(super) fn changed<S: Sink>(&mut self, slot: &mut StreamSlot<S>, lsn: Lsn) {
        self.hold(slot, lsn);
        if MARK_CHANGES.holds() {
            slot.stream.contents_mut().note_change(lsn);
        }
        self.settle(slot);
    }

    /// As [`Ledger::changed`]; the caller settles the stream's use later.
    #[inline]
    pub(super) fn stored<S: Sink>(&mut self, slot: &mut StreamSlot<S>, lsn: Lsn) {
        slot.stream.contents_mut().note_change(lsn);
        self.hold(slot, lsn);
    }

    /// Frame `lsn` has to commit before the state of now is shown.
    #[inline]
    fn hold<S: Sink>(&mut self, slot: &mut StreamSlot<S>, lsn: Lsn) {
        slot.stream.contents_mut().mark(lsn);
        let frame = (lsn, slot.stream.id());
        if self.frames.back() != Some(&frame) {
            self.frames.push_back(frame);
        }
    }

    /// The next stream with records in frames up to `lsn`; it may be named more than once.
    pub(super) fn next_committed(&mut self, lsn: Lsn) -> Option<StreamId> {
        self.frames.pop_front_if(|(at, _)| *at <= lsn).map(|(_, id)| id)
    }

    /// Shows what has committed; returns the last sequence that readers saw before.
    pub(super) fn commit<S: Sink, L: LogAccess>(
        &mut self,
        slot: &mut StreamSlot<S>,
        lsn: Lsn,
        log: &mut L,
    ) -> Seq {
        let (id, seen) =
            (slot.stream.id(), Seq(slot.stream.contents().committed_totals().last_seq));
        slot.committed_in = lsn;
        slot.stream.contents_mut().commit(lsn, |seq, weight| log.dead(id, seq, weight));
        slot.schedules_wait = false;
        self.settle(slot);
        self.schedule(slot);
        self.note_freed(slot, log.now());
        seen
    }

    /// The stream is here, with open batches perhaps.
    pub(super) fn join<S: Sink>(&mut self, slot: &StreamSlot<S>) {
        if let Some(batches) = &slot.batches {
            batches.join(&mut self.batches);
        }
    }

    /// Nothing of the stream counts here any more.
    pub(super) fn leave<S: Sink>(&mut self, slot: &mut StreamSlot<S>) {
        if let Some(batches) = &slot.batches {
            batches.leave(&mut self.batches);
        }
        let (before, _) = slot.stream.account_use();
        self.budget.settle(slot.stream.account(), (before, Accounted::default()));
    }

    /// Makes sure that the stream is called when something of it is due.
    #[inline]
    pub(super) fn schedule<S: Sink>(&mut self, slot: &mut StreamSlot<S>) {
        self.deadlines.schedule_stream(slot);
    }

    /// Makes sure that a consumer is called at `at`.
    #[inline]
    pub(super) fn schedule_consumer(
        &mut self,
        key: ConsumerKey,
        scheduled: &mut Option<Timestamp>,
        at: Option<Timestamp>,
    ) {
        self.deadlines.schedule_consumer(key, scheduled, at);
    }

    /// Everybody whose time has come. `is_current` tells stale entries apart.
    pub(super) fn take_due(
        &mut self,
        now: Timestamp,
        is_current: impl Fn(Timestamp, Who) -> bool,
    ) -> Vec<(Timestamp, Who)> {
        self.deadlines.sweep(is_current);
        std::iter::from_fn(|| self.deadlines.pop(now)).collect()
    }

    /// When something is due next: deadlines, drops to log, consumers with too many messages out.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let due = [self.deadlines.next(), self.undeleted.at, self.freed.at];
        due.into_iter().flatten().min()
    }

    /// True if drops are to be logged now.
    pub(super) fn is_log_due(&self, now: Timestamp) -> bool {
        self.undeleted.at.is_some_and(|at| at <= now)
    }

    /// A stream dropped messages that the log must be told of.
    pub(super) fn delete_later(&mut self, id: StreamId, now: Timestamp) {
        self.undeleted.add(id, now, PROGRESS_LOG_INTERVAL_NS);
    }

    /// The streams with drops that the log must be told of.
    pub(super) fn take_undeleted(&mut self) -> Vec<StreamId> {
        self.undeleted.take()
    }

    /// If messages have left the stream and some of its consumers have too many out, those look soon
    /// whether theirs were among them.
    #[inline]
    pub(super) fn note_freed<S: Sink>(&mut self, slot: &mut StreamSlot<S>, now: Timestamp) {
        if !slot.consumers.full.is_empty()
            && slot.stream.contents().removal_cursor() != slot.removals_seen
            && !std::mem::replace(&mut slot.is_freed, true)
        {
            self.freed.add(slot.stream.id(), now, FULL_RECHECK_NS);
        }
    }

    /// The streams that messages have left, if it is time to look.
    pub(super) fn take_freed(&mut self, now: Timestamp) -> Vec<StreamId> {
        if self.freed.at.is_some_and(|at| at <= now) { self.freed.take() } else { Vec::new() }
    }

    /// Lets messages go that are older than the stream's limit. The record follows with the next
    /// frame; until then the clock says the same.
    pub(super) fn expire<S: Sink, L: LogAccess>(&mut self, slot: &mut StreamSlot<S>, log: &mut L) {
        if slot.migration.holds() || slot.stream.limits().restoring {
            return;
        }
        if slot.stream.is_timed() {
            return self.expire_timed(slot, log);
        }
        let (id, now) = (slot.stream.id(), log.now());
        if slot.stream.expire(now, &mut |seq, weight| log.dead(id, seq, weight)) > 0 {
            self.expiring.push(id);
            self.settle(slot);
            self.note_freed(slot, now);
        }
    }

    /// The same for a stream whose messages have times of their own: logged at once.
    fn expire_timed<S: Sink, L: LogAccess>(&mut self, slot: &mut StreamSlot<S>, log: &mut L) {
        if slot.deleting || slot.stream.contents().is_jumping() || self.has_log_failed {
            return;
        }
        if slot.stream.next_expiry().is_none_or(|at| at > log.now()) {
            return;
        }
        // What consumers let go comes first in the log, as deletes depend on what is there.
        if RELEASES_BEFORE_CHANGES.holds() && slot.log_progress(log).is_err() {
            return;
        }
        let mut expired = slot.stream.expire_timed(log, &self.budget);
        let is_first = slot.undeleted.ranges.is_empty() && !expired.unlogged.ranges.is_empty();
        slot.undeleted.ranges.append(&mut expired.unlogged.ranges);
        match expired.lsn {
            Some(lsn) => self.changed(slot, lsn),
            None => self.settle(slot),
        }
        if is_first {
            self.delete_later(slot.stream.id(), log.now());
        }
    }

    /// The streams with an `Expire` record due, in order.
    pub(super) fn take_expiring(&mut self) -> Vec<StreamId> {
        let mut due = std::mem::take(&mut self.expiring);
        due.sort_unstable();
        due.dedup();
        due
    }

    /// The `Expire` record found no room: it goes with the next frame. By then the stream's age may
    /// be another, and what is gone must not come back.
    pub(super) fn expire_again(&mut self, id: StreamId) {
        self.expiring.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::NullSink;
    use crate::stream::Stream;
    use nuthatch_protocol::js::StreamConfig;

    fn ledger() -> Ledger {
        Ledger::new(Budget::new(10, 10, 1000, 1000), BatchLimits::default())
    }

    fn slot(id: u32) -> StreamSlot<NullSink> {
        let config = Box::new(StreamConfig { name: format!("S{id}"), ..StreamConfig::default() });
        let stream = Stream::new(StreamId(id), AccountId::GLOBAL, config, Timestamp(1), 0);
        StreamSlot::new(stream, "".into())
    }

    #[test]
    fn a_frame_names_each_stream_in_a_row_once_and_goes_once() {
        let (mut ledger, mut one, mut other) = (ledger(), slot(1), slot(2));
        ledger.stored(&mut one, Lsn(1));
        ledger.stored(&mut one, Lsn(1));
        ledger.stored(&mut other, Lsn(1));
        ledger.stored(&mut one, Lsn(2));
        let mut until =
            |lsn| std::iter::from_fn(|| ledger.next_committed(Lsn(lsn))).collect::<Vec<_>>();
        assert_eq!(until(0), []);
        assert_eq!(until(1), [StreamId(1), StreamId(2)]);
        assert_eq!(until(9), [StreamId(1)]);
        assert_eq!(until(9), []);
    }

    #[test]
    fn the_first_who_waits_says_when_drops_are_logged() {
        let mut ledger = ledger();
        ledger.delete_later(StreamId(1), Timestamp(5));
        ledger.delete_later(StreamId(2), Timestamp(50));
        let due = Timestamp(5 + PROGRESS_LOG_INTERVAL_NS);
        assert_eq!(ledger.next_deadline(), Some(due));
        assert!(ledger.is_log_due(due) && !ledger.is_log_due(Timestamp(due.0 - 1)));
        assert_eq!(ledger.take_undeleted(), [StreamId(1), StreamId(2)]);
        assert_eq!((ledger.next_deadline(), ledger.take_undeleted()), (None, Vec::new()));
    }

    #[test]
    fn expiries_are_logged_in_order_and_once_for_each_stream() {
        let mut ledger = ledger();
        [2, 1, 2].into_iter().for_each(|id| ledger.expire_again(StreamId(id)));
        assert_eq!(ledger.take_expiring(), [StreamId(1), StreamId(2)]);
        assert_eq!(ledger.take_expiring(), []);
    }
}
