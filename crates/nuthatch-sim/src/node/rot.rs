//! Damage that comes while a node runs: bits flip under it, writes are lost, go astray, or land on what others
//! wrote. The process goes on as long as it can; nothing that it serves may be wrong, and what it leaves is
//! served, told as unreadable, or refused, and then mended by the doctor.

use super::check::{Looked, look_harmed};
use super::doctor::look_mended;
use super::harm::harm;
use super::server::LOGS;
use super::violation::Violation;
use super::world::{End, Happening, World};
use nuthatch_log::env::{Fault as DiskFault, SECTOR_BYTES};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
/// So long damage comes.
const ROTS: u64 = 3 * SECOND;
/// After that clients go on for so long: where the writes of a frame and of the one that vouches for it both went
/// wrong, nothing would tell of the first.
const GOES_ON: u64 = 2 * SECOND;
/// After that so long a process rests: whatever it acknowledged has a later frame that vouches for it.
const REST: u64 = 2 * SECOND;
/// Damages of one process, at most.
const ROTS_MAX: u64 = 4;
/// Operations of a disk within which a write goes wrong.
const SOON: u64 = 40;
/// Sectors that a write misses its place by, at most.
const ASTRAY_MAX: u64 = 8;

impl World {
    /// Lets damage come to the running node, and looks at what it leaves.
    pub(super) fn rot(&mut self) -> Result<(), Violation> {
        let began = self.schedule.now();
        self.is_quiet = false;
        for _ in 0..=self.schedule.rng.below(ROTS_MAX) {
            let after = self.schedule.rng.between(MILLI, ROTS);
            self.schedule.after(after, Happening::Rots { life: self.life });
        }
        self.run_until(began + ROTS)?;
        // What has not gone wrong by now does not any more.
        self.parts.disks.iter().for_each(nuthatch_log::env::MemDisk::heal);
        self.run_until(began + ROTS + GOES_ON)?;
        self.is_quiet = true;
        self.run_until(began + ROTS + GOES_ON + REST)?;
        self.look_at_rotten()
    }

    /// One damage to one log.
    pub(super) fn rots(&mut self) {
        let log = self.schedule.rng.below(2) as usize;
        let disk = self.parts.disks[log].clone();
        let rng = &mut self.schedule.rng;
        let at = disk.operations() + 1 + rng.below(SOON);
        let fault = match rng.below(8) {
            0 | 1 => DiskFault::Lost(at),
            2 => DiskFault::Stale(at),
            3 | 4 => {
                let by = rng.between(1, ASTRAY_MAX) * SECTOR_BYTES as u64;
                let by = by.cast_signed() * if rng.chance(500) { 1 } else { -1 };
                DiskFault::Misdirected(at, by)
            }
            _ => {
                let what = harm(&disk, rng);
                let now = self.schedule.now();
                self.schedule.trace.record(now, &format!("{} {what:?}", LOGS[log]));
                self.summary.rotten += 1;
                return;
            }
        };
        let now = self.schedule.now();
        self.schedule.trace.record(now, &format!("{} {fault:?}", LOGS[log]));
        self.summary.rotten += 1;
        disk.inject(fault);
    }

    fn look_at_rotten(&mut self) -> Result<(), Violation> {
        let (homes, is_moving) = match &self.server {
            Some(server) => (server.homes, server.moves.is_any()),
            None => return Ok(()),
        };
        let how = if self.schedule.rng.chance(500) { End::Power } else { End::Killed };
        self.end_process(how)?;
        let (parts, salt) = (self.parts.copy(), self.salt());
        let clock_max = self.model.clock_max;
        if look_harmed(&mut self.model, &parts, self.style, salt)? == Looked::Damaged {
            self.summary.stopped += 1;
        }
        self.model.clock_max = clock_max;
        // The doctor looks at logs that are whole on the local disk, and between two moves.
        if self.parts.tier.is_some() || is_moving {
            return Ok(());
        }
        for log in 0..LOGS.len() {
            let told = look_mended(&mut self.model, &self.parts.copy(), log, &homes, self.style)?;
            self.summary.given_up_messages += told;
        }
        // What time passes for copies does not for the node.
        self.model.clock_max = clock_max;
        Ok(())
    }
}
