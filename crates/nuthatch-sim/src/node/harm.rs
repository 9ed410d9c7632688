//! Damage that a medium does without a word: bits that flip, writes that were lost or went to the place of
//! others. Copies of what a node has left are damaged, each in one place, and started.

use super::check::{Looked, look_harmed};
use super::server::{LOGS, Parts};
use super::violation::Violation;
use super::world::World;
use crate::rng::Rng;
use nuthatch_log::Disk;
use nuthatch_log::env::{MemDisk, SECTOR_BYTES};

/// Copies that are damaged, at most.
const HARMS_MAX: u64 = 6;

/// Files of a log whose content is read again.
fn files(disk: &MemDisk) -> Vec<(String, u64)> {
    let in_dir = |dir: &str| {
        let names = disk.list(dir).unwrap_or_default().into_iter();
        let path = |name: String| if dir.is_empty() { name } else { format!("{dir}/{name}") };
        names.map(path).collect::<Vec<_>>()
    };
    let all = ["", "cold"].into_iter().flat_map(in_dir);
    let with_len = all.filter_map(|path| Some((disk.file_len(&path)? as u64, path)));
    with_len.filter(|(len, _)| *len > 0).map(|(len, path)| (path, len)).collect()
}

fn sector(disk: &MemDisk, path: &str, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    let read = disk.open(path).and_then(|file| file.read_at(&mut bytes, at));
    bytes.truncate(read.expect("a disk without faults is read"));
    bytes
}

fn overwrite(disk: &MemDisk, path: &str, at: u64, bytes: &[u8]) {
    let file = disk.open(path).expect("a file that is there");
    file.write_at(bytes, at).and_then(|()| file.sync()).expect("a disk without faults is written");
}

/// Damages one place; says where and how.
pub(super) fn harm(disk: &MemDisk, rng: &mut Rng) -> Option<String> {
    let files = files(disk);
    let (path, len) = files.get(rng.below(files.len().max(1) as u64) as usize)?;
    let sectors = len.div_ceil(SECTOR_BYTES as u64);
    let at = rng.below(sectors) * SECTOR_BYTES as u64;
    if !path.ends_with(".seg") || rng.chance(400) {
        let (byte, bit) = (rng.below(*len), rng.below(8));
        disk.flip_bit(path, byte as usize, bit as u8);
        return Some(format!("bit {bit} of byte {byte} of {path}"));
    }
    if rng.chance(500) {
        let lost = vec![0; sector(disk, path, at).len()];
        overwrite(disk, path, at, &lost);
        return Some(format!("sector at {at} of {path} lost"));
    }
    let segments: Vec<_> = files.iter().filter(|(path, _)| path.ends_with(".seg")).collect();
    let (from, len) = *rng.pick(&segments);
    let place = rng.below(len.div_ceil(SECTOR_BYTES as u64)) * SECTOR_BYTES as u64;
    let mut stray = sector(disk, from, place);
    stray.truncate(sector(disk, path, at).len());
    overwrite(disk, path, at, &stray);
    Some(format!("sector at {at} of {path} overwritten by that at {place} of {from}"))
}

impl World {
    /// Damages copies of the node, which rests. Each either refuses to start, or serves what it has and
    /// says of the rest that it cannot be read.
    pub(super) fn look_at_harmed(&mut self) -> Result<(), Violation> {
        for _ in 0..self.schedule.rng.below(HARMS_MAX + 1) {
            let (parts, log) = (self.parts.copy(), self.schedule.rng.below(2) as usize);
            let Some(what) = harm(&parts.disks[log], &mut self.schedule.rng) else { continue };
            let now = self.schedule.now();
            self.schedule.trace.record(now, &format!("{} {what}", LOGS[log]));
            self.summary.harmed += 1;
            // What time passes for one copy does not for the next.
            let clock_max = self.model.clock_max;
            self.start_harmed(parts)?;
            self.model.clock_max = clock_max;
        }
        Ok(())
    }

    /// What is served after damage is served after the next start, too.
    fn start_harmed(&mut self, mut parts: Parts) -> Result<(), Violation> {
        for _ in 0..2 {
            let salt = self.salt();
            match look_harmed(&mut self.model, &parts, self.style, salt)? {
                Looked::Whole => parts = parts.copy(),
                Looked::Damaged => {
                    self.summary.damaged += 1;
                    break;
                }
            }
        }
        Ok(())
    }
}
