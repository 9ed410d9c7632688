//! Disks that forget what was not synced, tear it, and fail.

use crate::rng::Rng;
use std::collections::VecDeque;

/// What a disk holds, and the operations that change it.
pub trait Medium: Clone {
    /// An operation.
    type Op: Clone;
    /// Does an operation.
    fn apply(&mut self, op: &Self::Op);
    /// Does half of an operation, if one can be cut in the middle: true when it was.
    fn tear(&mut self, op: &Self::Op) -> bool;
    /// True if nothing behind this operation is written before everything in front of it is durable.
    fn is_barrier(op: &Self::Op) -> bool;
    /// True if an operation takes room that was not taken before.
    fn grows(op: &Self::Op) -> bool;
}

/// Why an operation was not done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteError {
    /// There is no room (ENOSPC).
    Full,
    /// The disk failed (EIO).
    Io,
}

/// A disk and what was written to it but not synced.
#[derive(Clone, Debug)]
pub struct Disk<M: Medium> {
    medium: M,
    unsynced: VecDeque<M::Op>,
    /// Operations ever synced or lost, and asked to be synced.
    ended: u64,
    written: u64,
    /// When the last sync that was asked for ends.
    busy_until: u64,
    /// Syncs from now on that fail.
    pub failing: u32,
    /// The most that a sync takes, in microseconds.
    pub sync_max: u64,
    /// Writes from now on that fail.
    pub refusing: u32,
    /// How many operations that grow there is room for; none: as many as come.
    pub room: Option<u64>,
}

/// A sync under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sync {
    /// Operations up to this one are covered.
    covers: u64,
    /// Microseconds until it ends.
    pub takes: u64,
}

impl<M: Medium> Disk<M> {
    /// A disk on which everything is durable.
    #[must_use]
    pub fn new(medium: M) -> Self {
        let unsynced = VecDeque::new();
        Self {
            medium,
            unsynced,
            ended: 0,
            written: 0,
            busy_until: 0,
            failing: 0,
            sync_max: 2_000,
            refusing: 0,
            room: None,
        }
    }

    /// What is durable.
    #[must_use]
    pub fn durable(&self) -> &M {
        &self.medium
    }

    /// For faults: changes what is durable.
    pub fn durable_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// When the last sync ends that was begun.
    #[must_use]
    pub fn busy_until(&self) -> u64 {
        self.busy_until
    }

    /// What was written and not synced.
    pub fn unsynced(&self) -> impl Iterator<Item = &M::Op> {
        self.unsynced.iter()
    }

    /// Writes; nothing of it is durable yet.
    ///
    /// # Errors
    /// One of the operations and all behind it were not done.
    pub fn write(&mut self, ops: Vec<M::Op>, rng: &mut Rng) -> Result<(), WriteError> {
        let fails = self.refusing > 0 && !ops.is_empty();
        self.refusing -= u32::from(fails);
        let refused = fails.then(|| rng.below(ops.len() as u64) as usize);
        for (at, op) in ops.into_iter().enumerate() {
            if refused == Some(at) {
                return Err(WriteError::Io);
            }
            if M::grows(&op) && self.room == Some(0) {
                return Err(WriteError::Full);
            }
            self.room = self.room.map(|room| room - u64::from(M::grows(&op)));
            self.written += 1;
            self.unsynced.push_back(op);
        }
        Ok(())
    }

    /// Begins a sync of everything written so far. Syncs end in their order.
    pub fn begin_sync(&mut self, now: u64, rng: &mut Rng) -> Sync {
        let takes = rng.between(50, self.sync_max.max(51));
        self.busy_until = self.busy_until.max(now + takes);
        Sync { covers: self.written, takes: self.busy_until - now }
    }

    /// Ends a sync: what it covers is durable; or it fails, and any part of that is lost for good,
    /// although the system's cache still shows it.
    pub fn end_sync(&mut self, sync: Sync, rng: &mut Rng) -> bool {
        let fails = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        let count = sync.covers.saturating_sub(self.ended);
        let covered = self.unsynced.drain(..usize::try_from(count).expect("a size"));
        self.ended += count;
        if fails {
            let covered: Vec<M::Op> = covered.collect();
            self.lose(&covered, rng);
        } else {
            covered.for_each(|op| self.medium.apply(&op));
        }
        !fails
    }

    /// A barrier is a sync too, and behind one that failed nothing is written: everything in front of one
    /// of them is durable, any part of what is between that and the next one, and nothing behind.
    fn lose(&mut self, covered: &[M::Op], rng: &mut Rng) {
        let stretches: Vec<&[M::Op]> = covered.split(M::is_barrier).collect();
        let failed = rng.below(stretches.len() as u64) as usize;
        stretches[..failed].iter().copied().flatten().for_each(|op| self.medium.apply(op));
        for op in stretches[failed] {
            if rng.chance(300) {
                self.medium.apply(op);
            }
        }
        if failed + 1 < stretches.len() {
            self.unsynced.clear();
            self.ended = self.written;
        }
    }

    /// The process ends: the system's cache is kept, and written.
    pub fn process_ends(&mut self) {
        for op in std::mem::take(&mut self.unsynced) {
            self.medium.apply(&op);
        }
        self.ended = self.written;
        self.busy_until = 0;
    }

    /// The power goes: of what was not synced, everything in front of one barrier is there, any part of
    /// what is between that and the next one, torn or whole, and nothing behind.
    pub fn power_goes(&mut self, rng: &mut Rng) {
        let ops: Vec<M::Op> = std::mem::take(&mut self.unsynced).into();
        let stretches: Vec<&[M::Op]> = ops.split(M::is_barrier).collect();
        let reached = rng.below(stretches.len() as u64) as usize;
        for op in stretches[..reached].iter().copied().flatten() {
            self.medium.apply(op);
        }
        for op in stretches[reached] {
            match rng.below(5) {
                0 | 1 => self.medium.apply(op),
                2 => {
                    self.medium.tear(op);
                }
                _ => {}
            }
        }
        self.ended = self.written;
        self.busy_until = 0;
    }
}

#[cfg(test)]
mod tests;
