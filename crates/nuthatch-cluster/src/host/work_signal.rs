//! Wakes the thread that tends a log's files: it looks often while there is something to do, and rests otherwise.

use super::Host;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Says that there is something to do. Said again before somebody has looked it costs nothing more than a lock.
#[derive(Default)]
pub(super) struct WorkSignal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl WorkSignal {
    pub(super) fn raise(&self) {
        let mut is_raised = self.is_raised.lock();
        if !std::mem::replace(&mut *is_raised, true) {
            self.raised.notify_one();
        }
    }

    fn lower(&self) {
        *self.is_raised.lock() = false;
    }

    /// Waits until it is raised, or for so long; true: it is.
    fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut is_raised = self.is_raised.lock();
        while !*is_raised && !self.raised.wait_until(&mut is_raised, deadline).timed_out() {}
        *is_raised
    }
}

impl Host {
    /// What has happened so far is about to be looked at.
    pub(crate) fn begin_tending(&self) {
        self.work.lower();
    }

    /// Waits until something was written or committed since [`Host::begin_tending`], or the node ends, or for so long;
    /// true: one of the former.
    pub(crate) fn wait_for_work(&self, limit: Duration) -> bool {
        self.work.wait(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_before_somebody_looks_is_one_signal_and_none_is_lost() {
        let signal = WorkSignal::default();
        assert!(!signal.wait(Duration::ZERO), "nothing has happened");
        signal.raise();
        signal.raise();
        assert!(signal.wait(Duration::ZERO), "it happened before the wait");
        assert!(signal.wait(Duration::ZERO), "until somebody looks");
        signal.lower();
        assert!(!signal.wait(Duration::ZERO));
    }

    #[test]
    fn who_rests_is_woken() {
        let signal = WorkSignal::default();
        std::thread::scope(|scope| {
            let rests = scope.spawn(|| signal.wait(Duration::from_secs(3600)));
            signal.raise();
            assert!(rests.join().expect("no panic"));
        });
    }
}
