//! When streams and consumers want to be called: a heap whose stale entries are dropped when met.

use super::Engine;
use super::consumers::ConsumerKey;
use super::stream_slot::StreamSlot;
use crate::consumer::TickOutcome;
use crate::sink::Sink;
use nuthatch_log::{LogAccess, StreamId, Timestamp, Urgency};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Expiries by age closer together than this are done in one go, ns.
const EXPIRY_GRANULARITY_NS: i64 = 10_000_000;

/// What has expired and could not go (no room for its record, a log that failed) is looked at again
/// after this, ns.
const EXPIRY_RETRY_NS: i64 = 250_000_000;

/// Message ids leave the duplicate window at most this much late in an idle stream, ns.
const ID_GRANULARITY_NS: i64 = 1_000_000_000;

/// The heap is cleared of stale entries when it is larger than this and has doubled since.
const SWEEP_ABOVE_ENTRIES: usize = 4096;

/// Owner of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Who {
    Stream(StreamId),
    Consumer(ConsumerKey),
}

/// The heap.
#[derive(Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Timestamp, Who)>>,
    /// Entries after the last sweep.
    swept_len: usize,
}

impl Deadlines {
    /// The earliest deadline, possibly a stale one.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Makes sure that the stream is called when its oldest message or message id expires, when a
    /// schedule is due, or when its batches are to be looked at.
    pub(super) fn schedule_stream<S: Sink>(&mut self, slot: &mut StreamSlot<S>) {
        if slot.stream.limits().restoring
            || !(slot.stream.has_deadlines() || slot.batches.is_some())
        {
            return;
        }
        let message = slot.stream.next_expiry().map(|at| at.plus_nanos(EXPIRY_GRANULARITY_NS));
        let message = message.map(|at| at.max(slot.expire_after));
        let id = slot.stream.next_id_expiry().map(|at| at.plus_nanos(ID_GRANULARITY_NS));
        let batch = slot.batches.as_ref().and_then(|batches| batches.check_at);
        let due =
            if slot.schedules_wait { None } else { slot.stream.contents().schedules().next() };
        let all = message.into_iter().chain(id).chain(batch).chain(due);
        let Some(at) = all.min() else { return };
        if slot.scheduled.is_none_or(|scheduled| at < scheduled) {
            slot.scheduled = Some(at);
            self.heap.push(Reverse((at, Who::Stream(slot.stream.id()))));
        }
    }

    /// Makes sure that a consumer is called at `at`.
    pub(super) fn schedule_consumer(
        &mut self,
        key: ConsumerKey,
        scheduled: &mut Option<Timestamp>,
        at: Option<Timestamp>,
    ) {
        let Some(at) = at else { return };
        if scheduled.is_none_or(|scheduled| at < scheduled) {
            *scheduled = Some(at);
            self.heap.push(Reverse((at, Who::Consumer(key))));
        }
    }

    /// Drops stale entries if they may be many. Amortised O(1) per entry.
    pub(super) fn sweep(&mut self, is_current: impl Fn(Timestamp, Who) -> bool) {
        if self.heap.len() < SWEEP_ABOVE_ENTRIES.max(2 * self.swept_len) {
            return;
        }
        self.heap.retain(|Reverse((at, who))| is_current(*at, *who));
        self.swept_len = self.heap.len();
    }

    /// The next entry that is due.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, Who)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }
}

impl<S: Sink> Engine<S> {
    /// Calls everybody whose time has come, each once.
    pub(super) fn run_deadlines<L: LogAccess>(&mut self, log: &mut L) {
        for (at, who) in self.streams.take_due(log.now()) {
            match who {
                Who::Stream(id) => self.stream_due(id, at, log),
                Who::Consumer(key) => self.consumer_due(key, at, log),
            }
        }
    }

    fn stream_due<L: LogAccess>(&mut self, id: StreamId, at: Timestamp, log: &mut L) {
        let Some((slot, ledger)) = self.streams.entry(id) else { return };
        if slot.scheduled != Some(at) {
            return;
        }
        slot.scheduled = None;
        if slot.migration.holds() {
            // It is scheduled again once it goes on.
            return;
        }
        slot.stream.sweep_ids(log.now());
        ledger.settle(slot);
        ledger.expire(slot, log);
        self.sweep_batches(id, log);
        self.run_schedules(id, log);
        if let Some((slot, ledger)) = self.streams.entry(id) {
            if slot.stream.next_expiry().is_some_and(|at| at <= log.now()) {
                slot.expire_after = log.now().plus_nanos(EXPIRY_RETRY_NS);
            }
            ledger.schedule(slot);
        }
    }

    fn consumer_due<L: LogAccess>(&mut self, key: ConsumerKey, at: Timestamp, log: &mut L) {
        let (streams, out) = (&mut self.streams, &mut self.out);
        let outcome = self.dispatch.tick(key, at, streams, out, log);
        if outcome == Some(TickOutcome::Expired) {
            // Without room for the record the consumer stays until there is.
            let _ = self.consumer_ops(log).delete(key, Urgency::Lazy);
        }
    }
}
