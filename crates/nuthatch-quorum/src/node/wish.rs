//! What is wanted of the log, and how a node brings it about: planned handover, another set. That a certain node is to own it is
//! for the driver, which closes the log before ([`Event::HandOverTo`](super::Event::HandOverTo)).
//!
//! An owner that stays in the set that is wished takes over from itself with that set. What is in flight then has an unknown
//! fate, so the driver is to have closed the log by that time: once the set can change ([`Node::set_can_change`]) its driver
//! is waited for ([`Event::ChangeSet`](super::Event::ChangeSet)), and only where that does nothing for a while the owner goes
//! on by itself. So it is with an owner that is to keep the log no more, which hands it over.

use super::{Node, Prepares, Role};
use crate::effect::{Alarm, Effect};
use crate::message::Message;
use crate::out::Out;
use crate::rules::Rule;
use crate::takeover::Lacking;
use crate::timing::{ADMIT_POLL, SUSPECT, UNWISHED_WAIT};
use crate::types::{Epoch, Member, NodeId, Revision, Time, majority};

/// An epoch that this node has left, whom it told to follow that, and who has everything.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) epoch: Epoch,
    to: Member,
    whole: Vec<Member>,
}

impl Node {
    /// Tries to become the owner whether or not there is a healthy one.
    pub(super) fn take_over(&mut self, now: Time, out: &mut Out) {
        if self.log_row().is_some_and(|row| self.may_claim(row)) {
            self.role = Role::Follower;
            self.claim(now, out);
        }
    }

    /// An owner brings about what is wanted of the log: it brings new disks what it has, hands over where it is to keep
    /// the log no more, or takes over from itself with another set, where its driver does not have it do so for a while.
    pub(super) fn look_at_wish(&mut self, now: Time, out: &mut Out) {
        if now.since(self.admit_at) < ADMIT_POLL || self.proposal.is_some() {
            return;
        }
        self.admit_at = now;
        let (Role::Owner(_), Some(snapshot)) = (&self.role, &self.row) else { return };
        let me = self.me();
        let (target, new) = (snapshot.target_of(me), snapshot.newcomers_for(me));
        if !target.contains(&me) {
            self.changeable_since = None;
            let since = *self.unwished_since.get_or_insert(now);
            if now.since(since) >= UNWISHED_WAIT {
                self.hand_over(|member| target.contains(member), now);
            }
            return;
        }
        self.unwished_since = None;
        let Role::Owner(owner) = &mut self.role else { unreachable!("as above") };
        owner.teach(&new, now);
        if !self.set_can_change(now) {
            self.changeable_since = None;
            return;
        }
        let since = *self.changeable_since.get_or_insert(now);
        if now.since(since) >= UNWISHED_WAIT && self.may_change_set(0, now) {
            self.claim(now, out);
        }
    }

    /// The driver has closed the log so that its set can change: the owner takes over from itself if it can now. Where it can
    /// not, the driver is waited for anew.
    pub(super) fn change_set(&mut self, now: Time, out: &mut Out) {
        self.changeable_since = None;
        if self.proposal.is_none() && self.may_change_set(0, now) {
            self.claim(now, out);
        }
    }

    /// True if this node could take over from itself with the set that is wished: all disks that are new are near and lack no
    /// more than `lag` entries, and those that stay and those that come are a majority of either set. Otherwise the epoch
    /// would begin with the old one, again and again.
    pub(super) fn may_change_set(&self, lag: u64, now: Time) -> bool {
        let (Role::Owner(owner), Some(snapshot)) = (&self.role, &self.row) else { return false };
        let (me, set) = (self.me(), &snapshot.log.value.set);
        let target = snapshot.target_of(me);
        if target == *set || !target.contains(&me) || owner.is_leaving() {
            return false;
        }
        let new = snapshot.newcomers_for(me);
        let whole: Vec<Member> = owner.whole_but(lag).collect();
        let stay = whole.iter().filter(|member| target.contains(member)).count();
        let learnt =
            |member: &Member| owner.has_learnt_but(*member, lag) || !Rule::LearnsBeside.holds();
        let near = |member: &Member| self.detector.is_disk_near(*member, now);
        new.iter().all(|member| near(member) && learnt(member))
            && whole.len() >= majority(set.len())
            && stay + new.len() >= majority(target.len())
    }

    /// Leaves the log to one of some keepers of the set that has everything, if there is one.
    pub(super) fn hand_over(&mut self, may: impl Fn(&Member) -> bool, now: Time) {
        let next = self.follower(may, now);
        if let (Role::Owner(owner), Some(next)) = (&mut self.role, next) {
            owner.leave(next, now);
        }
    }

    /// Who of some keepers may follow this owner: the one that was told to make ready, or any.
    fn follower(&self, may: impl Fn(&Member) -> bool, now: Time) -> Option<Member> {
        let me = self.me();
        let Role::Owner(owner) = &self.role else { return None };
        let fit = |m: &Member| {
            let near = self.detector.is_disk_near(*m, now) && self.detector.has_room(m.node);
            *m != me && may(m) && near
        };
        // That one has claimed the next epoch, and brings itself what it may lack at this moment.
        let ready = owner.prepared().filter(fit);
        let warm = || owner.whole().filter(fit).find(|m| !self.detector.is_cold(m.node));
        ready.or_else(warm).or_else(|| owner.whole().find(fit))
    }

    /// Tells one of some keepers that it is to follow soon, so that it has claimed the next epoch by then.
    pub(super) fn prepare(&mut self, may: impl Fn(&Member) -> bool, now: Time, out: &mut Out) {
        let next = self.follower(may, now);
        if let (Role::Owner(owner), Some(next)) = (&mut self.role, next) {
            owner.prepare(next, out);
        }
    }

    /// An owner is to be followed by this node, and still serves.
    pub(super) fn make_ready(&mut self, owner: NodeId, epoch: Epoch, now: Time, out: &mut Out) {
        let may_claim = self.log_row().is_some_and(|row| self.may_claim(row));
        if may_claim && self.known_epoch() <= epoch {
            self.take_over(now, out);
            self.prepares = Some(Prepares { owner, heard: now, gone: false });
        }
    }

    /// A node has gone without a word. Nothing is waited for that it was to say at its end.
    pub(super) fn owner_has_gone(&mut self, peer: NodeId, now: Time, out: &mut Out) {
        if !Rule::PreparedEndsWithOwner.holds() {
            return;
        }
        let Some(prepares) = self.prepares.as_mut().filter(|prepares| prepares.owner == peer)
        else {
            return;
        };
        prepares.gone = true;
        if let Role::Candidate(candidate) = &mut self.role
            && candidate.is_held()
        {
            candidate.end_hold(now);
            self.tick_role(now, out);
        }
    }

    /// A beat of a node, which owns the log or does not: the owner that is to be followed may have begun anew.
    pub(super) fn hear_prepared(&mut self, peer: NodeId, owns: bool, now: Time, out: &mut Out) {
        match self.prepares.as_mut().filter(|prepares| prepares.owner == peer) {
            Some(prepares) if owns => prepares.heard = now,
            Some(_) => self.owner_has_gone(peer, now, out),
            None => {}
        }
    }

    /// Looks whether the owner that is to be followed is silent.
    pub(super) fn look_at_prepared(&mut self, now: Time, out: &mut Out) {
        let silent = |prepares: &Prepares| now.since(prepares.heard) >= SUSPECT;
        if let Some(prepares) = self.prepares.filter(silent) {
            self.owner_has_gone(prepares.owner, now, out);
        }
    }

    /// The owner of an epoch has ended, and this node is to follow it.
    pub(super) fn succeed(&mut self, epoch: Epoch, now: Time, out: &mut Out) {
        self.prepares = None;
        if self.begin_prepared(epoch, now, out) {
            return;
        }
        if self.known_epoch() <= epoch {
            self.follows = Some(epoch);
            self.take_over(now, out);
        } else {
            // Who has followed it may have gone since: the others are asked whether they hear it.
            self.miss_gone_owner();
        }
    }

    /// A claim that went on from the row of revision `from` was refused. Who was told to follow an epoch may not have
    /// known its row, which is claimed at its beginning and changed when it serves: it claims again, now that it does.
    /// Otherwise nobody would for as long as an owner is missed, and the one that left it might again be the first.
    pub(super) fn claim_again(&mut self, from: Revision, now: Time, out: &mut Out) {
        let follows = self.follows.take().filter(|_| Rule::ClaimsAgain.holds());
        let newer = self.row.as_ref().is_some_and(|row| row.log.revision > from);
        // Two that both lack what the other has would claim one epoch after the other.
        if let Some(epoch) = follows.filter(|_| newer && !self.lacks_trimmed()) {
            self.succeed(epoch, now, out);
        }
    }

    /// The owner of an epoch has ended: a candidate that was told to make ready goes on. True if this node is one.
    pub(super) fn begin_prepared(&mut self, epoch: Epoch, now: Time, out: &mut Out) -> bool {
        let Role::Candidate(candidate) = &mut self.role else { return false };
        let begins = candidate.succeed(epoch, now);
        if begins {
            self.tick_role(now, out);
        }
        begins
    }

    /// Leaves the epoch that this node is taking over to another one, which has what this one lacks.
    pub(super) fn leave(&mut self, to: Member, lacks: Lacking, now: Time, out: &mut Out) {
        let Role::Candidate(candidate) = &self.role else { unreachable!("it asked") };
        let epoch = candidate.epoch();
        self.lacking = Some(lacks);
        self.fall_back(now, out);
        out.send(to.node, Some(to.incarnation), Message::Succeed { epoch });
    }

    /// True while this node lacks an entry that others have trimmed.
    pub(super) fn lacks_trimmed(&self) -> bool {
        let log = self.keeper.log();
        self.lacking.is_some_and(|lacking| lacking.is_lacked_by(log))
    }

    /// Gives the leases back and tells the next owner, where this one has nothing left to do.
    pub(super) fn release(&mut self, now: Time, out: &mut Out) {
        let Role::Owner(owner) = &self.role else { return };
        let is_near = |member: Member| self.detector.is_disk_near(member, now);
        let Some((successor, drained)) = owner.successor(is_near, now) else { return };
        let epoch = owner.epoch();
        let mut handed = Handed { epoch, to: successor, whole: owner.whole().collect() };
        if !is_near(successor) && Rule::HandedToTheGone.holds() {
            handed.to = self.in_place_of(&handed, now);
        }
        if !drained {
            out.effects.push(Effect::Alarm(Alarm::LeftUndrained { to: handed.to.node, epoch }));
        }
        for member in owner.members().filter(|member| member.node != self.config.id) {
            out.send(member.node, Some(member.incarnation), Message::Release { epoch });
        }
        if Rule::ReleaseEnds.holds() {
            self.fall_back(now, out);
            // That one may have claimed the next epoch before it has gone.
            self.miss_gone_owner();
        }
        self.hand_to(handed, now, out);
    }

    /// Tells a node, which may be this one, to follow an epoch that this one has left.
    fn hand_to(&mut self, handed: Handed, now: Time, out: &mut Out) {
        let Handed { epoch, to, .. } = handed;
        if to == self.me() {
            self.succeed(epoch, now, out);
            return;
        }
        out.send(to.node, Some(to.incarnation), Message::Succeed { epoch });
        self.handed = Some(handed);
    }

    /// Who follows this node instead of one that has gone: another one that has everything and is near, or this one again.
    fn in_place_of(&self, handed: &Handed, now: Time) -> Member {
        let me = self.me();
        let fit = |member: &&Member| {
            let near = self.detector.is_disk_near(**member, now);
            ![me, handed.to].contains(member) && near && self.detector.has_room(member.node)
        };
        let mut fit = handed.whole.iter().filter(fit);
        let warm = fit.clone().find(|member| !self.detector.is_cold(member.node));
        warm.or_else(|| fit.next()).copied().unwrap_or(me)
    }

    /// A node has gone that was told to follow an epoch of this one, and has not claimed the next one as far as is known: another
    /// one is told so. Had it claimed that, the other one learns it when its own claim is refused.
    pub(super) fn hand_to_another(&mut self, gone: NodeId, now: Time, out: &mut Out) {
        let is_to = |handed: &mut Handed| handed.to.node == gone;
        let Some(mut handed) = self.handed.take_if(is_to) else { return };
        let is_open = self.known_epoch() <= handed.epoch && Rule::HandedToTheGone.holds();
        if matches!(self.role, Role::Follower) && is_open {
            handed.to = self.in_place_of(&handed, now);
            self.hand_to(handed, now, out);
        }
    }
}
