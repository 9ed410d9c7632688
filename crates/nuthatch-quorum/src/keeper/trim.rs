//! Shortening the log, and taking what others made of entries that they have trimmed.
//!
//! A keeper trims for itself, as its driver asks: entries that are committed, and whose files are durable. What it
//! removes are records of changes that were made, never what they made: only entries of the log do that. How far
//! keepers have trimmed differs, and need not be agreed on: who lacks what another has trimmed is given the files.

use super::Keeper;
use crate::effect::{Alarm, Effect};
use crate::entry::{Base, Chain};
use crate::message::{Envelope, Message, Refusal};
use crate::out::Out;
use crate::rules::Rule;
use crate::store::{BaseNote, CutNote, StoreOp};
use crate::types::{Epoch, Lsn, Position, Sum};

/// What to do with the files of another directory.
enum Taking {
    /// What they hold is here.
    Nothing,
    /// Entries behind them continue them and stay.
    Keep,
    /// They replace what is here; entries up to this one are known to be committed, or to be part of them.
    Replace { known: Lsn },
}

impl Keeper {
    /// The files are durable up to an entry: those before need not be kept, as far as they are committed.
    pub(crate) fn trim(&mut self, upto: Lsn, out: &mut Out) {
        let committed =
            if Rule::TrimsCommitted.holds() { self.log.known_commit() } else { self.durable_to };
        let upto = upto.min(committed).min(self.durable_to);
        let Some(base) = self.log.base_at(upto).filter(|base| base.lsn > self.log.base().lsn)
        else {
            return;
        };
        if self.is_poisoned() || self.lost_end.is_some() {
            return;
        }
        let note = self.base_note(base);
        self.log.trim(base);
        let (note, drop) = (StoreOp::NoteBase(note), StoreOp::Drop { upto });
        let ops = if Rule::BaseNotedFirst.holds() {
            vec![StoreOp::Barrier, note, StoreOp::Barrier, drop]
        } else {
            vec![StoreOp::Barrier, drop, note]
        };
        out.effects.push(Effect::Store(ops));
        self.sync(None, out);
    }

    /// What is noted when entries up to `base` are trimmed. A driver may write that beside what comes later, so only
    /// what is durable now counts.
    fn base_note(&self, base: Base) -> BaseNote {
        let whole = BaseNote::all(base);
        let durable = self.log.epoch_at(self.durable_to);
        let durable = durable.map(|accepted| Position { accepted, lsn: self.durable_to });
        BaseNote { reach: durable.unwrap_or_default().max(whole.reach), ..whole }
    }

    /// True if the files of another directory, as entries up to `base` have made them, are of use here in an epoch.
    /// For drivers, which need not send them otherwise.
    #[must_use]
    pub fn wants(&self, epoch: Epoch, base: &Base, replaces: Option<Sum>) -> bool {
        !matches!(self.taking(epoch, base, replaces), Ok(Taking::Nothing))
    }

    /// Takes what the entries up to `base` have made; the driver has the files durably beside its own.
    pub(super) fn install(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        let Message::Install { base, replaces, .. } = envelope.message else {
            unreachable!("as dispatched");
        };
        self.check_promised(envelope, epoch, Rule::BringPromised)?;
        let taking = self.taking(epoch, &base, replaces).inspect_err(|_| {
            out.effects.push(Effect::Alarm(Alarm::Diverged { node: self.node, lsn: base.lsn }));
        });
        let mut ops = vec![];
        match taking.map_err(|why| (epoch, why))? {
            Taking::Nothing => {}
            _ if !self.room && Rule::FullRefuses.holds() => return Err((epoch, Refusal::Full)),
            Taking::Keep => {
                let note = self.base_note(base);
                self.log.trim(base);
                ops.extend([StoreOp::Barrier, StoreOp::Install { note, keep: true }]);
            }
            Taking::Replace { known } => self.replace(base, known, &mut ops, out),
        }
        if self.cut.is_some_and(|note| note.promised < base.epoch) {
            self.forget_cut(&mut ops);
        }
        out.effects.push(Effect::Store(ops));
        let boots = self.identity.boots;
        let answer = if self.log.position().accepted == epoch {
            Message::Done { epoch, upto: self.done_to(), boots }
        } else {
            Message::Brought { epoch, equal_to: base.lsn.min(self.log.readable_to()) }
        };
        self.answer_durably(envelope, answer, Rule::DoneAfterSync, out);
        Ok(())
    }

    fn taking(&self, epoch: Epoch, base: &Base, replaces: Option<Sum>) -> Result<Taking, Refusal> {
        let (mine, last) = (self.log.base(), self.log.last());
        if !Rule::InstallOnlyExtends.holds() {
            return Ok(Taking::Replace { known: last });
        }
        let accepted = self.log.position().accepted >= epoch;
        let here = match self.log.sum_at(base.lsn) {
            Some(sum) => sum == base.sum,
            // Trimmed in both: committed, hence the same, unless more was lost than can be.
            None if base.lsn < mine.lsn && Rule::TrimmedIsHere.holds() => {
                replaces != Some(mine.sum)
            }
            None if base.lsn <= last => accepted || self.continues(base),
            None => false,
        };
        let damaged = self.log.first_damaged().is_some_and(|first| first <= base.lsn);
        match (here, accepted) {
            (true, _) if damaged => Ok(Taking::Keep),
            (true, _) => Ok(Taking::Nothing),
            (false, true) if base.lsn <= last => Err(Refusal::Chain { after: mine.lsn }),
            (false, true) => Ok(Taking::Replace { known: last }),
            // Entries of one epoch have one writer.
            (false, false) if base.lsn > last && self.log.position().accepted == base.epoch => {
                Ok(Taking::Replace { known: last })
            }
            (false, false) => Ok(Taking::Replace { known: self.log.known_commit() }),
        }
    }

    /// True if what is behind an entry that is damaged here shows that the entry was this one: the next one names it,
    /// or is of its epoch, since entries of one epoch have one writer.
    fn continues(&self, base: &Base) -> bool {
        let mut behind = (base.lsn.0 + 1..=self.log.last().0).map(Lsn);
        let next = behind.find_map(|lsn| self.log.get(lsn));
        next.is_some_and(|next| {
            next.prev == base.sum || next.lsn > base.lsn.next() && next.epoch == base.epoch
        })
    }

    /// What the disk holds is replaced; entries that may be no part of what comes, and those behind it, are kept
    /// aside.
    fn replace(&mut self, base: Base, known: Lsn, ops: &mut Vec<StoreOp>, out: &mut Out) {
        let (end, accepted) = (self.log.last(), self.log.position().accepted);
        ops.push(StoreOp::Barrier);
        let after = known.min(base.lsn);
        if after < end && Rule::KeepAside.holds() {
            ops.extend([StoreOp::SetAside { after }, StoreOp::Barrier]);
        }
        if known < end {
            let alarm =
                Alarm::PossiblyAcknowledged { node: self.node, first: known.next(), last: end };
            out.effects.push(Effect::Alarm(alarm));
        }
        if base.lsn < end && Rule::ReplacedIsACut.holds() {
            self.note_cut(base, accepted, ops);
        }
        let note = BaseNote::all(base);
        ops.extend([StoreOp::Install { note, keep: false }, StoreOp::Barrier]);
        self.log = Chain::behind(base);
        self.durable_to = base.lsn;
    }

    /// What this disk said was done may lie behind what it has then: it does not count as whole until it is
    /// brought the epoch (R2).
    fn note_cut(&mut self, base: Base, accepted: Epoch, ops: &mut Vec<StoreOp>) {
        let known = self.cut.map_or(accepted, |note| note.promised.max(accepted));
        let note =
            CutNote { at: Position { accepted: base.epoch, lsn: base.lsn }, promised: known };
        self.cut = Some(note);
        ops.extend([StoreOp::NoteCut(note), StoreOp::Barrier]);
    }
}
