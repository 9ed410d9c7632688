//! Arguments that the engine passes to a consumer: environment, acks, pulls.

use crate::sink::AccountId;
use nuthatch_log::{Seq, StreamId};

/// The surroundings of a consumer during one call.
pub struct Env<'a, I, L, S> {
    /// The stream's committed messages.
    pub index: &'a I,
    /// Time, entropy, message bodies and the record of progress.
    pub log: &'a mut L,
    /// Receives deliveries and statuses.
    pub sink: &'a mut S,
    /// Whose the stream is.
    pub account: AccountId,
    /// The stream.
    pub stream: StreamId,
    /// Its name.
    pub stream_name: &'a str,
    /// JetStream domain, empty if none (shown in advisories).
    pub domain: &'a str,
    /// Sequences this consumer no longer needs as of this call; `None` under limits retention.
    pub released: Option<&'a mut Vec<Seq>>,
}

/// An acknowledgement, as found in the ack subject and the body.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Delivery count as stated.
    pub delivered: u64,
    /// Stream sequence as stated.
    pub stream_seq: Seq,
    /// Consumer sequence as stated.
    pub consumer_seq: u64,
    /// Reply subject of a confirmation, or empty.
    pub reply: &'a [u8],
    /// `+ACK`, `-NAK …` and so on.
    pub body: &'a [u8],
}

/// A pull request.
#[derive(Clone, Copy, Debug)]
pub struct Pull<'a> {
    /// Subject for messages and statuses.
    pub reply: &'a [u8],
    /// Empty, a number, or JSON.
    pub body: &'a [u8],
}

/// A client's answer to a flow control request.
#[derive(Clone, Copy, Debug)]
pub struct FlowReply<'a> {
    /// The whole `$JS.FC.…` subject.
    pub subject: &'a [u8],
    /// Header block or empty: what was received last.
    pub headers: &'a [u8],
}

/// Result of a consumer's tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickOutcome {
    /// It stays.
    Keep,
    /// Unused for longer than its inactive threshold: delete it.
    Expired,
}

/// A persisted consumer could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// It ends too early.
    #[error("consumer state ends too early")]
    Truncated,
    /// It was written by a newer version.
    #[error("consumer state has version {version}, this server knows up to {known}")]
    Version {
        /// Version found.
        version: u8,
        /// Newest version known.
        known: u8,
    },
    /// A value cannot be.
    #[error("consumer state is damaged: {what}")]
    Damaged {
        /// The fault, in words.
        what: &'static str,
    },
    /// The configuration is not valid JSON.
    #[error("consumer configuration is damaged: {reason}")]
    Config {
        /// The parser's words.
        reason: String,
    },
}
