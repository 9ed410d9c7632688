//! Advisories about streams and consumers that came, changed or went (`$JS.EVENT.ADVISORY.>`).

use super::Engine;
use super::batches::Abandoned;
use crate::sink::{AccountId, Message, Sink};
use crate::stream::{is_staged, wire_time};
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::Time;
use serde::Serialize;

/// Body of a stream or consumer action advisory.
#[derive(Serialize)]
struct Action<'a> {
    r#type: &'static str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<&'a str>,
    action: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
}

const STREAM_ACTION: &str = "io.nats.jetstream.advisory.v1.stream_action";
const CONSUMER_ACTION: &str = "io.nats.jetstream.advisory.v1.consumer_action";

/// Letters of an event id.
const ID_LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of an event id, as many as the incumbent's.
pub(super) const EVENT_ID_CHARS: usize = 22;

/// A random name of `chars` letters and digits.
pub(super) fn random_name<L: LogAccess>(chars: usize, log: &mut L) -> String {
    let mut name = String::with_capacity(chars);
    let mut bits = 0;
    for at in 0..chars {
        // Eight letters (of just under six bits each) to a draw.
        if at % 8 == 0 {
            bits = log.entropy();
        }
        let letter = ID_LETTERS[(bits % ID_LETTERS.len() as u64) as usize];
        bits /= ID_LETTERS.len() as u64;
        name.push(char::from(letter));
    }
    name
}

/// Body of the advisory about an atomic batch that was given up.
#[derive(Serialize)]
struct BatchAbandoned<'a> {
    r#type: &'static str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    batch: std::borrow::Cow<'a, str>,
    reason: &'static str,
}

const BATCH_ABANDONED: &str = "io.nats.jetstream.advisory.v1.stream_batch_abandoned";

impl<S: Sink> Engine<S> {
    /// Tells that an atomic batch was given up (ADR-50).
    pub(super) fn advise_batch<L: LogAccess>(
        &mut self,
        account: AccountId,
        stream: &str,
        batch: &[u8],
        why: Abandoned,
        log: &mut L,
    ) {
        let event = BatchAbandoned {
            r#type: BATCH_ABANDONED,
            id: random_name(EVENT_ID_CHARS, log),
            timestamp: wire_time(log.now()),
            stream,
            domain: &self.config.domain,
            batch: String::from_utf8_lossy(batch),
            reason: why.word(),
        };
        let subject = format!("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream}");
        let body = serde_json::to_vec(&event).expect("strings and a time");
        let message =
            Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: &body };
        self.sink.publish(account, &message);
    }

    /// Tells that a stream was created, modified or deleted. `action` is `create`, `modify` or
    /// `delete`.
    pub(super) fn advise_stream<L: LogAccess>(
        &mut self,
        account: AccountId,
        stream: &str,
        action: &str,
        log: &mut L,
    ) {
        if is_staged(stream) {
            return;
        }
        let subject = format!("$JS.EVENT.ADVISORY.STREAM.{}.{stream}", past_tense(action));
        self.advise(account, &subject, STREAM_ACTION, (stream, None), action, log);
    }

    /// Tells that a consumer was created or deleted.
    pub(super) fn advise_consumer<L: LogAccess>(
        &mut self,
        account: AccountId,
        stream: &str,
        consumer: &str,
        action: &str,
        log: &mut L,
    ) {
        let event = past_tense(action);
        let subject = format!("$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.{consumer}");
        self.advise(account, &subject, CONSUMER_ACTION, (stream, Some(consumer)), action, log);
    }

    fn advise<L: LogAccess>(
        &mut self,
        account: AccountId,
        subject: &str,
        r#type: &'static str,
        (stream, consumer): (&str, Option<&str>),
        action: &str,
        log: &mut L,
    ) {
        let id = random_name(EVENT_ID_CHARS, log);
        let timestamp = wire_time(log.now());
        let domain = &self.config.domain;
        let event = Action { r#type, id, timestamp, stream, consumer, action, domain };
        let body = serde_json::to_vec(&event).expect("strings and a time");
        let message =
            Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: &body };
        self.sink.publish(account, &message);
    }
}

fn past_tense(action: &str) -> &'static str {
    match action {
        "create" => "CREATED",
        "modify" => "UPDATED",
        _ => "DELETED",
    }
}
