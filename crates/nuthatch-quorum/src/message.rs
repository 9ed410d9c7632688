//! What nodes say to each other.
//!
//! Every message names the disk that sent it and the disk it is for; a keeper refuses what is for
//! another disk, whatever the message is.

use crate::entry::{Base, Entry, EpochStart, Extent};
use crate::types::{
    BootCount, Epoch, Incarnation, Lsn, NodeId, Position, RequestId, Sum, Time, WallTime,
};
use thiserror::Error;

/// A message with its addresses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The node that sent it.
    pub from: NodeId,
    /// The disk of that node.
    pub sender: Incarnation,
    /// The node that it is for.
    pub to: NodeId,
    /// The disk that it is for; none where the node matters and not its disk.
    pub disk: Option<Incarnation>,
    /// What it says.
    pub message: Message,
}

/// What a keeper knows of its own log when it answers a seal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wholeness {
    /// Everything up to its position was read and is good.
    Whole,
    /// The same, but an unclean stop had left bytes behind it, which were cut off (R2).
    Cut,
    /// Entries from this one on may be damaged.
    Partial {
        /// The first that is.
        first: Lsn,
        /// True if bytes behind the last one were cut off, too.
        cut: bool,
    },
}

impl Wholeness {
    /// True if an unclean stop, or damage at the end, has cost entries that nothing tells any more.
    #[must_use]
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::Partial { cut: true, .. })
    }
}

/// A keeper's answer to a seal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sealed {
    /// The epoch that is promised, durably.
    pub epoch: Epoch,
    /// What the keeper knows of its log.
    pub wholeness: Wholeness,
    /// How far its log goes.
    pub position: Position,
    /// Sum of its last entry.
    pub last_sum: Sum,
    /// Its last trimmed entry.
    pub base: Lsn,
    /// Where its epochs begin.
    pub starts: Vec<EpochStart>,
}

impl Sealed {
    /// How far the log goes and where its epochs begin.
    #[must_use]
    pub fn extent(&self) -> Extent<'_> {
        Extent { base: self.base, starts: &self.starts, last: self.position.lsn }
    }
}

/// What an owner knows of a keeper's present start. It is proof that the message was sent after that start,
/// so that a keeper which lost its tail knows when it has regained all that it may have said was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reach {
    /// The keeper's boot counter, as it last said.
    pub boots: BootCount,
    /// The owner's last entry.
    pub last: Lsn,
}

/// The answer to a beat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BeatAnswer {
    /// The epoch that the beat named, if the keeper has accepted it and promised no later one.
    pub epoch: Option<Epoch>,
    /// The clock that the beat named.
    pub sent: Time,
    /// The round that the beat named.
    pub round: u64,
    /// The answering node's wall clock, where it knows one.
    pub wall: Option<WallTime>,
    /// The first entry that the keeper cannot read any more.
    pub damaged: Option<Lsn>,
}

/// Why a keeper does not do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// Another epoch is promised.
    #[error("epoch {promised:?} is promised, {accepted:?} accepted")]
    Promised {
        /// The promised epoch.
        promised: Epoch,
        /// The accepted epoch.
        accepted: Epoch,
    },
    /// The lease of an owner runs.
    #[error("the lease of an owner runs")]
    Leased,
    /// The epoch has not started here.
    #[error("the epoch has not started here; the log ends at {at:?}")]
    NotStarted {
        /// Where the log ends.
        at: Position,
    },
    /// An epoch starts at another position.
    #[error("the log ends at {at:?}, not where the epoch starts")]
    NotAtStart {
        /// Where the log ends.
        at: Position,
    },
    /// There is no room for more.
    #[error("the disk has no room")]
    Full,
    /// The entries do not continue what is here.
    #[error("the entries do not continue the log behind {after:?}")]
    Chain {
        /// The entry that they name as the one before them.
        after: Lsn,
    },
    /// What is trimmed here is not what the entries continue.
    #[error("the entries differ from what is trimmed here up to {base:?}")]
    Trimmed {
        /// The last trimmed entry.
        base: Lsn,
        /// Its sum.
        sum: Sum,
    },
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Asks for the promise of an epoch.
    Seal {
        /// The epoch.
        epoch: Epoch,
    },
    /// The promise is durable.
    Sealed(Sealed),
    /// Something of an epoch was refused.
    Refused {
        /// The epoch that the refused message named.
        epoch: Epoch,
        /// Why.
        why: Refusal,
    },
    /// Asks for entries.
    Fetch {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The first entry.
        from: Lsn,
    },
    /// The entries from one on; none for those that are damaged.
    Fetched {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The keeper's last trimmed entry.
        base: Lsn,
        /// Number of the first: the one that was asked for, or the first behind the base.
        from: Lsn,
        /// The entries, no more than a window of them.
        entries: Vec<Option<Entry>>,
        /// The last one that the keeper has.
        last: Lsn,
    },
    /// Makes a keeper's log equal to the candidate's.
    Bring {
        /// The epoch.
        epoch: Epoch,
        /// The entry before the first.
        after: Lsn,
        /// Its sum.
        prev: Sum,
        /// The entries.
        entries: Vec<Entry>,
        /// Where the log is to end: what the keeper has behind it is cut back, unless it has accepted
        /// the epoch.
        end: Lsn,
    },
    /// What the entries up to `base` have made, in place of what a keeper has, where those entries are trimmed.
    /// Entries of its own behind it stay if they continue it, and the epoch's otherwise are brought then.
    Install {
        /// The epoch.
        epoch: Epoch,
        /// The last entry that it holds; committed.
        base: Base,
        /// The sum of what the keeper has trimmed, where the sender knows it to be no part of the log.
        replaces: Option<Sum>,
    },
    /// How far a keeper's log is equal to the candidate's after `Bring` or `Install`, durably.
    Brought {
        /// The epoch.
        epoch: Epoch,
        /// The last entry that is known to be equal; 0 when the message did not reach what is there.
        equal_to: Lsn,
    },
    /// What `Install` announces is on its way, and comes on.
    Receiving {
        /// The epoch.
        epoch: Epoch,
    },
    /// Starts an epoch.
    Start {
        /// The epoch.
        epoch: Epoch,
        /// Where the log must end.
        from: Lsn,
        /// Sum of the entry there, which stands for the whole log up to it.
        sum: Sum,
    },
    /// The epoch's first entry is durable.
    Started {
        /// The epoch.
        epoch: Epoch,
    },
    /// Entries of an epoch.
    Append {
        /// The epoch.
        epoch: Epoch,
        /// The entry before the first.
        after: Lsn,
        /// Its sum.
        prev: Sum,
        /// The entries.
        entries: Vec<Entry>,
        /// What is committed.
        commit: Lsn,
        /// What the keeper must have to be whole.
        reach: Reach,
    },
    /// Everything up to an entry is durable and readable.
    Done {
        /// The epoch.
        epoch: Epoch,
        /// The last entry.
        upto: Lsn,
        /// The keeper's boot counter.
        boots: BootCount,
    },
    /// The owner of an epoch is none any more, by its own will: the leases that it had are over.
    Release {
        /// The epoch.
        epoch: Epoch,
    },
    /// The owner of an epoch is about to hand the log to whom this is sent: it claims the next epoch, and asks for
    /// no promise before it is told [`Message::Succeed`].
    Prepare {
        /// The epoch that is about to end.
        epoch: Epoch,
    },
    /// The owner of an epoch is none any more, to the node that is to be the next one.
    Succeed {
        /// The epoch that is over.
        epoch: Epoch,
    },
    /// What each node says to each other one.
    Beat {
        /// The newest epoch that the sender owns or is taking over.
        epoch: Epoch,
        /// True if it owns that epoch or is taking it over.
        owner: bool,
        /// True if a majority has answered it lately (F4).
        quorum: bool,
        /// What is committed.
        commit: Lsn,
        /// The sender's clock.
        sent: Time,
        /// Number of this round of beats since the sender's start.
        round: u64,
        /// True if the sender's disk has room.
        room: bool,
        /// True if its disk is so full that no new messages are to be taken, though it has room for what makes room.
        short: bool,
        /// True if it is about to follow the log in memory: until it does it would take long to open it.
        cold: bool,
        /// How long the sender answers reads on the strength of this beat, if it is answered: from
        /// [`LEASE_MIN`](crate::timing::LEASE_MIN) to [`LEASE`](crate::timing::LEASE).
        lease: u64,
    },
    /// The answer to a beat.
    BeatAnswer(BeatAnswer),
    /// Asks whether the log has an owner in good health (F3).
    Would {
        /// Number of the question.
        attempt: u64,
        /// The epoch that the candidate knows.
        epoch: Epoch,
    },
    /// The answer.
    WouldAnswer {
        /// Number of the question.
        attempt: u64,
        /// True if a healthy owner was heard within a lease, or a later epoch is known.
        healthy: bool,
    },
}

/// What a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The publish is committed.
    Acked {
        /// Its entry.
        lsn: Lsn,
    },
    /// It is not known whether the publish was or will be committed.
    Unknown,
    /// Nothing was done.
    Refused,
    /// A linearizable read: everything up to here is to be seen.
    Read {
        /// The commit position.
        commit: Lsn,
    },
}

/// An answer and whom it is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reply {
    /// The request.
    pub request: RequestId,
    /// The answer.
    pub answer: Answer,
}
