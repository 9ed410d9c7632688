//! CONNECT: what the client says about itself, and whether it may come in.

use super::ConnReader;
use super::callout::Introduction;
use super::js_traffic::StreamCache;
use crate::auth::{Authenticator, Decision, Proxied};
use crate::callout::CalloutError;
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Transport};
use crate::greeting;
use crate::identity::Credentials;
use crate::identity::Identity;
use crate::operator::Denial;
use crate::websocket::Cookies;
use nuthatch_protocol::greeting::Connect;
use nuthatch_protocol::wire::write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Highest protocol a client may ask for.
const PROTOCOL_MAX: i64 = 1;

/// Why a client may not come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectError {
    pub(super) reason: CloseReason,
    pub(super) text: Option<&'static str>,
}

pub(super) const VIOLATION: ConnectError = ConnectError {
    reason: CloseReason::AuthenticationViolation,
    text: Some("Authorization Violation"),
};

/// Why a client is not let in, if there is more to say, and in the words of monitoring.
pub(super) struct Refused {
    why: Option<String>,
    reason: CloseReason,
}

impl Refused {
    fn by(why: Option<&Denial>) -> Self {
        let reason = match why {
            Some(Denial::ProxyRequired) => CloseReason::ProxyRequired,
            _ => CloseReason::AuthenticationViolation,
        };
        Self { why: why.map(ToString::to_string), reason }
    }

    fn by_service(why: &CalloutError) -> Self {
        let reason = match why {
            CalloutError::ProxyRequired => CloseReason::ProxyRequired,
            _ => CloseReason::AuthenticationViolation,
        };
        Self { why: Some(why.to_string()), reason }
    }
}

impl ConnReader {
    /// Handles a CONNECT.
    pub(super) async fn handle_connect(&mut self, json: &[u8]) -> Result<(), ConnectError> {
        let connect: Connect = greeting::parse(json).map_err(|error| {
            let (log, conn) = (&self.server.log, &self.conn);
            log.error(format_args!("{conn} - invalid CONNECT: {error}"));
            ConnectError { reason: CloseReason::ProtocolViolation, text: None }
        })?;
        if self.connected {
            self.conn.drop_subscriptions_in_turns().await;
        }
        let credentials = credentials(&connect, &self.conn);
        let introduction = Introduction {
            name: connect.name.as_deref().unwrap_or_default(),
            lang: connect.lang.as_deref().unwrap_or_default(),
            version: connect.version.as_deref().unwrap_or_default(),
            protocol: connect.protocol.unwrap_or_default(),
        };
        let auth = self.server.auth();
        let checked = self.check_with(auth, credentials, introduction).await;
        let identity = checked.map_err(|refused| self.refused(&refused, ""))?;
        if connect.new_account == Some(true)
            || connect.account.as_ref().is_some_and(|a| !a.is_empty())
        {
            return Err(VIOLATION);
        }
        self.merge(connect);
        self.adopt(&identity)?;
        self.admit()
    }

    /// Says why a client is not let in; it only hears of a violation.
    pub(super) fn refused(&self, refused: &Refused, whose: &str) -> ConnectError {
        let why = refused.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let (log, conn) = (&self.server.log, &self.conn);
        log.error(format_args!("{conn} - authentication error{whose}{why}"));
        ConnectError { reason: refused.reason, ..VIOLATION }
    }

    /// Authenticates credentials against a list of users, or asks the service that decides.
    pub(super) async fn check_with(
        &mut self,
        auth: Arc<Authenticator>,
        mut credentials: Credentials,
        introduction: Introduction<'_>,
    ) -> Result<Identity, Refused> {
        let proxied = self.server.auth().proxied(&credentials.proxy_signature, &self.nonce);
        let proxy = match proxied {
            Proxied::No => None,
            Proxied::By(key) => Some(key),
            Proxied::Untrusted => {
                let why = Some("proxy is not trusted".to_owned());
                return Err(Refused { why, reason: CloseReason::ProxyNotTrusted });
            }
        };
        credentials.origin.is_proxied = proxy.is_some();
        Arc::make_mut(&mut self.session).proxy = proxy;
        let mut decision = self.decide(&auth, &credentials).await;
        if let Decision::Made(Err(Some(why))) = &decision
            && let Some(account) = why.account()
            && self.fetched(account).await
        {
            decision = self.decide(&auth, &credentials).await;
        }
        match decision {
            Decision::Made(found) => found.map_err(|why| Refused::by(why.as_ref())),
            Decision::OfService(service) => {
                let asked = self.ask_service(&service, &credentials, introduction).await;
                asked.map_err(|why| Refused::by_service(&why))
            }
        }
    }

    async fn decide(&self, auth: &Arc<Authenticator>, credentials: &Credentials) -> Decision {
        if !auth.is_slow(credentials) {
            return auth.decide(credentials, &self.nonce);
        }
        let (auth, nonce, shown) = (auth.clone(), self.nonce.clone(), credentials.clone());
        let check = move || auth.decide(&shown, &nonce);
        let timeout = self.server.options().auth.timeout;
        let from = self.conn.remote.get().ip();
        let checked = self.server.slow_checks.run(from, timeout, check).await;
        checked.unwrap_or(Decision::Made(Err(None)))
    }

    /// Waits for an account that is not here, as long as a client has to authenticate: `true` means that
    /// it is worth looking again.
    pub(super) async fn fetched(&self, account: &str) -> bool {
        let server = &self.server;
        let Some(operator) = server.operator().filter(|operator| operator.store.fetches()) else {
            return false;
        };
        let from = self.conn.remote.get().ip();
        let Some(_place) = server.slow_checks.place_to_fetch(from) else { return false };
        let timeout = server.options().auth.timeout;
        tokio::time::timeout(timeout, operator.want(account)).await.unwrap_or(false)
    }

    fn merge(&mut self, connect: Connect) {
        let session = Arc::make_mut(&mut self.session);
        let set = |field: &mut bool, value: Option<bool>| *field = value.unwrap_or(*field);
        set(&mut session.verbose, connect.verbose);
        set(&mut session.pedantic, connect.pedantic);
        set(&mut session.echo, connect.echo);
        set(&mut session.headers, connect.headers);
        session.headers &= !self.server.options().no_header_support;
        set(&mut session.no_responders, connect.no_responders);
        session.protocol = connect.protocol.unwrap_or(session.protocol);
        let set = |field: &mut String, value: Option<String>| {
            if let Some(value) = value {
                *field = value;
            }
        };
        set(&mut session.name, connect.name);
        set(&mut session.lang, connect.lang);
        set(&mut session.version, connect.version);
    }

    /// Makes the connection that of an identity.
    pub(super) fn adopt(&mut self, identity: &Identity) -> Result<(), ConnectError> {
        let Some(account) = self.server.accounts.by_name(&identity.account) else {
            let text = Some("Failed Account Registration");
            return Err(ConnectError { reason: CloseReason::MissingAccount, text });
        };
        let session = Arc::make_mut(&mut self.session);
        if !Arc::ptr_eq(&session.account, &account) {
            if !account.enter() {
                let text = Some("maximum account active connections exceeded");
                let reason = CloseReason::MaxAccountConnectionsExceeded;
                return Err(ConnectError { reason, text });
            }
            session.account.connections.fetch_sub(1, Ordering::Relaxed);
            session.account.connected_changed();
            account.connected_changed();
        }
        session.account = account;
        session.user.clone_from(&identity.user);
        session.rights.clone_from(&identity.rights);
        session.grant.clone_from(&identity.grant);
        self.expect_connect = false;
        self.bound_payload();
        self.conn.set_session(self.session.clone());
        self.conn.connected.notify_one();
        // Its account may have changed since it was looked at.
        self.server.recheck_grant(&self.conn);
        self.server.system().connected(&self.conn);
        Ok(())
    }

    fn admit(&mut self) -> Result<(), ConnectError> {
        let session = &self.session;
        if !(0..=PROTOCOL_MAX).contains(&session.protocol) {
            let text = Some("invalid client protocol");
            return Err(ConnectError { reason: CloseReason::BadClientProtocolVersion, text });
        }
        if session.no_responders && !session.headers {
            let text = Some("no responders requires headers support");
            return Err(ConnectError { reason: CloseReason::NoRespondersRequiresHeaders, text });
        }
        self.limits.headers = session.headers;
        self.connected = true;
        self.mux = None;
        self.streams = StreamCache::default();
        if session.verbose {
            self.conn.send(write::OK);
        }
        Ok(())
    }
}

/// The credentials in CONNECT; where it has none, cookies of a websocket count.
fn credentials(connect: &Connect, conn: &Connection) -> Credentials {
    let cookies = match &conn.transport {
        Transport::Websocket(upgrade) => upgrade.cookies.clone(),
        Transport::Tcp | Transport::Leaf | Transport::Node => Cookies::default(),
    };
    let text = |field: &Option<String>, cookie: Option<String>| {
        field.clone().filter(|text| !text.is_empty()).or(cookie).unwrap_or_default()
    };
    Credentials {
        user: text(&connect.user, cookies.user),
        password: text(&connect.pass, cookies.password),
        token: text(&connect.auth_token, cookies.token),
        nkey: text(&connect.nkey, None),
        signature: text(&connect.sig, None),
        jwt: text(&connect.jwt, cookies.jwt),
        proxy_signature: text(&connect.proxy_sig, None),
        origin: conn.origin(),
    }
}
