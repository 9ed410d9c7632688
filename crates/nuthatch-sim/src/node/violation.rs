//! What a node must never do.

/// What a schedule has shown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A log does not open after its process has ended.
    #[error("log {log} does not open: {error}")]
    NotOpened {
        /// Which log.
        log: usize,
        /// Why.
        error: String,
    },
    /// Streams cannot be told apart after a start.
    #[error("the streams of the logs cannot be resolved: {error}")]
    Unresolved {
        /// Why.
        error: String,
    },
    /// A stream that was created is not there.
    #[error("stream {stream} is lost")]
    StreamLost {
        /// Its name.
        stream: &'static str,
    },
    /// A stream lives in two logs.
    #[error("stream {stream} lives in two logs")]
    TwoHomes {
        /// Its name.
        stream: &'static str,
    },
    /// A log without the other one would serve a stream that lives in that.
    #[error("log {log} alone would serve stream {stream}, which lives in the other one")]
    ServedAlone {
        /// Its name.
        stream: &'static str,
        /// The log.
        log: &'static str,
    },
    /// A message that was acknowledged or shown is not there.
    #[error("message {seq} of {stream} is lost")]
    MessageLost {
        /// Name of the stream.
        stream: &'static str,
        /// Sequence.
        seq: u64,
    },
    /// A message has another content than before.
    #[error("message {seq} of {stream} has two contents")]
    TwoContents {
        /// Name of the stream.
        stream: &'static str,
        /// Sequence.
        seq: u64,
    },
    /// A publish was acknowledged below what was acknowledged before it was sent.
    #[error("a publish to {stream} got sequence {seq}, and {before} was acknowledged before")]
    OutOfOrder {
        /// Name of the stream.
        stream: &'static str,
        /// Sequence.
        seq: u64,
        /// The largest that was acknowledged before.
        before: u64,
    },
    /// A message id is stored twice within its window.
    #[error("message id {token} is in {stream} at {first} and {second}")]
    StoredTwice {
        /// Name of the stream.
        stream: &'static str,
        /// The id.
        token: u64,
        /// One sequence.
        first: u64,
        /// The other.
        second: u64,
    },
    /// A message that was removed for good is there again.
    #[error("message {seq} of {stream} has come back")]
    CameBack {
        /// Name of the stream.
        stream: &'static str,
        /// Sequence.
        seq: u64,
    },
    /// A stream holds more than its limit.
    #[error("{stream} holds {messages} messages, more than its limit")]
    OverLimit {
        /// Name of the stream.
        stream: &'static str,
        /// Messages.
        messages: u64,
    },
    /// An information about a stream does not show what was acknowledged before it was asked for.
    #[error("{stream} was shown to end at {shown}, and {acked} was acknowledged before")]
    StaleInfo {
        /// Name of the stream.
        stream: &'static str,
        /// The last sequence that was shown.
        shown: u64,
        /// The largest that was acknowledged before.
        acked: u64,
    },
    /// A consumer that was created is not there.
    #[error("consumer {consumer} is lost")]
    ConsumerLost {
        /// Its name.
        consumer: &'static str,
    },
    /// A message was delivered again after its acknowledgement was confirmed.
    #[error("consumer {consumer} gets {seq} after its confirmed acknowledgement")]
    AckForgotten {
        /// Name of the consumer.
        consumer: &'static str,
        /// Sequence.
        seq: u64,
    },
    /// The floor of acknowledgements fell.
    #[error("the floor of {consumer} was {shown} and is {found}")]
    FloorFell {
        /// Name of the consumer.
        consumer: &'static str,
        /// What was shown and durable.
        shown: u64,
        /// What is there.
        found: u64,
    },
    /// A consumer does not get a message that it has not acknowledged.
    #[error("consumer {consumer} never gets {seq}, which it did not acknowledge")]
    NeverDelivered {
        /// Name of the consumer.
        consumer: &'static str,
        /// Sequence.
        seq: u64,
    },
    /// Messages stay that nobody needs.
    #[error("{messages} messages of {stream} stay for ever")]
    Stays {
        /// Name of the stream.
        stream: &'static str,
        /// Messages.
        messages: u64,
    },
    /// Requests were not answered although nothing failed any more.
    #[error("{requests} requests were never answered: {first}")]
    Unanswered {
        /// How many.
        requests: usize,
        /// One of them.
        first: String,
    },
    /// A log has nothing to do and does not sleep: what it says is due is past, and stays so.
    #[error("log {log} has nothing to do and does not sleep")]
    Spins {
        /// Which log.
        log: usize,
    },
    /// A move did not come to its end although nothing failed any more.
    #[error("a move does not come to its end: {state}")]
    MoveStuck {
        /// Where it is.
        state: String,
    },
    /// What was asked synchronously had no outcome, or another one than it must have.
    #[error("{what}")]
    Unexpected {
        /// What.
        what: String,
    },
}
