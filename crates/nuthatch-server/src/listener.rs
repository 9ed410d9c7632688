//! Accepting clients.

use crate::conn::reader::ConnReader;
use crate::conn::{CloseReason, Connection, TlsInfo, Transport, writer};
use crate::info::ServerInfo;
use crate::options::{HandshakeFirst, Options};
use crate::random::new_nonce;
use crate::server::Server;
use crate::tls::{self, Secure};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// After a failure to accept (too many open files, say) try again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Error for a client that comes when `connection_rate_limit` is reached, and how long it has to
/// read it.
const THROTTLED: &[u8] = b"-ERR 'Connection throttling is active. Please try again later.'\r\n";
const THROTTLED_TIME: Duration = Duration::from_secs(1);

/// A socket that is read by one task and written by others.
pub struct Socket(pub Arc<TcpStream>);

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(&mut Unfilled(buf)) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// A [`ReadBuf`] as a `BufMut`.
struct Unfilled<'a, 'b>(&'a mut ReadBuf<'b>);

// SAFETY: `advance_mut` counts bytes that the caller has initialised in `chunk_mut`, which is
// exactly what `assume_init` and `advance` of `ReadBuf` ask for.
unsafe impl bytes::BufMut for Unfilled<'_, '_> {
    fn remaining_mut(&self) -> usize {
        self.0.remaining()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: the caller has initialised `count` bytes.
        unsafe { self.0.assume_init(count) };
        self.0.advance(count);
    }

    fn chunk_mut(&mut self) -> &mut bytes::buf::UninitSlice {
        // SAFETY: nothing uninitialised is ever read through an `UninitSlice`.
        bytes::buf::UninitSlice::uninit(unsafe { self.0.unfilled_mut() })
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }
}

/// Accepts clients until the task is dropped.
pub async fn accept(server: Arc<Server>, listener: TcpListener) {
    accept_with(server, listener, open).await;
}

/// Hands every accepted socket to a task of its own until dropped.
pub(crate) async fn accept_with<F>(
    server: Arc<Server>,
    listener: TcpListener,
    open: impl Fn(Arc<Server>, TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = ACCEPT_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                pause = ACCEPT_PAUSE;
                if server.lame_duck.load(Ordering::Relaxed) {
                    continue;
                }
                tokio::spawn(open(server.clone(), stream, remote));
            }
            Err(error) => {
                server.log.error(format_args!(
                    "Temporary Client Accept Error ({error}), sleeping {pause:?}"
                ));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// Counts a new connection in; `false`: there are too many, and it is to be refused.
pub(crate) fn register(conn: &Arc<Connection>) -> bool {
    let server = conn.server();
    conn.session().account.connections.fetch_add(1, Ordering::Relaxed);
    server.log.debug(format_args!("{conn} - Client connection created"));
    server.connections.add(conn, server.options().limits.max_connections as usize)
}

/// A client that has been accepted and not greeted yet.
struct Newcomer {
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
    let conn = Arc::new(Connection::new(server.clone(), id, remote, Transport::Tcp));
    let nonce = if server.auth().needs_nonce() { new_nonce() } else { String::new() };
    let admitted = register(&conn);
    conn.set_socket(stream.clone());
    let options = server.options();
    let newcomer = Newcomer { conn, stream, options, nonce, admitted };
    match server.tls.load_full() {
        None => newcomer.run_plain(true).await,
        Some(config) => newcomer.run_tls(config).await,
    }
}

impl Newcomer {
    fn greeting(&self) -> ServerInfo {
        self.conn.server().info().for_connection(&self.conn, &self.nonce)
    }

    fn auth_timeout(&self) -> Option<Duration> {
        let is_configured = self.conn.server().auth().is_configured();
        is_configured.then_some(self.options.auth.timeout)
    }

    async fn run_plain(self, greet: bool) {
        let (conn, stream) = (self.conn.clone(), self.stream.clone());
        conn.outbox.set_socket(Some(stream.clone()));
        if greet {
            conn.send(&self.greeting().encode());
        }
        refuse_unless(self.admitted, &conn);
        let reader = ConnReader::new(conn.clone(), self.nonce.clone());
        let timeout = self.auth_timeout();
        tokio::spawn(writer::run(conn, Socket(stream.clone()), stream.clone(), timeout));
        reader.run(Socket(stream)).await;
    }

    /// INFO and the handshake, in the order that the options say.
    async fn run_tls(self, config: Arc<rustls::ServerConfig>) {
        let options = self.options.clone();
        let Some(tls) = &options.tls else { return self.run_plain(true).await };
        let first = match tls.handshake_first {
            HandshakeFirst::No => false,
            HandshakeFirst::Yes => true,
            HandshakeFirst::Within(time) => self.first_byte(time).await.is_some(),
        };
        if !first {
            let mut socket = Socket(self.stream.clone());
            if socket.write_all(&self.greeting().encode()).await.is_err() {
                return forget(&self.conn, CloseReason::WriteError);
            }
            if options.allow_non_tls && self.first_byte(tls.timeout).await != Some(TLS_HANDSHAKE) {
                return self.run_plain(false).await;
            }
        }
        let server = self.conn.server();
        if let Some(limit) = tls.rate_limit
            && !server.handshakes.allows(limit, Instant::now())
        {
            let mut socket = Socket(self.stream.clone());
            // It has come too often already: whether it gets to read this is its own affair.
            let _ = tokio::time::timeout(THROTTLED_TIME, socket.write_all(THROTTLED)).await;
            return forget(&self.conn, CloseReason::MaxConnectionsExceeded);
        }
        let socket = Socket(self.stream.clone());
        let done = tls::handshake(server, &self.conn, config, tls, socket, tls.timeout).await;
        match done {
            Some(secure) => self.run_secure(secure, first).await,
            None => forget(&self.conn, CloseReason::TlsHandshakeError),
        }
    }

    async fn run_secure(self, secure: Secure, first: bool) {
        let conn = self.conn.clone();
        let _ = conn.tls.set(TlsInfo { first, ..secure.info });
        if first {
            conn.send(&self.greeting().requiring_tls().encode());
        }
        refuse_unless(self.admitted, &conn);
        let (input, output) = tokio::io::split(secure.stream);
        let reader = ConnReader::new(conn.clone(), self.nonce.clone());
        tokio::spawn(writer::run(conn, output, self.stream.clone(), self.auth_timeout()));
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
pub(crate) fn refuse_unless(admitted: bool, conn: &Connection) {
    if !admitted {
        let log = &conn.server().log;
        log.error(format_args!("{conn} - maximum connections exceeded"));
        conn.close(CloseReason::MaxConnectionsExceeded, Some("maximum connections exceeded"));
    }
}

fn forget(conn: &Arc<Connection>, reason: CloseReason) {
    conn.close(reason, None);
    conn.session().account.connections.fetch_sub(1, Ordering::Relaxed);
    conn.server().connections.remove(conn, 0);
}
