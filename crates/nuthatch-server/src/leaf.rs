//! Leaf nodes: connections to other servers, each of which joins one account here with one there.
//!
//! A connection is a [`Connection`] like a client's, with another protocol
//! (`nuthatch_protocol::wire::leaf`): either side tells the other which subjects it has listeners
//! for, and sends what is published to them. Who listens there is a subscription of the connection
//! here ([`Role::Leaf`](crate::subscription::Role)), so that routing knows nothing else of leaf
//! nodes; who listens here is counted in the connection's [`Link`].
//!
//! The side that connects is the *spoke* unless it says that it is the hub: it tells of its own
//! clients' interest only, so two hubs are never joined through it. Streams have no subscriptions
//! here; what they store and the API of a JetStream with a domain are *advertised* instead
//! ([`Leafs::advertise`]).

use crate::account::Account;
use crate::auth::Authenticator;
use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::connections::Connections;
use crate::link::Link;
use crate::options::Options;
use crate::server::Server;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

pub mod accept;
pub(crate) mod dial;
pub(crate) mod hello;
pub(crate) mod tls;

/// Connections of leaf nodes at a time, in both directions.
pub const LEAFS_MAX: usize = 16 * 1024;
/// After a loop the side that connects waits so long.
pub const LOOP_PAUSE: Duration = Duration::from_secs(30);

/// The leaf nodes of a server.
pub struct Leafs {
    /// Open connections; those that have joined their account have a [`Link`].
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

    /// Users that may connect: those of leaf nodes, or those of clients.
    pub(crate) fn auth(&self, server: &Server) -> Arc<Authenticator> {
        self.auth.clone().unwrap_or_else(|| server.auth())
    }

    /// Tells the leaf nodes of an account what it takes without a subscription: subjects of streams,
    /// the API of its JetStream, and sources of subject mappings.
    pub fn advertise(&self, server: &Server, account: &Account) {
        let _held = self.advertising.lock();
        let mut subjects = account.mappings.sources();
        subjects.append(&mut server.jetstream().interest(account.id));
        subjects.sort_unstable();
        subjects.dedup();
        account.interest.advertise(subjects);
    }

    /// [`Leafs::advertise`] for every account that has leaf nodes.
    pub fn advertise_all(&self, server: &Server) {
        for account in server.accounts.all() {
            if account.interest.has_leafs() {
                self.advertise(server, &account);
            }
        }
    }
}

impl std::fmt::Debug for Leafs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leafs").field("count", &self.connections.len()).finish_non_exhaustive()
    }
}

/// Accepts leaf nodes, connects to the configured remotes, and keeps both informed of streams, until
/// it is dropped or the server stops. Call it once JetStream has started.
pub async fn serve(server: Arc<Server>, listener: Option<TcpListener>) {
    let options = server.options();
    let Some(leafs) = &options.leafnodes else { return };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(keep_advertising(server.clone()));
    for (number, remote) in leafs.remotes.iter().enumerate().filter(|(_, r)| !r.disabled) {
        tasks.spawn(dial::keep(server.clone(), number, remote.clone()));
    }
    if let Some(listener) = listener {
        tasks.spawn(accept::run(server.clone(), listener));
    }
    while tasks.join_next().await.is_some() {}
}

/// Tells leaf nodes of streams that come and go.
async fn keep_advertising(server: Arc<Server>) {
    let Some(mut changes) = server.jetstream().changes() else { return };
    while changes.changed().await.is_ok() {
        changes.mark_unchanged();
        server.leafs.advertise_all(&server);
    }
}

/// Makes a connection part of its account: from now on both sides hear of each other's interest.
/// `false`: the account has as many leaf nodes as it may have, and the connection was closed.
pub(crate) fn join(conn: &Arc<Connection>, link: Link) -> bool {
    let (server, account) = (conn.server(), conn.session().account.clone());
    if !account.enter_leaf() {
        let text = Some("maximum account active connections exceeded");
        conn.close(CloseReason::MaxAccountConnectionsExceeded, text);
        return false;
    }
    if !conn.outlet().set_link(link) {
        account.leafs.fetch_sub(1, Ordering::Relaxed);
        return true;
    }
    server.leafs.advertise(server, &account);
    account.interest.join(conn.outlet());
    // A stream may have come between the two.
    server.leafs.advertise(server, &account);
    if !conn.is_open() {
        leave(conn);
    }
    server.system().leaf_connected(conn);
    true
}

/// Takes a connection out of its account, as far as it is in it.
pub(crate) fn leave(conn: &Arc<Connection>) {
    let account = conn.session().account.clone();
    if conn.link().is_some() && account.interest.leave(conn.outlet()) {
        account.leafs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes leaf nodes that have connected to us, so that they authenticate anew.
pub(crate) fn reauthenticate(server: &Server) {
    for conn in server.leafs.connections.open() {
        if conn.link().is_none_or(|link| !link.solicited) {
            let text = Some("Authorization Violation");
            conn.close(CloseReason::AuthenticationViolation, text);
        }
    }
}

/// The connection leads back to this server: both sides hear of it, and the one that has connected
/// waits before it does so again.
pub(crate) fn loop_detected(conn: &Connection, told: bool) {
    let account = conn.session().account.clone();
    let text = format!(
        "Loop detected for leafnode account=\"{}\". Delaying attempt to reconnect for {LOOP_PAUSE:?}",
        account.name
    );
    conn.server().log.error(format_args!("{conn} - {text}"));
    if let Some(link) = conn.link() {
        link.pause_for(LOOP_PAUSE);
    }
    conn.close(CloseReason::ProtocolViolation, told.then_some(text.as_str()));
}
