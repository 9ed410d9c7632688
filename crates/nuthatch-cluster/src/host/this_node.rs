//! What the cores are told of their own node, and say to the others.

use super::Host;
use nuthatch_quorum::types::NodeId;

impl Host {
    /// The other nodes, from now on.
    pub(crate) fn meet(&self, peers: Vec<NodeId>) {
        self.cores().node.meet(peers);
    }

    /// Whether this node is to own the log only where nobody else can, from now on.
    pub(crate) fn set_drained(&self, drained: bool) {
        self.cores().node.set_drained(drained);
    }

    /// Has this node, as an owner, answer reads no longer than that after a beat, in microseconds.
    pub(crate) fn shorten_lease(&self, lease: u64) {
        self.cores().node.shorten_lease(lease);
    }

    /// Whether this node is about to follow the log in memory, and would take long to open it before, from now on.
    pub(crate) fn set_cold(&self, cold: bool) {
        self.cores().node.set_cold(cold);
    }
}
