//! What a core asks of its driver.

use crate::catalog::Call;
use crate::message::{Envelope, Reply};
use crate::store::StoreOp;
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
    /// Entries that nobody in reach can read; the takeover waits.
    Unreadable {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The last of them.
        lsn: Lsn,
    },
    /// Entries of one position that differ.
    Diverged {
        /// The keeper that noticed.
        node: NodeId,
        /// The position.
        lsn: Lsn,
    },
}
