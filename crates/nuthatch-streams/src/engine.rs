//! The machine that runs on a log: streams and consumers, driven by events and commits.
//!
//! One [`Engine`] owns the streams of one log. Publishes, acks, pulls and reads arrive in batches
//! per connection; management operations one by one. Everything that must not be told before it is
//! durable waits in one queue in the order in which it happened ([`pending`]), which also keeps the
//! order of answers per connection.
//!
//! The engine says what an event means; what it works with are objects with rules of their own: the
//! streams ([`registry`]) with what they share and what is due when ([`ledger`]), what leaves
//! ([`outputs`]), who calls consumers ([`dispatch`]), what waits for another state ([`deferred`]), and
//! what reads the log at a start ([`recovery`]).

mod advisory;
mod apart;
mod api;
mod batch_get;
mod batches;
mod caught_up;
mod consumer_ops;
mod consumers;
mod counters;
mod deadlines;
mod deferred;
mod details;
mod direct;
mod dispatch;
mod fast;
mod followed;
mod interest;
mod ledger;
mod migration;
mod missing;
mod outputs;
mod pending;
mod publish;
mod reads;
mod recovery;
mod registry;
mod replication;
mod restore;
mod schedules;
mod stream_slot;
mod streams;
#[cfg(test)]
mod tests;
mod transient;

use crate::budget::{
    AccountBounds, Budget, MSG_IDS_MAX_DEFAULT, SUBJECTS_MAX_DEFAULT, TABLE_BYTES_MAX_DEFAULT,
};
use crate::consumer::ConsumerLimits;
use crate::event::{ClientBatch, Event, Item};
use crate::sink::{AccountId, Sink};
pub(crate) use recovery::SNAPSHOT_VERSION;

pub use batches::BatchLimits;
use dispatch::Dispatcher;
pub use followed::{FollowedAnswer, FollowedGet, FollowedStep, FollowedStream};
use interest::Sweeps;
use ledger::Ledger;
use nuthatch_log::{
    IndexedMessage, LogAccess, Lsn, Machine, RecordRef, Seq, SnapshotError, StatesError, StreamId,
    Timestamp,
};
use nuthatch_protocol::js::StoreCompression;
use outputs::Outputs;
use pending::OpOrInfo;
use recovery::Recovery;
use registry::Streams;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Acknowledgements that may wait for commits by default: about 16 MiB at one run per message.
pub const PENDING_ACKS_MAX_DEFAULT: usize = 1 << 20;

/// Settings of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// JetStream domain; empty: none.
    pub domain: String,
    /// Distinct subjects over all streams; above it publishes to new ones are refused (10023).
    pub subjects_max: usize,
    /// Message ids in all duplicate windows; above it publishes with an id are refused (10023).
    pub msg_ids_max: usize,
    /// Bytes of all messages, as JetStream counts them; publishes above it are refused (10023).
    pub bytes_max: u64,
    /// Memory of what is known of each message, bytes; publishes above it are refused (10023).
    pub table_bytes_max: u64,
    /// Acknowledgements waiting for a commit; above it publishes are refused (10167).
    pub pending_acks_max: usize,
    /// Limits on consumers.
    pub consumers: ConsumerLimits,
    /// Limits on batches.
    pub batches: BatchLimits,
    /// Limits of accounts that have any.
    pub accounts: FxHashMap<AccountId, AccountBounds>,
    /// Keys the hashes of subjects against chosen collisions: random, drawn at every start.
    pub hash_seed: u64,
    /// Other nodes go on with the log: consumers whose state is in memory (`mem_storage`) are there then, too, since a node
    /// is not the end of that memory. Their state is logged as that of others. Else a start of the log is their end.
    pub memory_consumers_outlive: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            domain: String::new(),
            subjects_max: SUBJECTS_MAX_DEFAULT,
            msg_ids_max: MSG_IDS_MAX_DEFAULT,
            bytes_max: u64::MAX,
            table_bytes_max: TABLE_BYTES_MAX_DEFAULT,
            pending_acks_max: PENDING_ACKS_MAX_DEFAULT,
            consumers: ConsumerLimits::default(),
            batches: BatchLimits::default(),
            accounts: FxHashMap::default(),
            hash_seed: 0,
            memory_consumers_outlive: false,
        }
    }
}

/// Streams and consumers over one log.
pub struct Engine<S: Sink> {
    config: EngineConfig,
    out: Outputs<S>,
    streams: Streams<S>,
    recovery: Recovery,
    sweeps: Sweeps,
    dispatch: Dispatcher,
    /// Events that wait for purges past the end and for streams between two logs.
    deferred: deferred::DeferredEvents<S::Peer>,
    settling: migration::Settlements,
    /// Questions for details of streams, which are answered in parts.
    details: details::DetailQuestions,
    /// Those of them that are to leave once everything has committed.
    leaving: Vec<StreamId>,
    /// A standby that is read: its streams by name.
    names: Option<Box<followed::Names>>,
    scratch: Scratch,
}

/// Buffers that keep their memory between calls.
#[derive(Default)]
struct Scratch {
    /// A subject that the stream's transform made.
    subject: Vec<u8>,
    headers: Vec<u8>,
}

impl<S: Sink> Engine<S> {
    /// Adopts bounds of accounts before its log is opened: nothing was admitted under others.
    pub fn adopt_bounds(&mut self, bounds: FxHashMap<AccountId, AccountBounds>) {
        // Who is above them is told when more is asked for.
        let _ = self.streams.ledger_mut().set_bounds(bounds);
    }

    /// An engine without streams.
    pub fn new(mut config: EngineConfig, sink: S) -> Self {
        let (subjects_max, msg_ids_max) = (config.subjects_max, config.msg_ids_max);
        let (bytes_max, table_bytes_max) = (config.bytes_max, config.table_bytes_max);
        let mut budget = Budget::new(subjects_max, msg_ids_max, bytes_max, table_bytes_max);
        budget.set_bounds(std::mem::take(&mut config.accounts));
        let domain: Arc<str> = config.domain.as_str().into();
        let ledger = Ledger::new(budget, config.batches);
        let mut streams = Streams::new(Arc::clone(&domain), config.hash_seed, ledger);
        streams.set_outlive(config.memory_consumers_outlive);
        Self {
            out: Outputs::new(sink, domain),
            streams,
            config,
            recovery: Recovery::default(),
            sweeps: Sweeps::default(),
            dispatch: Dispatcher::default(),
            deferred: deferred::DeferredEvents::default(),
            settling: migration::Settlements::default(),
            details: details::DetailQuestions::default(),
            leaving: Vec::new(),
            names: None,
            scratch: Scratch::default(),
        }
    }

    /// Receives the outputs.
    pub const fn sink(&self) -> &S {
        self.out.sink()
    }

    /// Receives the outputs.
    pub const fn sink_mut(&mut self) -> &mut S {
        self.out.sink_mut()
    }

    /// Messages that streams hold and the log did not give when they were read, since the start.
    #[must_use]
    pub const fn missing_messages(&self) -> u64 {
        self.out.missing_messages()
    }

    fn batch<L: LogAccess>(&mut self, batch: ClientBatch<S::Peer>, log: &mut L) {
        let mut next = 0;
        while let Some(item) = batch.items.get(next) {
            if self.streams.any_held()
                && let Some(end) = self.hold_items(&batch, next)
            {
                next = end;
                continue;
            }
            next = match *item {
                Item::Publish(first) => self.publish_run(&batch, next, first.stream, log),
                Item::Ack(ack) => {
                    self.dispatch.ack(&batch, &ack, &mut self.streams, &mut self.out, log);
                    next + 1
                }
                Item::Pull(pull) => {
                    self.dispatch.pull(&batch, &pull, &mut self.streams, &mut self.out, log);
                    next + 1
                }
                Item::Flow(flow) => {
                    self.dispatch.flow(&batch, &flow, &mut self.streams, &mut self.out, log);
                    next + 1
                }
                Item::DirectGet(get) => {
                    self.direct_get(&batch, &get, log);
                    next + 1
                }
            };
        }
        self.out.keep(batch);
    }
    /// Tells everything that waited for frame `lsn`.
    pub(super) fn answer_pending<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) {
        while let Some((respond, outcome)) = self.out.next_committed(lsn, &self.streams) {
            match outcome {
                OpOrInfo::Ready(result) => respond(*result),
                OpOrInfo::StreamInfo(id, action) => {
                    self.answer_stream_info(id, action, respond, log);
                }
                OpOrInfo::Question(op) => self.run_op(*op, respond, log),
                OpOrInfo::Restored(id) => self.activate_restored(id, respond, log),
                OpOrInfo::StreamDeleted(id) => {
                    self.finish_delete(id, log);
                    respond(Ok(crate::op::OpOutcome::Done));
                }
            }
        }
    }

    /// The log failed: nothing is written any more, and nobody waits for it.
    pub(super) fn fail(&mut self, reason: &str) {
        self.out.fail(reason, &self.streams);
        self.streams.ledger_mut().fail();
        // What was held back was not written.
        let error = crate::stream::unavailable(reason);
        self.deferred.refuse(&error, &self.streams, &mut self.out);
        self.settling.refuse(&error);
        for slot in self.streams.iter_mut() {
            slot.reads.fail(&error, slot.stream.account(), self.out.sink_mut());
        }
        self.out.flush();
    }
}

impl<S: Sink> Machine for Engine<S> {
    type Event = Event<S::Peer>;

    fn step<L: LogAccess>(&mut self, event: Self::Event, log: &mut L) {
        match event {
            Event::Batch(batch) => self.batch(batch, log),
            Event::Op(op, respond) => {
                self.out.flush();
                self.op(op, respond, log);
            }
            Event::Interest(subject) => {
                self.dispatch.interest(subject.as_deref(), &mut self.streams, &mut self.out, log);
            }
            Event::EndPulls { why, told } => {
                self.dispatch.end_pulls(why, &mut self.streams, &mut self.out, log);
                self.out.flush();
                told();
            }
            Event::Writable => self.dispatch.wake_slow(&mut self.streams, &mut self.out, log),
            Event::Depart { id, respond, forgotten } => respond(self.depart(id, forgotten, log)),
            Event::Install { id, hand_off } => self.install(id, hand_off, log),
        }
        self.dispatch.end_step(&mut self.streams, &mut self.out, log);
    }

    fn committed<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) {
        let committed = self.streams.commit(lsn, log);
        self.answer_pending(lsn, log);
        self.dispatch.confirm(lsn, &mut self.streams, &mut self.out, log);
        if !self.deferred.is_empty() {
            self.release_deferred(log);
        }
        for (id, seen) in committed {
            if self.streams.get(id).is_some_and(|slot| slot.is_followed()) {
                self.republish(id, log);
                self.retry_reads(id, log);
                self.dispatch.wake_caught_up(id, seen, &mut self.streams, &mut self.out, log);
            }
        }
        if !self.leaving.is_empty() {
            self.tell_leavers(lsn, log);
        }
        self.dispatch.end_step(&mut self.streams, &mut self.out, log);
    }

    fn loaded<L: LogAccess>(&mut self, stream: StreamId, log: &mut L) {
        if !self.deferred.is_empty() {
            self.release_deferred(log);
        }
        self.resume_schedules(stream);
        self.retry_reads(stream, log);
        self.dispatch.wake_loading(stream, &mut self.streams, &mut self.out, log);
        self.dispatch.end_step(&mut self.streams, &mut self.out, log);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let parts = [self.sweeps.next_at(), self.settling.next_at(), self.details.next_at()];
        let due = [self.streams.ledger().next_deadline(), self.dispatch.log_at()];
        parts.into_iter().chain(due).flatten().min()
    }

    fn tick<L: LogAccess>(&mut self, log: &mut L) {
        self.run_deadlines(log);
        self.sweeps.run(&mut self.streams, log);
        self.run_settling(log);
        self.details.run(&self.streams, &mut self.out, log.now());
        self.dispatch.wake_full(&mut self.streams, &mut self.out, log);
        let is_due = self.dispatch.log_at().is_some_and(|at| at <= log.now());
        if is_due || self.streams.ledger().is_log_due(log.now()) {
            self.dispatch.log_progress(&mut self.streams, &mut self.out, log);
            log.flush_soon();
        }
        self.dispatch.end_step(&mut self.streams, &mut self.out, log);
    }

    fn turn_end(&mut self) {
        self.out.flush();
    }

    fn before_seal<L: LogAccess>(&mut self, log: &mut L) {
        self.dispatch.log_progress(&mut self.streams, &mut self.out, log);
        self.streams.log_expiries(log);
    }

    fn failed(&mut self, reason: &str) {
        self.fail(reason);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.recovery.begin(snapshot, &mut self.streams)
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.streams.write_snapshot(out);
    }

    fn is_gone(&self, stream: StreamId) -> bool {
        self.recovery.was_gone(stream)
    }

    fn apply_state(&mut self, record: &RecordRef<'_>) {
        self.recovery.replay_state(record, &mut self.streams);
    }

    fn reindex(&mut self, message: &IndexedMessage<'_>) {
        self.recovery.reindex(message, &mut self.streams);
    }

    fn apply(&mut self, record: &RecordRef<'_>) {
        self.unname(record);
        self.recovery.replay(record, &mut self.streams);
        self.note_replayed(record);
    }

    fn unreadable_records(&self) -> u64 {
        self.recovery.unreadable_records()
    }

    fn recovered<L: LogAccess>(&mut self, log: &mut L) {
        self.names = None;
        self.finish_recovery(log);
    }

    fn is_live(&self, stream: StreamId, seq: Seq) -> bool {
        self.recovery.unreadable_records() > 0
            || self.streams.get(stream).is_some_and(|slot| slot.stream.contents().holds(seq))
    }

    fn compresses(&self, stream: StreamId) -> bool {
        let slot = self.streams.get(stream);
        slot.is_some_and(|slot| slot.stream.config().compression == StoreCompression::S2)
    }

    fn compresses_any(&self) -> bool {
        self.streams.iter().any(|slot| slot.stream.config().compression == StoreCompression::S2)
    }

    fn log_states<L: LogAccess>(
        &mut self,
        streams: &[StreamId],
        log: &mut L,
    ) -> Result<(), StatesError> {
        match self.recovery.unreadable_records() {
            0 => self.streams.log_states(streams, log),
            records => Err(StatesError::Unreadable { records }),
        }
    }

    fn is_news(&self, record: &RecordRef<'_>) -> bool {
        self.streams.is_news(record)
    }

    fn pass_time(&mut self, at: Timestamp) {
        self.streams.iter_mut().for_each(|slot| slot.stream.sweep_ids(at));
    }

    fn live_weight(&self, stream: StreamId, first: Seq, last: Seq) -> u64 {
        let slot = self.streams.get(stream);
        slot.map_or(0, |slot| slot.stream.contents().messages().weight_between(first.0, last.0))
    }
}
