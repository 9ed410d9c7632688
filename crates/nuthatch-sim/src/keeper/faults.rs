//! What goes wrong with machines on real directories. At most one disk at a time is empty and not yet made good.

use super::check::Violation;
use super::world::{Happening, MILLI, SECOND, World};
use nuthatch_log::env::Fault;
use nuthatch_quorum::node::Event;

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

/// How many kinds there are.
pub(super) const KINDS: usize = 13;

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
