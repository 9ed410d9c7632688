//! What a node shows of the log and its keepers, for people and for whoever spreads logs over nodes.

use super::{Node, Role};
use crate::catalog::{LogRow, Wish};
use crate::types::{Epoch, Member, NodeId, Time};

/// A keeper, as far as a node knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sight {
    /// The keeper.
    pub member: Member,
    /// It is this node, or has answered a beat within a lease.
    pub near: bool,
    /// For how long it has answered no beat, in microseconds; none if it never has. 0 for this node.
    pub silent: Option<u64>,
    /// Nothing is known that speaks against its owning the log: its disk has room, and its wall clock does not differ from
    /// this node's.
    pub fit: bool,
    /// How many entries it lacks of what the owner has; none where this node is not the owner, or the keeper's log is not
    /// known to be the owner's.
    pub lag: Option<u64>,
}

impl Node {
    /// The row of the log, as it was last read.
    #[must_use]
    pub fn row(&self) -> Option<&LogRow> {
        self.log_row()
    }

    /// What is wanted of the log, as it was last read.
    #[must_use]
    pub fn wish(&self) -> Option<&Wish> {
        self.row.as_ref().map(|row| &row.wish.value)
    }

    /// The other nodes, from now on: whom this one tells that it is alive.
    pub fn meet(&mut self, peers: Vec<NodeId>) {
        self.config.peers = peers;
    }

    /// Whether this node is to own the log only where nobody else can, from now on: by its rank it is behind all others then.
    pub fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// The newest epoch that this node knows of, and who owns it or is taking it over, as far as that was heard lately.
    #[must_use]
    pub fn heard_owner(&self, now: Time) -> (Epoch, Option<NodeId>) {
        match &self.role {
            Role::Owner(owner) => (owner.epoch(), Some(self.config.id)),
            Role::Candidate(candidate) => (candidate.epoch(), None),
            Role::Follower | Role::Asking { .. } => {
                let owner = self.log_row().and_then(|row| row.owner).map(|owner| owner.node);
                let heard =
                    |node: &NodeId| *node != self.config.id && self.detector.has_healthy(now);
                (self.known_epoch(), owner.filter(heard))
            }
        }
    }

    /// The keepers of the set, in the order in which they take over.
    #[must_use]
    pub fn keepers(&self, now: Time) -> Vec<Sight> {
        let set = self.log_row().map_or(&[][..], |row| &row.set);
        let sight = |member: &Member| Sight {
            member: *member,
            near: *member == self.me() || self.detector.is_near(member.node, now),
            silent: match *member == self.me() {
                true => Some(0),
                false => self.detector.silent(member.node, now),
            },
            fit: self.detector.has_room(member.node) && !self.walls.is_apart(member.node, now),
            lag: self.owner().and_then(|owner| owner.lag(*member)),
        };
        set.iter().map(sight).collect()
    }
}
