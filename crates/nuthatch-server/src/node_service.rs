//! Connections between the nodes of a cluster, on which messages of their clients go.
//!
//! Each account has a connection of its own to each other node, so that what one account does holds up no other one.
//! It speaks the protocol of leaf nodes, behind a hello of its own (`nuthatch_cluster::link_hello`): either side tells
//! for which subjects there are listeners, all of them at the beginning and then what changes, and sends what is
//! published to those. What differs from a leaf node stands with the link ([`Link::node`](crate::link::Link)): all
//! messages may go; what came from one node goes to no other one; the members of a queue group are alike wherever they
//! are; mappings and imports are applied where the client is; and the owner of the log tells what its JetStream takes.
//!
//! Of two nodes the one whose name comes first connects. With the connection all that is known of it ends, and what was
//! under way is lost and sent by nobody again.

use self::hello::Greeter;
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Session, Transport};
use crate::leaf;
use crate::leaf::hello::NodeInfo;
use crate::link::{Link, NodeAccount, PeerFacts};
use crate::nodes::{CORE_LINKS_MAX, NODE_LINKS_MAX};
use crate::random::random_token;
use crate::reader::ConnReader;
use crate::served::TOKEN_CHARS;
use crate::server::Server;
use crate::socket::Socket;
use crate::writer;
use nuthatch_cluster::Membership;
use nuthatch_cluster::link_hello::LinkHello;
use std::collections::HashMap;
use std::io::Cursor;
use std::net::{IpAddr, SocketAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::sync::watch;

mod accept;
pub(crate) mod ask;
mod dial;
mod hello;
mod kept_file;
pub(crate) mod memory_streams;
pub(crate) mod remembered_streams;

/// Connections of other nodes that wait to be greeted; one more is closed, and comes again.
const WAITING_MAX: usize = 64;

/// A node that is gone for so long is one of which clients hear no more. A process that begins anew is back sooner.
const GONE: Duration = Duration::from_secs(2);

/// A node whose machine is gone is missed after about three of these, whatever it was sent.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Between two looks which nodes there are.
const LOOK: Duration = Duration::from_millis(500);

/// This server among the nodes of its cluster.
struct Node {
    server: Arc<Server>,
    cluster: Arc<dyn Membership>,
    /// This node's name.
    name: String,
}

/// Takes connections of other nodes and connects to those whose names come later, until it is dropped or the server
/// stops.
pub(crate) async fn serve(server: Arc<Server>, cluster: Arc<dyn Membership>, name: String) {
    let node = Arc::new(Node { server, cluster, name });
    let (arrived, arrivals) = mpsc::channel::<StdTcpStream>(WAITING_MAX);
    node.cluster.take_links(Box::new(move |stream| {
        // Without room it is closed, and comes again.
        let _ = arrived.try_send(stream);
    }));
    tokio::join!(dial_all(node.clone()), accept::run(node, arrivals));
}

/// Connects to the nodes that there are, as they come and go.
async fn dial_all(node: Arc<Node>) {
    // A task ends when what is kept for its address is dropped, and its connections have ended.
    let (mut dialled, mut tasks) = (HashMap::new(), tokio::task::JoinSet::new());
    loop {
        let others = node.cluster.others();
        dialled.retain(|address, _| others.contains(address));
        for address in others {
            dialled.entry(address).or_insert_with(|| {
                let (keeps, ends) = watch::channel(());
                tasks.spawn(dial::keep(node.clone(), address, ends));
                keeps
            });
        }
        while tasks.try_join_next().is_some() {}
        node.end_removed();
        tokio::time::sleep(LOOK).await;
    }
}

/// Keeps other nodes informed of what the JetStream of this one takes, which has started.
pub(crate) async fn keep_advertising(server: Arc<Server>) {
    server.advertise_all();
    let Some(mut changes) = server.jetstream().changes() else { return };
    while changes.changed().await.is_ok() {
        changes.mark_unchanged();
        server.advertise_all();
        server.nodes.tables_changed();
    }
}

/// A connection whose two sides have greeted each other.
struct Greeted<R, W> {
    input: R,
    output: W,
    /// What came behind the hello.
    rest: Vec<u8>,
    peer: nuthatch_cluster::link_hello::LinkHello,
    account: Arc<crate::account::Account>,
    /// Writes may go to the socket directly: there is no TLS.
    is_plain: bool,
    /// We have connected.
    solicited: bool,
}

impl Node {
    fn is_ending(&self) -> bool {
        self.server.stopping.load(Ordering::Relaxed)
    }

    fn greeter(&self) -> Greeter<'_> {
        Greeter { server: &self.server, cluster: &*self.cluster, name: &self.name }
    }

    /// Joins the account, and stays until the connection ends.
    async fn run<R, W>(
        &self,
        stream: Arc<TcpStream>,
        remote: SocketAddr,
        greeted: Greeted<R, W>,
    ) -> Option<CloseReason>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let server = &self.server;
        let Greeted { input, output, rest, peer, account, is_plain, solicited } = greeted;
        let conn = server.connect(server.connections.fresh_id(), remote, Transport::Node);
        conn.set_socket(stream.clone());
        conn.set_session(Arc::new(Session {
            headers: true,
            name: peer.node.clone(),
            ..Session::of_leaf(account)
        }));
        // Those without JetStream take no place of nodes that keep logs.
        let is_core = peer.beyond.as_ref().is_some_and(|beyond| beyond.is_core);
        let max = if is_core { CORE_LINKS_MAX } else { NODE_LINKS_MAX };
        if !server.nodes.connections.add(&conn, max) {
            return Some(CloseReason::MaxConnectionsExceeded);
        }
        self.replace_older(&conn, &peer.node);
        if is_plain {
            conn.outbox().set_socket(Some(stream.clone()));
        }
        let reader = ConnReader::of_node(server.clone(), conn.clone());
        tokio::spawn(writer::run(server.clone(), conn.clone(), output, stream, None));
        let link = self.link(&conn, &peer, solicited);
        let token = link.token.clone();
        leaf::join(server, &conn, link);
        let options = server.options();
        let zone = options.cluster.as_ref().and_then(|cluster| cluster.zone.as_ref());
        let zone = zone.map(ToString::to_string).unwrap_or_default();
        conn.send(&NodeInfo::joined(token, zone).encode());
        // The writer pings from now on.
        conn.connected.notify_one();
        self.joined(&conn, &peer, remote.ip()).await;
        reader.run(Cursor::new(rest).chain(input)).await;
        let reason = conn.close_reason();
        self.left(&conn, &peer.node, reason);
        reason
    }

    fn link(&self, conn: &Connection, peer: &LinkHello, solicited: bool) -> Link {
        let account = conn.session().account.clone();
        let is_system = account.id == self.server.accounts.system().id;
        Link::new(PeerFacts {
            node: Some(if is_system { NodeAccount::System } else { NodeAccount::Ordinary }),
            solicited,
            headers: true,
            knows_by_table: peer.version.knows_by_table(),
            is_core: peer.beyond.as_ref().is_some_and(|beyond| beyond.is_core),
            remote_name: peer.node.clone(),
            // The same for all: what came over one of them goes over no other one.
            remote_cluster: self.cluster_mark(),
            remote_account: account.name.clone(),
            token: random_token(TOKEN_CHARS),
            ..PeerFacts::default()
        })
    }

    /// What no cluster of leaf nodes is called.
    fn cluster_mark(&self) -> String {
        format!("node of {:032x}", self.cluster.id())
    }

    /// Ends connections to nodes that were removed: one whose process hangs would listen for ever.
    fn end_removed(&self) {
        let removed = self.cluster.removed();
        if removed.is_empty() {
            return;
        }
        for conn in self.server.nodes.connections.open() {
            if conn.link().is_some_and(|link| removed.contains(&link.remote_name)) {
                conn.close(CloseReason::NodeRemoved, None);
            }
        }
    }

    /// A node that comes back may be faster than the end of its connection before: that one ends now.
    fn replace_older(&self, conn: &Arc<Connection>, node: &str) {
        let account = conn.session().account.clone();
        for other in self.server.nodes.connections.open() {
            let is_older = !Arc::ptr_eq(&other, conn)
                && Arc::ptr_eq(&other.session().account, &account)
                && other.link().is_some_and(|link| link.remote_name == node);
            if is_older {
                other.close(CloseReason::DuplicateLeaf, None);
                leaf::leave(&other);
                other.drop_subscriptions();
            }
        }
    }

    async fn joined(&self, conn: &Connection, peer: &LinkHello, at: IpAddr) {
        let (account, node) = (conn.session().account.name.clone(), &peer.node);
        self.server.log.info(format_args!("{conn} - Node {node} is connected, account {account}"));
        let (urls, core_port) = (hello::urls_of(peer, at), hello::core_port_of(peer, at));
        if self.server.nodes.joined(node, &account, &urls, core_port) {
            self.server.tell_clients().await;
        }
    }

    fn left(&self, conn: &Connection, node: &str, reason: Option<CloseReason>) {
        let account = conn.session().account.name.clone();
        let reason = reason.map_or("", CloseReason::text);
        self.server.log.warn(format_args!(
            "{conn} - Node {node} is connected no more, account {account}: {reason}"
        ));
        let Some(gone) = self.server.nodes.left(node, &account) else { return };
        let (server, node) = (self.server.clone(), node.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(GONE).await;
            if server.nodes.forget(&node, gone) {
                server.tell_clients().await;
            }
        });
    }
}

/// Small messages go out at once, and a node whose machine is gone is missed.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(3 * KEEPALIVE))
}

/// Both directions of a socket without TLS.
fn halves(stream: &Arc<TcpStream>) -> (Socket, Socket) {
    (Socket(stream.clone()), Socket(stream.clone()))
}
