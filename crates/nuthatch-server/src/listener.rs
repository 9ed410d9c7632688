//! Accepting clients, over TCP and over websocket.

pub(crate) mod local;
mod proxy_protocol;
pub mod websocket;

use self::proxy_protocol::read_header;
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Transport};
use crate::connections::Listened;
use crate::info::ServerInfo;
use crate::ocsp_peers::{self, PeerKind};
use crate::options::{HandshakeFirst, Options};
use crate::random::new_nonce;
use crate::reader::ConnReader;
use crate::server::Server;
use crate::socket::{Socket, accept_each};
use crate::tls::TlsInfo;
use crate::tls::{self, ListenerTls, Secure};
use crate::writer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Error for a client that comes when `connection_rate_limit` is reached, and how long it has to
/// read it.
const THROTTLED: &[u8] = b"-ERR 'Connection throttling is active. Please try again later.'\r\n";
const THROTTLED_TIME: Duration = Duration::from_secs(1);

/// Accepts clients until the task is dropped.
pub async fn accept(server: Arc<Server>, listener: TcpListener) {
    let open = |stream, remote| open(server.clone(), stream, remote);
    accept_each(&listener, &server.log, || server.lame_duck.load(Ordering::Relaxed), open).await;
}

/// Counts a new connection in; `false`: there are too many, and it is to be refused.
pub(crate) fn register(server: &Server, conn: &Arc<Connection>) -> bool {
    conn.session().account.connections.fetch_add(1, Ordering::Relaxed);
    server.log.debug(format_args!("{conn} - Client connection created"));
    server.connections.add(conn, server.options().limits.max_connections as usize)
}

/// A client that has been accepted and not greeted yet.
struct Newcomer {
    server: Arc<Server>,
    conn: Arc<Connection>,
    stream: Arc<TcpStream>,
    options: Arc<Options>,
    nonce: String,
    admitted: bool,
}

/// Greets a client and starts the tasks of its connection.
async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let id = server.connections.next_id();
    let conn = server.connect(id, remote, Transport::Tcp);
    let nonce = if server.auth().needs_nonce() { new_nonce() } else { String::new() };
    let admitted = register(&server, &conn);
    conn.set_socket(stream.clone());
    let options = server.options();
    let tls = server.tls.clients.load_full();
    let newcomer = Newcomer { server, conn, stream, options, nonce, admitted };
    match tls {
        None if newcomer.options.proxy_protocol => newcomer.run_proxied().await,
        None => newcomer.run_plain(true).await,
        Some(config) => newcomer.run_tls(config).await,
    }
}

impl Newcomer {
    /// A client behind a proxy is not told the proxy's address as its own.
    fn greeting(&self) -> ServerInfo {
        let mut info = self.server.info_for(self.server.info(), &self.conn, &self.nonce);
        if self.options.proxy_protocol && !self.conn.remote.is_proxied() {
            info.client_ip.clear();
        }
        info
    }

    /// Greets at once, before the writer runs.
    async fn greet(&self) -> bool {
        let mut socket = Socket(self.stream.clone());
        let greeted = socket.write_all(&self.greeting().encode()).await.is_ok();
        if !greeted {
            forget(&self.server, &self.conn, CloseReason::WriteError);
        }
        greeted
    }

    /// Takes the PROXY header that may come first; `false`: the connection has ended.
    async fn take_proxy_header(&self) -> bool {
        match read_header(&self.stream).await {
            Ok(client) => {
                if let Some(client) = client {
                    self.conn.remote.set_proxied(client);
                }
                true
            }
            Err(why) => {
                let from = self.conn.remote.get();
                let line = format_args!("Error reading PROXY protocol header from {from}: {why}");
                self.server.log.warn(line);
                forget(&self.server, &self.conn, CloseReason::ProtocolViolation);
                false
            }
        }
    }

    async fn run_proxied(self) {
        // What comes when there are too many is refused without a look at it.
        if !self.admitted {
            return self.run_plain(true).await;
        }
        if self.greet().await && self.take_proxy_header().await {
            self.run_plain(false).await;
        }
    }

    fn auth_timeout(&self) -> Option<Duration> {
        let is_configured = self.server.auth().is_configured();
        is_configured.then_some(self.options.auth.timeout)
    }

    async fn run_plain(self, greet: bool) {
        let (conn, stream) = (self.conn.clone(), self.stream.clone());
        conn.outbox().set_socket(Some(stream.clone()));
        if greet {
            conn.send(&self.greeting().encode());
        }
        refuse_unless(&self.server, self.admitted, &conn);
        let reader = ConnReader::new(self.server.clone(), conn.clone(), self.nonce.clone());
        let timeout = self.auth_timeout();
        tokio::spawn(writer::run(
            self.server.clone(),
            conn,
            Socket(stream.clone()),
            stream.clone(),
            timeout,
        ));
        reader.run(Socket(stream)).await;
    }

    /// INFO and the handshake, in the order that the options say.
    async fn run_tls(self, config: Arc<ListenerTls>) {
        let options = self.options.clone();
        let Some(tls) = &options.tls else { return self.run_plain(true).await };
        let first = match tls.handshake_first {
            HandshakeFirst::No => false,
            HandshakeFirst::Yes => true,
            HandshakeFirst::Within(time) => self.first_byte(time).await.is_some(),
        };
        if !first && !self.greet().await {
            return;
        }
        // The header is plain text in front of the handshake.
        if options.proxy_protocol && !self.take_proxy_header().await {
            return;
        }
        let may_be_plain = !first && options.allow_non_tls;
        if may_be_plain && self.first_byte(tls.timeout).await != Some(TLS_HANDSHAKE) {
            return self.run_plain(false).await;
        }
        let server = &self.server;
        if let Some(limit) = tls.rate_limit
            && !server.handshakes.allows(limit, Instant::now())
        {
            let mut socket = Socket(self.stream.clone());
            // It has come too often already: whether it gets to read this is its own affair.
            let _ = tokio::time::timeout(THROTTLED_TIME, socket.write_all(THROTTLED)).await;
            return forget(&self.server, &self.conn, CloseReason::MaxConnectionsExceeded);
        }
        let socket = Socket(self.stream.clone());
        let done = tls::handshake(&server.log, &self.conn, &config, socket, tls.timeout).await;
        let Some(secure) = done else {
            return forget(&self.server, &self.conn, CloseReason::TlsHandshakeError);
        };
        let (kind, shown) = (PeerKind::Client, (&*config.roots, secure.presented()));
        let check = config.options.ocsp_peer.as_ref();
        if !ocsp_peers::admits(server, &self.conn, kind, check, shown).await {
            return forget(&self.server, &self.conn, CloseReason::TlsHandshakeError);
        }
        self.run_secure(secure, first).await;
    }

    async fn run_secure(self, secure: Secure, first: bool) {
        let conn = self.conn.clone();
        let _ = conn.tls.set(TlsInfo { first, ..secure.info });
        if first {
            conn.send(&self.greeting().requiring_tls().encode());
        }
        refuse_unless(&self.server, self.admitted, &conn);
        let (input, output) = tokio::io::split(secure.stream);
        let reader = ConnReader::new(self.server.clone(), conn.clone(), self.nonce.clone());
        tokio::spawn(writer::run(
            self.server.clone(),
            conn,
            output,
            self.stream.clone(),
            self.auth_timeout(),
        ));
        reader.run(input).await;
    }

    /// The first byte that the client sends within this time. It stays to be read.
    async fn first_byte(&self, time: Duration) -> Option<u8> {
        let mut byte = [0];
        let peeked = tokio::time::timeout(time, self.stream.peek(&mut byte)).await;
        matches!(peeked, Ok(Ok(1))).then_some(byte[0])
    }
}

/// Refuses a connection that is one too many.
pub(crate) fn refuse_unless(server: &Server, admitted: bool, conn: &Connection) {
    if !admitted {
        refuse(server, conn);
    }
}

fn refuse(server: &Server, conn: &Connection) {
    server.log.error(format_args!("{conn} - maximum connections exceeded"));
    conn.close(CloseReason::MaxConnectionsExceeded, Some("maximum connections exceeded"));
}

/// Closes the newest connections if there are more than there may be now.
pub(crate) fn close_surplus(server: &Server) {
    let max = server.options().limits.max_connections as usize;
    let mut open = server.connections.open();
    open.retain(|conn| conn.is_open());
    open.sort_by_key(|conn| conn.id);
    let surplus = open.get(max..).unwrap_or_default();
    surplus.iter().for_each(|conn| refuse(server, conn));
    if !surplus.is_empty() {
        let count = surplus.len();
        server.log.info(format_args!("Closed {count} connections to fall within max_connections"));
    }
}

fn forget(server: &Server, conn: &Arc<Connection>, reason: CloseReason) {
    conn.close(reason, None);
    conn.session().account.connections.fetch_sub(1, Ordering::Relaxed);
    conn.session().account.connected_changed();
    server.connections.remove(conn, Listened::default());
}
