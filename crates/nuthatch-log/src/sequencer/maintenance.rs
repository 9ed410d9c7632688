//! Maintenance by the sequencer: checkpoints at quiet moments, and the choice of what runs next.
//! Compaction has a file of its own.

use super::compact::CompactState;
use super::worker::TaskDone;
use super::{LogCore, LogInner, Recovered, millis};
use crate::checkpoint::{self, Covers};
use crate::machine::{Machine, Space};
use crate::rules::{CHECKPOINT_AFTER_FRAMES, CHECKPOINT_BEFORE_COMPACTION, SWEEP_WHILE_FULL};
use crate::stats::add;
use crate::types::{Epoch, Lsn, Timestamp};
use std::sync::Arc;

/// Snapshots may take at most one part in this many of the sequencer's time.
const SNAPSHOT_TIME_SHARE: i64 = 30;

/// What one snapshot held the log up counts for at most this much: the clock may have jumped.
const STALL_NANOS_MAX: i64 = 10_000_000_000;

/// A start that had to read this many records is followed by a checkpoint.
const MAX_REPLAYED_RECORDS: u64 = 10_000;

/// On a full medium, files that were never finished are looked for this often.
const SWEEP_INTERVAL_NANOS: i64 = 1_000_000_000;

/// A compaction of so many times the bytes of a snapshot is worth a checkpoint before it.
const COMPACTION_PER_SNAPSHOT: u64 = 4;

/// A log with fewer written bytes since the last checkpoint is not worth one while it runs.
const MIN_CHECKPOINT_BYTES: u64 = 4096;

/// Maintenance of one log.
pub(super) struct Maintenance {
    checkpoint: CheckpointState,
    /// Compaction.
    pub(super) compact: CompactState,
    /// On a full medium: when what stayed behind under construction is removed again.
    sweep_at: Timestamp,
}

struct CheckpointState {
    /// Everything up to here is in a checkpoint.
    covered: Lsn,
    bytes_then: u64,
    at: Timestamp,
    not_before: Timestamp,
    /// Events wait until a snapshot has been taken.
    wanted: bool,
    /// When that began.
    wanted_at: Timestamp,
    /// It is wanted by a compaction, which waits for it; not for those of the interval, of which one
    /// may always be wanted under load.
    for_compaction: bool,
    under_way: Option<Lsn>,
    /// The newest position for which a compaction has asked for a checkpoint.
    asked_for: Lsn,
    /// Bytes of the newest snapshot.
    snapshot_bytes: u64,
    /// Epoch of the newest committed frame, if it is not this owner's.
    inherited: Epoch,
    opened_with: Lsn,
}

impl Maintenance {
    pub(super) fn new(log: &LogInner, recovered: Recovered) -> Self {
        // A long replay is not done twice: the first checkpoint is then due at once.
        let interval = millis(log.options.checkpoint_interval_ms);
        let overdue = recovered.replayed >= MAX_REPLAYED_RECORDS;
        let at = if overdue { log.now.plus_nanos(-interval) } else { log.now };
        let checkpoint = CheckpointState {
            covered: recovered.checkpoint,
            bytes_then: 0,
            at,
            not_before: log.now,
            wanted: false,
            wanted_at: log.now,
            for_compaction: false,
            under_way: None,
            asked_for: Lsn(0),
            snapshot_bytes: 0,
            inherited: recovered.epoch,
            opened_with: log.committed,
        };
        let compact_at = log.now.plus_nanos(millis(log.options.rest_at_start_ms));
        Self { checkpoint, compact: CompactState::new(compact_at), sweep_at: log.now }
    }

    /// True while a compaction waits for the checkpoint that it asked for.
    pub(super) const fn delays_compaction(&self) -> bool {
        self.checkpoint.for_compaction
    }

    /// True if a snapshot waits for everything under way to be committed.
    pub(super) const fn wants_quiet(&self) -> bool {
        self.checkpoint.wanted
    }

    /// True if logged states wait to become durable.
    pub(super) const fn wants_sync(&self) -> bool {
        self.checkpoint.wanted || self.compact.wants_sync()
    }
}

impl<M: Machine> LogCore<M> {
    /// One step of housekeeping.
    pub(super) fn maintain(&mut self) -> bool {
        if self.log.failed.is_some() {
            return false;
        }
        let mut progress = self.take_task();
        self.sweep_while_full();
        progress |= self.checkpoint_step();
        progress | self.compaction_step()
    }

    /// A medium that is full is given back what stayed behind under construction, at a moment when
    /// nothing is: no frame that could need a new segment, no checkpoint, no compaction.
    fn sweep_while_full(&mut self) {
        let quiet = self.in_flight.is_empty() && !self.worker.is_busy();
        let due = self.log.space != Space::Normal && self.log.now >= self.maintenance.sweep_at;
        if !due || !quiet || !SWEEP_WHILE_FULL.holds() {
            return;
        }
        self.maintenance.sweep_at = self.log.now.plus_nanos(SWEEP_INTERVAL_NANOS);
        match self.log.store.sweep_unfinished() {
            Ok(0) => {}
            Ok(removed) => {
                let text = format!("{removed} files that were never finished were removed");
                self.log.options.report.say(&text);
            }
            Err(error) => {
                let text = format!("files that were never finished cannot be looked for: {error}");
                self.log.options.report.say(&text);
            }
        }
    }

    /// When housekeeping wants to look again although nothing else happens.
    pub(super) fn maintenance_due_at(&self) -> Option<Timestamp> {
        // It would not do anything: what is due would stay so, and the thread would not sleep. The end of
        // the worker's task wakes it.
        if self.log.failed.is_some() || self.worker.is_busy() {
            return None;
        }
        [self.compaction_at(), self.checkpoint_at()].into_iter().flatten().min()
    }

    fn checkpoint_at(&self) -> Option<Timestamp> {
        let state = &self.maintenance.checkpoint;
        let dirty = self.bytes_since_checkpoint() >= MIN_CHECKPOINT_BYTES;
        let possible = !self.log.medium.in_memory && dirty && !state.wanted;
        let interval = millis(self.log.options.checkpoint_interval_ms);
        possible.then(|| state.at.plus_nanos(interval).max(state.not_before))
    }

    /// Asks for a checkpoint of the states that a compaction of so many bytes is about to rely on, once
    /// and where it costs little beside that: then what the compaction leaves can be made sense of
    /// although the segment with its states is lost. True if it was asked for now.
    pub(super) fn ask_for_checkpoint(&mut self, states: Lsn, bytes: u64) -> bool {
        let state = &mut self.maintenance.checkpoint;
        let is_new = states > state.covered.max(state.asked_for);
        let affordable = state.snapshot_bytes.saturating_mul(COMPACTION_PER_SNAPSHOT) <= bytes
            && self.log.now >= state.not_before;
        let possible = !self.log.medium.in_memory && self.log.space == Space::Normal;
        let asks = is_new && affordable && possible && CHECKPOINT_BEFORE_COMPACTION.holds();
        if asks {
            state.asked_for = states;
            state.for_compaction = true;
            self.want_checkpoint();
        }
        asks
    }

    fn bytes_since_checkpoint(&self) -> u64 {
        self.log.segments.written().saturating_sub(self.maintenance.checkpoint.bytes_then)
    }

    fn take_task(&mut self) -> bool {
        let Some(done) = self.worker.take() else { return false };
        match done {
            TaskDone::Checkpoint(result) => self.note_checkpoint(&result),
            TaskDone::Survey(result) => self.take_survey(result),
            TaskDone::Rewritten(result) => self.take_rewritten(*result),
        }
        true
    }

    fn checkpoint_step(&mut self) -> bool {
        let state = &self.maintenance.checkpoint;
        if !state.wanted {
            let due = self.log.now >= state.not_before
                && self.bytes_since_checkpoint() >= self.log.options.checkpoint_bytes
                || self.checkpoint_at().is_some_and(|at| at <= self.log.now);
            if !due || self.worker.is_busy() || self.log.medium.in_memory {
                return false;
            }
            self.want_checkpoint();
        }
        if self.is_quiet() {
            self.take_snapshot();
            return true;
        }
        false
    }

    /// From now on the log takes nothing until it is quiet enough for a snapshot.
    fn want_checkpoint(&mut self) {
        let state = &mut self.maintenance.checkpoint;
        if !state.wanted {
            (state.wanted, state.wanted_at) = (true, self.log.clock.now());
        }
    }

    fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
            && self.log.pending.is_empty()
            && self.log.frame.is_empty()
            && (self.log.durable == self.log.committed || !CHECKPOINT_AFTER_FRAMES.holds())
    }

    fn take_snapshot(&mut self) {
        let state = &mut self.maintenance.checkpoint;
        (state.wanted, state.for_compaction) = (false, false);
        if self.worker.is_busy() {
            return;
        }
        let began = state.wanted_at;
        let (covers, bytes) = self.snapshot(began);
        self.maintenance.checkpoint.under_way = Some(covers.lsn);
        let (disk, keys) = (Arc::clone(&self.log.store.disk), self.log.store.keys.clone());
        let task = move || TaskDone::Checkpoint(checkpoint::write(&*disk, covers, bytes, &keys));
        self.worker.submit(Box::new(task));
    }

    /// A snapshot for which the log has taken nothing since `began`; the next one comes after a multiple of that.
    fn snapshot(&mut self, began: Timestamp) -> (Covers, Vec<u8>) {
        let mut bytes = checkpoint::begin();
        self.machine.snapshot(&mut bytes);
        let cost = self.log.clock.now().0.saturating_sub(began.0).clamp(0, STALL_NANOS_MAX);
        let (now, lsn) = (self.log.now, self.log.committed);
        let state = &mut self.maintenance.checkpoint;
        state.snapshot_bytes = bytes.len() as u64;
        state.at = now;
        state.not_before = now.plus_nanos(cost.saturating_mul(SNAPSHOT_TIME_SHARE));
        state.bytes_then = self.log.segments.written();
        let inherited = lsn == state.opened_with;
        let epoch = if inherited { state.inherited } else { self.log.store.epoch };
        (Covers { log_id: self.log.store.catalog().log_id, lsn, epoch }, bytes)
    }

    fn note_checkpoint(&mut self, result: &std::io::Result<()>) {
        match (result, self.maintenance.checkpoint.under_way.take()) {
            (Ok(()), Some(lsn)) => {
                self.maintenance.checkpoint.covered = lsn;
                add(&self.log.stats.checkpoints, 1);
            }
            (Err(error), _) => {
                self.log.options.report.say(&format!("a checkpoint was not written: {error}"));
            }
            (Ok(()), None) => {}
        }
    }

    /// The last checkpoint, before the log is closed. Without it the next start takes longer.
    pub(super) fn final_checkpoint(&mut self) {
        let memory = self.log.medium.in_memory;
        if memory || self.log.committed == self.maintenance.checkpoint.covered {
            return;
        }
        let (covers, bytes) = self.snapshot(self.log.clock.now());
        self.maintenance.checkpoint.under_way = Some(covers.lsn);
        let store = &self.log.store;
        let result = checkpoint::write(&*store.disk, covers, bytes, &store.keys);
        self.note_checkpoint(&result);
    }
}
