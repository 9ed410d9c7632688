//! `STREAM.INFO` and single reads, from committed state.

use super::Stream;
use crate::index::MessageIndex;
use nuthatch_log::Timestamp;
use nuthatch_protocol::js::{StreamInfo, StreamState, Time};

/// Subjects in one page of `STREAM.INFO` (`JSMaxSubjectDetails`).
pub const SUBJECT_DETAILS_MAX: usize = 100_000;

/// A log timestamp as it goes over the wire.
#[must_use]
pub const fn wire_time(at: Timestamp) -> Time {
    Time(at.0)
}

impl Stream {
    /// The stream's state, as readers see it.
    #[must_use]
    pub fn state(&self, consumers: usize) -> StreamState {
        let totals = self.contents.committed_totals();
        let first_seq = match (totals.last_seq, totals.messages) {
            (0, 0) => 0,
            _ => self.contents.first().0,
        };
        let first_ts = match totals.messages {
            0 => Time::ZERO,
            _ => self
                .contents
                .get(self.contents.first())
                .map_or(Time::ZERO, |meta| wire_time(meta.timestamp)),
        };
        let span = (totals.last_seq + 1).saturating_sub(self.contents.first().0);
        StreamState {
            messages: totals.messages,
            bytes: totals.bytes,
            first_seq,
            first_ts,
            last_seq: totals.last_seq,
            last_ts: wire_time(totals.last_at),
            num_subjects: self.contents.subjects().len() as u64,
            num_deleted: span.saturating_sub(totals.messages),
            consumer_count: consumers as u64,
            ..StreamState::default()
        }
    }

    /// Everything about the stream that it knows itself, but what grows with it ([`super::SubjectWalk`],
    /// [`super::DeletedWalk`]).
    #[must_use]
    pub fn info(&self, now: Timestamp, consumers: usize) -> StreamInfo {
        StreamInfo {
            config: self.shared_config(),
            created: wire_time(self.created),
            state: self.state(consumers),
            domain: String::new(),
            cluster: None,
            mirror: None,
            sources: Vec::new(),
            writer_term: self.writer_term(),
            ts: wire_time(now),
        }
    }
}
