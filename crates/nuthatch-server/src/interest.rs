//! Interest: the subscriptions of one account, matched by subject.
//!
//! Whoever matches caches the result under [`Interest::version`], which changes with every
//! subscription that comes or goes.

use crate::advertised::{Deltas, all_requests_of};
use crate::change_log::ChangeLog;
use crate::leaf_table::LeafTable;
use crate::outlet::Outlet;
use crate::served::TableChange;
use crate::stream_requests::PREFIX;
use crate::subscription::Subscription;
use nuthatch_protocol::subject::tree::{MatchResult, SubjectTree};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use served_streams::{NameDeltas, ServedStreams, may_be_request};
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

mod served_streams;

/// A subscription in the tree; two are equal if they are the same one.
#[derive(Clone, Debug)]
pub struct SubRef(pub Arc<Subscription>);

impl PartialEq for SubRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for SubRef {
    type Target = Arc<Subscription>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What a change of other nodes' streams may be about, beside their own subjects.
const ALL_OF_JETSTREAM: &[u8] = b"$JS.>";

/// Steps of a search that a publisher waits for.
const PUBLISHER_STEPS_MAX: usize = 1024;

/// The subscriptions that match a subject: every plain one and one of each queue group get it.
pub type Matched = MatchResult<SubRef>;

/// The subscriptions of one account.
#[derive(Default)]
pub struct Interest {
    tree: RwLock<SubjectTree<SubRef>>,
    /// Of the newest change in `changes`; set while those are locked.
    version: AtomicU64,
    /// What has changed lately.
    changes: Mutex<ChangeLog<()>>,
    count: AtomicUsize,
    inserts: AtomicU64,
    matches: AtomicU64,
    /// Subscriptions that could see `$…` subjects: acks and API requests are matched against the
    /// tree only when there are any.
    reserved: AtomicUsize,
    first: FirstTokens,
    /// Changed only while the tree is locked for writing.
    leaf_count: AtomicUsize,
    /// Other servers that hear of what comes and goes; locked behind the tree.
    leafs: Mutex<LeafTable>,
    /// Streams of other nodes; locked behind `leafs`.
    served: RwLock<ServedStreams>,
    /// How many nodes are in it; changed only while it is locked for writing.
    serving: AtomicUsize,
}

/// How many subscriptions begin with which token, tokens told apart by a few bits of a hash: most
/// subjects that are published to streams begin like no subscription at all.
struct FirstTokens {
    literal: [AtomicU32; FIRST_TOKENS],
    wild: AtomicU32,
}

/// Places that the first tokens of subscriptions share.
const FIRST_TOKENS: usize = 256;

impl Default for FirstTokens {
    fn default() -> Self {
        Self { literal: [const { AtomicU32::new(0) }; FIRST_TOKENS], wild: AtomicU32::new(0) }
    }
}

impl FirstTokens {
    fn counter(&self, subject: &[u8]) -> &AtomicU32 {
        let end = memchr::memchr(b'.', subject).unwrap_or(subject.len());
        match &subject[..end] {
            b"*" | b">" => &self.wild,
            token => &self.literal[Self::place(token)],
        }
    }

    fn place(token: &[u8]) -> usize {
        (FxBuildHasher.hash_one(token) >> 32) as usize % FIRST_TOKENS
    }

    /// True if any subscription may match a literal subject.
    #[inline]
    fn may_match(&self, subject: &[u8]) -> bool {
        // Who notes that it waits for a subscription and then looks must see one that came before
        // the note was there; see `Watch`.
        fence(Ordering::SeqCst);
        if self.wild.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let end = memchr::memchr(b'.', subject).unwrap_or(subject.len());
        self.literal[Self::place(&subject[..end])].load(Ordering::Relaxed) > 0
    }
}

/// Counters of an [`Interest`], for monitoring.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct InterestStats {
    /// Subscriptions now.
    pub subscriptions: u64,
    /// Subscriptions added so far.
    pub inserts: u64,
    /// Subjects matched so far; most messages need no match, since routes are cached.
    pub matches: u64,
}

impl InterestStats {
    /// Adds those of another account.
    pub fn add(&mut self, other: Self) {
        self.subscriptions += other.subscriptions;
        self.inserts += other.inserts;
        self.matches += other.matches;
    }
}

impl std::fmt::Debug for Interest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interest").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Interest {
    /// Changes whenever [`Interest::match_into`] may answer differently than before.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Everything that was cached is to be matched again: a configuration has changed.
    pub fn touch(&self) {
        self.note_change(None);
    }

    /// Appends the patterns of subscriptions that have come or gone since [`Interest::version`] was
    /// `version`. `false`: any match may differ.
    pub fn changes_since(&self, version: u64, changed: &mut Vec<Box<[u8]>>) -> bool {
        self.changes.lock().since(version, (), changed)
    }

    /// Matches of subjects that `pattern` selects may differ from now on; `None`: of any.
    fn note_change(&self, pattern: Option<&[u8]>) {
        let mut changes = self.changes.lock();
        let version = self.version.load(Ordering::Relaxed) + 1;
        changes.note(version, (), pattern);
        self.version.store(version, Ordering::Release);
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Counters for monitoring.
    #[must_use]
    pub fn stats(&self) -> InterestStats {
        InterestStats {
            subscriptions: self.count() as u64,
            inserts: self.inserts.load(Ordering::Relaxed),
            matches: self.matches.load(Ordering::Relaxed),
        }
    }

    /// True if any subscription could match a subject that begins with `$`.
    #[inline]
    #[must_use]
    pub fn sees_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) > 0 || self.has_served()
    }

    /// Adds a subscription.
    pub fn insert(&self, sub: Arc<Subscription>) {
        let reserved = usize::from(may_see_reserved(&sub.subject));
        let mut tree = self.tree.write();
        let value = SubRef(sub.clone());
        tree.insert(&sub.subject, sub.queue.as_deref(), value);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inserts.fetch_add(1, Ordering::Relaxed);
        self.reserved.fetch_add(reserved, Ordering::Relaxed);
        // Before the version: whoever has read the new one sees this too.
        self.first.counter(&sub.subject).fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.note_change(Some(&sub.subject));
        if self.has_leafs() {
            self.leafs.lock().changed(&sub, sub.weight());
        }
    }

    /// Removes a subscription; `false` if it is not there.
    pub fn remove(&self, sub: &Arc<Subscription>) -> bool {
        let mut tree = self.tree.write();
        let value = SubRef(sub.clone());
        if tree.remove(&sub.subject, sub.queue.as_deref(), &value).is_none() {
            return false;
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        let reserved = usize::from(may_see_reserved(&sub.subject));
        self.reserved.fetch_sub(reserved, Ordering::Relaxed);
        self.first.counter(&sub.subject).fetch_sub(1, Ordering::Release);
        self.note_change(Some(&sub.subject));
        if self.has_leafs() {
            self.leafs.lock().changed(sub, -sub.weight());
        }
        true
    }

    /// Another server has more or fewer members of a queue group than before.
    pub(crate) fn set_weight(&self, sub: &Subscription, weight: u32) {
        let _tree = self.tree.write();
        let delta = sub.set_weight(weight);
        if delta != 0 && !sub.is_closed() {
            self.leafs.lock().changed(sub, delta);
        }
    }

    /// True if any other server hears of what comes and goes.
    #[inline]
    #[must_use]
    pub fn has_leafs(&self) -> bool {
        self.leaf_count.load(Ordering::Relaxed) > 0
    }

    /// Another server hears of all that is there, and of what comes and goes from now on.
    pub(crate) fn join(&self, outlet: &Arc<Outlet>) {
        let tree = self.tree.write();
        let mut subs = Vec::with_capacity(self.count());
        tree.for_each_overlapping(b">", |_, sub| subs.push(sub.0.clone()));
        let mut leafs = self.leafs.lock();
        let mut served = self.served.write();
        let requests = served.names().flat_map(all_requests_of);
        leafs.join(outlet, subs.iter().map(|sub| &**sub), requests);
        self.leaf_count.store(leafs.len(), Ordering::Relaxed);
        if leafs.has(outlet) && outlet.link().is_some_and(|link| link.knows_by_table) {
            served.join(outlet);
            self.serving.store(served.nodes(), Ordering::Relaxed);
            self.note_change(Some(ALL_OF_JETSTREAM));
        }
    }

    /// Another server hears nothing any more; `false`: it did not before.
    pub(crate) fn leave(&self, outlet: &Arc<Outlet>) -> bool {
        let tree = self.tree.write();
        let mut leafs = self.leafs.lock();
        let was_there = leafs.leave(outlet);
        self.leaf_count.store(leafs.len(), Ordering::Relaxed);
        drop(tree);
        self.change_served(&leafs, |served| served.leave(outlet));
        was_there
    }

    /// The node behind an outlet has told which streams it serves. Nothing happens if it has left.
    pub(crate) fn serves(&self, outlet: &Arc<Outlet>, change: TableChange) {
        let leafs = self.leafs.lock();
        if leafs.has(outlet) {
            self.change_served(&leafs, |served| served.change(outlet, change));
        }
    }

    fn change_served(
        &self,
        leafs: &LeafTable,
        change: impl FnOnce(&mut ServedStreams) -> NameDeltas,
    ) {
        let mut served = self.served.write();
        let deltas = change(&mut served);
        self.serving.store(served.nodes(), Ordering::Relaxed);
        drop(served);
        self.note_change(Some(ALL_OF_JETSTREAM));
        if !deltas.is_empty() {
            leafs.served_changed(&deltas);
        }
    }

    /// True if any other node serves streams.
    #[inline]
    fn has_served(&self) -> bool {
        self.serving.load(Ordering::Relaxed) > 0
    }

    /// Changes the subjects that are advertised without a subscription: to other servers, and to other nodes of the cluster.
    pub(crate) fn advertise(&self, to_others: Deltas, to_nodes: Deltas) {
        self.leafs.lock().advertise(to_others, to_nodes);
    }

    /// True if a subject that another server listens on is the one by which we find loops.
    pub(crate) fn is_own_loop(&self, subject: &[u8]) -> bool {
        self.leafs.lock().is_own_loop(subject)
    }

    /// Replaces `matched` by the subscriptions that match a literal subject.
    pub fn match_into(&self, subject: &[u8], matched: &mut Matched) {
        matched.clear();
        self.matches.fetch_add(1, Ordering::Relaxed);
        if self.first.may_match(subject) {
            self.tree.read().match_into(subject, matched);
        }
        if self.has_served() && subject.starts_with(PREFIX) {
            self.served.read().match_into(subject, matched);
        }
    }

    /// True if certainly no subscription selects any subject that `pattern` selects. `pattern` is
    /// some literal tokens and one wildcard. Takes no longer than a match.
    #[must_use]
    pub fn is_clear(&self, pattern: &[u8]) -> bool {
        let may_be_served = self.has_served() && may_be_request(pattern);
        !may_be_served && self.tree.read().is_clear_below(pattern)
    }

    /// True if anybody listens on a literal subject.
    #[must_use]
    pub fn any(&self, subject: &[u8]) -> bool {
        self.tree.read().has_interest(subject)
            || self.has_served() && self.served.read().any(subject)
    }

    /// The one subscription that can get messages on subjects that `pattern` selects; `None` if
    /// there is none, or more than one, or if it is in a queue group.
    #[must_use]
    pub fn sole_overlapping(&self, pattern: &[u8]) -> Option<Arc<Subscription>> {
        if self.has_served() && may_be_request(pattern) {
            return None;
        }
        let mut found = None;
        let mut count = 0_usize;
        // Asked by publishers: it looks no further than the second.
        let search = |sub: &SubRef| {
            count += 1;
            found = sub.0.queue.is_none().then(|| sub.0.clone());
            count > 1
        };
        let others = self.tree.read().any_overlapping(pattern, PUBLISHER_STEPS_MAX, search);
        found.filter(|_| others == Some(false))
    }
}

fn may_see_reserved(pattern: &[u8]) -> bool {
    matches!(pattern.first(), Some(b'$' | b'*' | b'>'))
}

#[cfg(test)]
mod tests;
