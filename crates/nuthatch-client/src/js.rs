//! JetStream's API over request and reply: typed ([`JetStream`]), or as plain JSON for what passes it on.

mod calls;
mod kv;
mod objects;

use std::time::{Duration, Instant};

use nuthatch_protocol::headers;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Client, OwnedMessage, RequestError};

pub use calls::{Answer, Delivered, JetStream};
pub use kv::{Entry, KeyValue, KvError, Operation, set_time_to_live};
pub use objects::{ObjectError, ObjectInfo, ObjectLink, ObjectOptions, ObjectStore};

/// Prefix of all API subjects.
pub const API_PREFIX: &str = "$JS.API";

/// `stream not found` in JetStream's error table.
pub const STREAM_NOT_FOUND: u64 = 10059;
/// `consumer not found` in JetStream's error table.
pub const CONSUMER_NOT_FOUND: u64 = 10014;
/// `no message found` in JetStream's error table.
pub const NO_MESSAGE: u64 = 10037;
/// A write expected another last sequence: an entry of JetStream's error table.
pub const WRONG_LAST_SEQUENCE: u64 = 10071;

/// How long a call that nobody hears is repeated where there is JetStream, and the pause between, as clients of NATS have it.
const UNHEARD_LIMIT: Duration = Duration::from_secs(2);
const UNHEARD_PAUSE: Duration = Duration::from_millis(250);

/// Headers as on the wire; nothing for none. Names and values are without line ends.
#[must_use]
pub fn header_block(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        headers::append(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// An error as JetStream reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiError {
    /// HTTP-like class.
    #[serde(default)]
    pub code: u64,
    /// Entry of JetStream's error table.
    #[serde(default)]
    pub err_code: u64,
    /// Words.
    #[serde(default)]
    pub description: String,
}

/// Why an API request failed.
#[derive(Debug, thiserror::Error)]
pub enum JsError {
    /// JetStream said no.
    #[error("{} ({})", .0.description, .0.err_code)]
    Api(ApiError),
    /// The API has no responder.
    #[error("JetStream is not enabled on this server; start it with -js")]
    NotEnabled,
    /// The API had no responder for as long as [`api_at`] asks, though the server says that it has JetStream.
    #[error(
        "nobody answers {0} on a server that has JetStream: its leader may be changing (try again), the account may have none, or \
         the domain or prefix is not there"
    )]
    Unheard(String),
    /// The request itself failed.
    #[error(transparent)]
    Request(RequestError),
    /// The reply is not what JetStream sends.
    #[error("the reply to {subject} is not understood: {reason}")]
    BadReply {
        /// Subject of the request.
        subject: String,
        /// The reply's fault.
        reason: String,
    },
}

impl JsError {
    /// The number in JetStream's error table, when JetStream answered.
    pub fn err_code(&self) -> Option<u64> {
        match self {
            Self::Api(err) => Some(err.err_code),
            _ => None,
        }
    }
}

/// [`api_at`] under the usual prefix.
///
/// # Errors
/// When JetStream refuses, is off, or the connection fails.
pub fn api(
    client: &mut Client,
    what: &str,
    body: &Value,
    timeout: Duration,
) -> Result<Value, JsError> {
    api_at(client, API_PREFIX, what, body, timeout)
}

/// Sends `body` (nothing when null) to `<prefix>.<what>` and returns the reply's JSON. While nobody hears it on a server
/// that has JetStream it is asked again, for two seconds at most: what it is for is being handed over or taken over.
///
/// # Errors
/// When JetStream refuses, is off, or the connection fails.
pub fn api_at(
    client: &mut Client,
    prefix: &str,
    what: &str,
    body: &Value,
    timeout: Duration,
) -> Result<Value, JsError> {
    let subject = format!("{prefix}.{what}");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let reply = heard(client, &subject, text.as_bytes(), timeout)?;
    let bad = |reason: String| JsError::BadReply { subject: subject.clone(), reason };
    let mut value: Value =
        serde_json::from_slice(&reply.payload).map_err(|err| bad(err.to_string()))?;
    match value.get_mut("error").map(Value::take) {
        Some(error) => {
            Err(JsError::Api(serde_json::from_value(error).map_err(|err| bad(err.to_string()))?))
        }
        None => Ok(value),
    }
}

/// [`Client::request`], again while nobody hears it. Nothing was carried out that nobody heard.
fn heard(
    client: &mut Client,
    subject: &str,
    text: &[u8],
    timeout: Duration,
) -> Result<OwnedMessage, JsError> {
    let until = Instant::now() + timeout.min(UNHEARD_LIMIT);
    loop {
        match client.request(subject, b"", text, timeout) {
            Ok(reply) => return Ok(reply),
            Err(RequestError::NoResponders(_)) if !client.info().jetstream => {
                return Err(JsError::NotEnabled);
            }
            Err(RequestError::NoResponders(subject)) if Instant::now() + UNHEARD_PAUSE >= until => {
                return Err(JsError::Unheard(subject));
            }
            Err(RequestError::NoResponders(_)) => std::thread::sleep(UNHEARD_PAUSE),
            Err(other) => return Err(JsError::Request(other)),
        }
    }
}

/// Fetches all pages of a list; `field` names the array, `filter` is merged into each request.
///
/// # Errors
/// Like [`api_at`].
pub fn list_at(
    client: &mut Client,
    prefix: &str,
    what: &str,
    field: &str,
    filter: &Value,
    timeout: Duration,
) -> Result<Vec<Value>, JsError> {
    let mut all = Vec::new();
    loop {
        let mut body = filter.clone();
        if !body.is_object() {
            body = json!({});
        }
        body["offset"] = all.len().into();
        let mut page = api_at(client, prefix, what, &body, timeout)?;
        let total = page["total"].as_u64().unwrap_or(0) as usize;
        let items = match page[field].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let done = items.is_empty();
        all.extend(items);
        if done || all.len() >= total {
            return Ok(all);
        }
    }
}

/// Answer to a publish as it stands on the wire.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Ack {
    stream: String,
    seq: u64,
    duplicate: bool,
    error: Option<ApiError>,
}

/// The error in an answer, if it has one.
#[must_use]
pub fn refusal(answer: &[u8]) -> Option<ApiError> {
    serde_json::from_slice::<Ack>(answer).ok()?.error
}

/// Answer to a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PubAck {
    /// Stored under this sequence.
    Stored(u64),
    /// Recognised as sent before, then stored under this sequence.
    Duplicate(u64),
    /// Stored by a stream of another name.
    WrongStream(String),
    /// Refused, or not understood.
    Failed(String),
}

impl PubAck {
    /// Reads the answer to a publish into `stream`. The usual form is recognised without a JSON
    /// parser, because this runs per message.
    #[inline]
    pub fn parse(body: &[u8], stream: &str) -> Self {
        match usual_ack(body, stream.as_bytes()) {
            Some(seq) => Self::Stored(seq),
            None => Self::parse_any(body, stream),
        }
    }

    fn parse_any(body: &[u8], stream: &str) -> Self {
        match serde_json::from_slice::<Ack>(body) {
            Err(_) => Self::Failed(format!("not an ack: {:?}", String::from_utf8_lossy(body))),
            Ok(Ack { error: Some(err), .. }) => {
                Self::Failed(format!("{} ({})", err.description, err.err_code))
            }
            Ok(ack) if ack.stream != stream => Self::WrongStream(ack.stream),
            Ok(ack) if ack.duplicate => Self::Duplicate(ack.seq),
            Ok(ack) => Self::Stored(ack.seq),
        }
    }
}

/// Matches `{"stream":"S","seq":N}`, with or without a space before `"seq"`.
fn usual_ack(body: &[u8], stream: &[u8]) -> Option<u64> {
    let rest = body.strip_prefix(br#"{"stream":""#)?.strip_prefix(stream)?;
    let rest = rest.strip_prefix(br#"","#)?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(br#""seq":"#)?;
    crate::frame::decimal(rest.strip_suffix(b"}")?)
}

#[cfg(test)]
mod tests;
