//! Threads for calls that take long to compute.

use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

/// Threads for calls whose handling grows with the request, or that tell of very much: connections
/// and timers do not wait for what they compute.
const LONG_CALL_THREADS: usize = 2;

/// The runtime of those threads.
pub(super) struct LongCalls(Option<Runtime>);

impl LongCalls {
    pub(super) fn new() -> Result<Self, String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(LONG_CALL_THREADS).thread_name("calls").enable_all();
        let runtime = builder.build().map_err(|error| format!("no threads for calls: {error}"))?;
        Ok(Self(Some(runtime)))
    }

    /// Carries out a call; what is returned hears of its end.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        spawn_told(runtime.handle(), work)
    }
}

impl Drop for LongCalls {
    fn drop(&mut self) {
        // A runtime may not be waited for on a thread of another one.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Carries out `work`; what is returned hears of its end.
pub(super) fn spawn_told(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Receiver<()> {
    let (done, receiver) = oneshot::channel();
    runtime.spawn(async move {
        work.await;
        // There is no receiver when the connection is gone.
        let _ = done.send(());
    });
    receiver
}
