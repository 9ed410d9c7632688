//! Advisories about streams and consumers that came, changed or went, batches that were given up, and
//! messages that are lost (`$JS.EVENT.ADVISORY.>`): their subjects and bodies.

use super::batches::Abandoned;
use crate::stream::wire_time;
use nuthatch_log::{LogAccess, Seq};
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
const EVENT_ID_CHARS: usize = 22;

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

/// Body of the advisory about a message that a stream holds and its log does not have.
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

const UNREADABLE: &str = "io.nuthatch.jetstream.advisory.v1.unreadable";
const BATCH_ABANDONED: &str = "io.nats.jetstream.advisory.v1.stream_batch_abandoned";

/// Subject and body of the advisory about an atomic batch that was given up.
pub(super) fn batch_abandoned<L: LogAccess>(
    domain: &str,
    stream: &str,
    batch: &[u8],
    why: Abandoned,
    log: &mut L,
) -> (String, Vec<u8>) {
    let event = BatchAbandoned {
        r#type: BATCH_ABANDONED,
        id: random_name(EVENT_ID_CHARS, log),
        timestamp: wire_time(log.now()),
        stream,
        domain,
        batch: String::from_utf8_lossy(batch),
        reason: why.word(),
    };
    let subject = format!("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream}");
    (subject, serde_json::to_vec(&event).expect("strings and a time"))
}

/// Subject and body of the advisory about a stream that came, changed or went.
pub(super) fn stream_action<L: LogAccess>(
    domain: &str,
    stream: &str,
    action: &str,
    log: &mut L,
) -> (String, Vec<u8>) {
    let subject = format!("$JS.EVENT.ADVISORY.STREAM.{}.{stream}", past_tense(action));
    (subject, action_body(domain, STREAM_ACTION, (stream, None), action, log))
}

/// Subject and body of the advisory about a consumer of a stream that came or went.
pub(super) fn consumer_action<L: LogAccess>(
    domain: &str,
    (stream, consumer): (&str, &str),
    action: &str,
    log: &mut L,
) -> (String, Vec<u8>) {
    let event = past_tense(action);
    let subject = format!("$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.{consumer}");
    (subject, action_body(domain, CONSUMER_ACTION, (stream, Some(consumer)), action, log))
}

fn action_body<L: LogAccess>(
    domain: &str,
    r#type: &'static str,
    (stream, consumer): (&str, Option<&str>),
    action: &str,
    log: &mut L,
) -> Vec<u8> {
    let id = random_name(EVENT_ID_CHARS, log);
    let timestamp = wire_time(log.now());
    let event = Action { r#type, id, timestamp, stream, consumer, action, domain };
    serde_json::to_vec(&event).expect("strings and a time")
}

/// Subject and body of the advisory about a message that the log does not have.
pub(super) fn unreadable<L: LogAccess>(
    domain: &str,
    stream: &str,
    seq: Seq,
    log: &mut L,
) -> (String, Vec<u8>) {
    let event = Unreadable {
        r#type: UNREADABLE,
        id: random_name(EVENT_ID_CHARS, log),
        timestamp: wire_time(log.now()),
        stream,
        stream_seq: seq.0,
        reason: "the log does not have the message",
        domain,
    };
    let subject = format!("$JS.EVENT.ADVISORY.STREAM.MSG_UNREADABLE.{stream}");
    (subject, serde_json::to_vec(&event).expect("strings, a number and a time"))
}

fn past_tense(action: &str) -> &'static str {
    match action {
        "create" => "CREATED",
        "modify" => "UPDATED",
        _ => "DELETED",
    }
}
