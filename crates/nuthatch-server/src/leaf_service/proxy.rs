//! Connecting through an HTTP proxy, which may be spoken to over TLS.

use super::tls;
use crate::options::{HttpProxy, RemoteTls};
use crate::socket::Socket;
use crate::tls::TlsError;
use crate::websocket::dial::read_head;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes of the head of the proxy's answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Headers of it that are looked at.
const HEADERS_MAX: usize = 64;

/// Why there is no connection through a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("failed to connect to proxy: {0}")]
    Connect(io::Error),
    #[error("no answer of the proxy within {0:?}")]
    Timeout(Duration),
    #[error("proxy TLS: {0}")]
    TlsFiles(#[from] TlsError),
    #[error("proxy TLS handshake failed: {0}")]
    Tls(String),
    #[error("failed to read proxy response: {0}")]
    Read(#[from] io::Error),
    #[error("the proxy's answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("the proxy's answer is no HTTP: {0}")]
    Unreadable(#[from] httparse::Error),
    #[error("proxy CONNECT failed: status {0}")]
    Status(u16),
}

/// What a connection to another server runs over.
pub(super) enum Wire {
    /// The socket itself.
    Plain(Socket),
    /// TLS towards a proxy.
    ToProxy(Box<TlsStream<Socket>>),
}

/// A connection, and the socket under it.
pub(super) struct Tunnel {
    pub(super) socket: Arc<TcpStream>,
    pub(super) wire: Wire,
}

impl Tunnel {
    /// Without a proxy.
    pub(super) fn direct(stream: TcpStream) -> Self {
        let socket = Arc::new(stream);
        Self { wire: Wire::Plain(Socket(socket.clone())), socket }
    }
}

/// A connection to `target` (`host:port`), each step within this time.
pub(super) async fn connect(
    proxy: &HttpProxy,
    target: &str,
    limit: Duration,
) -> Result<Tunnel, ProxyError> {
    let late = |_| ProxyError::Timeout(limit);
    let place = (proxy.host.as_str(), proxy.port);
    let connected = tokio::time::timeout(limit, TcpStream::connect(place)).await.map_err(late)?;
    let mut tunnel = Tunnel::direct(connected.map_err(ProxyError::Connect)?);
    if let Some(options) = &proxy.tls {
        let socket = Socket(tunnel.socket.clone());
        tunnel.wire = Wire::ToProxy(Box::new(secure(proxy, options, socket).await?));
    }
    let asked = ask(&mut tunnel.wire, proxy, target);
    tokio::time::timeout(limit, asked).await.map_err(late)??;
    Ok(tunnel)
}

async fn secure(
    proxy: &HttpProxy,
    options: &RemoteTls,
    socket: Socket,
) -> Result<TlsStream<Socket>, ProxyError> {
    let done = tls::connect(tls::load(options)?, options, &proxy.host, socket).await;
    Ok(done.map_err(ProxyError::Tls)?.0)
}

async fn ask(wire: &mut Wire, proxy: &HttpProxy, target: &str) -> Result<(), ProxyError> {
    let login = proxy.login.as_ref().map(|(user, password)| {
        let login = STANDARD.encode(format!("{user}:{}", password.expose()));
        format!("Proxy-Authorization: Basic {login}\r\n")
    });
    let login = login.unwrap_or_default();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n");
    wire.write_all(request.as_bytes()).await?;
    wire.flush().await?;
    let head = read_head(wire, ANSWER_BYTES_MAX).await?.ok_or(ProxyError::TooLong)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    answer.parse(&head)?;
    match answer.code.unwrap_or_default() {
        200 => Ok(()),
        status => Err(ProxyError::Status(status)),
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::ToProxy(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::ToProxy(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::ToProxy(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::ToProxy(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::ToProxy(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::ToProxy(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
