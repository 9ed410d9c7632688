//! The subscriptions of an account: from a literal subject to everyone who wants it.
//!
//! A trie of tokens in one arena. Children are found through a single hash table keyed by (parent,
//! token), so a node costs the same 56 bytes whether it has one child or a hundred thousand, and a
//! match costs one probe per token plus one per `*` branch. Values are generic: the server keeps
//! its own table of subscriptions and stores small handles here.

mod overlap;
mod queues;
mod result;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

use super::compact::CompactBytes;
use super::{ANY_TAIL, ANY_TOKEN, Tokens, has_empty_token, tokens};
pub use overlap::{OverlapSearch, SearchOutcome};
pub use queues::QueueId;
use queues::QueueNames;
pub use result::MatchResult;
use result::Subscribers;

/// No node, no subscribers.
const NIL: u32 = u32::MAX;
/// The node of no tokens; it is never removed.
const ROOT: u32 = 0;

/// A tree with room for fewer nodes keeps it.
const SHRINK_FROM_NODES: usize = if cfg!(test) { 16 } else { 4096 };
/// Memory is given back when less than this share of the nodes is in use.
const SHRINK_SHARE: usize = 8;

/// One token of one or more patterns.
struct Node {
    token: CompactBytes,
    parent: u32,
    /// Head of the list of literal children; also links the free list.
    first_child: u32,
    next_sibling: u32,
    prev_sibling: u32,
    /// The child `*`.
    any_token: u32,
    /// The child `>`.
    any_tail: u32,
    /// Index into the subscribers of patterns that end here.
    subscribers: u32,
}

impl Node {
    fn new(token: &[u8], parent: u32) -> Self {
        Self {
            token: CompactBytes::new(token),
            parent,
            first_child: NIL,
            next_sibling: NIL,
            prev_sibling: NIL,
            any_token: NIL,
            any_tail: NIL,
            subscribers: NIL,
        }
    }

    fn is_unused(&self) -> bool {
        [self.first_child, self.any_token, self.any_tail, self.subscribers] == [NIL; 4]
    }
}

/// How a node hangs on its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Literal,
    AnyToken,
    AnyTail,
}

/// Patterns with plain and queue subscriptions, each holding a `T`.
///
/// Patterns are not validated; a `>` that is not last counts as a literal token. The same value
/// may be inserted more than once. There are no locks: share it behind one, or copy results out.
pub struct SubjectTree<T> {
    nodes: Vec<Node>,
    /// Nodes in use.
    live_nodes: usize,
    free_node: u32,
    children: HashTable<u32>,
    subscribers: Vec<Subscribers<T>>,
    free_subscribers: Vec<u32>,
    queues: QueueNames,
    hasher: FixedState,
    len: usize,
    /// Insertions and removals so far: places in the tree mean something until the next one.
    changes: u64,
}

impl<T> Default for SubjectTree<T> {
    fn default() -> Self {
        Self::with_seed(0)
    }
}

impl<T> SubjectTree<T> {
    /// An empty tree. `seed` keys the hash against chosen collisions; equal seeds behave equally.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            nodes: vec![Node::new(b"", NIL)],
            live_nodes: 1,
            free_node: NIL,
            children: HashTable::new(),
            subscribers: Vec::new(),
            free_subscribers: Vec::new(),
            queues: QueueNames::default(),
            hasher: FixedState::with_seed(seed),
            len: 0,
            changes: 0,
        }
    }

    /// How many subscriptions there are, plain and queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there no subscriptions?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many distinct queue group names are in use.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The name of a queue group that has a subscription; empty for an id out of use.
    #[must_use]
    pub fn queue_name(&self, id: QueueId) -> &[u8] {
        self.queues.name(id)
    }

    /// An estimate of the memory held, in bytes, without what the values themselves point to.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let tokens: usize = self.nodes.iter().map(|node| node.token.heap_bytes()).sum();
        let lists: usize = self.subscribers.iter().map(Subscribers::heap_bytes).sum();
        self.nodes.capacity() * size_of::<Node>()
            + self.children.allocation_size()
            + self.subscribers.capacity() * size_of::<Subscribers<T>>()
            + tokens
            + lists
    }

    /// Adds a subscription to `pattern`, as a member of the group `queue` if given.
    pub fn insert(&mut self, pattern: &[u8], queue: Option<&[u8]>, value: T) {
        let mut node = ROOT;
        let mut rest = tokens(pattern);
        while let Some(token) = rest.next() {
            node = self.child_or_insert(node, token, rest.rest().is_none());
        }
        let queue = queue.map(|name| self.queues.acquire(name));
        let slot = self.subscribers_slot(node);
        self.subscribers[slot].push(queue, value);
        self.len += 1;
        self.changes += 1;
    }

    fn subscribers_slot(&mut self, node: u32) -> usize {
        let existing = self.nodes[node as usize].subscribers;
        if existing != NIL {
            return existing as usize;
        }
        let slot = self.free_subscribers.pop().unwrap_or_else(|| {
            self.subscribers.push(Subscribers::default());
            self.subscribers.len() as u32 - 1
        });
        self.nodes[node as usize].subscribers = slot;
        slot as usize
    }

    /// Takes away one subscription equal to `value`; returns it, or `None` if there is none.
    pub fn remove(&mut self, pattern: &[u8], queue: Option<&[u8]>, value: &T) -> Option<T>
    where
        T: PartialEq,
    {
        let node = self.find_pattern(pattern)?;
        let queue = match queue {
            Some(name) => Some(self.queues.find(name)?),
            None => None,
        };
        let slot = self.nodes[node as usize].subscribers;
        let subscribers = self.subscribers.get_mut(slot as usize)?;
        let removed = subscribers.remove(queue, value)?;
        self.changes += 1;
        if subscribers.is_empty() {
            *subscribers = Subscribers::default();
            self.free_subscribers.push(slot);
            self.nodes[node as usize].subscribers = NIL;
            self.prune(node);
            self.give_back();
        }
        if let Some(id) = queue {
            self.queues.release(id);
        }
        self.len -= 1;
        Some(removed)
    }

    /// The node where exactly `pattern` ends.
    fn find_pattern(&self, pattern: &[u8]) -> Option<u32> {
        let mut node = ROOT;
        let mut rest = tokens(pattern);
        while let Some(token) = rest.next() {
            node = match edge(token, rest.rest().is_none()) {
                Edge::Literal => self.literal_child(node, token)?,
                Edge::AnyToken => self.nodes[node as usize].any_token,
                Edge::AnyTail => self.nodes[node as usize].any_tail,
            };
            if node == NIL {
                return None;
            }
        }
        Some(node)
    }

    #[inline]
    fn hash(hasher: &FixedState, parent: u32, token: &[u8]) -> u64 {
        let mut state = hasher.build_hasher();
        state.write_u32(parent);
        state.write(token);
        state.finish()
    }

    #[inline]
    fn literal_child(&self, parent: u32, token: &[u8]) -> Option<u32> {
        let hash = Self::hash(&self.hasher, parent, token);
        let is_it = |&id: &u32| {
            let node = &self.nodes[id as usize];
            node.parent == parent && node.token.as_slice() == token
        };
        self.children.find(hash, is_it).copied()
    }

    fn child_or_insert(&mut self, parent: u32, token: &[u8], last: bool) -> u32 {
        let edge = edge(token, last);
        let existing = match edge {
            Edge::Literal => self.literal_child(parent, token).unwrap_or(NIL),
            Edge::AnyToken => self.nodes[parent as usize].any_token,
            Edge::AnyTail => self.nodes[parent as usize].any_tail,
        };
        if existing != NIL {
            return existing;
        }
        let id = self.new_node(token, parent);
        match edge {
            Edge::Literal => self.link_literal(id, parent, token),
            Edge::AnyToken => self.nodes[parent as usize].any_token = id,
            Edge::AnyTail => self.nodes[parent as usize].any_tail = id,
        }
        id
    }

    fn new_node(&mut self, token: &[u8], parent: u32) -> u32 {
        let node = Node::new(token, parent);
        self.live_nodes += 1;
        if self.free_node == NIL {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let id = self.free_node;
        self.free_node = self.nodes[id as usize].first_child;
        self.nodes[id as usize] = node;
        id
    }

    fn link_literal(&mut self, id: u32, parent: u32, token: &[u8]) {
        let head = std::mem::replace(&mut self.nodes[parent as usize].first_child, id);
        self.nodes[id as usize].next_sibling = head;
        if head != NIL {
            self.nodes[head as usize].prev_sibling = id;
        }
        let hash = Self::hash(&self.hasher, parent, token);
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        self.children.insert_unique(hash, id, |&id| {
            let node = &nodes[id as usize];
            Self::hash(hasher, node.parent, node.token.as_slice())
        });
    }

    /// Gives memory back once most of it is unused. It takes as long as there are nodes left, after so
    /// many removals more.
    fn give_back(&mut self) {
        if self.nodes.len() < SHRINK_FROM_NODES || self.live_nodes * SHRINK_SHARE > self.nodes.len()
        {
            return;
        }
        let live = self.live();
        let mut places = vec![NIL; self.nodes.len()];
        for (place, &id) in live.iter().enumerate() {
            places[id as usize] = place as u32;
        }
        let place = |id: u32| if id == NIL { NIL } else { places[id as usize] };
        let mut nodes = Vec::with_capacity(live.len());
        let mut subscribers = Vec::new();
        for id in live {
            let mut node = std::mem::replace(&mut self.nodes[id as usize], Node::new(b"", NIL));
            for link in [
                &mut node.parent,
                &mut node.first_child,
                &mut node.next_sibling,
                &mut node.prev_sibling,
                &mut node.any_token,
                &mut node.any_tail,
            ] {
                *link = place(*link);
            }
            if node.subscribers != NIL {
                subscribers.push(std::mem::take(&mut self.subscribers[node.subscribers as usize]));
                node.subscribers = subscribers.len() as u32 - 1;
            }
            nodes.push(node);
        }
        (self.nodes, self.subscribers) = (nodes, subscribers);
        (self.free_node, self.free_subscribers) = (NIL, Vec::new());
        self.find_children_anew();
    }

    /// Nodes in use, the root first.
    fn live(&self) -> Vec<u32> {
        let (mut live, mut at) = (vec![ROOT], 0);
        while let Some(&id) = live.get(at) {
            let node = &self.nodes[id as usize];
            live.extend([node.any_token, node.any_tail].into_iter().filter(|&child| child != NIL));
            live.extend(self.literal_children(id));
            at += 1;
        }
        live
    }

    /// Fills the table of literal children from the nodes.
    fn find_children_anew(&mut self) {
        self.children = HashTable::with_capacity(self.nodes.len());
        for parent in 0..self.nodes.len() as u32 {
            let found: Vec<u32> = self.literal_children(parent).collect();
            for id in found {
                let (nodes, hasher) = (&self.nodes, &self.hasher);
                let of = |id: u32| {
                    let node = &nodes[id as usize];
                    Self::hash(hasher, node.parent, node.token.as_slice())
                };
                self.children.insert_unique(of(id), id, |&id| of(id));
            }
        }
    }

    /// Frees `node` and every ancestor that serves no pattern any more.
    fn prune(&mut self, mut id: u32) {
        while id != ROOT && self.nodes[id as usize].is_unused() {
            let parent = self.nodes[id as usize].parent;
            if self.nodes[parent as usize].any_token == id {
                self.nodes[parent as usize].any_token = NIL;
            } else if self.nodes[parent as usize].any_tail == id {
                self.nodes[parent as usize].any_tail = NIL;
            } else {
                self.unlink_literal(id, parent);
            }
            self.nodes[id as usize] = Node::new(b"", NIL);
            self.nodes[id as usize].first_child = self.free_node;
            self.free_node = id;
            self.live_nodes -= 1;
            id = parent;
        }
    }

    fn unlink_literal(&mut self, id: u32, parent: u32) {
        let node = &self.nodes[id as usize];
        let (prev, next) = (node.prev_sibling, node.next_sibling);
        let hash = Self::hash(&self.hasher, parent, node.token.as_slice());
        if let Ok(entry) = self.children.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        if next != NIL {
            self.nodes[next as usize].prev_sibling = prev;
        }
        if prev == NIL {
            self.nodes[parent as usize].first_child = next;
        } else {
            self.nodes[prev as usize].next_sibling = next;
        }
    }
}

/// The kind of child a pattern's token is.
fn edge(token: &[u8], last: bool) -> Edge {
    match token {
        ANY_TOKEN => Edge::AnyToken,
        ANY_TAIL if last => Edge::AnyTail,
        _ => Edge::Literal,
    }
}

/// Matching.
impl<T> SubjectTree<T> {
    /// Appends everyone whose pattern selects the literal `subject` to `result`, which should have
    /// been [cleared](MatchResult::clear). Members of one queue group come together, whatever
    /// their patterns. A subject with an empty token matches nothing, not even `>`.
    #[inline]
    pub fn match_into(&self, subject: &[u8], result: &mut MatchResult<T>)
    where
        T: Clone,
    {
        if has_empty_token(subject) {
            return;
        }
        self.walk(ROOT, tokens(subject), &mut |subscribers| {
            result.extend(subscribers);
            true
        });
        result.group();
    }

    /// Does any subscription select the literal `subject`?
    #[must_use]
    pub fn has_interest(&self, subject: &[u8]) -> bool {
        !has_empty_token(subject) && !self.walk(ROOT, tokens(subject), &mut |_| false)
    }

    /// A plain subscription that selects the literal `subject`, if there is any.
    #[must_use]
    pub fn first_match(&self, subject: &[u8]) -> Option<&T> {
        if has_empty_token(subject) {
            return None;
        }
        let mut found = None;
        self.walk(ROOT, tokens(subject), &mut |subscribers| {
            found = subscribers.first_plain();
            found.is_none()
        });
        found
    }

    /// Visits the subscribers of every matching pattern until `visit` returns false; says whether
    /// it never did.
    #[inline]
    fn walk<'t>(
        &'t self,
        mut id: u32,
        mut rest: Tokens<'_>,
        visit: &mut impl FnMut(&'t Subscribers<T>) -> bool,
    ) -> bool {
        loop {
            let node = &self.nodes[id as usize];
            let Some(token) = rest.next() else {
                return self.visit_node(id, visit);
            };
            if node.any_tail != NIL && !self.visit_node(node.any_tail, visit) {
                return false;
            }
            let literal =
                if node.first_child == NIL { None } else { self.literal_child(id, token) };
            id = match (node.any_token, literal) {
                (NIL, None) => return true,
                (NIL, Some(child)) => child,
                (any, None) => any,
                (any, Some(child)) => {
                    if !self.walk(any, rest.clone(), visit) {
                        return false;
                    }
                    child
                }
            };
        }
    }

    #[inline]
    fn visit_node<'t>(
        &'t self,
        id: u32,
        visit: &mut impl FnMut(&'t Subscribers<T>) -> bool,
    ) -> bool {
        let slot = self.nodes[id as usize].subscribers;
        self.subscribers.get(slot as usize).is_none_or(visit)
    }

    /// True if certainly no subscription selects a subject that `pattern` selects too. Meant for
    /// patterns of literal tokens and then one wildcard. It takes no longer than a match; therefore
    /// it may say no where all subscriptions nearby are for subjects of other lengths.
    #[must_use]
    pub fn is_clear_below(&self, pattern: &[u8]) -> bool {
        let mut id = ROOT;
        let mut rest = tokens(pattern);
        while let Some(token) = rest.next() {
            let node = &self.nodes[id as usize];
            if node.any_token != NIL || node.any_tail != NIL {
                return false;
            }
            if rest.rest().is_none() {
                return node.first_child == NIL;
            }
            match self.literal_child(id, token) {
                _ if token == ANY_TOKEN => return false,
                Some(child) => id = child,
                None => return true,
            }
        }
        false
    }

    fn literal_children(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |id: u32| (id != NIL).then_some(id);
        std::iter::successors(next(self.nodes[id as usize].first_child), move |&id| {
            next(self.nodes[id as usize].next_sibling)
        })
    }
}

#[cfg(test)]
mod tests;
