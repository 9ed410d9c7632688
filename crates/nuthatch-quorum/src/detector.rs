//! Failure detection: whether the log has a healthy owner, as far as one node has heard (F1 to F4).

use crate::catalog::LogRow;
use crate::rules::Rule;
use crate::timing::{BEAT, LEASE, RANK_WAIT, RESIGN, SUSPECT};
use crate::types::{Epoch, Incarnation, Member, NodeId, Time, majority};
use std::collections::{BTreeMap, BTreeSet};

/// What a node has heard of the others.
#[derive(Debug)]
pub struct Detector {
    me: NodeId,
    /// Since when nothing has been heard of a healthy owner, or an attempt of our own has failed.
    quiet_since: Time,
    healthy_at: Option<Time>,
    /// The owner's connection was reset: no silence is waited for.
    reset: bool,
    /// How often since then another node has said that it hears a healthy owner.
    denials: u32,
    answered: BTreeMap<NodeId, Time>,
    /// The disk that a peer had when it answered last.
    disks: BTreeMap<NodeId, Incarnation>,
    /// Peers whose connection was reset since they answered last.
    gone: BTreeSet<NodeId>,
    role_since: Time,
    /// Peers whose disks have no room.
    full: BTreeSet<NodeId>,
    /// Peers whose disks are to take no new messages.
    short: BTreeSet<NodeId>,
    /// Nodes that would take long to open the log, and will not soon.
    cold: BTreeSet<NodeId>,
}

impl Detector {
    pub(crate) fn new(me: NodeId, now: Time) -> Self {
        Self {
            me,
            quiet_since: now,
            healthy_at: None,
            reset: false,
            denials: 0,
            answered: BTreeMap::new(),
            disks: BTreeMap::new(),
            gone: BTreeSet::new(),
            role_since: now,
            full: BTreeSet::new(),
            short: BTreeSet::new(),
            cold: BTreeSet::new(),
        }
    }

    /// A beat of the owner, or of who is taking over.
    pub(crate) fn heard_owner(&mut self, epoch: Epoch, quorum: bool, known: Epoch, now: Time) {
        if quorum && epoch >= known {
            self.healthy_at = Some(now);
            self.begin_anew(now);
        }
    }

    /// A beat of any node: whether its disk has room.
    pub(crate) fn heard_room(&mut self, from: NodeId, room: bool) {
        if room {
            self.full.remove(&from)
        } else {
            self.full.insert(from)
        };
    }

    /// A beat of any node: whether its disk is to take no new messages.
    pub(crate) fn heard_short(&mut self, from: NodeId, short: bool) {
        if short {
            self.short.insert(from)
        } else {
            self.short.remove(&from)
        };
    }

    /// A beat of any node, or this one's driver: whether it is about to follow the log in memory.
    pub(crate) fn heard_cold(&mut self, from: NodeId, cold: bool) {
        if cold {
            self.cold.insert(from)
        } else {
            self.cold.remove(&from)
        };
    }

    /// True if a node, which may be this one, would take long to open the log, and will not soon, as far as was heard.
    pub(crate) fn is_cold(&self, node: NodeId) -> bool {
        self.cold.contains(&node) && Rule::ColdLast.holds()
    }

    /// True if another node of the set than its owner is near, has room, and would not take long to open the log.
    pub(crate) fn has_warm(&self, row: &LogRow, now: Time) -> bool {
        let owner = row.owner.map(|owner| owner.node);
        let mut others = row.set.iter().filter(|member| Some(member.node) != owner);
        others.any(|member| {
            let fit = self.has_room(member.node) && !self.is_cold(member.node);
            member.node != self.me && self.is_disk_near(*member, now) && fit
        })
    }

    /// True if a peer's disk is to take no new messages, as far as was heard.
    pub(crate) fn is_short(&self, node: NodeId) -> bool {
        self.short.contains(&node)
    }

    /// True if a peer's disk has room, as far as was heard.
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        !self.full.contains(&node) || !Rule::FullHandsOver.holds()
    }

    /// An answer to a beat.
    pub(crate) fn answered(&mut self, from: Member, now: Time) {
        self.answered.insert(from.node, now);
        self.disks.insert(from.node, from.incarnation);
        self.gone.remove(&from.node);
    }

    /// The connection to a peer was reset: it is not near before it answers again.
    pub(crate) fn peer_reset(&mut self, peer: NodeId) {
        self.gone.insert(peer);
    }

    /// True if the connection to a peer was reset that had answered before, and it has not answered since.
    pub(crate) fn is_gone(&self, peer: NodeId) -> bool {
        self.gone.contains(&peer) && self.answered.contains_key(&peer)
    }

    /// The disk that a peer had when it answered last; none if it never has.
    pub(crate) fn disk(&self, peer: NodeId) -> Option<Incarnation> {
        self.disks.get(&peer).copied()
    }

    /// The row has changed, or an attempt has failed: the silence begins anew.
    pub(crate) fn begin_anew(&mut self, now: Time) {
        self.quiet_since = now;
        (self.reset, self.denials) = (false, 0);
    }

    /// Another node hears a healthy owner. Where the connection to that was reset, it may have noticed that later:
    /// it is asked again, later each time.
    pub(crate) fn denied(&mut self, now: Time) {
        self.quiet_since = now;
        self.denials += 1;
    }

    /// This node is an owner or a candidate from now on.
    pub(crate) fn begin_role(&mut self, now: Time) {
        self.role_since = now;
    }

    /// The connection to the owner was reset.
    pub(crate) fn owner_reset(&mut self) {
        self.reset = true;
    }

    /// True if a healthy owner was heard within a lease, and its connection was not reset since. Its lease may last
    /// still: keepers promise nothing before that has ended.
    pub(crate) fn has_healthy(&self, now: Time) -> bool {
        !self.reset && self.healthy_at.is_some_and(|at| now.since(at) < LEASE + BEAT)
    }

    /// When a healthy owner was last heard.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        self.healthy_at
    }

    /// What is waited for before this node asks for a takeover, were it the first in rank.
    fn silence(&self) -> u64 {
        match (self.reset, self.denials) {
            (true, 0) => 0,
            (true, denials) => SUSPECT.min(BEAT << (denials - 1).min(8)),
            (false, _) => SUSPECT,
        }
    }

    /// True if this node, by its rank in the row, should ask for a takeover now. One that had better not be the
    /// owner is behind all others.
    pub(crate) fn suspects(&self, row: &LogRow, unfit: bool, now: Time) -> bool {
        let Some(rank) = rank(row, self.me) else { return false };
        let rank = match unfit {
            true => rank + row.set.len() as u64,
            false => rank - self.cold_before(row),
        };
        now.since(self.quiet_since) >= self.silence() + rank * RANK_WAIT
    }

    /// How many nodes that come before this one by their rank wait for it, since they are cold.
    fn cold_before(&self, row: &LogRow) -> u64 {
        if self.is_cold(self.me) {
            return 0;
        }
        let owner = row.owner.map(|owner| owner.node);
        let others = row.set.iter().map(|member| member.node).filter(|node| Some(*node) != owner);
        others.take_while(|node| *node != self.me).filter(|node| self.is_cold(*node)).count() as u64
    }

    /// True if a peer answered a beat lately, with whatever disk.
    pub(crate) fn is_near(&self, node: NodeId, now: Time) -> bool {
        let lately = self.answered.get(&node).is_some_and(|at| now.since(*at) < LEASE);
        lately && !self.gone.contains(&node)
    }

    /// True if it was this disk of a peer that answered lately: a node that has another one since lacks what this one had.
    pub(crate) fn is_disk_near(&self, member: Member, now: Time) -> bool {
        self.is_near(member.node, now) && self.disk(member.node) == Some(member.incarnation)
    }

    /// For how long a peer has answered no beat, in microseconds; none if it never has.
    pub(crate) fn silent(&self, node: NodeId, now: Time) -> Option<u64> {
        self.answered.get(&node).map(|at| now.since(*at))
    }

    /// True if an owner or candidate has a majority of the set (F4).
    pub(crate) fn has_quorum(&self, row: &LogRow, now: Time) -> bool {
        if !Rule::ResignAlone.holds() || now.since(self.role_since) < RESIGN {
            return true;
        }
        let near = row.set.iter().filter(|member| {
            let answered = self.answered.get(&member.node);
            member.node == self.me || answered.is_some_and(|at| now.since(*at) < RESIGN)
        });
        near.count() >= majority(row.set.len())
    }
}

/// The place of a node among those that may take over: the order of the set, a failed owner last.
fn rank(row: &LogRow, me: NodeId) -> Option<u64> {
    let owner = row.owner.map(|owner| owner.node);
    let mut others = row.set.iter().filter(|member| Some(member.node) != owner);
    if owner == Some(me) {
        return row.set.iter().any(|m| m.node == me).then(|| others.count() as u64);
    }
    others.position(|member| member.node == me).map(|rank| rank as u64)
}

#[cfg(test)]
mod tests;
