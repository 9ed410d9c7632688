//! Faults that stop a server.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A reason to stop, raised from any thread, heard by the one that waits for signals.
#[derive(Debug, Default)]
pub struct Fatal {
    reason: Mutex<Option<String>>,
    raised: Notify,
}

impl Fatal {
    /// Asks the server to stop. The first reason counts.
    pub fn raise(&self, reason: &str) {
        self.reason.lock().get_or_insert_with(|| reason.to_owned());
        self.raised.notify_one();
    }

    /// Waits for a reason.
    pub(crate) async fn wait(&self) {
        while self.reason().is_none() {
            self.raised.notified().await;
        }
    }

    /// The reason, if there is one.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }
}
