//! Which machine and which log something is of. Logs share machines; what is of one log is in one part of all lists.

use super::{MACHINES, World};

impl World {
    /// The machine that something of a log is at.
    pub(in crate::keeper) fn node_of(&self, slot: usize) -> usize {
        slot % MACHINES
    }

    /// The log that something is of.
    pub(in crate::keeper) fn log_of(&self, slot: usize) -> usize {
        slot / MACHINES
    }

    /// What a machine has of a log.
    pub(in crate::keeper) fn slot(&self, log: usize, machine: usize) -> usize {
        log * MACHINES + machine
    }

    /// What a machine has of all logs.
    pub(in crate::keeper) fn slots(&self, machine: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.logs).map(move |log| log * MACHINES + machine)
    }

    /// What the catalogs know of the disks that a machine's keepers have.
    pub(super) fn note_disks(&mut self, at: usize) {
        for slot in self.slots(at) {
            if let Some(disk) = self.disk_of(slot) {
                self.machines[slot].known = Some(disk);
            }
        }
    }
}
