//! The steps of a compaction that need the machine: what to compact, what of it lives, the states
//! that must be durable first, and what readers use afterwards. Everything slow is left to the
//! worker.

use super::worker::TaskDone;
use super::{LogCore, SegmentInfo};
use crate::compaction::{
    CompactionFault, CompactionInput, Live, Pace, Packing, RewriteJob, Rewritten, Shape, Survey,
    SurveyCursor, Surveyed, survey,
};
use crate::frame::pack;
use crate::machine::{Machine, Space};
use crate::options::{Compression, SyncPolicy};
use crate::rules::STATES_BEFORE_COMPACTION;
use crate::segment::SegmentId;
use crate::stats::add;
use crate::types::{Lsn, Timestamp};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often segments are looked over for something to compact, if messages died since.
const COMPACT_CHECK_NANOS: i64 = 1_000_000_000;
/// What keeps a log from compacting is said this often.
const SAY_AGAIN_NANOS: i64 = 60_000_000_000;

/// The same while the medium is full.
const FULL_CHECK_NANOS: i64 = 50_000_000;

/// A compaction must give back at least a segment divided by this.
const COMPACT_GAIN_SHARE: u64 = 64;

/// Live messages are rewritten for compression alone only if that gives back at least this part of
/// them.
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
    /// They are under another key than the one in use.
    Rekey,
}

/// How far the compaction under way has come.
#[derive(Default)]
pub enum Compaction {
    /// There is none.
    #[default]
    Idle,
    /// Contents of the segments are being read.
    Surveying(Purpose),
    /// The machine is being asked what lives.
    Judging(Box<LivenessReport>),
    /// States of the streams concerned are being logged.
    Logging {
        /// The contents found.
        liveness: Box<LivenessReport>,
        /// So many of its streams' states are logged.
        streams_done: usize,
    },
    /// They are not durable yet.
    AwaitingStates {
        /// The contents found.
        liveness: Box<LivenessReport>,
        /// Position of the last of them.
        lsn: Lsn,
    },
    /// The worker writes.
    Rewriting,
}

/// Contents of segments, and which of them live.
pub struct LivenessReport {
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
    /// When it was last said that none is possible, until one is: on a full medium it is tried many times a second.
    said_at: Option<Timestamp>,
}

impl CompactState {
    /// None under way, the first to be looked for at this time.
    pub fn new(check_at: Timestamp) -> Self {
        let (compaction, hurry) = (Compaction::Idle, Arc::default());
        Self { compaction, check_at, states_cost: 0, written_then: 0, hurry, said_at: None }
    }

    /// True if logged states wait to become durable.
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
        let state = &self.maintenance.compact;
        (self.log.segments.died && state.is_idle()).then_some(state.check_at)
    }

    pub(super) fn take_survey(&mut self, result: Result<Survey, CompactionFault>) {
        let purpose = match std::mem::take(&mut self.maintenance.compact.compaction) {
            Compaction::Surveying(purpose) => purpose,
            _ => Purpose::Reclaim,
        };
        match result {
            Ok(survey) => {
                let (cursor, live) = (SurveyCursor::default(), Live::default());
                let liveness = Box::new(LivenessReport { purpose, survey, cursor, live });
                self.maintenance.compact.compaction = Compaction::Judging(liveness);
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
        match std::mem::take(&mut self.maintenance.compact.compaction) {
            Compaction::Idle => self.choose_victims(),
            Compaction::Judging(liveness) => self.judge(liveness),
            Compaction::Logging { liveness, streams_done } => {
                self.log_some_states(liveness, streams_done)
            }
            Compaction::AwaitingStates { liveness, lsn } => {
                self.rewrite_once_durable(liveness, lsn)
            }
            waiting @ (Compaction::Surveying(_) | Compaction::Rewriting) => {
                self.maintenance.compact.compaction = waiting;
                false
            }
        }
    }

    fn choose_victims(&mut self) -> bool {
        let due = self.log.segments.died && self.log.now >= self.maintenance.compact.check_at;
        if !due || self.worker.is_busy() || self.closing {
            return false;
        }
        self.maintenance.compact.check_at = self.check_again();
        self.log.publish_segment_stats();
        let owes = self.owes_for_states();
        let victims = if owes { self.rekey_victims() } else { self.next_victims() };
        if owes && victims.is_none() {
            return false;
        }
        let Some((purpose, inputs)) = victims else {
            self.look_again_when_cold();
            return false;
        };
        self.maintenance.compact.compaction = Compaction::Surveying(purpose);
        let sample = purpose == Purpose::Cold && self.packs();
        let pace = Pace::new(self.hurry(), self.log.options.compact_bytes_per_s);
        self.worker.submit(Box::new(move || TaskDone::Survey(survey(inputs, sample, pace))));
        true
    }

    /// Chooses what to compact next. While space is short, only what gives some back.
    fn next_victims(&self) -> Option<(Purpose, Vec<CompactionInput>)> {
        let (options, segments) = (&self.log.options, &self.log.segments);
        let some = |purpose, inputs: Vec<CompactionInput>| {
            (!inputs.is_empty()).then_some((purpose, inputs))
        };
        let short = self.log.space != Space::Normal;
        let reclaim = some(Purpose::Reclaim, segments.inputs(options, self.least_gain(), short));
        if reclaim.is_some() || short {
            return reclaim;
        }
        if let Some(rekey) = self.rekey_victims() {
            return Some(rekey);
        }
        if self.tends_the_cold()
            && let Some(cold) = some(Purpose::Cold, segments.cold(options, self.log.now))
        {
            return Some(cold);
        }
        options.merge.then(|| some(Purpose::Merge, segments.small(options, self.log.now))).flatten()
    }

    /// The next segments under another key than the one in use. They come to an end, so no states that were
    /// logged keep them waiting.
    fn rekey_victims(&self) -> Option<(Purpose, Vec<CompactionInput>)> {
        let possible = !self.log.medium.in_memory && self.log.space == Space::Normal;
        let inputs = self.log.segments.under_another_key(&self.log.options);
        (possible && !inputs.is_empty()).then_some((Purpose::Rekey, inputs))
    }

    /// Nothing is to be done now. Without a death, only time can change that.
    fn look_again_when_cold(&mut self) {
        if !self.log.medium.in_memory && self.log.segments.is_under_another_key() {
            // It cannot be read now: what holds it is asked again.
            self.maintenance.compact.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
            return;
        }
        let cold_at = self.log.segments.cold_at(&self.log.options, self.log.now);
        match cold_at.filter(|_| self.tends_the_cold()) {
            Some(at) => {
                self.maintenance.compact.check_at = at.max(self.maintenance.compact.check_at);
            }
            None => self.log.segments.died = false,
        }
    }

    /// True if segments are rewritten although everything in them is alive.
    fn tends_the_cold(&self) -> bool {
        !self.log.medium.in_memory && (self.log.options.merge || self.packs())
    }

    /// True if anybody's messages are packed.
    fn packs(&self) -> bool {
        !self.log.medium.in_memory
            && (self.log.options.compression == Compression::Zstd || self.machine.compresses_any())
    }

    fn packing(&self, survey: &Survey) -> Packing {
        // Asked once: the machine looks at all its streams for it.
        match (self.packs(), self.log.options.compression) {
            (false, _) => Packing::Of(FxHashSet::default()),
            (true, Compression::Zstd) => Packing::All,
            (true, _) => {
                let streams = survey.streams.iter().copied();
                Packing::Of(streams.filter(|stream| self.machine.compresses(*stream)).collect())
            }
        }
    }

    /// True if the log has not grown enough since a compaction that logged large states.
    fn owes_for_states(&self) -> bool {
        let cost = self.maintenance.compact.states_cost;
        let grown =
            self.log.segments.written().saturating_sub(self.maintenance.compact.written_then);
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

    fn judge(&mut self, mut liveness: Box<LivenessReport>) -> bool {
        for _ in 0..JUDGED_PER_TURN {
            match liveness.survey.step(&mut liveness.cursor) {
                Surveyed::Message(stream, seq, weight) => {
                    if self.machine.is_live(stream, seq) {
                        liveness.live.add(stream, seq, weight);
                    }
                }
                Surveyed::Malformed => {
                    let fault = liveness.survey.malformed();
                    self.give_up(&fault);
                    return true;
                }
                Surveyed::End => {
                    self.conclude(liveness);
                    return true;
                }
            }
        }
        self.maintenance.compact.compaction = Compaction::Judging(liveness);
        true
    }

    /// Everything is judged: goes on, or leaves the segments as they are for good.
    fn conclude(&mut self, liveness: Box<LivenessReport>) {
        let ids = liveness.ids();
        if liveness.purpose == Purpose::Cold && !self.is_worth_it(&liveness) {
            self.log.segments.settle(&ids);
            return;
        }
        self.log.segments.watch(&ids);
        self.maintenance.compact.compaction = Compaction::Logging { liveness, streams_done: 0 };
    }

    /// True if cold segments are worth rewriting: what lives in them would lie together better, or
    /// take less space.
    fn is_worth_it(&self, liveness: &LivenessReport) -> bool {
        let live = &liveness.live;
        if live.is_empty() || self.log.options.merge && liveness.is_scattered() {
            return true;
        }
        let packing = self.packing(&liveness.survey);
        let packable =
            live.iter().filter(|(id, _)| packing.wants(*id)).map(|(_, of)| of.bytes).sum::<u64>();
        let packed = packable.saturating_mul(liveness.survey.packed_percent) / 100;
        let gain = packable.saturating_sub(packed);
        pack::pays(packable, packed)
            && gain >= self.least_gain().max(live.bytes() / COLD_GAIN_SHARE)
    }

    fn log_some_states(&mut self, liveness: Box<LivenessReport>, done: usize) -> bool {
        let streams = liveness.survey.streams.len();
        let end = (done + STATES_PER_TURN.max(streams.div_ceil(STATES_TURNS))).min(streams);
        if done == 0 {
            self.log.state_bytes = 0;
        }
        let streams = &liveness.survey.streams[done..end];
        if let Err(error) = self.machine.log_states(streams, &mut self.log) {
            add(&self.log.stats.states_refused, 1);
            self.say_sometimes(&format!("compaction put off: {error}"));
            if self.log.space == Space::Normal {
                self.maintenance.compact.check_at =
                    self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
            }
            return false;
        }
        self.maintenance.compact.states_cost = self.log.state_bytes;
        self.maintenance.compact.written_then = self.log.segments.written();
        self.maintenance.compact.compaction = if end < liveness.survey.streams.len() {
            Compaction::Logging { liveness, streams_done: end }
        } else {
            self.log.frame.awaited |= !self.log.frame.is_empty();
            let newest = self.log.frame.lsn.0 - u64::from(self.log.frame.is_empty());
            Compaction::AwaitingStates { liveness, lsn: Lsn(newest) }
        };
        true
    }

    fn rewrite_once_durable(&mut self, liveness: Box<LivenessReport>, lsn: Lsn) -> bool {
        let waits = !self.are_vouched_for(lsn)
            || self.worker.is_busy()
            || self.maintenance.delays_compaction();
        let inputs = liveness.survey.inputs.iter().map(|input| input.data_end).sum();
        if waits || self.ask_for_checkpoint(lsn, inputs) {
            self.maintenance.compact.compaction = Compaction::AwaitingStates { liveness, lsn };
            return !waits;
        }
        let LivenessReport { purpose, survey, live, .. } = *liveness;
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
        self.maintenance.compact.compaction = Compaction::Rewriting;
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
        if self.log.space == Space::Normal && self.worker.has_thread() {
            Arc::clone(&self.maintenance.compact.hurry)
        } else {
            Arc::new(AtomicBool::new(true))
        }
    }

    /// A compaction under way is to end soon.
    pub(super) fn hurry_up(&self) {
        self.maintenance.compact.hurry.store(true, Ordering::Relaxed);
    }

    /// True if states up to `lsn` can be relied upon: durable, and with a durable frame behind them
    /// that says so. Otherwise damage to theirs would pass for a torn tail, and take with it what
    /// is needed to replay without the records that compaction drops.
    fn are_vouched_for(&self, lsn: Lsn) -> bool {
        if self.log.medium.in_memory {
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
        self.maintenance.compact.compaction = Compaction::Idle;
        let deaths = self.log.segments.stop_watching();
        self.replace_places(rewritten);
        let mut freed = 0;
        for input in &rewritten.survey.inputs {
            self.log.segments.remove(input.segment.id());
            self.log.blocks.forget(input.segment.id());
            self.log.read_backoffs.forget(input.segment.id());
            freed += input.data_end;
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
        add(&self.log.stats.compacted_segments, rewritten.survey.inputs.len() as u64);
        add(&self.log.stats.reclaimed_bytes, freed);
        self.log.publish_segment_stats();
        self.log.full_since = None;
        self.maintenance.compact.said_at = None;
        self.maintenance.compact.check_at = self.check_again();
        self.log.segments.died = true;
    }

    fn replace_places(&mut self, rewritten: &Rewritten) {
        let old: Vec<_> = rewritten.survey.inputs.iter().map(|v| v.segment.id()).collect();
        let new = rewritten.places();
        for stream in &rewritten.survey.streams {
            let places = new.get(stream).map_or(&[][..], Vec::as_slice);
            self.log.index.replace(*stream, &old, places);
        }
    }

    fn give_up(&mut self, fault: &CompactionFault) {
        self.maintenance.compact.compaction = Compaction::Idle;
        let _ = self.log.segments.stop_watching();
        self.maintenance.compact.check_at = self.log.now.plus_nanos(10 * COMPACT_CHECK_NANOS);
        if let CompactionFault::Damaged { segment, .. } = fault {
            add(&self.log.stats.damaged, 1);
            self.log.segments.spare(*segment);
        }
        self.say_sometimes(&format!("compaction given up: {fault}"));
    }

    fn say_sometimes(&mut self, text: &str) {
        let said_at = &mut self.maintenance.compact.said_at;
        if said_at.is_none_or(|at| self.log.now >= at.plus_nanos(SAY_AGAIN_NANOS)) {
            *said_at = Some(self.log.now);
            self.log.options.report.say(text);
        }
    }

    /// True if frames count as committed before they are durable.
    pub(super) fn commits_early(&self) -> bool {
        self.log.options.sync != SyncPolicy::Always
    }
}

impl LivenessReport {
    fn ids(&self) -> Vec<SegmentId> {
        self.survey.inputs.iter().map(|input| input.segment.id()).collect()
    }

    /// True if the segments consist of many small parts, or of many streams.
    fn is_scattered(&self) -> bool {
        let (mut frames, mut bytes) = (0, 0);
        for input in &self.survey.inputs {
            // Segments that were not compacted: positions count frames.
            frames += input.end.0.saturating_sub(input.segment.header.base.0) + 1;
            bytes += input.data_end;
        }
        let largest = self.live.iter().map(|(_, of)| of.bytes).max().unwrap_or(0);
        bytes / frames.max(1) < LARGE_PART_BYTES
            || largest.saturating_mul(100) < self.live.bytes().saturating_mul(ONE_STREAM_PERCENT)
    }
}
