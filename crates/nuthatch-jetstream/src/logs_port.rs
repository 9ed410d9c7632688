//! Port from the JetStream service to the logs below it.

use crate::log_traffic::Asked;
use nuthatch_server::jetstream_port::{BoxFuture, JsHealth, JsLog, LogId, StreamRoute};
use nuthatch_streams::{Op, OpResult, Respond};
use tokio::sync::oneshot;

/// Why an engine did not take an operation; nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotTaken {
    /// Its queue is full.
    #[error("the queue of the log is full")]
    Busy,
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

/// The logs below the streams, as the JetStream service uses them.
pub trait LogsPort: Send + Sync + 'static {
    /// Sends an operation to an engine without waiting.
    ///
    /// # Errors
    /// [`NotTaken`]; `respond` is then dropped.
    fn submit(&self, engine: LogId, op: Op, respond: Respond) -> Result<(), NotTaken>;

    /// A stream lives at `to` from now on, and the registry says so since version `seen`: what
    /// was sent to its old log by older routes goes there first, in its order, with what the old
    /// engine keeps in memory. What is returned tells once the old log has durably forgotten the
    /// stream, or why it does not.
    fn switch(&self, from: StreamRoute, to: StreamRoute, seen: u64) -> oneshot::Receiver<OpResult> {
        let _ = (from, to, seen);
        oneshot::channel().1
    }

    /// Names and identities of the logs that are attached, the default one first.
    fn attached(&self) -> Vec<(String, LogId)>;

    /// Names of the attached logs whose streams are all known.
    fn whole(&self) -> Vec<String> {
        self.attached().into_iter().map(|(name, _)| name).collect()
    }

    /// Whether this log is attached.
    fn is_attached(&self, log: LogId) -> bool {
        self.attached().iter().any(|(_, id)| *id == log)
    }

    /// Whether a log that is attached is about to leave this node.
    fn is_withdrawn(&self, log: LogId) -> bool {
        let _ = log;
        false
    }

    /// Closes a log in a directory of this node and opens it anew.
    fn reopen(&self, log: LogId) -> BoxFuture<'_, Result<(), String>> {
        let _ = log;
        Box::pin(async { Err("this server opens no log anew".to_owned()) })
    }

    /// The log of just this node ([`crate::registry::LOCAL_LOG`]), which is begun if it is not there yet.
    fn local_log(&self) -> BoxFuture<'_, Result<LogId, String>> {
        Box::pin(async { Err("this server has no local log".to_owned()) })
    }

    /// Counters of the logs, the default one first.
    fn logs(&self) -> Vec<JsLog> {
        Vec::new()
    }

    /// What clients asked so far of each attached log, by its name.
    fn asked(&self) -> Vec<(String, LogId, Asked)> {
        Vec::new()
    }

    /// How the logs feel.
    fn health(&self) -> JsHealth;
}

/// Why an operation has no outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// It was not begun.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// The engine went away while the operation was under way.
    #[error("the log was closed before the operation ended")]
    Closed,
}

/// Sends an operation and waits for its outcome.
///
/// # Errors
/// [`CallError`]; the operation may have taken effect after [`CallError::Closed`].
pub async fn call(logs: &dyn LogsPort, engine: LogId, op: Op) -> Result<OpResult, CallError> {
    finished(begin(logs, engine, op)).await
}

/// Sends an operation; what is returned gets its outcome.
pub(super) fn begin(
    logs: &dyn LogsPort,
    engine: LogId,
    op: Op,
) -> Result<oneshot::Receiver<OpResult>, NotTaken> {
    let (sender, receiver) = oneshot::channel();
    let respond: Respond = Box::new(move |result| {
        // The requester may have gone; then the outcome is dropped.
        let _ = sender.send(result);
    });
    logs.submit(engine, op, respond)?;
    Ok(receiver)
}

/// Waits for the outcome of what [`begin`] has sent.
pub(super) async fn finished(
    begun: Result<oneshot::Receiver<OpResult>, NotTaken>,
) -> Result<OpResult, CallError> {
    begun?.await.map_err(|_| CallError::Closed)
}
