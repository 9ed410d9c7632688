//! State of a leaf node beyond that of a client connection.

use self::handed::Handed;
use self::rights::{LeafRights, is_internal_reply};
use crate::msg_trace::Support;
use nuthatch_protocol::wire::leaf::{push_leaf_subscribe, push_leaf_unsubscribe};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod handed;
pub mod rights;

/// Prefix of the subject by which a server finds out that it is connected to itself.
pub const LOOP_PREFIX: &[u8] = b"$LDS.";

/// What the subjects of nodes' own messages begin with.
const NODE_PREFIX: &[u8] = b"$NODE.";

/// The subject of a message of a node itself, of which `what` follows the token.
pub(crate) fn own_subject(token: &str, what: &str) -> String {
    format!("$NODE.{token}.{what}")
}

/// A leaf node that has joined its account. What the two sides said does not change any more.
pub struct Link {
    /// What the connection is compressed with, as servers tell each other.
    pub compression: &'static str,
    /// The other side is the hub.
    pub is_spoke: bool,
    /// The other side is a node of the same cluster, and what its account is here.
    pub node: Option<NodeAccount>,
    /// That node knows by the table of streams what is for them beside their own subjects.
    pub knows_by_table: bool,
    /// It leads to a node of the cluster without JetStream.
    pub is_core: bool,
    /// We have opened the connection.
    pub solicited: bool,
    /// The other side does not hear of subscriptions of other leaf nodes.
    pub isolated: bool,
    /// The other side understands headers.
    pub headers: bool,
    /// The other side takes part in traces of messages.
    traces: AtomicBool,
    /// The connection is over, or about to be: nothing goes there any more.
    is_lost: AtomicBool,
    /// Its name.
    pub remote_name: String,
    /// The cluster that it is in; empty: none.
    pub remote_cluster: String,
    /// Its JetStream domain; empty: none.
    pub remote_domain: String,
    /// The account there.
    pub remote_account: String,
    /// What a node's own messages to this one begin with; empty: no node of the cluster.
    pub token: String,
    /// Its permissions.
    pub rights: LeafRights,
    /// Listeners here by `subject` or `subject queue`, of which the other side knows.
    announced: Mutex<Announced>,
    /// Replies that were handed over and that the other side may not publish to by itself.
    handed: Mutex<Handed>,
    /// How long to wait before the connection is opened again, if not as usual.
    pause: Mutex<Option<Duration>>,
}

/// The account that a link between nodes of a cluster joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeAccount {
    /// One of clients.
    Ordinary,
    /// The system account: requests to the server itself are for each server.
    System,
}

type Announced = FxHashMap<Box<[u8]>, i64>;

/// True if JetStream itself listens on a subject: for parts of a backup, for what mirrors and sources copy, and for answers.
fn is_of_service(subject: &[u8]) -> bool {
    let prefixes: [&[u8]; 4] = [b"$JS.SNAPSHOT.", b"$JS.M.", b"$JS.S.", b"$JSC.R."];
    prefixes.iter().any(|prefix| subject.starts_with(prefix))
}

/// Who listens on a subject here, as another server is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Listener<'a> {
    /// The pattern.
    pub(crate) subject: &'a [u8],
    /// The queue group, if any.
    pub(crate) queue: Option<&'a [u8]>,
    /// How many listeners it stands for.
    pub(crate) weight: i64,
    /// The link behind which it is; `None`: a client of this server.
    pub(crate) behind: Option<&'a Link>,
    /// It is this server itself: what it imports, and answers to that.
    pub(crate) is_server: bool,
}

/// What the two sides declared in their handshake.
#[derive(Default)]
pub(crate) struct PeerFacts {
    /// What the connection is compressed with, as servers tell each other.
    pub(crate) compression: &'static str,
    pub(crate) is_spoke: bool,
    pub(crate) node: Option<NodeAccount>,
    pub(crate) knows_by_table: bool,
    pub(crate) is_core: bool,
    pub(crate) solicited: bool,
    pub(crate) isolated: bool,
    pub(crate) headers: bool,
    pub(crate) traces: Support,
    pub(crate) remote_name: String,
    pub(crate) remote_cluster: String,
    pub(crate) remote_domain: String,
    pub(crate) remote_account: String,
    pub(crate) token: String,
    pub(crate) rights: LeafRights,
}

impl Link {
    pub(crate) fn new(facts: PeerFacts) -> Self {
        Self {
            compression: facts.compression,
            is_spoke: facts.is_spoke,
            node: facts.node,
            knows_by_table: facts.knows_by_table,
            is_core: facts.is_core,
            solicited: facts.solicited,
            isolated: facts.isolated,
            headers: facts.headers,
            traces: AtomicBool::new(facts.traces == Support::Full),
            is_lost: AtomicBool::new(false),
            remote_name: facts.remote_name,
            remote_cluster: facts.remote_cluster,
            remote_domain: facts.remote_domain,
            remote_account: facts.remote_account,
            token: facts.token,
            rights: facts.rights,
            announced: Mutex::default(),
            handed: Mutex::default(),
            pause: Mutex::new(None),
        }
    }

    /// Whether the other side takes part in traces of messages.
    #[must_use]
    pub fn support(&self) -> Support {
        if self.traces.load(Ordering::Relaxed) { Support::Full } else { Support::None }
    }

    /// Nothing goes there any more, though its subscriptions may be there for a while.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The other side takes part in traces of messages.
    pub(crate) fn takes_part_in_traces(&self) {
        self.traces.store(true, Ordering::Relaxed);
    }

    /// A message with this reply subject goes to the other side.
    pub(crate) fn hand_over(&self, reply: &[u8]) {
        if is_internal_reply(reply) && !self.rights.may_take(reply) {
            self.handed.lock().note(reply);
        }
    }

    /// True if a message on this subject answers one that was handed over this link.
    #[must_use]
    pub fn was_handed(&self, subject: &[u8]) -> bool {
        is_internal_reply(subject) && self.handed.lock().holds(subject)
    }

    /// What follows the token in the subject of a message that is the node's own; `None`: it is a client's.
    #[must_use]
    pub(crate) fn own_message<'a>(&self, subject: &'a [u8]) -> Option<&'a [u8]> {
        if self.token.is_empty() {
            return None;
        }
        let rest = subject.strip_prefix(NODE_PREFIX)?.strip_prefix(self.token.as_bytes())?;
        rest.strip_prefix(b".")
    }

    /// True if both lead to the same cluster.
    #[must_use]
    pub fn same_cluster(&self, other: &Self) -> bool {
        !self.remote_cluster.is_empty() && self.remote_cluster == other.remote_cluster
    }

    /// Subjects that the other side knows of.
    #[must_use]
    pub fn announced_count(&self) -> usize {
        self.announced.lock().len()
    }

    pub(crate) fn pause_for(&self, pause: Duration) {
        *self.pause.lock() = Some(pause);
    }

    pub(crate) fn take_pause(&self) -> Option<Duration> {
        self.pause.lock().take()
    }

    /// True if the other side hears of this listener, who is not behind this link.
    fn concerns(&self, listener: &Listener<'_>) -> bool {
        if self.node == Some(NodeAccount::Ordinary)
            && listener.is_server
            && !is_internal_reply(listener.subject)
            && !is_of_service(listener.subject)
        {
            // What an account imports is applied where the client is: each node does so itself.
            return false;
        }
        let Some(other) = listener.behind else { return true };
        if std::ptr::eq(self, other) || self.same_cluster(other) {
            return false;
        }
        let stays_away = self.isolated || (self.is_spoke && other.is_spoke);
        !stays_away || listener.subject.starts_with(LOOP_PREFIX)
    }

    /// A listener has come (`delta` is how many it stands for) or gone (negative). What the other side
    /// must hear of it is given to `hand_over`, in the order of the changes.
    pub(crate) fn changed(
        &self,
        listener: &Listener<'_>,
        delta: i64,
        hand_over: impl FnOnce(Vec<u8>),
    ) {
        if !self.concerns(listener) {
            return;
        }
        self.tell(hand_over, |announced, out| {
            self.count(announced, listener.subject, listener.queue, delta, out);
        });
    }

    /// Subjects that are taken without a subscription have come or gone.
    pub(crate) fn advertised(
        &self,
        subjects: &[(Box<[u8]>, i64)],
        hand_over: impl FnOnce(Vec<u8>),
    ) {
        self.tell(hand_over, |announced, out| {
            for (subject, delta) in subjects {
                self.count(announced, subject, None, *delta, out);
            }
        });
    }

    /// The connection has joined: tells of all that is there.
    pub(crate) fn begin<'a, 'b>(
        &self,
        listeners: impl Iterator<Item = Listener<'a>>,
        advertised: impl Iterator<Item = &'b [u8]>,
        loop_subject: Option<&'b [u8]>,
        hand_over: impl FnOnce(Vec<u8>),
    ) {
        self.tell(hand_over, |announced, out| {
            let mut later = Vec::new();
            for listener in listeners.filter(|listener| self.concerns(listener)) {
                let Listener { subject, queue, weight, .. } = listener;
                self.count(announced, subject, queue, weight, &mut later);
                later.clear();
            }
            for subject in advertised.chain(loop_subject) {
                self.count(announced, subject, None, 1, &mut later);
                later.clear();
            }
            // Told once each, whatever was counted several times.
            for (key, &count) in announced.iter() {
                let (subject, queue) = split(key);
                push_leaf_subscribe(out, subject, queue.map(|queue| (queue, count.unsigned_abs())));
            }
        });
    }

    /// Counts, and hands over what the other side must hear of it: while the counts are locked, so that it
    /// goes out in their order.
    fn tell(
        &self,
        hand_over: impl FnOnce(Vec<u8>),
        count: impl FnOnce(&mut Announced, &mut Vec<u8>),
    ) {
        let mut out = Vec::new();
        let mut announced = self.announced.lock();
        count(&mut announced, &mut out);
        if !out.is_empty() {
            hand_over(out);
        }
    }

    fn count(
        &self,
        announced: &mut Announced,
        subject: &[u8],
        queue: Option<&[u8]>,
        delta: i64,
        out: &mut Vec<u8>,
    ) {
        let key = match queue {
            None => subject.to_vec(),
            Some(queue) => [subject, b" ", queue].concat(),
        };
        let before = announced.get(&key[..]).copied().unwrap_or(0);
        if before == 0 && (delta <= 0 || !self.may_announce(subject, queue)) {
            return;
        }
        let after = before + delta;
        if after > 0 {
            announced.insert(key.into_boxed_slice(), after);
            if queue.is_some() || before == 0 {
                let queue = queue.map(|queue| (queue, after.unsigned_abs()));
                push_leaf_subscribe(out, subject, queue);
            }
        } else {
            announced.remove(&key[..]);
            push_leaf_unsubscribe(out, subject, queue);
        }
    }

    fn may_announce(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        subject.starts_with(LOOP_PREFIX) || self.rights.may_announce(subject, queue)
    }
}

fn split(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b' ', key) {
        Some(at) => (&key[..at], Some(&key[at + 1..])),
        None => (key, None),
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("remote", &self.remote_name)
            .field("is_spoke", &self.is_spoke)
            .finish_non_exhaustive()
    }
}
