//! Logs that wait for a connection to take more.

use crate::log_id::{LogSlot, SlotSet};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Logs whose engines are told when the connection's outbox has drained. Whether there are any is one
/// load, which is asked after every write.
#[derive(Default)]
pub(super) struct WaitingLogs {
    /// True if `logs` is not empty. Changes while those are locked.
    any: AtomicBool,
    logs: Mutex<SlotSet>,
}

impl WaitingLogs {
    /// True if any log waits. Who adds one and then looks whether the outbox has drained, and who
    /// drains it and then asks this, do not miss each other.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// A log waits.
    pub(super) fn add(&self, slot: LogSlot) {
        let mut logs = self.logs.lock();
        logs.insert(slot);
        self.any.store(true, Ordering::SeqCst);
    }

    /// A log does not wait after all.
    pub(super) fn remove(&self, slot: LogSlot) {
        let mut logs = self.logs.lock();
        logs.remove(slot);
        self.any.store(!logs.is_empty(), Ordering::SeqCst);
    }

    /// All that wait; none does any more.
    pub(super) fn take(&self) -> SlotSet {
        let mut logs = self.logs.lock();
        self.any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *logs)
    }
}
