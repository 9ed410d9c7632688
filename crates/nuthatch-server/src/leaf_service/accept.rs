//! Accepting leaf nodes.

use crate::close_reason::CloseReason;
use crate::conn::{Connection, Transport};
use crate::leaf::hello::LeafInfo;
use crate::leafs::LEAFS_MAX;
use crate::options::{HandshakeFirst, TlsOptions};
use crate::random::new_nonce;
use crate::reader::{ConnReader, LeafSide};
use crate::server::Server;
use crate::socket::{Socket, accept_each};
use crate::tls::TlsInfo;
use crate::tls::{self, Secure};
use crate::writer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Accepts leaf nodes until the task is dropped.
pub async fn run(server: Arc<Server>, listener: TcpListener) {
    let open = |stream, remote| open(server.clone(), stream, remote);
    accept_each(&listener, &server.log, || server.lame_duck.load(Ordering::Relaxed), open).await;
}

/// A server that has connected and not been greeted yet.
struct Newcomer {
    server: Arc<Server>,
    conn: Arc<Connection>,
    stream: Arc<TcpStream>,
    nonce: String,
    auth_timeout: Duration,
}

async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let options = server.options();
    let Some(options) = &options.leafnodes else { return };
    let id = server.connections.fresh_id();
    let conn = server.connect(id, remote, Transport::Leaf);
    conn.set_socket(stream.clone());
    server.log.info(format_args!("{conn} - Leafnode connection created"));
    let admitted = server.leafs.connections.add(&conn, LEAFS_MAX);
    let auth_timeout = options.auth_timeout();
    let tls = server.tls.leafs.load_full();
    let newcomer = Newcomer {
        server: server.clone(),
        conn: conn.clone(),
        stream,
        nonce: new_nonce(),
        auth_timeout,
    };
    if !admitted {
        server.log.error(format_args!("{conn} - more than {LEAFS_MAX} leaf nodes"));
        return newcomer.forget(CloseReason::MaxConnectionsExceeded);
    }
    match (tls, &options.tls) {
        (Some(config), Some(tls)) => newcomer.run_tls(config, tls).await,
        _ => newcomer.run_plain().await,
    }
}

impl Newcomer {
    fn greeting(&self) -> Vec<u8> {
        LeafInfo::greeting(&self.server, &self.conn, &self.nonce).encode()
    }

    fn forget(&self, reason: CloseReason) {
        self.conn.close(reason, None);
        self.server.leafs.connections.remove(&self.conn, 0);
    }

    async fn run_plain(self) {
        let stream = self.stream.clone();
        self.conn.outbox().set_socket(Some(stream.clone()));
        self.conn.send(&self.greeting());
        self.run(Socket(stream.clone()), Socket(stream)).await;
    }

    async fn run_tls(self, config: Arc<rustls::ServerConfig>, tls: &TlsOptions) {
        let first = match tls.handshake_first {
            HandshakeFirst::No => false,
            HandshakeFirst::Yes => true,
            HandshakeFirst::Within(time) => self.is_first(time).await,
        };
        if !first {
            let mut socket = Socket(self.stream.clone());
            if socket.write_all(&self.greeting()).await.is_err() {
                return self.forget(CloseReason::WriteError);
            }
        }
        let (server, socket) = (&self.server, Socket(self.stream.clone()));
        let done = tls::handshake(&server.log, &self.conn, config, tls, socket, tls.timeout).await;
        let Some(Secure { stream, info }) = done else {
            return self.forget(CloseReason::TlsHandshakeError);
        };
        let _ = self.conn.tls.set(TlsInfo { first, ..info });
        if first {
            self.conn.send(&self.greeting());
        }
        let (input, output) = tokio::io::split(stream);
        self.run(input, output).await;
    }

    /// True if the other side begins within this time.
    async fn is_first(&self, time: Duration) -> bool {
        let mut byte = [0];
        let peeked = tokio::time::timeout(time, self.stream.peek(&mut byte)).await;
        matches!(peeked, Ok(Ok(1)))
    }

    async fn run<R, W>(self, input: R, output: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let Self { server, conn, stream, nonce, auth_timeout } = self;
        let reader = ConnReader::of_leaf(server.clone(), conn.clone(), nonce, LeafSide::default());
        tokio::spawn(writer::run(server, conn, output, stream, Some(auth_timeout)));
        reader.run(input).await;
    }
}
