//! Who the nodes of the cluster are: those that keep the logs and vote, spares that are there to take a place, and those
//! that were removed. It is part of what the group's log makes, and changes one step at a time.
//!
//! A node that joins is a spare: a learner of the group that keeps no log. A replacement begins with one entry, which
//! names the new node in the wish of every log instead of the old one. The logs' owners bring that about. When no log is
//! on the old node any more, and the new one has what the leader has, one joint change gives it the vote.

mod active;
mod draining;
mod following;
mod telling;

pub use self::following::Due;
pub use crate::change::{Change, Draining, NAME_MAX, Replacing, Resizing, is_name};
use crate::change::{address, put_address, put_replacing, put_resizing, replacing, resizing};
use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::rules::Rule;
use crate::types::{MemberId, Protocol};
use nuthatch_quorum::types::NodeId;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Spares at a time.
pub const SPARES_MAX: usize = 3;

/// How many nodes may keep the logs.
const SIZES: [usize; 2] = [3, 5];

/// How a roster ends in which nodes come or go.
const WITH_RESIZING: u8 = 2;

/// Before that end, in a roster with drained nodes: they follow.
const WITH_DRAINED: u8 = 3;

/// Ranks that there are: more than nodes at a time.
const RANKS: u8 = 16;

/// The rank of a node when nobody leads: each waits longer than the one before, so that no two stand for the lead at once.
#[must_use]
pub fn rank(node: NodeId) -> u8 {
    node.0.saturating_sub(1) % RANKS
}

/// A node that belongs to the cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Enrolled {
    /// Its name.
    pub name: String,
    /// Its disk as a member of the group.
    pub member: MemberId,
    /// Where its node port is, once it said so.
    pub address: Option<SocketAddr>,
    /// It keeps the logs, and votes; otherwise it is a spare.
    pub keeps: bool,
}

/// A node that was removed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gone {
    /// Its number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its last disk as a member of the group.
    pub member: MemberId,
    /// Where its node port was.
    pub address: Option<SocketAddr>,
    /// The name of the node that took its place; none: it was a spare.
    pub by: Option<String>,
}

/// The nodes of a cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Roster {
    /// How often it was changed since the founding; other disks of the same nodes do not count.
    pub changes: u64,
    /// The nodes that there are.
    pub nodes: BTreeMap<NodeId, Enrolled>,
    /// Those that were removed: neither their numbers nor their names come back.
    pub removed: Vec<Gone>,
    /// The replacement that is under way.
    pub replacing: Option<Replacing>,
    /// The nodes that are coming to those that keep the logs, or going from them. Not while one is replaced.
    pub resizing: Option<Resizing>,
    /// Nodes that keep logs, and are to own none of them and not to lead the catalog while others can.
    pub drained: BTreeSet<NodeId>,
    /// What the nodes speak: one that does not know it is none of them.
    pub active: Protocol,
}

/// Why a change is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such node.
    #[error("there is no node with number {}", .0.0)]
    NoSuchNode(NodeId),
    /// It keeps no log that another one could keep instead.
    #[error("{0} is a spare: it keeps no log, and has no place that another node could take")]
    IsSpare(String),
    /// It is no spare.
    #[error("{0} keeps logs already: only a spare can take the place of another node")]
    Keeps(String),
    /// A spare is in the set of a log still: a replacement by it was taken back.
    #[error(
        "{0} still has a copy of a log: it can be removed when the logs are on the other nodes again, try again then"
    )]
    HasLog(String),
    /// The node was replaced, which cannot be taken back.
    #[error("{new} has taken the place of {old} already, which was removed")]
    Replaced {
        /// The node that went.
        old: String,
        /// The one that took its place.
        new: String,
    },
    /// Another replacement is under way.
    #[error(
        "{new} is taking the place of {old}: one replacement at a time, try again when that is done"
    )]
    Busy {
        /// The node that goes.
        old: String,
        /// The one that takes its place.
        new: String,
    },
    /// Nodes are coming or going already.
    #[error("{0}: one change at a time, try again when that is done")]
    Resizing(String),
    /// So many nodes cannot keep the logs.
    #[error("{0} nodes would keep the logs: three or five can")]
    Size(usize),
    /// No node, or one of them twice.
    #[error("the nodes that are to come or to go are named once each")]
    NotOnce,
    /// Another node has this name.
    #[error("another node of the cluster is called {0}: give this one another --node-name")]
    NameTaken(String),
    /// A node of this name was removed.
    #[error(
        "a node called {0} was removed from the cluster, and its name does not come back: give this one another \
         --node-name"
    )]
    NameGone(String),
    /// There are as many spares as there may be.
    #[error(
        "the cluster has {SPARES_MAX} spares, as many as it may have: have one take a place, or remove it"
    )]
    Full,
    /// All numbers of nodes were used.
    #[error("the cluster has had 255 nodes, and there is no number for another one")]
    NoNumber,
    /// The disk is, or was, a member under another name or number.
    #[error(
        "the disk of this node belongs to another node of the cluster already: give it an empty directory"
    )]
    DiskTaken,
    /// A spare owns nothing anyway.
    #[error(
        "{0} is a spare: it owns no log and does not lead the catalog, so it can be stopped as it is"
    )]
    OwnsNothing(String),
    /// Nobody would be left who is to own the logs.
    #[error(
        "no node that keeps the logs would be left that is not drained: take that back for another one first \
         (nuthatch cluster undrain)"
    )]
    AllDrained,
    /// Whoever leads does not know that protocol.
    #[error("the node that leads the catalog knows no protocol after {}", Protocol::NEWEST)]
    UnknownProtocol,
    /// It is not what is under way.
    #[error("another change came first")]
    Late,
}

impl Roster {
    /// The disk of each node.
    #[must_use]
    pub fn members(&self) -> BTreeMap<NodeId, MemberId> {
        self.nodes.iter().map(|(node, enrolled)| (*node, enrolled.member)).collect()
    }

    /// The number of the node of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().find(|(_, enrolled)| enrolled.name == name).map(|(node, _)| *node)
    }

    /// The node of this name that was removed.
    #[must_use]
    pub fn gone(&self, name: &str) -> Option<&Gone> {
        self.removed.iter().find(|gone| gone.name == name)
    }

    /// The node that this disk was of, if that was removed.
    #[must_use]
    pub fn gone_member(&self, member: MemberId) -> Option<&Gone> {
        self.removed.iter().find(|gone| gone.member == member)
    }

    /// The name of a node, for people.
    #[must_use]
    pub fn name(&self, node: NodeId) -> String {
        let gone = || self.removed.iter().find(|gone| gone.node == node).map(|gone| &gone.name);
        let name = self.nodes.get(&node).map(|enrolled| &enrolled.name).or_else(gone);
        name.cloned().unwrap_or_else(|| format!("node {}", node.0))
    }

    /// The spares.
    pub fn spares(&self) -> impl Iterator<Item = (&NodeId, &Enrolled)> {
        self.nodes.iter().filter(|(_, enrolled)| !enrolled.keeps)
    }

    /// The number of the next node: one that was never used, of the lowest rank that no other node has, so that
    /// elections take no longer however often nodes were replaced.
    fn next_number(&self) -> Option<NodeId> {
        let was_used = |new: NodeId| self.removed.iter().any(|gone| gone.node == new);
        let is_taken = |new: NodeId| self.nodes.keys().any(|node| rank(*node) == rank(new));
        let free = (1..=u8::MAX).map(NodeId).filter(|new| !was_used(*new) && !is_taken(*new));
        free.min_by_key(|new| (rank(*new), *new))
    }

    fn enrolled(&self, node: NodeId) -> Result<&Enrolled, Refusal> {
        self.nodes.get(&node).ok_or(Refusal::NoSuchNode(node))
    }

    /// True if a change was made already.
    #[must_use]
    pub fn has(&self, change: &Change) -> bool {
        let is_gone = |node: NodeId| self.removed.iter().find(|gone| gone.node == node);
        match change {
            Change::Join { name, member, .. } => {
                self.nodes.values().any(|one| one.name == *name && one.member == *member)
            }
            Change::Address { node, address } => {
                self.nodes.get(node).is_some_and(|one| one.address == Some(*address))
            }
            Change::Begin(wanted) => {
                self.replacing == Some(*wanted) || self.has(&Change::Swap(*wanted))
            }
            Change::Swap(Replacing { old, new }) => {
                is_gone(*old).is_some_and(|gone| gone.by.as_ref() == Some(&self.name(*new)))
            }
            Change::Cancel(wanted) => {
                let keeps = self.nodes.get(&wanted.old).is_some_and(|one| one.keeps);
                keeps && self.replacing.is_none_or(|under_way| under_way.old != wanted.old)
            }
            Change::Resize(wanted) => {
                self.resizing.as_ref() == Some(wanted) || self.has(&Change::Resized(wanted.clone()))
            }
            Change::Resized(Resizing { nodes, keep }) => {
                let is = |node| self.nodes.get(node).is_some_and(|one| one.keeps == *keep);
                self.resizing.is_none() && are_named_once(nodes) && nodes.iter().all(is)
            }
            Change::Drain(Draining { node, drain }) => {
                self.nodes.contains_key(node) && self.drained.contains(node) == *drain
            }
            Change::Finalize { active, .. } => self.active >= *active,
            Change::Leave(node) => is_gone(*node).is_some(),
            Change::Disk { node, new, .. } => {
                self.nodes.get(node).is_some_and(|one| one.member == *new)
            }
        }
    }

    /// Whether a change can be made now.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::Join { name, member, .. } => self.check_join(name, *member),
            Change::Address { node, .. } => self.enrolled(*node).map(drop),
            Change::Begin(wanted) => self.check_begin(*wanted),
            Change::Swap(wanted) => match self.replacing == Some(*wanted) {
                true => self.enrolled(wanted.old).and(self.enrolled(wanted.new)).map(drop),
                false => Err(Refusal::Late),
            },
            Change::Cancel(wanted) if self.has(&Change::Swap(*wanted)) => {
                let (old, new) = (self.name(wanted.old), self.name(wanted.new));
                Err(Refusal::Replaced { old, new })
            }
            Change::Cancel(wanted) => match self.replacing == Some(*wanted) {
                true => Ok(()),
                false => Err(Refusal::Late),
            },
            Change::Resize(wanted) => self.check_resize(wanted),
            Change::Resized(wanted) => match self.resizing.as_ref() == Some(wanted) {
                true => Ok(()),
                false => Err(Refusal::Late),
            },
            Change::Drain(wanted) => self.check_drain(*wanted),
            Change::Finalize { active, changes } => self.check_finalize(*active, *changes),
            Change::Leave(node) => {
                let leaves = self.enrolled(*node)?;
                self.is_resized(&[*node])?;
                let busy = self.replacing.filter(|replacing| replacing.new == *node);
                match (leaves.keeps, busy) {
                    (true, _) => Err(Refusal::Keeps(leaves.name.clone())),
                    (false, Some(Replacing { old, new })) => {
                        Err(Refusal::Busy { old: self.name(old), new: self.name(new) })
                    }
                    (false, None) => Ok(()),
                }
            }
            Change::Disk { node, new, former } => match self.enrolled(*node)?.member == *former {
                true => self.check_disk(*new),
                false => Err(Refusal::Late),
            },
        }
    }

    /// A disk that has a vote must not become one that learns, nor have two places.
    fn check_disk(&self, new: MemberId) -> Result<(), Refusal> {
        let is_there = self.nodes.values().any(|one| one.member == new);
        match is_there || self.gone_member(new).is_some() {
            true => Err(Refusal::DiskTaken),
            false => Ok(()),
        }
    }

    fn check_join(&self, name: &str, member: MemberId) -> Result<(), Refusal> {
        self.check_disk(member)?;
        if self.gone(name).is_some() {
            return Err(Refusal::NameGone(name.to_owned()));
        }
        if self.number(name).is_some() {
            return Err(Refusal::NameTaken(name.to_owned()));
        }
        let going = self.resizing.as_ref().filter(|resizing| !resizing.keep);
        let going = going.map_or(0, |resizing| {
            resizing.nodes.iter().filter(|node| self.nodes[*node].keeps).count()
        });
        if self.spares().count() + going >= SPARES_MAX {
            return Err(Refusal::Full);
        }
        self.next_number().map(drop).ok_or(Refusal::NoNumber)
    }

    fn check_begin(&self, Replacing { old, new }: Replacing) -> Result<(), Refusal> {
        let (goes, comes) = (self.enrolled(old)?, self.enrolled(new)?);
        if Rule::OneChangeAtATime.holds() {
            self.is_resized(&[])?;
        }
        if !goes.keeps {
            return Err(Refusal::IsSpare(goes.name.clone()));
        }
        if comes.keeps {
            return Err(Refusal::Keeps(comes.name.clone()));
        }
        // Another spare for the same node: the first one may be gone.
        match self.replacing.filter(|under_way| under_way.old != old) {
            Some(Replacing { old, new }) if Rule::OneChangeAtATime.holds() => {
                Err(Refusal::Busy { old: self.name(old), new: self.name(new) })
            }
            _ => Ok(()),
        }
    }

    /// Refuses where nodes come or go: any, or one of these.
    fn is_resized(&self, nodes: &[NodeId]) -> Result<(), Refusal> {
        let under_way = self.resizing.as_ref();
        match under_way
            .filter(|one| nodes.is_empty() || nodes.iter().any(|node| one.nodes.contains(node)))
        {
            Some(resizing) => Err(Refusal::Resizing(self.told(resizing))),
            None => Ok(()),
        }
    }

    fn check_resize(&self, wanted: &Resizing) -> Result<(), Refusal> {
        let Resizing { nodes, keep } = wanted;
        if !are_named_once(nodes) {
            return Err(Refusal::NotOnce);
        }
        if let Some(Replacing { old, new }) = self.replacing {
            return Err(Refusal::Busy { old: self.name(old), new: self.name(new) });
        }
        if self.resizing == Some(wanted.inverse()) {
            return Ok(());
        }
        if Rule::OneChangeAtATime.holds() {
            self.is_resized(&[])?;
        }
        for node in nodes {
            let one = self.enrolled(*node)?;
            match (one.keeps, keep) {
                (true, true) => return Err(Refusal::Keeps(one.name.clone())),
                (false, false) => return Err(Refusal::IsSpare(one.name.clone())),
                _ => {}
            }
        }
        let keepers = self.nodes.len() - self.spares().count();
        let (size, spares) = match keep {
            true => (keepers + nodes.len(), 0),
            false => (keepers.saturating_sub(nodes.len()), self.spares().count() + nodes.len()),
        };
        match (SIZES.contains(&size), spares > SPARES_MAX) {
            (false, _) => Err(Refusal::Size(size)),
            (true, true) => Err(Refusal::Full),
            (true, false) if self.is_owned_with(Some(wanted), &self.drained) => Ok(()),
            (true, false) => Err(Refusal::AllDrained),
        }
    }

    /// What a change is to the group's members; none: it changes none of them.
    ///
    /// # Panics
    /// It cannot be made ([`Roster::check`]).
    #[must_use]
    pub fn members_change(&self, change: &Change) -> Option<ConfChangeV2> {
        let member = |node: &NodeId| self.nodes[node].member;
        let changes = match change {
            Change::Join { member, .. } => vec![(*member, ConfChangeType::AddLearnerNode)],
            Change::Swap(Replacing { old, new }) => vec![
                (member(new), ConfChangeType::AddNode),
                (member(old), ConfChangeType::RemoveNode),
            ],
            Change::Resized(Resizing { nodes, keep }) => {
                let as_what = match keep {
                    true => ConfChangeType::AddNode,
                    false => ConfChangeType::AddLearnerNode,
                };
                nodes.iter().map(|node| (member(node), as_what)).collect()
            }
            Change::Leave(node) => vec![(member(node), ConfChangeType::RemoveNode)],
            Change::Disk { node, new, former } => {
                let as_what = match self.nodes[node].keeps {
                    true => ConfChangeType::AddNode,
                    false => ConfChangeType::AddLearnerNode,
                };
                vec![(*new, as_what), (*former, ConfChangeType::RemoveNode)]
            }
            Change::Address { .. } | Change::Begin(_) | Change::Cancel(_) => return None,
            Change::Resize(_) | Change::Drain(_) | Change::Finalize { .. } => return None,
        };
        let single = |(member, change_type): (MemberId, ConfChangeType)| ConfChangeSingle {
            node_id: member.0,
            change_type,
            ..ConfChangeSingle::default()
        };
        let mut of_members = ConfChangeV2::default();
        of_members.set_changes(changes.into_iter().map(single).collect::<Vec<_>>().into());
        Some(of_members)
    }

    /// Makes a change.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed.
    pub fn make(&mut self, change: &Change) -> Result<(), Refusal> {
        self.check(change)?;
        self.changes += u64::from(!matches!(change, Change::Disk { .. }));
        match change {
            Change::Join { name, member, address } => {
                let node = self.next_number().expect("as was looked at");
                let (name, member, address) = (name.clone(), *member, *address);
                self.nodes.insert(node, Enrolled { name, member, address, keeps: false });
            }
            Change::Address { node, address } => {
                self.nodes.get_mut(node).expect("it is there").address = Some(*address);
            }
            Change::Begin(wanted) => self.replacing = Some(*wanted),
            Change::Cancel(_) => self.replacing = None,
            Change::Swap(Replacing { old, new }) => {
                let comes = self.nodes.get_mut(new).expect("it is there");
                comes.keeps = true;
                let by = Some(comes.name.clone());
                self.remove(*old, by);
                self.replacing = None;
            }
            Change::Resize(wanted) => self.resizing = Some(wanted.clone()),
            Change::Resized(Resizing { nodes, keep }) => {
                for node in nodes {
                    self.nodes.get_mut(node).expect("none leaves meanwhile").keeps = *keep;
                    self.drained.remove(node);
                }
                self.resizing = None;
            }
            Change::Drain(wanted) => self.drain(*wanted),
            Change::Finalize { active, .. } => self.active = *active,
            Change::Leave(node) => self.remove(*node, None),
            Change::Disk { node, new, .. } => {
                self.nodes.get_mut(node).expect("it is there").member = *new;
            }
        }
        Ok(())
    }

    fn remove(&mut self, node: NodeId, by: Option<String>) {
        let Enrolled { name, member, address, .. } = self.nodes.remove(&node).expect("it is there");
        self.drained.remove(&node);
        self.removed.push(Gone { node, name, member, address, by });
    }

    /// Appends it.
    pub fn put(&self, to: &mut Writer) {
        to.u64(self.changes);
        let nodes: Vec<_> = self.nodes.iter().collect();
        to.all(&nodes, |to, (node, enrolled)| {
            to.u8(node.0);
            to.bytes(enrolled.name.as_bytes());
            to.u64(enrolled.member.0);
            put_address(to, enrolled.address);
            to.bool(enrolled.keeps);
        });
        to.all(&self.removed, |to, gone| {
            to.u8(gone.node.0);
            to.bytes(gone.name.as_bytes());
            to.u64(gone.member.0);
            put_address(to, gone.address);
            to.option(gone.by.as_ref(), |to, by| to.bytes(by.as_bytes()));
        });
        self.put_active(to);
        self.put_drained(to);
        // Rosters of earlier versions end with a replacement or none.
        match (&self.replacing, &self.resizing) {
            (replacing, None) => to.option(*replacing, put_replacing),
            (_, Some(resizing)) => {
                to.u8(WITH_RESIZING);
                put_resizing(to, resizing);
            }
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let changes = from.u64()?;
        let enrolled = |from: &mut Reader<'_>| {
            let node = NodeId(from.u8()?);
            let (name, member) = (from.string()?, MemberId(from.u64()?));
            let enrolled = Enrolled { name, member, address: address(from)?, keeps: from.bool()? };
            Ok((node, enrolled))
        };
        let nodes = from.all(enrolled)?.into_iter().collect();
        let gone = |from: &mut Reader<'_>| {
            let (node, name) = (NodeId(from.u8()?), from.string()?);
            let (member, address) = (MemberId(from.u64()?), address(from)?);
            Ok(Gone { node, name, member, address, by: from.option(Reader::string)? })
        };
        let removed = from.all(gone)?;
        let active = Self::read_active(from)?;
        let drained = Self::read_drained(from)?;
        let (replacing, resizing) = match from.0.first() {
            Some(&WITH_RESIZING) => {
                from.u8()?;
                (None, Some(resizing(from)?))
            }
            _ => (from.option(replacing)?, None),
        };
        let roster = Self { changes, nodes, removed, replacing, resizing, drained, active };
        if !roster.is_sound() {
            return Err(malformed("the nodes of a cluster contradict each other"));
        }
        Ok(roster)
    }

    /// True for what changes can make of a founding: somebody keeps the logs, who is replaced does so, and who takes
    /// the place is a spare.
    fn is_sound(&self) -> bool {
        let keeps = |node: NodeId| self.nodes.get(&node).map(|enrolled| enrolled.keeps);
        let replaced = self.replacing.is_none_or(|Replacing { old, new }| {
            (keeps(old), keeps(new)) == (Some(true), Some(false))
        });
        let of_nodes = |one: &Resizing| one.nodes.iter().all(|node| self.nodes.contains_key(node));
        let resized = self.resizing.as_ref().is_none_or(of_nodes);
        let is_back = |gone: &Gone| self.nodes.contains_key(&gone.node);
        replaced
            && resized
            && self.drained.iter().all(|node| keeps(*node) == Some(true))
            && self.nodes.values().any(|enrolled| enrolled.keeps)
            && !self.removed.iter().any(is_back)
    }
}

/// True if nodes are named, each of them once.
fn are_named_once(nodes: &[NodeId]) -> bool {
    let is_there_once = |node: &NodeId| nodes.iter().filter(|other| *other == node).count() == 1;
    !nodes.is_empty() && nodes.iter().all(is_there_once)
}

#[cfg(test)]
mod tests;
