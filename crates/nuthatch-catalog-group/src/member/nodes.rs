//! How a member brings changes of the nodes about.

use super::{Effect, Member};
use crate::asked::Origin;
use crate::coding::{LATER, Malformed, malformed};
use crate::packet::{Body, Envelope};
use crate::roster::{Change, Refusal, Replacing, Resizing};
use crate::rules::Rule;
use crate::types::MemberId;
use nuthatch_quorum::types::NodeId;
use raft::eraftpb::{ConfChangeV2, Entry};
use std::collections::BTreeMap;

/// Ticks for which a disk must not have been heard before another one takes its place, and for which the leader must
/// have led to know that.
pub(super) const GONE_TICKS: u64 = 40;

/// Ticks between two looks at a replacement that is under way.
pub(super) const REPLACE_TICKS: u64 = 4;

/// Ticks after which a change is asked for again.
const RETRY_TICKS: u64 = 4;

/// Ticks after which nobody knows what became of a change.
const WANTED_TICKS: u64 = 60;

/// Changes of one node that wait at a time.
pub const WANTED_MAX: usize = 8;

/// Why a disk takes no part whose node was removed.
pub const REMOVED: &str = "its node was removed from the cluster";

/// A change that this member's node wants.
#[derive(Debug)]
struct One {
    change: Change,
    began: u64,
    sent: Option<u64>,
}

/// Changes that this member's node wants, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeMap<u64, One>);

impl Wanted {
    /// Takes a change; false: there are too many.
    pub fn add(&mut self, number: u64, change: Change, now: u64) -> bool {
        let fits = self.0.len() < WANTED_MAX;
        if fits {
            self.0.insert(number, One { change, began: now, sent: None });
        }
        fits
    }

    /// Changes that are given up.
    pub fn given_up(&mut self, now: u64) -> Vec<u64> {
        let late = |one: &One| now >= one.began + WANTED_TICKS;
        let given_up: Vec<u64> =
            self.0.iter().filter(|(_, one)| late(one)).map(|(number, _)| *number).collect();
        self.0.retain(|_, one| !late(one));
        given_up
    }

    /// Changes that are to be asked for now.
    fn due(&mut self, now: u64) -> Vec<(u64, Change)> {
        let due = |one: &One| one.sent.is_none_or(|sent| now >= sent + RETRY_TICKS);
        let mut changes = vec![];
        for (number, one) in self.0.iter_mut().filter(|(_, one)| due(one)) {
            one.sent = Some(now);
            changes.push((*number, one.change.clone()));
        }
        changes
    }
}

impl Member {
    /// Asks whichever member leads for the changes that this one's node wants, again until it says what became of them.
    pub(super) fn send_wanted(&mut self) {
        let Some(leader) = self.leader().filter(|_| self.taking_part.is_on()) else { return };
        let me = self.id();
        for (number, change) in self.wanted.due(self.ticks) {
            match leader == me {
                true => self.lead_change(Origin { member: me, number }, &change),
                false => self.send(leader, Body::Change { number, change }),
            }
        }
    }

    pub(super) fn decided(&mut self, number: u64, refused: Option<String>) {
        if self.wanted.0.remove(&number).is_some() {
            self.out.push(Effect::Decided { number, refused });
        }
    }

    /// Says that a change was made or cannot be, or proposes it: whoever wants it asks again.
    pub(super) fn lead_change(&mut self, origin: Origin, change: &Change) {
        if !self.is_leader() || !change.is_asked_for() {
            return;
        }
        let refused =
            match (self.roster.has(change), self.roster.check_with(change, &self.catalogs)) {
                (true, _) => None,
                _ if change.is_later() => Some(Refusal::UnknownProtocol.to_string()),
                (false, Err(why)) => Some(why.to_string()),
                (false, Ok(())) => return self.propose_change(change),
            };
        let Origin { member, number } = origin;
        match member == self.id() {
            true => self.decided(number, refused),
            false => self.send(member, Body::Decided { number, refused }),
        }
    }

    /// Proposes a change that can be made, unless one of the members is in the way: then it is asked for again.
    pub(super) fn propose_change(&mut self, change: &Change) {
        let proposed = match self.roster.members_change(change) {
            None => self.raw.propose(change.encode(), vec![0]),
            Some(_) if self.raw.raft.has_pending_conf() || !self.is_settled() => Ok(()),
            Some(of_members) => self.raw.propose_conf_change(change.encode(), of_members),
        };
        // What another change is in the way of is asked for again.
        drop(proposed);
    }

    /// A new disk of a node takes the place of its former one, once nobody has heard that for a while.
    pub(super) fn let_join(&mut self, node: NodeId, new: MemberId) {
        if let Some(gone) = self.roster.removed.iter().find(|gone| gone.node == node) {
            let by = gone.by.clone();
            if !self.is_in_group(new) {
                self.send(new, Body::Removed(by));
            }
            return;
        }
        let Some(former) = self.roster.nodes.get(&node).map(|one| one.member) else { return };
        let silent = self.heard.get(&former).is_none_or(|at| self.ticks >= at + GONE_TICKS);
        let known = self.is_leader() && self.ticks >= self.led_since + GONE_TICKS;
        let is_new = former != new && former != self.id();
        if is_new && silent && known {
            self.propose_change(&Change::Disk { node, new, former });
        }
    }

    /// The leader gives a new node the vote of the one that it replaces, when no log is on that any more.
    pub(super) fn go_on_replacing(&mut self) {
        let Some(replacing) = self.roster.replacing.filter(|_| self.is_leader()) else { return };
        if !self.ticks.is_multiple_of(REPLACE_TICKS) {
            return;
        }
        let (old, new) =
            (self.roster.nodes[&replacing.old].member, self.roster.nodes[&replacing.new].member);
        if !self.roster.are_moved(&self.catalogs) || !self.has_caught_up(new) {
            return;
        }
        match old == self.id() {
            true => self.leave_the_lead(&[old]),
            false => self.propose_change(&Change::Swap(replacing)),
        }
    }

    /// The leader gives nodes that come their votes when all logs are on them, and takes those of nodes that go when no
    /// log is on these.
    pub(super) fn go_on_resizing(&mut self) {
        let resizing = self.roster.resizing.as_ref().filter(|_| self.is_leader());
        let Some(resizing) = resizing.filter(|_| self.ticks.is_multiple_of(REPLACE_TICKS)).cloned()
        else {
            return;
        };
        let members: Vec<MemberId> =
            resizing.nodes.iter().map(|node| self.roster.nodes[node].member).collect();
        let ready = match resizing.keep {
            true => members.iter().all(|member| self.has_caught_up(*member)),
            false => self.go_on_without(&members),
        };
        if !self.roster.are_moved(&self.catalogs) || !ready {
            return;
        }
        match !resizing.keep && members.contains(&self.id()) {
            true => self.leave_the_lead(&members),
            false => self.propose_change(&Change::Resized(resizing)),
        }
    }

    /// True if a majority of the members that keep their votes has all that is committed: after the change they alone decide,
    /// also whether a lost disk is replaced.
    pub(super) fn go_on_without(&self, going: &[MemberId]) -> bool {
        let stays = |id: &u64| !going.contains(&MemberId(*id));
        let stay: Vec<u64> = self.conf().voters.into_iter().filter(stays).collect();
        let fit = |id: &&u64| **id == self.id().0 || self.has_caught_up(MemberId(**id));
        stay.iter().filter(fit).count() > stay.len() / 2
    }

    /// True if a member has all that is committed, and was heard lately.
    pub(super) fn has_caught_up(&self, member: MemberId) -> bool {
        let committed = self.raw.raft.raft_log.committed;
        let progress = self.raw.raft.prs().get(member.0);
        progress.is_some_and(|progress| progress.matched >= committed && progress.recent_active)
            || !Rule::CaughtUpFirst.holds()
    }

    /// Has another member lead that is not about to lose its vote and has all that is committed: until that leads, the library
    /// takes no proposals. A drained one only where there is no other.
    fn leave_the_lead(&mut self, going: &[MemberId]) {
        let (prs, drained) = (self.raw.raft.prs(), self.roster.drained_members());
        let goes = |id: u64| going.contains(&MemberId(id));
        let fit = |id: &u64| !goes(*id) && self.has_caught_up(MemberId(*id));
        let voters = self.conf().voters.into_iter().filter(fit);
        let rank =
            |id: &u64| (!drained.contains(&MemberId(*id)), prs.get(*id).map(|one| one.matched));
        if let Some(next) = voters.max_by_key(rank) {
            self.raw.transfer_leader(next);
        }
    }

    /// True if a message is of a disk whose node was removed, which it is told. Until the change of the members is over its
    /// vote may be needed.
    pub(super) fn is_of_removed(&mut self, envelope: &Envelope) -> bool {
        let Some(gone) = self.roster.gone_member(envelope.from) else { return false };
        let by = gone.by.clone();
        if self.is_in_group(envelope.from) || !Rule::RemovedNotHeard.holds() {
            return false;
        }
        self.send(envelope.from, Body::Removed(by));
        true
    }

    /// True if a member has or had a vote, as far as this one knows, or learns.
    fn is_in_group(&self, member: MemberId) -> bool {
        let conf = self.conf();
        [conf.voters, conf.voters_outgoing, conf.learners].concat().contains(&member.0)
    }

    /// This disk's node was removed, as a member says that has seen the end of it. What this one knows by itself is not
    /// enough: the others may need its vote to see that end.
    pub(super) fn was_removed(&mut self, by: Option<String>) {
        if self.taking_part.refuse(REMOVED) {
            self.out.push(Effect::Removed { by });
        }
    }

    /// A member that led until it was removed leads no more. One that led until it lost its vote has another one lead: the
    /// lead may have changed while that was under way.
    pub(super) fn look_at_removal(&mut self) {
        let votes = self.conf().voters.contains(&self.id().0);
        let looks = self.ticks.is_multiple_of(REPLACE_TICKS);
        if self.is_leader() && looks && !votes && self.is_settled() && self.is_in_group(self.id()) {
            self.leave_the_lead(&[self.id()]);
        }
        if self.is_leader() && !self.is_in_group(self.id()) {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Makes a change of the nodes that was committed. One that cannot be made any more changes nothing.
    pub(super) fn apply_change(&mut self, entry: &Entry) -> Result<(), Malformed> {
        if entry.context.is_empty() {
            // The end of a change of members.
            return self.apply_members(&ConfChangeV2::default());
        }
        let change = Change::decode(&entry.context)?;
        if change.is_later() {
            return Err(malformed(LATER));
        }
        let before = self.roster.replacing;
        if self.roster.check_with(&change, &self.catalogs).is_err() {
            return Ok(());
        }
        let of_members = self.roster.members_change(&change);
        self.roster.make(&change).expect("as was looked at");
        self.wish_for(&change, before);
        self.out.extend(self.roster.told_of(&change).map(Effect::Report));
        of_members.map_or(Ok(()), |of_members| self.apply_members(&of_members))
    }

    /// Names the nodes in the wish of every log that are to keep them after a change.
    fn wish_for(&mut self, change: &Change, before: Option<Replacing>) {
        let (former, new) = match *change {
            Change::Begin(Replacing { old, new }) => {
                (std::iter::once(old).chain(before.map(|before| before.new)).collect(), new)
            }
            Change::Cancel(Replacing { old, new }) => (vec![new], old),
            Change::Resize(Resizing { ref nodes, keep }) => {
                self.catalogs.iter_mut().for_each(|log| log.wish_with(nodes, keep));
                return;
            }
            _ => return,
        };
        let former: Vec<NodeId> = former.into_iter().filter(|node| *node != new).collect();
        self.catalogs.iter_mut().for_each(|log| log.wish_instead(&former, new));
    }

    fn apply_members(&mut self, change: &ConfChangeV2) -> Result<(), Malformed> {
        let applied = self.raw.apply_conf_change(change);
        applied.map(drop).map_err(|_| malformed("a change of members that cannot be made"))
    }
}
