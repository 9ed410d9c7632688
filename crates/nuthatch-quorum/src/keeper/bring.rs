//! Entries that are given to others, and those that are taken from them.

use super::Keeper;
use crate::effect::{Alarm, Effect};
use crate::entry::Entry;
use crate::message::{Envelope, Message, Refusal};
use crate::out::Out;
use crate::rules::Rule;
use crate::store::StoreOp;
use crate::types::{Epoch, Lsn};

impl Keeper {
    pub(super) fn fetch(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        from: Lsn,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        self.check_promised(envelope, epoch, Rule::BringPromised)?;
        let (base, last) = (self.log.base().lsn, self.log.last());
        let from = from.max(base.next());
        let entries = self.log.window(from, last);
        let fetched = Message::Fetched { epoch, base, from, entries, last };
        out.send(envelope.from, Some(envelope.sender), fetched);
        Ok(())
    }

    pub(super) fn bring(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        let Message::Bring { after, prev, entries, end, .. } = &envelope.message else {
            unreachable!("as dispatched");
        };
        self.check_promised(envelope, epoch, Rule::BringPromised)?;
        let accepted = self.log.position().accepted >= epoch && Rule::BringOnlyExtends.holds();
        let mut ops = vec![];
        let mut equal_to = Lsn(0);
        if self.joins(*after, prev.0).map_err(|why| (epoch, why))? {
            let done = self.write_with_room(entries, !accepted, &mut ops, out);
            equal_to = Lsn(after.0 + entries.len() as u64).min(self.log.readable_to());
            // Not while something before the end is damaged: the log must end in what can be read.
            if done.is_ok() && !accepted && equal_to == *end && self.log.last() > *end {
                self.may_end(*end).map_err(|why| (epoch, why))?;
                self.cut_back(*end, &mut ops, out);
            }
            out.effects.push(Effect::Store(ops));
            done.map_err(|why| (epoch, why))?;
        }
        self.answer_durably(
            envelope,
            Message::Brought { epoch, equal_to },
            Rule::DoneAfterSync,
            out,
        );
        Ok(())
    }

    /// True if entries behind `after` reach what is here; an error when they continue another log.
    pub(super) fn joins(&self, after: Lsn, prev: u64) -> Result<bool, Refusal> {
        if after > self.log.last() {
            return Ok(false);
        }
        let base = self.log.base().lsn;
        match self.log.sum_at(after) {
            Some(sum) if sum.0 != prev && after == base && base > Lsn(0) => Err(self.trimmed()),
            Some(sum) if sum.0 != prev => Err(Refusal::Chain { after }),
            _ => Ok(true),
        }
    }

    /// What is trimmed cannot be cut back.
    fn may_end(&self, last: Lsn) -> Result<(), Refusal> {
        let base = self.log.base().lsn;
        if last < base { Err(self.trimmed()) } else { Ok(()) }
    }

    fn trimmed(&self) -> Refusal {
        let base = self.log.base();
        Refusal::Trimmed { base: base.lsn, sum: base.sum }
    }

    /// True if an entry is written behind others: at the end, or in place of what is cut back.
    fn takes_room(&self, entry: &Entry) -> bool {
        let differs = match self.log.get(entry.lsn) {
            Some(mine) => mine.sum != entry.sum,
            None => !self.log.fits(entry),
        };
        entry.lsn > self.log.last() || entry.lsn > self.log.base().lsn && differs
    }

    /// Writes entries, and where there is no room only those that lengthen and replace nothing.
    pub(super) fn write_with_room(
        &mut self,
        entries: &[Entry],
        may_cut: bool,
        ops: &mut Vec<StoreOp>,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let takes_room = entries.iter().position(|entry| self.takes_room(entry));
        match takes_room {
            Some(first) if !self.room && Rule::FullRefuses.holds() => {
                self.write(&entries[..first], may_cut, ops, out)?;
                Err(Refusal::Full)
            }
            _ => self.write(entries, may_cut, ops, out),
        }
    }

    /// Writes entries: what is here already is passed over, damage is healed, the rest extends the log.
    /// What differs is cut back where that is allowed.
    fn write(
        &mut self,
        entries: &[Entry],
        may_cut: bool,
        ops: &mut Vec<StoreOp>,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        for entry in entries {
            // Never behind a gap, whatever a peer sends.
            if entry.lsn < Lsn(1) || entry.lsn > self.log.last().next() {
                return Err(Refusal::Chain { after: self.log.last() });
            }
            let after = entry.lsn.before();
            if !entry.is_intact() {
                return Err(Refusal::Chain { after });
            }
            let base = self.log.base();
            if entry.lsn < base.lsn || entry.sum == base.sum && entry.lsn == base.lsn {
                continue;
            }
            if entry.lsn == base.lsn || after == base.lsn && entry.prev != base.sum {
                return Err(self.trimmed());
            }
            if entry.lsn <= self.log.last() {
                match self.log.get(entry.lsn) {
                    Some(mine) if mine.sum == entry.sum => continue,
                    Some(_) if may_cut => self.cut_back(after, ops, out),
                    Some(_) => {
                        let alarm = Alarm::Diverged { node: self.node, lsn: entry.lsn };
                        out.effects.push(Effect::Alarm(alarm));
                        return Err(Refusal::Chain { after });
                    }
                    None if !self.log.fits(entry) => {
                        // What lies behind the damage is of another log, or what lies before it.
                        let joins = self.log.sum_at(after) == Some(entry.prev);
                        if !joins || !may_cut || !Rule::CutsBehindDamage.holds() {
                            return Err(Refusal::Chain { after });
                        }
                        self.cut_back(after, ops, out);
                    }
                    None => {
                        self.log.heal(*entry);
                        ops.push(StoreOp::Heal(*entry));
                        continue;
                    }
                }
            }
            if self.log.sum_at(after).is_some_and(|sum| sum != entry.prev) {
                return Err(Refusal::Chain { after });
            }
            self.log.push(*entry);
            ops.push(StoreOp::Append(*entry));
        }
        Ok(())
    }

    /// Removes what lies behind `last`; it is kept aside first.
    fn cut_back(&mut self, last: Lsn, ops: &mut Vec<StoreOp>, out: &mut Out) {
        let end = self.log.last();
        if Rule::KeepAside.holds() {
            ops.extend([StoreOp::SetAside { after: last }, StoreOp::Barrier]);
        }
        ops.extend([StoreOp::Cut { after: last }, StoreOp::Barrier]);
        self.log.cut(last);
        self.durable_to = self.durable_to.min(last);
        let alarm = Alarm::PossiblyAcknowledged { node: self.node, first: last.next(), last: end };
        out.effects.push(Effect::Alarm(alarm));
    }
}
