//! Direct gets from what this node follows of other nodes' streams, as connections ask for them.

use crate::log_id::LogId;
use bytes::Bytes;
use nuthatch_log::{Lsn, StreamId};
use nuthatch_streams::{AccountId, FollowedStream};

/// What is known here of a stream that another node serves.
#[derive(Clone, Copy, Debug)]
pub struct FollowedSight {
    /// Identity of its log.
    pub log: LogId,
    /// All of the log up to here was read.
    pub position: Lsn,
    /// The stream as it is there.
    pub mark: FollowedMark,
}

/// Tells whether a stream is still as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowedMark {
    /// Number of its log.
    pub number: u8,
    /// Which of the standbys of this log, one after the other, has seen it.
    pub standby: u64,
    /// The stream.
    pub stream: FollowedStream,
}

impl FollowedMark {
    /// As tokens of a subject, the last of which is followed by a dot.
    #[must_use]
    pub fn tokens(&self) -> String {
        let Self { number, standby, stream: FollowedStream { id, changes, .. } } = self;
        format!("{number}.{standby}.{}.{changes}.", id.0)
    }

    /// Reads what [`FollowedMark::tokens`] has made; what stands behind it.
    #[must_use]
    pub fn read(text: &str) -> Option<(Self, &str)> {
        let mut parts = text.splitn(5, '.');
        let number = parts.next()?.parse().ok()?;
        let standby = parts.next()?.parse().ok()?;
        let id = StreamId(parts.next()?.parse().ok()?);
        let changes = parts.next()?.parse().ok()?;
        let stream = FollowedStream { id, changes, is_stale: false };
        Some((Self { number, standby, stream }, parts.next()?))
    }
}

/// A direct get to be answered from what this node follows.
#[derive(Clone, Debug)]
pub struct FollowedRequest {
    /// Whose it is.
    pub account: AccountId,
    /// The stream, and as what it was seen.
    pub mark: FollowedMark,
    /// The request's subject.
    pub subject: Bytes,
    /// Where in it begins what stands behind the stream's name and a dot; its length: nothing does.
    pub literal_at: usize,
    /// Subject for the answers.
    pub reply: Bytes,
    /// Header block or empty.
    pub headers: Bytes,
    /// Body.
    pub body: Bytes,
}

/// Streams of other nodes that this node follows.
pub trait FollowedStreams: Send + Sync {
    /// What is known of a stream of this name in a log; `None`: it is not followed, or who follows it is at work. It waits for
    /// nothing.
    fn look(&self, account: AccountId, log: &str, stream: &str) -> Option<FollowedSight>;

    /// Answers a request, or has the node that serves the stream answer it: it waits for nothing, the answer comes later.
    fn answer(&self, request: FollowedRequest);

    /// How many requests were answered so far without that node.
    fn answered(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let stream = FollowedStream { id: StreamId(7), changes: 1 << 40, is_stale: false };
        let mark = FollowedMark { number: 3, standby: 12, stream };
        let text = format!("{}S.a.b", mark.tokens());
        assert_eq!(FollowedMark::read(&text), Some((mark, "S.a.b")));
        for bad in ["", "3.12.7", "3.12.7.5", "256.1.1.1.S", "a.1.1.1.S"] {
            assert_eq!(FollowedMark::read(bad), None, "{bad}");
        }
    }
}
