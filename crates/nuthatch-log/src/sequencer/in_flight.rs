//! Jobs that the writer has and has not answered, oldest first. Their outcomes come in any order and
//! count in the order in which they were begun.

use super::io::{Done, Job, Ticket};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Frames that may be on their way to a bucket at a time, besides the bound of their bytes: each
/// costs a look for a later owner, and is of no use behind one that takes long.
pub(super) const MAX_FRAMES_IN_FLIGHT: usize = 8;

/// Frames handed to the writer that have not committed.
#[derive(Default)]
pub(super) struct InFlightWrites {
    jobs: VecDeque<InFlight>,
    begun: u64,
    bytes: usize,
}

struct InFlight {
    ticket: Ticket,
    started: Instant,
    bytes: usize,
    done: Option<io::Result<Done>>,
}

impl InFlightWrites {
    /// True if nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many jobs are under way.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Bytes of the frames under way.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of each of them, oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = usize> {
        self.jobs.iter().map(|job| job.bytes)
    }

    /// Notes that a job is handed over.
    pub(super) fn begin(&mut self, job: &Job, started: Instant) -> Ticket {
        let bytes = job.bytes();
        self.begun += 1;
        self.bytes += bytes;
        let ticket = Ticket(self.begun);
        self.jobs.push_back(InFlight { ticket, started, bytes, done: None });
        ticket
    }

    /// Notes how a job ended.
    pub(super) fn end(&mut self, ticket: Ticket, done: io::Result<Done>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.ticket == ticket) {
            job.done = Some(done);
        }
    }

    /// The outcome of the oldest job, if it has ended, and when it was begun.
    pub(super) fn next(&mut self) -> Option<(io::Result<Done>, Instant)> {
        let done = self.jobs.front_mut()?.done.take()?;
        let job = self.jobs.pop_front()?;
        self.bytes -= job.bytes;
        Some((done, job.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_count_in_the_order_of_their_jobs() {
        let mut flight = InFlightWrites::default();
        let now = Instant::now();
        let [first, second] = [0, 1].map(|_| flight.begin(&Job::Sync, now));
        flight.end(second, Ok(Done::Synced));
        assert!(flight.next().is_none() && flight.len() == 2);
        flight.end(first, Err(io::Error::other("lost")));
        assert!(flight.next().is_some_and(|(done, _)| done.is_err()));
        assert!(flight.next().is_some_and(|(done, _)| done.is_ok()));
        assert!(flight.next().is_none() && flight.is_empty());
    }
}
