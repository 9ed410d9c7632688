//! The clocks of a machine: one that never steps, and a wall clock that is set by others.

use nuthatch_streams::steady::TimeSource;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// What the wall clock shows when virtual time begins, ns since the Unix epoch.
const EPOCH_NANOS: i64 = 1_700_000_000_000_000_000;

/// The clocks of a machine; clones share them.
#[derive(Clone, Default, Debug)]
pub struct MachineTime(Arc<Clocks>);

#[derive(Default, Debug)]
struct Clocks {
    /// Virtual time in microseconds.
    micros: AtomicU64,
    /// How far the wall clock was set from it, in nanoseconds.
    set_by: AtomicI64,
}

impl MachineTime {
    /// Virtual time is now `micros`.
    pub fn is_now(&self, micros: u64) {
        self.0.micros.store(micros, Ordering::Relaxed);
    }

    /// Lets time pass.
    pub fn pass(&self, micros: u64) {
        self.0.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Clocks that show the same now and go their own way.
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        copy.is_now(self.0.micros.load(Ordering::Relaxed));
        copy.set_wall(self.0.set_by.load(Ordering::Relaxed));
        copy
    }

    /// Sets the wall clock forward, or back.
    pub fn set_wall(&self, by: i64) {
        self.0.set_by.fetch_add(by, Ordering::Relaxed);
    }
}

impl TimeSource for MachineTime {
    fn wall_nanos(&self) -> i64 {
        let micros = i64::try_from(self.0.micros.load(Ordering::Relaxed)).expect("a time");
        EPOCH_NANOS + micros * 1000 + self.0.set_by.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.micros.load(Ordering::Relaxed))
    }
}
