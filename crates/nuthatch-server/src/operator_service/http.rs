//! A GET of a token from the HTTP server of `URL(…)`.

use crate::leaf_service::tls;
use crate::options::{DEFAULT_FETCH_TIMEOUT, RemoteTls, UrlResolver};
use crate::socket::Socket;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use nuthatch_protocol::jwt::MAX_TOKEN_BYTES;
use rustls::ClientConfig;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub(super) enum GetError {
    #[error("no answer within {DEFAULT_FETCH_TIMEOUT:?}")]
    Timeout,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("{0}")]
    Status(StatusCode),
    #[error("the answer has more than {MAX_TOKEN_BYTES} bytes")]
    TooLarge,
    #[error("the answer is cut off: {0}")]
    Body(String),
    #[error("it leads elsewhere more than {REDIRECTS_MAX} times")]
    Redirects,
    #[error("it leads elsewhere without saying where")]
    NowhereElse,
    #[error("the answer is no text")]
    NoText,
}

/// Redirects that are followed until a token comes.
pub const REDIRECTS_MAX: usize = 10;

/// The server, and how to reach it.
pub(super) struct AccountServer {
    pub(super) url: UrlResolver,
    tls: RemoteTls,
    /// What the files of `tls` say, once it is needed.
    config: OnceLock<Arc<ClientConfig>>,
}

/// What is asked for next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    tls: bool,
    host: String,
    port: u16,
    /// Path and query.
    path: String,
    /// The server of the configuration: only it gets user and password.
    is_first: bool,
}

/// What a server has answered.
enum Got {
    Token(String),
    /// It is to be asked for elsewhere.
    Moved(Place),
}

impl AccountServer {
    /// Reads the files of its TLS configuration.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn new(url: UrlResolver, tls: Option<RemoteTls>) -> Result<Self, String> {
        let there = Self { tls: tls.unwrap_or_default(), config: OnceLock::new(), url };
        if there.url.tls {
            there.config()?;
        }
        Ok(there)
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let config = tls::load(&self.tls).map_err(|error| error.to_string())?;
        Ok(self.config.get_or_init(|| config).clone())
    }

    /// What the server has under this name.
    ///
    /// # Errors
    /// [`GetError`], after 1.9 s at the latest.
    pub(super) async fn get(&self, name: &str) -> Result<String, GetError> {
        let limit = DEFAULT_FETCH_TIMEOUT;
        tokio::time::timeout(limit, self.ask(name)).await.map_err(|_| GetError::Timeout)?
    }

    async fn ask(&self, name: &str) -> Result<String, GetError> {
        let mut place = Place {
            tls: self.url.tls,
            host: self.url.host.clone(),
            port: self.url.port,
            path: format!("{}{name}", self.url.path),
            is_first: true,
        };
        for _ in 0..=REDIRECTS_MAX {
            match self.ask_at(&place).await? {
                Got::Token(token) => return Ok(token),
                Got::Moved(to) => place = to,
            }
        }
        Err(GetError::Redirects)
    }

    async fn ask_at(&self, place: &Place) -> Result<Got, GetError> {
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
        let socket = Socket(Arc::new(stream));
        if !place.tls {
            return self.exchange(socket, place).await;
        }
        let config = self.config().map_err(GetError::Tls)?;
        let secure = tls::connect(config, &self.tls, &place.host, socket).await;
        self.exchange(secure.map_err(GetError::Tls)?.0, place).await
    }

    async fn exchange<S>(&self, stream: S, place: &Place) -> Result<Got, GetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut running = tokio::task::JoinSet::new();
        // It ends with this function.
        running.spawn(connection);
        let mut request = Request::get(&place.path)
            .header(header::HOST, place.authority())
            .header(header::USER_AGENT, concat!("nuthatch/", env!("CARGO_PKG_VERSION")));
        if let Some((user, password)) = self.url.login.as_ref().filter(|_| place.is_first) {
            let login = STANDARD.encode(format!("{user}:{}", password.expose()));
            request = request.header(header::AUTHORIZATION, format!("Basic {login}"));
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        if matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            let to = answer.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
            return to.and_then(|to| place.join(to)).map(Got::Moved).ok_or(GetError::NowhereElse);
        }
        if answer.status() != StatusCode::OK {
            return Err(GetError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MAX_TOKEN_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => GetError::TooLarge,
            None => GetError::Body(error.to_string()),
        })?;
        let token = String::from_utf8(body.to_bytes().into()).map_err(|_| GetError::NoText)?;
        Ok(Got::Token(token))
    }
}

impl Place {
    /// Where a `Location` leads from here; `None`: nowhere.
    fn join(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.tls { "https" } else { "http" };
        let here = self.path.split('?').next().unwrap_or_default();
        let dir = here.rfind('/').map_or("/", |at| &here[..=at]);
        let whole = match location {
            _ if location.contains("://") => location.to_owned(),
            _ if location.starts_with("//") => format!("{scheme}:{location}"),
            _ if location.starts_with('/') => format!("{scheme}://{}{location}", self.authority()),
            _ => format!("{scheme}://{}{dir}{location}", self.authority()),
        };
        let to: Uri = whole.parse().ok()?;
        let tls = match to.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let path = to.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let port = to.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = to.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { tls, host, port, path, is_first: false })
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn where_a_redirect_leads() {
        let here = Place {
            tls: true,
            host: "h".to_owned(),
            port: 1,
            path: "/a/b".to_owned(),
            is_first: true,
        };
        let to = |location: &str| {
            let to = here.join(location)?;
            assert!(!to.is_first, "nobody else gets the password");
            Some(format!("{} {} {}", to.tls, to.authority(), to.path))
        };
        assert_eq!(to("/x?y=1").unwrap(), "true h:1 /x?y=1");
        assert_eq!(to("c").unwrap(), "true h:1 /a/c");
        assert_eq!(to("http://o/p").unwrap(), "false o:80 /p");
        assert_eq!(to("https://[::1]:8/p#q").unwrap(), "true [::1]:8 /p");
        assert_eq!(to("//o").unwrap(), "true o:443 /");
        assert_eq!(to("ftp://o/p"), None);
        assert_eq!(to("no place"), None);
    }
}
