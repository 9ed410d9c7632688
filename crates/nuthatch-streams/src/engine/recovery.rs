//! Recovery of an engine from its log: snapshot, states, surviving messages, the records after
//! them.
//!
//! A record that cannot be understood is counted: the log has checked its bytes, so it was written
//! by a newer version. The server refuses to start then. Until it has, nothing counts as dead and no
//! state is written, so that what was not understood is not taken for deleted.

use super::Engine;
use super::migration::MigrationState;
use super::stream_slot::StreamSlot;
use crate::consumer::{Consumer, StateError};
use crate::records::{
    Advance, BatchBegin, DecodeError, Delete, FieldReader, LogState, MoveOut, Purge, StreamRecord,
    put_bytes, put_u32,
};
use crate::rules::DROP_UNFINISHED_RESTORE;
use crate::sink::Sink;
use crate::stream::{Provenance, Stream, When, is_restoring};
use nuthatch_log::{
    IndexedMessage, LogAccess, RecordKind, RecordRef, Seq, SnapshotError, StatesError, StreamId,
};
use nuthatch_protocol::js::RetentionPolicy;

impl From<StateError> for DecodeError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Version { version, known } => Self::Version { version, known },
            StateError::Truncated | StateError::Damaged { .. } | StateError::Config { .. } => {
                Self::Damaged { what: "consumer" }
            }
        }
    }
}

/// Version of the snapshot's layout.
pub const SNAPSHOT_VERSION: u8 = 1;

impl<S: Sink> StreamSlot<S> {
    pub(super) fn encode_state(&self, out: &mut Vec<u8>) {
        if let MigrationState::Settled(state) = &self.migration {
            return out.extend_from_slice(state);
        }
        let encoded: Vec<Vec<u8>> = self
            .consumers
            .iter()
            .map(|consumer| {
                let mut bytes = Vec::new();
                consumer.encode(&mut bytes);
                bytes
            })
            .collect();
        self.stream.encode_state(encoded.iter().map(Vec::as_slice), out);
    }
}

impl<S: Sink> Engine<S> {
    /// Every stream with the number of its consumers, in no order.
    pub(crate) fn each_stream(&self) -> impl Iterator<Item = (&Stream, usize)> {
        self.slots.values().map(|slot| (&slot.stream, slot.consumers.len()))
    }

    /// Records that recovery did not understand.
    #[must_use]
    pub const fn unreadable_records(&self) -> u64 {
        self.unreadable_records
    }

    fn log_state(&self) -> LogState {
        let mut live: Vec<StreamId> =
            self.slots.values().filter(|s| !s.deleting).map(|s| s.stream.id()).collect();
        live.sort_unstable();
        LogState { next_id: self.next_id, live }
    }

    pub(super) fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.push(SNAPSHOT_VERSION);
        let state = self.log_state();
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        put_bytes(out, &bytes);
        put_u32(out, state.live.len() as u32);
        for id in state.live {
            // One that the list names and the snapshot leaves out would be gone after a restart.
            let slot = self.slots.get(&id).expect("it was listed a moment ago");
            bytes.clear();
            slot.encode_state(&mut bytes);
            put_u32(out, id.0);
            put_bytes(out, &bytes);
        }
    }

    pub(super) fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.forget_all();
        self.read_snapshot(snapshot).map_err(|error| {
            self.forget_all();
            let is_later = matches!(error, DecodeError::Version { .. });
            SnapshotError { reason: error.to_string(), is_later }
        })
    }

    fn forget_all(&mut self) {
        self.slots.clear();
        self.recovering.clear();
        self.next_id = StreamId(1);
    }

    fn read_snapshot(&mut self, snapshot: &[u8]) -> Result<(), DecodeError> {
        let mut reader = FieldReader::versioned(snapshot, SNAPSHOT_VERSION)?;
        self.next_id = LogState::decode(reader.bytes()?)?.next_id;
        for _ in 0..reader.count(8)? {
            let id = StreamId(reader.u32()?);
            self.adopt_state(id, reader.bytes()?)?;
        }
        Ok(())
    }

    /// A stream as its newest state tells it, without messages.
    fn adopt_state(&mut self, id: StreamId, body: &[u8]) -> Result<(), DecodeError> {
        let snapshot = Stream::decode_state(id, body, self.config.hash_seed)?;
        let mut slot = StreamSlot::new(snapshot.stream, &self.config.domain);
        for bytes in snapshot.consumers {
            slot.consumers.insert(Consumer::decode(bytes)?);
        }
        self.next_id = self.next_id.max(StreamId(id.0.saturating_add(1)));
        self.slots.insert(id, Box::new(slot));
        self.recovering.insert(id, snapshot.recovering);
        Ok(())
    }

    pub(super) fn replay_state(&mut self, record: &RecordRef<'_>) {
        match record.kind {
            RecordKind::StreamState => {
                let adopted = self.adopt_state(record.stream, record.body);
                self.count_unreadable(adopted.is_ok());
            }
            RecordKind::LogState => match LogState::decode(record.body) {
                Ok(state) => self.adopt_log_state(&state),
                Err(_) => self.count_unreadable(false),
            },
            _ => self.replay(record),
        }
    }

    /// Streams that existed then and are not listed are gone; those with larger ids came later.
    fn adopt_log_state(&mut self, state: &LogState) {
        let is_there = |id: &StreamId| *id >= state.next_id || state.live.binary_search(id).is_ok();
        self.slots.retain(|id, _| is_there(&id));
        self.recovering.retain(|id, _| is_there(id));
        self.next_id = self.next_id.max(state.next_id);
        self.newest_log_state = Some(state.clone());
    }

    /// True if a stream existed before the newest `LogState` and was gone by then.
    pub(super) fn was_gone(&self, id: StreamId) -> bool {
        let gone = |state: &LogState| id < state.next_id && state.live.binary_search(&id).is_err();
        self.newest_log_state.as_ref().is_some_and(gone)
    }

    const fn count_unreadable(&mut self, is_ok: bool) {
        if !is_ok {
            self.unreadable_records += 1;
        }
    }

    pub(super) fn reindex_message(&mut self, message: &IndexedMessage<'_>) {
        if let Some(slot) = self.slots.get_mut(&message.stream)
            && let Some(recovering) = self.recovering.get(&message.stream)
        {
            slot.stream.reindex(message, recovering);
        }
    }

    pub(super) fn replay(&mut self, record: &RecordRef<'_>) {
        if let Some(recovering) = self.recovering.remove(&record.stream)
            && let Some(slot) = self.slots.get_mut(&record.stream)
        {
            slot.stream.reindexed(&recovering);
        }
        if !matches!(record.kind, RecordKind::Message | RecordKind::Advance)
            && let Some(slot) = self.slots.get_mut(&record.stream)
        {
            slot.stream.end_replayed_batch();
        }
        let understood = match record.kind {
            RecordKind::Message => {
                if let Some(slot) = self.slots.get_mut(&record.stream) {
                    slot.stream.apply_message(record);
                }
                Ok(())
            }
            RecordKind::StreamCreate => self.replay_create(record),
            RecordKind::StreamDelete => {
                self.slots.remove(&record.stream);
                Ok(())
            }
            RecordKind::StreamState | RecordKind::LogState => {
                self.replay_late_state(record);
                Ok(())
            }
            _ => self.replay_change(record),
        };
        self.count_unreadable(understood.is_ok());
    }

    /// A state that follows records which were applied already says nothing new, except that
    /// sequences and ids only grow.
    fn replay_late_state(&mut self, record: &RecordRef<'_>) {
        if record.kind == RecordKind::LogState {
            if let Ok(state) = LogState::decode(record.body) {
                self.next_id = self.next_id.max(state.next_id);
            }
        } else if !self.slots.contains_key(&record.stream) {
            let adopted = self.adopt_state(record.stream, record.body);
            self.count_unreadable(adopted.is_ok());
        }
    }

    fn replay_create(&mut self, record: &RecordRef<'_>) -> Result<(), DecodeError> {
        let StreamRecord { account, config, .. } = StreamRecord::decode(record.body)?;
        let id = record.stream;
        let stream =
            Stream::new(id, account, Box::new(config), record.timestamp, self.config.hash_seed);
        self.next_id = self.next_id.max(StreamId(id.0.saturating_add(1)));
        self.slots.insert(id, Box::new(StreamSlot::new(stream, &self.config.domain)));
        Ok(())
    }

    /// A record that changes an existing stream.
    fn replay_change(&mut self, record: &RecordRef<'_>) -> Result<(), DecodeError> {
        let Some(slot) = self.slots.get_mut(&record.stream) else { return Ok(()) };
        match record.kind {
            RecordKind::Delete => {
                for (first, last) in Delete::decode(record.body)?.ranges {
                    slot.stream.apply_delete(first, last);
                }
            }
            RecordKind::Purge => {
                let request = Purge::decode(record.body)?;
                if slot.stream.purges_past_end(&request) {
                    slot.stream.purge_past_end(request.seq);
                } else {
                    slot.stream.purge(&request, When::Replayed);
                }
            }
            RecordKind::Expire => slot.stream.apply_expiry(record.seq.0),
            RecordKind::Advance => {
                slot.stream.apply_advance(record, &Advance::decode(record.body)?);
            }
            RecordKind::BatchBegin => {
                slot.stream.begin_replayed_batch(record, BatchBegin::decode(record.body)?);
            }
            RecordKind::StreamUpdate => {
                slot.replay_update(StreamRecord::decode(record.body)?);
                slot.rename(&self.config.domain);
            }
            RecordKind::MoveOut => {
                let provenance = slot.stream.provenance().clone();
                slot.stream
                    .set_provenance(Provenance { to: MoveOut::decode(record.body)?, ..provenance });
            }
            _ => slot.replay_consumer(record)?,
        }
        Ok(())
    }

    pub(super) fn finish_recovery<L: LogAccess>(&mut self, log: &mut L) {
        self.newest_log_state = None;
        for (id, recovering) in std::mem::take(&mut self.recovering) {
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.stream.reindexed(&recovering);
            }
        }
        let mut ids: Vec<StreamId> = self.slots.keys().collect();
        ids.sort_unstable();
        for id in ids {
            let slot = self.slots.get_mut(&id).expect("it was listed a moment ago");
            if slot.stream.provenance().arriving {
                slot.migration = MigrationState::Arriving;
            }
            slot.stream.end_replayed_batch();
            slot.stream.commit_all();
            slot.stream.set_releases_logged();
            slot.stream.set_has_consumers(!slot.consumers.is_empty());
            self.budget.settle(slot.stream.account(), slot.stream.account_use());
            if is_restoring(&slot.stream.config().name) && DROP_UNFINISHED_RESTORE.holds() {
                self.drop_unfinished_restore(id, log);
                continue;
            }
            self.deadlines.schedule_stream(slot);
            self.wake_consumers(id, log);
            self.resume_sweep(id, log);
        }
        self.end_step(log);
    }

    pub(super) fn wake_consumers<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.slots.get(&id) else { return };
        let config = slot.stream.shared_config();
        for index in slot.consumers.indexes() {
            let key = super::consumers::ConsumerKey { stream: id, index };
            self.watch_deliver_subject(key);
            self.call(key, log, |consumer, env| consumer.recovered(&config, env));
            self.pump_later(key);
        }
    }

    pub(super) fn write_states<L: LogAccess>(
        &mut self,
        streams: &[StreamId],
        log: &mut L,
    ) -> Result<(), StatesError> {
        if self.unreadable_records > 0 {
            return Err(StatesError::Unreadable { records: self.unreadable_records });
        }
        let mut body = Vec::new();
        for &id in streams {
            let Some(slot) = self.slots.get_mut(&id).filter(|slot| !slot.deleting) else {
                continue;
            };
            body.clear();
            slot.encode_state(&mut body);
            let last = Seq(slot.stream.assigned_totals().last_seq);
            let name = slot.stream.config().name.clone();
            append_state(RecordKind::StreamState, id, last, name.as_bytes(), &body, log)?;
        }
        body.clear();
        self.log_state().encode(&mut body);
        append_state(RecordKind::LogState, StreamId::LOG, Seq(0), b"", &body, log)
    }
}

fn append_state<L: LogAccess>(
    kind: RecordKind,
    stream: StreamId,
    seq: Seq,
    subject: &[u8],
    body: &[u8],
    log: &mut L,
) -> Result<(), StatesError> {
    let state = RecordRef { kind, stream, seq, timestamp: log.now(), subject, headers: b"", body };
    log.append_state(&state).map(drop).map_err(|error| StatesError::Append { stream, error })
}

impl<S: Sink> StreamSlot<S> {
    fn replay_consumer(&mut self, record: &RecordRef<'_>) -> Result<(), DecodeError> {
        let name = std::str::from_utf8(record.subject)
            .map_err(|_| DecodeError::Damaged { what: "consumer name" })?;
        match record.kind {
            RecordKind::ConsumerCreate => {
                if self.consumers.find(name).is_some() {
                    // With other filters, or from another place on, it may need less.
                    self.stream.sweep_later();
                }
                self.consumers.insert(Consumer::decode(record.body)?);
            }
            RecordKind::ConsumerDelete => {
                if let Some(index) = self.consumers.find(name) {
                    self.consumers.remove(index);
                    if record.body.is_empty() {
                        self.drop_unneeded();
                    } else {
                        self.stream.sweep_later();
                    }
                }
            }
            RecordKind::ConsumerState => {
                if let Some(index) = self.consumers.find(name) {
                    self.replay_progress(index, record.body)?;
                }
            }
            // `MoveIn` is in the format and was never written: a state tells it.
            _ => {}
        }
        Ok(())
    }

    /// Adopts a configuration: limits bite.
    fn replay_update(&mut self, update: StreamRecord) {
        let had_interest = self.stream.limits().retention == RetentionPolicy::Interest;
        self.stream.update_config(Box::new(update.config), When::Replayed);
        if had_interest || self.consumers.is_empty() {
            return;
        }
        if update.drops_are_told {
            self.stream.sweep_later();
        } else {
            self.drop_unneeded();
        }
    }

    /// Interest retention: drops every message that no consumer needs (any more). For records that
    /// come without deletes that tell this.
    fn drop_unneeded(&mut self) {
        if self.stream.limits().retention != RetentionPolicy::Interest {
            return;
        }
        let mut deferred = Vec::new();
        self.stream.for_each_held(&mut |seq, _| deferred.push(seq));
        for seq in deferred {
            let subject = self.stream.held_subject(seq).expect("it was held a moment ago");
            let stream = &self.stream;
            let needed =
                self.consumers.iter_mut().any(|consumer| consumer.needs(stream, seq, subject));
            if !needed {
                self.stream.drop_message(seq.0, When::Replayed);
            }
        }
    }

    /// Messages that the consumer released with this record leave the stream, unless another one
    /// needs them.
    fn replay_progress(&mut self, index: u32, body: &[u8]) -> Result<(), StateError> {
        let slot = self.consumers.get_mut(index).expect("it was found by name");
        let retention = self.stream.limits().retention;
        if retention == RetentionPolicy::Limits {
            return slot.consumer.apply_state(body);
        }
        let mut released = Vec::new();
        slot.consumer.apply_state_releasing(body, &mut released)?;
        for range in released {
            let mut at = self.stream.next_kept(*range.start());
            while let Some(seq) = at.filter(|seq| range.contains(&seq.0)) {
                if !self.is_needed(seq, index) {
                    self.stream.drop_message(seq.0, When::Replayed);
                }
                at = self.stream.next_kept(seq.0 + 1);
            }
        }
        Ok(())
    }

    /// True if a message that consumer `index` may have let go stays.
    fn is_needed(&mut self, seq: Seq, index: u32) -> bool {
        let subject = self.stream.held_subject(seq).expect("a message that is kept is held");
        let stream = &self.stream;
        if stream.limits().retention == RetentionPolicy::Interest {
            return self.consumers.iter_mut().any(|other| other.needs(stream, seq, subject));
        }
        self.consumers.get_mut(index).is_none_or(|slot| {
            !slot.consumer.wants(stream.subject_name(subject))
                || slot.consumer.needs(stream, seq, subject)
        })
    }
}
