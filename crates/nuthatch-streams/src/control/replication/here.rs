//! Reading an origin of this server: its log answers once there is something.

use super::{Action, Happened, Now, Reader, Replicator, Side, State, outcome, unexpected};
use crate::op::{Op, OpOutcome, RangeRequest};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::Time;

/// An origin of this server that is being read.
#[derive(Debug)]
pub(super) struct Here {
    origin: StreamId,
    /// The next sequence of the origin that is wanted.
    next: u64,
    /// Nothing older, in the first request.
    start_time: Option<Time>,
    /// Messages behind what was read last.
    pub(super) lag: u64,
}

impl Here {
    pub(super) const fn new(origin: StreamId) -> Self {
        Self { origin, next: 1, start_time: None, lag: 0 }
    }
}

impl Replicator {
    /// Reads from `next` on; where nothing was taken over yet, from where the configuration says.
    pub(super) fn read_from(&mut self, mut here: Here, next: u64, now: Now) -> Action {
        let source = &self.plan.source;
        let is_fresh = next == 1;
        here.next = if is_fresh { source.opt_start_seq.max(1) } else { next };
        here.start_time = source.opt_start_time.filter(|_| is_fresh);
        self.note(0, true, now);
        self.read_more(here)
    }

    pub(super) fn read_more(&mut self, mut here: Here) -> Action {
        let filters = self.rewrite.filters();
        let start_time = here.start_time.take();
        let request = RangeRequest { from: here.next, start_time, filters, wait: true };
        let op = Op::ReadRange { id: here.origin, request };
        self.state = State::Read(here);
        Action::Run { side: Side::Origin, op }
    }

    pub(super) fn read(&mut self, mut here: Here, happened: Happened, now: Now) -> Action {
        let range = match outcome(happened) {
            Ok(OpOutcome::Range(range)) => range,
            Ok(other) => unexpected(&other),
            Err(error) => return self.failed(error),
        };
        here.next = range.next;
        here.lag = (range.last_seq + 1).saturating_sub(range.next);
        self.store(range, Reader::Here(here), now)
    }
}
