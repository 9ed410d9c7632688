//! Who hears of advisories beside those who have subscribed to them.
//!
//! Engines make an advisory whether or not anybody listens, so hearing it costs one look; a
//! subscription of the server's own would make every publish to `$…` subjects look for subscribers.

use nuthatch_streams::Message;
use std::sync::{Arc, OnceLock};

/// What the subjects of advisories begin with.
const PREFIX: &[u8] = b"$JS.EVENT.ADVISORY.";

/// Hears of advisories. It is called on the threads of engines: it must not wait, nor take long.
pub trait AdvisoryListener: Send + Sync {
    /// An advisory of the account of this name.
    fn hear(&self, account: &str, subject: &[u8], body: &[u8]);
}

/// The listener, if there is one.
#[derive(Default)]
pub struct Advisories(OnceLock<Arc<dyn AdvisoryListener>>);

impl std::fmt::Debug for Advisories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Advisories").field(&self.0.get().is_some()).finish()
    }
}

impl Advisories {
    /// Sets the listener. Only the first one counts; `false`: there is one.
    pub fn listen(&self, listener: Arc<dyn AdvisoryListener>) -> bool {
        self.0.set(listener).is_ok()
    }

    /// Tells of what the server publishes in the account of this name.
    #[inline]
    pub(crate) fn tell(&self, account: &str, message: &Message<'_>) {
        if let Some(listener) = self.0.get()
            && message.subject.starts_with(PREFIX)
        {
            listener.hear(account, message.subject, message.body);
        }
    }
}
