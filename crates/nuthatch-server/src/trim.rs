//! Memory that is free goes back to the system after much of it has been freed.
//!
//! The allocator keeps nearly all of what was allocated in small pieces, or in large ones on another
//! thread: what one client made the server take would stay for good.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// What is smaller is used again soon.
const PIECE_BYTES: usize = 64 * 1024;
/// So much freed in such pieces is worth a look at what is free.
const LARGE_BYTES: usize = 4 * 1024 * 1024;
/// What else ends now belongs to it.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two turns: each takes as long as there is free memory.
const PAUSE: Duration = Duration::from_secs(3);

/// So many bytes are about to be freed.
pub fn freed(bytes: usize) {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    if bytes < PIECE_BYTES {
        return;
    }
    if FREED.fetch_add(bytes, Ordering::Relaxed) + bytes >= LARGE_BYTES {
        FREED.store(0, Ordering::Relaxed);
        freed_much();
    }
}

/// Much is about to be freed.
pub(crate) fn freed_much() {
    static TRIMS: Trims = Trims::new(SETTLE, PAUSE);
    TRIMS.ask(trim);
}

fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches nothing but free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Turns of giving memory back: one at a time, and one after the last that was asked for.
struct Trims {
    settle: Duration,
    pause: Duration,
    asked: AtomicBool,
    working: AtomicBool,
}

impl Trims {
    const fn new(settle: Duration, pause: Duration) -> Self {
        let (asked, working) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { settle, pause, asked, working }
    }

    fn ask(&'static self, trim: fn()) {
        self.asked.store(true, Ordering::SeqCst);
        // Outside of a runtime it waits for the next who asks.
        if let Ok(runtime) = Handle::try_current()
            && !self.working.swap(true, Ordering::SeqCst)
        {
            let working = Working(self);
            runtime.spawn(async move { working.run(trim).await });
        }
    }
}

/// Whoever works; dropped with its runtime, it leaves the place to another.
struct Working(&'static Trims);

impl Working {
    async fn run(self, trim: fn()) {
        let trims = self.0;
        while trims.asked.load(Ordering::SeqCst) {
            sleep(trims.settle).await;
            trims.asked.store(false, Ordering::SeqCst);
            let _ = tokio::task::spawn_blocking(trim).await;
            sleep(trims.pause).await;
        }
        drop(self);
        if trims.asked.load(Ordering::SeqCst) {
            trims.ask(trim);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static TRIMS: Trims = Trims::new(Duration::from_millis(1), Duration::from_millis(50));

    fn count() {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }

    async fn counted(turns: usize) {
        while COUNT.load(Ordering::SeqCst) < turns {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// What is freed right behind a turn is given back too, on this runtime and on the next one.
    #[test]
    fn what_is_freed_last_is_given_back() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
        };
        runtime().block_on(async {
            TRIMS.ask(count);
            counted(1).await;
            TRIMS.ask(count);
            counted(2).await;
        });
        runtime().block_on(async {
            TRIMS.ask(count);
            counted(3).await;
        });
    }
}
