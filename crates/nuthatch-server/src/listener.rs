//! Accepting clients.

use crate::conn::reader::Reader;
use crate::conn::{CloseReason, Connection, writer};
use crate::info::new_nonce;
use crate::server::Server;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// After a failure to accept (too many open files, say) try again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

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
    let mut pause = ACCEPT_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                pause = ACCEPT_PAUSE;
                if server.lame_duck.load(Ordering::Relaxed) {
                    continue;
                }
                let server = server.clone();
                tokio::spawn(async move { open(server, stream, remote).await });
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

/// Greets a client and starts the tasks of its connection.
async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let id = server.connections.next_id();
    let conn = Arc::new(Connection::new(server.clone(), id, remote));
    let auth = server.auth();
    let nonce = if auth.needs_nonce() { new_nonce() } else { String::new() };
    let greeting = server.info().for_connection(&conn, &nonce).encode();
    conn.session().account.connections.fetch_add(1, Ordering::Relaxed);
    let options = server.options();
    let timeout = auth.is_configured().then_some(options.auth.timeout);
    server.log.debug(format_args!("{conn} - Client connection created"));
    let admitted = server.connections.add(&conn, options.limits.max_connections as usize);
    conn.set_socket(stream.clone());
    match server.tls.load_full() {
        None => {
            conn.outbox.set_socket(Some(stream.clone()));
            conn.send(&greeting);
            refuse_unless(admitted, &conn);
            let reader = Reader::new(conn.clone(), nonce);
            tokio::spawn(writer::run(conn, Socket(stream.clone()), stream.clone(), timeout));
            reader.run(Socket(stream)).await;
        }
        Some(config) => {
            let mut socket = Socket(stream.clone());
            if crate::tls::greet(&mut socket, &greeting).await.is_err() {
                return forget(&conn, CloseReason::WriteError);
            }
            let limit = options.tls.as_ref().map_or(Duration::from_secs(2), |tls| tls.timeout);
            let Some(secure) = crate::tls::accept(&conn, config, socket, limit).await else {
                return forget(&conn, CloseReason::TlsHandshakeError);
            };
            refuse_unless(admitted, &conn);
            let (input, output) = tokio::io::split(secure);
            let reader = Reader::new(conn.clone(), nonce);
            tokio::spawn(writer::run(conn, output, stream, timeout));
            reader.run(input).await;
        }
    }
}

fn refuse_unless(admitted: bool, conn: &Connection) {
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
