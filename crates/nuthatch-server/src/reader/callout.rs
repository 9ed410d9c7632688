//! Asking a service who a client is (auth callout).

use super::ConnReader;
use crate::account::Account;
use crate::auth::CALLOUT_SUBJECT;
use crate::callout::{CalloutError, Expected};
use crate::conn::Connection;
use crate::credentials::KeyPair;
use crate::egress::{DeliveryContext, Outgoing};
use crate::identity::{Credentials, Identity};
use crate::options::AuthCallout;
use crate::random::random_token;
use crate::subscription::{Receiver, Subscription};
use crate::version::NATS_VERSION;
use bytes::Bytes;
use nuthatch_protocol::jwt::{
    AuthorizationRequest, ClientInformation, ClientTls, ConnectOptions, MAX_TOKEN_BYTES, NewToken,
    ServerIdentity, encode,
};
use nuthatch_protocol::nkey::KeyKind;
use nuthatch_streams::Message;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Audience of a request.
const AUDIENCE: &str = "nats-authorization-request";
/// Characters of a reply subject that nobody can guess.
const REPLY_CHARS: usize = 22;
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
        callout: &AuthCallout,
        credentials: &Credentials,
        introduction: Introduction<'_>,
    ) -> Result<Identity, CalloutError> {
        let account = || callout.account.clone();
        let from = self.conn.remote.get().ip();
        let _place = self.server.slow_checks.place_to_ask(from).ok_or(CalloutError::TooMany)?;
        let timeout = self.server.options().auth.timeout;
        // What is left of the time for its CONNECT does not count any more.
        let _asking = Asking::begin(&self.conn);
        let user = KeyPair::random(KeyKind::User).public();
        let body = self.request(callout, credentials, introduction, &user, timeout);
        let listens = self.server.accounts.by_name(&callout.account);
        let listens = listens.ok_or_else(|| CalloutError::NoAccount { account: account() })?;
        let Some(response) = self.call(listens, body.as_bytes(), timeout).await else {
            return Err(CalloutError::Silent { account: account() });
        };
        if response.is_empty() {
            return Err(CalloutError::Empty { account: account() });
        }
        let expected = Expected {
            callout,
            server: &self.server.id,
            user: &user,
            shown: shown(credentials),
            origin: &credentials.origin,
        };
        let identity = expected.identity(&response, SystemTime::now())?;
        if self.server.auth().callout().is_none_or(|now| **now != *callout) {
            return Err(CalloutError::Changed);
        }
        if !self.server.serves_account(&identity.account) {
            return Err(CalloutError::NoAccount { account: identity.account });
        }
        Ok(identity)
    }

    /// Sends a request in the service's account. Without a listener it waits as long as for a silent one:
    /// a client that is refused at once tries again at once, and many give up after the second time.
    async fn call(&self, account: Arc<Account>, body: &[u8], timeout: Duration) -> Option<Bytes> {
        let (sender, response) = oneshot::channel();
        let reply = Reply::subscribe(self, account, sender);
        let subject = CALLOUT_SUBJECT.as_bytes();
        let message = Message { subject, reply: &reply.sub.subject, headers: b"", body };
        self.server.publish(reply.account.id, &message);
        tokio::time::timeout(timeout, response).await.ok()?.ok()
    }

    /// The token that asks.
    fn request(
        &self,
        callout: &AuthCallout,
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
                xkey: None,
            },
            user_nkey: user,
            client_info: self.client_information(credentials, introduction, &host),
            connect_opts: connect_options(credentials, introduction),
            client_tls,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let token = NewToken {
            kind: "authorization_request",
            id: &random_token(ID_CHARS),
            audience: AUDIENCE,
            subject: &callout.issuer,
            issuer: &server.id,
            issued_at: now.as_secs(),
            expires: (now + timeout).as_secs(),
        };
        encode(&token, &request, &|message| server.key.sign_bytes(message))
    }

    fn client_information<'a>(
        &'a self,
        credentials: &'a Credentials,
        introduction: Introduction<'a>,
        host: &'a str,
    ) -> ClientInformation<'a> {
        ClientInformation {
            host,
            id: self.conn.id,
            user: shown(credentials),
            name: introduction.name,
            kind: if self.conn.is_leaf() { "Leafnode" } else { "Client" },
            r#type: self.conn.client_type(),
            nonce: if credentials.signature.is_empty() { "" } else { &self.nonce },
        }
    }
}

fn connect_options<'a>(
    credentials: &'a Credentials,
    introduction: Introduction<'a>,
) -> ConnectOptions<'a> {
    ConnectOptions {
        jwt: &credentials.jwt,
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
fn shown(credentials: &Credentials) -> &str {
    match (&*credentials.nkey, &*credentials.user, &*credentials.token) {
        ("", "", "") => "",
        ("", "", _token) => "[REDACTED]",
        ("", user, _) => user,
        (nkey, ..) => nkey,
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

/// The subscription to a response, as long as it is awaited.
struct Reply {
    account: Arc<Account>,
    sub: Arc<Subscription>,
}

impl Reply {
    fn subscribe(
        reader: &ConnReader,
        account: Arc<Account>,
        sender: oneshot::Sender<Bytes>,
    ) -> Self {
        // Of the prefix whose subjects lead back through other servers.
        let subject = format!("_R_.{}", random_token(REPLY_CHARS));
        let outlet = reader.server.own_peer().outlet.clone();
        let receiver = Arc::new(Response(Mutex::new(Some(sender))));
        let sub = Arc::new(Subscription::of_server(outlet, subject.as_bytes(), receiver));
        account.interest.insert(sub.clone());
        Self { account, sub }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.account.interest.remove(&self.sub);
    }
}

/// Takes the first response; further ones go nowhere.
struct Response(Mutex<Option<oneshot::Sender<Bytes>>>);

impl Receiver for Response {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
        if message.body.len() > MAX_TOKEN_BYTES {
            return false;
        }
        let Some(sender) = self.0.lock().take() else { return false };
        sender.send(Bytes::copy_from_slice(message.body)).is_ok()
    }
}
