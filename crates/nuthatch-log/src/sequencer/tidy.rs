//! What the sequencer does beside its work: checkpoints at quiet moments, and the steps of a
//! compaction that need the machine. Everything slow is left to the worker.

use super::worker::TaskDone;
use super::{LogCore, LogInner, Recovered, millis};
use crate::checkpoint::{self, Covers};
use crate::compaction::{CompactionFault, Pace, RewriteJob, Rewritten, Survey, Victim, survey};
use crate::env::WriteMode;
use crate::machine::{Machine, Space};
use crate::options::SyncPolicy;
use crate::sequencer::SegmentInfo;
use crate::stats::add;
use crate::types::{Epoch, Lsn, Seq, StreamId, Timestamp};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Snapshots may take at most one part in this many of the sequencer's time.
const SNAPSHOT_TIME_SHARE: i64 = 30;

/// How often segments are looked over for dead space, if messages died since.
const COMPACT_CHECK_NANOS: i64 = 1_000_000_000;

/// The same while the medium is full.
const FULL_CHECK_NANOS: i64 = 50_000_000;

/// A compaction must give back at least a segment divided by this.
const COMPACT_GAIN_SHARE: u64 = 64;

/// After a compaction that logged large states the log must grow by this many times their bytes
/// before the next one: they are dead weight themselves, and compaction would feed on them for ever.
const COMPACT_STATES_FACTOR: u64 = 4;

/// Messages that the machine is asked about in one turn.
const JUDGED_PER_TURN: usize = 4096;

/// Streams whose states are logged in one turn.
const STATES_PER_TURN: usize = 256;

/// Turns that this takes at most: each also logs the log's state, which lists all streams.
const STATES_TURNS: usize = 16;

/// A start that had to read this many records is followed by a checkpoint.
const MAX_REPLAYED_RECORDS: u64 = 10_000;

/// A log with fewer written bytes since the last checkpoint is not worth one while it runs.
const MIN_CHECKPOINT_BYTES: u64 = 4096;

/// Housekeeping of one log.
pub(super) struct Tidy {
    checkpoint: CheckpointState,
    compaction: Compaction,
    check_at: Timestamp,
    /// Bytes of the states that the last compaction logged.
    states_cost: u64,
    /// Bytes of the log when it did.
    written_then: u64,
    /// Set when the log is closed.
    hurry: Arc<AtomicBool>,
}

struct CheckpointState {
    /// Everything up to here is in a checkpoint.
    covered: Lsn,
    bytes_then: u64,
    at: Timestamp,
    not_before: Timestamp,
    /// Events wait until a snapshot has been taken.
    wanted: bool,
    under_way: Option<Lsn>,
    /// Generation of the newest committed frame, if it is not this owner's.
    inherited: Epoch,
    opened_with: Lsn,
}

#[derive(Default)]
enum Compaction {
    #[default]
    Idle,
    Surveying,
    Judging(Box<Judgement>),
    Logging {
        judgement: Box<Judgement>,
        streams_done: usize,
    },
    AwaitingStates {
        judgement: Box<Judgement>,
        lsn: Lsn,
    },
    Rewriting {
        live_then: u64,
    },
}

struct Judgement {
    survey: Survey,
    next: usize,
    live: FxHashSet<(StreamId, Seq)>,
    live_bytes: u64,
}

impl Tidy {
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
            under_way: None,
            inherited: recovered.epoch,
            opened_with: log.committed,
        };
        let (compaction, check_at) = (Compaction::Idle, log.now);
        let hurry = Arc::default();
        Self { checkpoint, compaction, check_at, states_cost: 0, written_then: 0, hurry }
    }

    /// Whether a snapshot waits for everything under way to be committed.
    pub(super) const fn wants_quiet(&self) -> bool {
        self.checkpoint.wanted
    }

    /// Whether logged states wait to become durable.
    pub(super) const fn wants_sync(&self) -> bool {
        self.checkpoint.wanted || matches!(self.compaction, Compaction::AwaitingStates { .. })
    }

    const fn is_compacting(&self) -> bool {
        !matches!(self.compaction, Compaction::Idle)
    }
}

impl<M: Machine> LogCore<M> {
    /// One step of housekeeping.
    pub(super) fn tidy(&mut self) -> bool {
        if self.log.failed.is_some() {
            return false;
        }
        let mut progress = self.take_task();
        progress |= self.checkpoint_step();
        progress | self.compaction_step()
    }

    /// When housekeeping wants to look again although nothing else happens.
    pub(super) fn tidy_at(&self) -> Option<Timestamp> {
        let compaction =
            (self.log.segments.died && !self.tidy.is_compacting()).then_some(self.tidy.check_at);
        [compaction, self.checkpoint_at()].into_iter().flatten().min()
    }

    fn checkpoint_at(&self) -> Option<Timestamp> {
        let state = &self.tidy.checkpoint;
        let dirty = self.bytes_since_checkpoint() >= MIN_CHECKPOINT_BYTES;
        let possible = self.log.mode != WriteMode::Memory && dirty && !state.wanted;
        let interval = millis(self.log.options.checkpoint_interval_ms);
        possible.then(|| state.at.plus_nanos(interval).max(state.not_before))
    }

    fn bytes_since_checkpoint(&self) -> u64 {
        self.log.segments.written().saturating_sub(self.tidy.checkpoint.bytes_then)
    }

    fn take_task(&mut self) -> bool {
        let Some(done) = self.worker.take() else { return false };
        match done {
            TaskDone::Checkpoint(result) => self.note_checkpoint(&result),
            TaskDone::Survey(Ok(survey)) => {
                let live = FxHashSet::default();
                let judgement = Judgement { survey, next: 0, live, live_bytes: 0 };
                self.tidy.compaction = Compaction::Judging(Box::new(judgement));
            }
            TaskDone::Survey(Err(fault)) => self.give_up(&fault),
            TaskDone::Rewritten(result) => match *result {
                Ok(rewritten) => self.adopt(&rewritten),
                Err(fault) => self.give_up(&fault),
            },
        }
        true
    }

    fn checkpoint_step(&mut self) -> bool {
        let state = &self.tidy.checkpoint;
        if !state.wanted {
            let due = self.log.now >= state.not_before
                && self.bytes_since_checkpoint() >= self.log.options.checkpoint_bytes
                || self.checkpoint_at().is_some_and(|at| at <= self.log.now);
            if !due || self.worker.is_busy() || self.log.mode == WriteMode::Memory {
                return false;
            }
            self.tidy.checkpoint.wanted = true;
        }
        if self.is_quiet() {
            self.take_snapshot();
            return true;
        }
        false
    }

    fn is_quiet(&self) -> bool {
        self.in_flight.is_none()
            && self.log.pending.is_empty()
            && self.log.frame.is_empty()
            && self.log.durable == self.log.committed
    }

    fn take_snapshot(&mut self) {
        self.tidy.checkpoint.wanted = false;
        if self.worker.is_busy() {
            return;
        }
        let (covers, bytes) = self.snapshot();
        self.tidy.checkpoint.under_way = Some(covers.lsn);
        let disk = Arc::clone(&self.log.store.disk);
        let task = move || TaskDone::Checkpoint(checkpoint::write(&*disk, covers, bytes));
        self.worker.submit(Box::new(task));
    }

    fn snapshot(&mut self) -> (Covers, Vec<u8>) {
        let started = self.log.clock.now();
        let mut bytes = checkpoint::begin();
        self.machine.snapshot(&mut bytes);
        let cost = self.log.clock.now().0.saturating_sub(started.0).max(0);
        let (now, lsn) = (self.log.now, self.log.committed);
        let state = &mut self.tidy.checkpoint;
        state.at = now;
        state.not_before = now.plus_nanos(cost.saturating_mul(SNAPSHOT_TIME_SHARE));
        state.bytes_then = self.log.segments.written();
        let inherited = lsn == state.opened_with;
        let epoch = if inherited { state.inherited } else { self.log.store.epoch };
        (Covers { log_id: self.log.store.catalog().log_id, lsn, epoch }, bytes)
    }

    fn note_checkpoint(&mut self, result: &std::io::Result<()>) {
        match (result, self.tidy.checkpoint.under_way.take()) {
            (Ok(()), Some(lsn)) => {
                self.tidy.checkpoint.covered = lsn;
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
        let memory = self.log.mode == WriteMode::Memory;
        if memory || self.log.committed == self.tidy.checkpoint.covered {
            return;
        }
        let (covers, bytes) = self.snapshot();
        self.tidy.checkpoint.under_way = Some(covers.lsn);
        let result = checkpoint::write(&*self.log.store.disk, covers, bytes);
        self.note_checkpoint(&result);
    }

    fn compaction_step(&mut self) -> bool {
        match std::mem::take(&mut self.tidy.compaction) {
            Compaction::Idle => self.choose_victims(),
            Compaction::Judging(judgement) => self.judge(judgement),
            Compaction::Logging { judgement, streams_done } => {
                self.log_some_states(judgement, streams_done)
            }
            Compaction::AwaitingStates { judgement, lsn } => {
                self.rewrite_once_durable(judgement, lsn)
            }
            waiting @ (Compaction::Surveying | Compaction::Rewriting { .. }) => {
                self.tidy.compaction = waiting;
                false
            }
        }
    }

    fn choose_victims(&mut self) -> bool {
        let due = self.log.segments.died && self.log.now >= self.tidy.check_at;
        if !due || self.worker.is_busy() || self.closing {
            return false;
        }
        self.tidy.check_at = self.check_again();
        self.log.publish_segment_stats();
        if self.owes_for_states() {
            return false;
        }
        let short = self.log.space != Space::Normal;
        let victims = self.log.segments.victims(&self.log.options, self.least_gain(), short);
        if victims.is_empty() {
            self.log.segments.died = false;
            return false;
        }
        self.tidy.compaction = Compaction::Surveying;
        let pace = Pace::new(self.hurry());
        self.worker.submit(Box::new(move || TaskDone::Survey(survey(victims, pace))));
        true
    }

    /// Whether the log has not grown enough since a compaction that logged large states.
    fn owes_for_states(&self) -> bool {
        let cost = self.tidy.states_cost;
        let grown = self.log.segments.written().saturating_sub(self.tidy.written_then);
        self.log.space == Space::Normal
            && cost > self.log.options.segment_bytes / COMPACT_GAIN_SHARE
            && grown < cost.saturating_mul(COMPACT_STATES_FACTOR)
    }

    /// Bytes that a compaction must give back to be worth the states it logs.
    fn least_gain(&self) -> u64 {
        if self.log.space == Space::Normal {
            self.log.options.segment_bytes / COMPACT_GAIN_SHARE
        } else {
            u64::from(self.log.options.block_bytes)
        }
    }

    fn check_again(&self) -> Timestamp {
        let nanos =
            if self.log.space == Space::Normal { COMPACT_CHECK_NANOS } else { FULL_CHECK_NANOS };
        self.log.now.plus_nanos(nanos)
    }

    fn judge(&mut self, mut judgement: Box<Judgement>) -> bool {
        let end = (judgement.next + JUDGED_PER_TURN).min(judgement.survey.messages.len());
        for (stream, seq, weight) in &judgement.survey.messages[judgement.next..end] {
            if self.machine.is_live(*stream, *seq) {
                judgement.live.insert((*stream, *seq));
                judgement.live_bytes += u64::from(*weight);
            }
        }
        judgement.next = end;
        self.tidy.compaction = if end < judgement.survey.messages.len() {
            Compaction::Judging(judgement)
        } else {
            Compaction::Logging { judgement, streams_done: 0 }
        };
        true
    }

    fn log_some_states(&mut self, judgement: Box<Judgement>, done: usize) -> bool {
        let streams = judgement.survey.streams.len();
        let end = (done + STATES_PER_TURN.max(streams.div_ceil(STATES_TURNS))).min(streams);
        if done == 0 {
            self.log.state_bytes = 0;
        }
        let streams = &judgement.survey.streams[done..end];
        if let Err(error) = self.machine.log_states(streams, &mut self.log) {
            add(&self.log.stats.states_refused, 1);
            self.log.options.report.say(&format!("compaction put off: {error}"));
            if self.log.space == Space::Normal {
                self.tidy.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
            }
            return false;
        }
        self.tidy.states_cost = self.log.state_bytes;
        self.tidy.written_then = self.log.segments.written();
        self.tidy.compaction = if end < judgement.survey.streams.len() {
            Compaction::Logging { judgement, streams_done: end }
        } else {
            self.log.frame.awaited |= !self.log.frame.is_empty();
            let newest = self.log.frame.lsn.0 - u64::from(self.log.frame.is_empty());
            Compaction::AwaitingStates { judgement, lsn: Lsn(newest) }
        };
        true
    }

    fn rewrite_once_durable(&mut self, judgement: Box<Judgement>, lsn: Lsn) -> bool {
        if !self.are_vouched_for(lsn) || self.worker.is_busy() {
            self.tidy.compaction = Compaction::AwaitingStates { judgement, lsn };
            return false;
        }
        let live_then = self.live_of(&judgement.survey);
        let Judgement { survey, live, live_bytes, .. } = *judgement;
        let job = RewriteJob {
            store: Arc::clone(&self.log.store),
            survey,
            live,
            live_bytes,
            frame_bytes: self.log.options.frame_bytes,
            block_bytes: self.log.options.block_bytes,
            salt: (self.log.entropy.next() >> 32) as u32,
            hurry: self.hurry(),
        };
        self.tidy.compaction = Compaction::Rewriting { live_then };
        self.worker.submit(Box::new(move || TaskDone::Rewritten(Box::new(job.run()))));
        true
    }

    /// Whether a compaction that starts now may not rest, or may not any more.
    fn hurry(&self) -> Arc<AtomicBool> {
        if self.log.space == Space::Normal && !self.worker.is_inline() {
            Arc::clone(&self.tidy.hurry)
        } else {
            Arc::new(AtomicBool::new(true))
        }
    }

    /// A compaction under way is to end soon.
    pub(super) fn hurry_up(&self) {
        self.tidy.hurry.store(true, Ordering::Relaxed);
    }

    /// Whether states up to `lsn` can be relied upon: durable, and with a durable frame behind them
    /// that says so. Otherwise damage to theirs would pass for a torn tail, and take with it what
    /// is needed to replay without the records that compaction drops.
    fn are_vouched_for(&self, lsn: Lsn) -> bool {
        if self.log.mode == WriteMode::Memory {
            return self.log.committed >= lsn;
        }
        let needed = if self.commits_early() { lsn } else { lsn.next() };
        self.log.durable >= needed
    }

    fn live_of(&self, survey: &Survey) -> u64 {
        let live =
            |victim: &Victim| self.log.segments.get(victim.segment.id()).map_or(0, |i| i.live);
        survey.victims.iter().map(live).sum()
    }

    /// Readers use the new segment from here on.
    fn adopt(&mut self, rewritten: &Rewritten) {
        let Compaction::Rewriting { live_then } = std::mem::take(&mut self.tidy.compaction) else {
            return;
        };
        let died_since = live_then.saturating_sub(self.live_of(&rewritten.survey));
        self.replace_places(rewritten);
        let mut freed = 0;
        for victim in &rewritten.survey.victims {
            self.log.segments.remove(victim.segment.id());
            self.log.blocks.forget(victim.segment.id());
            self.log.troubled.forget(victim.segment.id());
            freed += victim.data_end;
        }
        if let Some(output) = &rewritten.output {
            freed = freed.saturating_sub(output.data_end);
            self.log.segments.insert_quietly(SegmentInfo {
                segment: Arc::clone(&output.segment),
                data_end: output.data_end,
                end: output.end,
                live: rewritten.live_bytes.saturating_sub(died_since),
                sealed: true,
                spared: false,
            });
        }
        add(&self.log.stats.compacted_segments, rewritten.survey.victims.len() as u64);
        add(&self.log.stats.reclaimed_bytes, freed);
        self.log.publish_segment_stats();
        self.log.full_since = None;
        self.tidy.check_at = self.check_again();
        self.log.segments.died = true;
    }

    fn replace_places(&mut self, rewritten: &Rewritten) {
        let old: Vec<_> = rewritten.survey.victims.iter().map(|v| v.segment.id()).collect();
        for stream in &rewritten.survey.streams {
            let places = rewritten.output.as_ref().and_then(|output| {
                let found = output.footer.streams().iter().find(|s| s.stream == *stream)?;
                Some(output.footer.places(found, output.segment.id()).collect::<Vec<_>>())
            });
            self.log.index.replace(*stream, &old, &places.unwrap_or_default());
        }
    }

    fn give_up(&mut self, fault: &CompactionFault) {
        self.tidy.compaction = Compaction::Idle;
        self.tidy.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
        if let CompactionFault::Damaged { segment, .. } = fault {
            add(&self.log.stats.damaged, 1);
            self.log.segments.spare(*segment);
        }
        self.log.options.report.say(&format!("compaction given up: {fault}"));
    }

    /// Whether frames count as committed before they are durable.
    pub(super) fn commits_early(&self) -> bool {
        self.log.options.sync != SyncPolicy::Always
    }
}
