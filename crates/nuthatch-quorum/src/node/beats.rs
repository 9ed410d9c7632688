//! Beats between each pair of nodes, and what they say beside being alive: leases, rounds, clocks, room, damage.

use super::{Node, Role};
use crate::catalog::LogRow;
use crate::effect::{Alarm, Effect};
use crate::message::{BeatAnswer, Envelope, Message};
use crate::out::Out;
use crate::owner::Owner;
use crate::rules::Rule;
use crate::types::{Lsn, Member, NodeId, Time, WallTime};

impl Node {
    pub(super) fn beat(&mut self, now: Time, out: &mut Out) {
        let (epoch, owner) = match &self.role {
            Role::Candidate(candidate) => (candidate.epoch(), true),
            Role::Owner(owner) => (owner.epoch(), true),
            Role::Follower | Role::Asking { .. } => (self.known_epoch(), false),
        };
        let commit = self.owner().map_or_else(Default::default, Owner::commit);
        let quorum = owner && self.has_quorum(now);
        self.round += 1;
        let (round, room) = (self.round, self.keeper.has_room());
        for peer in self.config.peers.iter().copied() {
            let beat = Message::Beat {
                epoch,
                owner,
                quorum,
                commit,
                sent: now,
                round,
                room,
                short: self.short,
                cold: self.detector.is_cold(self.config.id),
                lease: self.lease,
            };
            out.send(peer, None, beat);
        }
    }

    pub(super) fn beaten(&mut self, envelope: &Envelope, now: Time, out: &mut Out) {
        let Message::Beat { epoch, owner, quorum, sent, round, room, short, cold, lease, .. } =
            &envelope.message
        else {
            unreachable!("as dispatched");
        };
        self.detector.heard_room(envelope.from, *room);
        self.detector.heard_short(envelope.from, *short);
        self.detector.heard_cold(envelope.from, *cold);
        let granted = *owner && self.keeper.grant(envelope.sender, *epoch, *lease, now);
        if *owner {
            self.detector.heard_owner(*epoch, *quorum, self.known_epoch(), now);
            // Somebody has followed.
            self.handed.take_if(|handed| handed.epoch < *epoch);
        }
        self.hear_prepared(envelope.from, *owner, now, out);
        let answer = BeatAnswer {
            epoch: granted.then_some(*epoch),
            sent: *sent,
            round: *round,
            wall: self.walls.mine(now),
            damaged: self.keeper.damaged(),
        };
        out.send(envelope.from, Some(envelope.sender), Message::BeatAnswer(answer));
    }

    pub(super) fn beat_answered(
        &mut self,
        from: Member,
        answer: &BeatAnswer,
        now: Time,
        out: &mut Out,
    ) {
        self.detector.answered(from, now);
        if let Some(wall) = answer.wall {
            self.walls.heard(from.node, wall, answer.sent, now);
        }
        if let Role::Owner(owner) = &mut self.role
            && owner.beat_answered(from, answer, now, out)
        {
            self.beat(now, out);
        }
    }

    /// The wall clock by which entries may be expired; none while no majority of the set agrees with it.
    #[must_use]
    pub fn expiry_clock(&self, now: Time) -> Option<WallTime> {
        let agreed =
            self.log_row().is_some_and(|row| self.walls.is_agreed(row, self.config.id, now));
        let agreed = agreed || !Rule::ExpiresByAgreedClock.holds();
        self.walls.mine(now).filter(|_| agreed)
    }

    /// The stamp of the last entry that can be read: of a clock that a majority agreed with.
    #[must_use]
    pub fn last_stamp(&self) -> WallTime {
        let log = self.keeper.log();
        let base = log.base();
        let behind = (base.lsn.0..=log.last().0).rev();
        behind.map(Lsn).find_map(|lsn| log.stamp_at(lsn)).unwrap_or(base.stamp)
    }

    /// True if other nodes had better own the log: people want it so, the clock is wrong, the disk full, or something is
    /// lacking that only files can replace; or another one that is near would open it faster.
    pub(super) fn is_unfit(&self, row: &LogRow, now: Time) -> bool {
        let wrong = self.walls.is_wrong(row, self.config.id, now) && Rule::WrongClockLast.holds();
        let full = !self.keeper.has_room() && Rule::FullHandsOver.holds();
        let cold = self.detector.is_cold(self.config.id) && self.detector.has_warm(row, now);
        wrong || full || cold || self.drained || self.lacks_trimmed()
    }

    /// Says once that the clock is wrong, until it is not any more.
    pub(super) fn look_at_clock(&mut self, now: Time, out: &mut Out) {
        let wrong = self.log_row().is_some_and(|row| self.walls.is_wrong(row, self.config.id, now));
        if wrong && !self.told_clock {
            out.effects.push(Effect::Alarm(Alarm::WrongClock { node: self.config.id }));
        }
        self.told_clock = wrong;
    }

    /// The connection to a node was reset: an owner there is missed at once.
    pub(super) fn reset(&mut self, peer: NodeId, now: Time, out: &mut Out) {
        self.detector.peer_reset(peer);
        let owner = self.log_row().and_then(|row| row.owner);
        if owner.is_some_and(|owner| owner.node == peer) {
            self.detector.owner_reset();
        }
        self.owner_has_gone(peer, now, out);
        self.hand_to_another(peer, now, out);
    }

    /// The row may name an owner whose connection was reset before that was known here: it is missed at once as well.
    pub(super) fn miss_gone_owner(&mut self) {
        if self.has_owner_gone() && Rule::GoneOwnerMissed.holds() {
            self.detector.owner_reset();
        }
    }

    /// True if the connection to the node was reset that the row names.
    pub(super) fn has_owner_gone(&self) -> bool {
        let owner = self.log_row().and_then(|row| row.owner);
        owner.is_some_and(|owner| self.detector.is_gone(owner.node))
    }
}
