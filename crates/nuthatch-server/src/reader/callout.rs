//! Asking a service who a client is (auth callout).

use super::ConnReader;
use crate::account::Account;
use crate::auth::Service;
use crate::callout::{CalloutError, Expected};
use crate::conn::Connection;
use crate::credentials::KeyPair;
use crate::identity::{Credentials, Identity};
use crate::options::CALLOUT_SUBJECT;
use crate::own_requests::Answers;
use crate::random::random_token;
use crate::server::Server;
use crate::version::NATS_VERSION;
use crate::xkey::SEAL_BYTES;
use bytes::Bytes;
use nuthatch_protocol::jwt::{
    AuthorizationRequest, ClientInformation, ClientTls, ConnectOptions, MAX_TOKEN_BYTES, NewToken,
    ServerIdentity, encode,
};
use nuthatch_protocol::nkey::{KeyKind, PublicKey};
use nuthatch_streams::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Header of a sealed request: the public key of the server that sealed it.
const XKEY_HEADER: &str = "Nats-Server-Xkey";
/// Audience of a request.
const AUDIENCE: &str = "nats-authorization-request";
/// Characters of a request's id.
const ID_CHARS: usize = 52;

/// What a client says about itself beside its credentials.
#[derive(Clone, Copy, Default)]
pub(super) struct Introduction<'a> {
    pub(super) name: &'a str,
    pub(super) lang: &'a str,
    pub(super) version: &'a str,
    pub(super) protocol: i64,
}

impl ConnReader {
    /// Asks the service and waits for its response, as long as a client has to authenticate.
    pub(super) async fn ask_service(
        &self,
        service: &Service,
        credentials: &Credentials,
        introduction: Introduction<'_>,
    ) -> Result<Identity, CalloutError> {
        let account = || service.account().to_owned();
        let from = self.conn.remote.get().ip();
        let _place = self.server.slow_checks.place_to_ask(from).ok_or(CalloutError::TooMany)?;
        let timeout = self.server.options().auth.timeout;
        // What is left of the time for its CONNECT does not count any more.
        let _asking = Asking::begin(&self.conn);
        let user = KeyPair::random(KeyKind::User).public();
        let body = self.request(service, credentials, introduction, &user, timeout);
        let listens = self.server.accounts.by_name(service.account());
        let listens = listens.ok_or_else(|| CalloutError::NoAccount { account: account() })?;
        let request = Request::new(&self.server, body, service.xkey());
        let Some(response) = self.call(listens, &request, timeout).await else {
            return Err(CalloutError::Silent { account: account() });
        };
        if response.is_empty() {
            return Err(CalloutError::Empty { account: account() });
        }
        let expected = Expected {
            service,
            xkey: &self.server.key.curve,
            server: &self.server.id,
            user: &user,
            shown: shown(credentials, service),
            origin: &credentials.origin,
        };
        let mut judged = expected.identity(&response, SystemTime::now());
        if let Err(CalloutError::Placement(why)) = &judged
            && let Some(account) = why.account()
            && self.fetched(account).await
        {
            judged = expected.identity(&response, SystemTime::now());
        }
        let identity = judged?;
        if let Service::Configured(callout) = service
            && self.server.auth().callout() != Some(callout)
        {
            return Err(CalloutError::Changed);
        }
        if !self.server.serves_account(&identity.account) {
            return Err(CalloutError::NoAccount { account: identity.account });
        }
        Ok(identity)
    }

    /// Sends a request in the service's account. Without a listener it waits as long as for a silent one:
    /// a client that is refused at once tries again at once, and many give up after the second time.
    async fn call(
        &self,
        account: Arc<Account>,
        request: &Request,
        timeout: Duration,
    ) -> Option<Bytes> {
        // The first one counts; further ones go nowhere.
        let bounds = (1, MAX_TOKEN_BYTES + SEAL_BYTES);
        let mut responses = Answers::subscribe(&self.server, account, bounds);
        let Request { headers, body } = request;
        let subject = CALLOUT_SUBJECT.as_bytes();
        let message = Message { subject, reply: responses.subject(), headers, body };
        self.server.publish(responses.account().id, &message);
        tokio::time::timeout(timeout, responses.next()).await.ok()?
    }

    /// The token that asks.
    fn request(
        &self,
        service: &Service,
        credentials: &Credentials,
        introduction: Introduction<'_>,
        user: &str,
        timeout: Duration,
    ) -> String {
        let server = &self.server;
        let (options, info) = (server.options(), server.info());
        let host = self.conn.remote.get().ip().to_string();
        let client_tls =
            self.conn.tls.get().map(|tls| ClientTls { version: &tls.version, cipher: &tls.cipher });
        let request = AuthorizationRequest {
            server_id: ServerIdentity {
                name: &server.name,
                host: &info.host,
                id: &server.id,
                version: NATS_VERSION,
                cluster: info.cluster.as_deref(),
                tags: &options.server_tags,
                xkey: service.xkey().is_some().then_some(info.xkey.as_str()),
            },
            user_nkey: user,
            client_info: self.client_information(service, credentials, introduction, &host),
            connect_opts: connect_options(service, credentials, introduction),
            client_tls,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let token = NewToken {
            kind: "authorization_request",
            id: &random_token(ID_CHARS),
            audience: AUDIENCE,
            subject: service.issuer(),
            issuer: &server.id,
            issued_at: now.as_secs(),
            expires: (now + timeout).as_secs(),
        };
        encode(&token, &request, &|message| server.key.signing.sign_bytes(message))
    }

    fn client_information<'a>(
        &'a self,
        service: &'a Service,
        credentials: &'a Credentials,
        introduction: Introduction<'a>,
        host: &'a str,
    ) -> ClientInformation<'a> {
        let claims = service.grant().map(|grant| &grant.claims);
        ClientInformation {
            host,
            id: self.conn.id,
            user: shown(credentials, service),
            name: introduction.name,
            tags: claims.map_or(&[], |claims| &claims.nats.tags),
            name_tag: claims.map_or("", |claims| &claims.data.name),
            kind: if self.conn.is_leaf() { "Leafnode" } else { "Client" },
            r#type: self.conn.client_type(),
            nonce: if credentials.signature.is_empty() { "" } else { &self.nonce },
        }
    }
}

fn connect_options<'a>(
    service: &'a Service,
    credentials: &'a Credentials,
    introduction: Introduction<'a>,
) -> ConnectOptions<'a> {
    ConnectOptions {
        // The one that stands in for those who show none, too.
        jwt: service.grant().map_or(&credentials.jwt, |grant| &grant.jwt),
        nkey: &credentials.nkey,
        signed_nonce: &credentials.signature,
        token: &credentials.token,
        user: &credentials.user,
        password: &credentials.password,
        name: introduction.name,
        lang: introduction.lang,
        version: introduction.version,
        protocol: introduction.protocol,
    }
}

/// The user that credentials show. A token is a secret, which names nobody (`getRawAuthUser` of
/// nats-server).
fn shown<'a>(credentials: &'a Credentials, service: &'a Service) -> &'a str {
    let by_token = || service.grant().map(|grant| grant.claims.data.subject.as_str());
    match (&*credentials.nkey, &*credentials.user, &*credentials.token) {
        ("", "", "") => by_token().unwrap_or_default(),
        ("", "", _token) => by_token().unwrap_or("[REDACTED]"),
        ("", user, _) => user,
        (nkey, ..) => nkey,
    }
}

/// What the service is sent.
struct Request {
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Request {
    /// A token, encrypted if the service has a key for that.
    fn new(server: &Server, token: String, service: Option<PublicKey>) -> Self {
        let Some(service) = service else {
            return Self { headers: Vec::new(), body: token.into_bytes() };
        };
        let curve = &server.key.curve;
        let headers = format!("NATS/1.0\r\n{XKEY_HEADER}: {}\r\n\r\n", curve.public());
        Self { headers: headers.into_bytes(), body: curve.seal(token.as_bytes(), &service) }
    }
}

/// As long as a connection waits for the service, its writer knows.
struct Asking<'a>(&'a Connection);

impl<'a> Asking<'a> {
    fn begin(conn: &'a Connection) -> Self {
        conn.asks_service.store(true, Ordering::Relaxed);
        conn.connected.notify_one();
        Self(conn)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asks_service.store(false, Ordering::Relaxed);
    }
}
