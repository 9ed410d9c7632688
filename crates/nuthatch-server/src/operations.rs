//! Who hears of finished requests to the JetStream API: what traces are made of.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Which call: `stream_create`.
    pub name: &'static str,
    /// Name of the account.
    pub account: &'a str,
    /// Its subject behind the API's prefix: `STREAM.CREATE.ORDERS`.
    pub subject: &'a str,
    /// The header `traceparent` of the request, if there is one: what W3C says of the caller's span.
    pub traceparent: Option<&'a str>,
    /// When it came.
    pub started: SystemTime,
    /// How long until its answer.
    pub took: Duration,
    /// Code and text of the error that it was answered with.
    pub error: Option<(u16, &'a str)>,
}

/// Hears of operations. It is called by the tasks that answer: it must not wait, nor take long.
pub trait OperationListener: Send + Sync {
    /// An operation has ended.
    fn ended(&self, operation: &Operation<'_>);
}

/// The listener, if there is one.
#[derive(Default)]
pub struct Operations(OnceLock<Arc<dyn OperationListener>>);

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operations").field(&self.0.get().is_some()).finish()
    }
}

impl Operations {
    /// Sets the listener. Only the first one counts; `false`: there is one.
    pub fn listen(&self, listener: Arc<dyn OperationListener>) -> bool {
        self.0.set(listener).is_ok()
    }

    /// The listener, if there is one.
    pub fn listener(&self) -> Option<&Arc<dyn OperationListener>> {
        self.0.get()
    }
}
