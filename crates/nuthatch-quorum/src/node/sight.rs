//! What a node shows of the log and its keepers, for people and for whoever spreads logs over nodes.

use super::{Node, Role};
use crate::catalog::{LogRow, Snapshot, Wish};
use crate::timing::{CHANGE_LAG_MAX, LEASE_MIN};
use crate::types::{Epoch, Member, NodeId, Time, majority};

/// A keeper, as far as a node knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sight {
    /// The keeper.
    pub member: Member,
    /// It is this node, or has answered a beat within a lease, with whatever disk.
    pub near: bool,
    /// The disk of the set is the one that its node has, as far as was heard: a node whose disk is new does not count for the
    /// majority before the owner has taken that into the set.
    pub counts: bool,
    /// For how long it has answered no beat, in microseconds; none if it never has. 0 for this node.
    pub silent: Option<u64>,
    /// Nothing is known that speaks against its owning the log: its disk has room, and its wall clock does not differ from
    /// this node's.
    pub fit: bool,
    /// It is about to follow the log in memory: until then it would take long to open it.
    pub cold: bool,
    /// How many entries it lacks of what the owner has, or its new disk does; none where this node is not the owner, or the
    /// keeper's log is not known to be the owner's.
    pub lag: Option<u64>,
}

impl Node {
    /// The row of the log, as it was last read.
    #[must_use]
    pub fn row(&self) -> Option<&LogRow> {
        self.log_row()
    }

    /// All of the catalog, as it was last read.
    #[must_use]
    pub fn catalog(&self) -> Option<&Snapshot> {
        self.row.as_ref()
    }

    /// What is wanted of the log, as it was last read.
    #[must_use]
    pub fn wish(&self) -> Option<&Wish> {
        self.row.as_ref().map(|row| &row.wish.value)
    }

    /// True if this node is to keep the log and its disk counts for the majority, as far as it knows; true also if it is to
    /// keep none of it. A node that knows nothing of the log yet does not count.
    #[must_use]
    pub fn counts(&self) -> bool {
        let Some(row) = &self.row else { return false };
        let is_wished = row.wish.value.keepers.contains(&self.config.id);
        !is_wished || row.log.value.set.contains(&self.me())
    }

    /// True if this node owns the log, stays in the set that is wished, and can bring that about as soon as the log is closed:
    /// whoever has it open closes it then, and says so ([`super::Event::ChangeSet`]). Under load disks may lack what is on its
    /// way to them.
    #[must_use]
    pub fn set_can_change(&self, now: Time) -> bool {
        self.may_change_set(CHANGE_LAG_MAX, now)
    }

    /// A node has ended a connection: it counts as away until it answers a beat again.
    pub fn lose_sight(&mut self, of: NodeId) {
        self.detector.peer_reset(of);
    }

    /// The other nodes, from now on: whom this one tells that it is alive.
    pub fn meet(&mut self, peers: Vec<NodeId>) {
        self.config.peers = peers;
    }

    /// Has this node answer reads no longer than that, in microseconds, after a beat that a majority answered, and keepers hold
    /// back their promises no longer than that needs: a takeover from it waits so much less. Beats say so from now on, so all
    /// keepers must know how to read that. A lease is never made longer: keepers go by what earlier beats said.
    ///
    /// # Panics
    /// With less than [`LEASE_MIN`].
    pub fn shorten_lease(&mut self, lease: u64) {
        assert!(lease >= LEASE_MIN, "a beat may be late");
        self.lease = self.lease.min(lease);
        if let Role::Owner(owner) = &mut self.role {
            owner.shorten_lease(self.lease);
        }
    }

    /// Whether this node is to own the log only where nobody else can, from now on: by its rank it is behind all others then.
    pub fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Whether this node's disk is so full that no new messages are to be taken, from now on; the others hear of it.
    pub fn set_short(&mut self, short: bool) {
        self.short = short;
    }

    /// Whether this node is about to follow the log in memory, and would take long to open it before, from now on. Beats say so,
    /// so all nodes must know how to read that.
    pub fn set_cold(&mut self, cold: bool) {
        self.detector.heard_cold(self.config.id, cold);
    }

    /// True if no new messages are to be taken: this node's disk is nearly full, or those of so many others that fewer than a
    /// majority of the set have room.
    #[must_use]
    pub fn takes_no_messages(&self) -> bool {
        let set = self.log_row().map_or(&[][..], |row| &row.set);
        let is_short = |member: &&Member| {
            if member.node == self.config.id {
                self.short
            } else {
                self.detector.is_short(member.node)
            }
        };
        let short = set.iter().filter(is_short).count();
        self.short || (!set.is_empty() && set.len() - short < majority(set.len()))
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

    /// True if another node has answered a beat within a lease, and for how long, in microseconds, it has answered none; none
    /// if it never has.
    #[must_use]
    pub fn hears(&self, node: NodeId, now: Time) -> (bool, Option<u64>) {
        (self.detector.is_near(node, now), self.detector.silent(node, now))
    }

    /// The keepers of the set, in the order in which they take over.
    #[must_use]
    pub fn keepers(&self, now: Time) -> Vec<Sight> {
        let set = self.log_row().map_or(&[][..], |row| &row.set);
        let sight = |member: &Member| {
            let is_here = member.node == self.config.id;
            let disk =
                if is_here { Some(self.me().incarnation) } else { self.detector.disk(member.node) };
            let disk = disk.unwrap_or(member.incarnation);
            let is_full = if is_here {
                !self.keeper.has_room()
            } else {
                !self.detector.has_room(member.node)
            };
            Sight {
                member: *member,
                near: is_here || self.detector.is_near(member.node, now),
                counts: disk == member.incarnation && !self.has_named_another(member),
                silent: if is_here { Some(0) } else { self.detector.silent(member.node, now) },
                cold: self.detector.is_cold(member.node),
                fit: !is_full && !self.walls.is_apart(member.node, now),
                lag: self
                    .owner()
                    .and_then(|owner| owner.lag(Member { incarnation: disk, ..*member })),
            }
        };
        set.iter().map(sight).collect()
    }

    /// True if a node has named another disk in the catalog than this one.
    fn has_named_another(&self, member: &Member) -> bool {
        let named = self.row.as_ref().and_then(|row| row.nodes.get(&member.node));
        named.is_some_and(|row| row.value.incarnation != member.incarnation)
    }
}
