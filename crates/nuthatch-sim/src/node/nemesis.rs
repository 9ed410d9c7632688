//! Lets faults come.

use super::faults::Fault;
use super::tier::StoreFaults;
use super::world::{End, Happening, World};
use nuthatch_log::Disk;
use nuthatch_log::env::{Fault as DiskFault, MemDisk};

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
const SECOND_NS: i64 = 1_000_000_000;

/// Operations of a disk within which an injected fault comes.
const SOON: u64 = 60;

/// Bytes of the files of a log.
fn content_bytes(disk: &MemDisk) -> u64 {
    let in_dir = |dir: &str| {
        let names = disk.list(dir).unwrap_or_default().into_iter();
        let path = |name: String| if dir.is_empty() { name } else { format!("{dir}/{name}") };
        names.filter_map(|name| disk.file_len(&path(name))).map(|len| len as u64).sum::<u64>()
    };
    ["", "tmp", "torn", "cold"].into_iter().map(in_dir).sum()
}

impl World {
    pub(super) fn fault_comes(&mut self) {
        if !self.is_faulty {
            return;
        }
        let pause = self.schedule.rng.between(1, 2 * self.mix.pause);
        self.schedule.after(pause, Happening::FaultComes);
        if let Some(fault) = self.mix.pick(&mut self.schedule.rng) {
            let now = self.schedule.now();
            self.schedule.trace.record(now, &fault);
            self.summary.faults += 1;
            self.inject(fault);
        }
    }

    fn inject(&mut self, fault: Fault) {
        let log = self.schedule.rng.below(2) as usize;
        match fault {
            Fault::PowerCut => self.end_soon(End::Power),
            Fault::Kill => self.end_soon(End::Killed),
            Fault::Stop => self.stop(),
            Fault::FailSync => self.break_disk(log, DiskFault::SyncError),
            Fault::FailWrite => self.break_disk(log, DiskFault::WriteError),
            Fault::FullOnce => self.break_disk(log, DiskFault::NoSpace),
            Fault::FailReads => {
                let count = self.schedule.rng.between(1, 4);
                self.parts.disks[log].inject(DiskFault::ReadErrors(count));
            }
            Fault::Full => {
                let room = self.schedule.rng.below(24) * 1024;
                let disk = &self.parts.disks[log];
                disk.set_capacity(content_bytes(disk) + room);
            }
            Fault::Room => self.parts.disks[log].set_capacity(u64::MAX),
            Fault::SlowDisks => self.slowest = self.schedule.rng.between(2 * MILLI, 10 * SECOND),
            Fault::QuickDisks => self.slowest = 2 * MILLI,
            Fault::ClockForward => self.set_clock(1),
            Fault::ClockBack => self.set_clock(-1),
            Fault::StoreAway => self.parts.store.set_faults(|now| now.is_away = true),
            Fault::StoreBack => self.parts.store.set_faults(|now| now.is_away = false),
            Fault::StoreFails => {
                let fail_per_mille = *self.schedule.rng.pick(&[20, 100, 400]);
                self.parts.store.set_faults(|now| now.fail_per_mille = fail_per_mille);
            }
            Fault::StoreWorks => self.parts.store.set_faults(|now| now.fail_per_mille = 0),
            Fault::StoreSlow => {
                let slowest = self.schedule.rng.between(2 * MILLI, 10 * SECOND);
                self.parts.store.set_faults(|now| now.slowest = slowest);
            }
            Fault::StoreQuick => {
                self.parts.store.set_faults(|now| now.slowest = StoreFaults::NONE.slowest);
            }
            Fault::Sleep => self.sleep(8 * 3600 * SECOND),
        }
        // A log that stopped over a fault is started again, as a supervisor does.
        if matches!(fault, Fault::FailSync | Fault::FailWrite | Fault::FullOnce | Fault::Full) {
            let how = if self.schedule.rng.chance(500) { End::Power } else { End::Killed };
            let after = self.schedule.rng.between(10 * MILLI, SECOND);
            self.schedule.after(after, Happening::Ends { life: self.life, how });
        }
    }

    /// From one of the next operations of each disk on nothing works, and then the process has ended.
    fn end_soon(&mut self, how: End) {
        for disk in &self.parts.disks {
            let at = disk.operations() + self.schedule.rng.below(SOON);
            disk.inject(DiskFault::PowerCut(at));
        }
        let after = self.schedule.rng.below(30 * MILLI);
        self.schedule.after(after, Happening::Ends { life: self.life, how });
    }

    /// The server closes its logs; the power may go while it does.
    fn stop(&mut self) {
        let Some(server) = &mut self.server else { return };
        if self.schedule.rng.chance(300) {
            for disk in &self.parts.disks {
                let at = disk.operations() + self.schedule.rng.below(SOON / 2);
                disk.inject(DiskFault::PowerCut(at));
            }
        }
        for host in &mut server.hosts {
            host.close();
        }
        let how = if self.schedule.rng.chance(500) { End::Power } else { End::Killed };
        self.schedule.after(0, Happening::Ends { life: self.life, how });
    }

    fn break_disk(&mut self, log: usize, fault: impl FnOnce(u64) -> DiskFault) {
        let disk = &self.parts.disks[log];
        disk.inject(fault(disk.operations() + 1 + self.schedule.rng.below(SOON)));
    }

    fn set_clock(&mut self, direction: i64) {
        let longest = *self.schedule.rng.pick(&[5, 600, 86_400, 20 * 86_400]);
        let seconds = self.schedule.rng.between(1, longest).cast_signed();
        self.parts.time.set_wall(direction * seconds * SECOND_NS);
    }

    /// Nothing fails any more; what has stopped is started again.
    pub(super) fn mend(&mut self) {
        for disk in &self.parts.disks {
            disk.heal();
            disk.set_capacity(u64::MAX);
        }
        self.parts.store.set_faults(|now| *now = StoreFaults::NONE);
        self.slowest = 2 * MILLI;
        let stopped = self.server.as_ref().is_some_and(super::server::Server::has_failed);
        if stopped {
            self.schedule.after(0, Happening::Ends { life: self.life, how: End::Killed });
        }
    }
}
