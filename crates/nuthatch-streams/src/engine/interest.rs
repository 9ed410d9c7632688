//! Letting go of messages that the log cannot find out about by itself.
//!
//! A replay knows what durable consumers have acknowledged, from their own records. Two things it
//! does not know: what a stream dropped because of a consumer whose state is in memory only
//! (`mem_storage`), and what nobody needs any more once a consumer is gone or wants less (interest
//! retention). Both are logged as explicit deletes, and always before any record whose replay
//! depends on which messages exist.
//!
//! A sweep asks every consumer about every message. It is done in parts ([`SWEEP_LOOKS`]), so that
//! a large stream does not hold up the others; the first part at once.

use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::records::Delete;
use crate::rules::{FINISH_SWEEP, LOG_DROPS, NOTE_SWEEP};
use crate::sink::Sink;
use crate::stream::{Unlogged, When};
use nuthatch_log::{
    AppendError, LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Timestamp, Urgency,
};
use nuthatch_protocol::js::RetentionPolicy;
use std::collections::VecDeque;

/// Questions to consumers in one part of a sweep: about a millisecond.
const SWEEP_LOOKS: usize = 32 * 1024;
/// How long a sweep waits that found no room for its record, ns.
const SWEEP_RETRY_NS: i64 = 100_000_000;
/// Ranges in one `Delete` record: 1 MiB.
const RANGES_PER_RECORD: usize = 64 * 1024;

/// A sweep for messages that no consumer needs, in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// The next sequence to ask about.
    next: u64,
    /// The last sequence to look at: later messages came after the consumer was gone.
    last: u64,
}

/// Appends deletes; returns the frame that holds the last of them. What was appended has left
/// `ranges`, also on an error.
fn append_deletes<L: LogAccess>(
    id: StreamId,
    ranges: &mut Vec<(u64, u64)>,
    log: &mut L,
) -> Result<Option<Lsn>, AppendError> {
    let mut lsn = None;
    let mut body = Vec::new();
    if !LOG_DROPS.holds() {
        ranges.clear();
    }
    while !ranges.is_empty() {
        let rest = ranges.split_off(ranges.len().min(RANGES_PER_RECORD));
        body.clear();
        let deletes = Delete { ranges: std::mem::take(ranges) };
        deletes.encode(&mut body);
        let record = RecordRef {
            kind: RecordKind::Delete,
            stream: id,
            seq: Seq(0),
            timestamp: log.now(),
            subject: b"",
            headers: b"",
            body: &body,
        };
        match log.append(&record, Urgency::Lazy, true) {
            Ok(appended) => {
                lsn = Some(appended.lsn);
                *ranges = rest;
            }
            Err(error) => {
                *ranges = deletes.ranges;
                ranges.extend(rest);
                return Err(error);
            }
        }
    }
    Ok(lsn)
}

impl<S: Sink> StreamSlot<S> {
    /// Logs what was dropped and what no consumer's own record will tell. Without room it stays to
    /// be logged.
    pub(super) fn log_undeleted<L: LogAccess>(&mut self, log: &mut L) -> Result<(), AppendError> {
        let logged = append_deletes(self.stream.id(), &mut self.undeleted.ranges, log)?;
        if let Some(lsn) = logged {
            self.stream.contents_mut().note_change(lsn);
        }
        Ok(())
    }

    /// If the log knows of everything that consumers let go, says so to the stream.
    pub(super) fn note_if_logged(&mut self) {
        if self.stream.unwritten().released() != Unlogged::default()
            && self.undeleted.ranges.is_empty()
            && self.consumers.all_logged()
        {
            self.stream.unwritten_mut().set_releases_logged();
        }
    }

    /// The next messages that no consumer needs, as ranges, and where to go on; `None` once all are
    /// done.
    fn sweep_part(&mut self, sweep: Sweep) -> (Delete, Option<u64>) {
        let (mut deletes, mut looks, mut follows) = (Delete::default(), 0, false);
        let mut at = self.stream.contents().next_kept(sweep.next);
        while let Some(seq) = at.filter(|seq| seq.0 <= sweep.last) {
            if looks >= SWEEP_LOOKS {
                return (deletes, Some(seq.0));
            }
            looks += self.consumers.len().max(1);
            let needed = self.stream.contents().held_subject(seq).is_some_and(|subject| {
                let stream = &self.stream;
                self.consumers
                    .iter_mut()
                    .any(|consumer| consumer.needs(stream.contents(), seq, subject))
            });
            match deletes.ranges.last_mut() {
                _ if needed => {}
                // What lies between them is gone already.
                Some((_, last)) if follows => *last = seq.0,
                _ => deletes.ranges.push((seq.0, seq.0)),
            }
            follows = !needed;
            at = self.stream.contents().next_kept(seq.0 + 1);
        }
        (deletes, None)
    }

    /// Drops ranges by a record in frame `lsn`.
    fn drop_ranges(&mut self, ranges: &[(u64, u64)], lsn: Lsn) {
        for &(first, last) in ranges {
            let mut at = self.stream.contents().next_kept(first);
            while let Some(seq) = at.filter(|seq| seq.0 <= last) {
                self.stream.contents_mut().drop_message(seq.0, When::Committed(lsn));
                at = self.stream.contents().next_kept(seq.0 + 1);
            }
        }
    }
}

/// Sweeps in progress, in the order of their turns.
#[derive(Default)]
pub(super) struct Sweeps {
    /// Their streams. One that has left is passed over.
    queue: VecDeque<StreamId>,
    /// When the next part is due.
    at: Option<Timestamp>,
}

impl Sweeps {
    /// When the next part is due.
    pub(super) const fn next_at(&self) -> Option<Timestamp> {
        self.at
    }

    fn wake_at(&mut self, at: Timestamp) {
        let due = self.at.get_or_insert(at);
        *due = (*due).min(at);
    }

    /// Interest retention: begins to look for messages that no consumer needs any more, from the
    /// start.
    pub(super) fn start<S: Sink, L: LogAccess>(
        &mut self,
        id: StreamId,
        streams: &mut Streams<S>,
        log: &mut L,
    ) {
        let slot = streams.get_mut(id).expect("the stream that changed is there");
        if slot.stream.limits().retention != RetentionPolicy::Interest {
            return;
        }
        let last = slot.stream.contents().assigned_totals().last_seq;
        if NOTE_SWEEP.holds() {
            slot.stream.unwritten_mut().set_unswept(last);
        }
        if slot.sweep.replace(Sweep { next: 0, last }).is_none() {
            self.queue.push_back(id);
        }
        self.run_part(id, streams, log);
    }

    /// One part of a stream's sweep. It goes on later if it is not done.
    fn run_part<S: Sink, L: LogAccess>(
        &mut self,
        id: StreamId,
        streams: &mut Streams<S>,
        log: &mut L,
    ) {
        let goes_on = |slot: &StreamSlot<S>| !slot.deleting && !slot.migration.holds();
        let Some((slot, ledger)) = streams.entry(id).filter(|(slot, _)| goes_on(slot)) else {
            return;
        };
        let Some(sweep) = slot.sweep else { return };
        if slot.stream.limits().retention != RetentionPolicy::Interest {
            // The stream has begun to keep unneeded messages since the sweep began.
            slot.sweep = None;
            return;
        }
        let (deletes, next) = slot.sweep_part(sweep);
        let mut ranges = deletes.ranges.clone();
        match append_deletes(id, &mut ranges, log) {
            Err(_) => return self.wake_at(log.now().plus_nanos(SWEEP_RETRY_NS)),
            Ok(None) => {}
            Ok(Some(lsn)) => {
                slot.drop_ranges(&deletes.ranges, lsn);
                ledger.changed(slot, lsn);
            }
        }
        slot.sweep = next.map(|next| Sweep { next, ..sweep });
        match next {
            Some(_) => self.wake_at(log.now()),
            None => slot.stream.unwritten_mut().set_unswept(0),
        }
    }

    /// Recovery: goes on with the sweep that the last life did not finish, from the start. One that it
    /// did finish finds nothing.
    pub(super) fn recover<S: Sink>(&mut self, slot: &mut StreamSlot<S>, now: Timestamp) {
        let last = slot.stream.unwritten().unswept();
        if last == 0 || slot.stream.provenance().arriving || !FINISH_SWEEP.holds() {
            return;
        }
        slot.sweep = Some(Sweep { next: 0, last });
        self.queue.push_back(slot.stream.id());
        self.wake_at(now);
    }

    /// A stream is served here (again): a sweep that waited meanwhile goes on.
    pub(super) fn resume<S: Sink>(&mut self, slot: &StreamSlot<S>, now: Timestamp) {
        if slot.sweep.is_none() {
            return;
        }
        let id = slot.stream.id();
        if !self.queue.contains(&id) {
            self.queue.push_back(id);
        }
        self.at = Some(now);
    }

    /// Goes on with the sweep that has waited longest, if it is time.
    pub(super) fn run<S: Sink, L: LogAccess>(&mut self, streams: &mut Streams<S>, log: &mut L) {
        if self.at.is_none_or(|at| at > log.now()) {
            return;
        }
        self.at = None;
        if let Some(id) = self.queue.pop_front() {
            self.run_part(id, streams, log);
            let goes_on = |slot: &StreamSlot<S>| {
                !slot.deleting && !slot.migration.holds() && slot.sweep.is_some()
            };
            if streams.get(id).is_some_and(goes_on) {
                self.queue.push_back(id);
            } else if !self.queue.is_empty() {
                self.wake_at(log.now());
            }
        }
    }
}
