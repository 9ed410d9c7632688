//! Recovery of an engine from its log: snapshot, states, surviving messages, the records after
//! them.
//!
//! A record that cannot be understood is counted: the log has checked its bytes, so it was written
//! by a newer version. The server refuses to start then. Until it has, nothing counts as dead and no
//! state is written, so that what was not understood is not taken for deleted.

use super::Engine;
use super::migration::MigrationState;
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::consumer::{Consumer, StateError};
use crate::records::{
    Advance, BatchBegin, DecodeError, Delete, FieldReader, LogState, MoveOut, Purge, StreamRecord,
    WriterTerm, put_bytes, put_u32,
};
use crate::rules::DROP_UNFINISHED_RESTORE;
use crate::sink::Sink;
use crate::stream::{Provenance, Recovering, Stream, When, is_restoring};
use nuthatch_log::{
    IndexedMessage, LogAccess, RecordKind, RecordRef, Seq, SnapshotError, StatesError, StreamId,
};
use nuthatch_protocol::js::RetentionPolicy;
use rustc_hash::FxHashMap;

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

/// What a log that is being read has told so far.
#[derive(Default)]
pub(super) struct Recovery {
    /// The newest list of streams; only until the log has been read.
    newest_log_state: Option<LogState>,
    /// What decides which messages of a stream live, until all that its state speaks of were indexed.
    recovering: FxHashMap<StreamId, Recovering>,
    unreadable_records: u64,
}

impl Recovery {
    /// Records that were not understood.
    pub(super) const fn unreadable_records(&self) -> u64 {
        self.unreadable_records
    }

    /// Begins with a snapshot; without any streams if it is not understood.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn begin<S: Sink>(
        &mut self,
        snapshot: &[u8],
        streams: &mut Streams<S>,
    ) -> Result<(), SnapshotError> {
        self.recovering.clear();
        streams.clear();
        self.read_snapshot(snapshot, streams).map_err(|error| {
            self.recovering.clear();
            streams.clear();
            let is_later = matches!(error, DecodeError::Version { .. });
            SnapshotError { reason: error.to_string(), is_later }
        })
    }

    fn read_snapshot<S: Sink>(
        &mut self,
        snapshot: &[u8],
        streams: &mut Streams<S>,
    ) -> Result<(), DecodeError> {
        let mut reader = FieldReader::versioned(snapshot, SNAPSHOT_VERSION)?;
        streams.raise_next_id(LogState::decode(reader.bytes()?)?.next_id);
        for _ in 0..reader.count(8)? {
            let id = StreamId(reader.u32()?);
            self.adopt_state(id, reader.bytes()?, streams)?;
        }
        Ok(())
    }

    /// A stream as its newest state tells it, without messages.
    fn adopt_state<S: Sink>(
        &mut self,
        id: StreamId,
        body: &[u8],
        streams: &mut Streams<S>,
    ) -> Result<(), DecodeError> {
        let snapshot = Stream::decode_state(id, body, streams.hash_seed())?;
        let mut consumers = Vec::with_capacity(snapshot.consumers.len());
        for bytes in snapshot.consumers {
            consumers.push(Consumer::decode(bytes)?);
        }
        let slot = streams.add(snapshot.stream);
        for consumer in consumers {
            slot.consumers.insert(consumer);
        }
        self.recovering.insert(id, snapshot.recovering);
        Ok(())
    }

    /// A record of the newest checkpoint: states come before the messages that they speak of.
    pub(super) fn replay_state<S: Sink>(
        &mut self,
        record: &RecordRef<'_>,
        streams: &mut Streams<S>,
    ) {
        match record.kind {
            RecordKind::StreamState => {
                let adopted = self.adopt_state(record.stream, record.body, streams);
                self.count_unreadable(adopted.is_ok());
            }
            RecordKind::LogState => match LogState::decode(record.body) {
                Ok(state) => self.adopt_log_state(state, streams),
                Err(_) => self.count_unreadable(false),
            },
            _ => self.replay(record, streams),
        }
    }

    /// Streams that existed then and are not listed are gone; those with larger ids came later.
    fn adopt_log_state<S: Sink>(&mut self, state: LogState, streams: &mut Streams<S>) {
        let is_there = |id: StreamId| id >= state.next_id || state.live.binary_search(&id).is_ok();
        streams.retain(is_there);
        self.recovering.retain(|id, _| is_there(*id));
        streams.raise_next_id(state.next_id);
        self.newest_log_state = Some(state);
    }

    /// True if a stream existed before the newest list of streams and was gone by then.
    pub(super) fn was_gone(&self, id: StreamId) -> bool {
        let gone = |state: &LogState| id < state.next_id && state.live.binary_search(&id).is_err();
        self.newest_log_state.as_ref().is_some_and(gone)
    }

    const fn count_unreadable(&mut self, is_ok: bool) {
        if !is_ok {
            self.unreadable_records += 1;
        }
    }

    /// A message that a state speaks of, if it lives.
    pub(super) fn reindex<S: Sink>(&self, message: &IndexedMessage<'_>, streams: &mut Streams<S>) {
        if let Some(slot) = streams.get_mut(message.stream)
            && let Some(recovering) = self.recovering.get(&message.stream)
        {
            slot.stream.reindex(message, recovering);
        }
    }

    /// A record after the newest states.
    pub(super) fn replay<S: Sink>(&mut self, record: &RecordRef<'_>, streams: &mut Streams<S>) {
        if let Some(recovering) = self.recovering.remove(&record.stream)
            && let Some(slot) = streams.get_mut(record.stream)
        {
            slot.stream.reindexed(&recovering);
        }
        if !matches!(record.kind, RecordKind::Message | RecordKind::Advance)
            && let Some(slot) = streams.get_mut(record.stream)
        {
            slot.stream.end_replayed_batch();
        }
        let understood = match record.kind {
            RecordKind::Message => {
                if let Some(slot) = streams.get_mut(record.stream) {
                    slot.stream.apply_message(record);
                }
                Ok(())
            }
            RecordKind::StreamCreate => replay_create(record, streams),
            RecordKind::StreamDelete => {
                streams.remove(record.stream);
                Ok(())
            }
            RecordKind::StreamState | RecordKind::LogState => {
                self.replay_late_state(record, streams);
                Ok(())
            }
            _ => match streams.get_mut(record.stream) {
                Some(slot) => slot.replay_change(record),
                None => Ok(()),
            },
        };
        self.count_unreadable(understood.is_ok());
    }

    /// A state that follows records which were applied already says nothing new, except that
    /// sequences and ids only grow.
    fn replay_late_state<S: Sink>(&mut self, record: &RecordRef<'_>, streams: &mut Streams<S>) {
        if record.kind == RecordKind::LogState {
            if let Ok(state) = LogState::decode(record.body) {
                streams.raise_next_id(state.next_id);
            }
        } else if streams.get(record.stream).is_none() {
            let adopted = self.adopt_state(record.stream, record.body, streams);
            self.count_unreadable(adopted.is_ok());
        }
    }

    /// A standby: all messages that the state of a stream speaks of were indexed, and somebody looks at them.
    pub(super) fn show<S: Sink>(&mut self, slot: &mut StreamSlot<S>) {
        if let Some(recovering) = self.recovering.remove(&slot.stream.id()) {
            slot.stream.reindexed(&recovering);
        }
        slot.stream.contents_mut().commit_all();
    }

    /// The log has been read: every message that a state speaks of was indexed, and everything that
    /// was read has committed.
    pub(super) fn finish<S: Sink>(&mut self, streams: &mut Streams<S>) {
        self.newest_log_state = None;
        for (id, recovering) in std::mem::take(&mut self.recovering) {
            if let Some(slot) = streams.get_mut(id) {
                slot.stream.reindexed(&recovering);
            }
        }
        for id in streams.ids() {
            let (slot, ledger) = streams.entry(id).expect("it was listed a moment ago");
            slot.stream.end_replayed_batch();
            slot.stream.contents_mut().commit_all();
            slot.stream.unwritten_mut().set_releases_logged();
            slot.stream.contents_mut().set_has_consumers(!slot.consumers.is_empty());
            ledger.settle(slot);
        }
    }
}

fn replay_create<S: Sink>(
    record: &RecordRef<'_>,
    streams: &mut Streams<S>,
) -> Result<(), DecodeError> {
    let StreamRecord { account, config, .. } = StreamRecord::decode(record.body)?;
    streams.create(record.stream, account, Box::new(config), record.timestamp);
    Ok(())
}

impl<S: Sink> Streams<S> {
    /// True if a state of a stream, or a part of one, says what no record before it does: the stream begins with a state where
    /// it was moved to, and ends its arrival with another one.
    pub(super) fn is_news(&self, record: &RecordRef<'_>) -> bool {
        if record.stream == StreamId::LOG {
            return false;
        }
        let Some(slot) = self.get(record.stream) else { return true };
        let still_arrives = || {
            // States of compactions say so again.
            let state = Stream::decode_state(record.stream, record.body, self.hash_seed());
            record.kind == RecordKind::StreamState
                && state.is_ok_and(|state| state.stream.provenance().arriving)
        };
        slot.stream.provenance().arriving && !still_arrives()
    }

    /// Writes everything that [`Recovery::begin`] needs.
    pub(super) fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.push(SNAPSHOT_VERSION);
        let state = self.log_state();
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        put_bytes(out, &bytes);
        put_u32(out, state.live.len() as u32);
        for id in state.live {
            // One that the list names and the snapshot leaves out would be gone after a restart.
            let slot = self.get(id).expect("it was listed a moment ago");
            bytes.clear();
            slot.encode_state(&mut bytes);
            put_u32(out, id.0);
            put_bytes(out, &bytes);
        }
    }

    /// Appends the states of these streams, and which streams there are.
    ///
    /// # Errors
    /// The log refuses one of them.
    pub(super) fn log_states<L: LogAccess>(
        &self,
        ids: &[StreamId],
        log: &mut L,
    ) -> Result<(), StatesError> {
        let mut body = Vec::new();
        for &id in ids {
            let Some(slot) = self.get(id).filter(|slot| !slot.deleting) else { continue };
            body.clear();
            slot.encode_state(&mut body);
            let last = Seq(slot.stream.contents().assigned_totals().last_seq);
            let name = slot.stream.config().name.as_bytes();
            append_state(RecordKind::StreamState, id, last, name, &body, log)?;
        }
        body.clear();
        self.log_state().encode(&mut body);
        append_state(RecordKind::LogState, StreamId::LOG, Seq(0), b"", &body, log)
    }
}

impl<S: Sink> Engine<S> {
    /// Every stream with the number of its consumers, in no order.
    pub(crate) fn each_stream(&self) -> impl Iterator<Item = (&Stream, usize)> {
        self.streams.iter().map(|slot| (&slot.stream, slot.consumers.len()))
    }

    /// Records that recovery did not understand.
    #[must_use]
    pub const fn unreadable_records(&self) -> u64 {
        self.recovery.unreadable_records()
    }

    pub(super) fn finish_recovery<L: LogAccess>(&mut self, log: &mut L) {
        self.recovery.finish(&mut self.streams);
        for id in self.streams.ids() {
            let slot = self.streams.get_mut(id).expect("it was listed a moment ago");
            let is_arriving = slot.stream.provenance().arriving;
            let is_unfinished = is_restoring(&slot.stream.config().name);
            if is_arriving {
                self.streams.migrate(id, MigrationState::Arriving);
            }
            if is_unfinished && DROP_UNFINISHED_RESTORE.holds() {
                self.drop_unfinished_restore(id, log);
                continue;
            }
            self.streams.schedule(id);
            self.dispatch.start(id, &mut self.streams, &mut self.out, log);
            let slot = self.streams.get_mut(id).expect("a stream that was replayed is there");
            slot.stream.contents_mut().note_change(log.committed());
            self.sweeps.recover(slot, log.now());
            if !is_arriving {
                // A log that takes nothing says so itself; then they are there until the next start.
                let _ = self.consumer_ops(log).forget_memory(id);
            }
        }
        self.dispatch.end_step(&mut self.streams, &mut self.out, log);
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
    /// Recovery: a record that changes the stream.
    fn replay_change(&mut self, record: &RecordRef<'_>) -> Result<(), DecodeError> {
        match record.kind {
            RecordKind::Delete => {
                for (first, last) in Delete::decode(record.body)?.ranges {
                    self.stream.contents_mut().apply_delete(first, last);
                }
            }
            RecordKind::Purge => {
                let request = Purge::decode(record.body)?;
                if self.stream.contents().purges_past_end(&request) {
                    self.stream.contents_mut().purge_past_end(request.seq);
                } else {
                    self.stream.contents_mut().purge(&request, When::Replayed);
                }
            }
            RecordKind::Expire => self.stream.apply_expiry(record.seq.0),
            RecordKind::Advance => {
                self.stream.apply_advance(record, &Advance::decode(record.body)?);
            }
            RecordKind::BatchBegin => {
                self.stream.begin_replayed_batch(record, BatchBegin::decode(record.body)?);
            }
            RecordKind::StreamUpdate => {
                self.replay_update(StreamRecord::decode(record.body)?);
                self.rename();
            }
            RecordKind::MoveOut => {
                let provenance = self.stream.provenance().clone();
                self.stream
                    .set_provenance(Provenance { to: MoveOut::decode(record.body)?, ..provenance });
            }
            RecordKind::WriterTerm => {
                self.stream.apply_writer_term(WriterTerm::decode(record.body)?);
            }
            _ => self.replay_consumer(record)?,
        }
        Ok(())
    }

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
        self.stream.contents().for_each_held(&mut |seq, _| deferred.push(seq));
        for seq in deferred {
            let subject =
                self.stream.contents().held_subject(seq).expect("it was held a moment ago");
            let stream = &self.stream;
            let needed = self
                .consumers
                .iter_mut()
                .any(|consumer| consumer.needs(stream.contents(), seq, subject));
            if !needed {
                self.stream.contents_mut().drop_message(seq.0, When::Replayed);
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
            let mut at = self.stream.contents().next_kept(*range.start());
            while let Some(seq) = at.filter(|seq| range.contains(&seq.0)) {
                if !self.is_needed(seq, index) {
                    self.stream.contents_mut().drop_message(seq.0, When::Replayed);
                }
                at = self.stream.contents().next_kept(seq.0 + 1);
            }
        }
        Ok(())
    }

    /// True if a message that consumer `index` may have let go stays.
    fn is_needed(&mut self, seq: Seq, index: u32) -> bool {
        let subject =
            self.stream.contents().held_subject(seq).expect("a message that is kept is held");
        let stream = &self.stream;
        if stream.limits().retention == RetentionPolicy::Interest {
            return self
                .consumers
                .iter_mut()
                .any(|other| other.needs(stream.contents(), seq, subject));
        }
        self.consumers.get_mut(index).is_none_or(|slot| {
            !slot.consumer.wants(stream.contents().subject_name(subject))
                || slot.consumer.needs(stream.contents(), seq, subject)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{AccountId, NullSink};
    use nuthatch_log::Timestamp;
    use nuthatch_protocol::js::StreamConfig;

    fn record<'a>(kind: RecordKind, stream: u32, body: &'a [u8]) -> RecordRef<'a> {
        RecordRef {
            kind,
            stream: StreamId(stream),
            seq: Seq(0),
            timestamp: Timestamp(1),
            subject: b"S",
            headers: b"",
            body,
        }
    }

    fn create(id: u32, recovery: &mut Recovery, streams: &mut Streams<NullSink>) {
        let config = StreamConfig { name: format!("S{id}"), ..StreamConfig::default() };
        let mut body = Vec::new();
        StreamRecord::encode(AccountId::GLOBAL, &config, &mut body);
        recovery.replay(&record(RecordKind::StreamCreate, id, &body), streams);
    }

    #[test]
    fn what_the_newest_list_leaves_out_is_gone_and_what_came_later_stays() {
        let (mut recovery, mut streams) = (Recovery::default(), Streams::empty());
        (1..=4).for_each(|id| create(id, &mut recovery, &mut streams));
        let mut body = Vec::new();
        LogState { next_id: StreamId(4), live: vec![StreamId(2)] }.encode(&mut body);
        recovery.replay_state(&record(RecordKind::LogState, 0, &body), &mut streams);
        assert_eq!(streams.ids(), [StreamId(2), StreamId(4)]);
        assert!(recovery.was_gone(StreamId(1)) && !recovery.was_gone(StreamId(2)));
        assert!(!recovery.was_gone(StreamId(4)), "the list does not speak of it");
        recovery.finish(&mut streams);
        assert!(!recovery.was_gone(StreamId(1)), "only while the log is read");
    }

    #[test]
    fn what_is_not_understood_is_counted_and_a_snapshot_leaves_nothing_half_read() {
        let (mut recovery, mut streams) = (Recovery::default(), Streams::empty());
        create(1, &mut recovery, &mut streams);
        recovery.replay(&record(RecordKind::StreamUpdate, 1, b"\xff"), &mut streams);
        assert_eq!(recovery.unreadable_records(), 1);
        let mut snapshot = Vec::new();
        streams.write_snapshot(&mut snapshot);
        streams.clear();
        assert_eq!(recovery.begin(&snapshot, &mut streams), Ok(()));
        assert_eq!(streams.ids(), [StreamId(1)]);
        snapshot.pop();
        assert!(recovery.begin(&snapshot, &mut streams).is_err());
        assert!(streams.ids().is_empty() && streams.is_fresh(StreamId(1)));
        snapshot[0] = SNAPSHOT_VERSION + 1;
        assert!(recovery.begin(&snapshot, &mut streams).is_err_and(|error| error.is_later));
    }
}
