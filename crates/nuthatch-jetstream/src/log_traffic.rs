//! What clients ask of a log, counted at its owner by the nodes whose clients they are.
//!
//! Counted is what comes: publishes, acknowledgements, pulls, gets. What is delivered is not, but for what asks for it.

use nuthatch_server::jetstream_port::Peer;
use nuthatch_server::outlet::Outlet;
use nuthatch_streams::Event;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes since the log was attached: what its queue was given, with the share of each operation beside its own bytes. About:
/// what two logs get of one read counts for both.
#[derive(Default)]
pub(crate) struct LogTraffic {
    /// Of clients of this node, its leaf nodes and gateways among them.
    own: AtomicU64,
    /// Of those of other nodes, by their names: at most as many as there ever were nodes.
    others: Mutex<BTreeMap<String, u64>>,
}

/// What was counted so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Of clients of this node.
    pub own: u64,
    /// Of those of other nodes, by their names.
    pub others: BTreeMap<String, u64>,
}

/// Other nodes by name of which is counted; what further ones ask is not: names come from nodes of the cluster only, of which
/// there are far fewer.
const OTHERS_MAX: usize = 1024;

impl LogTraffic {
    /// A batch came over a connection.
    #[inline]
    pub(crate) fn note(&self, from: &Outlet, bytes: u64) {
        match from.link().filter(|link| link.node.is_some()) {
            None => drop(self.own.fetch_add(bytes, Ordering::Relaxed)),
            Some(link) => self.note_other(&link.remote_name, bytes),
        }
    }

    fn note_other(&self, node: &str, bytes: u64) {
        let mut others = self.others.lock();
        if let Some(counted) = others.get_mut(node) {
            *counted += bytes;
        } else if others.len() < OTHERS_MAX {
            others.insert(node.to_owned(), bytes);
        }
    }

    /// What was counted so far.
    pub(crate) fn asked(&self) -> Asked {
        Asked { own: self.own.load(Ordering::Relaxed), others: self.others.lock().clone() }
    }
}

/// The connection that a batch came over; none: it is no batch.
pub(crate) fn asker(event: &Event<Peer>) -> Option<Arc<Outlet>> {
    match event {
        Event::Batch(batch) => Some(batch.peer.outlet.clone()),
        _ => None,
    }
}
