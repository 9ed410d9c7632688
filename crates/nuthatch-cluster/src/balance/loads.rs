//! Where a log is owned best, by what clients ask of it: not beside others that are as busy, and where its clients are.
//!
//! Each owner decides that of its own logs, as all of balance, from the same figures: what it counts itself, and what the others
//! say of theirs. Each rule wants more to begin a move than the next one wants to undo it, so that figures which vary a little
//! move nothing to and fro (of a log that begins to count at some rate half of that undoes it): a move by load gains [`GAIN`] of what the busiest node has, one to the clients costs at most
//! [`CLIENTS_COST`] of it, and one back to the log's place at most [`PLACE_COST`].

use crate::quorum_log::{LogSight, NodeName};
use nuthatch_catalog_group::{LogNumber, Zone};
use nuthatch_quorum::types::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Bytes a second from which on a log counts where load is shared out: less is no load for any node. About a thousand small
/// messages. One that is where it is for that reason stays down to half of it.
pub const BUSY: u64 = 256 << 10;

/// Bytes a second from which on it matters where a log's clients are: some operations. Likewise.
pub const ASKED: u64 = 1 << 10;

/// Figures that are older count for nothing.
pub const LOADS_HOLD: Duration = Duration::from_secs(60);

/// In percent of what the busier of two nodes has: what a move by load takes from it at least.
const GAIN: u64 = 20;
/// What a move to the clients adds to it at most.
const CLIENTS_COST: u64 = 10;
/// What a move to the log's place adds to it at most.
const PLACE_COST: u64 = 5;

/// In percent of what is asked of a log: what the clients of a zone ask at least, for the log to go there.
const THERE: u64 = 60;
/// What those of the owner's zone ask at most then.
const NOT_HERE: u64 = 30;

/// What clients ask of a log: about as many bytes a second as its queue gets, of which each operation has some beside its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogLoad {
    /// All of it.
    pub rate: u64,
    /// What comes from clients of each node, by its name; this one's among them.
    pub from: BTreeMap<String, u64>,
}

/// What clients ask of the logs of all nodes, as one node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loads {
    /// Of each log that this node owns.
    pub own: BTreeMap<LogNumber, LogLoad>,
    /// Of all that another node owns, by its name. A node that has not said it lately is not among them, and is given nothing by
    /// load.
    pub others: BTreeMap<String, u64>,
}

/// The newest figures, while they hold.
#[derive(Default)]
pub(crate) struct KnownLoads(Option<(Loads, Instant)>);

impl KnownLoads {
    pub(crate) fn set(&mut self, loads: Loads, now: Instant) {
        self.0 = Some((loads, now));
    }

    pub(crate) fn at(&self, now: Instant) -> Option<Loads> {
        let (loads, since) = self.0.as_ref()?;
        (now.duration_since(*since) < LOADS_HOLD).then(|| loads.clone())
    }
}

/// Where a log goes by what is asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// To its place.
    Place,
    /// It stays where it is.
    Stays,
    /// To a node with less to do.
    LessBusy(NodeId),
    /// To a node in the zone of its clients.
    ToClients(NodeId),
}

/// What one node knows when it decides.
pub(super) struct Figures<'a> {
    pub(super) loads: &'a Loads,
    /// Where nodes are, by their names.
    pub(super) zones: &'a BTreeMap<String, Zone>,
    pub(super) me: NodeId,
}

impl Figures<'_> {
    /// Where a log goes that this node owns; `ready`: the nodes that could own it, and may.
    pub(super) fn goal(&self, sight: &LogSight, ready: &BTreeSet<NodeId>) -> Goal {
        let Some(load) = self.loads.own.get(&sight.number) else { return Goal::Place };
        // What people want counts for more.
        let is_named =
            sight.asked_owner.as_ref().is_some_and(|asked| asked.id == sight.preferred.id);
        if is_named || sight.owner_is_outside || load.rate < ASKED / 2 {
            return Goal::Place;
        }
        let one = Weighed { figures: self, sight, load };
        if let Some(node) = one.less_busy(ready) {
            return Goal::LessBusy(node);
        }
        if let Some(node) = one.to_clients(ready) {
            return Goal::ToClients(node);
        }
        match one.may_go_to_its_place() {
            true => Goal::Place,
            false => Goal::Stays,
        }
    }

    fn own_total(&self) -> u64 {
        self.loads.own.values().map(|load| load.rate).sum()
    }
}

/// A log of which something is asked.
struct Weighed<'a> {
    figures: &'a Figures<'a>,
    sight: &'a LogSight,
    load: &'a LogLoad,
}

impl Weighed<'_> {
    /// The node with the least to do, if the log is worth a move there; of those that have about as little, the nearest to the log's
    /// clients. Only the busiest node gives anything away for that: two would give to the same one.
    fn less_busy(&self, ready: &BTreeSet<NodeId>) -> Option<NodeId> {
        let (here, others) = (self.figures.own_total(), &self.figures.loads.others);
        if self.load.rate < BUSY || others.values().any(|load| *load > here) {
            return None;
        }
        // A node that says nothing may be the busiest.
        let is_known =
            |node: &NodeName| node.id == self.figures.me || others.contains_key(&node.name);
        if !self.sight.keepers.iter().all(|keeper| !keeper.connected || is_known(&keeper.node)) {
            return None;
        }
        // What the busier of both has afterwards.
        let after = |there: u64| (here - self.load.rate).max(there + self.load.rate);
        let known = ready.iter().filter_map(|node| Some((after(self.total(*node)?), *node)));
        let known: Vec<(u64, NodeId)> = known.collect();
        let least = known.iter().map(|(after, _)| *after).min()?;
        let as_little = |(after, _): &&(u64, NodeId)| after * 100 <= least * (100 + PLACE_COST);
        let near =
            |(after, node): &&(u64, NodeId)| (Reverse(self.asked_near(*node)), *after, *node);
        let (after, node) = known.iter().filter(as_little).min_by_key(near).copied()?;
        (here.saturating_sub(after) * 100 >= here * GAIN).then_some(node)
    }

    /// A node in the zone where the log's clients are, if they are not here. Of several the one with the least to do, its own
    /// place first.
    fn to_clients(&self, ready: &BTreeSet<NodeId>) -> Option<NodeId> {
        let here = self.figures.zones.get(self.name(self.figures.me)?)?;
        if self.load.rate < ASKED || self.asked_from(here) * 100 > self.load.rate * NOT_HERE {
            return None;
        }
        let is_there = |node: &NodeId| {
            let zone = self.name(*node).and_then(|name| self.figures.zones.get(name));
            zone.is_some_and(|zone| self.asked_from(zone) * 100 >= self.load.rate * THERE)
        };
        let able = ready.iter().filter(|node| is_there(node) && self.costs(**node, CLIENTS_COST));
        let is_elsewhere = |node: NodeId| node != self.sight.preferred.id;
        able.copied().min_by_key(|node| (is_elsewhere(*node), self.total(*node), *node))
    }

    /// False where the log's place is a node that has more to do, or is further from its clients.
    fn may_go_to_its_place(&self) -> bool {
        let place = self.sight.preferred.id;
        let is_here = place == self.figures.me;
        is_here || self.costs(place, PLACE_COST) && (!self.is_home() || self.is_nearer(place))
    }

    /// Most of the log's clients are in this node's zone: less than the rule that brings a log to its clients asks for.
    fn is_home(&self) -> bool {
        let here = self.name(self.figures.me).and_then(|name| self.figures.zones.get(name));
        here.is_some_and(|here| self.asked_from(here) * 100 > self.load.rate * (THERE - 10))
    }

    fn is_nearer(&self, place: NodeId) -> bool {
        self.asked_near(place) >= self.asked_near(self.figures.me)
    }

    /// What is asked of the log by clients in a node's zone; 0: it has none.
    fn asked_near(&self, node: NodeId) -> u64 {
        let zone = self.name(node).and_then(|name| self.figures.zones.get(name));
        zone.map_or(0, |zone| self.asked_from(zone))
    }

    /// True if the log's move to a node adds no more than so much to what the busier of both has.
    fn costs(&self, node: NodeId, at_most: u64) -> bool {
        if self.load.rate < BUSY / 2 {
            return true;
        }
        let Some(there) = self.total(node) else { return false };
        let here = self.figures.own_total();
        let before = here.max(there);
        let after = (here - self.load.rate).max(there + self.load.rate);
        after.saturating_sub(before) * 100 <= before * at_most
    }

    /// What is asked of the log by clients of a zone's nodes.
    fn asked_from(&self, zone: &Zone) -> u64 {
        let is_there = |name: &String| self.figures.zones.get(name) == Some(zone);
        self.load.from.iter().filter(|(name, _)| is_there(name)).map(|(_, asked)| asked).sum()
    }

    fn total(&self, node: NodeId) -> Option<u64> {
        match node == self.figures.me {
            true => Some(self.figures.own_total()),
            false => self.figures.loads.others.get(self.name(node)?).copied(),
        }
    }

    fn name(&self, node: NodeId) -> Option<&str> {
        let mut keepers = self.sight.keepers.iter();
        keepers.find(|keeper| keeper.node.id == node).map(|keeper| keeper.node.name.as_str())
    }
}

#[cfg(test)]
mod tests;
