//! The nodes of the cluster as this one knows them now, shared by all that connects to them or names them.

use crate::routes::Routes;
use nuthatch_catalog_group::roster::Enrolled;
use nuthatch_catalog_group::{Protocol, Roster, Zone, Zones};
use nuthatch_log::Reporter;
use nuthatch_quorum::types::NodeId;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Hears that this node is none of the cluster any more, and why it ends.
pub type OnRemoved = Box<dyn Fn(&str) + Send + Sync>;

/// The nodes of the cluster.
pub(crate) struct Roll {
    me: NodeId,
    /// Where this node listens.
    listen: SocketAddr,
    /// What it was told of others.
    routes: Arc<Routes>,
    /// Zones whose nodes are to own the logs; none: it does not matter.
    owner_zones: Vec<Zone>,
    state: Mutex<State>,
    changed: Condvar,
    /// The protocol of `state`, for who asks for it with each packet.
    active: AtomicU8,
}

#[derive(Default)]
struct State {
    roster: Roster,
    /// Where the nodes are that this one has met, and this one.
    zones: Zones,
    /// The zones in which other nodes have logs owned, as they said last. There are no more nodes than numbers of nodes.
    owner_zones: BTreeMap<NodeId, Vec<Zone>>,
    /// Counts what was noted, so that whoever waits misses nothing.
    version: u64,
    /// Who leads the catalog, as far as this node knows.
    leader: Option<NodeId>,
    removed: Option<String>,
    on_removed: Option<OnRemoved>,
    /// The node ends: nobody waits any more.
    ends: bool,
}

impl Roll {
    pub(crate) fn new(me: NodeId, listen: SocketAddr, routes: Arc<Routes>, roster: Roster) -> Self {
        let active = AtomicU8::new(roster.active.0);
        let state = Mutex::new(State { roster, ..State::default() });
        let (owner_zones, changed) = (vec![], Condvar::new());
        Self { me, listen, routes, owner_zones, state, changed, active }
    }

    /// The same of a node that is in this zone, and knows in which ones logs are to be owned.
    pub(crate) fn in_zone(self, zone: Option<Zone>, owner_zones: Vec<Zone>) -> Self {
        self.state.lock().zones.note(self.me, zone);
        Self { owner_zones, ..self }
    }

    /// This node.
    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    /// Where it listens.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// What it was told of others.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Notes who the nodes are, unless more was known.
    pub(crate) fn note(&self, roster: &Roster) {
        let mut state = self.state.lock();
        if roster.changes >= state.roster.changes && *roster != state.roster {
            state.roster = roster.clone();
            state.version += 1;
            self.active.store(roster.active.0, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// The nodes.
    pub(crate) fn roster(&self) -> Roster {
        self.state.lock().roster.clone()
    }

    /// Waits until something else is known than of that version, or for so long; gives the version then.
    pub(crate) fn wait(&self, version: u64, limit: Duration) -> u64 {
        let mut state = self.state.lock();
        if state.version == version && !state.ends {
            self.changed.wait_for(&mut state, limit);
        }
        state.version
    }

    /// Nobody waits any more.
    pub(crate) fn end_waits(&self) {
        self.state.lock().ends = true;
        self.changed.notify_all();
    }

    /// Notes what another node says of where it is.
    pub(crate) fn note_zone(&self, node: NodeId, zone: Option<Zone>) {
        self.state.lock().zones.note(node, zone);
    }

    /// Notes in which zones another node has logs owned; none: it does not say so.
    pub(crate) fn note_owner_zones(&self, node: NodeId, zones: Option<Vec<Zone>>) {
        let told = &mut self.state.lock().owner_zones;
        match zones {
            Some(zones) => drop(told.insert(node, zones)),
            None => drop(told.remove(&node)),
        }
    }

    /// The first node that has logs owned in other zones than this one, and those.
    pub(crate) fn other_owner_zones(&self) -> Option<(NodeId, Vec<Zone>)> {
        let sorted = |zones: &[Zone]| zones.iter().cloned().collect::<BTreeSet<Zone>>();
        let (mine, state) = (sorted(&self.owner_zones), self.state.lock());
        let is_there = |node: &NodeId| state.roster.nodes.contains_key(node);
        let mut told = state.owner_zones.iter().filter(|(node, _)| is_there(node));
        let other = told.find(|(_, zones)| sorted(zones) != mine);
        other.map(|(node, zones)| (*node, zones.clone()))
    }

    /// Where the nodes are that this one has met, and this one.
    pub(crate) fn zones(&self) -> Zones {
        self.state.lock().zones.clone()
    }

    /// Zones whose nodes are to own the logs; none: it does not matter.
    pub(crate) fn owner_zones(&self) -> &[Zone] {
        &self.owner_zones
    }

    /// True if a node is known to be in one of these.
    pub(crate) fn is_in_owner_zone(&self, node: NodeId) -> bool {
        let state = self.state.lock();
        state.zones.of(node).is_some_and(|zone| self.owner_zones.contains(zone))
    }

    /// The name of a node.
    pub(crate) fn name(&self, id: NodeId) -> String {
        self.state.lock().roster.name(id)
    }

    /// The numbers of the nodes that keep the logs, in their order.
    pub(crate) fn keepers(&self) -> Vec<NodeId> {
        let state = self.state.lock();
        let keeps = state.roster.nodes.iter().filter(|(_, enrolled)| enrolled.keeps);
        keeps.map(|(node, _)| *node).collect()
    }

    /// The numbers of the other nodes.
    pub(crate) fn peers(&self) -> Vec<NodeId> {
        let nodes = &self.state.lock().roster.nodes;
        nodes.keys().copied().filter(|node| *node != self.me).collect()
    }

    /// The names of those that were removed.
    pub(crate) fn removed(&self) -> BTreeSet<String> {
        let state = self.state.lock();
        state.roster.removed.iter().map(|gone| gone.name.clone()).collect()
    }

    /// Where the other nodes are: where they say, and where this one was told, but for those that were removed.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let state = self.state.lock();
        let roster = &state.roster;
        let there = roster.nodes.iter().filter(|(node, _)| **node != self.me);
        let mut addresses: Vec<SocketAddr> =
            there.filter_map(|(_, enrolled)| enrolled.address).collect();
        let is_gone =
            |address: &SocketAddr| roster.removed.iter().any(|gone| gone.address == Some(*address));
        addresses.extend(self.routes.others().into_iter().filter(|address| !is_gone(address)));
        let mine = self.own(roster);
        addresses.retain(|address| *address != self.listen && Some(*address) != mine);
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn own(&self, roster: &Roster) -> Option<SocketAddr> {
        roster.nodes.get(&self.me).and_then(|enrolled| enrolled.address)
    }

    /// The address that this node is to say it has, if the others have another one. While nobody has joined all of them
    /// are found by what the nodes were told.
    pub(crate) fn to_say(&self) -> Option<SocketAddr> {
        let state = self.state.lock();
        let differs = self.own(&state.roster) != Some(self.listen);
        let is_there = state.roster.nodes.contains_key(&self.me);
        let says = state.roster.changes > 0 && is_there && !self.listen.ip().is_unspecified();
        (says && differs).then_some(self.listen)
    }

    /// Says that this node is a spare, if it is one.
    pub(crate) fn tell_spare(&self, report: &Reporter) {
        let state = self.state.lock();
        let is_spare = |enrolled: &Enrolled| !enrolled.keeps;
        if state.roster.nodes.get(&self.me).is_some_and(is_spare) {
            report.say(
                "this node is a spare of the cluster: it takes clients and keeps no log until it takes the place of \
                 another node (nuthatch cluster replace)",
            );
        }
    }

    /// Notes who leads the catalog, as far as this node knows.
    pub(crate) fn note_leader(&self, leader: Option<NodeId>) {
        self.state.lock().leader = leader;
    }

    /// What the nodes speak.
    pub(crate) fn active(&self) -> Protocol {
        Protocol(self.active.load(Ordering::Acquire))
    }

    /// Who leads the catalog, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.state.lock().leader
    }

    /// The nodes that are to own no log while others can.
    pub(crate) fn drained(&self) -> BTreeSet<NodeId> {
        self.state.lock().roster.drained.clone()
    }

    /// True if this node is none of the cluster any more, as was said here.
    pub(crate) fn has_removed_me(&self) -> bool {
        self.state.lock().removed.is_some()
    }

    /// This node is none of the cluster any more.
    pub(crate) fn remove_me(&self, why: &str) {
        let mut state = self.state.lock();
        if state.removed.is_none() {
            state.removed = Some(why.to_owned());
            if let Some(on_removed) = &state.on_removed {
                on_removed(why);
            }
        }
    }

    /// Says who hears that this node was removed; at once if it was.
    pub(crate) fn on_removed(&self, on_removed: OnRemoved) {
        let mut state = self.state.lock();
        if let Some(why) = &state.removed {
            on_removed(why);
        }
        state.on_removed = Some(on_removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;
    use nuthatch_catalog_group::{Change, MemberId, Replacing};

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn nodes_are_where_they_say_and_where_routes_say_but_for_those_that_are_gone() {
        let mut roster = Roster::default();
        let join = |name: &str, member| Change::Join {
            name: name.to_owned(),
            member: MemberId(member),
            address: Some(at(6220 + u16::try_from(member).expect("small"))),
        };
        for (name, member) in [("n1", 1), ("n2", 2)] {
            roster.make(&join(name, member)).expect("joins");
        }
        roster.nodes.values_mut().for_each(|one| one.keeps = true);
        roster.nodes.get_mut(&NodeId(1)).expect("there").address = None;
        let routes =
            Arc::new(Routes::of(at(6221), [at(6222), at(6223)].map(Route::Address).to_vec()));
        let roll = Roll::new(NodeId(1), at(6221), routes, roster.clone());
        assert_eq!(roll.addresses(), [at(6222), at(6223)]);
        assert_eq!(roll.to_say(), Some(at(6221)));
        roster.make(&join("n3", 4)).expect("joins");
        let replacing = Replacing { old: NodeId(2), new: NodeId(3) };
        roster.make(&Change::Begin(replacing)).expect("begins");
        roll.note(&roster);
        assert_eq!(roll.addresses(), [at(6222), at(6223), at(6224)]);
        roster.make(&Change::Swap(replacing)).expect("ends");
        let address = Change::Address { node: NodeId(1), address: at(6221) };
        roster.make(&address).expect("said");
        let before = roll.wait(9, Duration::ZERO);
        roll.note(&roster);
        assert_eq!(roll.wait(before, Duration::from_secs(60)), before + 1);
        assert_eq!(roll.addresses(), [at(6223), at(6224)]);
        assert_eq!((roll.to_say(), roll.keepers()), (None, vec![NodeId(1), NodeId(3)]));
        roll.note(&Roster::default());
        assert_eq!(roll.peers(), [NodeId(3)], "less than is known is late");
    }
}
