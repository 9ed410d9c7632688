//! The servers of one etcd: a connection to each, the token of a user, and which of them is asked.
//!
//! A request goes to the server that answered last; where that fails, to the next. Requests are such that they can be
//! repeated ([`crate::Etcd`]).

use crate::address::Address;
use crate::error::{EtcdError, OpenError};
use crate::messages::{AuthenticateRequest, AuthenticateResponse, TxnRequest, TxnResponse};
use crate::settings::{Credentials, Settings};
use crate::verdict::{Verdict, judge, told};
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Requests that may be under way to one server at a time; others wait, within [`CALL_MAX`].
pub const REQUESTS_MAX: usize = 16;

/// How long one server is given for a request, a new connection included.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(1);

/// With less time left no server is asked.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);

/// How long a request is repeated, at all servers in turn.
pub const CALL_MAX: Duration = Duration::from_secs(2);

/// Pause when all servers have failed once; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(20);

const PAUSE_MAX: Duration = Duration::from_millis(400);

/// A request that waits asks for a sign of life after so long. etcd takes it ill more often than every 5 s, and without a request.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A connection on which nothing is sent is looked at so often by TCP.
const TCP_KEEPALIVE: Duration = Duration::from_secs(10);

/// Bytes of an answer at most: a page of values.
const ANSWER_MAX: usize = (crate::PAGE_KEYS + 1) * crate::VALUE_MAX;

const TXN: &str = "/etcdserverpb.KV/Txn";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

type Token = MetadataValue<Ascii>;

/// What is asked, as errors tell it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) operation: &'static str,
    pub(crate) key: String,
}

pub(crate) struct Servers {
    servers: Vec<Server>,
    /// Place of the one that is asked first.
    current: AtomicUsize,
    credentials: Option<Credentials>,
    /// Held while a new one is asked for, which costs etcd a tenth of a second of a processor.
    token: AsyncMutex<Option<Token>>,
    pub(crate) prefix: String,
}

struct Server {
    /// Its host and port.
    name: String,
    endpoint: Endpoint,
    channel: Mutex<Channel>,
}

impl Servers {
    /// Connects to none yet. Within a runtime only.
    pub(crate) fn new(address: Address, settings: Settings) -> Result<Self, OpenError> {
        settings.check(address.tls)?;
        let server = |name: &String| {
            let endpoint = endpoint(&address, name, &settings)?;
            let channel = Mutex::new(endpoint.connect_lazy());
            Ok(Server { name: name.clone(), endpoint, channel })
        };
        let servers = address.endpoints.iter().map(server).collect::<Result<_, OpenError>>()?;
        Ok(Self {
            servers,
            current: AtomicUsize::new(0),
            credentials: settings.credentials,
            token: AsyncMutex::default(),
            prefix: address.prefix,
        })
    }

    /// Carries out a transaction at one server or several, as long as [`CALL_MAX`]. It may be carried out more than once.
    pub(crate) async fn txn(
        &self,
        asked: Asked,
        request: TxnRequest,
    ) -> Result<TxnResponse, EtcdError> {
        let deadline = Instant::now() + CALL_MAX;
        let (mut failures, mut pause) = (0, PAUSE_FIRST);
        loop {
            let place = self.current.load(Ordering::Relaxed);
            let server = &self.servers[place % self.servers.len()];
            let limit = ATTEMPT_MAX.min(deadline.saturating_duration_since(Instant::now()));
            let why = match timeout(limit, self.attempt(server, &request)).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(status)) => match self.refusal(&status, &asked) {
                    Some(refusal) => {
                        self.leave(place);
                        return Err(refusal);
                    }
                    None => told(&status),
                },
                Err(_) => {
                    server.connect_anew();
                    "no answer in time".to_owned()
                }
            };
            self.leave(place);
            failures += 1;
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest < ATTEMPT_MIN {
                let Asked { operation, key } = asked;
                return Err(EtcdError::Away { operation, key, endpoint: server.name.clone(), why });
            }
            if failures % self.servers.len() == 0 {
                sleep(pause.min(rest - ATTEMPT_MIN)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// The next request goes to another server: what this one said may be its own trouble alone. Others may have turned
    /// to the next one already.
    fn leave(&self, place: usize) {
        let next = place.wrapping_add(1);
        let _ = self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// [`Servers::leave`] for the server that answered last.
    pub(crate) fn turn(&self) {
        self.leave(self.current.load(Ordering::Relaxed));
    }

    /// One request to one server. A token that is not valid any more is renewed once.
    async fn attempt(&self, server: &Server, request: &TxnRequest) -> Result<TxnResponse, Status> {
        let token = self.token(server).await?;
        let answer: Result<TxnResponse, Status> =
            server.call(TXN, request.clone(), token.as_ref()).await;
        match answer {
            Err(status) if judge(&status) == Verdict::OldToken && self.credentials.is_some() => {
                // Another call may have a newer one already.
                self.token.lock().await.take_if(|known| Some(&*known) == token.as_ref());
                let token = self.token(server).await?;
                server.call(TXN, request.clone(), token.as_ref()).await
            }
            answer => answer,
        }
    }

    /// The user's token; none without a user, and where etcd has no users.
    async fn token(&self, server: &Server) -> Result<Option<Token>, Status> {
        let Some(Credentials { user, password }) = &self.credentials else { return Ok(None) };
        let mut known = self.token.lock().await;
        if known.is_some() {
            return Ok(known.clone());
        }
        let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let answer: Result<AuthenticateResponse, Status> =
            server.call(AUTHENTICATE, request, None).await;
        let answer = match answer {
            Err(status) if judge(&status) == Verdict::NoUsers => return Ok(None),
            answer => answer?,
        };
        let mut token = Token::try_from(answer.token)
            .map_err(|_| Status::internal("etcd gave a token that is none"))?;
        token.set_sensitive(true);
        *known = Some(token);
        Ok(known.clone())
    }

    /// Why a request is not to be repeated; none: it may be.
    fn refusal(&self, status: &Status, asked: &Asked) -> Option<EtcdError> {
        let user = self.credentials.as_ref().map(|known| known.user.clone());
        let Asked { operation, key } = asked.clone();
        Some(match judge(status) {
            Verdict::Passing | Verdict::NoUsers => return None,
            // The token that was just given was forgotten at once.
            Verdict::OldToken if user.is_some() => return None,
            Verdict::NoUser | Verdict::OldToken => EtcdError::NoUser,
            Verdict::NoSpace => EtcdError::NoSpace,
            Verdict::WrongPassword => EtcdError::WrongPassword { user: user.unwrap_or_default() },
            Verdict::Forbidden => {
                let user =
                    user.map_or_else(|| "this node".to_owned(), |user| format!("user {user:?}"));
                EtcdError::Forbidden { user, key, prefix: format!("{}/", self.prefix) }
            }
            Verdict::Refused(why) => EtcdError::Refused { operation, key, why },
        })
    }
}

impl Server {
    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        token: Option<&Token>,
    ) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let channel = self.channel.lock().clone();
        let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_MAX);
        client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut request = Request::new(request);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token.clone());
        }
        let path = PathAndQuery::from_static(path);
        let answer = client.unary(request, path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// What has not answered in time may never: a server that is gone closes nothing.
    fn connect_anew(&self) {
        *self.channel.lock() = self.endpoint.connect_lazy();
    }
}

fn endpoint(address: &Address, name: &str, settings: &Settings) -> Result<Endpoint, OpenError> {
    let certificates =
        |error: tonic::transport::Error| OpenError::Certificates { why: told(&error) };
    let endpoint = Endpoint::from_shared(address.http(name)).map_err(certificates)?;
    let endpoint = endpoint
        .connect_timeout(ATTEMPT_MAX)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(TCP_KEEPALIVE))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(ATTEMPT_MAX)
        .keep_alive_while_idle(false)
        .concurrency_limit(REQUESTS_MAX)
        .buffer_size(REQUESTS_MAX);
    if !address.tls {
        return Ok(endpoint);
    }
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let tls = ClientTlsConfig::new().domain_name(host.trim_matches(['[', ']']));
    let tls = match &settings.ca {
        Some(ca) if !has_certificate(ca) => {
            let why = "the file of NUTHATCH_ETCD_CA_FILE holds none (PEM)".to_owned();
            return Err(OpenError::Certificates { why });
        }
        Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
        None => tls.with_native_roots(),
    };
    let tls = match &settings.identity {
        Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
        None => tls,
    };
    endpoint.tls_config(tls).map_err(certificates)
}

fn has_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
}
