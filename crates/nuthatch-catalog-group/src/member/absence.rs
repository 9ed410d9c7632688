//! The leader has a spare take the place of a node that is away for long, if it is to (`replace_after`).
//!
//! What it knows is what itself has heard, since it leads: another leader begins to count anew. A drained node is away because
//! somebody wants that, and keeps its place. Which spare follows is chosen by the [zones](crate::zones) of the nodes.

use super::nodes::{GONE_TICKS, REPLACE_TICKS};
use super::{Effect, Member};
use crate::roster::{Change, Replacing};
use crate::rules::Rule;
use crate::types::MemberId;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;

/// A disk that the leader does not hear.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// Since which tick.
    since: u64,
    /// People were told what follows from it: the spare that takes the place, or that there is none.
    told: Option<Option<NodeId>>,
}

/// The disks that this member has not heard since it leads.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<MemberId, Absence>);

impl Absences {
    /// A member was heard.
    pub fn heard(&mut self, member: MemberId) {
        self.0.remove(&member);
    }

    pub fn is_over(&self, member: MemberId, (now, after): (u64, u64)) -> bool {
        self.0.get(&member).is_some_and(|absence| now >= absence.since + after)
    }

    /// True if people were not told of that yet.
    fn tell(&mut self, member: MemberId, next: Option<NodeId>) -> bool {
        let absence = self.0.get_mut(&member);
        absence.is_some_and(|absence| absence.told.replace(next) != Some(next))
    }
}

impl Member {
    /// Notes who is not heard, and begins the replacement of the first node that was not for as long as it takes.
    pub(super) fn replace_absent(&mut self) {
        let Some(after) = self.limits.replace_after_ticks.filter(|_| self.is_leader()) else {
            self.absences = Absences::default();
            return;
        };
        let (me, now) = (self.id(), self.ticks);
        let members = self.roster.members();
        self.absences.0.retain(|member, _| members.values().any(|one| one == member));
        for one in self.roster.nodes.values().filter(|one| one.member != me) {
            self.absences.0.entry(one.member).or_insert(Absence { since: now, told: None });
        }
        let is_busy = self.roster.replacing.is_some() || self.roster.resizing.is_some();
        if is_busy || !now.is_multiple_of(REPLACE_TICKS) || !self.is_settled() {
            return;
        }
        let Some((old, disk)) = self.away((now, after)) else { return };
        let new = self.fit_spare(old);
        if self.absences.tell(disk, new) {
            self.out.push(Effect::Absent { old, new, ticks: after });
        }
        if let Some(new) = new {
            self.propose_change(&Change::Begin(Replacing { old, new }));
        }
    }

    /// The first node that keeps logs, is not drained, and was not heard for as long as it takes; and its disk.
    fn away(&self, over: (u64, u64)) -> Option<(NodeId, MemberId)> {
        let keeps = |node: &NodeId| !self.roster.drained.contains(node);
        let mut keepers = self.roster.nodes.iter().filter(|(node, one)| one.keeps && keeps(node));
        let is_away = |one| self.absences.is_over(one, over) || !Rule::AbsentReplacedOnly.holds();
        let away = keepers.find(|(_, one)| one.member != self.id() && is_away(one.member));
        away.map(|(node, one)| (*node, one.member))
    }

    /// The spare that is to take the place of a node, by the zones that are known: the first of those that were heard lately.
    fn fit_spare(&self, goes: NodeId) -> Option<NodeId> {
        let lately =
            |member| self.heard.get(&member).is_some_and(|at| self.ticks < at + GONE_TICKS);
        let mut spares = self.zones.spares_for(goes, &self.roster).into_iter();
        spares.find(|node| lately(self.roster.nodes[node].member))
    }
}
