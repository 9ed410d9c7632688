//! What a core asks of its driver.

use crate::catalog::Call;
use crate::message::{Envelope, Reply};
use crate::store::{StoreError, StoreOp};
use crate::types::{Epoch, Lsn, NodeId, SyncId};

/// Something to do; effects are done in their order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Sends a message.
    Send(Envelope),
    /// Changes the disk, in order, behind all earlier changes.
    Store(Vec<StoreOp>),
    /// Makes all earlier changes durable and says so.
    Sync(SyncId),
    /// Reads entries again that are durable, and says which are damaged ([`crate::node::Event::Verified`]).
    Verify {
        /// The first.
        from: Lsn,
        /// The last.
        upto: Lsn,
    },
    /// Asks the catalog.
    Catalog(Call),
    /// Answers a client.
    Reply(Reply),
    /// Tells people.
    Alarm(Alarm),
}

/// What people must know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Alarm {
    /// Entries behind the start of a later epoch were cut back and are kept aside; they may have been
    /// acknowledged.
    PossiblyAcknowledged {
        /// The keeper.
        node: NodeId,
        /// The first of them.
        first: Lsn,
        /// The last.
        last: Lsn,
    },
    /// A sync failed.
    SyncFailed {
        /// The node.
        node: NodeId,
    },
    /// A write failed.
    WriteFailed {
        /// The node.
        node: NodeId,
        /// Why.
        why: StoreError,
    },
    /// An entry that was durable cannot be read any more.
    Damaged {
        /// The node.
        node: NodeId,
        /// The entry.
        lsn: Lsn,
    },
    /// The catalog is behind what this node has seen: somebody has set it back. It is not listened to.
    CatalogWentBack {
        /// The node.
        node: NodeId,
    },
    /// The directory belongs to another node; this one does nothing until somebody has looked.
    ForeignDisk {
        /// The node.
        node: NodeId,
        /// Whose directory it is.
        of: NodeId,
    },
    /// The wall clock differs from that of a majority by more than two seconds.
    WrongClock {
        /// The node.
        node: NodeId,
    },
    /// A keeper was not heard for a while; said once until it is heard again.
    Away {
        /// The keeper.
        node: NodeId,
        /// The owner's epoch.
        epoch: Epoch,
    },
    /// An owner that hands over has not committed all that it took, or the next owner does not have all of it yet, and that
    /// was waited for long enough.
    LeftUndrained {
        /// The next owner.
        to: NodeId,
        /// The epoch that ends.
        epoch: Epoch,
    },
    /// Entries that nobody in reach can read; the takeover waits.
    Unreadable {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The last of them.
        lsn: Lsn,
    },
    /// A log in memory has begun anew: everything that was acknowledged before is lost.
    BeganAnew {
        /// The epoch that it began with.
        epoch: Epoch,
        /// How many disks of its former set were left.
        left: usize,
        /// How many there were.
        of: usize,
    },
    /// This disk in memory holds what a log was before it began anew, and gives it up.
    LeftOut {
        /// The node.
        node: NodeId,
        /// The last entry that it held.
        last: Lsn,
    },
    /// Entries of one position that differ.
    Diverged {
        /// The keeper that noticed.
        node: NodeId,
        /// The position.
        lsn: Lsn,
    },
}
