//! Reads `websocket`.

use std::time::Duration;

use nuthatch_protocol::config::{Map, Node, Value};

use super::auth::Secret;
use super::read::ConfigReader;
use super::tables::{WEBSOCKET, WEBSOCKET_AUTHORIZATION};
use super::{DEFAULT_HOST, TlsOptions, address, tls};

/// Default of [`WebsocketOptions::handshake_timeout`].
const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that the handshake itself sets.
const OUR_HEADERS: &[&str] =
    &["host", "content-length", "connection", "upgrade", "nats-no-masking"];

/// The listener for clients over websocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebsocketOptions {
    /// Address to listen on. Default: every interface.
    pub host: String,
    /// Port to listen on; 0 lets the system choose (configured as -1).
    pub port: u16,
    /// `host` or `host:port` to tell clients instead of our own address.
    pub advertise: Option<String>,
    /// TLS; without it `no_tls` must have been given.
    pub tls: Option<TlsOptions>,
    /// A browser's page must come from this very address.
    pub same_origin: bool,
    /// The only pages that may connect; empty: all.
    pub allowed_origins: Vec<Origin>,
    /// Messages may be compressed, if the client offers it.
    pub compression: bool,
    /// Longest time of the handshake, and of TLS before it. Default 10 s.
    pub handshake_timeout: Duration,
    /// The user that websocket clients without credentials become.
    pub no_auth_user: Option<String>,
    /// Cookies that stand in for fields of CONNECT.
    pub user_cookie: Option<String>,
    /// See [`WebsocketOptions::user_cookie`].
    pub password_cookie: Option<String>,
    /// See [`WebsocketOptions::user_cookie`].
    pub token_cookie: Option<String>,
    /// See [`WebsocketOptions::user_cookie`].
    pub jwt_cookie: Option<String>,
    /// Headers to add to the response of the handshake.
    pub headers: Vec<(String, String)>,
    /// Time between pings of websocket clients; `None`: as for others.
    pub ping_interval: Option<Duration>,
    /// The one user or token of websocket clients, in place of that of others.
    pub auth: Option<WebsocketAuth>,
    /// Time that they have to authenticate; `None`: as others.
    pub auth_timeout: Option<Duration>,
}

/// The one user or token of websocket clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebsocketAuth {
    /// The user.
    pub user: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// The token.
    pub token: Option<Secret>,
}

impl Default for WebsocketOptions {
    fn default() -> Self {
        Self {
            host: DEFAULT_HOST.to_owned(),
            port: 0,
            advertise: None,
            tls: None,
            same_origin: false,
            allowed_origins: Vec::new(),
            compression: false,
            handshake_timeout: DEFAULT_HANDSHAKE_TIMEOUT,
            no_auth_user: None,
            user_cookie: None,
            password_cookie: None,
            token_cookie: None,
            jwt_cookie: None,
            headers: Vec::new(),
            ping_interval: None,
            auth: None,
            auth_timeout: None,
        }
    }
}

/// Origin of a page, as a browser tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    https: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// Reads `http://host`, `https://host:port`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("must be an absolute URL")?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err("must be a URL with http or https"),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Self::of(https, authority)
    }

    fn of(https: bool, authority: &str) -> Result<Self, &'static str> {
        let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
        let (host, port) = match after_host.rsplit_once(':') {
            None => (authority, if https { 443 } else { 80 }),
            Some((_, port)) => {
                let host = &authority[..authority.len() - port.len() - 1];
                (host, port.parse().map_err(|_| "has a port that is not a number")?)
            }
        };
        if host.is_empty() {
            return Err("has no host");
        }
        Ok(Self { https, host: host.to_ascii_lowercase(), port })
    }
}

/// As it was configured, with the port.
impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl WebsocketOptions {
    /// Whether a page from `origin` may connect to us at `host` (the header).
    ///
    /// # Errors
    /// Why not.
    pub fn allows_origin(&self, origin: &str, host: &str, tls: bool) -> Result<(), &'static str> {
        if !self.same_origin && self.allowed_origins.is_empty() {
            return Ok(());
        }
        let origin = Origin::parse(origin)?;
        if self.same_origin && Origin::of(tls, host).as_ref() != Ok(&origin) {
            return Err("not same origin");
        }
        if !self.allowed_origins.is_empty() && !self.allowed_origins.contains(&origin) {
            return Err("not in the allowed list");
        }
        Ok(())
    }
}

/// The listener; `None`: the block opens no port.
pub(super) fn websocket(r: &mut ConfigReader, value: &Value) -> Option<WebsocketOptions> {
    let map = r.map("websocket", value)?;
    // Without one it depends on whether there are users.
    let mut options = WebsocketOptions { host: String::new(), ..WebsocketOptions::default() };
    let (mut port, mut no_tls) = (address::Port::Unset, false);
    r.walk(&WEBSOCKET, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "listen" => {
                if let Some(listen) = address::listen(r, key, value) {
                    options.host = listen.host.unwrap_or(options.host.clone());
                    port = listen.port;
                }
            }
            "port" => port = address::port(r, key, value).unwrap_or(port),
            "no_tls" => no_tls = r.boolean(key, value).unwrap_or(no_tls),
            "tls" => options.tls = tls::tls(r, value),
            _ => setting(r, key, value, &mut options),
        }
    });
    options.port = port.optional()?;
    if options.tls.is_none() && !no_tls && !map.entries().iter().any(|e| e.key == "tls") {
        r.invalid(&value.pos, "websocket", "needs 'tls', or 'no_tls: true' to do without");
    }
    Some(options)
}

fn setting(r: &mut ConfigReader, key: &'static str, value: &Value, options: &mut WebsocketOptions) {
    let mut name = |place: &mut Option<String>| {
        if let Some(text) = r.text(key, value) {
            *place = (!text.is_empty()).then(|| text.to_owned());
        }
    };
    match key {
        "no_auth_user" => name(&mut options.no_auth_user),
        "jwt_cookie" => name(&mut options.jwt_cookie),
        "user_cookie" => name(&mut options.user_cookie),
        "pass_cookie" => name(&mut options.password_cookie),
        "token_cookie" => name(&mut options.token_cookie),
        "host" => {
            if let Some(host) = r.word(key, value) {
                host.clone_into(&mut options.host);
            }
        }
        "advertise" => {
            if let Some(text) = r.text(key, value) {
                options.advertise = address::advertised(r, key, &value.pos, text);
            }
        }
        "same_origin" => options.same_origin = r.boolean(key, value).unwrap_or_default(),
        "compression" => options.compression = r.boolean(key, value).unwrap_or_default(),
        "allowed_origins" => origins(r, key, value, options),
        "handshake_timeout" => match r.timeout(key, value) {
            Some(timeout) if !timeout.is_zero() => options.handshake_timeout = timeout,
            _ => {}
        },
        "ping_interval" => {
            options.ping_interval = r.duration(key, value).filter(|time| !time.is_zero());
        }
        "headers" => headers(r, key, value, options),
        "authorization" => authorization(r, key, value, options),
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

/// `{ user, password }` or `{ token }`.
fn authorization(r: &mut ConfigReader, key: &str, value: &Value, options: &mut WebsocketOptions) {
    let Some(map) = r.map(key, value) else { return };
    let mut auth = WebsocketAuth { user: None, password: None, token: None };
    r.walk(&WEBSOCKET_AUTHORIZATION, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "user" => auth.user = r.word(key, value).map(str::to_owned),
            "password" => auth.password = r.text(key, value).map(Secret::new),
            "token" => auth.token = r.word(key, value).map(Secret::new),
            "timeout" => {
                options.auth_timeout = r.timeout(key, value).filter(|time| !time.is_zero());
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if auth.user.is_some() && auth.token.is_some() {
        r.invalid(&value.pos, key, "cannot have both a user and a token");
    }
    if auth.password.is_some() && auth.user.is_none() {
        r.invalid(&value.pos, "password", "needs 'user'");
    }
    options.auth = (auth.user.is_some() || auth.token.is_some()).then_some(auth);
}

fn origins(r: &mut ConfigReader, key: &str, value: &Value, options: &mut WebsocketOptions) {
    for text in r.texts(key, value).unwrap_or_default() {
        match Origin::parse(&text) {
            Ok(origin) => options.allowed_origins.push(origin),
            Err(why) => r.invalid(&value.pos, key, format!("holds {text:?}, which {why}")),
        }
    }
}

fn headers(r: &mut ConfigReader, key: &str, value: &Value, options: &mut WebsocketOptions) {
    for entry in r.map(key, value).map(Map::entries).unwrap_or_default() {
        let name = entry.key.to_ascii_lowercase();
        let Node::Str(text) = &entry.value.node else {
            r.invalid(&entry.value.pos, key, format!("{name:?} must be a string"));
            continue;
        };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.!#$%&'*+^`|~".contains(c);
        if OUR_HEADERS.contains(&name.as_str()) || name.starts_with("sec-websocket-") {
            r.invalid(&entry.key_pos, key, format!("{name:?} belongs to the handshake"));
        } else if !name.chars().all(is_token) || text.chars().any(char::is_control) {
            r.invalid(&entry.key_pos, key, format!("{name:?} is not a header with a value"));
        } else {
            options.headers.push((entry.key.clone(), text.clone()));
        }
    }
}
