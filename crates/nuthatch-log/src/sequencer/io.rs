//! Where frames are written: on the sequencer's own thread if nothing else waits, otherwise on a
//! thread beside it, one job after the other, so that the next frame is built meanwhile.
//!
//! The thread may have the next job already while it is at one. It begins with it when that one is
//! durable, and not at all once one has failed: a frame is written only behind a durable one.

use crate::cache::{LoadRequest, Loaded};
use crate::frame::{FrameMeta, SealedFrame};
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
        /// What is known about it.
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
        /// Where it went.
        place: Written,
        /// Whether it is durable.
        synced: bool,
    },
    /// Everything written is durable.
    Synced,
}

/// Runs a job on the calling thread.
pub fn run(writer: &mut SegmentWriter, job: Job) -> io::Result<Done> {
    match job {
        Job::Write { frame, meta, durable, sync } => {
            let idle = frame.flags & crate::frame::flags::WITNESS != 0;
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

/// Wakes the sequencer.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The writer's thread, its jobs and their outcomes, both in order.
pub struct IoThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    slot: Mutex<Slot>,
    filled: Condvar,
    ready: AtomicBool,
}

#[derive(Default)]
struct Slot {
    /// What waits; at most [`WRITER_JOBS`] with the one under way.
    jobs: VecDeque<Job>,
    /// What has ended and was not taken yet.
    done: VecDeque<io::Result<Done>>,
    /// A job is under way.
    busy: bool,
    stop: bool,
}

impl IoThread {
    /// Starts the thread; `wake` is called after each job.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(name: &str, writer: Arc<Mutex<SegmentWriter>>, wake: Wake) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            slot: Mutex::new(Slot::default()),
            filled: Condvar::new(),
            ready: AtomicBool::new(false),
        });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-write"))
            .spawn(move || inner.serve(&writer, &wake))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over a job. With those whose outcome was not taken there are then at most
    /// [`WRITER_JOBS`].
    pub fn submit(&self, job: Job) {
        let mut slot = self.shared.slot.lock();
        let held = slot.jobs.len() + slot.done.len() + usize::from(slot.busy);
        assert!(held < WRITER_JOBS, "the writer has enough to do");
        slot.jobs.push_back(job);
        drop(slot);
        self.shared.filled.notify_one();
    }

    /// Whether an outcome waits. Costs one load.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// The outcome of the oldest job, if it has ended.
    #[must_use]
    pub fn take(&self) -> Option<io::Result<Done>> {
        if !self.is_ready() {
            return None;
        }
        let mut slot = self.shared.slot.lock();
        let done = slot.done.pop_front();
        self.shared.ready.store(!slot.done.is_empty(), Ordering::Release);
        done
    }
}

impl Shared {
    /// The next job; `None` when the thread is to end. What waits then is not begun any more.
    fn next(&self) -> Option<Job> {
        let mut slot = self.slot.lock();
        while slot.jobs.is_empty() && !slot.stop {
            self.filled.wait(&mut slot);
        }
        let job = slot.jobs.pop_front().filter(|_| !slot.stop);
        slot.busy = job.is_some();
        job
    }

    fn finish(&self, done: io::Result<Done>) {
        let mut slot = self.slot.lock();
        slot.busy = false;
        slot.done.push_back(done);
        self.ready.store(true, Ordering::Release);
    }

    fn serve(&self, writer: &Mutex<SegmentWriter>, wake: &Wake) {
        let mut has_failed = false;
        while let Some(job) = self.next() {
            let done = if has_failed {
                Err(io::Error::other("what comes before it could not be written"))
            } else {
                catch_unwind(AssertUnwindSafe(|| run(&mut writer.lock(), job)))
                    .unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
            };
            has_failed |= done.is_err();
            self.finish(done);
            wake();
            // If this panics it does so again with the next job, and stops the log.
            let _ = catch_unwind(AssertUnwindSafe(|| writer.lock().list_last()));
        }
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.shared.slot.lock().stop = true;
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
        } else if self.remote_readers > 0 && request.segment.file.is_remote() {
            self.shared.queues.lock().remote.push_back(request);
            self.shared.filled_remote.notify_one();
        } else {
            self.shared.queues.lock().requests.push_back(request);
            self.shared.filled.notify_one();
        }
    }

    /// Whether [`Loader::take`] has something. Costs one load.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// What has been read.
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
                result: Err(io::Error::other("the reader panicked").into()),
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
