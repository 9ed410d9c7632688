//! Changes of the nodes of a cluster, and their bytes.

use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::types::{MemberId, Protocol};
use nuthatch_quorum::types::NodeId;
use std::net::SocketAddr;

/// Bytes of a node's name at most.
pub const NAME_MAX: usize = 64;

/// True if a node may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

/// A node that is taking the place of another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replacing {
    /// The one that goes.
    pub old: NodeId,
    /// The one that takes its place.
    pub new: NodeId,
}

/// Nodes that are coming to those that keep the logs, or going from them, with nobody in their places.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Resizing {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// They are spares that come; otherwise they go, and are spares then.
    pub keep: bool,
}

impl Resizing {
    /// What takes it back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { nodes: self.nodes.clone(), keep: !self.keep }
    }
}

/// That a node is to own no log and not to lead the catalog, or may do both again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Draining {
    /// The node.
    pub node: NodeId,
    /// It is to own nothing; otherwise it is as any other one again.
    pub drain: bool,
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
    /// Nodes begin to keep the logs beside those that do, or to leave that to the others.
    Resize(Resizing),
    /// They do.
    Resized(Resizing),
    /// A node is to own no log and not to lead the catalog while others can, or no more.
    Drain(Draining),
    /// The nodes speak this protocol from now on, and none that does not know it is a node any more.
    Finalize {
        /// Which one.
        active: Protocol,
        /// How often the nodes had changed when all of them were known to speak it.
        changes: u64,
    },
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

/// The marks of changes as bytes. None begins like the number of a node, with which changes of disks begin.
const CHANGE: u8 = 0;

pub(crate) fn put_address(to: &mut Writer, address: Option<SocketAddr>) {
    to.option(address, |to, address| to.bytes(address.to_string().as_bytes()));
}

pub(crate) fn address(from: &mut Reader<'_>) -> Result<Option<SocketAddr>, Malformed> {
    let text = from.option(Reader::string)?;
    let address = text.map(|text| text.parse().map_err(|_| malformed("an address is none")));
    address.transpose()
}

pub(crate) fn put_replacing(to: &mut Writer, Replacing { old, new }: Replacing) {
    to.u8(old.0);
    to.u8(new.0);
}

pub(crate) fn replacing(from: &mut Reader<'_>) -> Result<Replacing, Malformed> {
    Ok(Replacing { old: NodeId(from.u8()?), new: NodeId(from.u8()?) })
}

fn put_draining(to: &mut Writer, Draining { node, drain }: Draining) {
    to.u8(node.0);
    to.bool(drain);
}

fn draining(from: &mut Reader<'_>) -> Result<Draining, Malformed> {
    Ok(Draining { node: NodeId(from.u8()?), drain: from.bool()? })
}

pub(crate) fn put_resizing(to: &mut Writer, resizing: &Resizing) {
    to.all(&resizing.nodes, |to, node| to.u8(node.0));
    to.bool(resizing.keep);
}

pub(crate) fn resizing(from: &mut Reader<'_>) -> Result<Resizing, Malformed> {
    let nodes = from.all(|from| Ok(NodeId(from.u8()?)))?;
    Ok(Resizing { nodes, keep: from.bool()? })
}

impl Change {
    /// True for what nodes and people ask for. The others are the leader's own steps, which it takes when their time has
    /// come.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        match self {
            Self::Join { .. } | Self::Address { .. } => true,
            Self::Begin(_) | Self::Cancel(_) | Self::Resize(_) | Self::Leave(_) => true,
            Self::Drain(_) | Self::Finalize { .. } => true,
            Self::Swap(_) | Self::Resized(_) | Self::Disk { .. } => false,
        }
    }

    /// True for what ends the part of a node in the logs: none of them may be on it by then.
    #[must_use]
    pub fn is_of_copies(&self) -> bool {
        matches!(self, Self::Swap(_) | Self::Resized(_) | Self::Leave(_))
    }

    /// True for a protocol that this program does not know: what follows it may be of kinds that nobody here knows.
    #[must_use]
    pub fn is_later(&self) -> bool {
        matches!(self, Self::Finalize { active, .. } if *active > Protocol::NEWEST)
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
            Self::Resize(wanted) => {
                mark(&mut to, 7);
                put_resizing(&mut to, wanted);
            }
            Self::Resized(wanted) => {
                mark(&mut to, 8);
                put_resizing(&mut to, wanted);
            }
            Self::Drain(wanted) => {
                mark(&mut to, 9);
                put_draining(&mut to, *wanted);
            }
            Self::Finalize { active, changes } => {
                mark(&mut to, 10);
                to.u8(active.0);
                to.u64(*changes);
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
            7 => Self::Resize(resizing(from)?),
            8 => Self::Resized(resizing(from)?),
            9 => Self::Drain(draining(from)?),
            10 => Self::Finalize { active: Protocol(from.u8()?), changes: from.u64()? },
            _ => return Err(malformed("a change of the nodes of another kind")),
        })
    }
}
