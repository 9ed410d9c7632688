//! The steps of a compaction that need the machine: what to compact, what of it lives, the states
//! that must be durable first, and what readers use afterwards. Everything slow is left to the
//! worker.

use super::worker::TaskDone;
use super::{LogCore, SegmentInfo};
use crate::compaction::{
    CompactionFault, Live, Pace, Packing, RewriteJob, Rewritten, Shape, Survey, SurveyCursor,
    Surveyed, Victim, survey,
};
use crate::env::WriteMode;
use crate::frame::pack;
use crate::machine::{Machine, Space};
use crate::options::{Compression, SyncPolicy};
use crate::rules::STATES_BEFORE_COMPACTION;
use crate::segment::SegmentId;
use crate::stats::add;
use crate::types::{Lsn, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often segments are looked over for something to compact, if messages died since.
const COMPACT_CHECK_NANOS: i64 = 1_000_000_000;

/// The same while the medium is full.
const FULL_CHECK_NANOS: i64 = 50_000_000;

/// A compaction must give back at least a segment divided by this.
const COMPACT_GAIN_SHARE: u64 = 64;

/// What is alive is rewritten for compression's sake only if that gives back at least this part of it.
const COLD_GAIN_SHARE: u64 = 16;

/// After a compaction that logged large states the log must grow by this many times their bytes
/// before the next one: they are dead weight themselves, and compaction would feed on them for ever.
const COMPACT_STATES_FACTOR: u64 = 4;

/// Messages that the machine is asked about in one turn.
const JUDGED_PER_TURN: usize = 4096;

/// Streams whose states are logged in one turn.
const STATES_PER_TURN: usize = 256;

/// Turns that this takes at most: each also logs the log's state, which lists all streams.
const STATES_TURNS: usize = 16;

/// Frames of compacted segments are about this large before they are packed: what a reader of one
/// small stream among many has to read and unpack. Smaller ones would compress less.
const COMPACTED_FRAME_BYTES: usize = 128 * 1024;

/// Parts of at least this size are good as they are.
const LARGE_PART_BYTES: u64 = 4 << 20;

/// Streams of a segment lie together well enough if one of them has this share of it, in percent.
const ONE_STREAM_PERCENT: u64 = 90;

/// In a bucket, a compaction keeps this part of a segment in memory until it is stored.
const UNSTORED_SHARE: u64 = 16;

/// Why segments are compacted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Much in them is dead.
    Reclaim,
    /// They are cold, and may consist of many small parts or compress well.
    Cold,
    /// They are small ones, most of which earlier compactions made.
    Merge,
}

/// How far the compaction under way has come.
#[derive(Default)]
pub enum Compaction {
    /// There is none.
    #[default]
    Idle,
    /// What the segments hold is being read.
    Surveying(Purpose),
    /// The machine is being asked what lives.
    Judging(Box<Judgement>),
    /// States of the streams concerned are being logged.
    Logging {
        /// What was found.
        judgement: Box<Judgement>,
        /// So many of its streams' states are logged.
        streams_done: usize,
    },
    /// They are not durable yet.
    AwaitingStates {
        /// What was found.
        judgement: Box<Judgement>,
        /// Where the last of them is.
        lsn: Lsn,
    },
    /// The worker writes.
    Rewriting,
}

/// What segments hold, and what of that lives.
pub struct Judgement {
    purpose: Purpose,
    survey: Survey,
    cursor: SurveyCursor,
    live: Live,
}

/// The part of housekeeping that compaction is.
pub struct CompactState {
    /// How far it has come.
    pub compaction: Compaction,
    check_at: Timestamp,
    /// Bytes of the states that the last compaction logged.
    states_cost: u64,
    /// Bytes of the log when it did.
    written_then: u64,
    /// Set when the log is closed.
    hurry: Arc<AtomicBool>,
}

impl CompactState {
    /// None under way, the first to be looked for now.
    pub fn new(now: Timestamp) -> Self {
        let (compaction, hurry) = (Compaction::Idle, Arc::default());
        Self { compaction, check_at: now, states_cost: 0, written_then: 0, hurry }
    }

    /// Whether logged states wait to become durable.
    pub const fn wants_sync(&self) -> bool {
        matches!(self.compaction, Compaction::AwaitingStates { .. })
    }

    const fn is_idle(&self) -> bool {
        matches!(self.compaction, Compaction::Idle)
    }
}

impl<M: Machine> LogCore<M> {
    /// When segments want to be looked over although nothing else happens.
    pub(super) fn compaction_at(&self) -> Option<Timestamp> {
        let state = &self.tidy.compact;
        (self.log.segments.died && state.is_idle()).then_some(state.check_at)
    }

    pub(super) fn take_survey(&mut self, result: Result<Survey, CompactionFault>) {
        let purpose = match std::mem::take(&mut self.tidy.compact.compaction) {
            Compaction::Surveying(purpose) => purpose,
            _ => Purpose::Reclaim,
        };
        match result {
            Ok(survey) => {
                let (cursor, live) = (SurveyCursor::default(), Live::default());
                let judgement = Box::new(Judgement { purpose, survey, cursor, live });
                self.tidy.compact.compaction = Compaction::Judging(judgement);
            }
            Err(fault) => self.give_up(&fault),
        }
    }

    pub(super) fn take_rewritten(&mut self, result: Result<Rewritten, CompactionFault>) {
        match result {
            Ok(rewritten) => self.adopt(&rewritten),
            Err(fault) => self.give_up(&fault),
        }
    }

    pub(super) fn compaction_step(&mut self) -> bool {
        match std::mem::take(&mut self.tidy.compact.compaction) {
            Compaction::Idle => self.choose_victims(),
            Compaction::Judging(judgement) => self.judge(judgement),
            Compaction::Logging { judgement, streams_done } => {
                self.log_some_states(judgement, streams_done)
            }
            Compaction::AwaitingStates { judgement, lsn } => {
                self.rewrite_once_durable(judgement, lsn)
            }
            waiting @ (Compaction::Surveying(_) | Compaction::Rewriting) => {
                self.tidy.compact.compaction = waiting;
                false
            }
        }
    }

    fn choose_victims(&mut self) -> bool {
        let due = self.log.segments.died && self.log.now >= self.tidy.compact.check_at;
        if !due || self.worker.is_busy() || self.closing {
            return false;
        }
        self.tidy.compact.check_at = self.check_again();
        self.log.publish_segment_stats();
        if self.owes_for_states() {
            return false;
        }
        let Some((purpose, victims)) = self.next_victims() else {
            self.look_again_when_cold();
            return false;
        };
        self.tidy.compact.compaction = Compaction::Surveying(purpose);
        let sample = purpose == Purpose::Cold && self.packs();
        let pace = Pace::new(self.hurry(), self.log.options.compact_bytes_per_s);
        self.worker.submit(Box::new(move || TaskDone::Survey(survey(victims, sample, pace))));
        true
    }

    /// What to compact next. While space is short, only what gives some back.
    fn next_victims(&self) -> Option<(Purpose, Vec<Victim>)> {
        let (options, segments) = (&self.log.options, &self.log.segments);
        let some =
            |purpose, victims: Vec<Victim>| (!victims.is_empty()).then_some((purpose, victims));
        let short = self.log.space != Space::Normal;
        let reclaim = some(Purpose::Reclaim, segments.victims(options, self.least_gain(), short));
        if reclaim.is_some() || short {
            return reclaim;
        }
        if self.tends_the_cold()
            && let Some(cold) = some(Purpose::Cold, segments.cold(options, self.log.now))
        {
            return Some(cold);
        }
        options.merge.then(|| some(Purpose::Merge, segments.small(options, self.log.now))).flatten()
    }

    /// Nothing is to be done now. Without a death, only time can change that.
    fn look_again_when_cold(&mut self) {
        let cold_at = self.log.segments.cold_at(&self.log.options, self.log.now);
        match cold_at.filter(|_| self.tends_the_cold()) {
            Some(at) => {
                self.tidy.compact.check_at = at.max(self.tidy.compact.check_at);
            }
            None => self.log.segments.died = false,
        }
    }

    /// Whether segments are rewritten although everything in them is alive.
    fn tends_the_cold(&self) -> bool {
        self.log.mode != WriteMode::Memory && (self.log.options.merge || self.packs())
    }

    /// Whether anybody's messages are packed.
    fn packs(&self) -> bool {
        self.log.mode != WriteMode::Memory
            && (self.log.options.compression == Compression::Zstd || self.machine.compresses_any())
    }

    fn packing(&self, survey: &Survey) -> Packing {
        if self.packs() && self.log.options.compression == Compression::Zstd {
            return Packing::All;
        }
        let streams = survey.streams.iter().copied().filter(|_| self.packs());
        Packing::Of(streams.filter(|stream| self.machine.compresses(*stream)).collect())
    }

    /// Whether the log has not grown enough since a compaction that logged large states.
    fn owes_for_states(&self) -> bool {
        let cost = self.tidy.compact.states_cost;
        let grown = self.log.segments.written().saturating_sub(self.tidy.compact.written_then);
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
        for _ in 0..JUDGED_PER_TURN {
            match judgement.survey.step(&mut judgement.cursor) {
                Surveyed::Message(stream, seq, weight) => {
                    if self.machine.is_live(stream, seq) {
                        judgement.live.add(stream, seq, weight);
                    }
                }
                Surveyed::Malformed => {
                    let fault = judgement.survey.malformed();
                    self.give_up(&fault);
                    return true;
                }
                Surveyed::End => {
                    self.conclude(judgement);
                    return true;
                }
            }
        }
        self.tidy.compact.compaction = Compaction::Judging(judgement);
        true
    }

    /// Everything is judged: goes on, or leaves the segments as they are for good.
    fn conclude(&mut self, judgement: Box<Judgement>) {
        let ids = judgement.ids();
        if judgement.purpose == Purpose::Cold && !self.is_worth_it(&judgement) {
            self.log.segments.settle(&ids);
            return;
        }
        self.log.segments.watch(&ids);
        self.tidy.compact.compaction = Compaction::Logging { judgement, streams_done: 0 };
    }

    /// Whether cold segments are worth rewriting: what lives in them would lie together better, or
    /// take less space.
    fn is_worth_it(&self, judgement: &Judgement) -> bool {
        let live = &judgement.live;
        if live.is_empty() || self.log.options.merge && judgement.is_scattered() {
            return true;
        }
        let packing = self.packing(&judgement.survey);
        let packable =
            live.iter().filter(|(id, _)| packing.wants(*id)).map(|(_, of)| of.bytes).sum::<u64>();
        let packed = packable.saturating_mul(judgement.survey.packed_percent) / 100;
        let gain = packable.saturating_sub(packed);
        pack::pays(packable, packed)
            && gain >= self.least_gain().max(live.bytes() / COLD_GAIN_SHARE)
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
                self.tidy.compact.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
            }
            return false;
        }
        self.tidy.compact.states_cost = self.log.state_bytes;
        self.tidy.compact.written_then = self.log.segments.written();
        self.tidy.compact.compaction = if end < judgement.survey.streams.len() {
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
            self.tidy.compact.compaction = Compaction::AwaitingStates { judgement, lsn };
            return false;
        }
        let Judgement { purpose, survey, live, .. } = *judgement;
        let job = RewriteJob {
            store: Arc::clone(&self.log.store),
            packing: self.packing(&survey),
            survey,
            live,
            shape: self.shape(),
            spends_reserve: purpose == Purpose::Reclaim,
            salt: (self.log.entropy.next() >> 32) as u32,
            hurry: self.hurry(),
        };
        self.tidy.compact.compaction = Compaction::Rewriting;
        self.worker.submit(Box::new(move || TaskDone::Rewritten(Box::new(job.run()))));
        true
    }

    fn shape(&self) -> Shape {
        let options = &self.log.options;
        Shape {
            frame_bytes: options.frame_bytes.min(COMPACTED_FRAME_BYTES),
            block_bytes: options.block_bytes,
            own_bytes: options.own_segment_bytes,
            memory_bytes: options.compact_memory_bytes,
            unstored_bytes: options.segment_bytes / UNSTORED_SHARE,
            bytes_per_s: options.compact_bytes_per_s,
        }
    }

    /// Whether a compaction that starts now may not rest, or may not any more.
    fn hurry(&self) -> Arc<AtomicBool> {
        if self.log.space == Space::Normal && !self.worker.is_inline() {
            Arc::clone(&self.tidy.compact.hurry)
        } else {
            Arc::new(AtomicBool::new(true))
        }
    }

    /// A compaction under way is to end soon.
    pub(super) fn hurry_up(&self) {
        self.tidy.compact.hurry.store(true, Ordering::Relaxed);
    }

    /// Whether states up to `lsn` can be relied upon: durable, and with a durable frame behind them
    /// that says so. Otherwise damage to theirs would pass for a torn tail, and take with it what
    /// is needed to replay without the records that compaction drops.
    fn are_vouched_for(&self, lsn: Lsn) -> bool {
        if self.log.mode == WriteMode::Memory {
            return self.log.committed >= lsn;
        }
        if !STATES_BEFORE_COMPACTION.holds() {
            return true;
        }
        let needed = if self.commits_early() { lsn } else { lsn.next() };
        self.log.durable >= needed
    }

    /// Readers use the new segments from here on.
    fn adopt(&mut self, rewritten: &Rewritten) {
        self.tidy.compact.compaction = Compaction::Idle;
        let deaths = self.log.segments.stop_watching();
        self.replace_places(rewritten);
        let mut freed = 0;
        for victim in &rewritten.survey.victims {
            self.log.segments.remove(victim.segment.id());
            self.log.blocks.forget(victim.segment.id());
            self.log.troubled.forget(victim.segment.id());
            freed += victim.data_end;
        }
        for output in &rewritten.outputs {
            freed = freed.saturating_sub(output.data_end);
            let streams = output.footer.streams().iter();
            let died: u64 = streams.filter_map(|stream| deaths.get(&stream.stream)).sum();
            let fresh = SegmentInfo::new(Arc::clone(&output.segment), output.data_end, output.end);
            self.log.segments.insert_quietly(SegmentInfo {
                live: output.footer.weight().saturating_sub(died),
                sealed: true,
                ..fresh.compacted(&output.footer)
            });
        }
        add(&self.log.stats.compacted_segments, rewritten.survey.victims.len() as u64);
        add(&self.log.stats.reclaimed_bytes, freed);
        self.log.publish_segment_stats();
        self.log.full_since = None;
        self.tidy.compact.check_at = self.check_again();
        self.log.segments.died = true;
    }

    fn replace_places(&mut self, rewritten: &Rewritten) {
        let old: Vec<_> = rewritten.survey.victims.iter().map(|v| v.segment.id()).collect();
        let new = rewritten.places();
        for stream in &rewritten.survey.streams {
            let places = new.get(stream).map_or(&[][..], Vec::as_slice);
            self.log.index.replace(*stream, &old, places);
        }
    }

    fn give_up(&mut self, fault: &CompactionFault) {
        self.tidy.compact.compaction = Compaction::Idle;
        let _ = self.log.segments.stop_watching();
        self.tidy.compact.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
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

impl Judgement {
    fn ids(&self) -> Vec<SegmentId> {
        self.survey.victims.iter().map(|victim| victim.segment.id()).collect()
    }

    /// Whether the segments consist of many small parts, or of many streams.
    fn is_scattered(&self) -> bool {
        let (mut frames, mut bytes) = (0, 0);
        for victim in &self.survey.victims {
            // Segments that were not compacted: positions count frames.
            frames += victim.end.0.saturating_sub(victim.segment.header.base.0) + 1;
            bytes += victim.data_end;
        }
        let largest = self.live.iter().map(|(_, of)| of.bytes).max().unwrap_or(0);
        bytes / frames.max(1) < LARGE_PART_BYTES
            || largest.saturating_mul(100) < self.live.bytes().saturating_mul(ONE_STREAM_PERCENT)
    }
}
