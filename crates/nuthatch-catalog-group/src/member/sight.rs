//! What a member shows of itself.

use super::Member;
use super::nodes::REMOVED;
use crate::roster::Roster;
use crate::types::{Boot, LogNumber, MemberId};
use nuthatch_quorum::catalog::Catalog;
use nuthatch_quorum::types::NodeId;
use raft::StateRole;
use std::collections::BTreeMap;
use std::fmt;

impl Member {
    /// Which member this is.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.identity.member
    }

    /// What it holds of the first log, applied as far as it knows.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        self.catalogs[LogNumber::FIRST.index()].catalog()
    }

    /// True if it leads, as far as it knows.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// The member that leads, as far as this one knows.
    #[must_use]
    pub fn leader(&self) -> Option<MemberId> {
        (self.raw.raft.leader_id != raft::INVALID_ID).then_some(MemberId(self.raw.raft.leader_id))
    }

    /// The library's term, and how far this member has applied the log.
    #[must_use]
    pub fn position(&self) -> (u64, u64) {
        (self.raw.raft.term, self.applied)
    }

    /// The greatest boot counter that it has seen of another member.
    #[must_use]
    pub fn holds(&self, member: MemberId) -> Option<Boot> {
        self.peers.get(&member).copied()
    }

    /// True if it may vote.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.taking_part.is_on()
    }

    /// Why it will never take part again, if so.
    #[must_use]
    pub fn is_refused(&self) -> Option<&'static str> {
        self.taking_part.why_never()
    }

    /// True if no change of the members is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.conf().voters_outgoing.is_empty()
    }

    /// The disk of each node, as far as this member has applied the log.
    #[must_use]
    pub fn members(&self) -> BTreeMap<NodeId, MemberId> {
        self.roster.members()
    }

    /// Who the nodes are, as far as this member has applied the log.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The members that vote, as far as this one has applied the log.
    #[must_use]
    pub fn voters(&self) -> Vec<MemberId> {
        self.conf().voters.into_iter().map(MemberId).collect()
    }

    /// How far this member's log goes, applied or not.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// True if this disk's node was removed, as it knows.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.taking_part.why_never() == Some(REMOVED)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raft = &self.raw.raft;
        f.debug_struct("Member")
            .field("id", &self.id())
            .field("state", &raft.state)
            .field("term", &raft.term)
            .field("leader", &raft.leader_id)
            .field("applied", &self.applied)
            .field("last", &raft.raft_log.last_index())
            .field("conf", &raft.prs().conf().to_conf_state())
            .field("roster", &self.roster)
            .field("met", &self.met)
            .field("taking_part", &self.taking_part)
            .finish_non_exhaustive()
    }
}
