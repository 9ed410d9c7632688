//! What clients ask.

use super::{Node, Reads, Role, here};
use crate::message::Answer;
use crate::out::Out;
use crate::owner::Publish;
use crate::rules::Rule;
use crate::types::{RequestId, Time};

impl Node {
    pub(super) fn publish(&mut self, publish: Publish, now: Time, out: &mut Out) {
        let wall = self.expiry_clock(now);
        match &mut self.role {
            Role::Owner(owner) => {
                owner.publish(publish, here(&self.keeper, wall), now, out);
            }
            _ => out.reply(publish.request, Answer::Refused),
        }
    }

    pub(super) fn read(&mut self, request: RequestId, now: Time, out: &mut Out) {
        match (&mut self.role, self.config.reads) {
            (Role::Owner(owner), Reads::Lease) => owner.read(request, now, out),
            (Role::Owner(owner), Reads::Quorum) => {
                if owner.read_by_round(request, self.round, out) {
                    self.beat(now, out);
                }
            }
            _ => out.reply(request, Answer::Refused),
        }
    }

    /// An owner without room, or that cannot be given what it lacks, leaves the log to a keeper that has both.
    pub(super) fn look_at_disk(&mut self, now: Time) {
        let Role::Owner(owner) = &self.role else { return };
        let full = !self.keeper.has_room() && Rule::FullHandsOver.holds();
        if full || owner.lacks_trimmed(self.keeper.log()) {
            self.hand_over(|_| true, now);
        }
    }
}
