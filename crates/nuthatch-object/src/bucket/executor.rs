//! What the requests of a bucket run on: threads and clocks of a machine, or those of a simulation.

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::io;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads and a clock for the requests of a bucket.
pub trait Executor: Send + Sync + 'static {
    /// Time since some moment; never steps and never goes backwards.
    fn monotonic(&self) -> Duration;
    /// Runs a request, beside the caller or at once; drops it after [`Executor::close`].
    fn spawn(&self, request: BoxFuture<'static, ()>);
    /// Runs what may block, likewise.
    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>);
    /// Ends after so long; awaited within a request only.
    fn sleep(&self, pause: Duration) -> BoxFuture<'static, ()>;
    /// Blocks the calling thread for so long.
    fn pause(&self, pause: Duration);
    /// The bucket is dropped: requests under way end without an answer. Must not block.
    fn close(&self);
}

/// A small runtime of the bucket's own.
pub struct RequestRuntime {
    handle: Handle,
    began: Instant,
    /// Taken by [`Executor::close`]: a runtime must not be dropped where blocking is forbidden.
    runtime: Mutex<Option<Runtime>>,
}

impl RequestRuntime {
    /// Starts its threads.
    ///
    /// # Errors
    /// The operating system has no threads to give.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object-store")
            .enable_all()
            .build()?;
        let (handle, began) = (runtime.handle().clone(), Instant::now());
        Ok(Self { handle, began, runtime: Mutex::new(Some(runtime)) })
    }
}

impl Executor for RequestRuntime {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn spawn(&self, request: BoxFuture<'static, ()>) {
        self.handle.spawn(request);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.handle.spawn_blocking(work);
    }

    fn sleep(&self, pause: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { tokio::time::sleep(pause).await })
    }

    fn pause(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    fn close(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}
