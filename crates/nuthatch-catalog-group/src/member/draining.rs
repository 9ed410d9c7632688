//! A drained node does not lead the catalog while others can.

use super::Member;
use super::nodes::REPLACE_TICKS;
use super::setup::{RANK_TICKS, election_ticks};
use crate::rules::Rule;
use crate::types::MemberId;

impl Member {
    /// Lets time pass for the library. A drained node that would stand for the lead lets all others do so first, and stands
    /// when none of them has.
    pub(super) fn tick_library(&mut self) {
        let stands_next = self.raw.raft.election_elapsed + 1 >= election_ticks(self.node);
        if self.is_leader() || !stands_next {
            self.stood_back = 0;
        } else if self.stood_back < RANK_TICKS * usize::from(self.roster.ranks_behind(self.node)) {
            self.stood_back += 1;
            return;
        }
        self.raw.tick();
    }

    /// A drained leader has another one lead that is not drained, nor about to lose its vote, as soon as one has all that is
    /// committed: the library takes no proposals until the other one leads.
    pub(super) fn go_on_draining(&mut self) {
        let looks = self.is_leader() && self.ticks.is_multiple_of(REPLACE_TICKS);
        let drained = self.roster.drained.contains(&self.node) && Rule::DrainedLeadsLast.holds();
        if !looks || !drained {
            return;
        }
        let not = [self.roster.drained_members(), self.roster.going_members()].concat();
        let mut voters = self.conf().voters.into_iter().map(MemberId);
        if let Some(next) = voters.find(|one| !not.contains(one) && self.has_caught_up(*one)) {
            self.raw.transfer_leader(next.0);
        }
    }

    /// The first of the members that vote beside one that is gone; a drained one only where there is no other.
    pub(super) fn first_but(&self, gone: MemberId) -> Option<MemberId> {
        let voters = self.roster.nodes.iter().filter(|(_, one)| one.keeps && one.member != gone);
        let first = voters.min_by_key(|(node, _)| (self.roster.drained.contains(node), **node));
        first.map(|(_, one)| one.member)
    }
}
