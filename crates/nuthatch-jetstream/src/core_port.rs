//! Port from the JetStream service to the core of the server.

use crate::foreign::Foreign;
use nuthatch_protocol::js::{StreamSource, Time};
use nuthatch_server::operations::OperationListener;
use nuthatch_server::served::Served;
use nuthatch_streams::{AccountId, Message};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Bytes that wait in an [`Inbox`]; beyond that messages are lost, which their reader finds out by
/// their numbers.
const INBOX_BYTES_MAX: usize = 64 << 20;
/// Memory of a message in an inbox beyond its bytes.
const ARRIVED_BYTES: usize = 128;

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

/// What infos say of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub size: usize,
    /// The other nodes that this one has met, by name.
    pub others: Vec<String>,
}

/// Another node that keeps a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherNode {
    /// Its name.
    pub name: String,
    /// It is connected.
    pub is_connected: bool,
    /// How long it was not heard of.
    pub silent: Duration,
    /// It has all that is committed, or soon will.
    pub is_current: bool,
    /// How many entries it lacks of a log.
    pub lag: u64,
}

/// How a quorum log stands, as far as a node that keeps it knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogStanding {
    /// A node owns it that was heard of lately.
    pub has_owner: bool,
    /// The other nodes that keep it.
    pub others: Vec<OtherNode>,
}

impl LogStanding {
    /// True if this node and those that are connected are a majority of those that keep the log.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        let connected = self.others.iter().filter(|node| node.is_connected).count();
        2 * (connected + 1) > self.others.len() + 1
    }
}

/// The core of the server, as the JetStream service uses it: its routing, its clock, its log lines.
pub trait CorePort: Send + Sync + 'static {
    /// True if anybody in the account is subscribed to a subject.
    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        let _ = (account, subject);
        false
    }

    /// True unless certainly nobody in the account is subscribed to a subject that this pattern selects: literal tokens
    /// and one wildcard.
    fn may_listen_below(&self, account: AccountId, pattern: &[u8]) -> bool {
        let _ = (account, pattern);
        true
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

    /// As [`CorePort::publish`], and streams whose subjects match store it.
    fn publish_and_store(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.publish(account, message)
    }

    /// Publishes as a client of the account would, so that its streams and JetStream take what is for them:
    /// whether anybody took it.
    fn send(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.publish(account, message)
    }

    /// Listens on a subject; `None`: the account is not there.
    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        let _ = (account, subject);
        None
    }

    /// Accounts may import other streams than before: what comes by imports to who listens follows that.
    fn renew_imports(&self) {}

    /// Tells push consumers that somebody may listen on this subject now.
    fn tell_interest(&self, subject: &[u8]) {
        let _ = subject;
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

    /// Who wants to hear of finished requests; `None`: nobody.
    fn operations(&self) -> Option<Arc<dyn OperationListener>> {
        None
    }

    /// Publishes an answer, with a header block if it is not empty.
    fn answer(&self, account: AccountId, reply: &[u8], headers: &[u8], body: &[u8]) {
        self.publish(account, &Message { subject: reply, reply: b"", headers, body });
    }

    /// The time.
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    /// The server's name, shown as `cluster.leader`.
    fn server_name(&self) -> &str;

    /// The server's tags, in lower case.
    fn server_tags(&self) -> Vec<String> {
        Vec::new()
    }

    /// Beginning of the tag whose value no two replicas of a stream share; `None`: there is none.
    fn unique_tag(&self) -> Option<String> {
        None
    }

    /// Name of the system account.
    fn system_account(&self) -> String {
        "$SYS".to_owned()
    }

    /// Streams of an account at other nodes of the cluster; `None`: this server is alone, or the account is gone.
    fn served(&self, account: AccountId) -> Option<Arc<Served>> {
        let _ = account;
        None
    }

    /// Tells the other nodes now how the account's streams here have changed.
    fn tell_streams(&self, account: AccountId) {
        let _ = account;
    }

    /// The epoch in which this node owns the first quorum log.
    fn leads_in(&self) -> Option<u64> {
        None
    }

    /// Has a quorum log handed over that this node owns, to the node of this name if one is given. What is returned hears whether that was done; it ends without a
    /// value if the node does not own it. `None`: too many ask for it.
    fn step_down(&self, log: &str, to: Option<String>) -> Option<oneshot::Receiver<bool>> {
        let _ = (log, to);
        None
    }

    /// Has a spare take the place of the node of this name, or of this id if that is given, or removes it if it is a spare
    /// itself. What is returned hears when that has begun. `None`: this server is alone.
    fn remove_node(
        &self,
        name: &str,
        id: &str,
    ) -> Option<oneshot::Receiver<Result<(), NotRemoved>>> {
        let _ = (name, id);
        None
    }

    /// True if the cluster has a log in the memory of its nodes.
    fn has_quorum_memory(&self) -> bool {
        false
    }

    /// True if the cluster's log in memory has streams of an account, as far as this node knows.
    fn has_memory_streams(&self, _account: AccountId) -> bool {
        false
    }

    /// Names of all quorum logs of the cluster.
    fn quorum_logs(&self) -> Vec<String> {
        Vec::new()
    }

    /// The other nodes that keep the quorum log of this name, which this node owns; `None`: it is no such log.
    fn keepers(&self, log: &str) -> Option<Vec<OtherNode>> {
        let _ = log;
        None
    }

    /// How the quorum log of this name stands, whether this node owns it or not; `None`: it is no such log.
    fn standing(&self, log: &str) -> Option<LogStanding> {
        let _ = log;
        None
    }

    /// The cluster of which this server is a node; `None`: it is alone.
    fn cluster(&self) -> Option<ClusterView> {
        None
    }
}

/// Handler of messages that the server has subscribed to.
pub type Take = Box<dyn Fn(&Message<'_>) + Send + Sync>;

/// Why a node is not removed.
#[derive(Debug)]
pub enum NotRemoved {
    /// There is no such node.
    NoMember(String),
    /// Another one is being removed.
    Busy(String),
    /// It cannot be done, or nobody knows whether it was.
    Refused(String),
}
