//! What a keeper does about damage that is found while it runs.

use super::{Health, Keeper};
use crate::effect::{Alarm, Effect};
use crate::out::Out;
use crate::rules::Rule;
use crate::store::{CutNote, StoreOp};
use crate::types::{Lsn, Position, SyncId, Time};

impl Keeper {
    /// Has a part of the log read again, if that is due.
    pub(crate) fn scrub(&mut self, now: Time, out: &mut Out) {
        if Rule::Scrubs.holds()
            && let Some((from, upto)) = self.scrub.due(self.log.base().lsn, self.durable_to, now)
        {
            out.effects.push(Effect::Verify { from, upto });
        }
    }

    /// Entries were read again and are damaged. The last durable one says how far the log goes: where that is
    /// damaged the directory is read again, which may show nothing of it any more. So it is noted first that
    /// something was cut.
    pub(crate) fn verified(&mut self, damaged: &[Lsn], out: &mut Out) {
        for lsn in damaged
            .iter()
            .filter(|lsn| **lsn <= self.durable_to && **lsn > self.log.base().lsn)
            .copied()
            .collect::<Vec<_>>()
        {
            let alarm = Alarm::Damaged { node: self.node, lsn };
            if self.health != Health::Good {
            } else if lsn == self.durable_to {
                self.lose_end(lsn, alarm, out);
            } else if self.log.damage(lsn) {
                out.effects.push(Effect::Alarm(alarm));
            }
        }
    }

    /// The entry with which the log ended is gone. When that is noted durably the directory is read again.
    fn lose_end(&mut self, lsn: Lsn, alarm: Alarm, out: &mut Out) {
        if !Rule::LostEndIsACut.holds() {
            self.poison(alarm, out);
        } else if self.lost_end.is_none() {
            let before = lsn.before();
            let accepted = self.log.epoch_at(before).unwrap_or_default();
            let at = Position { accepted, lsn: before };
            let note = CutNote { at, promised: self.promise.epoch };
            out.effects.push(Effect::Store(vec![StoreOp::NoteCut(note), StoreOp::Barrier]));
            self.sync(None, out);
            self.lost_end = Some((SyncId(self.next_sync), alarm));
        }
    }
}
