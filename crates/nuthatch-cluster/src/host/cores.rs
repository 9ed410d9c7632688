//! The lock of the cores. Who waits for an answer is woken when it is free again: whoever has an answer goes on at once with
//! what the cores and the status say, and would otherwise wait for the thread that has just woken it.

use super::Host;
use super::core::Core;
use parking_lot::{Condvar, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The cores, while they are held.
pub(super) struct Cores<'a> {
    /// There until the end.
    held: Option<MutexGuard<'a, Core>>,
    answered: &'a Condvar,
}

impl Host {
    /// Waits for the cores.
    pub(super) fn cores(&self) -> Cores<'_> {
        Cores { held: Some(self.core.lock()), answered: &self.answered }
    }

    /// The cores, if they can be had within this time.
    pub(super) fn cores_within(&self, limit: Duration) -> Option<Cores<'_>> {
        let held = self.core.try_lock_for(limit)?;
        Some(Cores { held: Some(held), answered: &self.answered })
    }
}

impl Deref for Cores<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.held.as_ref().expect("held until the end")
    }
}

impl DerefMut for Cores<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.held.as_mut().expect("held until the end")
    }
}

impl Drop for Cores<'_> {
    fn drop(&mut self) {
        let has_answered = std::mem::take(&mut self.has_answered);
        drop(self.held.take());
        if has_answered {
            self.answered.notify_all();
        }
    }
}
