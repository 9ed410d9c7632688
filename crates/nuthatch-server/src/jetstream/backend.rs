//! What the JetStream service needs of the rest of the server.

use super::registry::EngineIndex;
use crate::jetstream_hook::{JsHealth, JsLog};
use nuthatch_protocol::js::Time;
use nuthatch_streams::{AccountId, Op, OpResult, Respond};
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

/// The rest of the server, as the service sees it.
pub trait Backend: Send + Sync + 'static {
    /// Sends an operation to an engine without waiting.
    ///
    /// # Errors
    /// [`NotTaken`]; `respond` is then dropped.
    fn submit(&self, engine: EngineIndex, op: Op, respond: Respond) -> Result<(), NotTaken>;

    /// Publishes an answer through core routing.
    fn answer(&self, account: AccountId, reply: &[u8], body: &[u8]);

    /// The time.
    fn now(&self) -> Time;

    /// The account whose JetStream API another one imports under this prefix.
    fn exporter(&self, account: AccountId, api: &str) -> Option<AccountId> {
        let _ = (account, api);
        None
    }

    /// How the logs feel.
    fn health(&self) -> JsHealth;

    /// Counters of the logs, in the order of [`EngineIndex`].
    fn logs(&self) -> Vec<JsLog> {
        Vec::new()
    }

    /// The server's name, shown as `cluster.leader`.
    fn server_name(&self) -> &str;
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
pub async fn call(
    backend: &dyn Backend,
    engine: EngineIndex,
    op: Op,
) -> Result<OpResult, CallError> {
    let (sender, receiver) = oneshot::channel();
    let respond: Respond = Box::new(move |result| {
        // The requester may have gone; then nobody wants the outcome.
        let _ = sender.send(result);
    });
    backend.submit(engine, op, respond)?;
    receiver.await.map_err(|_| CallError::Closed)
}
