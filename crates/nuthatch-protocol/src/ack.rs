//! What consumers send back: ack subjects, ack bodies, pull requests.

use std::borrow::Cow;

use serde::Deserialize;
use thiserror::Error;

use crate::duration::parse_go_bytes;
use crate::swar::find_byte;

/// Prefix of ack subjects.
pub const ACK_PREFIX: &[u8] = b"$JS.ACK.";
/// Tokens of a version 1 ack subject.
const V1_TOKENS: usize = 9;
/// Fewest tokens of a version 2 ack subject; clients may add some.
const V2_TOKENS: usize = 11;

/// The parts of an ack subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSubject<'a> {
    /// The JetStream domain; `None` in version 1 and for `_`.
    pub domain: Option<&'a [u8]>,
    /// The hash of the account's name; `None` in version 1.
    pub account_hash: Option<&'a [u8]>,
    /// The stream's name.
    pub stream: &'a [u8],
    /// The consumer's name.
    pub consumer: &'a [u8],
    /// How many times the message had been delivered.
    pub delivered: u64,
    /// The message's sequence in the stream.
    pub stream_seq: u64,
    /// The delivery's sequence in the consumer.
    pub consumer_seq: u64,
    timestamp_ns: &'a [u8],
    pending: &'a [u8],
}

impl AckSubject<'_> {
    /// When the message was stored, in nanoseconds since the Unix epoch. Parsed on demand: the
    /// server wrote it and does not need it back.
    #[must_use]
    pub fn timestamp_ns(&self) -> Option<i64> {
        i64::try_from(parse_number(self.timestamp_ns)?).ok()
    }

    /// Messages that were still to be delivered. Parsed on demand, like the time.
    #[must_use]
    pub fn pending(&self) -> Option<u64> {
        parse_number(self.pending)
    }
}

/// Parses an ack subject, version 1 (9 tokens) or 2 (11 or more); `None` if it is neither.
///
/// The dots of the two versions do not tell them apart before they are counted, so 10 tokens are
/// refused, as by nats-server.
#[inline]
#[must_use]
pub fn parse_ack_subject(subject: &[u8]) -> Option<AckSubject<'_>> {
    let mut rest = subject.strip_prefix(ACK_PREFIX)?;
    let mut tokens: [&[u8]; V2_TOKENS - 2] = [&[]; V2_TOKENS - 2];
    let mut count = 0;
    loop {
        let end = find_byte(rest, b'.');
        if let Some(slot) = tokens.get_mut(count) {
            *slot = &rest[..end.unwrap_or(rest.len())];
        }
        count += 1;
        match end {
            Some(dot) if count < tokens.len() => rest = &rest[dot + 1..],
            _ => break,
        }
    }
    let (domain, account_hash, parts) = match count + 2 {
        V1_TOKENS => (None, None, &tokens[..V1_TOKENS - 2]),
        V2_TOKENS => (Some(tokens[0]).filter(|&name| name != b"_"), Some(tokens[1]), &tokens[2..]),
        _ => return None,
    };
    Some(AckSubject {
        domain,
        account_hash,
        stream: parts[0],
        consumer: parts[1],
        delivered: parse_number(parts[2])?,
        stream_seq: parse_number(parts[3])?,
        consumer_seq: parse_number(parts[4])?,
        timestamp_ns: parts[5],
        pending: parts[6],
    })
}

/// Any number of this many digits fits in a `u64`.
const SAFE_DIGITS: usize = 19;

/// Decimal digits only, within `u64`.
#[inline]
fn parse_number(digits: &[u8]) -> Option<u64> {
    let (safe, rest) = digits.split_at(digits.len().min(SAFE_DIGITS));
    let mut value = 0u64;
    for &byte in safe {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!digits.is_empty()).then_some(value)
}

/// Kind of an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind<'a> {
    /// Empty, `+ACK` or `+OK`.
    Ack,
    /// `-NAK`, with the delay before redelivery in nanoseconds if it gave one that can be read;
    /// an unreadable one counts as none, as with nats-server.
    Nak {
        /// Delay in nanoseconds.
        delay_ns: Option<i64>,
    },
    /// `+WPI`: still working, restart the ack wait.
    Progress,
    /// `+TERM`, with the reason, trimmed; empty if none.
    Term {
        /// Why, in the client's words.
        reason: &'a [u8],
    },
    /// `+NXT`: an ack and a pull request in one; the latter for [`parse_pull_request`].
    Next {
        /// The body of the pull request.
        request: &'a [u8],
    },
    /// Anything else. It changes nothing, yet nats-server confirms it if there is a reply subject.
    Unknown,
}

/// Parses the body of an ack.
#[inline]
#[must_use]
pub fn parse_ack(body: &[u8]) -> AckKind<'_> {
    match body {
        b"" | b"+ACK" | b"+OK" => AckKind::Ack,
        b"+WPI" => AckKind::Progress,
        [b'+', b'N', b'X', b'T', request @ ..] => AckKind::Next { request },
        [b'-', b'N', b'A', b'K', rest @ ..] => {
            AckKind::Nak { delay_ns: parse_nak_delay(rest.trim_ascii()) }
        }
        [b'+', b'T', b'E', b'R', b'M', reason @ ..] => {
            AckKind::Term { reason: reason.trim_ascii() }
        }
        _ => AckKind::Unknown,
    }
}

/// `{"delay": nanoseconds}` or a Go duration.
fn parse_nak_delay(argument: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct NakOptions {
        #[serde(default)]
        delay: i64,
    }
    match argument {
        b"" => None,
        [b'{', ..] => {
            serde_json::from_slice::<NakOptions>(argument).ok().map(|options| options.delay)
        }
        _ => parse_go_bytes(argument),
    }
}

/// A pull request. Absent numbers are 0 except the batch, absent texts empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct PullRequest<'a> {
    /// How many messages at most; at least 1.
    #[serde(default)]
    pub batch: i64,
    /// How long to wait, in nanoseconds; 0 means without end.
    #[serde(default, rename = "expires")]
    pub expires_ns: i64,
    /// Answer at once if there is nothing to deliver.
    #[serde(default)]
    pub no_wait: bool,
    /// Most bytes to deliver (subject, ack reply, headers and body); 0 means no limit.
    #[serde(default)]
    pub max_bytes: i64,
    /// Interval of heartbeats while waiting, in nanoseconds; 0 means none.
    #[serde(default, rename = "idle_heartbeat")]
    pub idle_heartbeat_ns: i64,
    /// The priority group.
    #[serde(default, borrow)]
    pub group: Cow<'a, str>,
    /// Overflow policy: serve only while at least this many messages are pending.
    #[serde(default)]
    pub min_pending: i64,
    /// Overflow policy: serve only while at least this many acks are pending.
    #[serde(default)]
    pub min_ack_pending: i64,
    /// Pinned client policy: the pin id given to this client.
    #[serde(default, borrow)]
    pub id: Cow<'a, str>,
    /// Prioritized policy: 0 (first) to 9; not checked here.
    #[serde(default)]
    pub priority: i64,
}

/// Why a pull request is refused: the answer is status 400, `Bad Request - <this text>`.
#[derive(Debug, Error)]
pub enum PullRequestError {
    /// Twice the heartbeat interval does not fit in the waiting time.
    #[error("heartbeat value too large")]
    HeartbeatTooLarge,
    /// It begins with `{` and is not such an object.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Parses the body of a pull request: nothing (one message), a number, or JSON.
///
/// Text that is neither counts as nothing, as with nats-server.
///
/// # Errors
/// [`PullRequestError`] for JSON that cannot be read or contradicts itself.
pub fn parse_pull_request(body: &[u8]) -> Result<PullRequest<'_>, PullRequestError> {
    let body = body.trim_ascii();
    let one = PullRequest { batch: 1, ..PullRequest::default() };
    match body.first() {
        None => Ok(one),
        Some(b'{') => {
            let mut request: PullRequest<'_> = serde_json::from_slice(body)?;
            let heartbeat_ns = request.idle_heartbeat_ns;
            if heartbeat_ns > 0 && heartbeat_ns.saturating_mul(2) > request.expires_ns {
                return Err(PullRequestError::HeartbeatTooLarge);
            }
            request.batch = request.batch.max(1);
            Ok(request)
        }
        Some(_) => {
            let number = std::str::from_utf8(body).ok().and_then(|text| text.parse::<i64>().ok());
            Ok(PullRequest { batch: number.unwrap_or(1).max(1), ..one })
        }
    }
}

#[cfg(test)]
mod tests;
