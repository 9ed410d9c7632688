//! State machine for a log that is opened only to see whether it can be: it does nothing.

use nuthatch_log::{
    IndexedMessage, LogAccess, Lsn, Machine, RecordRef, Seq, SnapshotError, StatesError, StreamId,
    Timestamp,
};

/// A machine that accepts every record and keeps no state.
pub struct Rehearsal;

impl Machine for Rehearsal {
    type Event = ();

    fn step<L: LogAccess>(&mut self, (): (), _log: &mut L) {}

    fn committed<L: LogAccess>(&mut self, _lsn: Lsn, _log: &mut L) {}

    fn loaded<L: LogAccess>(&mut self, _stream: StreamId, _log: &mut L) {}

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn tick<L: LogAccess>(&mut self, _log: &mut L) {}

    fn turn_end(&mut self) {}

    fn before_seal<L: LogAccess>(&mut self, _log: &mut L) {}

    fn failed(&mut self, _reason: &str) {}

    fn restore(&mut self, _snapshot: &[u8]) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn snapshot(&self, _out: &mut Vec<u8>) {}

    fn apply_state(&mut self, _record: &RecordRef<'_>) {}

    fn is_gone(&self, _stream: StreamId) -> bool {
        false
    }

    fn reindex(&mut self, _message: &IndexedMessage<'_>) {}

    fn apply(&mut self, _record: &RecordRef<'_>) {}

    fn recovered<L: LogAccess>(&mut self, _log: &mut L) {}

    /// Nothing is compacted away for it.
    fn is_live(&self, _stream: StreamId, _seq: Seq) -> bool {
        true
    }

    fn log_states<L: LogAccess>(
        &mut self,
        _streams: &[StreamId],
        _log: &mut L,
    ) -> Result<(), StatesError> {
        unreachable!("a log that is only looked at compacts nothing")
    }

    fn is_news(&self, _: &RecordRef<'_>) -> bool {
        false
    }

    fn live_weight(&self, _: StreamId, _: Seq, _: Seq) -> u64 {
        0
    }
}
