//! Where messages to one connection go out, as routing and engines know it.

use crate::link::Link;
use crate::log_id::{LogSlot, SlotSet};
use crate::outbox::{Appended, Outbox, Tally};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;
use waiting_logs::WaitingLogs;

mod waiting_logs;

/// Share of `max_pending` above which engines stop delivering to a connection: one in so many.
const READY_SHARE: usize = 4;
/// Share below which they are told to go on.
const RESUME_SHARE: usize = 8;

/// The connection behind an outlet. None of this is asked for each message.
pub trait Client: Send + Sync {
    /// True if it is open.
    fn is_open(&self) -> bool;

    /// Closes it because it does not read as fast as it is sent to.
    fn close_slow_consumer(&self);

    /// Its outbox has drained: tells the engines of these logs.
    fn resume(&self, logs: SlotSet);

    /// The subscription that the client calls `sid` has had its last delivery.
    fn end_subscription(&self, sid: &[u8]);

    /// Allows answers to a message that is being delivered (`allow_responses`).
    fn track_reply(&self, reply: &[u8]);

    /// What others may learn about it.
    fn facts(&self) -> ClientFacts;
}

/// A client, as events and headers describe it to others.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Number of its connection.
    pub id: u64,
    /// When it was accepted.
    pub since: SystemTime,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// `nats` or `websocket`.
    pub client_type: &'static str,
    /// Name of its account.
    pub account: String,
    /// User name or public nkey; empty without authentication.
    pub user: String,
    /// The CONNECT option `name`.
    pub name: String,
    /// The CONNECT option `lang`.
    pub lang: String,
    /// The CONNECT option `version`.
    pub version: String,
    /// Round trip of the last ping, in nanoseconds; 0: not known.
    pub rtt_ns: u64,
}

/// Where messages to one connection go out. Subscriptions, caches and engines hold it; it may outlive the
/// connection, and takes nothing then.
pub struct Outlet {
    /// Number of the connection.
    pub id: u64,
    /// Bytes that wait to be written.
    pub outbox: Outbox,
    /// State of a leaf node, once it has joined its account.
    link: OnceLock<Link>,
    /// Logs whose engines are told when the outbox has drained.
    waiting_logs: WaitingLogs,
    client: Weak<dyn Client>,
}

impl Outlet {
    /// The outlet of a connection, whose outbox takes `limit` bytes.
    #[must_use]
    pub fn new(id: u64, limit: usize, client: Weak<dyn Client>) -> Arc<Self> {
        Arc::new(Self {
            id,
            outbox: Outbox::new(limit),
            link: OnceLock::new(),
            waiting_logs: WaitingLogs::default(),
            client,
        })
    }

    /// An outlet that leads nowhere: that of the server's own subscriptions.
    #[must_use]
    pub fn nowhere() -> Arc<Self> {
        Self::new(0, 0, Weak::<Nobody>::new())
    }

    /// The connection; `None`: it is gone.
    #[must_use]
    pub fn client(&self) -> Option<Arc<dyn Client>> {
        self.client.upgrade()
    }

    /// State of a leaf node, once it has joined its account.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// True if it leads to another node of the cluster.
    #[must_use]
    pub(crate) fn leads_to_node(&self) -> bool {
        self.link().is_some_and(|link| link.node.is_some())
    }

    /// The leaf node joins its account; `false`: it has done so already.
    pub fn set_link(&self, link: Link) -> bool {
        self.link.set(link).is_ok()
    }

    fn is_open(&self) -> bool {
        self.client().is_some_and(|client| client.is_open())
    }

    /// True if so much waits that who sends more should wait.
    #[must_use]
    pub(crate) fn has_much(&self) -> bool {
        self.outbox.pending() > self.outbox.limit() / RESUME_SHARE
    }

    /// Closes the connection because it does not read as fast as it is sent to.
    #[cold]
    pub fn close_slow_consumer(&self) {
        if let Some(client) = self.client() {
            client.close_slow_consumer();
        }
    }

    /// Appends protocol text for the writer task.
    pub(crate) fn hand_over(&self, mut bytes: Vec<u8>) {
        match self.outbox.append(&mut bytes, Tally::default()) {
            Appended::Overflow => self.close_slow_consumer(),
            Appended::Pending(_) => self.outbox.wake(),
            Appended::Closed => {}
        }
    }

    /// True if engines may deliver to it; if not, the engine is told when they may.
    pub fn ready(&self, slot: LogSlot) -> bool {
        let limit = self.outbox.limit();
        if self.outbox.pending() <= limit / READY_SHARE {
            return true;
        }
        self.waiting_logs.add(slot);
        // It may have drained between the two: then the engine would not be told otherwise.
        if self.outbox.pending() <= limit / RESUME_SHARE || !self.is_open() {
            self.waiting_logs.remove(slot);
            return true;
        }
        false
    }

    /// To be called after bytes have left the outbox.
    #[inline]
    pub(crate) fn after_write(&self) {
        if self.waiting_logs.any() && self.outbox.pending() <= self.outbox.limit() / RESUME_SHARE {
            self.resume();
        }
    }

    /// Tells engines that wait that they may go on.
    #[cold]
    pub(crate) fn resume(&self) {
        let logs = self.waiting_logs.take();
        if let Some(client) = self.client() {
            client.resume(logs);
        }
    }
}

/// The connection behind an outlet that leads nowhere: there is none.
struct Nobody;

impl Client for Nobody {
    fn is_open(&self) -> bool {
        false
    }

    fn close_slow_consumer(&self) {}

    fn resume(&self, _logs: SlotSet) {}

    fn end_subscription(&self, _sid: &[u8]) {}

    fn track_reply(&self, _reply: &[u8]) {}

    fn facts(&self) -> ClientFacts {
        unreachable!("there is nobody")
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("id", &self.id).finish_non_exhaustive()
    }
}
