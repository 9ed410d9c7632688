//! Asking a responder over HTTP (RFC 6960, appendix A).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of a response; those of public authorities have some 2 KiB at most.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Get,
    Post,
}

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("its address cannot be used")]
    Address,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("bad OCSP responder http status: [{}]", .0.as_u16())]
    Status(StatusCode),
    #[error("the answer has more than {RESPONSE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the answer is cut off: {0}")]
    Body(String),
}

/// True if an address is one of the web.
pub(super) fn is_web(address: &str) -> bool {
    place(address).is_some()
}

/// Whether it has TLS, and the host and port.
fn place(address: &str) -> Option<(bool, String, u16, Uri)> {
    let uri: Uri = address.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Some((tls, host, port, uri))
}

/// What a responder answers within this time.
///
/// # Errors
/// [`FetchError`].
pub(crate) async fn fetch(
    responder: &str,
    request: &[u8],
    way: Way,
    limit: Duration,
) -> Result<Vec<u8>, FetchError> {
    let asked = ask(responder, request, way);
    tokio::time::timeout(limit, asked).await.map_err(|_| FetchError::Timeout(limit))?
}

async fn ask(responder: &str, request: &[u8], way: Way) -> Result<Vec<u8>, FetchError> {
    let (tls, host, port, uri) = place(responder).ok_or(FetchError::Address)?;
    let message = message(&uri, request, way)?;
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    if !tls {
        return exchange(stream, message).await;
    }
    let name = ServerName::try_from(host).map_err(|_| FetchError::Address)?;
    exchange(TlsConnector::from(tls_config()?).connect(name, stream).await?, message).await
}

fn message(uri: &Uri, request: &[u8], way: Way) -> Result<Request<Full<Bytes>>, FetchError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let message = Request::builder()
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("nuthatch/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "application/ocsp-response");
    Ok(match way {
        Way::Post => message
            .method("POST")
            .uri(path)
            .header(header::CONTENT_TYPE, "application/ocsp-request")
            .body(Full::from(request.to_vec()))?,
        Way::Get => {
            let path = format!("{}/{}", path.trim_end_matches('/'), escaped(request));
            message.method("GET").uri(path).body(Full::default())?
        }
    })
}

/// Base64 as a part of a path.
fn escaped(request: &[u8]) -> String {
    let mut out = String::new();
    for c in STANDARD.encode(request).chars() {
        match c {
            '+' | '/' | '=' => {
                let _ = write!(out, "%{:02X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// TLS towards responders, by the authorities of the system.
fn tls_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    // Some of a system's authorities may be unreadable or of an odd kind.
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

async fn exchange<S>(stream: S, message: Request<Full<Bytes>>) -> Result<Vec<u8>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut running = tokio::task::JoinSet::new();
    // It ends with this function.
    running.spawn(connection);
    let answer = sender.send_request(message).await?;
    if !answer.status().is_success() {
        return Err(FetchError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => FetchError::TooLarge,
        None => FetchError::Body(error.to_string()),
    })?;
    Ok(body.to_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_and_what_is_asked() {
        let asked = |address: &str, way| {
            let (tls, host, port, uri) = place(address).unwrap();
            let message = message(&uri, &[0xfb, 0xff, 0x01, 0x00], way).unwrap();
            let host_header = message.headers()[header::HOST].to_str().unwrap().to_owned();
            format!("{tls} {host} {port} {host_header} {} {}", message.method(), message.uri())
        };
        assert_eq!(asked("http://ca", Way::Get), "false ca 80 ca GET /%2B%2F8BAA%3D%3D");
        assert_eq!(asked("http://ca:8/x/", Way::Get), "false ca 8 ca:8 GET /x/%2B%2F8BAA%3D%3D");
        assert_eq!(asked("https://[::1]/x", Way::Post), "true ::1 443 [::1] POST /x");
        for bad in ["ldap://ca", "ca", "http://", ""] {
            assert!(!is_web(bad), "{bad}");
        }
    }
}
