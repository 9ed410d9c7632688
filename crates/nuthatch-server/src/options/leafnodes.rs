//! Reads `leafnodes`: where other servers may connect as leaf nodes, and to which servers this one
//! connects as one.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::Value;
use nuthatch_protocol::jwt::server_version;
use nuthatch_protocol::nkey::{KeyKind, decode_as};

use super::auth::Secret;
use super::error::ProblemKind;
use super::leaf_compression::{LeafCompression, compression};
use super::leaf_proxy::HttpProxy;
use super::leaf_remotes;
use super::read::ConfigReader;
use super::tables::leaf::{AUTHORIZATION, LEAFNODES, USER};
use super::{DEFAULT_AUTH_TIMEOUT, DEFAULT_HOST, TlsOptions, address, tls};

/// Port of a leaf node listener whose URL names none.
pub const DEFAULT_LEAF_PORT: u16 = 7422;
/// Default of [`LeafOptions::reconnect`].
const DEFAULT_RECONNECT: Duration = Duration::from_secs(1);
/// The oldest version that may be asked for.
const OLDEST_VERSION: [u32; 3] = [2, 8, 0];
/// Default of [`LeafOptions::dial_timeout`].
const DEFAULT_DIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Leaf nodes, in both directions.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafOptions {
    /// Address to listen on. Default: every interface.
    pub host: String,
    /// Port to listen on; 0 lets the system choose (configured as -1); `None`: no listener.
    pub port: Option<u16>,
    /// `host` or `host:port` to tell other servers instead of our own address.
    pub advertise: Option<String>,
    /// Other servers are not told any address.
    pub no_advertise: bool,
    /// TLS of the listener.
    pub tls: Option<TlsOptions>,
    /// Authentication; without any of it the users of clients may connect.
    pub auth: LeafAuth,
    /// Servers to connect to.
    pub remotes: Vec<RemoteOptions>,
    /// Time between attempts to connect; more after failures. Default 1 s.
    pub reconnect: Duration,
    /// Longest time of an attempt to connect. Default 1 s.
    pub dial_timeout: Duration,
    /// Leaf nodes do not hear of each other's subscriptions.
    pub isolated: bool,
    /// How connections are compressed that others open.
    pub compression: LeafCompression,
    /// The oldest version of a server that may connect: its text and its numbers.
    pub min_version: Option<(String, [u32; 3])>,
}

impl Default for LeafOptions {
    fn default() -> Self {
        Self {
            host: DEFAULT_HOST.to_owned(),
            port: None,
            advertise: None,
            no_advertise: false,
            tls: None,
            auth: LeafAuth::default(),
            remotes: Vec::new(),
            reconnect: DEFAULT_RECONNECT,
            dial_timeout: DEFAULT_DIAL_TIMEOUT,
            isolated: false,
            compression: LeafCompression::Off,
            min_version: None,
        }
    }
}

/// Authentication of leaf nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeafAuth {
    /// The one user.
    pub user: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// The one nkey: its text and its 32 bytes.
    pub nkey: Option<(String, [u8; 32])>,
    /// The account of the one user or nkey; `None`: the global one.
    pub account: Option<String>,
    /// Several users.
    pub users: Vec<LeafUser>,
    /// Time to authenticate in; `None`: the default.
    pub timeout: Option<Duration>,
    /// All have to come through a trusted proxy.
    pub proxy_required: bool,
}

impl LeafAuth {
    /// True if leaf nodes have users of their own.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.user.is_some() || self.nkey.is_some() || !self.users.is_empty()
    }
}

/// A user of leaf nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: Option<Secret>,
    /// The account; `None`: the global one.
    pub account: Option<String>,
    /// It has to come through a trusted proxy.
    pub proxy_required: bool,
}

impl LeafOptions {
    /// Time in which a leaf node must have authenticated.
    #[must_use]
    pub fn auth_timeout(&self) -> Duration {
        self.auth.timeout.unwrap_or(match &self.tls {
            Some(tls) => tls.timeout + Duration::from_secs(1),
            None => DEFAULT_AUTH_TIMEOUT,
        })
    }
}

/// A server to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// One or more addresses of the same server or cluster.
    pub urls: Vec<LeafUrl>,
    /// The account here that is connected.
    pub account: String,
    /// Credentials file: a user's JWT and seed.
    pub credentials: Option<PathBuf>,
    /// Seed of the user's nkey.
    pub seed: Option<Secret>,
    /// How TLS is done; `None`: as any client does, where the other side asks for it.
    pub tls: Option<RemoteTls>,
    /// Subjects that are not taken from there.
    pub deny_imports: Vec<String>,
    /// Subjects that are not sent there.
    pub deny_exports: Vec<String>,
    /// We are the hub of this connection although we open it.
    pub hub: bool,
    /// Keep to the order of `urls`.
    pub no_randomize: bool,
    /// Do not connect.
    pub disabled: bool,
    /// Longest time until the other side greets. Default 5 s.
    pub first_info_timeout: Duration,
    /// Longest time of an attempt to connect; `None`: that of all remotes.
    pub dial_timeout: Option<Duration>,
    /// It does not hear of subscriptions of other leaf nodes.
    pub isolated: bool,
    /// Ask the other side for that.
    pub request_isolation: bool,
    /// How the connection is compressed.
    pub compression: LeafCompression,
    /// Addresses that the other side tells are not used.
    pub ignores_told: bool,
    /// Connect through this proxy.
    pub proxy: Option<HttpProxy>,
    /// Messages of a websocket may be compressed.
    pub websocket_compression: bool,
    /// What goes out over a websocket is not masked, if the other side agrees.
    pub websocket_unmasked: bool,
}

/// An address of another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafUrl {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Its scheme asks for TLS.
    pub tls: bool,
    /// A websocket: the path under which the other side has its own.
    pub websocket: Option<String>,
    /// The name in its certificate, if it is not the host.
    pub tls_name: Option<String>,
    /// User to log in as.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
}

/// As log lines show it, without user and password.
impl std::fmt::Display for LeafUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// TLS towards another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteTls {
    /// PEM file with the authorities of its certificate; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM files of our certificate and its key, for a server that wants to see one.
    pub certificate: Option<super::CertificateFiles>,
    /// Its certificate is not checked.
    pub insecure: bool,
    /// The handshake comes before INFO.
    pub handshake_first: bool,
    /// Longest time of the handshake. Default 2 s.
    pub timeout: Duration,
    /// Its certificate is checked by OCSP.
    pub ocsp_peer: Option<super::OcspPeer>,
    /// The oldest version that is spoken.
    pub min_version: super::TlsVersion,
    /// Names of the only cipher suites, as Go writes them; empty: all that we have.
    pub cipher_suites: Vec<String>,
    /// Names of the only groups for the key exchange, in this order; empty: all that we have.
    pub curves: Vec<String>,
}

impl Default for RemoteTls {
    fn default() -> Self {
        Self {
            ca_file: None,
            certificate: None,
            insecure: false,
            handshake_first: false,
            timeout: tls::DEFAULT_TLS_TIMEOUT,
            ocsp_peer: None,
            min_version: super::TlsVersion::V12,
            cipher_suites: Vec::new(),
            curves: Vec::new(),
        }
    }
}

/// The block.
pub(super) fn leafnodes(r: &mut ConfigReader, value: &Value) -> LeafOptions {
    // Without one it depends on whether there are users.
    let mut options = LeafOptions { host: String::new(), ..LeafOptions::default() };
    let Some(map) = r.map("leafnodes", value) else { return options };
    let mut port = address::Port::Unset;
    r.walk(&LEAFNODES, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "listen" => {
                if let Some(listen) = address::listen(r, key, value) {
                    options.host = listen.host.unwrap_or(options.host.clone());
                    port = listen.port;
                }
            }
            "port" => port = address::port(r, key, value).unwrap_or(port),
            "host" => {
                if let Some(host) = r.word(key, value) {
                    host.clone_into(&mut options.host);
                }
            }
            "tls" => options.tls = listener_tls(r, value),
            "authorization" => options.auth = authorization(r, value),
            "remotes" => options.remotes = leaf_remotes::remotes(r, value),
            _ => setting(r, key, value, &mut options),
        }
    });
    options.port = port.optional();
    options
}

fn setting(r: &mut ConfigReader, key: &'static str, value: &Value, options: &mut LeafOptions) {
    match key {
        "advertise" => {
            if let Some(text) = r.text(key, value) {
                options.advertise = address::advertised(r, key, &value.pos, text);
            }
        }
        "no_advertise" => options.no_advertise = r.boolean(key, value).unwrap_or_default(),
        "isolate" => options.isolated = r.boolean(key, value).unwrap_or_default(),
        "reconnect" => {
            if let Some(time) = r.duration(key, value).filter(|time| !time.is_zero()) {
                options.reconnect = time;
            }
        }
        "dial_timeout" => {
            if let Some(time) = r.duration(key, value).filter(|time| !time.is_zero()) {
                options.dial_timeout = time;
            }
        }
        "compression" => options.compression = compression(r, key, value),
        "min_version" => options.min_version = min_version(r, key, value),
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

/// The oldest version that may connect; leaf nodes before 2.8.0 are not told why they may not.
fn min_version(r: &mut ConfigReader, key: &str, value: &Value) -> Option<(String, [u32; 3])> {
    let text = r.word(key, value)?;
    match server_version(text.trim_start_matches('v')) {
        Ok(numbers) if numbers >= OLDEST_VERSION => return Some((text.to_owned(), numbers)),
        Ok(_) => r.invalid(&value.pos, key, "should be at least 2.8.0"),
        Err(_) => r.invalid(&value.pos, key, format!("is no version such as 2.9.0: {text:?}")),
    }
    None
}

fn listener_tls(r: &mut ConfigReader, value: &Value) -> Option<TlsOptions> {
    let tls = tls::tls(r, value)?;
    if tls.map_users {
        let what = "is not there for leaf nodes: use 'verify' and users with passwords or an nkey";
        r.invalid(&value.pos, "verify_and_map", what);
    }
    Some(tls)
}

fn authorization(r: &mut ConfigReader, value: &Value) -> LeafAuth {
    let mut auth = LeafAuth::default();
    let Some(map) = r.map("authorization", value) else { return auth };
    r.walk(&AUTHORIZATION, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "user" => auth.user = r.word(key, value).map(str::to_owned),
            "password" => auth.password = r.text(key, value).map(Secret::new),
            "account" => auth.account = r.word(key, value).map(str::to_owned),
            "timeout" => auth.timeout = r.timeout(key, value).filter(|time| !time.is_zero()),
            "proxy_required" => {
                auth.proxy_required = r.boolean(key, value).unwrap_or_default();
            }
            "nkey" => auth.nkey = public_key(r, key, value),
            "users" => auth.users = users(r, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if auth.password.is_some() && auth.user.is_none() && auth.users.is_empty() {
        r.invalid(&value.pos, "password", "needs 'user'");
    }
    auth
}

fn public_key(r: &mut ConfigReader, key: &str, value: &Value) -> Option<(String, [u8; 32])> {
    let text = r.word(key, value)?;
    let decoded = decode_as(KeyKind::User, text);
    if decoded.is_none() {
        let what = "must be the public key of a user: 56 characters that begin with U";
        r.invalid(&value.pos, key, what);
    }
    decoded.map(|bytes| (text.to_owned(), bytes))
}

fn users(r: &mut ConfigReader, value: &Value) -> Vec<LeafUser> {
    let wanted = "an array of users: [ {user: a, password: b, account: C}, … ]";
    let mut users = Vec::new();
    for item in r.array("users", value, wanted).unwrap_or_default() {
        let Some(map) = r.map("user", item) else { continue };
        let (mut name, mut password, mut account) = (None, None, None);
        let mut proxy_required = false;
        r.walk(&USER, map, |r, key, entry| {
            let value = &entry.value;
            match key {
                "user" => name = r.word(key, value).map(str::to_owned),
                "password" => password = r.text(key, value).map(Secret::new),
                "account" => account = r.word(key, value).map(str::to_owned),
                "proxy_required" => proxy_required = r.boolean(key, value).unwrap_or_default(),
                _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
            }
        });
        match name {
            Some(name) => users.push(LeafUser { name, password, account, proxy_required }),
            None => r.invalid(&item.pos, "users", "entry needs 'user'"),
        }
    }
    users
}

/// A subject or an array of them, each a pattern without a queue group.
pub(super) fn denied(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<String> {
    let list = r.texts(key, value).unwrap_or_default();
    for text in &list {
        if let Err((found, what)) = super::subject::check_permission(text, false) {
            let (key, found) = (key.to_owned(), found.to_owned());
            r.problem(&value.pos, ProblemKind::Subject { key, found, what });
        }
    }
    list
}
