//! Connections of monitoring: the newest always gets in.
//!
//! Clients that connect and send nothing, or take nothing of their answers, must not keep others
//! from `/healthz` and `/metrics`. So nobody waits for a place: when all are taken, the connection
//! that has had its place for longest has to go.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use tokio::task::AbortHandle;

/// The tasks of open connections, the oldest first.
#[derive(Default)]
pub(super) struct Slots(Mutex<VecDeque<AbortHandle>>);

impl Slots {
    /// Runs the task of a connection. Beside it at most `max - 1` others go on.
    pub(super) fn spawn(&self, max: usize, task: impl Future<Output = ()> + Send + 'static) {
        let mut open = self.0.lock();
        if open.len() >= max {
            open.retain(|task| !task.is_finished());
        }
        while open.len() >= max {
            open.pop_front().into_iter().for_each(|oldest| oldest.abort());
        }
        open.push_back(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_newest_gets_in_and_the_oldest_goes() {
        let slots = Slots::default();
        let alive: Vec<_> = (0..5).map(|_| Arc::new(())).collect();
        for one in &alive {
            let held = one.clone();
            slots.spawn(3, async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
        }
        while Arc::strong_count(&alive[1]) > 1 {
            tokio::task::yield_now().await;
        }
        let held: Vec<bool> = alive.iter().map(|one| Arc::strong_count(one) > 1).collect();
        assert_eq!(held, [false, false, true, true, true]);
    }
}
