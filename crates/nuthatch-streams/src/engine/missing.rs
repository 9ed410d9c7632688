//! Messages that a stream holds and its log does not give: damage, never "no such message".
//!
//! The log reports and counts what it finds damaged itself. What it says it never had is found out
//! here, by the stream's table, and told once for each message.

use super::Engine;
use super::advisory::random_name;
use crate::sink::{Message, Sink};
use crate::stream::wire_time;
use nuthatch_log::{LogAccess, Seq, StreamId};
use nuthatch_protocol::js::Time;
use rustc_hash::FxHashSet;
use serde::Serialize;

/// Messages that are remembered as told. Beyond that every read of another one counts.
const TOLD_MAX: usize = 4096;
const TYPE: &str = "io.nuthatch.jetstream.advisory.v1.unreadable";

/// Messages found missing.
#[derive(Default)]
pub(super) struct MissingMessages {
    told: FxHashSet<(StreamId, Seq)>,
    count: u64,
}

/// Body of the advisory.
#[derive(Serialize)]
struct Unreadable<'a> {
    r#type: &'static str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    stream_seq: u64,
    reason: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
}

impl<S: Sink> Engine<S> {
    /// Messages that streams hold and the log did not give when they were read, since the start.
    #[must_use]
    pub const fn missing_messages(&self) -> u64 {
        self.missing.count
    }

    /// The log does not have a message that the stream holds: counts it, and tells it once.
    #[cold]
    pub(super) fn note_missing<L: LogAccess>(&mut self, id: StreamId, seq: Seq, log: &mut L) {
        if self.missing.told.contains(&(id, seq)) {
            return;
        }
        self.missing.count += 1;
        if self.missing.told.len() >= TOLD_MAX {
            return;
        }
        self.missing.told.insert((id, seq));
        let event_id = random_name(super::advisory::EVENT_ID_CHARS, log);
        let slot = self.streams.get(id).expect("the stream that was read");
        let event = Unreadable {
            r#type: TYPE,
            id: event_id,
            timestamp: wire_time(log.now()),
            stream: &slot.stream.config().name,
            stream_seq: seq.0,
            reason: "the log does not have the message",
            domain: &self.config.domain,
        };
        let subject =
            format!("$JS.EVENT.ADVISORY.STREAM.MSG_UNREADABLE.{}", slot.stream.config().name);
        let body = serde_json::to_vec(&event).expect("strings, a number and a time");
        let message =
            Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: &body };
        self.sink.publish(slot.stream.account(), &message);
    }
}
