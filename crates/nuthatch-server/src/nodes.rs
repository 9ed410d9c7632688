//! The other nodes of this server's cluster: connections to them, and what clients are told of them.

use crate::cluster_counts::ClusterCounts;
use crate::connections::Connections;
use crate::meaning::name_hash;
use nuthatch_cluster::CORE_NODES_MAX;
use nuthatch_protocol::js::StreamConfig;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// Connections between nodes at a time: one for each account and other node.
pub const NODE_LINKS_MAX: usize = 16 * 1024;

/// Nodes that are remembered: as many as a cluster has others, with spares.
const MET_MAX: usize = 7;

/// Connections between nodes that those without JetStream may have of all.
pub const CORE_LINKS_MAX: usize = NODE_LINKS_MAX / 2;

/// The id of a node as a peer, which nats-server makes of the name.
#[must_use]
pub fn peer_id(name: &str) -> String {
    name_hash(name).into_iter().map(char::from).collect()
}

/// The other nodes of the cluster, as far as they are connected.
pub struct Nodes {
    /// Open connections: one for each account and node.
    pub connections: Connections,
    /// Closed for being too slow so far.
    pub slow_consumers: AtomicU64,
    /// Closed as stale so far.
    pub stale: AtomicU64,
    /// What was seen of the cluster.
    pub counts: ClusterCounts,
    /// The cluster's name, once this server is a node of it.
    cluster: OnceLock<String>,
    known: Mutex<BTreeMap<String, KnownNode>>,
    met: Mutex<BTreeMap<String, MetNode>>,
    /// There was another node: clients have been told of it.
    were_told: AtomicBool,
    /// Changes with the accounts of this server: each is to be connected.
    accounts: watch::Sender<u64>,
    /// Who hands quorum logs over, by their numbers.
    step_downs: Mutex<BTreeMap<u8, mpsc::Sender<StepDown>>>,
    /// Changes with what nodes tell of streams.
    tables: watch::Sender<u64>,
    memory_streams: Mutex<MemoryStreams>,
}

/// Configurations of the streams in the log in memory, by the names of their accounts.
pub type MemoryStreams = BTreeMap<String, Vec<StreamConfig>>;

/// Who is to own the next epoch of a quorum log.
pub enum Next {
    /// Any other node that has everything.
    Any,
    /// The node of this name.
    Node(String),
    /// Its owner, with the keepers that the log is to have then.
    Itself,
}

/// An epoch of a quorum log is to end, once the log is closed.
pub struct StepDown {
    /// Who is to follow.
    pub next: Next,
    /// Hears whether that was done.
    pub done: oneshot::Sender<bool>,
}

/// A node that is connected, or was until a moment ago.
#[derive(Default)]
struct KnownNode {
    /// Where it takes clients.
    urls: Vec<String>,
    /// Its node port, if it is a node without JetStream.
    core_port: Option<SocketAddr>,
    /// Connections to it of each account: one, or two while a newer one takes the place of an older.
    links: BTreeMap<String, usize>,
    /// How often it has had none.
    gone: u64,
}

/// A node that was connected once.
#[derive(Clone, Copy)]
struct MetNode {
    is_connected: bool,
    /// Since when that is so.
    since: Instant,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            connections: Connections::new(0),
            slow_consumers: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            counts: ClusterCounts::default(),
            cluster: OnceLock::new(),
            known: Mutex::default(),
            met: Mutex::default(),
            were_told: AtomicBool::new(false),
            accounts: watch::Sender::new(0),
            step_downs: Mutex::default(),
            tables: watch::Sender::new(0),
            memory_streams: Mutex::default(),
        }
    }
}

impl Nodes {
    /// The cluster's name; `None`: this server is alone, or has not found its cluster yet.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.get().map(String::as_str)
    }

    /// Names the cluster; only the first call has an effect.
    pub fn set_cluster(&self, name: &str) {
        let _ = self.cluster.set(name.to_owned());
    }

    /// Who hands a quorum log over from now on.
    pub(crate) fn take_step_downs(&self, log: u8, taker: mpsc::Sender<StepDown>) {
        self.step_downs.lock().insert(log, taker);
    }

    /// Has a quorum log handed over that this node owns. What is returned hears whether that was done; it ends without a
    /// value if the node does not own it. `None`: there is no such log, or it is being handed over.
    #[must_use]
    pub fn step_down(&self, log: u8, to: Option<String>) -> Option<oneshot::Receiver<bool>> {
        self.end_epoch(log, to.map_or(Next::Any, Next::Node))
    }

    /// Has a quorum log that this node owns closed, and taken over by this node itself with the keepers that it is to have.
    /// What is returned hears as that of [`Nodes::step_down`].
    pub(crate) fn change_set(&self, log: u8) -> Option<oneshot::Receiver<bool>> {
        self.end_epoch(log, Next::Itself)
    }

    fn end_epoch(&self, log: u8, next: Next) -> Option<oneshot::Receiver<bool>> {
        let (done, hears) = oneshot::channel();
        let step_downs = self.step_downs.lock();
        step_downs.get(&log)?.try_send(StepDown { next, done }).ok()?;
        Some(hears)
    }

    /// A node has told something of streams, or this one has.
    pub(crate) fn tables_changed(&self) {
        self.tables.send_modify(|version| *version += 1);
    }

    /// Hears of that.
    pub(crate) fn table_changes(&self) -> watch::Receiver<u64> {
        self.tables.subscribe()
    }

    /// The streams in the log in memory, as far as this node knows them: they are what comes back when it begins anew.
    #[must_use]
    pub fn memory_streams(&self) -> MemoryStreams {
        self.memory_streams.lock().clone()
    }

    /// True if the log in memory has streams of the account of this name, as far as this node knows.
    pub fn has_memory_streams(&self, account: &str) -> bool {
        self.memory_streams.lock().get(account).is_some_and(|streams| !streams.is_empty())
    }

    pub(crate) fn set_memory_streams(&self, streams: MemoryStreams) {
        *self.memory_streams.lock() = streams;
    }

    /// Accounts of this server have come or gone.
    pub(crate) fn accounts_changed(&self) {
        self.accounts.send_modify(|version| *version += 1);
    }

    /// Hears of accounts that come and go.
    pub(crate) fn account_changes(&self) -> watch::Receiver<u64> {
        self.accounts.subscribe()
    }

    /// The names of the nodes that were connected since the start, in order.
    #[must_use]
    pub fn met(&self) -> Vec<String> {
        self.met.lock().keys().cloned().collect()
    }

    fn note(&self, node: &str, is_connected: bool) {
        let mut met = self.met.lock();
        if met.len() >= MET_MAX
            && !met.contains_key(node)
            && let Some(oldest) = met
                .iter()
                .filter(|(_, met)| !met.is_connected)
                .min_by_key(|(_, met)| met.since)
                .map(|(name, _)| name.clone())
        {
            met.remove(&oldest);
        }
        let now = MetNode { is_connected, since: Instant::now() };
        if met.len() < MET_MAX || met.contains_key(node) {
            met.insert(node.to_owned(), now);
        }
    }

    /// An account's connection to a node has joined, which has no JetStream if its node port is given. `true`: clients are to
    /// be told other addresses than before.
    pub(crate) fn joined(
        &self,
        node: &str,
        account: &str,
        urls: &[String],
        core_port: Option<SocketAddr>,
    ) -> bool {
        let mut known = self.known.lock();
        let known = known.entry(node.to_owned()).or_default();
        if known.links.is_empty() && core_port.is_none() {
            self.note(node, true);
        }
        known.core_port = core_port;
        *known.links.entry(account.to_owned()).or_default() += 1;
        if known.urls == urls {
            return false;
        }
        known.urls = urls.to_vec();
        self.were_told.store(true, Ordering::Relaxed);
        true
    }

    /// A connection that has joined is over. If it was the last one, [`Nodes::forget`] is to be called with what is
    /// returned, unless the node comes back soon.
    ///
    /// # Panics
    /// No such connection has joined.
    pub(crate) fn left(&self, node: &str, account: &str) -> Option<u64> {
        let mut known = self.known.lock();
        let known = known.get_mut(node).expect("it has joined");
        let links = known.links.get_mut(account).expect("it has joined");
        *links -= 1;
        if *links == 0 {
            known.links.remove(account);
        }
        if known.links.is_empty() {
            known.gone += 1;
            if known.core_port.is_none() {
                self.note(node, false);
            }
        }
        known.links.is_empty().then_some(known.gone)
    }

    /// Forgets a node that has not come back since. `true`: clients are to be told other addresses than before.
    pub(crate) fn forget(&self, node: &str, gone: u64) -> bool {
        let mut known = self.known.lock();
        let is_gone =
            known.get(node).is_some_and(|known| known.links.is_empty() && known.gone == gone);
        is_gone && known.remove(node).is_some_and(|known| !known.urls.is_empty())
    }

    /// A node is about to end and takes no new clients. `true`: clients are to be told other addresses than before.
    pub(crate) fn is_leaving(&self, node: &str) -> bool {
        let mut known = self.known.lock();
        known.get_mut(node).is_some_and(|known| !std::mem::take(&mut known.urls).is_empty())
    }

    /// Node ports of the nodes without JetStream that are connected.
    #[must_use]
    pub fn core_ports(&self) -> Vec<SocketAddr> {
        let known = self.known.lock();
        known.values().filter_map(|known| known.core_port).filter(|port| port.port() != 0).collect()
    }

    /// True if a node of this name is connected that has JetStream.
    pub(crate) fn is_keeper(&self, node: &str) -> bool {
        let known = self.known.lock();
        known.get(node).is_some_and(|known| known.core_port.is_none() && !known.links.is_empty())
    }

    /// True if any node is connected that has JetStream.
    #[must_use]
    pub fn has_keeper(&self) -> bool {
        let known = self.known.lock();
        known.values().any(|known| known.core_port.is_none() && !known.links.is_empty())
    }

    /// True if the node of this name, which has no JetStream, may connect: it is connected, or there are not too many.
    pub(crate) fn has_room_for_core(&self, node: &str) -> bool {
        let known = self.known.lock();
        let count = known.values().filter(|known| known.core_port.is_some()).count();
        known.get(node).is_some_and(|known| known.core_port.is_some()) || count < CORE_NODES_MAX
    }

    /// True if the account of this name is connected to a node.
    pub(crate) fn is_linked(&self, node: &str, account: &str) -> bool {
        self.known.lock().get(node).is_some_and(|known| known.links.contains_key(account))
    }

    /// True if clients have been told of another node, which may be gone.
    #[must_use]
    pub fn were_told(&self) -> bool {
        self.were_told.load(Ordering::Relaxed)
    }

    /// Where the other nodes take clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.known.lock().values().flat_map(|known| known.urls.iter().cloned()).collect()
    }

    /// How many nodes are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.known.lock().values().filter(|known| !known.links.is_empty()).count()
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("links", &self.connections.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_of_once_and_forgotten_when_it_stays_away() {
        let nodes = Nodes::default();
        let urls = ["127.0.0.1:4222".to_owned()];
        assert!(nodes.joined("n2", "A", &urls, None) && !nodes.joined("n2", "A", &urls, None));
        assert_eq!(nodes.left("n2", "A"), None, "one connection is left");
        let gone = nodes.left("n2", "A").expect("the last one");
        assert!(!nodes.joined("n2", "A", &urls, None), "it is back in time");
        assert!(!nodes.forget("n2", gone), "and stays");
        assert!(nodes.is_leaving("n2") && !nodes.is_leaving("n2") && !nodes.is_leaving("n3"));
        assert!(
            nodes.urls().is_empty() && nodes.joined("n2", "A", &urls, None),
            "it was not the last word"
        );
        assert_eq!(nodes.left("n2", "A"), None, "one connection is left");
        let again = nodes.left("n2", "A").expect("the last one");
        assert_ne!(gone, again);
        assert!(!nodes.forget("n2", gone) && nodes.forget("n2", again));
        assert_eq!(nodes.urls(), Vec::<String>::new());
        let more = ["n4", "n5", "n6", "n7", "n8", "n9", "o1"];
        for node in more {
            nodes.joined(node, "A", &urls, None);
        }
        assert_eq!(nodes.met(), more, "the one that is gone makes room");
    }

    #[test]
    fn nodes_without_jetstream_are_known_while_they_are_there_and_not_remembered() {
        let nodes = Nodes::default();
        let port: SocketAddr = ([127, 0, 0, 1], 6222).into();
        for at in 0..CORE_NODES_MAX {
            let name = format!("edge{at}");
            assert!(nodes.has_room_for_core(&name));
            nodes.joined(&name, "A", &[], Some(port));
        }
        assert!(nodes.has_room_for_core("edge0") && !nodes.has_room_for_core("another"));
        assert_eq!((nodes.core_ports().len(), nodes.met()), (CORE_NODES_MAX, vec![]));
        let gone = nodes.left("edge0", "A").expect("its only connection");
        nodes.forget("edge0", gone);
        assert!(nodes.has_room_for_core("another") && nodes.met().is_empty());
    }
}
