//! What is wanted of the log, and how a node brings it about: planned handover, another set, another owner.

use super::{Node, Prepares, Role};
use crate::effect::{Alarm, Effect};
use crate::message::Message;
use crate::out::Out;
use crate::rules::Rule;
use crate::takeover::Lacking;
use crate::timing::{ADMIT_POLL, SUSPECT, UNWISHED_WAIT};
use crate::types::{Epoch, Member, NodeId, Revision, Time, majority};

impl Node {
    /// Tries to become the owner whether or not there is a healthy one.
    pub(super) fn take_over(&mut self, now: Time, out: &mut Out) {
        if self.log_row().is_some_and(|row| self.may_claim(row)) {
            self.role = Role::Follower;
            self.claim(now, out);
        }
    }

    /// An owner brings about what is wanted of the log: it hands over to another owner, or takes over from
    /// itself with another set, which a majority of disks that are whole allows.
    pub(super) fn look_at_wish(&mut self, now: Time, out: &mut Out) {
        if now.since(self.admit_at) < ADMIT_POLL || self.proposal.is_some() {
            return;
        }
        self.admit_at = now;
        let (Role::Owner(owner), Some(snapshot)) = (&self.role, &self.row) else { return };
        let (target, set) = (snapshot.target_of(self.me()), snapshot.log.value.set.clone());
        let whole: Vec<Member> = owner.whole().collect();
        let changed = target != set;
        let me = self.me();
        let wished = snapshot.wish.value.owner.filter(|wished| *wished != me.node);
        if !target.contains(&me) {
            let since = *self.unwished_since.get_or_insert(now);
            if now.since(since) >= UNWISHED_WAIT {
                self.hand_over(|member| target.contains(member), now);
            }
            return;
        }
        self.unwished_since = None;
        if let Some(wished) = wished {
            self.hand_over(|member| member.node == wished, now);
        }
        let new: Vec<Member> =
            target.iter().copied().filter(|member| !set.contains(member)).collect();
        // Those that stay and those that come must be a majority of the new set, or the epoch would begin with the old one,
        // again and again.
        let stay = whole.iter().filter(|member| target.contains(member)).count();
        let ready =
            whole.len() >= majority(set.len()) && stay + new.len() >= majority(target.len());
        let Role::Owner(owner) = &mut self.role else { unreachable!("as above") };
        owner.teach(&new, now);
        let learnt = |member: &Member| owner.has_learnt(*member) || !Rule::LearnsBeside.holds();
        let near = |member: &Member| self.detector.is_near(member.node, now);
        if changed && new.iter().all(|member| near(member) && learnt(member)) && ready {
            self.claim(now, out);
        }
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
            let near = self.detector.is_near(m.node, now) && self.detector.has_room(m.node);
            *m != me && may(m) && near
        };
        // That one has claimed the next epoch, and brings itself what it may lack at this moment.
        let ready = owner.prepared().filter(fit);
        ready.or_else(|| owner.whole().find(fit))
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
        if !self.begin_prepared(epoch, now, out) && self.known_epoch() <= epoch {
            self.follows = Some(epoch);
            self.take_over(now, out);
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
        let Some((successor, drained)) = owner.successor(now) else { return };
        let epoch = owner.epoch();
        if !drained {
            out.effects.push(Effect::Alarm(Alarm::LeftUndrained { to: successor.node, epoch }));
        }
        for member in owner.members().filter(|member| member.node != self.config.id) {
            out.send(member.node, Some(member.incarnation), Message::Release { epoch });
        }
        out.send(successor.node, Some(successor.incarnation), Message::Succeed { epoch });
        if Rule::ReleaseEnds.holds() {
            self.fall_back(now, out);
        }
    }
}
