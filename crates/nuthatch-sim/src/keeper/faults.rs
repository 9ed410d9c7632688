//! What goes wrong with machines on real directories. At most one disk at a time is empty and not yet made good.

use super::check::Violation;
use super::world::{Happening, MILLI, SECOND, World};
use nuthatch_log::env::Fault;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::store::StoreOp;

/// What may happen, each as often as its weight says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Harm {
    /// The power goes at one of the next operations of the disk.
    PowerCutWithin(u64),
    /// All machines lose their power at once.
    PowerCutAll,
    /// The process is killed.
    Kill,
    /// The next sync of a file fails.
    FailSync,
    /// The next write fails.
    FailWrite,
    /// Syncs take long.
    SlowDisk,
    /// Syncs are quick again.
    QuickDisks,
    /// The disk is replaced by an empty one.
    Wipe,
    /// The process is killed, and what its journal ends with rots.
    RotTail,
    /// The process is killed, and the power goes at one of the first operations of the next one's start.
    CutStart(u64),
    /// A machine is cut off.
    Isolate,
    /// Links are up or down as these bits say.
    Links(u64),
    /// All links are up.
    Mend,
    /// A node is told to take over.
    TakeOver,
    /// The owner is told to hand over.
    HandOver,
}

/// How often a moment is looked for at which rot does no harm that cannot be made good.
const ROT_TRIES: u64 = 60;

/// How many kinds there are.
pub(super) const KINDS: usize = 15;

impl World {
    /// Lets the next fault come, and draws when another one does.
    pub(super) fn fault_comes(&mut self) -> Result<(), Violation> {
        if !self.faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(20 * MILLI, self.every_max);
        self.schedule.after(pause, Happening::FaultComes);
        let rng = &mut self.schedule.rng;
        let at = rng.below(self.machines.len() as u64) as usize;
        let kinds: [Harm; KINDS] = [
            Harm::PowerCutWithin(rng.between(1, 24)),
            Harm::PowerCutAll,
            Harm::Kill,
            Harm::FailSync,
            Harm::FailWrite,
            Harm::SlowDisk,
            Harm::QuickDisks,
            Harm::Wipe,
            Harm::Isolate,
            Harm::Links(rng.bits()),
            Harm::Mend,
            Harm::TakeOver,
            Harm::HandOver,
            Harm::RotTail,
            Harm::CutStart(rng.between(1, 40)),
        ];
        let Some(kind) = rng.weighted(&self.weights) else { return Ok(()) };
        self.schedule.trace.record(self.schedule.now(), &(at, kinds[kind]));
        self.summary.faults += 1;
        self.suffer(at, kinds[kind])
    }

    fn suffer(&mut self, at: usize, harm: Harm) -> Result<(), Violation> {
        match harm {
            Harm::PowerCutWithin(more) => self.arm_power_cut(at, more),
            Harm::PowerCutAll => {
                for at in 0..self.machines.len() {
                    self.power_goes(at)?;
                }
            }
            Harm::Kill => self.kill(at)?,
            Harm::FailSync => self.arm(at, Fault::SyncError),
            Harm::FailWrite => self.arm(at, Fault::WriteError),
            Harm::SlowDisk => {
                self.machines[at].sync_max = self.schedule.rng.between(20 * MILLI, 2 * SECOND);
            }
            Harm::QuickDisks => self.machines.iter_mut().for_each(|m| m.sync_max = 2_000),
            Harm::Wipe => self.wipe(at),
            Harm::RotTail => self.rot_tail(at, ROT_TRIES)?,
            Harm::CutStart(more) => self.cut_start(at, more)?,
            Harm::Isolate => {
                for peer in (0..self.machines.len()).filter(|peer| *peer != at) {
                    self.net.set(at, peer, false);
                    self.net.set(peer, at, false);
                }
            }
            Harm::Links(bits) => self.net.set_pattern(bits),
            Harm::Mend => self.net.heal(),
            Harm::TakeOver => self.event(at, Event::TakeOver)?,
            Harm::HandOver => self.event(self.owner().unwrap_or(at), Event::HandOver)?,
        }
        Ok(())
    }

    /// Sometimes the power goes just when a disk has begun to say that it has everything again, before anything that was
    /// written meanwhile is synced for another reason.
    pub(super) fn strike(&mut self, at: usize, ops: &[StoreOp]) {
        let forgets = ops.iter().any(|op| matches!(op, StoreOp::ForgetCut));
        if forgets && self.faulty && self.schedule.rng.chance(300) {
            let life = self.machines[at].life;
            self.schedule.after(1, Happening::PowerGoes { at, life });
        }
    }

    /// The power goes at one of the next operations, or soon if there is none.
    fn arm_power_cut(&mut self, at: usize, more: u64) {
        let machine = &mut self.machines[at];
        if machine.running.is_none() || machine.cut_at.is_some() {
            return;
        }
        let operation = machine.disk.operations() + more;
        machine.disk.inject(Fault::PowerCut(operation));
        machine.cut_at = Some(operation);
        let life = machine.life;
        let soon = self.schedule.rng.between(10 * MILLI, SECOND);
        self.schedule.after(soon, Happening::PowerGoes { at, life });
    }

    fn arm(&mut self, at: usize, fault: impl FnOnce(u64) -> Fault) {
        let more = self.schedule.rng.between(1, 8);
        let disk = &self.machines[at].disk;
        disk.inject(fault(disk.operations() + more));
    }

    /// The power goes while the next process starts, or while it goes on with what the start has left undone.
    fn cut_start(&mut self, at: usize, more: u64) -> Result<(), Violation> {
        if self.machines[at].running.is_none() {
            return Ok(());
        }
        self.kill(at)?;
        self.cut_after(at, more);
        Ok(())
    }

    fn cut_after(&mut self, at: usize, more: u64) {
        let machine = &mut self.machines[at];
        let operation = machine.disk.operations() + more;
        machine.disk.inject(Fault::PowerCut(operation));
        machine.cut_at = Some(operation);
    }

    /// What the journal of a machine ends with can be read no more, as soon as all machines have everything: that costs
    /// nothing while one of the others is there.
    pub(super) fn rot_tail(&mut self, at: usize, tries: u64) -> Result<(), Violation> {
        if !self.faulty {
            return Ok(());
        }
        let disk = self.disk_of(at).filter(|_| self.is_settled());
        let Some((disk, _)) = disk else {
            if tries > 0 {
                let soon = self.schedule.rng.between(MILLI, 10 * MILLI);
                self.schedule.after(soon, Happening::Rots { at, tries: tries - 1 });
            }
            return Ok(());
        };
        self.kill(at)?;
        if self.machines[at].rot_tail(&mut self.schedule.rng) {
            self.summary.disks += 1;
            self.checker.harmed(disk);
        }
        // Sometimes the power goes again while that is made good.
        if self.schedule.rng.chance(300) {
            let more = self.schedule.rng.between(10, 100);
            self.cut_after(at, more);
        }
        Ok(())
    }

    /// A disk is replaced by an empty one, if all are what they are to be.
    fn wipe(&mut self, at: usize) {
        if !self.is_settled() {
            return;
        }
        self.summary.disks += 1;
        self.machines[at].wipe();
        self.boot_later(at);
    }
}
