//! What the requests of a bucket run on: threads and clocks of a machine, or those of a simulation.

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads and a clock for the requests of a bucket.
pub trait Executor: Send + Sync + 'static {
    /// Time since some moment; never steps and never goes backwards.
    fn monotonic(&self) -> Duration;
    /// Runs a request, beside the caller or at once; drops it after [`Executor::close`].
    fn spawn(&self, request: BoxFuture<'static, ()>);
    /// As [`Executor::spawn`], for a caller that may block and waits for the outcome: it may be run on the calling
    /// thread.
    fn spawn_awaited(&self, request: BoxFuture<'static, ()>) {
        self.spawn(request);
    }
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
    awaited: Awaited,
}

/// Which thread runs a request whose caller waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// One of the runtime's, as it runs the connections that hand a request its bytes piece by piece.
    Beside,
    /// The caller's: a request is a piece of work for a thread that may block, and a third thread between the two
    /// would be woken twice to hand things on.
    AtCaller,
}

impl RequestRuntime {
    /// Starts its threads.
    ///
    /// # Errors
    /// The operating system has no threads to give.
    pub fn start(awaited: Awaited) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object-store")
            .enable_all()
            .build()?;
        let (handle, began) = (runtime.handle().clone(), Instant::now());
        Ok(Self { handle, began, runtime: Mutex::new(Some(runtime)), awaited })
    }
}

impl Executor for RequestRuntime {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn spawn(&self, request: BoxFuture<'static, ()>) {
        self.handle.spawn(request);
    }

    fn spawn_awaited(&self, request: BoxFuture<'static, ()>) {
        // On a thread of another runtime it would be refused.
        if self.awaited == Awaited::Beside || Handle::try_current().is_ok() {
            return self.spawn(request);
        }
        // As in the runtime a panic drops the request, of which its caller hears.
        let _ = catch_unwind(AssertUnwindSafe(|| self.handle.block_on(request)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};

    /// The thread on which a request runs whose caller waits for it.
    fn ran_on(runtime: &RequestRuntime) -> ThreadId {
        let (tell, told) = channel();
        runtime.spawn_awaited(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell.send(thread::current().id()).expect("it is waited for");
        }));
        told.recv().expect("it ends")
    }

    #[test]
    fn who_waits_for_a_request_of_a_directory_runs_it() {
        let here = thread::current().id();
        let start = |awaited| RequestRuntime::start(awaited).expect("threads");
        assert_ne!(ran_on(&start(Awaited::Beside)), here);
        assert_eq!(ran_on(&start(Awaited::AtCaller)), here);
    }

    #[test]
    fn a_caller_within_a_runtime_is_served_beside() {
        let runtime = RequestRuntime::start(Awaited::AtCaller).expect("threads");
        let other = Builder::new_current_thread().build().expect("a runtime");
        let (here, ran) = other.block_on(async { (thread::current().id(), ran_on(&runtime)) });
        assert_ne!(ran, here);
    }

    #[test]
    fn a_request_that_panics_ends_without_an_outcome_and_its_caller_goes_on() {
        let runtime = RequestRuntime::start(Awaited::AtCaller).expect("threads");
        let (tell, told) = channel::<()>();
        runtime.spawn_awaited(Box::pin(async move {
            let _held = tell;
            panic!("as is tested");
        }));
        told.recv().expect_err("nothing was told");
    }
}
