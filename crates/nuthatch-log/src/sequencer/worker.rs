//! Work in the background: checkpoints and compaction, one task at a time. Under simulation tasks
//! run on the spot, or when they are told to.

use super::io::Wake;
use crate::compaction::{CompactionFault, Rewritten, Survey};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Result of a task.
pub enum TaskDone {
    /// A checkpoint was written.
    Checkpoint(io::Result<()>),
    /// Contents of segments that may be compacted.
    Survey(Result<Survey, CompactionFault>),
    /// Segments were rewritten or removed.
    Rewritten(Box<Result<Rewritten, CompactionFault>>),
}

/// Something to do.
pub type Task = Box<dyn FnOnce() -> TaskDone + Send>;

/// Runs tasks.
pub struct Worker {
    shared: Arc<WorkerShared>,
    place: TaskPlace,
    busy: bool,
}

/// Where tasks run.
enum TaskPlace {
    /// On the thread that submits them, before it goes on.
    Inline,
    /// On the thread that calls [`Worker::run_one`].
    ByHand(Option<Task>),
    Thread(Option<JoinHandle<()>>),
}

#[derive(Default)]
struct WorkerShared {
    slot: Mutex<WorkerSlot>,
    filled: Condvar,
    ready: AtomicBool,
}

#[derive(Default)]
struct WorkerSlot {
    task: Option<Task>,
    done: Option<TaskDone>,
    stop: bool,
}

impl Worker {
    /// A worker without a thread.
    #[must_use]
    pub fn inline() -> Self {
        Self { shared: Arc::default(), place: TaskPlace::Inline, busy: false }
    }

    /// A worker whose tasks wait for [`Worker::run_one`].
    #[must_use]
    pub fn by_hand() -> Self {
        Self { shared: Arc::default(), place: TaskPlace::ByHand(None), busy: false }
    }

    /// A worker with a thread; `wake` is called after each task.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(name: &str, wake: Wake) -> io::Result<Self> {
        let shared: Arc<WorkerShared> = Arc::default();
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-tidy"))
            .spawn(move || inner.serve(&wake))?;
        Ok(Self { shared, place: TaskPlace::Thread(Some(thread)), busy: false })
    }

    /// True if tasks have a thread of their own, which may rest between two steps.
    #[must_use]
    pub const fn has_thread(&self) -> bool {
        matches!(self.place, TaskPlace::Thread(_))
    }

    /// True if a task waits for [`Worker::run_one`].
    #[must_use]
    pub const fn waits(&self) -> bool {
        matches!(self.place, TaskPlace::ByHand(Some(_)))
    }

    /// Runs the task that waits, if one does.
    pub fn run_one(&mut self) -> bool {
        let TaskPlace::ByHand(waiting) = &mut self.place else { return false };
        let Some(task) = waiting.take() else { return false };
        self.shared.finish(task());
        true
    }

    /// True if a task is under way, or its outcome has not been taken.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Starts a task. There must be none under way.
    pub fn submit(&mut self, task: Task) {
        assert!(!self.busy, "one task at a time");
        self.busy = true;
        match &mut self.place {
            TaskPlace::Inline => self.shared.finish(task()),
            TaskPlace::ByHand(waiting) => *waiting = Some(task),
            TaskPlace::Thread(_) => {
                self.shared.slot.lock().task = Some(task);
                self.shared.filled.notify_one();
            }
        }
    }

    /// True if [`Worker::take`] has something. Costs one load.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// The outcome of the task, if it has ended.
    pub fn take(&mut self) -> Option<TaskDone> {
        if !self.is_ready() {
            return None;
        }
        self.shared.ready.store(false, Ordering::Relaxed);
        self.busy = false;
        self.shared.slot.lock().done.take()
    }
}

impl WorkerShared {
    fn finish(&self, done: TaskDone) {
        self.slot.lock().done = Some(done);
        self.ready.store(true, Ordering::Release);
    }

    fn serve(&self, wake: &Wake) {
        loop {
            let mut slot = self.slot.lock();
            while slot.task.is_none() && !slot.stop {
                self.filled.wait(&mut slot);
            }
            let Some(task) = slot.task.take() else { return };
            drop(slot);
            let panicked = |_| {
                let fault = std::io::Error::other("a background task panicked");
                TaskDone::Survey(Err(CompactionFault::Io(fault)))
            };
            self.finish(catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(panicked));
            wake();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.slot.lock().stop = true;
        self.shared.filled.notify_one();
        if let TaskPlace::Thread(thread) = &mut self.place
            && let Some(thread) = thread.take()
        {
            let _ = thread.join();
        }
    }
}
