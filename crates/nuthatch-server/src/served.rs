//! Streams of an account that other nodes of the cluster serve, and questions between nodes.
//!
//! Each node tells each other one, over the account's link, which streams it serves: all of them once the link has
//! joined, and what changes from then on. The table of a node is *complete* once all of the first telling is there. With
//! it the service knows where a call goes, and who decides about new streams knows all names and subjects.
//!
//! What nodes say to each other beside clients' messages goes under subjects `$NODE.<token>.…`. Each side of a link
//! draws a token and tells it to the other side only, in an INFO, so no client's message is taken for a node's.

use self::known::Known;
use self::table::NodeTable;
use crate::logs::QUORUM_MEMORY_LOG;
use crate::logs::is_quorum_log;
use crate::outlet::Outlet;
use bytes::Bytes;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

mod between;
mod gets;
mod known;
mod offline;
mod state;
mod stream;
mod stream_set;
mod table;

pub(crate) use between::{BETWEEN_MAX, Held};
pub(crate) use gets::{NodeGets, StreamOwner};
pub(crate) use table::message_of_node;

pub use offline::{LogKey, OFFLINE_STREAMS_MAX, Offline, StreamsOfLog};
pub use state::{NodeState, OwnLog};
pub use stream::{OwnStream, ServedStream};

/// Characters of a link's token.
pub(crate) const TOKEN_CHARS: usize = 22;

/// Streams of one account and node in its table; a node with more stays incomplete, and says so.
pub const TABLE_STREAMS_MAX: usize = 1 << 20;

/// Questions of an account to other nodes that are open at a time.
pub const QUESTIONS_MAX: usize = 16 * 1024;

/// How long a change of streams waits until the other nodes have it in their tables.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How a question is to be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// As a client's.
    Cluster,
    /// By what the node serves itself, without asking others.
    Node,
    /// A new stream that was checked, for this log of the node.
    Log(String),
}

/// Who decides about new streams of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This node.
    Here,
    /// The node of this name.
    At(String),
    /// No node, as far as is known.
    Nobody,
}

/// How the streams that a node serves have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TableChange {
    /// What it told before counts no more.
    pub(crate) is_first: bool,
    /// Names of streams that have come, or are told of again.
    pub(crate) come: Vec<Arc<str>>,
    /// Names of those that have gone; before any comes.
    pub(crate) gone: Vec<String>,
    /// All of its streams have been told by now.
    pub(crate) is_complete: bool,
}

/// A message of another node that is none of a client.
pub(crate) enum NodeMessage<'a> {
    /// A part of its table, and how that changes which streams it serves.
    Table(TableChange),
    /// An answer, or a question that was answered.
    Taken,
    /// A question: its number, its scope, and the call.
    Question { id: u64, scope: Scope, call: &'a str },
    /// Not understood.
    Unknown,
}

type Answered = oneshot::Sender<Option<Bytes>>;

/// What an account knows of other nodes.
pub struct Served {
    inner: Mutex<Known>,
    changes: watch::Sender<u64>,
    /// Whether any stream may lack its owner, and how much waits for one.
    lacks_any: Arc<AtomicBool>,
    held_bytes: AtomicUsize,
}

impl Default for Served {
    fn default() -> Self {
        let known = Known::default();
        let lacks_any = Arc::clone(&known.between.any);
        Self {
            inner: Mutex::new(known),
            changes: watch::Sender::new(0),
            lacks_any,
            held_bytes: AtomicUsize::new(0),
        }
    }
}

impl Served {
    /// A link with a node has joined, which takes what has this token: it is told of everything with the next
    /// [`Served::tell`]. What was told last is not enough: nobody was told while there were no nodes.
    pub(crate) fn met(&self, (node, is_core): (&str, bool), outlet: &Arc<Outlet>, token: &str) {
        let mut inner = self.inner.lock();
        inner.questions.retain(|_, (asked, _)| asked != node);
        let mut table = NodeTable::new(outlet.clone(), token);
        table.is_core = is_core;
        inner.remember(node);
        inner.lacks_all_of(node);
        inner.nodes.insert(node.to_owned(), table);
        drop(inner);
        self.changed();
    }

    /// A link is over: what it told counts no more, and nothing that was asked over it is answered.
    pub(crate) fn left(&self, node: &str, outlet: &Arc<Outlet>) {
        let mut inner = self.inner.lock();
        if !inner.nodes.get(node).is_some_and(|table| Arc::ptr_eq(&table.outlet, outlet)) {
            return;
        }
        inner.remember(node);
        inner.lacks_all_of(node);
        inner.nodes.remove(node);
        inner.questions.retain(|_, (asked, _)| asked != node);
        drop(inner);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Hears of changes of tables.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// True if a link with another node has joined.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.inner.lock().nodes.is_empty()
    }

    /// Tells the other nodes what this one says of itself, and which streams have come or changed here, and have gone; `all`
    /// gives all of them, for nodes that were told nothing yet.
    pub(crate) fn tell(
        &self,
        state: NodeState,
        come: &[OwnStream],
        gone: Vec<String>,
        all: impl Fn() -> Vec<OwnStream>,
    ) {
        let mut inner = self.inner.lock();
        inner.note_in_memory(come, &gone);
        inner.between.are_owned(&state.logs);
        for stream in come.iter().filter(|stream| is_quorum_log(&stream.log)) {
            inner.forget_offline_stream(&stream.config.name);
        }
        let back = state.own_logs.iter().filter(|log| inner.offline.is_here(log.identity)).count();
        inner.remembered += u64::from(back > 0);
        if inner.nodes.is_empty() {
            return;
        }
        let is_new = !come.is_empty() || !gone.is_empty() || inner.state != state;
        inner.note_own_logs(&state);
        inner.state = state;
        let as_of_ms = inner.next_as_of();
        let Known { state, nodes, offline, .. } = &mut *inner;
        for table in nodes.values_mut() {
            if !std::mem::replace(&mut table.is_told, true) {
                table.tell((state, as_of_ms), &all(), Vec::new(), Some(&offline.all()));
            } else if is_new {
                table.tell((state, as_of_ms), come, gone.clone(), None);
            }
        }
        if !is_new {
            return;
        }
        drop(inner);
        self.changed();
    }

    /// Tells the other nodes how many clients and leaf nodes of the account are connected here.
    pub(crate) fn tell_connected(&self, (connections, leafs): (usize, usize)) {
        let mut inner = self.inner.lock();
        let state = &mut inner.state;
        if (state.connections, state.leafs) == (connections, leafs) {
            return;
        }
        (state.connections, state.leafs) = (connections, leafs);
        let as_of_ms = inner.next_as_of();
        let Known { state, nodes, .. } = &*inner;
        // The others hear of it with the first that they are told.
        for table in nodes.values().filter(|table| table.is_told) {
            table.tell((state, as_of_ms), &[], Vec::new(), None);
        }
    }

    /// Takes a message of a node whose subject goes on with `what` behind the token.
    pub(crate) fn receive<'a>(&self, node: &str, what: &'a [u8], body: &[u8]) -> NodeMessage<'a> {
        let Ok(text) = std::str::from_utf8(what) else { return NodeMessage::Unknown };
        if let Some(table) = self.inner.lock().nodes.get_mut(node) {
            table.is_late = false;
        }
        let mut parts = text.splitn(4, '.');
        let (kind, id) = (parts.next().unwrap_or_default(), parts.next());
        let id = id.and_then(|id| id.parse::<u64>().ok());
        match (kind, id) {
            ("T", None) => {
                // Read before the lock is taken: there may be much of it.
                let Ok(told) = serde_json::from_slice(body) else { return NodeMessage::Unknown };
                let change = self.inner.lock().take(node, told);
                match change {
                    None => NodeMessage::Unknown,
                    Some(None) => NodeMessage::Taken,
                    Some(Some(change)) => {
                        self.changed();
                        NodeMessage::Table(change)
                    }
                }
            }
            ("B", Some(id)) => {
                self.answer(node, id, Some(b""));
                NodeMessage::Taken
            }
            ("A" | "N", Some(id)) => {
                let asked = self.inner.lock().questions.remove(&id);
                if let Some((_, answered)) = asked {
                    // Nobody waits any more for what came too late.
                    let body = (kind == "A").then(|| Bytes::copy_from_slice(body));
                    let _ = answered.send(body);
                }
                NodeMessage::Taken
            }
            ("Q", Some(id)) => match (parts.next().and_then(scope_of), parts.next()) {
                (Some(scope), Some(call)) => NodeMessage::Question { id, scope, call },
                _ => NodeMessage::Unknown,
            },
            _ => NodeMessage::Unknown,
        }
    }

    /// Answers a question of a node, if it is connected still.
    pub(crate) fn answer(&self, node: &str, id: u64, answer: Option<&[u8]>) {
        if let Some(table) = self.inner.lock().nodes.get(node) {
            let kind = if answer.is_some() { "A" } else { "N" };
            table.send(&format!("{kind}.{id}"), b"", answer.unwrap_or_default());
        }
    }
}

const CLUSTER: &str = "c";
const NODE: &str = "n";
const LOG: &str = "l-";

fn scope_of(text: &str) -> Option<Scope> {
    match text {
        CLUSTER => Some(Scope::Cluster),
        NODE => Some(Scope::Node),
        _ => text.strip_prefix(LOG).map(|log| Scope::Log(log.to_owned())),
    }
}

fn text_of(scope: &Scope) -> String {
    match scope {
        Scope::Cluster => CLUSTER.to_owned(),
        Scope::Node => NODE.to_owned(),
        Scope::Log(log) => format!("{LOG}{log}"),
    }
}

impl Served {
    /// Who decides about new streams.
    #[must_use]
    pub fn leader(&self) -> Leader {
        self.inner.lock().leader()
    }

    /// The node that serves the stream of this name, and what it told of it: of several the one that has told it last. A
    /// former owner that hangs does not say that it is none any more.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(String, Arc<ServedStream>)> {
        let inner = self.inner.lock();
        let (node, _, stream) = inner.newest(name)?;
        Some((node.to_owned(), stream.clone()))
    }

    /// Connected nodes that may serve streams, what they say of themselves, and whether their tables are complete. A
    /// quorum log is that node's which has said last that it has it: a former owner that hangs says nothing.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, NodeState, bool)> {
        let inner = self.inner.lock();
        let nodes = inner.nodes.iter().filter(|(_, table)| !table.is_core);
        let seen = nodes.map(|(name, table)| {
            let mut state = table.state.clone();
            state.logs.retain(|log| inner.has_last(table, log));
            (name.clone(), state, table.is_complete)
        });
        seen.collect()
    }

    /// At most `max` streams of each other node whose names come behind `after`, by name; behind them those that are offline.
    #[must_use]
    pub fn part(&self, after: Option<&str>, max: usize) -> Vec<(String, Vec<Arc<ServedStream>>)> {
        let inner = self.inner.lock();
        let nodes =
            inner.nodes.iter().map(|(node, table)| (node.clone(), table.streams.part(after, max)));
        nodes.chain(inner.offline.part(after, max)).collect()
    }

    /// Where the stream of this name was, if it is offline; `None`: it is served, or there is none.
    #[must_use]
    pub fn offline(&self, name: &str) -> Option<Offline> {
        let inner = self.inner.lock();
        if inner.nodes.values().any(|table| table.streams.has(name)) {
            return None;
        }
        let (node, log) = inner.offline.find(name)?;
        let is_connected = inner.nodes.contains_key(node);
        Some(Offline { node: node.to_owned(), log: log.to_owned(), is_connected })
    }

    /// The logs whose streams are offline.
    #[must_use]
    pub fn offline_logs(&self) -> Vec<LogKey> {
        self.inner.lock().offline.logs()
    }

    /// As [`Served::overlaps`], of the streams of a log that are offline.
    pub fn overlaps_offline(
        &self,
        log: &LogKey,
        search: &mut OverlapSearch<'_>,
        steps: &mut usize,
        except: &str,
    ) -> SearchOutcome {
        self.inner.lock().offline.overlaps(log, search, steps, except)
    }

    /// What is remembered of streams that are offline.
    #[must_use]
    pub fn offline_streams(&self) -> Vec<StreamsOfLog> {
        self.inner.lock().offline.all()
    }

    /// Of how many more there was no room.
    pub(crate) fn offline_left_out(&self) -> usize {
        self.inner.lock().offline.left_out()
    }

    /// Changes with [`Served::to_remember`].
    pub(crate) fn remembered(&self) -> u64 {
        self.inner.lock().remembered
    }

    /// All that this node is to know of streams in logs of just one other node after a start: by node.
    pub(crate) fn to_remember(&self) -> Vec<StreamsOfLog> {
        let inner = self.inner.lock();
        let mut all = inner.offline.all();
        let of_nodes = inner.nodes.keys().flat_map(|node| inner.own_streams_of(node));
        // One that is told of again just now is known as it was.
        all.extend(of_nodes.filter(|log| !inner.offline.knows(log.identity)));
        all.sort_by(|one, other| (&one.node, one.identity).cmp(&(&other.node, other.identity)));
        all
    }

    /// What was remembered before a start.
    pub(crate) fn learn(&self, logs: Vec<StreamsOfLog>) {
        if self.inner.lock().learn(logs.into_iter()) {
            self.changed();
        }
    }

    /// Gives up what is known of streams that are offline with this node: their names and subjects are free. The connected
    /// nodes hear of it.
    pub(crate) fn forget_offline(&self, node: &str) {
        let mut inner = self.inner.lock();
        inner.offline.give_up(node);
        inner.remembered += 1;
        let given_up = inner.offline.all();
        let of_node: Vec<StreamsOfLog> =
            given_up.into_iter().filter(|log| log.node == node).collect();
        let as_of_ms = inner.next_as_of();
        for table in inner.nodes.values().filter(|table| table.is_told) {
            table.tell_offline((&inner.state, as_of_ms), &of_node);
        }
        drop(inner);
        self.changed();
    }

    /// Configurations of the streams in the log in memory, by name, as the node that serves it tells; `None`: none does.
    pub(crate) fn memory_streams(&self) -> Option<Vec<StreamConfig>> {
        let inner = self.inner.lock();
        let serves = |state: &NodeState| state.logs.iter().any(|log| log == QUORUM_MEMORY_LOG);
        if serves(&inner.state) {
            return Some(inner.in_memory.values().map(|config| (**config).clone()).collect());
        }
        let table = inner.nodes.values().find(|table| table.is_complete && serves(&table.state))?;
        Some(table.in_memory())
    }

    /// How many clients and leaf nodes of the account are connected to other nodes, as far as those tell.
    #[must_use]
    pub fn connected_elsewhere(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let states = inner.nodes.values().map(|table| &table.state);
        states.fold((0, 0), |(clients, leafs), state| {
            (clients.saturating_add(state.connections), leafs.saturating_add(state.leafs))
        })
    }

    /// How many streams other nodes serve, or had when they went.
    #[must_use]
    pub fn count(&self) -> usize {
        let inner = self.inner.lock();
        let served: usize = inner.nodes.values().map(|table| table.streams.len()).sum();
        served + inner.offline.count()
    }

    /// How many streams a node serves in a log.
    #[must_use]
    pub fn count_in(&self, node: &str, log: &str) -> usize {
        let inner = self.inner.lock();
        inner.nodes.get(node).and_then(|table| table.in_logs.get(log)).copied().unwrap_or_default()
    }

    /// Bytes that streams of this storage reserve at other nodes, but for the stream of the name `except`.
    #[must_use]
    pub fn reserved(&self, is_memory: bool, except: &str) -> u64 {
        let inner = self.inner.lock();
        let of_node = |table: &NodeTable| table.streams.reserved(is_memory, except);
        let served: u128 = inner.nodes.values().map(of_node).sum();
        let all = served + inner.offline.reserved(is_memory, except);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Looks for a stream of a node, other than that of the name `except`, with subjects that the search is for, in at
    /// most so many `steps`.
    pub fn overlaps(
        &self,
        node: &str,
        search: &mut OverlapSearch<'_>,
        steps: &mut usize,
        except: &str,
    ) -> SearchOutcome {
        let inner = self.inner.lock();
        let Some(table) = inner.nodes.get(node) else { return SearchOutcome::Nothing };
        table.streams.overlaps(search, steps, except)
    }

    /// Hands a call on to a node. What is returned gets its answer, `None` within if there is none; it ends without a
    /// value if the link does. `None`: the node is not connected, or too much is asked already.
    pub fn ask(
        &self,
        node: &str,
        scope: &Scope,
        (call, headers, body): (&str, &[u8], &[u8]),
    ) -> Option<oneshot::Receiver<Option<Bytes>>> {
        let mut inner = self.inner.lock();
        if !inner.nodes.contains_key(node) {
            return None;
        }
        let (id, answer) = inner.question(node)?;
        let what = format!("Q.{id}.{}.{call}", text_of(scope));
        inner.nodes[node].send(&what, headers, body);
        Some(answer)
    }

    /// Sends a client's direct get to a node that has a mirror of a stream which nobody has; `false`: there is none.
    pub(crate) fn hand_to_mirror(
        &self,
        origin: &str,
        (subject, reply): (&[u8], &[u8]),
        headers: &[u8],
        body: &[u8],
    ) -> bool {
        let inner = self.inner.lock();
        let Some(table) = inner.nodes.values().find(|table| table.mirrors(origin)) else {
            return false;
        };
        table.send_as((subject, reply), headers, body);
        true
    }

    /// Sends a client's message to the node that decides about new streams, which knows where it goes on; `false`: there is
    /// none.
    pub(crate) fn hand_to_leader(
        &self,
        (subject, reply): (&[u8], &[u8]),
        headers: &[u8],
        body: &[u8],
    ) -> bool {
        let inner = self.inner.lock();
        let Leader::At(node) = inner.leader() else { return false };
        inner.nodes[&node].send_as((subject, reply), headers, body);
        true
    }

    /// Another node than this one that has a quorum log, and has told of its streams.
    #[must_use]
    pub fn other_with(&self, node: &str, log: &str) -> Option<String> {
        let inner = self.inner.lock();
        let mut others = inner.nodes.iter().filter(|(name, table)| {
            *name != node
                && table.is_complete
                && table.state.logs.iter().any(|known| known == log)
                && inner.has_last(table, log)
        });
        others.next().map(|(name, _)| name.clone())
    }

    /// Asks a node for a sign of life; `false`: there is none within this time. A link that has ended is one: what was asked
    /// over it has ended, too.
    pub async fn is_alive(&self, node: &str, within: Duration) -> bool {
        let asked = {
            let mut inner = self.inner.lock();
            if !inner.nodes.contains_key(node) {
                return true;
            }
            let asked = inner.question(node);
            asked.inspect(|(id, _)| inner.nodes[node].send(&format!("B.{id}"), b"", b""))
        };
        // So much is asked that is not answered.
        let Some((id, answer)) = asked else { return false };
        let is_alive = timeout(within, answer).await.is_ok();
        self.inner.lock().questions.remove(&id);
        is_alive
    }

    /// Waits until all connected nodes have taken what they were told so far; not for those that do not answer in
    /// time, or did not the last time, nor for those that go.
    pub async fn until_known(&self) {
        let waiting: Vec<_> = {
            let mut inner = self.inner.lock();
            let nodes = inner.nodes.iter().filter(|(_, table)| !table.is_late);
            let names: Vec<String> = nodes.map(|(name, _)| name.clone()).collect();
            let begin = |node: String| {
                let (id, answer) = inner.question(&node)?;
                inner.nodes[&node].send(&format!("B.{id}"), b"", b"");
                Some((node, id, answer))
            };
            names.into_iter().filter_map(begin).collect()
        };
        let late = Instant::now() + KNOWN_WITHIN;
        for (node, id, answer) in waiting {
            // A node that has gone is told everything when it is back.
            if timeout_at(late, answer).await.is_err() {
                self.is_late(&node, id);
            }
        }
    }

    /// A node does not answer: nobody waits for it any more until it says something.
    fn is_late(&self, node: &str, question: u64) {
        let mut inner = self.inner.lock();
        // It may have answered just now.
        let is_open = inner.questions.remove(&question).is_some();
        if let Some(table) = inner.nodes.get_mut(node).filter(|_| is_open) {
            table.is_late = true;
        }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = self.inner.lock().nodes.len();
        f.debug_struct("Served").field("nodes", &nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
