//! The leaf nodes of one account, and the interest advertised to them. Lives in the account's
//! [`Interest`](crate::interest::Interest) and changes under the lock of its tree, so that no
//! change is missed.

use crate::advertised::{Deltas, all_requests_of};
use crate::link::{LOOP_PREFIX, Link, Listener};
use crate::outlet::Outlet;
use crate::random::random_token;
use crate::subscription::{Role, Subscription};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Characters of the random part of the subject that finds loops.
const LOOP_ID_CHARS: usize = 22;

/// Subjects and how many reasons there are to tell of each.
type Advertised = FxHashMap<Box<[u8]>, i64>;

/// The leaf nodes of one account.
#[derive(Default)]
pub(crate) struct LeafTable {
    leafs: Vec<Arc<Outlet>>,
    /// Subjects that are taken without a subscription, and how many reasons there are for each: as other servers are told.
    advertised: Advertised,
    /// The same as other nodes of the cluster are told.
    to_nodes: Advertised,
    /// The subject that finds loops, once there was a leaf node.
    loop_subject: Box<[u8]>,
}

impl LeafTable {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.leafs.len()
    }

    /// Adds one, and tells it what is there. Other nodes of the cluster tell each other themselves of `requests`, which are
    /// for their streams.
    pub(crate) fn join<'a>(
        &mut self,
        outlet: &Arc<Outlet>,
        subs: impl Iterator<Item = &'a Subscription>,
        requests: impl Iterator<Item = Box<[u8]>>,
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
        let requests: Vec<_> = requests.filter(|_| hears_of_served(link)).collect();
        let requests = requests.iter().map(|subject| &**subject);
        let advertised = advertised.keys().map(|subject| &**subject).chain(requests);
        link.begin(listeners, advertised, loop_subject, |told| outlet.hand_over(told));
        self.leafs.push(outlet.clone());
    }

    /// Takes one away; `false`: it is not there.
    pub(crate) fn leave(&mut self, outlet: &Arc<Outlet>) -> bool {
        let before = self.leafs.len();
        self.leafs.retain(|leaf| !Arc::ptr_eq(leaf, outlet));
        self.leafs.len() < before
    }

    /// True if it is there.
    pub(crate) fn has(&self, outlet: &Arc<Outlet>) -> bool {
        self.leafs.iter().any(|leaf| Arc::ptr_eq(leaf, outlet))
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

    /// Changes what is advertised to other servers, and to other nodes of the cluster.
    pub(crate) fn advertise(&mut self, to_others: Deltas, to_nodes: Deltas) {
        let changes = apply(&mut self.advertised, to_others);
        self.tell(&changes, |link| link.node.is_none());
        let changes = apply(&mut self.to_nodes, to_nodes);
        self.tell(&changes, |link| link.node.is_some());
    }

    /// Streams of other nodes have come or gone.
    pub(crate) fn served_changed(&self, deltas: &[(Arc<str>, i64)]) {
        if self.links().any(|(_, link)| hears_of_served(link)) {
            let mut changes = Vec::new();
            for (name, delta) in deltas {
                changes.extend(all_requests_of(name).map(|subject| (subject, *delta)));
            }
            self.tell(&changes, hears_of_served);
        }
    }

    fn tell(&self, changes: &[(Box<[u8]>, i64)], concerns: impl Fn(&Link) -> bool) {
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

/// True if the other side is told what is for streams of other nodes. These tell each other themselves; an isolated one hears of
/// nothing that is behind another link.
fn hears_of_served(link: &Link) -> bool {
    link.node.is_none() && !link.isolated
}

/// Counts reasons for subjects; gives what has come and gone by that: what has come first.
fn apply(known: &mut Advertised, deltas: Deltas) -> Vec<(Box<[u8]>, i64)> {
    let (mut changes, mut gone) = (Vec::new(), Vec::new());
    for (subject, delta) in deltas {
        let before = known.get(&subject).copied().unwrap_or_default();
        let now = before + delta;
        assert!(now >= 0, "what was never told cannot go");
        match now {
            0 => known.remove(&subject),
            _ => known.insert(subject.clone(), now),
        };
        match (before, now) {
            (0, 1..) => changes.push((subject, 1)),
            (1.., 0) => gone.push((subject, -1)),
            _ => {}
        }
    }
    changes.append(&mut gone);
    changes
}

/// A subscription as other servers are told of it.
fn listener(sub: &Subscription) -> Listener<'_> {
    let (subject, queue) = (&*sub.subject, sub.queue.as_deref());
    let is_server = matches!(sub.role, Role::Server(_));
    Listener { subject, queue, weight: sub.weight(), behind: sub.outlet.link(), is_server }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deltas(of: &[(&str, i64)]) -> Deltas {
        of.iter().map(|(subject, delta)| (subject.as_bytes().into(), *delta)).collect()
    }

    /// A subject may be taken for several reasons: another server hears of it once.
    #[test]
    fn what_is_told_is_the_first_reason_and_the_end_of_the_last() {
        let mut known = Advertised::default();
        let mut told = |of: &[(&str, i64)]| {
            let changes = apply(&mut known, deltas(of)).into_iter();
            let text = |subject: Box<[u8]>| String::from_utf8_lossy(&subject).into_owned();
            changes.map(|(subject, delta)| (text(subject), delta)).collect::<Vec<_>>()
        };
        let one = |subject: &str, delta: i64| (subject.to_owned(), delta);
        assert_eq!(told(&[("a", 1), ("b", 2)]), [one("a", 1), one("b", 1)]);
        assert_eq!(told(&[("a", 1), ("b", -1)]), []);
        assert_eq!(
            told(&[("a", -2), ("c", 1)]),
            [one("c", 1), one("a", -1)],
            "what comes is first"
        );
        assert_eq!(told(&[("b", -1), ("c", -1)]), [one("b", -1), one("c", -1)]);
        assert!(known.is_empty());
    }
}
