//! Who may write to a log. A directory holds files; which process owns the log in them is another
//! question: a lock on a directory, a fence in a bucket, an epoch given out by a catalog.

use super::Disk;
use crate::types::Epoch;
use std::io;

/// Gives the log in a directory to one process at a time.
pub trait Ownership: Send + Sync + 'static {
    /// Takes the log for the life of what is returned; `None` if another process has it.
    ///
    /// # Errors
    /// Of whatever keeps others away.
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>>;
}

/// A log that was taken. It is given up when this is dropped.
pub trait Tenure: Send + Sync {
    /// Epoch that this process took when it became the owner, where several could: greater than that
    /// of any earlier owner, and never taken twice. `None` where a lock excludes others, so that
    /// counting up in the catalog suffices.
    fn epoch(&self) -> Option<Epoch> {
        None
    }

    /// What this process can say of the log now. Asked between taking requests and handling them: an answer
    /// must not be older than what another process has acknowledged meanwhile.
    fn standing(&self) -> Standing {
        Standing::Current
    }

    /// The log has been closed and this process writes nothing to it any more. Where several could own
    /// it that is noted, for people; nothing may rely on it.
    fn leave(&self) {}
}

/// What a process can say of a log that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody else owns the log at this moment.
    Current,
    /// Perhaps somebody else owns it already: requests wait.
    Unknown,
    /// Somebody else may own it from now on: requests are dropped without an answer.
    Lost,
}

/// Held by whoever needs no protection: an onlooker who writes nothing, or a directory that no other
/// process can see.
#[derive(Clone, Copy, Debug)]
pub struct Onlooker;

impl Tenure for Onlooker {}

/// The lock on an open directory goes with it.
impl Tenure for std::fs::File {}

/// What a log is opened on: a directory, and the right to write to it.
pub trait OwnableDisk: Disk + Ownership {}

impl<T: Disk + Ownership> OwnableDisk for T {}
