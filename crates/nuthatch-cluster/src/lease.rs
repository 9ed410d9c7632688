//! The owner's lease, where threads may ask for it at any time without a step of the cores.

use crate::clock::now;
use nuthatch_log::env::Standing;
use nuthatch_quorum::types::{Epoch, Time};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No node owns this epoch.
const NO_EPOCH: u32 = 0;

/// Which epoch this node owns, and until when a majority promises it to nobody else.
#[derive(Debug, Default)]
pub struct Lease {
    epoch: AtomicU32,
    /// In microseconds of [`now`].
    ends: AtomicU64,
}

impl Lease {
    /// Takes over what a step has changed. Calls follow each other.
    pub fn set(&self, owned: Option<Epoch>, ends: Option<Time>) {
        // The epoch first: who reads the end of an epoch's lease does not find an earlier epoch beside it.
        self.epoch.store(owned.map_or(NO_EPOCH, |epoch| epoch.0), Ordering::Release);
        self.ends.store(ends.map_or(0, |at| at.0), Ordering::Release);
    }

    /// What the owner of an epoch can say of the log at this moment.
    #[must_use]
    pub fn standing(&self, epoch: Epoch) -> Standing {
        let ends = Time(self.ends.load(Ordering::Acquire));
        if self.epoch.load(Ordering::Acquire) != epoch.0 {
            return Standing::Lost;
        }
        // The clock last: a process that was stopped before it asks, asks after it.
        let now = now();
        // And once more: a lease that has become shorter meanwhile ends before what was read.
        let ends = ends.min(Time(self.ends.load(Ordering::Acquire)));
        if now < ends { Standing::Current } else { Standing::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_of_one_epoch_and_ends_by_the_clock() {
        let lease = Lease::default();
        assert_eq!(lease.standing(Epoch(3)), Standing::Lost);
        lease.set(Some(Epoch(3)), Some(now().plus(60_000_000)));
        assert_eq!(lease.standing(Epoch(3)), Standing::Current);
        assert_eq!(lease.standing(Epoch(2)), Standing::Lost);
        lease.set(Some(Epoch(3)), Some(now()));
        assert_eq!(lease.standing(Epoch(3)), Standing::Unknown);
        lease.set(Some(Epoch(3)), None);
        assert_eq!(lease.standing(Epoch(3)), Standing::Unknown);
        lease.set(None, None);
        assert_eq!(lease.standing(Epoch(3)), Standing::Lost);
    }
}
