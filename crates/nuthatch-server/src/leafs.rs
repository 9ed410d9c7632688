//! The leaf nodes of a server: their connections, counters and users.

use crate::account::Account;
use crate::advertised::{Difference, Taken};
use crate::auth::Authenticator;
use crate::connections::Connections;
use crate::jetstream_port::JetStreamPort;
use crate::options::Options;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64};

/// Connections of leaf nodes at a time, in both directions.
pub const LEAFS_MAX: usize = 16 * 1024;

/// The leaf nodes of a server.
pub struct Leafs {
    /// Open connections; those that have joined their account have a [`Link`](crate::link::Link).
    pub connections: Connections,
    /// The port that other servers connect to; 0 without.
    pub port: AtomicU16,
    /// Closed for being too slow so far.
    pub slow_consumers: AtomicU64,
    /// Closed as stale so far.
    pub stale: AtomicU64,
    /// Users of leaf nodes, if they have any of their own.
    auth: Option<Arc<Authenticator>>,
}

impl Leafs {
    /// No connections yet.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let leafs = options.leafnodes.as_ref();
        Self {
            connections: Connections::new(0),
            port: AtomicU16::new(0),
            slow_consumers: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            auth: leafs.and_then(|leafs| Authenticator::of_leafs(&leafs.auth)).map(Arc::new),
        }
    }

    /// Users that may connect, if they are not those of clients.
    pub(crate) fn auth(&self) -> Option<Arc<Authenticator>> {
        self.auth.clone()
    }

    /// Tells the leaf nodes of an account, and the other nodes of the cluster, what it takes without a subscription.
    pub(crate) fn advertise(&self, jetstream: &dyn JetStreamPort, account: &Account) {
        // Held until all is told, so that older subjects never replace newer ones.
        let mut told = account.told.lock();
        let Taken { at, mut state, subjects, streams } = jetstream.taken(account.id, told.at());
        (state.connections, state.leafs) = account.connected().unwrap_or_default();
        let mut to_others = account.mappings.sources();
        to_others.extend(subjects.iter().cloned());
        // Mappings are applied where the client is.
        let mut to_nodes = subjects;
        // Streams of other accounts store what those import.
        let of_importer = |importer| jetstream.interest(importer);
        to_nodes.append(&mut account.imports.taken_by_importers(of_importer));
        let difference = told.follow(at, streams, (to_others, to_nodes));
        let Difference { others, nodes, come, gone } = difference;
        account.served.tell(state, &come, gone, || told.own_streams());
        account.interest.advertise(others, nodes);
    }
}

impl std::fmt::Debug for Leafs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leafs").field("count", &self.connections.len()).finish_non_exhaustive()
    }
}
