//! A bound on slow password checks: bcrypt takes a tenth of a second of a core, and anybody who can
//! connect can ask for it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Strangers that wait for their check at a time; further ones are turned away.
const WAITING_MAX: usize = 1024;
/// Checks at once: one in so many of the machine's cores, so that those who are in keep theirs.
const CORES_SHARE: usize = 2;

/// Lets a few slow checks run at once, off the threads that serve connections.
pub struct SlowChecks {
    places: Semaphore,
    waiting: AtomicUsize,
}

impl Default for SlowChecks {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((cores / CORES_SHARE).max(1))
    }
}

impl SlowChecks {
    fn new(at_once: usize) -> Self {
        Self { places: Semaphore::new(at_once), waiting: AtomicUsize::new(0) }
    }

    /// Runs a check when there is a place for it. `None`: too many wait already, or `timeout` was
    /// over before its turn came.
    pub async fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let waiting = WaitingCheck::new(&self.waiting)?;
        let place = tokio::time::timeout(timeout, self.places.acquire()).await.ok()?.ok()?;
        drop(waiting);
        let result = tokio::task::spawn_blocking(check).await.ok();
        drop(place);
        result
    }
}

/// One that waits.
struct WaitingCheck<'a>(&'a AtomicUsize);

impl<'a> WaitingCheck<'a> {
    fn new(count: &'a AtomicUsize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(count);
        (before < WAITING_MAX).then_some(waiting)
    }
}

impl Drop for WaitingCheck<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn few_run_at_once_and_few_wait() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let checks = Arc::new(SlowChecks::new(2));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let one = || {
            let (running, most) = (running.clone(), most.clone());
            move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, Ordering::SeqCst);
            }
        };
        runtime.block_on(async {
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let (checks, check) = (checks.clone(), one());
                    tokio::spawn(async move { checks.run(TIMEOUT, check).await })
                })
                .collect();
            for task in tasks {
                assert!(task.await.unwrap().is_some());
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert_eq!(checks.waiting.load(Ordering::SeqCst), 0);
        checks.waiting.store(WAITING_MAX, Ordering::SeqCst);
        assert!(runtime.block_on(checks.run(TIMEOUT, || ())).is_none());
    }

    #[test]
    fn the_timeout_ends() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let checks = SlowChecks::new(0);
        let timeout = Duration::from_millis(1);
        assert!(runtime.block_on(checks.run(timeout, || ())).is_none());
        assert_eq!(checks.waiting.load(Ordering::SeqCst), 0);
    }
}
