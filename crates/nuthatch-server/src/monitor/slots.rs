//! Connections of monitoring: the newest gets in.
//!
//! Clients that connect and send nothing, or take nothing of their answers, must not keep others
//! from `/healthz` and `/metrics`. So nobody waits for a place: when all are taken, a connection has
//! to go that asks for nothing, and if there is none, one that takes its answer slowly. One whose
//! answer is being made stays: how many of those take long is bounded elsewhere ([`super::large`]).

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::task::AbortHandle;

/// It asks for nothing.
const IDLE: u8 = 0;
/// An answer is being made.
const ANSWERING: u8 = 1;
/// An answer waits to be taken.
const SENDING: u8 = 2;

/// What a connection is about.
#[derive(Default, Debug)]
pub(super) struct Activity(AtomicU8);

impl Activity {
    pub(super) fn begin_answer(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    pub(super) fn begin_sending(&self) {
        self.0.store(SENDING, Ordering::Relaxed);
    }

    /// All that was written is on its way.
    pub(super) fn sent(&self) {
        // While an answer is being made nothing is left of the one before.
        let _ = self.0.compare_exchange(SENDING, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }
}

/// An open connection.
struct Slot {
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// The open connections, the oldest first.
#[derive(Default)]
pub(super) struct Slots(Mutex<VecDeque<Slot>>);

impl Slots {
    /// Runs the task of a connection, which tells what it is about. Beside it at most `max - 1`
    /// others go on; if the answers of all of those are being made, it is the new one that ends.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        max: usize,
        task: impl FnOnce(Arc<Activity>) -> F,
    ) {
        let mut open = self.0.lock();
        if open.len() >= max {
            open.retain(|slot| !slot.task.is_finished());
        }
        while open.len() >= max {
            let in_state = |state| open.iter().position(|slot| slot.activity.is(state));
            let Some(at) = in_state(IDLE).or_else(|| in_state(SENDING)) else { return };
            open.remove(at).into_iter().for_each(|slot| slot.task.abort());
        }
        let activity = Arc::new(Activity::default());
        let task = tokio::spawn(task(activity.clone())).abort_handle();
        open.push_back(Slot { activity, task });
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|slot| slot.task.abort());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens connections that do as `begin` says, and tells which of them are still there behind the
    /// last.
    async fn left(max: usize, begin: &[fn(&Activity)]) -> Vec<bool> {
        let slots = Slots::default();
        let alive: Vec<_> = begin.iter().map(|_| Arc::new(())).collect();
        for (one, begin) in alive.iter().zip(begin) {
            let held = one.clone();
            slots.spawn(max, |activity| {
                begin(&activity);
                async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                }
            });
        }
        while alive.iter().filter(|one| Arc::strong_count(one) > 1).count() > max {
            tokio::task::yield_now().await;
        }
        alive.iter().map(|one| Arc::strong_count(one) > 1).collect()
    }

    const IDLES: fn(&Activity) = |_| {};
    const ANSWERS: fn(&Activity) = Activity::begin_answer;
    const SENDS: fn(&Activity) = |activity| {
        activity.begin_answer();
        activity.begin_sending();
    };

    #[tokio::test]
    async fn the_newest_gets_in_and_who_waits_for_an_answer_stays() {
        assert_eq!(left(3, &[IDLES; 5]).await, [false, false, true, true, true]);
        let states = [ANSWERS, IDLES, SENDS, IDLES, IDLES];
        assert_eq!(left(3, &states).await, [true, false, true, false, true]);
        assert_eq!(left(2, &[ANSWERS, SENDS, IDLES]).await, [true, false, true]);
        assert_eq!(left(2, &[ANSWERS, ANSWERS, IDLES]).await, [true, true, false]);
        let sent: fn(&Activity) = |activity| {
            SENDS(activity);
            activity.sent();
        };
        assert_eq!(left(2, &[SENDS, sent, IDLES]).await, [true, false, true]);
    }
}
