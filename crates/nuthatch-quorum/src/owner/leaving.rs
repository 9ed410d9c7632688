//! How an owner leaves the log to another keeper.

use super::Owner;
use crate::message::Message;
use crate::out::Out;
use crate::rules::Rule;
use crate::timing::DRAIN;
use crate::types::{Member, Time};

impl Owner {
    /// Takes no further publish or read; what it has is still committed.
    pub(crate) fn leave(&mut self, successor: Member, now: Time) {
        if self.leaving.is_none() {
            self.leaving = Some((now, successor));
        }
    }

    /// True if it takes nothing more, since another one is to own the log.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Tells a keeper that it is to own the log soon.
    pub(crate) fn prepare(&mut self, next: Member, out: &mut Out) {
        self.prepared = Some(next);
        let epoch = self.epoch;
        out.send(next.node, Some(next.incarnation), Message::Prepare { epoch });
    }

    /// The keeper that was told so.
    pub(crate) fn prepared(&self) -> Option<Member> {
        self.prepared
    }

    /// Who is to own the log next, and whether nothing is left to commit and that one has everything; `None` while
    /// there is something left, unless that has taken too long. One that is not near gets nothing more.
    pub(crate) fn successor(
        &self,
        is_near: impl Fn(Member) -> bool,
        now: Time,
    ) -> Option<(Member, bool)> {
        let (since, successor) = self.leaving?;
        let committed = self.queue.is_empty() && self.commit == self.last;
        let is_whole = self.voters().any(|p| p.member == successor && p.has(self.commit));
        let waits = !is_whole && Rule::WholeSuccessor.holds();
        let is_gone = !is_near(successor) && Rule::HandedToTheGone.holds();
        let drained = committed && (!waits || is_gone);
        (drained || now.since(since) >= DRAIN).then_some((successor, drained))
    }
}
