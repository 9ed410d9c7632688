//! Finished traces on their way to the task that publishes them.

use super::Finished;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Finished traces that wait to be published; more are dropped.
pub const TRACES_QUEUED_MAX: usize = 1024;
/// Bytes of finished traces that wait to be published; more are dropped.
pub const TRACE_BYTES_QUEUED_MAX: usize = 16 << 20;

/// Finished traces.
pub struct TraceQueue {
    sender: mpsc::Sender<Finished>,
    receiver: Mutex<Option<mpsc::Receiver<Finished>>>,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Default for TraceQueue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(TRACES_QUEUED_MAX);
        let receiver = Mutex::new(Some(receiver));
        Self { sender, receiver, bytes: AtomicUsize::new(0), lost: AtomicU64::new(0) }
    }
}

impl TraceQueue {
    /// Takes a trace, or drops it if too many wait.
    pub(super) fn push(&self, finished: Finished) {
        let weight = finished.weight;
        let queued = self.bytes.fetch_add(weight, Ordering::Relaxed) + weight;
        if queued > TRACE_BYTES_QUEUED_MAX || self.sender.try_send(finished).is_err() {
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What comes out of it; `None`: somebody else has it.
    pub fn take(&self) -> Option<mpsc::Receiver<Finished>> {
        self.receiver.lock().take()
    }

    /// A trace that came out has been published.
    pub fn published(&self, finished: &Finished) {
        self.bytes.fetch_sub(finished.weight, Ordering::Relaxed);
    }

    /// Traces that were dropped since the last time.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for TraceQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceQueue").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
