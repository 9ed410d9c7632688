//! A log that keeps frames as lists of records in memory.

use bytes::Bytes;
use nuthatch_log::{
    AppendError, Appended, LogAccess, Lsn, Read, RecordKind, RecordRef, Seq, Space, StoredMessage,
    StreamId, Timestamp, Urgency,
};
use std::collections::{BTreeMap, BTreeSet};

/// A record that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) kind: RecordKind,
    pub(super) stream: StreamId,
    pub(super) seq: Seq,
    pub(super) timestamp: Timestamp,
    pub(super) subject: Bytes,
    pub(super) headers: Bytes,
    pub(super) body: Bytes,
}

impl Owned {
    pub(super) fn new(record: &RecordRef<'_>) -> Self {
        Self {
            kind: record.kind,
            stream: record.stream,
            seq: record.seq,
            timestamp: record.timestamp,
            subject: Bytes::copy_from_slice(record.subject),
            headers: Bytes::copy_from_slice(record.headers),
            body: Bytes::copy_from_slice(record.body),
        }
    }

    pub(super) fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            kind: self.kind,
            stream: self.stream,
            seq: self.seq,
            timestamp: self.timestamp,
            subject: &self.subject,
            headers: &self.headers,
            body: &self.body,
        }
    }
}

/// What the log is after a run.
#[derive(Clone, Default)]
pub(super) struct FakeLog {
    pub(super) frames: Vec<Vec<Owned>>,
    pub(super) open: Vec<Owned>,
    /// Full frames that wait to be committed, one at a time, before the open one.
    pub(super) sealed: Vec<Vec<Owned>>,
    /// A frame is full with this many records; 0: never.
    pub(super) frame_records: usize,
    pub(super) now: i64,
    entropy: u64,
    pub(super) messages: BTreeMap<(StreamId, Seq), Owned>,
    pub(super) dead: BTreeSet<(StreamId, Seq)>,
    /// Reads of these answer "pending" until loaded.
    pub(super) cold: BTreeSet<(StreamId, Seq)>,
    pub(super) refuse: Option<AppendError>,
    /// The reserve is gone as well: nothing is taken.
    pub(super) is_exhausted: bool,
    pub(super) awaited: bool,
    /// A snapshot and how many records it covers.
    pub(super) checkpoint: Option<(usize, Vec<u8>)>,
    /// What the newest compaction kept of the messages before it.
    pub(super) kept: Option<BTreeSet<(StreamId, Seq)>>,
}

impl FakeLog {
    /// An empty log at this time.
    pub(super) fn at(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The log does not have this message any more, whatever the stream says.
    pub(super) fn lose(&mut self, stream: StreamId, seq: u64) {
        self.messages.remove(&(stream, Seq(seq))).expect("was there");
    }

    pub(super) fn record_count(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }
}

impl LogAccess for FakeLog {
    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn entropy(&mut self) -> u64 {
        self.entropy = self.entropy.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.entropy
    }

    fn append(
        &mut self,
        record: &RecordRef<'_>,
        urgency: Urgency,
        privileged: bool,
    ) -> Result<Appended, AppendError> {
        if self.is_exhausted {
            return Err(AppendError::Full { needed_bytes: 1, available_bytes: 0 });
        }
        if let Some(error) = self.refuse
            && (!privileged || error == AppendError::Failed)
        {
            return Err(error);
        }
        self.awaited |= urgency == Urgency::Awaited;
        if self.frame_records > 0 && self.open.len() >= self.frame_records {
            self.sealed.push(std::mem::take(&mut self.open));
        }
        self.open.push(Owned::new(record));
        Ok(Appended { lsn: Lsn((self.frames.len() + self.sealed.len()) as u64 + 1) })
    }

    fn flush_soon(&mut self) {
        self.awaited |= !self.open.is_empty();
    }

    fn committed(&self) -> Lsn {
        Lsn(self.frames.len() as u64)
    }

    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        if self.cold.contains(&(stream, seq)) {
            return Read::Pending;
        }
        match self.messages.get(&(stream, seq)) {
            Some(owned) => {
                Read::Ready(StoredMessage { record: owned.as_ref(), owner: &owned.body })
            }
            None => Read::Missing,
        }
    }

    fn dead(&mut self, stream: StreamId, seq: Seq, _weight: usize) {
        assert!(self.dead.insert((stream, seq)), "{stream} {seq} died twice");
    }

    fn space(&self) -> Space {
        Space::Normal
    }
}
