//! What a node is doing, for drivers that measure how long it takes.

use crate::types::Time;

/// What a node is doing about the ownership of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doing {
    /// It keeps the log for another owner, or looks for one.
    Following,
    /// It asks the others whether there is a healthy owner.
    Asking,
    /// It claims the next epoch in the catalog.
    Claiming,
    /// It has claimed an epoch whose former owner still serves and is about to hand over.
    Prepared,
    /// It asks for promises.
    Sealing,
    /// It brings its own log and those of others to where the epoch begins.
    Bringing,
    /// The catalog takes up with which disks the epoch begins.
    Deciding,
    /// It starts the epoch.
    Starting,
    /// It owns the log.
    Owning,
}

/// What a node is doing, and what it has heard meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// What it is doing.
    pub doing: Doing,
    /// When a healthy owner was last heard.
    pub heard: Option<Time>,
    /// When a keeper last refused a promise of the epoch because of the former owner's lease.
    pub leased: Option<Time>,
}
