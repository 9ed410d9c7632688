//! Who the nodes of the cluster are: those that keep the logs and vote, spares that are there to take a place, and those
//! that were removed. It is part of what the group's log makes, and changes one step at a time.
//!
//! A node that joins is a spare: a learner of the group that keeps no log. A replacement begins with one entry, which
//! names the new node in the wish of every log instead of the old one. The logs' owners bring that about. When no log is
//! on the old node any more, and the new one has what the leader has, one joint change gives it the vote.

use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::rules::Rule;
use crate::types::MemberId;
use nuthatch_quorum::types::NodeId;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Spares at a time.
pub const SPARES_MAX: usize = 3;

/// Bytes of a node's name at most.
pub const NAME_MAX: usize = 64;

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

/// A node that is taking the place of another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replacing {
    /// The one that goes.
    pub old: NodeId,
    /// The one that takes its place.
    pub new: NodeId,
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
}

/// A change of the nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// A node becomes a spare.
    Join {
        /// Its name.
        name: String,
        /// Its disk as a member of the group.
        member: MemberId,
        /// Where its node port is.
        address: Option<SocketAddr>,
    },
    /// A node says where its node port is.
    Address {
        /// The node.
        node: NodeId,
        /// Where.
        address: SocketAddr,
    },
    /// A spare begins to take the place of a node.
    Begin(Replacing),
    /// The old node keeps its place after all: the replacement is over.
    Cancel(Replacing),
    /// It has it: the old node is removed.
    Swap(Replacing),
    /// A spare is removed.
    Leave(NodeId),
    /// Another disk takes the place of a node's former one.
    Disk {
        /// The node.
        node: NodeId,
        /// The disk.
        new: MemberId,
        /// The former one.
        former: MemberId,
    },
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
    /// It is not what is under way.
    #[error("another change came first")]
    Late,
}

/// True if a node may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

/// The marks of changes as bytes. None begins like the number of a node, with which changes of disks begin.
const CHANGE: u8 = 0;

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
            Change::Leave(node) => {
                let leaves = self.enrolled(*node)?;
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
        if self.spares().count() >= SPARES_MAX {
            return Err(Refusal::Full);
        }
        self.next_number().map(drop).ok_or(Refusal::NoNumber)
    }

    fn check_begin(&self, Replacing { old, new }: Replacing) -> Result<(), Refusal> {
        let (goes, comes) = (self.enrolled(old)?, self.enrolled(new)?);
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
            Change::Leave(node) => vec![(member(node), ConfChangeType::RemoveNode)],
            Change::Disk { node, new, former } => {
                let as_what = match self.nodes[node].keeps {
                    true => ConfChangeType::AddNode,
                    false => ConfChangeType::AddLearnerNode,
                };
                vec![(*new, as_what), (*former, ConfChangeType::RemoveNode)]
            }
            Change::Address { .. } | Change::Begin(_) | Change::Cancel(_) => return None,
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
            Change::Leave(node) => self.remove(*node, None),
            Change::Disk { node, new, .. } => {
                self.nodes.get_mut(node).expect("it is there").member = *new;
            }
        }
        Ok(())
    }

    fn remove(&mut self, node: NodeId, by: Option<String>) {
        let Enrolled { name, member, address, .. } = self.nodes.remove(&node).expect("it is there");
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
        to.option(self.replacing, put_replacing);
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
        let roster = Self { changes, nodes, removed, replacing: from.option(replacing)? };
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
        let is_back = |gone: &Gone| self.nodes.contains_key(&gone.node);
        replaced
            && self.nodes.values().any(|enrolled| enrolled.keeps)
            && !self.removed.iter().any(is_back)
    }
}

fn put_address(to: &mut Writer, address: Option<SocketAddr>) {
    to.option(address, |to, address| to.bytes(address.to_string().as_bytes()));
}

fn address(from: &mut Reader<'_>) -> Result<Option<SocketAddr>, Malformed> {
    let text = from.option(Reader::string)?;
    let address = text.map(|text| text.parse().map_err(|_| malformed("an address is none")));
    address.transpose()
}

fn put_replacing(to: &mut Writer, Replacing { old, new }: Replacing) {
    to.u8(old.0);
    to.u8(new.0);
}

fn replacing(from: &mut Reader<'_>) -> Result<Replacing, Malformed> {
    Ok(Replacing { old: NodeId(from.u8()?), new: NodeId(from.u8()?) })
}

impl Change {
    /// True for what nodes and people ask for. The others are the leader's own steps, which it takes when their time has
    /// come.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        match self {
            Self::Join { .. } | Self::Address { .. } => true,
            Self::Begin(_) | Self::Cancel(_) | Self::Leave(_) => true,
            Self::Swap(_) | Self::Disk { .. } => false,
        }
    }

    /// Its bytes. Other disks are written as before there were other changes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let mark = |to: &mut Writer, kind| {
            to.u8(CHANGE);
            to.u8(kind);
        };
        match self {
            Self::Join { name, member, address } => {
                mark(&mut to, 1);
                to.bytes(name.as_bytes());
                to.u64(member.0);
                put_address(&mut to, *address);
            }
            Self::Address { node, address } => {
                mark(&mut to, 2);
                to.u8(node.0);
                put_address(&mut to, Some(*address));
            }
            Self::Begin(wanted) => {
                mark(&mut to, 3);
                put_replacing(&mut to, *wanted);
            }
            Self::Swap(wanted) => {
                mark(&mut to, 4);
                put_replacing(&mut to, *wanted);
            }
            Self::Leave(node) => {
                mark(&mut to, 5);
                to.u8(node.0);
            }
            Self::Cancel(wanted) => {
                mark(&mut to, 6);
                put_replacing(&mut to, *wanted);
            }
            Self::Disk { node, new, former } => {
                to.u8(node.0);
                to.u64(new.0);
                to.u64(former.0);
            }
        }
        to.0
    }

    /// Reads all of a document.
    ///
    /// # Errors
    /// It is no change.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let change = match from.u8()? {
            CHANGE => Self::read(&mut from)?,
            node => {
                let (new, former) = (MemberId(from.u64()?), MemberId(from.u64()?));
                Self::Disk { node: NodeId(node), new, former }
            }
        };
        from.end()?;
        Ok(change)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            1 => {
                let (name, member) = (from.string()?, MemberId(from.u64()?));
                if !is_name(&name) || member == MemberId(0) {
                    return Err(malformed("a node's name or disk is none"));
                }
                Self::Join { name, member, address: address(from)? }
            }
            2 => {
                let (node, address) = (NodeId(from.u8()?), address(from)?);
                Self::Address { node, address: address.ok_or(malformed("an address is none"))? }
            }
            3 => Self::Begin(replacing(from)?),
            4 => Self::Swap(replacing(from)?),
            5 => Self::Leave(NodeId(from.u8()?)),
            6 => Self::Cancel(replacing(from)?),
            _ => return Err(malformed("a change of the nodes of another kind")),
        })
    }
}

#[cfg(test)]
mod tests;
