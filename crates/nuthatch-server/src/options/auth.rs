//! Authentication as configured: users, nkeys, tokens, permissions and accounts.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::transform::Mapping;

use super::callout::AuthCallout;
use super::sharing::{Export, Import};

/// Time a client has to send its CONNECT, unless `timeout` says otherwise.
pub const DEFAULT_AUTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A password or token. Its text is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password, a token, or a bcrypt hash of one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text: a plain secret or, when [`Secret::is_bcrypt`], a hash.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if this is a bcrypt hash: `^\$2[abxy]\$\d{2}\$`, the rule of nats-server.
    pub fn is_bcrypt(&self) -> bool {
        let b = self.0.as_bytes();
        b.len() > 6
            && b[0] == b'$'
            && b[1] == b'2'
            && matches!(b[2], b'a' | b'b' | b'x' | b'y')
            && b[3] == b'$'
            && b[4].is_ascii_digit()
            && b[5].is_ascii_digit()
            && b[6] == b'$'
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_bcrypt() { "Secret(bcrypt)" } else { "Secret(***)" })
    }
}

/// The `authorization` block and `no_auth_user`. Users of `accounts` are in [`Account::users`].
#[derive(Debug, Clone, PartialEq)]
pub struct AuthOptions {
    /// The one user of `authorization { user, password }`.
    pub user: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// `authorization { token }`, or what `token_file` holds.
    pub token: Option<Secret>,
    /// `authorization { token_file }`. Without such a file the token was made when the configuration
    /// was read, and is written there by the start.
    pub token_file: Option<PathBuf>,
    /// Time a client has to authenticate. Default [`DEFAULT_AUTH_TIMEOUT`]; with TLS, one second
    /// more than the TLS timeout.
    pub timeout: Duration,
    /// `authorization { users }` with a name.
    pub users: Vec<User>,
    /// `authorization { users }` with an nkey.
    pub nkeys: Vec<NkeyUser>,
    /// `auth_callout`: a service says who clients are.
    pub callout: Option<AuthCallout>,
    /// `no_auth_user`: clients without credentials become this user (or nkey).
    pub no_auth_user: Option<String>,
    /// The one user, or the one with the token, has to come through a trusted proxy.
    pub proxy_required: bool,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            user: None,
            password: None,
            token: None,
            token_file: None,
            timeout: DEFAULT_AUTH_TIMEOUT,
            users: Vec::new(),
            nkeys: Vec::new(),
            callout: None,
            no_auth_user: None,
            proxy_required: false,
        }
    }
}

impl AuthOptions {
    /// True if the `authorization` block asks for any credentials.
    pub fn is_configured(&self) -> bool {
        self.user.is_some()
            || self.password.is_some()
            || self.token.is_some()
            || !self.users.is_empty()
            || !self.nkeys.is_empty()
            || self.callout.is_some()
    }
}

/// A user with a name and, mostly, a password.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password; `None` only fits a client that gives an empty one.
    pub password: Option<Secret>,
    /// The user's permissions; `None`: unrestricted. Default permissions are already applied.
    pub permissions: Option<Permissions>,
    /// Kinds of connection the user may have; empty is every kind.
    pub allowed_connection_types: BTreeSet<ConnectionType>,
    /// The user has to come through a trusted proxy.
    pub proxy_required: bool,
}

/// A user who proves that they hold the seed of an ed25519 key.
#[derive(Debug, Clone, PartialEq)]
pub struct NkeyUser {
    /// The public key as text, `U…`.
    pub public: String,
    /// The 32 bytes of the public key.
    pub key: [u8; 32],
    /// The user's permissions; `None`: unrestricted. Default permissions are already applied.
    pub permissions: Option<Permissions>,
    /// Kinds of connection the user may have; empty is every kind.
    pub allowed_connection_types: BTreeSet<ConnectionType>,
    /// The user has to come through a trusted proxy.
    pub proxy_required: bool,
}

/// A proxy that is believed, by the signature of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxy {
    /// The public key as text.
    pub public: String,
    /// Its 32 bytes.
    pub key: [u8; 32],
}

/// Kinds of connection that `allowed_connection_types` may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionType {
    /// `STANDARD`: plain TCP or TLS.
    Standard,
    /// `WEBSOCKET`.
    Websocket,
    /// `LEAFNODE`.
    Leafnode,
    /// `LEAFNODE_WS`.
    LeafnodeWs,
    /// `MQTT`.
    Mqtt,
    /// `MQTT_WS`.
    MqttWs,
    /// `IN_PROCESS`.
    InProcess,
}

/// Permissions to publish and to subscribe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Subjects to publish to; `None` is every subject.
    pub publish: Option<SubjectPermission>,
    /// Subjects to subscribe to, each `"subject"` or `"subject queue"`; `None` is every subject.
    pub subscribe: Option<SubjectPermission>,
    /// Publishing to the reply subject of a received message is allowed, within these bounds.
    pub allow_responses: Option<ResponsePermission>,
}

/// Allowed and denied subjects. Denied wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectPermission {
    /// `None`: everything that is not denied. `Some` of an empty list: nothing.
    pub allow: Option<Vec<String>>,
    /// Denied subjects.
    pub deny: Vec<String>,
}

/// Bounds of `allow_responses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponsePermission {
    /// Responses to one message; `None` is without a limit. Default 1.
    pub max_msgs: Option<u32>,
    /// Time in which they may be sent; `None` is without a limit. Default 2 min.
    pub expires: Option<Duration>,
}

impl Default for ResponsePermission {
    fn default() -> Self {
        Self { max_msgs: Some(1), expires: Some(Duration::from_secs(120)) }
    }
}

/// An entry of `accounts`.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Name of the account.
    pub name: String,
    /// Its users with names.
    pub users: Vec<User>,
    /// Its users with nkeys.
    pub nkeys: Vec<NkeyUser>,
    /// JetStream of the account; `None` is off.
    pub jetstream: Option<AccountJetStream>,
    /// Limits of its connections.
    pub limits: AccountLimits,
    /// Exports to other accounts.
    pub exports: Vec<Export>,
    /// Imports from other accounts.
    pub imports: Vec<Import>,
    /// Subject mappings, in the order of the file: the first that matches applies.
    pub mappings: Vec<Mapping>,
    /// Where messages with a sampled trace context are traced.
    pub msg_trace: Option<MsgTrace>,
}

/// Traces of messages with a trace context (`traceparent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MsgTrace {
    /// The subject that they are published on.
    pub dest: String,
    /// Share of such messages that is traced, in percent.
    pub sampling: u8,
}

impl Account {
    /// An account with nothing in it.
    #[must_use]
    pub fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            users: Vec::new(),
            nkeys: Vec::new(),
            jetstream: None,
            limits: AccountLimits::default(),
            exports: Vec::new(),
            imports: Vec::new(),
            mappings: Vec::new(),
            msg_trace: None,
        }
    }
}

/// Limits of the connections of an account; `None` of a field is without a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountLimits {
    /// Connections at a time.
    pub max_connections: Option<u32>,
    /// Subscriptions of one connection.
    pub max_subscriptions: Option<u32>,
    /// Largest message, headers and body together, in bytes.
    pub max_payload_bytes: Option<usize>,
    /// Connections of leaf nodes at a time.
    pub max_leafnodes: Option<u32>,
}

/// JetStream limits of an account; `None` of a field is without a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountJetStream {
    /// Bytes of memory streams.
    pub max_memory_bytes: Option<u64>,
    /// Bytes of stored streams.
    pub max_store_bytes: Option<u64>,
    /// Number of streams.
    pub max_streams: Option<u32>,
    /// Number of consumers of one stream.
    pub max_consumers: Option<u32>,
    /// Highest `max_ack_pending` of a consumer.
    pub max_ack_pending: Option<u32>,
    /// Bytes of one memory stream.
    pub memory_max_stream_bytes: Option<u64>,
    /// Bytes of one stored stream.
    pub store_max_stream_bytes: Option<u64>,
    /// Every stream must set `max_bytes`.
    pub max_bytes_required: bool,
    /// The tiers that a token names, by number of replicas; a configuration file has none.
    pub tiers: Vec<(String, AccountJetStream)>,
}
