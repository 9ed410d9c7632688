//! The copy: read a part, store it, go on behind it.

use super::{Action, Happened, Hold, Mover, Now, Phase, Read, Side, State, Stored};
use super::{GivenUp, outcome, took, unexpected};
use crate::op::{Op, OpOutcome, Range, RangeRequest, Replica};
use nuthatch_protocol::jserror::JsError;
use std::time::Duration;

impl Mover {
    /// Asks for the last sequence that is durable in the copy: from there on it is copied.
    pub(super) fn measure(&mut self) -> Action {
        self.phase = Phase::Free;
        self.state = State::Measure;
        let op = Op::StreamInfo {
            id: self.copy_id(),
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        self.run(Side::Copy, op, None)
    }

    pub(super) fn measured(&mut self, happened: Happened, now: Now) -> Action {
        match outcome(happened) {
            Ok(OpOutcome::Stream { info, .. }) => self.copy_from(info.state.last_seq + 1, now),
            Ok(other) => unexpected(&other),
            Err(error) => self.failed(error, now),
        }
    }

    pub(super) fn copy_from(&mut self, next: u64, now: Now) -> Action {
        if self.cancelled {
            return self.drop_copy(GivenUp::Cancelled);
        }
        self.read_from(next, now, None)
    }

    pub(super) fn read_from(&mut self, from: u64, began: Now, hold: Option<Hold>) -> Action {
        let range = Range { next: from, ..Range::default() };
        self.read_more(Read { from, range, bytes: 0, began, hold })
    }

    fn read_more(&mut self, read: Read) -> Action {
        let request = RangeRequest { from: read.range.next, ..RangeRequest::default() };
        let op = Op::ReadRange { id: self.source_id(), request };
        let until = read.hold.as_ref().map(|hold| hold.until);
        self.state = State::Read(read);
        self.run(Side::Source, op, until)
    }

    pub(super) fn read(&mut self, mut read: Read, happened: Happened, now: Now) -> Action {
        if matches!(happened, Happened::Late) {
            return self.stay(None);
        }
        let more = match outcome(happened) {
            Ok(OpOutcome::Range(more)) => more,
            Ok(other) => unexpected(&other),
            Err(error) => return self.not_copied(read.hold.is_some(), error, now),
        };
        let is_further = more.next > read.range.next;
        read.range.last_seq = more.last_seq;
        if is_further {
            read.bytes += weight(&more.messages);
            read.range.messages.extend(more.messages);
            read.range.next = more.next;
        }
        let is_full = read.bytes >= self.pace.store_bytes_max.min(self.pace.rate_bytes)
            || read.range.messages.len() >= self.pace.store_messages_max;
        if is_further && !is_full && read.range.next <= read.range.last_seq {
            return self.read_more(read);
        }
        self.store(read, now)
    }

    /// Stores what was read in the copy. Nothing else is on its way: behind a store that was refused,
    /// a later one would be taken all the same, and leave a hole that no retry goes back to.
    fn store(&mut self, read: Read, now: Now) -> Action {
        let Read { from, mut range, mut bytes, began, hold } = read;
        self.progress.last_seq = range.last_seq;
        if let Some(beyond) = range.messages.get(self.pace.store_messages_max) {
            range.next = beyond.seq;
            range.messages.truncate(self.pace.store_messages_max);
            bytes = weight(&range.messages);
        }
        let until = hold.as_ref().map(|hold| hold.until);
        let stored = Stored { next: range.next, last_seq: range.last_seq, bytes, began, hold };
        if range.next <= from {
            return self.copied(stored, now);
        }
        let (copies, gap_to) = (range.messages, range.next - 1);
        self.state = State::Store(stored);
        self.run(Side::Copy, Op::Mirror { id: self.copy_id(), copies, gap_to }, until)
    }

    pub(super) fn stored(&mut self, stored: Stored, happened: Happened, now: Now) -> Action {
        if matches!(happened, Happened::Late) {
            return self.stay(None);
        }
        if let Err(error) = outcome(happened) {
            return self.not_copied(stored.hold.is_some(), error, now);
        }
        self.progress.copied_seq = stored.next - 1;
        self.copied(stored, now)
    }

    fn not_copied(&mut self, is_held: bool, error: JsError, now: Now) -> Action {
        if is_held { self.stay(Some(error)) } else { self.failed(error, now) }
    }

    /// A part is in the copy.
    fn copied(&mut self, stored: Stored, now: Now) -> Action {
        let Stored { next, last_seq, bytes, began, hold } = stored;
        if let Some(hold) = hold {
            return self.rest_copied(next, hold, now);
        }
        if last_seq < next.saturating_add(self.pace.switch_lag) {
            return self.probe(next, now);
        }
        let due = Duration::from_secs_f64(bytes as f64 / self.pace.rate_bytes as f64);
        match due.checked_sub(took(began, now)) {
            Some(pause) if !pause.is_zero() => {
                self.state = State::Pace { next };
                Action::Rest { until: now + pause }
            }
            _ => self.copy_from(next, now),
        }
    }
}

fn weight(messages: &[Replica]) -> u64 {
    messages.iter().map(|message| message.publish().weight() as u64).sum()
}
