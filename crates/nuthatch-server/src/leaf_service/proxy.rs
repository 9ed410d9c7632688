//! Connecting through an HTTP proxy.

use crate::options::HttpProxy;
use crate::websocket::dial::read_head;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Bytes of the head of the proxy's answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Headers of it that are looked at.
const HEADERS_MAX: usize = 64;

/// Why there is no connection through a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("failed to connect to proxy: {0}")]
    Connect(std::io::Error),
    #[error("no answer of the proxy within {0:?}")]
    Timeout(Duration),
    #[error("failed to read proxy response: {0}")]
    Read(#[from] std::io::Error),
    #[error("the proxy's answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("the proxy's answer is no HTTP: {0}")]
    Unreadable(#[from] httparse::Error),
    #[error("proxy CONNECT failed: status {0}")]
    Status(u16),
}

/// A connection to `target` (`host:port`), each step within this time.
pub(super) async fn connect(
    proxy: &HttpProxy,
    target: &str,
    limit: Duration,
) -> Result<TcpStream, ProxyError> {
    let late = |_| ProxyError::Timeout(limit);
    let place = (proxy.host.as_str(), proxy.port);
    let connected = tokio::time::timeout(limit, TcpStream::connect(place)).await.map_err(late)?;
    let mut stream = connected.map_err(ProxyError::Connect)?;
    tokio::time::timeout(limit, ask(&mut stream, proxy, target)).await.map_err(late)??;
    Ok(stream)
}

async fn ask(stream: &mut TcpStream, proxy: &HttpProxy, target: &str) -> Result<(), ProxyError> {
    let login = proxy.login.as_ref().map(|(user, password)| {
        let login = STANDARD.encode(format!("{user}:{}", password.expose()));
        format!("Proxy-Authorization: Basic {login}\r\n")
    });
    let login = login.unwrap_or_default();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let head = read_head(stream, ANSWER_BYTES_MAX).await?.ok_or(ProxyError::TooLong)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    answer.parse(&head)?;
    match answer.code.unwrap_or_default() {
        200 => Ok(()),
        status => Err(ProxyError::Status(status)),
    }
}
