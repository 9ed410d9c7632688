//! The way of frames from the sequencer to the medium: how many may be on their way, when the next one
//! may follow, and in which order their outcomes count. What [`WriteOrder`] means is decided here and
//! nowhere else: their outcomes come in any order and count in the order in which they were begun.

use super::io::{Done, Job, Ticket, WRITER_JOBS};
use crate::env::WriteOrder;
use crate::options::{LogOptions, SyncPolicy};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Frames that may be on their way at a time where they settle in order, besides the bound of their
/// bytes: each costs a look for a later owner, and is of no use behind one that takes long.
const MAX_FRAMES_IN_FLIGHT: usize = 8;

/// An idle writer is given a frame of this size although more events wait.
const START_WRITE_BYTES: usize = 256 * 1024;

/// Frames handed to the writer that have not committed, oldest first.
pub(super) struct Pipeline {
    order: WriteOrder,
    /// Several frames are on their way at a time: their order allows it, and so do the options.
    overlaps: bool,
    ahead_bytes: usize,
    in_flight_bytes: usize,
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

impl Pipeline {
    /// An empty one.
    pub(super) fn new(order: WriteOrder, options: &LogOptions) -> Self {
        let allowed = options.sync == SyncPolicy::Always && options.ahead_bytes < usize::MAX;
        Self {
            order,
            overlaps: order == WriteOrder::SettledInOrder && allowed,
            ahead_bytes: options.ahead_bytes,
            in_flight_bytes: options.in_flight_bytes,
            jobs: VecDeque::new(),
            begun: 0,
            bytes: 0,
        }
    }

    /// True if the writer's thread begins a job while what the ones before it wrote becomes durable.
    pub(super) fn runs_ahead(&self) -> bool {
        self.order == WriteOrder::SettledInOrder
    }

    /// True if a write takes so little time that the sequencer may do it itself: where several are on
    /// their way it takes milliseconds, and readers are not to wait for it.
    pub(super) fn is_quick(&self) -> bool {
        self.order == WriteOrder::OneAtATime
    }

    /// True if the writer takes another frame. `full` is the size of the oldest one that waits because
    /// it is full, `growing` that of the one under construction.
    ///
    /// An idle writer does. A busy one that writes them one at a time is given a full frame already: it
    /// then begins with it the moment it has made the one before durable, without a word with the
    /// sequencer; frames that are not full go on growing, since fewer frames are less work. Where
    /// several are on their way, nothing is committed before what precedes it, and no frame vouches
    /// for one that is not known to be durable.
    pub(super) fn takes(
        &self,
        full: Option<usize>,
        growing: usize,
        sync_is_due: impl FnOnce() -> bool,
    ) -> bool {
        match self.order {
            _ if self.jobs.is_empty() => true,
            WriteOrder::OneAtATime => {
                self.jobs.len() < WRITER_JOBS && full.is_some() && !sync_is_due()
            }
            WriteOrder::SettledInOrder => {
                self.overlaps
                    && self.jobs.len() < MAX_FRAMES_IN_FLIGHT
                    && self.bytes + full.unwrap_or(growing) <= self.in_flight_bytes
            }
        }
    }

    /// The writer gets a frame of this size although more events wait.
    pub(super) fn start_write_bytes(&self) -> usize {
        match self.jobs.len() {
            0 => START_WRITE_BYTES,
            frames => self.ahead_bytes.saturating_mul(frames),
        }
    }

    /// Bytes of each frame that waits at the writer for the one before it; where several are on their
    /// way none does.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        let at_writer = if self.overlaps { usize::MAX } else { 1 };
        self.jobs.iter().skip(at_writer).map(|job| job.bytes)
    }

    /// True if nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
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

    /// A disk has one frame under way and one that waits there; a bucket as many as its bounds allow.
    #[test]
    fn the_order_decides_when_a_frame_follows() {
        let options = LogOptions { in_flight_bytes: 100, ahead_bytes: 10, ..LogOptions::default() };
        let taken = |order, full, sync_is_due: bool| {
            let mut pipeline = Pipeline::new(order, &options);
            let mut taken = 0;
            while taken < 20 && pipeline.takes(full, 30, || sync_is_due) {
                pipeline.begin(&Job::Sync, Instant::now());
                pipeline.bytes += 30;
                taken += 1;
            }
            taken
        };
        assert_eq!(taken(WriteOrder::OneAtATime, Some(30), false), WRITER_JOBS);
        assert_eq!(taken(WriteOrder::OneAtATime, None, false), 1);
        assert_eq!(taken(WriteOrder::OneAtATime, Some(30), true), 1);
        assert_eq!(taken(WriteOrder::SettledInOrder, Some(30), false), 3);
        assert_eq!(taken(WriteOrder::SettledInOrder, None, true), 3);
        let lazy = LogOptions { sync: SyncPolicy::Never, ..options.clone() };
        let mut pipeline = Pipeline::new(WriteOrder::SettledInOrder, &lazy);
        pipeline.begin(&Job::Sync, Instant::now());
        assert!(!pipeline.takes(Some(1), 1, || false), "nothing is settled without syncs");
    }

    #[test]
    fn outcomes_count_in_the_order_of_their_jobs() {
        let mut flight = Pipeline::new(WriteOrder::SettledInOrder, &LogOptions::default());
        let now = Instant::now();
        let [first, second] = [0, 1].map(|_| flight.begin(&Job::Sync, now));
        flight.end(second, Ok(Done::Synced));
        assert!(flight.next().is_none() && flight.jobs.len() == 2);
        flight.end(first, Err(io::Error::other("lost")));
        assert!(flight.next().is_some_and(|(done, _)| done.is_err()));
        assert!(flight.next().is_some_and(|(done, _)| done.is_ok()));
        assert!(flight.next().is_none() && flight.is_empty());
    }
}
