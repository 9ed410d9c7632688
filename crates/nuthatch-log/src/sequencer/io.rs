//! The writer: frames are written on the sequencer's own thread if nothing else waits, otherwise on
//! a thread beside it, so that the next frame is built meanwhile.
//!
//! The thread may have the next job already while it is at one. On a disk it begins with it when that
//! one is durable, and not at all once one has failed: a frame is written only behind a durable one.
//! Several frames are in flight to a bucket; they commit in order.

use crate::cache::{LoadFailure, LoadRequest, Loaded};
use crate::frame::{FrameMeta, SealedFrame};
use crate::rules::NOTHING_BEHIND_A_FAILURE;
use crate::segment::{SegmentWriter, Written};
use crate::types::Lsn;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Jobs that the writer's thread may have: one under way and the next, so that the medium does not
/// wait for two threads to hear of each other.
pub const WRITER_JOBS: usize = 2;

/// Work for the writer.
pub enum Job {
    /// Write a frame, and make it durable if `sync`.
    Write {
        /// The frame.
        frame: SealedFrame,
        /// Its description.
        meta: FrameMeta,
        /// Newest durable position that the sequencer knows of, for the frame's header.
        durable: Lsn,
        /// Whether to sync.
        sync: bool,
    },
    /// Make everything written durable.
    Sync,
}

impl Job {
    /// Bytes of the frame that it holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Write { frame, .. } => frame.len,
            Self::Sync => 0,
        }
    }
}

/// A finished job.
pub enum Done {
    /// A frame was written.
    Written {
        /// The frame.
        meta: FrameMeta,
        /// Where it was written.
        place: Written,
        /// True if it is durable.
        synced: bool,
    },
    /// Everything written is durable.
    Synced,
}

/// Runs a job on the calling thread.
pub fn run(writer: &mut SegmentWriter, job: Job) -> io::Result<Done> {
    match job {
        Job::Write { frame, meta, durable, sync } => {
            let idle = frame.flags & crate::frame::flags::COMMIT_MARKER != 0;
            let place = writer.write(frame, durable)?;
            if sync {
                writer.sync()?;
            }
            if idle {
                writer.idle()?;
            }
            Ok(Done::Written { meta, place, synced: sync })
        }
        Job::Sync => writer.sync().map(|()| Done::Synced),
    }
}

/// Writes a frame and begins to make it durable, which goes on beside the frames that follow;
/// `finish` hears of the end, perhaps before this returns.
fn run_ahead(
    writer: &mut SegmentWriter,
    frame: SealedFrame,
    meta: FrameMeta,
    durable: Lsn,
    finish: impl FnOnce(io::Result<Done>) + Send + 'static,
) {
    match writer.write(frame, durable) {
        Ok(place) => writer.sync_later(Box::new(move |synced| {
            finish(synced.map(|()| Done::Written { meta, place, synced: true }));
        })),
        Err(error) => finish(Err(error)),
    }
}

/// Wakes the sequencer.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Identifies a job to the receiver of its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

/// The writer's thread. Jobs are begun in the order in which they come. Writes to a bucket may end
/// in any order.
pub struct IoThread {
    shared: Arc<IoShared>,
    thread: Option<JoinHandle<()>>,
    /// Without a thread: whose jobs wait for [`IoThread::run_one`].
    by_hand: Option<Arc<Mutex<SegmentWriter>>>,
}

struct IoShared {
    queue: Mutex<IoQueue>,
    filled: Condvar,
    ready: AtomicBool,
    wake: Wake,
    /// Writes go on while others follow.
    ahead: bool,
    /// A job failed: nothing is written behind it.
    failed: AtomicBool,
}

/// Jobs and results. The submitter bounds how many there are.
#[derive(Default)]
struct IoQueue {
    jobs: VecDeque<(Ticket, Job)>,
    done: Vec<(Ticket, io::Result<Done>)>,
    stop: bool,
}

impl IoThread {
    /// Starts the thread; `wake` is called after each job. With `ahead` a write that is to be synced
    /// does not hold up the jobs behind it.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(
        name: &str,
        writer: Arc<Mutex<SegmentWriter>>,
        ahead: bool,
        wake: Wake,
    ) -> io::Result<Self> {
        let shared = Arc::new(IoShared::new(ahead, wake));
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-write"))
            .spawn(move || inner.serve(&writer))?;
        Ok(Self { shared, thread: Some(thread), by_hand: None })
    }

    /// A writer without a thread, for simulations: its jobs wait for [`IoThread::run_one`].
    pub fn by_hand(writer: Arc<Mutex<SegmentWriter>>, ahead: bool) -> Self {
        let shared = Arc::new(IoShared::new(ahead, Arc::new(|| {})));
        Self { shared, thread: None, by_hand: Some(writer) }
    }

    /// True if it has no thread: a job that it is given may wait as long as one that is under way.
    #[must_use]
    pub const fn is_by_hand(&self) -> bool {
        self.by_hand.is_some()
    }

    /// True if a job waits for [`IoThread::run_one`].
    #[must_use]
    pub fn waits(&self) -> bool {
        self.by_hand.is_some() && !self.shared.queue.lock().jobs.is_empty()
    }

    /// Does the oldest job that waits, if one does.
    pub fn run_one(&self) -> bool {
        let Some(writer) = &self.by_hand else { return false };
        let next = self.shared.queue.lock().jobs.pop_front();
        let Some((ticket, job)) = next else { return false };
        self.shared.run_job(writer, ticket, job);
        true
    }

    /// Hands over a job. There are at most [`WRITER_JOBS`], or as many as the sequencer lets be on
    /// their way to a bucket.
    pub fn submit(&self, ticket: Ticket, job: Job) {
        self.shared.queue.lock().jobs.push_back((ticket, job));
        self.shared.filled.notify_one();
    }

    /// True if an outcome waits. Costs one load.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// The outcomes of the jobs that have ended.
    #[must_use]
    pub fn take(&self) -> Vec<(Ticket, io::Result<Done>)> {
        if !self.is_ready() {
            return Vec::new();
        }
        self.shared.ready.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.shared.queue.lock().done)
    }
}

impl IoShared {
    fn new(ahead: bool, wake: Wake) -> Self {
        let (queue, filled) = (Mutex::default(), Condvar::new());
        let (ready, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { queue, filled, ready, wake, ahead, failed }
    }

    fn serve(self: &Arc<Self>, writer: &Mutex<SegmentWriter>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.jobs.is_empty() && !queue.stop {
                self.filled.wait(&mut queue);
            }
            // What waits at the end is not begun any more.
            let next = queue.jobs.pop_front().filter(|_| !queue.stop);
            let Some((ticket, job)) = next else { return };
            drop(queue);
            self.run_job(writer, ticket, job);
        }
    }

    fn run_job(self: &Arc<Self>, writer: &Mutex<SegmentWriter>, ticket: Ticket, job: Job) {
        let outcome = Outcome { ticket, shared: Arc::clone(self), told: false };
        // If it panics, the outcome is told when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| self.begin(writer, job, outcome)));
        // If this panics it does so again with the next job, and stops the log.
        let _ = catch_unwind(AssertUnwindSafe(|| writer.lock().list_last()));
    }

    fn begin(&self, writer: &Mutex<SegmentWriter>, job: Job, outcome: Outcome) {
        match job {
            _ if self.failed.load(Ordering::Acquire) && NOTHING_BEHIND_A_FAILURE.holds() => {
                outcome.tell(Err(io::Error::other("what comes before was not written")));
            }
            Job::Write { frame, meta, durable, sync: true } if self.ahead => {
                let finish = move |done| outcome.tell(done);
                run_ahead(&mut writer.lock(), frame, meta, durable, finish);
            }
            job => outcome.tell(run(&mut writer.lock(), job)),
        }
    }
}

/// Reports the end of a job, however it ends.
struct Outcome {
    ticket: Ticket,
    shared: Arc<IoShared>,
    told: bool,
}

impl Outcome {
    fn tell(mut self, done: io::Result<Done>) {
        self.tell_once(done);
    }

    fn tell_once(&mut self, done: io::Result<Done>) {
        self.told = true;
        self.shared.failed.fetch_or(done.is_err(), Ordering::AcqRel);
        self.shared.queue.lock().done.push((self.ticket, done));
        self.shared.ready.store(true, Ordering::Release);
        (self.shared.wake)();
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !self.told {
            self.tell_once(Err(io::Error::other("the writer panicked")));
        }
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.shared.queue.lock().stop = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads stretches of segments: on threads of its own, or in the next turn under simulation. What
/// takes a request over a network is read by other threads than what is on the disk, which does not
/// wait for it.
pub struct Loader {
    shared: Arc<LoaderShared>,
    threads: Vec<JoinHandle<()>>,
    remote_readers: usize,
}

#[derive(Default)]
struct LoaderShared {
    queues: Mutex<LoadQueues>,
    filled: Condvar,
    filled_remote: Condvar,
    ready: AtomicBool,
}

#[derive(Default)]
struct LoadQueues {
    requests: VecDeque<LoadRequest>,
    remote: VecDeque<LoadRequest>,
    loaded: Vec<Loaded>,
    stop: bool,
}

impl Loader {
    /// A loader that reads when [`Loader::take`] is called.
    #[must_use]
    pub fn inline() -> Self {
        Self { shared: Arc::default(), threads: Vec::new(), remote_readers: 0 }
    }

    /// A loader with a thread, and `remote_readers` more for files that are not on this machine;
    /// `wake` is called after each load.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(name: &str, remote_readers: usize, wake: &Wake) -> io::Result<Self> {
        let shared: Arc<LoaderShared> = Arc::default();
        let mut loader = Self { shared, threads: Vec::new(), remote_readers };
        for number in 0..=remote_readers {
            let (inner, wake) = (Arc::clone(&loader.shared), Arc::clone(wake));
            let thread = std::thread::Builder::new().name(match number {
                0 => format!("{name}-read"),
                number => format!("{name}-cold{number}"),
            });
            loader.threads.push(thread.spawn(move || inner.serve(number > 0, &wake))?);
        }
        Ok(loader)
    }

    /// Asks for a stretch. The caller sees to it that the same one is not asked for twice.
    pub fn submit(&self, request: LoadRequest) {
        if self.threads.is_empty() {
            self.shared.queues.lock().requests.push_back(request);
            self.shared.ready.store(true, Ordering::Release);
        } else if self.remote_readers > 0 && request.segment.file.reach().is_remote() {
            self.shared.queues.lock().remote.push_back(request);
            self.shared.filled_remote.notify_one();
        } else {
            self.shared.queues.lock().requests.push_back(request);
            self.shared.filled.notify_one();
        }
    }

    /// Reads what one without threads was asked for and has not read: a machine may have asked while the log was opened.
    pub fn adopt(&self, before: &Self) {
        let requests = std::mem::take(&mut before.shared.queues.lock().requests);
        requests.into_iter().for_each(|request| self.submit(request));
    }

    /// True if [`Loader::take`] has something. Costs one load.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// Takes the loads that have ended.
    #[must_use]
    pub fn take(&self) -> Vec<Loaded> {
        self.shared.ready.store(false, Ordering::Relaxed);
        let mut queues = self.shared.queues.lock();
        if self.threads.is_empty() {
            let requests = std::mem::take(&mut queues.requests);
            return requests.iter().map(LoadRequest::run).collect();
        }
        std::mem::take(&mut queues.loaded)
    }
}

impl LoaderShared {
    /// The next request of a reader; `None` when it is to end.
    fn next(&self, remote: bool) -> Option<LoadRequest> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stop {
                return None;
            }
            let queue = if remote { &mut queues.remote } else { &mut queues.requests };
            if let Some(request) = queue.pop_front() {
                return Some(request);
            }
            let filled = if remote { &self.filled_remote } else { &self.filled };
            filled.wait(&mut queues);
        }
    }

    fn serve(&self, remote: bool, wake: &Wake) {
        while let Some(request) = self.next(remote) {
            let loaded = catch_unwind(AssertUnwindSafe(|| request.run()));
            let loaded = loaded.unwrap_or_else(|_| Loaded {
                segment: request.segment.id(),
                offset: request.offset,
                result: Err(LoadFailure {
                    fault: io::Error::other("the reader panicked").into(),
                    resume: None,
                }),
            });
            self.queues.lock().loaded.push(loaded);
            self.ready.store(true, Ordering::Release);
            wake();
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.queues.lock().stop = true;
        self.shared.filled.notify_all();
        self.shared.filled_remote.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
