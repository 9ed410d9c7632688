//! The leaf nodes of one account, and the interest advertised to them. Lives in the account's
//! [`Interest`](crate::interest::Interest) and changes under the lock of its tree, so that no
//! change is missed.

use crate::link::{LOOP_PREFIX, Link, Listener};
use crate::outlet::Outlet;
use crate::random::random_token;
use crate::subscription::{Role, Subscription};
use std::sync::Arc;

/// Characters of the random part of the subject that finds loops.
const LOOP_ID_CHARS: usize = 22;

/// The leaf nodes of one account.
#[derive(Default)]
pub(crate) struct LeafTable {
    leafs: Vec<Arc<Outlet>>,
    /// Subjects that are taken without a subscription, sorted: as other servers are told.
    advertised: Vec<Box<[u8]>>,
    /// The same as other nodes of the cluster are told.
    to_nodes: Vec<Box<[u8]>>,
    /// The subject that finds loops, once there was a leaf node.
    loop_subject: Box<[u8]>,
}

impl LeafTable {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.leafs.len()
    }

    /// Adds one, and tells it what is there.
    pub(crate) fn join<'a>(
        &mut self,
        outlet: &Arc<Outlet>,
        subs: impl Iterator<Item = &'a Subscription>,
    ) {
        let Some(link) = outlet.link() else { return };
        if self.loop_subject.is_empty() {
            let id = random_token(LOOP_ID_CHARS);
            self.loop_subject = [LOOP_PREFIX, id.as_bytes()].concat().into_boxed_slice();
        }
        let listeners = subs.map(listener);
        let (advertised, loop_subject) = match link.node {
            None => (&self.advertised, Some(&*self.loop_subject)),
            // Between nodes nothing is handed on, so nothing goes round.
            Some(_) => (&self.to_nodes, None),
        };
        link.begin(listeners, advertised, loop_subject, |told| outlet.hand_over(told));
        self.leafs.push(outlet.clone());
    }

    /// Takes one away; `false`: it is not there.
    pub(crate) fn leave(&mut self, outlet: &Arc<Outlet>) -> bool {
        let before = self.leafs.len();
        self.leafs.retain(|leaf| !Arc::ptr_eq(leaf, outlet));
        self.leafs.len() < before
    }

    fn links(&self) -> impl Iterator<Item = (&Outlet, &Link)> {
        self.leafs.iter().filter_map(|outlet| Some((&**outlet, outlet.link()?)))
    }

    /// A subscription has come or gone.
    pub(crate) fn changed(&self, sub: &Subscription, delta: i64) {
        for (outlet, link) in self.links() {
            link.changed(&listener(sub), delta, |told| outlet.hand_over(told));
        }
    }

    /// Replaces what is advertised to other servers, and to other nodes of the cluster: both sorted and each once.
    pub(crate) fn advertise(&mut self, to_others: Vec<Box<[u8]>>, to_nodes: Vec<Box<[u8]>>) {
        let before = std::mem::replace(&mut self.advertised, to_others);
        self.tell(&differences(&before, &self.advertised), |link| link.node.is_none());
        let before = std::mem::replace(&mut self.to_nodes, to_nodes);
        self.tell(&differences(&before, &self.to_nodes), |link| link.node.is_some());
    }

    fn tell(&self, changes: &[(&[u8], i64)], concerns: impl Fn(&Link) -> bool) {
        if changes.is_empty() {
            return;
        }
        for (outlet, link) in self.links().filter(|(_, link)| concerns(link)) {
            link.advertised(changes, |told| outlet.hand_over(told));
        }
    }

    /// True if a subject that another server listens on is the one by which we find loops.
    pub(crate) fn is_own_loop(&self, subject: &[u8]) -> bool {
        !self.loop_subject.is_empty() && *self.loop_subject == *subject
    }
}

/// What has come and gone between two sorted lists: what has come first.
fn differences<'a>(old: &'a [Box<[u8]>], new: &'a [Box<[u8]>]) -> Vec<(&'a [u8], i64)> {
    let lacks = |list: &[Box<[u8]>], subject: &[u8]| {
        list.binary_search_by(|known| (**known).cmp(subject)).is_err()
    };
    let gone = old.iter().filter(|subject| lacks(new, subject)).map(|s| (&s[..], -1));
    let come = new.iter().filter(|subject| lacks(old, subject)).map(|s| (&s[..], 1));
    come.chain(gone).collect()
}

/// A subscription as other servers are told of it.
fn listener(sub: &Subscription) -> Listener<'_> {
    let (subject, queue) = (&*sub.subject, sub.queue.as_deref());
    let is_server = matches!(sub.role, Role::Server(_));
    Listener { subject, queue, weight: sub.weight(), behind: sub.outlet.link(), is_server }
}
