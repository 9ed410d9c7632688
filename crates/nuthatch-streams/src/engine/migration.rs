//! A stream that migrates from one log to another, seen from the two engines.
//!
//! The new engine holds a copy that nobody else knows of ([`Op::Arrive`]); messages come by
//! [`Op::Mirror`] while the old engine goes on serving. Then the old one holds everything back and
//! tells the stream's state ([`Op::Leave`]), the new one makes that state durable ([`Op::Settle`]):
//! from that frame on the new log counts. What the old engine keeps in memory (the index, consumers
//! with their waiting pulls, reads, open batches, what was held back) is handed over as it is:
//! nothing is read or built anew. What grows with the stream is one look at each message on either
//! side, for the count of what is dead in the logs' segments.
//!
//! Nothing here decides in which order these steps come, or what a restart makes of them: see
//! [`crate::migration`].

use super::Engine;
use super::consumers::ConsumerKey;
use super::deferred::DeferredEvent;
use super::outputs::Done;
use super::pending::OpOrInfo;
use super::stream_slot::StreamSlot;
use crate::event::HandOff;
use crate::op::{Forgotten, Op, OpOutcome, Respond};
use crate::records::MoveOut;
use crate::rules::{FORGETS_WHO_WAITS, LEAVE_AFTER_COMMIT, SETTLE_WHOLE};
use crate::sink::{AccountId, Sink};
use crate::stream::{Compared, Provenance, Recovering, Stream, StreamLocation, refusal};
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, StreamId, Timestamp, Urgency};
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use std::collections::VecDeque;
use std::sync::Arc;

/// State of a stream in a migration between two logs.
#[derive(Default)]
pub(super) enum MigrationState {
    /// It lives here.
    #[default]
    Here,
    /// Its messages are being copied here.
    Arriving,
    /// This state of it is in the log, or about to be: it lives here, and waits for what the old
    /// engine hands over.
    Settled(Vec<u8>),
    /// It is about to leave.
    OutboundStream(Box<OutboundStream>),
    /// Whether it lives here is not known yet.
    Undecided {
        /// What is sent to it is refused: that is not known for a while already.
        refuses: bool,
    },
}

/// State of a stream that is about to leave this log.
pub(super) struct OutboundStream {
    /// Home and configuration in the new log.
    provenance: Provenance,
    config: Arc<StreamConfig>,
    /// The frame before which nothing is told, and who is.
    waits: Option<(Lsn, Respond)>,
}

impl OutboundStream {
    /// True if whoever asked for it to leave has heard its state.
    pub(super) const fn is_told(&self) -> bool {
        self.waits.is_none()
    }
}

/// A copy that is being compared with the state that is to take over, in parts: the log's other
/// streams go on between them.
pub(super) struct Settling {
    id: StreamId,
    state: Vec<u8>,
    told: Box<Recovering>,
    /// The next sequence to look at.
    next: u64,
    respond: Respond,
}

/// Copies that are being compared, in the order of their turns.
#[derive(Default)]
pub(super) struct Settlements {
    queue: VecDeque<Settling>,
    /// When the next part is due.
    at: Option<Timestamp>,
}

impl Settlements {
    /// When the next part is due.
    pub(super) const fn next_at(&self) -> Option<Timestamp> {
        self.at
    }

    /// A copy is to be compared, from now on.
    fn add(&mut self, settling: Settling, now: Timestamp) {
        self.queue.push_back(settling);
        self.at = Some(now);
    }

    /// The copy whose turn it is, if it is time; the others follow at once.
    fn take_due(&mut self, now: Timestamp) -> Option<Settling> {
        self.at.take_if(|at| *at <= now)?;
        let due = self.queue.pop_front();
        self.at = (!self.queue.is_empty()).then_some(now);
        due
    }

    /// The log has failed: copies that are being compared do not take over.
    pub(super) fn refuse(&mut self, error: &JsError) {
        for settling in self.queue.drain(..) {
            refuse(settling.respond, error.clone());
        }
    }
}

impl MigrationState {
    /// True if what is sent to the stream waits.
    pub(super) const fn holds(&self) -> bool {
        matches!(self, Self::Settled(_) | Self::OutboundStream(_) | Self::Undecided { .. })
    }

    /// True if questions wait as well.
    pub(super) const fn holds_questions(&self) -> bool {
        matches!(self, Self::Settled(_) | Self::Undecided { .. })
    }

    /// True if the stream may go on here, and does not yet.
    const fn waits_to_stay(&self) -> bool {
        matches!(self, Self::OutboundStream(_) | Self::Undecided { .. })
    }
}

/// In-memory state handed from engine to engine.
struct HandOffState<S: Sink> {
    slot: Box<StreamSlot<S>>,
    deferred: Vec<DeferredEvent<S::Peer>>,
}

/// Configuration of an arriving copy: without limits. Which messages live is told by the state at
/// the end.
fn unlimited(config: &StreamConfig) -> StreamConfig {
    StreamConfig { name: config.name.clone(), storage: config.storage, ..StreamConfig::default() }
}

impl<S: Sink> Engine<S> {
    /// See [`Op::Arrive`](crate::Op::Arrive).
    fn arrive<L: LogAccess>(
        &mut self,
        id: StreamId,
        account: AccountId,
        config: &StreamConfig,
        (from, created): (StreamLocation, Time),
        log: &mut L,
    ) -> Done {
        if !self.streams.is_fresh(id) {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        let seed = self.streams.hash_seed();
        let config = Box::new(unlimited(config));
        let mut stream = Stream::new(id, account, config, Timestamp(created.0), seed);
        stream.set_provenance(Provenance::arriving(from));
        let mut body = Vec::new();
        stream.encode_state(std::iter::empty(), &mut body);
        let lsn = append_state(&stream, &body, log)?;
        self.streams.add(stream);
        self.streams.migrate(id, MigrationState::Arriving);
        self.streams.changed(id, lsn);
        Ok((Some(lsn), OpOutcome::Done))
    }

    /// See [`Op::Leave`](crate::Op::Leave).
    pub(super) fn leave<L: LogAccess>(
        &mut self,
        id: StreamId,
        (here, to): (String, StreamLocation),
        config: Box<StreamConfig>,
        respond: Respond,
        log: &mut L,
    ) {
        let lsn = match self.log_leave(id, &to, log) {
            Ok(lsn) => lsn,
            Err(error) => return respond(Err(error)),
        };
        let slot = self.streams.get_mut(id).expect("its move was logged a moment ago");
        slot.stream.set_provenance(Provenance { to: Some(to), ..slot.stream.provenance().clone() });
        let provenance = Provenance::arrived(StreamLocation { log: here, stream: id });
        let outbound =
            OutboundStream { provenance, config: Arc::from(config), waits: Some((lsn, respond)) };
        self.streams.migrate(id, MigrationState::OutboundStream(Box::new(outbound)));
        self.leaving.push(id);
        self.streams.changed(id, lsn);
        if !LEAVE_AFTER_COMMIT.holds() {
            self.tell_leavers(log.committed(), log);
        }
    }

    /// Everything of the stream that is not in the log yet, and where it is about to go.
    fn log_leave<L: LogAccess>(
        &mut self,
        id: StreamId,
        to: &StreamLocation,
        log: &mut L,
    ) -> Result<Lsn, JsError> {
        self.out.check_log()?;
        self.streams.expire(id, log);
        let slot = match self.streams.get_mut(id) {
            Some(slot) if !slot.deleting && matches!(slot.migration, MigrationState::Here) => slot,
            _ => return Err(JsError::STREAM_NOT_FOUND),
        };
        slot.log_progress(log).map_err(refusal)?;
        append_move(&slot.stream, Some(to), log)
    }

    /// Frames up to `lsn` have committed: who waits to hear that a stream can leave is told.
    pub(super) fn tell_leavers<L: LogAccess>(&mut self, lsn: Lsn, log: &mut L) {
        let mut waiting = std::mem::take(&mut self.leaving);
        waiting.retain(|&id| {
            let Some(slot) = self.streams.get_mut(id) else { return false };
            let uncommitted = slot.stream.contents().uncommitted();
            let MigrationState::OutboundStream(leaving) = &mut slot.migration else { return false };
            let Some((at, _)) = &leaving.waits else { return false };
            let is_early = *at > lsn || uncommitted.is_some_and(|last| last > log.committed());
            if is_early && LEAVE_AFTER_COMMIT.holds() {
                return true;
            }
            let Some((_, respond)) = leaving.waits.take() else { return false };
            respond(Ok(slot.left()));
            false
        });
        self.leaving.append(&mut waiting);
    }

    /// See [`Op::Stay`](crate::Op::Stay).
    fn stay<L: LogAccess>(
        &mut self,
        id: StreamId,
        refused: Option<StreamLocation>,
        log: &mut L,
    ) -> Done {
        let mut lsn = None;
        let slot = self.streams.get_mut(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        let was_going = slot.migration.waits_to_stay();
        if let Some(copy) = &refused
            && was_going
            && !slot.leaves_for(copy.stream)
        {
            // Whether the copy that it leaves for has taken over may be unknown: until a start has looked, nothing
            // goes on here, and where it was going stays written down.
            return Err(JsError::STREAM_MOVE_IN_PROGRESS);
        }
        if let Some(copy) = refused {
            lsn = Some(append_move(&slot.stream, Some(&copy), log)?);
            slot.stream
                .set_provenance(Provenance { to: Some(copy), ..slot.stream.provenance().clone() });
        }
        if let Some(lsn) = lsn {
            self.streams.changed(id, lsn);
        }
        if was_going {
            self.go_on(id, log);
            self.release_deferred(log);
        }
        Ok((lsn, OpOutcome::Done))
    }

    /// See [`Op::Probe`](crate::Op::Probe).
    fn probe<L: LogAccess>(&mut self, id: StreamId, log: &mut L) -> Done {
        let slot = match self.streams.get(id) {
            Some(slot) if slot.may_take_over() => slot,
            _ => return Err(JsError::STREAM_NOT_FOUND),
        };
        // It goes nowhere: that is known, and takes a frame as good as any other.
        let lsn = append_move(&slot.stream, None, log)?;
        self.streams.changed(id, lsn);
        Ok((Some(lsn), OpOutcome::Done))
    }

    /// See [`Op::Settle`](crate::Op::Settle).
    pub(super) fn settle<L: LogAccess>(
        &mut self,
        id: StreamId,
        state: Vec<u8>,
        respond: Respond,
        log: &mut L,
    ) {
        if let Err(error) = self.out.check_log() {
            return refuse(respond, error);
        }
        if !self.streams.get(id).is_some_and(StreamSlot::may_take_over) {
            return refuse(respond, JsError::STREAM_NOT_FOUND);
        }
        let told = Stream::decode_state(id, &state, 0).map(|told| Box::new(told.recovering));
        match told {
            Ok(told) => {
                let settling = Settling { id, state, told, next: 0, respond };
                self.settling.add(settling, log.now());
            }
            Err(error) => {
                let why = format!("the state handed over: {error}");
                return refuse(respond, JsError::STREAM_STORE_FAILED.with_err(why));
            }
        }
        self.run_settling(log);
    }

    /// Goes on with comparing the copy that has waited longest, if it is time: one part.
    pub(super) fn run_settling<L: LogAccess>(&mut self, log: &mut L) {
        let Some(mut settling) = self.settling.take_due(log.now()) else { return };
        let slot = self.streams.get(settling.id);
        let copy = slot.filter(|slot| slot.may_take_over());
        let compared =
            copy.map(|slot| slot.stream.contents().compare_with(&settling.told, settling.next));
        match compared {
            None => refuse(settling.respond, JsError::STREAM_NOT_FOUND),
            Some(Compared::UpTo(next)) => {
                settling.next = next;
                self.settling.add(settling, log.now());
            }
            Some(Compared::Lacks(first, last)) if SETTLE_WHOLE.holds() => {
                let why = format!("the copy lacks messages from {first} to {last}");
                refuse(settling.respond, JsError::STREAM_STORE_FAILED.with_err(why));
            }
            Some(_) => self.settle_whole(settling, log),
        }
    }

    /// The copy is whole: from the frame with its state on it counts.
    fn settle_whole<L: LogAccess>(&mut self, settling: Settling, log: &mut L) {
        let Settling { id, state, respond, .. } = settling;
        let slot = self.streams.get_mut(id).expect("the copy was compared a moment ago");
        let lsn = match append_state(&slot.stream, &state, log) {
            Ok(lsn) => lsn,
            Err(error) => return refuse(respond, error),
        };
        self.streams.migrate(id, MigrationState::Settled(state));
        self.streams.changed(id, lsn);
        let outcome = OpOrInfo::Ready(Box::new(Ok(OpOutcome::Done)));
        self.out.await_commit(lsn, respond, outcome);
    }

    /// See [`Op::Forget`](crate::Op::Forget).
    fn forget<L: LogAccess>(&mut self, id: StreamId, what: Forgotten, log: &mut L) -> Done {
        let slot = self.streams.get(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        match what {
            Forgotten::Copy if !matches!(slot.migration, MigrationState::Arriving) => {
                return Err(JsError::STREAM_STORE_FAILED.with_err("the stream has moved here"));
            }
            // It was decided about by now, or goes to another copy.
            Forgotten::LeftFor(copy)
                if FORGETS_WHO_WAITS.holds()
                    && !(slot.migration.waits_to_stay() && slot.leaves_for(copy)) =>
            {
                return Err(JsError::STREAM_MOVE_IN_PROGRESS);
            }
            _ => {}
        }
        let lsn = append_delete(&slot.stream, log)?;
        let was_held = slot.migration.holds();
        drop(self.take_slot(id, log));
        if was_held {
            // What waited is answered that the stream is not here.
            self.release_deferred(log);
        }
        Ok((Some(lsn), OpOutcome::Done))
    }

    /// Operations of a move that have an outcome at once.
    pub(super) fn migration_op<L: LogAccess>(&mut self, op: Op, log: &mut L) -> Done {
        match op {
            Op::Arrive { id, account, config, from, created } => {
                self.arrive(id, account, &config, (from, created), log)
            }
            Op::Stay { id, refused } => self.stay(id, refused, log),
            Op::Probe { id } => self.probe(id, log),
            Op::Forget { id, what } => self.forget(id, what, log),
            Op::RefuseCopy { id, account, name, log: here } => {
                self.refuse_copy(id, (account, &name), &here, log)
            }
            Op::GoesTo { id } => self.goes_to(id, log),
            Op::Hold { id, refuses } => self.hold(id, refuses, log),
            other => panic!("no such operation: {other:?}"),
        }
    }

    /// See [`Event::Depart`](crate::Event::Depart).
    pub(super) fn depart<L: LogAccess>(
        &mut self,
        id: StreamId,
        forgotten: Respond,
        log: &mut L,
    ) -> Option<HandOff> {
        let slot = match self.streams.get(id) {
            Some(slot) if matches!(slot.migration, MigrationState::OutboundStream(_)) => slot,
            _ => {
                forgotten(Err(JsError::STREAM_NOT_FOUND));
                return None;
            }
        };
        // Without the record the next start finds the stream in both logs, and deletes it here.
        let logged = append_delete(&slot.stream, log);
        self.out.finish(logged.map(|lsn| (Some(lsn), OpOutcome::Done)), forgotten);
        let deferred = self.deferred.take_of(id);
        let slot = self.take_slot(id, log)?;
        Some(HandOff(Box::new(HandOffState { slot, deferred })))
    }

    /// Takes a stream out; nothing of it counts here any more.
    fn take_slot<L: LogAccess>(&mut self, id: StreamId, log: &mut L) -> Option<Box<StreamSlot<S>>> {
        for index in self.streams.get(id)?.consumers.indexes() {
            self.dispatch.unwatch(ConsumerKey { stream: id, index }, &self.streams);
        }
        let slot = self.streams.remove(id)?;
        slot.stream.contents().for_each_held(&mut |seq, weight| log.dead(id, seq, weight));
        Some(slot)
    }

    /// See [`Event::Install`](crate::Event::Install).
    pub(super) fn install<L: LogAccess>(&mut self, id: StreamId, hand_off: HandOff, log: &mut L) {
        let belongings = hand_off.0.downcast::<HandOffState<S>>();
        let belongings =
            belongings.unwrap_or_else(|_| panic!("engines of one server are of one kind"));
        let HandOffState { mut slot, deferred } = *belongings;
        let mut copy = self.streams.remove(id).expect("the copy that took over is here");
        assert!(
            matches!(copy.migration, MigrationState::Settled(_)),
            "what is handed over has a state here"
        );
        copy.stream.contents().for_each_held(&mut |seq, weight| {
            if !slot.stream.contents().holds(seq) {
                log.dead(id, seq, weight);
            }
        });
        let MigrationState::OutboundStream(leaving) = std::mem::take(&mut slot.migration) else {
            panic!("what was handed over was about to leave");
        };
        slot.stream.rehome(id, leaving.provenance);
        slot.stream.swap_config(leaving.config);
        slot.unpack();
        slot.migration = std::mem::take(&mut copy.migration);
        self.streams.insert(slot);
        self.go_on(id, log);
        for waiting in deferred {
            self.run_held(waiting.moved_to(id), log);
        }
        self.release_deferred(log);
    }

    /// A stream whose traffic waited is served (again).
    fn go_on<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        self.streams.migrate(id, MigrationState::Here);
        let (slot, ledger) = self.streams.entry(id).expect("a stream that goes on is there");
        ledger.settle(slot);
        ledger.schedule(slot);
        self.sweeps.resume(slot, log.now());
        self.dispatch.resume(id, &mut self.streams, &mut self.out, log);
        self.retry_reads(id, log);
    }
}

impl<S: Sink> StreamSlot<S> {
    /// True if it is a copy that nobody has refused.
    fn may_take_over(&self) -> bool {
        matches!(self.migration, MigrationState::Arriving) && self.stream.provenance().to.is_none()
    }

    /// True if what is sent to it is refused, since nobody knows whether it lives here.
    pub(super) const fn refuses(&self) -> bool {
        matches!(self.migration, MigrationState::Undecided { refuses: true })
    }

    /// True if this copy is the one that the stream is about to go on in.
    fn leaves_for(&self, copy: StreamId) -> bool {
        self.stream.provenance().to.as_ref().is_some_and(|to| to.stream == copy)
    }

    /// The answer to [`Op::Leave`](crate::Op::Leave): the state as the new log begins with it.
    fn left(&mut self) -> OpOutcome {
        let last_seq = self.stream.contents().assigned_totals().last_seq;
        let MigrationState::OutboundStream(leaving) = std::mem::take(&mut self.migration) else {
            panic!("only a stream that is about to leave is asked for its state");
        };
        let mut leaving = leaving;
        let here = self.stream.set_provenance(leaving.provenance.clone());
        leaving.config = self.stream.swap_config(leaving.config);
        let mut state = Vec::new();
        self.encode_state(&mut state);
        leaving.config = self.stream.swap_config(leaving.config);
        self.stream.set_provenance(here);
        self.migration = MigrationState::OutboundStream(leaving);
        OpOutcome::Left { state, last_seq }
    }

    /// After the journey: nothing of the old engine's lists and frames holds here.
    fn unpack(&mut self) {
        self.committed_in = Lsn(0);
        self.scheduled = None;
        self.is_freed = false;
        self.schedules_wait = false;
        self.consumers.unpack();
    }
}

/// A copy does not take over.
fn refuse(respond: Respond, error: JsError) {
    respond(Ok(OpOutcome::Unsettled(error)));
}

/// Says where a stream is about to go, or that it stays. Returns the frame.
pub(super) fn append_move<L: LogAccess>(
    stream: &Stream,
    to: Option<&StreamLocation>,
    log: &mut L,
) -> Result<Lsn, JsError> {
    let mut body = Vec::new();
    MoveOut::encode(to, &mut body);
    append(RecordKind::MoveOut, stream, &body, log)
}

fn append_delete<L: LogAccess>(stream: &Stream, log: &mut L) -> Result<Lsn, JsError> {
    append(RecordKind::StreamDelete, stream, b"", log)
}

fn append<L: LogAccess>(
    kind: RecordKind,
    stream: &Stream,
    body: &[u8],
    log: &mut L,
) -> Result<Lsn, JsError> {
    let record = record(kind, stream, body, log.now());
    Ok(log.append(&record, Urgency::Awaited, true).map_err(refusal)?.lsn)
}

fn append_state<L: LogAccess>(stream: &Stream, body: &[u8], log: &mut L) -> Result<Lsn, JsError> {
    let record = record(RecordKind::StreamState, stream, body, log.now());
    let lsn = log.append_state(&record).map_err(refusal)?.lsn;
    log.flush_soon();
    Ok(lsn)
}

fn record<'a>(
    kind: RecordKind,
    stream: &'a Stream,
    body: &'a [u8],
    timestamp: Timestamp,
) -> RecordRef<'a> {
    RecordRef {
        kind,
        stream: stream.id(),
        seq: Seq(stream.contents().assigned_totals().last_seq),
        timestamp,
        subject: stream.config().name.as_bytes(),
        headers: b"",
        body,
    }
}
