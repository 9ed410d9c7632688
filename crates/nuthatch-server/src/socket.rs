//! Sockets: listening, and one socket shared by a reading and a writing task.

use crate::logging::Logger;
use socket2::{Domain, Protocol, Socket as Socket2, Type};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Connections that wait to be accepted at most, as the standard library has it.
const LISTEN_BACKLOG: i32 = 1024;
/// After a failure to accept (too many open files, say) try again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// An address cannot be listened on: it is in use, or not ours.
#[derive(Debug, thiserror::Error)]
#[error("error listening on {what}: {address} - {source}")]
pub struct ListenError {
    /// The listener.
    pub what: &'static str,
    /// The address.
    pub address: String,
    /// Why not.
    pub source: io::Error,
}

/// Listens.
///
/// # Errors
/// [`ListenError`].
pub async fn bind(what: &'static str, host: &str, port: u16) -> Result<TcpListener, ListenError> {
    let any = match host {
        "0.0.0.0" | "::" => bind_any(port),
        _ => None,
    };
    let bound = match any {
        Some(bound) => bound,
        None => TcpListener::bind((host, port)).await,
    };
    bound.map_err(|source| ListenError { what, address: format!("{host}:{port}"), source })
}

/// Listens on every address of either family with one socket, as nats-server does for `0.0.0.0`.
/// `None`: this machine has no IPv6.
fn bind_any(port: u16) -> Option<io::Result<TcpListener>> {
    let socket = Socket2::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).ok()?;
    socket.set_only_v6(false).ok()?;
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listen = || {
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    match listen() {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
        bound => Some(bound),
    }
}

/// The port that a listener got.
pub fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().map_or(0, |address| address.port())
}

/// Hands every accepted socket to a task of its own until dropped; while it is `paused`, sockets are
/// closed at once.
pub(crate) async fn accept_each<F>(
    listener: &TcpListener,
    log: &Logger,
    paused: impl Fn() -> bool,
    open: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = ACCEPT_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                pause = ACCEPT_PAUSE;
                if !paused() {
                    // A client of IPv4 on a socket of both families has an address of IPv4.
                    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
                    tokio::spawn(open(stream, remote));
                }
            }
            Err(error) => {
                log.error(format_args!(
                    "Temporary Client Accept Error ({error}), sleeping {pause:?}"
                ));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// One listener for both families, and clients of IPv4 have addresses of IPv4.
    #[tokio::test]
    async fn any_address_is_any_of_either_family() {
        for host in ["0.0.0.0", "::"] {
            let listener = bind("test", host, 0).await.unwrap();
            let port = port_of(&listener);
            let (told, mut remotes) = tokio::sync::mpsc::unbounded_channel();
            let log = Logger::silent();
            let accepting = accept_each(
                &listener,
                &log,
                || false,
                |_, remote| {
                    let told = told.clone();
                    async move { told.send(remote.ip()).unwrap() }
                },
            );
            let connecting = async {
                for own in ["127.0.0.1", "::1"] {
                    let _stream = TcpStream::connect((own, port)).await.unwrap();
                    assert_eq!(remotes.recv().await.unwrap().to_string(), own, "{host}");
                }
            };
            tokio::select! {
                () = accepting => {}
                () = connecting => {}
            }
            assert!(bind("test", host, port).await.is_err(), "the port is taken");
        }
    }
}
