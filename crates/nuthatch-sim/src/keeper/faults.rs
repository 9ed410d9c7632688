//! What goes wrong with machines on real directories. At most one disk at a time is empty and not yet made good.

use super::check::Violation;
use super::world::{Happening, MACHINES, MILLI, SECOND, World};
use nuthatch_log::env::{Fault, MemDisk};
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
const ROT_TRIES: u64 = 400;

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
        let at = rng.below(MACHINES as u64) as usize;
        let log = rng.below(self.logs as u64) as usize;
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
            Harm::CutStart(rng.between(1, 40 * self.logs as u64)),
        ];
        let Some(kind) = rng.weighted(&self.weights) else { return Ok(()) };
        self.schedule.trace.record(self.schedule.now(), &(at, kinds[kind]));
        self.summary.faults += 1;
        self.suffer((at, log), kinds[kind])
    }

    fn suffer(&mut self, (at, log): (usize, usize), harm: Harm) -> Result<(), Violation> {
        match harm {
            Harm::PowerCutWithin(more) => self.arm_power_cut(at, more),
            Harm::PowerCutAll => {
                for at in 0..MACHINES {
                    self.power_goes(at)?;
                }
            }
            Harm::Kill => self.kill(at)?,
            Harm::FailSync => self.arm(at, Fault::SyncError),
            Harm::FailWrite => self.arm(at, Fault::WriteError),
            Harm::SlowDisk => {
                let most = self.schedule.rng.between(20 * MILLI, 2 * SECOND);
                for slot in self.slots(at) {
                    self.machines[slot].sync_max = most;
                }
            }
            Harm::QuickDisks => self.machines.iter_mut().for_each(|m| m.sync_max = 2_000),
            Harm::Wipe => self.wipe(at),
            Harm::RotTail => self.rot_tail(self.slot(log, at), ROT_TRIES)?,
            Harm::CutStart(more) => self.cut_start(at, more)?,
            Harm::Isolate => {
                for peer in (0..MACHINES).filter(|peer| *peer != at) {
                    self.net.set(at, peer, false);
                    self.net.set(peer, at, false);
                }
            }
            Harm::Links(bits) => self.net.set_pattern(bits),
            Harm::Mend => self.net.heal(),
            Harm::TakeOver => self.event(self.slot(log, at), Event::TakeOver)?,
            Harm::HandOver => {
                let owner = self.owner(log).unwrap_or(self.slot(log, at));
                self.event(owner, Event::HandOver)?;
            }
        }
        Ok(())
    }

    /// Sometimes the power goes just when a disk has begun to say that it has everything again, before anything that was
    /// written meanwhile is synced for another reason.
    pub(super) fn strike(&mut self, at: usize, ops: &[StoreOp]) {
        let forgets = ops.iter().any(|op| matches!(op, StoreOp::ForgetCut));
        if forgets && self.faulty && self.schedule.rng.chance(600) {
            let at = self.node_of(at);
            let life = self.machines[at].life;
            self.schedule.after(1, Happening::PowerGoes { at, life });
        }
    }

    /// The power goes at one of the next operations, or soon if there is none.
    fn arm_power_cut(&mut self, at: usize, more: u64) {
        let machine = &self.machines[at];
        if machine.running.is_none() || machine.cut_at.is_some() {
            return;
        }
        let life = machine.life;
        self.cut_after(at, more);
        let soon = self.schedule.rng.between(10 * MILLI, SECOND);
        self.schedule.after(soon, Happening::PowerGoes { at, life });
    }

    fn cut_after(&mut self, at: usize, more: u64) {
        let disk = &self.machines[at].disk;
        let operation = disk.operations() + more;
        disk.inject(Fault::PowerCut(operation));
        for slot in self.slots(at) {
            self.machines[slot].cut_at = Some(operation);
        }
    }

    fn arm(&mut self, at: usize, fault: impl FnOnce(u64) -> Fault) {
        let more = self.schedule.rng.between(1, 8);
        let disk = &self.machines[at].disk;
        disk.inject(fault(disk.operations() + more));
    }

    /// The power goes while the next process starts, or while it goes on with what the start has left undone.
    fn cut_start(&mut self, at: usize, more: u64) -> Result<(), Violation> {
        if self.machines[at].running.is_some() {
            self.kill(at)?;
            self.cut_after(at, more);
        }
        Ok(())
    }

    /// What the journal of a log ends with can be read no more at a machine, as soon as all machines have everything of
    /// that log: that costs nothing while one of the others is there.
    pub(super) fn rot_tail(&mut self, slot: usize, tries: u64) -> Result<(), Violation> {
        if !self.faulty {
            return Ok(());
        }
        let (at, log) = (self.node_of(slot), self.log_of(slot));
        let disk = self.disk_of(slot).filter(|_| self.is_log_settled(log));
        let Some((disk, _)) = disk else {
            if tries > 0 {
                let soon = self.schedule.rng.between(MILLI, 10 * MILLI);
                self.schedule.after(soon, Happening::Rots { at: slot, tries: tries - 1 });
            }
            return Ok(());
        };
        self.kill(at)?;
        if self.machines[slot].rot_tail(&mut self.schedule.rng) {
            self.summary.disks += 1;
            self.checkers[log].harmed(disk);
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
        let empty = MemDisk::default();
        for slot in self.slots(at) {
            self.machines[slot].wipe(empty.clone());
        }
        self.boot_later(at);
    }
}
