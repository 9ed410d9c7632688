//! A GET of a token from the HTTP server of `URL(…)`.

use crate::leaf_service::tls;
use crate::options::{DEFAULT_FETCH_TIMEOUT, RemoteTls, UrlResolver};
use crate::socket::Socket;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use nuthatch_protocol::jwt::MAX_TOKEN_BYTES;
use rustls::ClientConfig;
use std::sync::Arc;
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
    #[error("the answer is no text")]
    NoText,
}

/// The server, and how to reach it.
pub(super) struct AccountServer {
    pub(super) url: UrlResolver,
    tls: Option<(Arc<ClientConfig>, RemoteTls)>,
}

impl AccountServer {
    /// Reads the files of its TLS configuration.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn new(url: UrlResolver, tls: Option<RemoteTls>) -> Result<Self, String> {
        let load = || {
            let tls = tls.unwrap_or_default();
            tls::load(&tls).map(|config| (config, tls)).map_err(|error| error.to_string())
        };
        let tls = if url.tls { Some(load()?) } else { None };
        Ok(Self { url, tls })
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
        let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
        let socket = Socket(Arc::new(stream));
        match &self.tls {
            None => self.exchange(socket, name).await,
            Some((config, tls)) => {
                let secure = tls::connect(config.clone(), tls, &self.url.host, socket).await;
                self.exchange(secure.map_err(GetError::Tls)?.0, name).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, name: &str) -> Result<String, GetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut running = tokio::task::JoinSet::new();
        // It ends with this function.
        running.spawn(connection);
        let mut request = Request::get(format!("{}{name}", self.url.path))
            .header(header::HOST, self.url.authority())
            .header(header::USER_AGENT, concat!("nuthatch/", env!("CARGO_PKG_VERSION")));
        if let Some((user, password)) = &self.url.login {
            let login = STANDARD.encode(format!("{user}:{}", password.expose()));
            request = request.header(header::AUTHORIZATION, format!("Basic {login}"));
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        if answer.status() != StatusCode::OK {
            return Err(GetError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MAX_TOKEN_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => GetError::TooLarge,
            None => GetError::Body(error.to_string()),
        })?;
        String::from_utf8(body.to_bytes().into()).map_err(|_| GetError::NoText)
    }
}
