//! The leaf nodes of a server: their connections, counters and users.

use crate::account::Account;
use crate::auth::Authenticator;
use crate::connections::Connections;
use crate::jetstream_port::JetStreamPort;
use crate::options::Options;
use parking_lot::Mutex;
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
    /// Held while an account's advertised subjects are gathered and told, so that older ones never
    /// replace newer ones.
    advertising: Mutex<()>,
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
            advertising: Mutex::default(),
        }
    }

    /// Users that may connect, if they are not those of clients.
    pub(crate) fn auth(&self) -> Option<Arc<Authenticator>> {
        self.auth.clone()
    }

    /// Tells the leaf nodes of an account what it takes without a subscription: subjects of streams,
    /// the API of its JetStream, and sources of subject mappings.
    pub(crate) fn advertise(&self, jetstream: &dyn JetStreamPort, account: &Account) {
        let _held = self.advertising.lock();
        let of_jetstream = jetstream.interest(account.id);
        let mut to_others = account.mappings.sources();
        to_others.extend(of_jetstream.iter().cloned());
        // Mappings are applied where the client is.
        let mut to_nodes = of_jetstream;
        if account.served.has_nodes() {
            let own = jetstream.own_streams(account.id);
            own.streams.iter().for_each(|stream| add_requests(&stream.config.name, &mut to_nodes));
            account.served.tell(own);
        }
        // Streams of other accounts store what those import.
        let taken = |importer| jetstream.interest(importer);
        to_nodes.append(&mut account.imports.taken_by_importers(taken));
        for list in [&mut to_others, &mut to_nodes] {
            list.sort_unstable();
            list.dedup();
        }
        account.interest.advertise(to_others, to_nodes);
    }
}

/// Adds the subjects of pulls and direct gets of a stream: they go to its node without a look at what they ask for. Other
/// calls are handed on by whoever takes them.
fn add_requests(stream: &str, to: &mut Vec<Box<[u8]>>) {
    let mut add = |text: String| to.push(text.into_bytes().into());
    add(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"));
    add(format!("$JS.API.DIRECT.GET.{stream}"));
    add(format!("$JS.API.DIRECT.GET.{stream}.>"));
}

impl std::fmt::Debug for Leafs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leafs").field("count", &self.connections.len()).finish_non_exhaustive()
    }
}
