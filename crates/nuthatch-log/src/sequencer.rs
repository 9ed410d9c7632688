//! The sequencer: takes events, lets the machine append records, writes frames, announces what is
//! committed. One turn at a time, so that a simulation can drive it step by step.

mod compact;
pub mod inbox;
mod inner;
pub mod io;
mod maintenance;
mod pipeline;
mod read_backoff;
mod reads;
mod segments;
mod steps;
mod thread;
mod worker;

pub use inbox::{CloseError, LogHandle, SendError};
pub use inner::{LogInner, Parts};
pub use reads::ready;
pub use segments::{SegmentInfo, Segments};

use crate::env::{Standing, Tenure};
use crate::frame::flags;
use crate::machine::{LogAccess, Machine};
use crate::options::{LogOptions, SyncPolicy};
use crate::segment::SegmentWriter;
use crate::types::{Epoch, Lsn, Timestamp};
use inbox::{Charge, Charges, Inbox};
use io::{Done, IoThread, Job};
use maintenance::Maintenance;
use parking_lot::Mutex;
use pipeline::Pipeline;
use std::sync::Arc;
use std::time::Instant;
use worker::Worker;

/// How soon requests are looked at again that wait because somebody else may own the log.
const STANDING_RETRY_NANOS: i64 = 2_000_000;

/// Why a log has stopped whose owner was replaced: another process may own it.
pub const LOST: &str = "another process may own the log now";

/// Work that recovery leaves to maintenance.
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    /// Epoch of the newest frame.
    pub epoch: Epoch,
    /// Position of the checkpoint that was used.
    pub checkpoint: Lsn,
    /// Records that had to be read because no checkpoint covers them.
    pub replayed: u64,
}

/// Result of a turn, and when the next one is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Something was done, or is left to do at once: call again.
    pub progress: bool,
    /// Without an event, nothing happens before this.
    pub wake_at: Option<Timestamp>,
}

/// A log with the machine that runs on it.
pub struct LogCore<M: Machine> {
    machine: M,
    log: LogInner,
    inbox: Arc<Inbox<M::Event>>,
    batch: Vec<(M::Event, Charge)>,
    spent: Charges,
    writer: Arc<Mutex<SegmentWriter>>,
    thread: Option<IoThread>,
    in_flight: Pipeline,
    timers: Timers,
    worker: Worker,
    maintenance: Maintenance,
    closing: bool,
    announced_failure: bool,
    /// Held as long as this lives.
    tenure: Box<dyn Tenure>,
}

/// Timers.
#[derive(Default)]
struct Timers {
    /// The newest commit, while its frame still lacks a later frame that vouches for it.
    unmarked: Option<Timestamp>,
    /// The first frame written since the last sync.
    unsynced: Option<Timestamp>,
}

impl<M: Machine> LogCore<M> {
    pub(crate) fn new(
        machine: M,
        log: LogInner,
        writer: SegmentWriter,
        tenure: Box<dyn Tenure>,
        recovered: Recovered,
    ) -> Self {
        let maintenance = Maintenance::new(&log, recovered);
        let in_flight = Pipeline::new(log.medium.write_order, &log.options);
        let inbox = Inbox::new(log.options.queue_bytes, Arc::clone(&log.stats));
        let mut core = Self {
            machine,
            log,
            inbox: Arc::new(inbox),
            batch: Vec::new(),
            spent: Charges::default(),
            writer: Arc::new(Mutex::new(writer)),
            thread: None,
            in_flight,
            timers: Timers::default(),
            worker: Worker::inline(),
            maintenance,
            closing: false,
            announced_failure: false,
            tenure,
        };
        core.machine.recovered(&mut core.log);
        core
    }

    /// A sender's end.
    #[must_use]
    pub fn handle(&self) -> LogHandle<M::Event> {
        LogHandle(Arc::clone(&self.inbox))
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to look into it from a test.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Identity of the log: the number in its catalog.
    #[must_use]
    pub fn log_id(&self) -> u64 {
        self.log.store.catalog().log_id
    }

    /// Options in force.
    #[must_use]
    pub const fn options(&self) -> &LogOptions {
        &self.log.options
    }

    /// Machine and log together, as the machine's own calls see them.
    pub fn with<R>(&mut self, call: impl FnOnce(&mut M, &mut LogInner) -> R) -> R {
        call(&mut self.machine, &mut self.log)
    }

    /// Does what there is to do without waiting, except for writes it makes itself.
    pub fn turn(&mut self) -> Turn {
        self.log.tick_clock();
        let mut progress = self.take_done();
        if progress {
            // The disk works on while acknowledgements go out and events are handled.
            self.write_frames();
            self.machine.turn_end();
        }
        progress |= self.take_loads();
        progress |= self.take_events();
        progress |= self.tick();
        progress |= self.write_frames();
        progress |= self.maintain();
        self.machine.turn_end();
        self.announce_failure();
        Turn { progress, wake_at: self.wake_at() }
    }

    fn take_loads(&mut self) -> bool {
        if !self.log.loader.is_ready() {
            return false;
        }
        let all = self.log.loader.take();
        for loaded in all {
            for stream in self.log.note_loaded(loaded) {
                self.machine.loaded(stream, &mut self.log);
            }
        }
        true
    }

    /// Lets the machine handle what waits, until frames back up or the writer is done.
    fn take_events(&mut self) -> bool {
        if self.maintenance.wants_quiet() && self.log.failed.is_none() {
            return false;
        }
        if self.batch.is_empty() {
            self.closing |= self.inbox.take(&mut self.batch);
        }
        let events = self.batch.len();
        if events == 0 {
            return false;
        }
        match self.tenure.standing() {
            Standing::Current => {}
            Standing::Unknown => return false,
            Standing::Lost => return self.drop_events(),
        }
        let mut batch = std::mem::take(&mut self.batch).into_iter();
        while !self.must_write() {
            let Some((event, charge)) = batch.next() else { break };
            self.machine.step(event, &mut self.log);
            self.spent += charge;
        }
        self.batch = batch.collect();
        self.inbox.release(std::mem::take(&mut self.spent));
        self.batch.len() < events
    }

    /// Another process owns the log: what it has acknowledged is not known here, so nothing is answered. Who
    /// waits hears that there is no answer.
    #[cold]
    fn drop_events(&mut self) -> bool {
        self.fail(LOST);
        self.batch.drain(..).for_each(|(_, charge)| self.spent += charge);
        self.inbox.release(std::mem::take(&mut self.spent));
        true
    }

    /// True if the writer should be looked after before more events are handled: it is done, or
    /// idle although there is plenty to write, or far behind. A log that has failed writes nothing
    /// more, and who sends something is to hear of it.
    fn must_write(&self) -> bool {
        if self.log.failed.is_some() {
            return false;
        }
        let Some(thread) = &self.thread else { return self.is_backed_up() };
        let large = self.log.frame.len() >= self.in_flight.start_write_bytes();
        let wanted = (large || !self.log.pending.is_empty()) && self.may_write();
        wanted || self.is_backed_up() || thread.is_ready()
    }

    /// True if frames that wait hold so much that no more events should be taken. On a disk all but the
    /// first of those that the writer has wait there.
    fn is_backed_up(&self) -> bool {
        self.log.is_backed_up(self.in_flight.waiting())
    }

    fn tick(&mut self) -> bool {
        if self.machine.next_deadline().is_none_or(|due| due > self.log.now) {
            return false;
        }
        self.machine.tick(&mut self.log);
        true
    }

    /// True if the frame under construction must be written now.
    fn frame_is_due(&self) -> bool {
        let frame = &self.log.frame;
        // No event is handled while the writer could have a frame of this size.
        let large = frame.len() >= self.in_flight.start_write_bytes();
        if !self.in_flight.is_empty() {
            return large;
        }
        let late = |since: Timestamp| since.plus_nanos(self.lazy_nanos()) <= self.log.now;
        let asked = frame.awaited || self.closing || self.maintenance.wants_quiet();
        !frame.is_empty() && (asked || large || frame.lazy_since.is_some_and(late))
    }

    fn lazy_nanos(&self) -> i64 {
        millis(self.log.options.lazy_flush_ms)
    }

    /// True if the writer takes another frame.
    fn may_write(&self) -> bool {
        let full = self.log.pending.front().map(|(frame, _)| frame.len);
        self.in_flight.takes(full, self.log.frame.len(), || self.sync_is_due())
    }

    fn write_frames(&mut self) -> bool {
        let mut progress = false;
        while self.log.failed.is_none() && self.may_write() {
            let Some(job) = self.next_job() else { break };
            progress = true;
            self.dispatch(job);
        }
        progress
    }

    fn next_job(&mut self) -> Option<Job> {
        // Before frames: under load there is always another one to write.
        if self.in_flight.is_empty() && self.sync_is_due() {
            return Some(Job::Sync);
        }
        if !self.log.pending.is_empty() {
            // Frames that were closed because they were full: what the machine has held back goes
            // into the one under construction, which is next.
            self.machine.before_seal(&mut self.log);
        } else if self.frame_is_due() {
            self.machine.before_seal(&mut self.log);
            self.log.seal_current(0);
        }
        if self.log.pending.is_empty() && self.in_flight.is_empty() && self.commit_marker_is_due() {
            if self.log.make_room(0, true).is_ok() {
                self.log.seal_current(flags::COMMIT_MARKER);
            } else {
                self.timers.unmarked = Some(self.log.now);
            }
        }
        let (frame, meta) = self.log.pending.pop_front()?;
        let sync = self.log.options.sync == SyncPolicy::Always;
        Some(Job::Write { frame, meta, durable: self.log.durable, sync })
    }

    /// Writes inline if no event waits for the sequencer, else on the writer's thread.
    fn dispatch(&mut self, job: Job) {
        let idle =
            self.in_flight.is_quick() && self.log.pending.is_empty() && self.batch.is_empty();
        let started = Instant::now();
        match &self.thread {
            Some(thread)
                if thread.is_by_hand()
                    || !(idle && self.in_flight.is_empty() && self.inbox.is_empty()) =>
            {
                thread.submit(self.in_flight.begin(&job, started), job);
            }
            _ => {
                self.machine.turn_end();
                let done = io::run(&mut self.writer.lock(), job);
                self.handle_done(done, started);
                self.machine.turn_end();
                self.writer.lock().list_last();
            }
        }
    }

    fn take_done(&mut self) -> bool {
        let Some(thread) = &self.thread else { return false };
        for (ticket, done) in thread.take() {
            self.in_flight.end(ticket, done);
        }
        let mut progress = false;
        while let Some((done, started)) = self.in_flight.next() {
            progress = true;
            self.handle_done(done, started);
        }
        progress
    }

    fn handle_done(&mut self, done: std::io::Result<Done>, started: Instant) {
        match done {
            // What lies behind a frame that may be missing counts for nothing.
            Ok(Done::Written { meta, .. })
                if self.log.failed.is_some() && meta.lsn != self.log.committed.next() => {}
            Ok(Done::Written { meta, place, synced }) => {
                let (lsn, commit_marker) = (meta.lsn, meta.flags & flags::COMMIT_MARKER != 0);
                let awaited_since = meta.awaited_since;
                self.log.stats.commit_latency.record(started.elapsed());
                self.log.note_committed(meta, place);
                self.note_written(lsn, synced, commit_marker);
                self.note_acknowledged(awaited_since);
                self.machine.committed(lsn, &mut self.log);
            }
            Ok(Done::Synced) => {
                let committed = self.log.committed;
                self.log.note_durable(committed);
                self.timers.unsynced = None;
            }
            Err(error) => self.fail(&format!("cannot write to the log: {error}")),
        }
    }

    fn note_written(&mut self, lsn: Lsn, synced: bool, commit_marker: bool) {
        self.log.tick_clock();
        let now = self.log.now;
        if synced {
            self.log.note_durable(lsn);
        } else {
            self.timers.unsynced.get_or_insert(now);
        }
        self.timers.unmarked = (!commit_marker).then_some(now);
    }

    /// Counts how long those waited who wait for a frame; the clock was read just before.
    fn note_acknowledged(&self, awaited_since: Option<Timestamp>) {
        let Some(since) = awaited_since else { return };
        let nanos = u64::try_from(self.log.now.0.saturating_sub(since.0)).unwrap_or(0);
        self.log.stats.ack_latency.record(std::time::Duration::from_nanos(nanos));
    }

    fn sync_due_at(&self) -> Option<Timestamp> {
        let SyncPolicy::Every(interval) = self.log.options.sync else { return None };
        let nanos = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
        Some(self.timers.unsynced?.plus_nanos(nanos))
    }

    fn sync_is_due(&self) -> bool {
        let asked = self.maintenance.wants_sync() || self.closing;
        let asked = asked && self.commits_early() && self.log.durable < self.log.committed;
        asked && !self.log.medium.in_memory
            || self.sync_due_at().is_some_and(|due| due <= self.log.now)
    }

    /// When an idle log covers its last frame. Only frames known to be durable can be vouched for.
    fn commit_marker_due_at(&self) -> Option<Timestamp> {
        let vouches = self.log.options.sync != SyncPolicy::Never
            && self.log.durable == self.log.committed
            && self.log.frame.is_empty();
        let since = self.timers.unmarked.filter(|_| vouches)?;
        Some(since.plus_nanos(millis(self.log.options.commit_marker_ms)))
    }

    fn commit_marker_is_due(&self) -> bool {
        self.commit_marker_due_at().is_some_and(|due| due <= self.log.now)
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let frame = self.log.frame.lazy_since.filter(|_| !self.log.frame.is_empty());
        let lazy = frame.map(|since| since.plus_nanos(self.lazy_nanos()));
        let writer = if !self.in_flight.is_empty() || self.log.failed.is_some() {
            None
        } else {
            [lazy, self.sync_due_at(), self.commit_marker_due_at()].into_iter().flatten().min()
        };
        // Requests that wait for the owner's standing are looked at again soon.
        let asks_again = || self.log.now.plus_nanos(STANDING_RETRY_NANOS);
        let standing = (!self.batch.is_empty() && self.tenure.standing() == Standing::Unknown)
            .then(asks_again);
        [writer, standing, self.maintenance_due_at(), self.machine.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn fail(&mut self, reason: &str) {
        self.log.failed.get_or_insert_with(|| reason.to_owned());
        self.log.pending.clear();
        self.announce_failure();
    }

    fn announce_failure(&mut self) {
        let Some(reason) = self.log.failed.as_deref() else { return };
        if !std::mem::replace(&mut self.announced_failure, true) {
            crate::stats::set(&self.log.stats.failed, 1);
            self.log.options.report.say(&format!("the log has stopped: {reason}"));
            self.machine.failed(reason);
            self.machine.turn_end();
        }
    }

    /// Ends the log cleanly: everything appended is made durable and the chain marked as closed.
    ///
    /// # Errors
    /// [`CloseError`] if the log had failed or fails now; it then recovers at the next start.
    pub fn close(&mut self) -> Result<(), CloseError> {
        self.closing = true;
        while self.turn().progress || !self.in_flight.is_empty() {
            if self.write_one() {
                continue;
            }
            if !self.in_flight.is_empty() && !self.must_write() {
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
        if let Some(reason) = self.log.failed.clone() {
            return Err(CloseError { reason });
        }
        // A compaction under way is waited for: it still writes to the directory.
        self.hurry_up();
        self.work_one();
        self.worker = Worker::inline();
        self.final_checkpoint();
        let sealed = self.writer.lock().seal(true);
        self.log.store.drop_spare();
        sealed.map_err(|error| CloseError { reason: error.to_string() })?;
        self.tenure.leave();
        Ok(())
    }

    /// True if everything sent has been handled, written and announced.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batch.is_empty()
            && self.inbox.queued_bytes() == 0
            && self.in_flight.is_empty()
            && self.log.pending.is_empty()
            && (self.log.frame.is_empty() || !self.log.frame.awaited)
    }

    /// Newest committed position.
    #[must_use]
    pub fn committed(&self) -> Lsn {
        self.log.committed()
    }
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000)
}
