//! Management operations: what the JetStream service asks of an engine, and the outcomes.
//!
//! Configurations arrive validated and normalised (see the `validate` module, which the service
//! calls before it takes a name or a subject into its registry). Outcomes of operations that change
//! something are reported only after their records have committed.

use crate::budget::AccountBounds;
use crate::consumer::PreparedConsumer;
pub use crate::records::PurgeRequest;
use crate::sink::AccountId;
pub use crate::stream::{GetMessage, Replica};
use crate::stream::{Provenance, StreamLocation};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerInfo, ConsumerSnapshot, StreamConfig, StreamInfo, Time};
use nuthatch_protocol::jserror::JsError;
use rustc_hash::FxHashMap;
use std::sync::Arc;

mod weight;

/// Callback that receives an outcome. Called exactly once, on the sequencer thread: must be quick.
pub type Respond = Box<dyn FnOnce(OpResult) + Send>;

/// Outcome of an [`Op`].
pub type OpResult = Result<OpOutcome, JsError>;

/// A message as `STREAM.MSG.GET` returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundMessage {
    /// Subject.
    pub subject: Vec<u8>,
    /// Sequence.
    pub seq: u64,
    /// Header block, empty if none.
    pub headers: Vec<u8>,
    /// Payload.
    pub body: Vec<u8>,
    /// When it was stored.
    pub time: Time,
}

/// A request of a mirror or source to its origin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeRequest {
    /// From this sequence on.
    pub from: u64,
    /// And from this time on.
    pub start_time: Option<Time>,
    /// Only subjects that match any of these; empty: all.
    pub filters: Vec<String>,
    /// Answer only once there is something, if only a gap.
    pub wait: bool,
}

/// A stretch of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// The matching messages, in order.
    pub messages: Vec<Replica>,
    /// Sequence to continue at: everything before was looked at.
    pub next: u64,
    /// The last sequence of the stream.
    pub last_seq: u64,
}

/// A management operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// Creates a stream. The id is fresh and server-wide unique.
    CreateStream {
        /// Its identity.
        id: StreamId,
        /// Its account.
        account: AccountId,
        /// Validated configuration.
        config: Box<StreamConfig>,
    },
    /// Changes a stream's configuration (validated against the old one).
    UpdateStream {
        /// Which.
        id: StreamId,
        /// New configuration.
        config: Box<StreamConfig>,
    },
    /// Deletes a stream with everything in it.
    DeleteStream {
        /// Which.
        id: StreamId,
    },
    /// `STREAM.INFO`.
    StreamInfo {
        /// Which.
        id: StreamId,
        /// List the deleted sequences.
        deleted_details: bool,
        /// Count messages of subjects that match; empty: no subject details.
        subjects_filter: String,
        /// Subjects to skip (100,000 a page).
        offset: usize,
    },
    /// `STREAM.PURGE`.
    Purge {
        /// Which.
        id: StreamId,
        /// The request.
        request: PurgeRequest,
    },
    /// `STREAM.FENCE`: from now on only the writer with this term is taken records from.
    Fence {
        /// Which stream.
        id: StreamId,
        /// At least the stream's.
        term: u64,
    },
    /// `STREAM.PURGE` of the writer with this term, if it still has the stream.
    Truncate {
        /// Which stream.
        id: StreamId,
        /// The request.
        request: PurgeRequest,
        /// The writer's term.
        term: u64,
    },
    /// `STREAM.MSG.DELETE`.
    DeleteMessage {
        /// Which.
        id: StreamId,
        /// Sequence.
        seq: u64,
    },
    /// `STREAM.MSG.GET`.
    GetMessage {
        /// Which.
        id: StreamId,
        /// The request.
        request: GetMessage,
    },
    /// What a stream would say to a message, which is not stored.
    WouldTake {
        /// Which.
        id: StreamId,
        /// The message.
        message: Box<AskedMessage>,
    },
    /// `CONSUMER.CREATE` in all its forms; the name is in `request.config.name` (may be empty).
    CreateConsumer {
        /// Stream.
        id: StreamId,
        /// Request with its filters checked: the engine checks the rest against stream and limits.
        request: Box<PreparedConsumer>,
    },
    /// `CONSUMER.DELETE`.
    DeleteConsumer {
        /// Stream.
        id: StreamId,
        /// Consumer.
        name: String,
    },
    /// `CONSUMER.INFO`.
    ConsumerInfo {
        /// Stream.
        id: StreamId,
        /// Consumer.
        name: String,
    },
    /// A consumer as a backup holds it.
    ConsumerState {
        /// Stream.
        id: StreamId,
        /// Consumer.
        name: String,
    },
    /// Ends the restore of a stream that was created with [`crate::stream::staged_config`] and
    /// filled with [`Op::Mirror`]: from then on it is the stream that it is to be.
    FinishRestore {
        /// Which.
        id: StreamId,
        /// Its true configuration, validated.
        config: Box<StreamConfig>,
        /// Its consumers, validated.
        consumers: Vec<ConsumerSnapshot>,
    },
    /// Takes back messages of a stream that is being restored. Those that are not there are passed
    /// over.
    RemoveRestored {
        /// Which stream.
        id: StreamId,
        /// Sequences, ascending.
        seqs: Vec<u64>,
    },
    /// The answer to [`Op::CreateConsumer`] is on its way: a consumer that was held back delivers.
    StartConsumer {
        /// Stream.
        id: StreamId,
        /// Name.
        name: String,
    },
    /// `CONSUMER.RESET`: starts again at `seq`, or behind the acknowledgement floor with 0.
    ResetConsumer {
        /// Stream.
        id: StreamId,
        /// Consumer.
        name: String,
        /// Stream sequence.
        seq: u64,
    },
    /// `CONSUMER.UNPIN`.
    UnpinConsumer {
        /// Stream.
        id: StreamId,
        /// Consumer.
        name: String,
        /// Priority group.
        group: String,
    },
    /// Reads a stretch of a stream, for a mirror or a source.
    ReadRange {
        /// Which stream.
        id: StreamId,
        /// The request.
        request: RangeRequest,
    },
    /// Stores messages of a mirror's origin. Those that are there already are passed over.
    Mirror {
        /// The mirror.
        id: StreamId,
        /// In order.
        copies: Vec<Replica>,
        /// The origin has nothing else up to here.
        gap_to: u64,
    },
    /// Stores messages of a source, each with its `Nats-Stream-Source` header.
    Source {
        /// The stream that takes them.
        id: StreamId,
        /// In order.
        copies: Vec<Replica>,
    },
    /// How far a stream has come with a source.
    Sourced {
        /// The stream.
        id: StreamId,
        /// The source's key ([`crate::stream::read_source`]).
        key: Vec<u8>,
    },
    /// `CONSUMER.LIST` and `CONSUMER.NAMES`: sorted by name.
    ListConsumers {
        /// Stream.
        id: StreamId,
        /// Skip this many.
        offset: usize,
        /// At most this many.
        limit: usize,
        /// Only names (the infos stay empty).
        names_only: bool,
    },
    /// Begins to take over a stream of another log: messages come by [`Op::Mirror`], and it is not
    /// listed until [`Op::Settle`].
    Arrive {
        /// A fresh identity.
        id: StreamId,
        /// Its account.
        account: AccountId,
        /// Its configuration; nothing of it is acted upon yet.
        config: Box<StreamConfig>,
        /// Where it lives.
        from: StreamLocation,
        /// When it was created.
        created: Time,
    },
    /// The source's side of a move: from now on everything that would change the stream waits.
    /// Answered with its state once everything before has committed.
    Leave {
        /// Which stream.
        id: StreamId,
        /// Name of this log.
        log: String,
        /// Its destination.
        to: StreamLocation,
        /// Its configuration there, which differs in the placement alone.
        config: Box<StreamConfig>,
    },
    /// The stream stays after all: what waits goes on.
    Stay {
        /// Which stream.
        id: StreamId,
        /// This copy, in another log, will not be continued: answered once the log remembers that,
        /// even if the stream is being deleted. A start forgets the copy then. Refused while the stream is
        /// about to go on in another copy: whether that has taken over may be unknown.
        refused: Option<StreamLocation>,
    },
    /// Answered after a frame of the log of a copy that arrives, and after nothing else: how long
    /// that takes is how long [`Op::Settle`] will.
    Probe {
        /// The copy.
        id: StreamId,
    },
    /// The target's side of a move: this state, over the messages that were copied, is the stream.
    /// Once that is durable the new log counts and not the old one. Everything that is sent to it
    /// waits until the source's engine has handed over what it has in memory
    /// ([`crate::Event::Install`]). Refused before anything was written, the outcome is
    /// [`OpOutcome::Unsettled`]; an error leaves open whether the state is there.
    Settle {
        /// Which stream.
        id: StreamId,
        /// State from [`OpOutcome::Left`].
        state: Vec<u8>,
    },
    /// Drops the remains of a stream that lives elsewhere, or of a copy that was not finished.
    /// Sends no advisory.
    Forget {
        /// Which stream.
        id: StreamId,
        /// What it is to be; anything else is refused.
        what: Forgotten,
    },
    /// Whoever has what a stream left behind asks whether it has moved here: a copy that has not taken over
    /// never does from then on. Answered by [`OpOutcome::Copy`] once that is durable.
    RefuseCopy {
        /// The copy.
        id: StreamId,
        /// Account of the stream.
        account: AccountId,
        /// Name of the stream.
        name: String,
        /// Name of this log.
        log: String,
    },
    /// Where a stream was last about to go: [`OpOutcome::GoesTo`], once that is durable.
    GoesTo {
        /// Which stream.
        id: StreamId,
    },
    /// Whether the stream lives here is to be found out: until [`Op::Stay`] or [`Op::Forget`] everything that is sent
    /// to it waits, questions too. Nothing is written.
    Hold {
        /// Which stream.
        id: StreamId,
        /// That takes long: what waits is refused, and what comes.
        refuses: bool,
    },
    /// Every stream this engine holds: for the registry after recovery.
    Catalog,
    /// Replaces the limits of accounts.
    SetAccounts(FxHashMap<AccountId, AccountBounds>),
    /// What each stream holds, for monitoring.
    Sizes,
    /// Totals of an account (or of all accounts with `None`).
    Usage {
        /// Whose.
        account: Option<AccountId>,
    },
}

impl Op {
    /// The stream that it is about, if it is about one.
    pub const fn stream_mut(&mut self) -> Option<&mut StreamId> {
        match self {
            Self::CreateStream { id, .. }
            | Self::UpdateStream { id, .. }
            | Self::DeleteStream { id }
            | Self::StreamInfo { id, .. }
            | Self::Purge { id, .. }
            | Self::Fence { id, .. }
            | Self::Truncate { id, .. }
            | Self::DeleteMessage { id, .. }
            | Self::GetMessage { id, .. }
            | Self::WouldTake { id, .. }
            | Self::CreateConsumer { id, .. }
            | Self::DeleteConsumer { id, .. }
            | Self::ConsumerInfo { id, .. }
            | Self::StartConsumer { id, .. }
            | Self::ResetConsumer { id, .. }
            | Self::UnpinConsumer { id, .. }
            | Self::ReadRange { id, .. }
            | Self::Mirror { id, .. }
            | Self::Source { id, .. }
            | Self::Sourced { id, .. }
            | Self::ListConsumers { id, .. }
            | Self::Arrive { id, .. }
            | Self::Leave { id, .. }
            | Self::Stay { id, .. }
            | Self::Probe { id }
            | Self::Settle { id, .. }
            | Self::ConsumerState { id, .. }
            | Self::FinishRestore { id, .. }
            | Self::RemoveRestored { id, .. }
            | Self::RefuseCopy { id, .. }
            | Self::GoesTo { id }
            | Self::Hold { id, .. }
            | Self::Forget { id, .. } => Some(id),
            Self::Catalog | Self::SetAccounts(_) | Self::Sizes | Self::Usage { .. } => None,
        }
    }
}

/// A message that a stream is asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedMessage {
    /// Its subject, mapped.
    pub subject: Vec<u8>,
    /// Header block or empty.
    pub headers: Arc<[u8]>,
    /// Bytes of its body.
    pub body_len: usize,
}

/// A stream as the registry needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct CatalogEntry {
    /// Identity.
    pub id: StreamId,
    /// Account.
    pub account: AccountId,
    /// Configuration.
    pub config: Arc<StreamConfig>,
    /// When it was created.
    pub created: Time,
    /// Its provenance: the migrations it remembers.
    pub provenance: Provenance,
    /// The last sequence given out.
    pub last_seq: u64,
}

/// What one stream holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSize {
    /// Identity.
    pub id: StreamId,
    /// Its account.
    pub account: AccountId,
    /// Messages.
    pub messages: u64,
    /// Their bytes as JetStream counts them.
    pub bytes: u64,
    /// Last sequence.
    pub last_seq: u64,
    /// When it was given out; `None`: none was.
    pub last_at: Option<Time>,
    /// Consumers.
    pub consumers: u64,
}

/// Totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Streams.
    pub streams: u64,
    /// Consumers.
    pub consumers: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes as JetStream counts them.
    pub bytes: u64,
    /// Messages that streams hold and the log did not give when they were read, since the start: of
    /// all accounts, whoever asks.
    pub missing_messages: u64,
}

impl Usage {
    /// Adds the totals of another engine.
    pub const fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.consumers += other.consumers;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.missing_messages += other.missing_messages;
    }
}

/// What is forgotten of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgotten {
    /// Whatever it is.
    Any,
    /// A copy that has not taken over.
    Copy,
    /// A stream that waits because it may live on as this copy in another log.
    LeftFor(StreamId),
}

/// How a copy stands that a stream may have moved to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStanding {
    /// It has not taken over, and never will.
    Refused,
    /// It has taken over: the stream lives there.
    Settled,
}

/// Outcome of an [`Op`].
#[derive(Clone, PartialEq, Debug)]
pub enum OpOutcome {
    /// Create, update, info of a stream. `subjects_total` counts all that matched the filter.
    Stream {
        /// The information (without `cluster` and `domain`, which the service fills in).
        info: Box<StreamInfo>,
        /// Subjects that matched the filter, over all pages.
        subjects_total: usize,
    },
    /// A purge removed this many messages.
    Purged(u64),
    /// A writer has a stream for itself: what was acknowledged to others lies at or before `last_seq`.
    Fenced {
        /// The term.
        term: u64,
        /// The last sequence given out before.
        last_seq: u64,
    },
    /// The message would be taken; `Some`: it is stored already, with this sequence.
    WouldTake(Option<u64>),
    /// How a copy stands that a stream may have moved to.
    Copy(CopyStanding),
    /// Where a stream was last about to go.
    GoesTo(Option<StreamLocation>),
    /// Done, nothing to tell.
    Done,
    /// A message.
    Message(FoundMessage),
    /// Create, update, info of a consumer (without `cluster`).
    Consumer(Box<ConsumerInfo>),
    /// A consumer's configuration and progress.
    ConsumerState(Box<ConsumerSnapshot>),
    /// A stretch of a stream.
    Range(Range),
    /// The sequence of the last message of a source; 0 if there is none.
    Sourced(u64),
    /// A stream is about to leave: everything waits.
    Left {
        /// Its state, as it is to stand in the new log.
        state: Vec<u8>,
        /// Its last sequence.
        last_seq: u64,
    },
    /// A copy does not take over, and nothing of its state was written.
    Unsettled(JsError),
    /// A consumer was reset.
    Reset {
        /// The sequence at which it starts again.
        seq: u64,
        /// It (without `cluster`).
        info: Box<ConsumerInfo>,
    },
    /// A page of consumers.
    Consumers {
        /// All there are.
        total: usize,
        /// Names of this page.
        names: Vec<String>,
        /// Infos of this page (empty with `names_only`).
        infos: Vec<ConsumerInfo>,
    },
    /// Every stream, the smallest id that was never used, and what recovery did not understand.
    Catalog {
        /// Streams.
        streams: Vec<CatalogEntry>,
        /// First free id.
        next_id: StreamId,
        /// Control records that recovery found intact and could not understand; worth a warning.
        unreadable_records: u64,
    },
    /// Each stream, in no order.
    Sizes(Vec<StreamSize>),
    /// Totals.
    Usage(Usage),
}
