//! Port from the JetStream service to the core of the server.

use crate::foreign::Foreign;
use crate::registry::{LogIndex, StreamRoute};
use nuthatch_protocol::js::{StreamSource, Time};
use nuthatch_server::jetstream_port::{JsHealth, JsLog};
use nuthatch_streams::{AccountId, Message, Op, OpResult, Respond};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Bytes that wait in an [`Inbox`]; beyond that messages are lost, which their reader finds out by
/// their numbers.
const INBOX_BYTES_MAX: usize = 64 << 20;
/// Memory of a message in an inbox beyond its bytes.
const ARRIVED_BYTES: usize = 128;

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

/// A message that came on a subject that the service listens on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrived {
    /// Its subject, as receivers see it.
    pub subject: Vec<u8>,
    /// Reply subject or empty.
    pub reply: Vec<u8>,
    /// Header block or empty.
    pub headers: Vec<u8>,
    /// Body.
    pub body: Vec<u8>,
}

impl Arrived {
    fn weight(&self) -> usize {
        let Self { subject, reply, headers, body } = self;
        ARRIVED_BYTES + subject.len() + reply.len() + headers.len() + body.len()
    }
}

/// Messages that arrived on a subject, in order. Unsubscribes when dropped.
pub struct Inbox {
    messages: mpsc::UnboundedReceiver<Arrived>,
    waiting: Arc<AtomicUsize>,
    _subscription: Box<dyn Any + Send>,
}

/// The sending end of an [`Inbox`].
#[derive(Clone)]
pub struct InboxSender {
    messages: mpsc::UnboundedSender<Arrived>,
    waiting: Arc<AtomicUsize>,
}

impl InboxSender {
    /// Puts a message in; `false`: there is no room, or the inbox was dropped.
    pub fn put(&self, message: Arrived) -> bool {
        let weight = message.weight();
        if self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > INBOX_BYTES_MAX {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            return false;
        }
        self.messages.send(message).is_ok()
    }
}

impl Inbox {
    /// An inbox; `subscribe` is given where messages are put in, and returns what ends that when it
    /// is dropped.
    pub fn new(subscribe: impl FnOnce(InboxSender) -> Box<dyn Any + Send>) -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let slot = InboxSender { messages: sender, waiting: waiting.clone() };
        Self { messages, waiting, _subscription: subscribe(slot) }
    }

    /// The next message.
    pub async fn next(&mut self) -> Option<Arrived> {
        let message = self.messages.recv().await;
        self.taken(message)
    }

    /// The next message, if it is there.
    pub fn try_next(&mut self) -> Option<Arrived> {
        let message = self.messages.try_recv().ok();
        self.taken(message)
    }

    fn taken(&self, message: Option<Arrived>) -> Option<Arrived> {
        if let Some(message) = &message {
            self.waiting.fetch_sub(message.weight(), Ordering::Relaxed);
        }
        message
    }
}

/// Publishes answers of the service through core routing.
pub trait ReplyPort: Send + Sync + 'static {
    /// True if anybody in the account is subscribed to a subject.
    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        let _ = (account, subject);
        false
    }

    /// True if anybody in the account is subscribed to just this subject, not by a wildcard.
    fn listens_to_just(&self, account: AccountId, subject: &[u8]) -> bool {
        self.listens(account, subject)
    }

    /// Location of a source with an API of its own, and whether the account may copy it.
    fn foreign(&self, account: AccountId, source: &StreamSource) -> Foreign {
        let _ = (account, source);
        Foreign::Afar
    }

    /// Publishes as the server itself: whether anybody took it.
    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool;

    /// Listens on a subject; `None`: the account is not there.
    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        let _ = (account, subject);
        None
    }

    /// Subscribes as the server itself, until what is returned is dropped. `take` is called on the
    /// publishers' threads and must be quick. `None` if there is no such account.
    fn subscribe(
        &self,
        account: AccountId,
        subject: &str,
        take: Take,
    ) -> Option<Box<dyn Any + Send + Sync>>;

    /// Tells the operator something.
    fn say(&self, text: &str) {
        let _ = text;
    }

    /// Tells the operator of something that needs him.
    fn warn(&self, text: &str) {
        self.say(text);
    }
}

/// Handler of messages that the server has subscribed to.
pub type Take = Box<dyn Fn(&Message<'_>) + Send + Sync>;

/// The core of the server, as the JetStream service uses it.
pub trait CorePort: Send + Sync + 'static {
    /// Sends an operation to an engine without waiting.
    ///
    /// # Errors
    /// [`NotTaken`]; `respond` is then dropped.
    fn submit(&self, engine: LogIndex, op: Op, respond: Respond) -> Result<(), NotTaken>;

    /// Publishes an answer through core routing.
    fn answer(&self, account: AccountId, reply: &[u8], body: &[u8]);

    /// Core routing.
    fn routing(&self) -> &dyn ReplyPort;

    /// The time.
    fn now(&self) -> Time;

    /// Location of a source with an API of its own, and whether the account may copy it.
    fn foreign(&self, account: AccountId, source: &StreamSource) -> Foreign {
        let _ = (account, source);
        Foreign::Afar
    }

    /// True if anybody listens on a subject.
    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        let _ = (account, subject);
        false
    }

    /// Publishes as the server itself: whether anybody took it.
    fn send(&self, account: AccountId, message: &Message<'_>) -> bool {
        let _ = (account, message);
        false
    }

    /// Listens on a subject; `None`: the account is not there.
    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        let _ = (account, subject);
        None
    }

    /// How the logs feel.
    fn health(&self) -> JsHealth;

    /// A stream lives at `to` from now on, and the registry says so since version `seen`: what
    /// was sent to its old log by older routes goes there first, in its order, with what the old
    /// engine keeps in memory. What is returned tells once the old log has durably forgotten the
    /// stream, or why it does not.
    fn switch(&self, from: StreamRoute, to: StreamRoute, seen: u64) -> oneshot::Receiver<OpResult> {
        let _ = (from, to, seen);
        oneshot::channel().1
    }

    /// Tells the operator something.
    fn say(&self, text: &str) {
        let _ = text;
    }

    /// Counters of the logs, in the order of [`LogIndex`].
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
    core_port: &dyn CorePort,
    engine: LogIndex,
    op: Op,
) -> Result<OpResult, CallError> {
    finished(begin(core_port, engine, op)).await
}

/// Sends an operation; what is returned gets its outcome.
pub(super) fn begin(
    core_port: &dyn CorePort,
    engine: LogIndex,
    op: Op,
) -> Result<oneshot::Receiver<OpResult>, NotTaken> {
    let (sender, receiver) = oneshot::channel();
    let respond: Respond = Box::new(move |result| {
        // The requester may have gone; then the outcome is dropped.
        let _ = sender.send(result);
    });
    core_port.submit(engine, op, respond)?;
    Ok(receiver)
}

/// Waits for the outcome of what [`begin`] has sent.
pub(super) async fn finished(
    begun: Result<oneshot::Receiver<OpResult>, NotTaken>,
) -> Result<OpResult, CallError> {
    begun?.await.map_err(|_| CallError::Closed)
}
