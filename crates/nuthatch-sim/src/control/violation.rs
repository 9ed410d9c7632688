//! What the control plane must never do.

/// What a schedule has shown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Nobody can say where streams live.
    #[error("the streams of the logs cannot be resolved: {error}")]
    Unresolved {
        /// Why.
        error: String,
    },
    /// A log is on a node that was removed, or is to be.
    #[error("log {log} is on node {node}, or is to be, which was removed")]
    OnRemoved {
        /// The log.
        log: u8,
        /// The node.
        node: u8,
    },
    /// What was begun is not over long after the last fault.
    #[error("a change of the nodes does not come to its end")]
    NodesUnsettled,
    /// A stream lives in no log.
    #[error("the stream is lost")]
    StreamLost,
    /// A stream lives in two logs.
    #[error("the stream lives in {homes} logs")]
    TwoHomes {
        /// How many.
        homes: usize,
    },
    /// A stream that was deleted for good is there again.
    #[error("a deleted stream has come back")]
    CameBack,
    /// A message that was acknowledged is not there.
    #[error("message {seq} is lost")]
    MessageLost {
        /// Sequence.
        seq: u64,
    },
    /// A sequence has two messages.
    #[error("sequence {seq} was given out twice")]
    GivenTwice {
        /// Sequence.
        seq: u64,
    },
    /// A message is there twice.
    #[error("message {token} is there twice")]
    Doubled {
        /// Its number.
        token: u64,
    },
    /// A copy lacks a message of its origin that lies before its end.
    #[error("{copy} lacks {seq} and has {last}")]
    Hole {
        /// The mirror, or the source.
        copy: &'static str,
        /// The sequence in the origin.
        seq: u64,
        /// The last that it has.
        last: u64,
    },
    /// A copy has another message than its origin.
    #[error("{copy} has another message {seq} than its origin")]
    Differs {
        /// The mirror, or the source.
        copy: &'static str,
        /// The sequence in the origin.
        seq: u64,
    },
    /// Messages of a source are not in the order of their origin.
    #[error("{copy} has {seq} behind {before}")]
    OutOfOrder {
        /// The mirror, or the source.
        copy: &'static str,
        /// The sequence in the origin.
        seq: u64,
        /// The one before it in the copy.
        before: u64,
    },
    /// A copy asks for what it has stored.
    #[error("{copy} reads from {from}, and everything up to {stored} is stored")]
    ReadAgain {
        /// The mirror, or the source.
        copy: &'static str,
        /// Where it reads.
        from: u64,
        /// What it has.
        stored: u64,
    },
    /// Clients see a stream that is not all of its backup.
    #[error("half of a backup is shown: {messages} of {of} messages")]
    HalfShown {
        /// Messages that are there.
        messages: usize,
        /// Messages of the backup.
        of: usize,
    },
    /// A restore that was answered is gone.
    #[error("a stream that was restored is gone")]
    RestoreLost,
    /// A restore that failed, or an import that was given up, has left something.
    #[error("what failed or was given up has left {name}")]
    Left {
        /// Name of the stream.
        name: String,
    },
    /// A message stays that no consumer needs.
    #[error("nobody needs message {seq} of {messages}, and it stays")]
    Unneeded {
        /// Its sequence.
        seq: u64,
        /// How many there are.
        messages: usize,
    },
    /// Two changes of an account have the right at one time.
    #[error("changes {first} and {second} have the right")]
    TwoRights {
        /// One.
        first: u64,
        /// The other.
        second: u64,
    },
    /// A log has two streams of one name.
    #[error("log {log} has {name} twice")]
    NameTwice {
        /// Which log.
        log: usize,
        /// The name.
        name: &'static str,
    },
    /// Two streams take the same subject.
    #[error("two streams take {subject}")]
    SubjectTwice {
        /// The subject.
        subject: String,
    },
    /// A name is claimed by no change.
    #[error("{name} stays claimed")]
    StaysClaimed {
        /// The name.
        name: &'static str,
    },
    /// The registry and the logs do not agree.
    #[error("the registry does not have {name} as its log has it")]
    RegistryDiffers {
        /// The name.
        name: &'static str,
    },
    /// Something does not come to its end although nothing fails any more.
    #[error("{what} does not come to its end: {state}")]
    Stuck {
        /// What.
        what: &'static str,
        /// Where it is.
        state: String,
    },
}
