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
    /// The node has ended.
    pub ended: bool,
}

impl Status {
    /// That of a node which has ended: it owns nothing any more.
    pub(super) fn ended(self) -> Self {
        Self { owner: None, ended: true, ..self }
    }

    /// What became of a request that was published in an epoch; none: that is not known yet.
    pub(super) fn fate(&self, epoch: Epoch, request: u64) -> Option<Result<Lsn, NotOwner>> {
        let lost = Some(Err(NotOwner { epoch }));
        if self.published != epoch {
            // This node has owned the log again since: what is acknowledged now tells nothing of this request.
            return lost;
        }
        if self.acked.0 >= request {
            return Some(Ok(self.acked.1));
        }
        if self.owner != Some(epoch) || self.failed >= request { lost } else { None }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_epoch_of_the_same_node_commits_is_no_word_on_requests_of_a_former_one() {
        let (former, later) = (Epoch(3), Epoch(7));
        let mut status = Status { owner: Some(former), published: former, ..Status::default() };
        assert_eq!(status.fate(former, 5), None, "it is under way");
        status.acked = (4, Lsn(40));
        assert_eq!(status.fate(former, 4), Some(Ok(Lsn(40))));
        // The epoch ends with one under way.
        (status.owner, status.failed) = (None, 5);
        assert_eq!(status.fate(former, 4), Some(Ok(Lsn(40))));
        assert_eq!(status.fate(former, 5), Some(Err(NotOwner { epoch: former })));
        // Whoever waits looks only after the node has owned the log again.
        (status.owner, status.published) = (Some(later), later);
        assert_eq!(status.fate(later, 6), None, "what failed before has not failed now");
        status.acked = (6, Lsn(60));
        assert_eq!(status.fate(later, 6), Some(Ok(Lsn(60))));
        assert_eq!(status.fate(former, 5), Some(Err(NotOwner { epoch: former })));
    }
}
