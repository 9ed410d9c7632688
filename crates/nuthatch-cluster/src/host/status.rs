//! What is known of a node without a step of its cores.

use nuthatch_quorum::types::{Epoch, Incarnation, Lsn};
use std::io;

/// What others may know of a node at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The epoch that this node owns and serves.
    pub owner: Option<Epoch>,
    /// The last request that was committed, all before it included, and its entry.
    pub acked: (u64, Lsn),
    /// The last request of which it is not known whether it was or will be committed, or that was refused.
    pub failed: u64,
    /// The newest epoch that something was published in here: of that are the requests above.
    pub published: Epoch,
    /// What is committed, as far as this node knows.
    pub commit: Lsn,
    /// The greatest epoch that was promised.
    pub promised: Epoch,
    /// The disk.
    pub incarnation: Incarnation,
    /// A majority of the nodes agrees with this one's wall clock.
    pub clock_agreed: bool,
    /// The disk has failed: the process must be started again.
    pub broken: bool,
}

/// Why a publish had no success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this node does not own the log any more (epoch {})", epoch.0)]
pub struct NotOwner {
    /// The epoch that it owned.
    pub epoch: Epoch,
}

impl From<NotOwner> for io::Error {
    fn from(lost: NotOwner) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, lost)
    }
}
