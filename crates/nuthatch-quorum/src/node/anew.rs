//! A log whose disks are its nodes' memory, and what becomes of it when too many of them are gone.
//!
//! Each start of a node is another disk. While a majority of the set is left, new disks are brought the log and taken into
//! the set as those of any log are. With fewer nobody can ever show what was acknowledged: by itself the log begins anew,
//! empty, and says so ([`Alarm::BeganAnew`]). The claim of an epoch with another set does that, compared by the
//! revision of the row; no disk of the former set is in it, and no acknowledgement of the former set can come any more,
//! since that needs a majority of it. The row says which epoch that was: what a disk holds of earlier ones counts for
//! nothing, in that takeover and in every later one, and the disk gives it up and is another one from then on.

use super::{Node, Purpose};
use crate::catalog::{FORMER_MAX, Key, LogRow, Phase, Value};
use crate::effect::{Alarm, Effect};
use crate::out::Out;
use crate::types::{Incarnation, Lsn, Time};

/// What a node knows of its disk if that is its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// The disk is memory.
    is: bool,
    /// The disk was seen in the set of the log.
    seated: bool,
    /// How often what it held was given up.
    given_up: u64,
}

impl Node {
    /// The disks of the log are its nodes' memory. To be called before anything happens to the node.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory.is = true;
        self
    }

    /// Begins the log anew where that has to be, and this node's disk may be one of the new set. True if it does.
    pub(super) fn begins_anew(&mut self, now: Time, out: &mut Out) -> bool {
        let able = self.registered && self.proposal.is_none() && !self.keeper.is_poisoned();
        // Whoever has something gives it up first.
        let able = able && self.keeper.log().last() == Lsn(0);
        let Some(snapshot) = self.row.as_ref().filter(|_| self.memory.is && able) else {
            return false;
        };
        let Some(anew) = snapshot.anew().filter(|anew| anew.set.contains(&self.me())) else {
            return false;
        };
        let former = &snapshot.log.value;
        let (left, of) = (anew.left, former.set.len());
        let epoch = former.epoch.next();
        let row = LogRow {
            epoch,
            origin: epoch,
            owner: Some(self.me()),
            phase: Phase::Recovering,
            set: anew.set,
            start: Lsn(0),
            cuts: vec![],
        };
        let revision = snapshot.log.revision;
        let purpose = Purpose::ClaimAnew { left, of };
        self.propose(Key::Log, revision, Value::Log(row), purpose, now, out);
        true
    }

    /// A disk gives up what it holds of a log that has begun anew since: that counts for nothing, and would only be in the
    /// way of what the log is now. So does one that was brought some of a log that is to begin anew, and one that the log
    /// was begun anew without, whatever it holds; and one that is said to be gone, though it is not.
    pub(super) fn look_at_seat(&mut self, now: Time, out: &mut Out) {
        let Some(snapshot) = self.row.as_ref().filter(|_| self.memory.is) else { return };
        let (me, row, at) = (self.me(), &snapshot.log.value, self.keeper.log().position());
        let (seated, wanted) = (row.set.contains(&me), snapshot.target().contains(&me));
        // Who is not wanted is out of the set without a loss, and may be wanted again.
        self.memory.seated &= seated || wanted;
        let left_out = self.memory.seated && !seated;
        let goes = at.accepted < row.origin || !seated && snapshot.anew().is_some();
        let former = goes && at.lsn > Lsn(0);
        self.memory.seated |= seated;
        // People have said that this disk is gone ([`Snapshot::giving_up`](crate::catalog::Snapshot::giving_up)): the catalog
        // that named it names another one.
        let named = snapshot.nodes.get(&me.node).map(|row| row.value.incarnation);
        let given_up = named.is_some_and(|named| named != me.incarnation);
        if !self.registered || !(left_out || former || given_up) {
            return;
        }
        out.effects.push(Effect::Alarm(Alarm::LeftOut { node: self.config.id, last: at.lsn }));
        self.fall_back(now, out);
        (self.proposal, self.registered, self.lacking) = (None, false, None);
        self.memory.seated = false;
        self.memory.given_up += 1;
        // Drawn at the start, so no other disk has it.
        let fresh = Incarnation(self.config.fresh[1].0.wrapping_add(self.memory.given_up.into()));
        self.keeper.begin_anew(fresh, out);
    }

    /// Forgets the oldest disks that a node in memory has had.
    pub(super) fn forget_former(&self, former: &mut Vec<Incarnation>) {
        if self.memory.is {
            let excess = former.len().saturating_sub(FORMER_MAX);
            former.drain(..excess);
        }
    }
}
