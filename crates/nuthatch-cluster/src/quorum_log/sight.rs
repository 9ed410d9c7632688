//! What a node knows of a log and its keepers, for people and for balance.

use nuthatch_catalog_group::LogNumber;
use nuthatch_quorum::types::{Epoch, NodeId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeName {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
}

/// What a node knows of a log at some moment, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSight {
    /// The log.
    pub number: LogNumber,
    /// Its name ([`QuorumLog::name`](super::QuorumLog::name)).
    pub name: String,
    /// Its newest epoch that this node knows of.
    pub epoch: Epoch,
    /// Who owns it, as far as that was heard lately.
    pub owner: Option<NodeName>,
    /// Who is to own it when everybody is there: nobody who is drained, and somebody in a zone in which logs are to be owned, if
    /// there are such ones.
    pub preferred: NodeName,
    /// The keepers of the set, in the order in which they take over.
    pub keepers: Vec<KeeperSight>,
    /// The nodes that are to keep it, as far as that is known.
    pub wished: Vec<NodeId>,
    /// The nodes that are to own no log while others can.
    pub drained: BTreeSet<NodeId>,
    /// The nodes to which balance may give it: none that is drained, and only those in zones in which logs are to be owned, if there
    /// are such ones.
    pub may_own: BTreeSet<NodeId>,
    /// The node that people want to own it ([`Cluster::move_log`](crate::Cluster::move_log)), whether it can or not.
    pub asked_owner: Option<NodeName>,
    /// It is to be owned in some zones, and its owner is in none of them.
    pub owner_is_outside: bool,
    /// This node owns it, and those that are to keep it have everything and do not all count yet: it can begin anew with them
    /// ([`QuorumLog::change_set`](super::QuorumLog::change_set)).
    pub set_can_change: bool,
}

/// What a node knows of a keeper of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeeperSight {
    /// Its node.
    pub node: NodeName,
    /// Its node has answered a beat within a lease (200 ms), or is this one.
    pub connected: bool,
    /// Its disk, or its memory, is the one of which the majority is made. That of a node which began anew is not before the
    /// owner has taken it in, which takes a second or more: until then the node is as good as away.
    pub counts: bool,
    /// For how long it has answered no beat; none if it never has, zero for this node's.
    pub silent: Option<Duration>,
    /// How many entries it lacks of what the owner has; the owner knows that, and nobody else.
    pub lag: Option<u64>,
    /// Nothing is known that speaks against its owning the log: its disk has room, its wall clock does not differ.
    pub fit: bool,
    /// It is about to follow the log in memory, and would take long to open it before.
    pub cold: bool,
}

/// A keeper may lack so many entries when it is chosen to follow: it gets them before it does.
pub(super) const SUCCESSOR_LAG_MAX: u64 = 8;

/// A keeper that lacks no more entries than that is up to date: so many are on their way under load.
const CURRENT_LAG_MAX: u64 = 16;

impl KeeperSight {
    /// True if it is connected, counts for the majority, and has what the owner has, but for what is on its way.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.lacks_at_most(CURRENT_LAG_MAX)
    }

    fn lacks_at_most(&self, lag_max: u64) -> bool {
        self.connected && self.counts && self.lag.is_some_and(|lag| lag <= lag_max)
    }
}

impl LogSight {
    /// The keepers of other nodes than this, by name.
    #[must_use]
    pub fn keepers_but(&self, node: &str) -> Vec<&KeeperSight> {
        let others = self.keepers.iter().filter(|keeper| keeper.node.name != node);
        let mut others: Vec<_> = others.collect();
        others.sort_by(|one, other| one.node.name.cmp(&other.node.name));
        others
    }

    /// How many nodes but this one, which owns the log, are not current: keepers, and nodes that are to be keepers and are
    /// not yet.
    #[must_use]
    pub fn behind(&self, node: &str) -> usize {
        let behind = self.keepers_but(node).into_iter().filter(|keeper| !keeper.is_current());
        let is_kept = |id: &NodeId| self.keepers.iter().any(|keeper| keeper.node.id == *id);
        behind.count() + self.wished.iter().filter(|id| !is_kept(id)).count()
    }

    /// True if a node's keeper is connected, fit, counts for the majority, and lacks no more than so many entries of what the
    /// owner has.
    pub(crate) fn has_everything(&self, node: NodeId, lag_max: u64) -> bool {
        let mut keepers = self.keepers.iter().filter(|keeper| keeper.node.id == node);
        keepers.any(|keeper| keeper.fit && keeper.lacks_at_most(lag_max))
    }

    /// True if that holds, and it is not about to follow the log, which it would open faster then.
    pub(crate) fn is_ready(&self, node: NodeId, lag_max: u64) -> bool {
        let is_cold = |keeper: &KeeperSight| keeper.node.id == node && keeper.cold;
        self.has_everything(node, lag_max) && !self.keepers.iter().any(is_cold)
    }
}
