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
//! ([`Leafs::advertise`](crate::leafs::Leafs)).

use crate::account::Account;
use crate::close_reason::CloseReason;
use crate::conn::Connection;

use crate::link::Link;
use crate::server::Server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) mod hello;

/// After a loop the side that connects waits so long.
pub const LOOP_PAUSE: Duration = Duration::from_secs(30);

/// Makes a connection part of its account: from now on both sides hear of each other's interest.
/// `false`: the account has as many leaf nodes as it may have, and the connection was closed.
pub(crate) fn join(server: &Arc<Server>, conn: &Arc<Connection>, link: Link) -> bool {
    let account = conn.session().account.clone();
    if conn.is_node() {
        crate::route::nodes_are_there();
    } else if !account.enter_leaf() {
        let text = Some("maximum account active connections exceeded");
        conn.close(CloseReason::MaxAccountConnectionsExceeded, text);
        return false;
    }
    if !conn.outlet().set_link(link) {
        count_left(conn, &account);
        return true;
    }
    if conn.link().is_some_and(is_older) {
        account.told.lock().older_came();
    }
    if !conn.is_node() {
        account.told.lock().server_came();
    }
    server.advertise(&account);
    account.interest.join(conn.outlet());
    // A stream may have come between the two.
    server.advertise(&account);
    if !conn.is_open() {
        leave(conn);
    }
    if !conn.is_node() {
        server.system().leaf_connected(conn);
    }
    true
}

/// True for a node of the cluster that has to be told all subjects of streams.
fn is_older(link: &Link) -> bool {
    link.node.is_some() && !link.knows_by_table
}

/// A leaf node is none of its account any more. Nodes of the cluster are not counted.
fn count_left(conn: &Connection, account: &Account) {
    if !conn.is_node() {
        account.leafs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a connection out of its account, as far as it is in it.
pub(crate) fn leave(conn: &Arc<Connection>) {
    let account = conn.session().account.clone();
    let Some(link) = conn.link() else { return };
    lose_node(conn);
    if account.interest.leave(conn.outlet()) {
        count_left(conn, &account);
        if is_older(link) {
            account.told.lock().older_went();
        }
        if !conn.is_node() {
            account.told.lock().server_went();
        }
    }
}

/// The link of a node is over, if it is one: what is for its streams waits from now on, also while its subscriptions are dropped.
pub(crate) fn lose_node(conn: &Connection) {
    if let Some(link) = conn.link().filter(|link| link.node.is_some()) {
        link.lose();
        conn.session().account.served.left(&link.remote_name, conn.outlet());
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
pub(crate) fn loop_detected(server: &Server, conn: &Connection, told: bool) {
    let account = conn.session().account.clone();
    let text = format!(
        "Loop detected for leafnode account=\"{}\". Delaying attempt to reconnect for {LOOP_PAUSE:?}",
        account.name
    );
    server.log.error(format_args!("{conn} - {text}"));
    if let Some(link) = conn.link() {
        link.pause_for(LOOP_PAUSE);
    }
    conn.close(CloseReason::ProtocolViolation, told.then_some(text.as_str()));
}
