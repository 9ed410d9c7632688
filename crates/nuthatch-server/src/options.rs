//! Typed server options: what a server is told by its configuration file and its flags.
//!
//! The file has the syntax and the keys of nats-server, the flags are nats-server's with Go's flag
//! rules, plus a few of our own. Every key and flag is either honoured, accepted with a warning
//! that says why it has no effect, or refused with a reason: nothing is silently ignored. The
//! tables in `tables` and `flags` hold that decision, and `docs/configuration.md` shows them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nuthatch_log::Keys;
use nuthatch_protocol::transform::Mapping;

pub use self::auth::{
    Account, AccountJetStream, AccountLimits, AuthOptions, ConnectionType, DEFAULT_AUTH_TIMEOUT,
    MsgTrace, NkeyUser, Permissions, ResponsePermission, Secret, SubjectPermission, TrustedProxy,
    User,
};

pub use self::callout::{AuthCallout, CALLOUT_SUBJECT, keep_from_asking};
pub use self::console::{ConsoleOptions, DEFAULT_CONSOLE_PORT};
pub use self::draft::Invocation;
pub use self::error::{
    ConfigProblem, Conflict, FlagError, MAX_SHOWN_PROBLEMS, OptionsError, ProblemKind,
};
pub use self::leaf_compression::LeafCompression;
pub use self::leaf_proxy::HttpProxy;
pub use self::leafnodes::{
    DEFAULT_LEAF_PORT, LeafAuth, LeafOptions, LeafUrl, LeafUser, RemoteOptions, RemoteTls,
};
pub use self::load::{
    Command, FileLoader, MAX_CONFIG_FILE_BYTES, SignalCommand, SignalTarget, load_again, load_with,
};
pub use self::msg_trace::{WHOLE_SAMPLING, is_trace_dest};
pub use self::ocsp::{Ocsp, OcspCache, OcspCacheKind, OcspMode, OcspPeer};
pub use self::operator::{OperatorConflict, OperatorOptions, TrustedOperator};
pub use self::otlp::OtlpOptions;
pub use self::reference::configuration_reference;
pub use self::reload::ReloadPlan;
pub use self::resolver::{
    CacheResolver, DEFAULT_FETCH_TIMEOUT, DeletePolicy, FullResolver, Resolver, UrlResolver,
};
pub use self::sharing::{
    DEFAULT_RESPONSE_THRESHOLD, ExchangeError, ExchangeProblem, Export, Import, Latency,
    ResponseKind, ServiceExport, covering, drop_impossible,
};
pub use self::tls::{CertificateFiles, HandshakeFirst, TlsOptions, TlsVersion};
pub use self::websocket::{Origin, WebsocketAuth, WebsocketOptions};
pub use self::written::{WRITTEN_MAX, Written, written};

mod accounts;
mod address;
mod auth;
mod callout;
mod check;
mod cluster;
mod command_line;
mod console;
mod draft;
mod error;
mod exports;
mod file;
mod flags;
mod jetstream;
mod keys;
mod leaf_compression;
mod leaf_proxy;
pub(crate) mod leaf_remotes;
mod leafnodes;
mod listen;
mod load;
mod logs;
mod mappings;
mod msg_trace;
mod nearest;
mod ocsp;
mod operator;
mod otlp;
mod proxies;
mod read;
mod reference;
mod reload;
mod resolver;
mod sharing;
mod subject;
mod tables;
mod tls;
mod users;
mod websocket;
mod written;

/// Name of the account of clients for whom no account is configured.
pub const GLOBAL_ACCOUNT: &str = "$G";
/// Name of the system account unless `system_account` says otherwise.
pub const SYSTEM_ACCOUNT: &str = "$SYS";

/// Default port for clients.
pub const DEFAULT_PORT: u16 = 4222;
/// Default bind address of a server with users: every interface.
pub const DEFAULT_HOST: &str = "0.0.0.0";
/// Default bind address of a server without users.
pub const LOOPBACK_HOST: &str = "127.0.0.1";
/// Default of [`Limits::max_control_line_bytes`].
pub const DEFAULT_MAX_CONTROL_LINE_BYTES: usize = 4096;
/// Default of [`Limits::max_payload_bytes`].
pub const DEFAULT_MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
/// A `max_payload` above this is accepted with a warning.
pub const LARGE_MAX_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;
/// Highest `max_payload` that is accepted: larger messages do not fit the log's frames.
pub const MAX_MAX_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;
/// Default of [`Limits::max_pending_bytes`].
pub const DEFAULT_MAX_PENDING_BYTES: usize = 64 * 1024 * 1024;
/// Default of [`Limits::max_connections`].
pub const DEFAULT_MAX_CONNECTIONS: u32 = 64 * 1024;
/// Default of [`JetStreamLimits::default_max_consumers`], as in nats-server 2.15.
pub const DEFAULT_MAX_CONSUMERS: u32 = 1000;
/// Default of [`Limits::max_subscriptions`] without authentication: about 60 MB.
pub const OPEN_MAX_SUBSCRIPTIONS: u32 = 128 * 1024;
/// Default of [`Limits::max_closed_clients`].
pub const DEFAULT_MAX_CLOSED_CLIENTS: usize = 10_000;

impl Options {
    /// True if clients can use JetStream here: this server's own, or that of the other nodes of its cluster.
    #[must_use]
    pub fn has_jetstream(&self) -> bool {
        self.jetstream.enabled || self.cluster.is_some()
    }
}

/// Everything a server is told at its start. `Options::default()` is a server without JetStream.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The configuration file, when one was given; reload reads it again.
    pub config_file: Option<PathBuf>,
    /// `server_name`. When absent see [`Options::named_by_host`].
    pub server_name: Option<String>,
    /// Without a `server_name` the node's name or the host's is the name of the server; else its id is.
    pub named_by_host: bool,
    /// Address to listen on for clients. Default [`DEFAULT_HOST`].
    pub host: String,
    /// Host of listeners without a configured address.
    pub default_host: String,
    /// Port for clients; 0 lets the system choose (configured as -1). Default [`DEFAULT_PORT`].
    pub port: u16,
    /// `client_advertise`: `host` or `host:port` to tell clients instead of our own address.
    pub client_advertise: Option<String>,
    /// `server_tags`, as configured.
    pub server_tags: Vec<String>,
    /// `server_metadata`.
    pub server_metadata: BTreeMap<String, String>,
    /// File that receives our process id, without a newline.
    pub pid_file: Option<PathBuf>,
    /// Directory that receives `<executable>_<pid>.ports`.
    pub ports_file_dir: Option<PathBuf>,
    /// This server as a node of a quorum log, which its default log is then.
    pub cluster: Option<ClusterSettings>,
    /// Logging.
    pub log: LogOptions,
    /// Monitoring over HTTP.
    pub monitor: MonitorOptions,
    /// Authentication and permissions.
    pub auth: AuthOptions,
    /// Accounts of the `accounts` block, in the order of the file. [`GLOBAL_ACCOUNT`] and
    /// [`SYSTEM_ACCOUNT`] exist without being listed here.
    pub accounts: Vec<Account>,
    /// Subject mappings of [`GLOBAL_ACCOUNT`], in the order of the file.
    pub mappings: Vec<Mapping>,
    /// Operator mode. The [`Options::accounts`] are those of the tokens then.
    pub operator: Option<OperatorOptions>,
    /// Proxies that are trusted.
    pub proxies: Vec<TrustedProxy>,
    /// Name of the system account. Default [`SYSTEM_ACCOUNT`].
    pub system_account: String,
    /// `no_header_support`: clients and leaf nodes neither send nor get headers.
    pub no_header_support: bool,
    /// `proxy_protocol`: a PROXY header in front of what a client sends names its address.
    pub proxy_protocol: bool,
    /// TLS towards clients; `None` is plain text.
    pub tls: Option<TlsOptions>,
    /// Plain connections are admitted beside TLS.
    pub allow_non_tls: bool,
    /// Stapling of OCSP responses.
    pub ocsp: Ocsp,
    /// The cache of OCSP responses about certificates of the other side.
    pub ocsp_cache: OcspCache,
    /// The listener for clients over websocket, if there is one.
    pub websocket: Option<WebsocketOptions>,
    /// Leaf nodes; `None`: neither listener nor remotes.
    pub leafnodes: Option<LeafOptions>,
    /// Limits of a connection.
    pub limits: Limits,
    /// JetStream.
    pub jetstream: JetStreamOptions,
    /// The web console.
    pub console: ConsoleOptions,
    /// Export of metrics and traces; `None`: there is none.
    pub otlp: Option<OtlpOptions>,
    /// `ready_timeout`: longest time from the start until clients are served; `None`: any time.
    pub ready_timeout: Option<Duration>,
    /// Lame duck: time over which clients are disconnected. Default 2 min, at least 30 s.
    pub lame_duck_duration: Duration,
    /// Lame duck: time before the first client is disconnected. Default 10 s.
    pub lame_duck_grace_period: Duration,
    /// Lines to say at start-up: keys and flags that were accepted but have no effect, and why.
    pub warnings: Vec<String>,
}

/// Destination and level of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Debug lines.
    pub debug: bool,
    /// Trace lines: the protocol as it passes.
    pub trace: bool,
    /// Trace of the system account too.
    pub trace_verbose: bool,
    /// Trace headers only, not payloads.
    pub trace_headers: bool,
    /// Shape of the lines.
    pub format: LogFormat,
    /// Lines begin with a timestamp. Default true.
    pub logtime: bool,
    /// That timestamp is in UTC rather than in local time.
    pub logtime_utc: bool,
    /// File to log to instead of stderr.
    pub file: Option<PathBuf>,
    /// Size at which the log file is rotated, in bytes; `None` never rotates.
    pub file_size_limit_bytes: Option<u64>,
    /// How many log files are kept, the current one included; `None` keeps all.
    pub file_max_count: Option<u32>,
    /// Longest part of a traced message that is printed, in bytes; `None` prints all.
    pub max_traced_msg_bytes: Option<usize>,
}

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// As nats-server writes them.
    #[default]
    Nats,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The words for it in a configuration.
    pub(crate) const WORDS: &'static str = "nats or json";

    /// By its word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "nats" => Some(Self::Nats),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The HTTP endpoints for monitoring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorOptions {
    /// Address to listen on. Default: the client's [`Options::host`].
    pub host: String,
    /// Port for HTTP; `Some(0)` lets the system choose, `None` is off.
    pub http_port: Option<u16>,
    /// Port for HTTPS, likewise; needs [`Options::tls`].
    pub https_port: Option<u16>,
    /// Path under which the endpoints live: `/` or such as `/nats`, without a final slash.
    pub base_path: String,
}

/// Limits of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest message, headers and body together, in bytes.
    pub max_payload_bytes: usize,
    /// Bytes that may wait for a slow client before it is disconnected.
    pub max_pending_bytes: usize,
    /// Longest protocol line, in bytes.
    pub max_control_line_bytes: usize,
    /// Client connections at a time; 0 admits none.
    pub max_connections: u32,
    /// Subscriptions of one connection; `None` is without a limit.
    pub max_subscriptions: Option<u32>,
    /// Tokens in a subscribed subject; `None` is without a limit.
    pub max_subscription_tokens: Option<u8>,
    /// Time between pings of the server. Default 2 min.
    pub ping_interval: Duration,
    /// Unanswered pings after which a connection is stale. Default 2.
    pub ping_max: u32,
    /// Longest time one write to a client may take. Default 10 s.
    pub write_deadline: Duration,
    /// Publishers are not slowed down for slow subscribers.
    pub no_fast_producer_stall: bool,
    /// Closed connections that `/connz?state=closed` remembers.
    pub max_closed_clients: usize,
}

/// The JetStream service and its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JetStreamOptions {
    /// JetStream is on.
    pub enabled: bool,
    /// The configured `store_dir`; data is in its subdirectory `nuthatch`.
    pub store_dir: PathBuf,
    /// Address of the bucket that the default log is kept in; `None`: in `store_dir`.
    pub store: Option<String>,
    /// The bucket behind the default log, where that is in `store_dir`.
    pub tier: Option<TierSettings>,
    /// The disk cache of the default log, where that is in a bucket.
    pub cache: Option<CacheSettings>,
    /// Further logs, by name.
    pub logs: Vec<NamedLog>,
    /// Most bytes of memory streams; `None`: the server decides.
    pub max_memory_bytes: Option<u64>,
    /// Most bytes of stored streams; `None`: the server decides.
    pub max_store_bytes: Option<u64>,
    /// JetStream domain.
    pub domain: Option<String>,
    /// When written data is made durable. Default [`SyncPolicy::Always`].
    pub sync: SyncPolicy,
    /// Compression of cold data of the default log; `None`: none on the local disk, zstd in a bucket.
    pub compression: Option<Compression>,
    /// Keys of encryption at rest, of all stored logs.
    pub keys: Keys,
    /// Unknown fields of API requests are errors. Default true.
    pub strict: bool,
    /// Beginning of the tag whose value no two replicas of a stream share, in lower case.
    pub unique_tag: Option<String>,
    /// Limits that every stream and consumer must keep to.
    pub limits: JetStreamLimits,
}

/// A log beside the default one: streams choose it by the placement tag `log:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLog {
    /// Its name.
    pub name: String,
    /// Its location.
    pub home: LogStore,
    /// When its data is made durable, if not as the default log's; only for a directory.
    pub sync: Option<SyncPolicy>,
    /// Compression of its cold data; `None`: none on the local disk, zstd in a bucket.
    pub compression: Option<Compression>,
    /// The bucket behind it; only for a directory.
    pub tier: Option<TierSettings>,
    /// Its disk cache; only for a bucket.
    pub cache: Option<CacheSettings>,
}

/// A bucket to which the sealed segments of a log in a directory move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSettings {
    /// Its address.
    pub store: String,
    /// Segments that were sealed so long ago move; `None`: age does not count.
    pub after_age: Option<Duration>,
    /// The oldest segments move when the log's files on the local disk come close to this many bytes;
    /// `None`: their size does not count.
    pub local_max_bytes: Option<u64>,
}

/// A cache on the local disk for a log in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// The directory, below which every log has one of its name.
    pub dir: PathBuf,
    /// Bytes that its files may take.
    pub max_bytes: u64,
}

/// A node of a quorum log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `-node_name`.
    pub name: String,
    /// The cluster's name; `None`: it follows from its identity.
    pub cluster: Option<String>,
    /// `-cluster_listen`: its own node port.
    pub listen: std::net::SocketAddr,
    /// `-routes`: the node ports of all nodes, or of the others.
    pub routes: Vec<nuthatch_cluster::Route>,
    /// `-catalog`: its address, or `built-in`.
    pub catalog: String,
    /// Quorum logs for each node, of a cluster that is founded.
    pub logs_per_node: u8,
    /// After so long without a node a spare takes its place; `None`: only people replace nodes.
    pub replace_after: Option<Duration>,
    /// How long an owner answers reads after a majority has heard it.
    pub lease: Duration,
    /// File with the secret that all nodes share; `None`: loopback only, or as follows.
    pub key: Option<PathBuf>,
    /// Without a key other addresses than loopback are warned of, and not refused: nats-server takes them.
    pub may_be_open: bool,
    /// `-protocol_max`: the newest protocol that it may speak with other nodes.
    pub protocol_max: nuthatch_cluster::Protocol,
    /// `-zone`: where it is, such as an availability zone or a rack.
    pub zone: Option<nuthatch_cluster::Zone>,
    /// Zones whose nodes are to own the quorum logs, where they can.
    pub owner_zones: Vec<nuthatch_cluster::Zone>,
    /// Bytes of memory that standbys may take, about; 0: there are none. `None`: a share of the machine's.
    pub standby_bytes: Option<u64>,
    /// Logs that take longer to read are followed.
    pub standby_above: Duration,
}

/// Location of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStore {
    /// On the local disk: in this directory, or in one of its name in the store directory.
    Directory(Option<PathBuf>),
    /// In the bucket of this address.
    Bucket(String),
    /// On a majority of the nodes of a cluster, of which this server is one.
    Quorum,
}

/// Compression of a log's cold data (`compression`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Only data of streams that ask for it is compressed.
    None,
    /// It is compressed with zstd where that pays.
    Zstd,
}

/// When acknowledged data is on the disk (`sync_interval`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// fsync before every acknowledgement. Nothing acknowledged is lost in a power cut.
    #[default]
    Always,
    /// fsync this often; a power cut may lose what was acknowledged since.
    Every(Duration),
    /// Never fsync: the operating system decides.
    Never,
}

/// Server-wide limits of the `jetstream { limits {} }` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JetStreamLimits {
    /// Highest `max_ack_pending` of a consumer; `None` is without a limit.
    pub max_ack_pending: Option<u32>,
    /// Highest `max_batch` of one pull request; `None` is without a limit.
    pub max_request_batch: Option<u32>,
    /// Longest duplicate window of a stream; `None` is without a limit.
    pub duplicate_window: Option<Duration>,
    /// Consumers of a stream that sets no limit itself; `None` is without a limit.
    pub default_max_consumers: Option<u32>,
    /// Limits on batches (ADR-50); `None` is the default of each.
    pub batch: BatchOptions,
}

/// Limits of the `jetstream { limits { batch {} } }` block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchOptions {
    /// Batches of a kind open at once in one stream.
    pub per_stream: Option<u32>,
    /// Batches of a kind open at once in one log.
    pub total: Option<u32>,
    /// Messages of one atomic batch.
    pub messages: Option<u32>,
    /// Silence after which a batch is given up.
    pub timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config_file: None,
            server_name: None,
            named_by_host: false,
            host: DEFAULT_HOST.to_owned(),
            default_host: DEFAULT_HOST.to_owned(),
            port: DEFAULT_PORT,
            client_advertise: None,
            server_tags: Vec::new(),
            server_metadata: BTreeMap::new(),
            pid_file: None,
            ports_file_dir: None,
            cluster: None,
            log: LogOptions::default(),
            monitor: MonitorOptions::default(),
            auth: AuthOptions::default(),
            accounts: Vec::new(),
            mappings: Vec::new(),
            operator: None,
            proxies: Vec::new(),
            system_account: SYSTEM_ACCOUNT.to_owned(),
            no_header_support: false,
            proxy_protocol: false,
            tls: None,
            allow_non_tls: false,
            ocsp: Ocsp::default(),
            ocsp_cache: OcspCache::default(),
            websocket: None,
            leafnodes: None,
            limits: Limits::default(),
            jetstream: JetStreamOptions::default(),
            console: ConsoleOptions::default(),
            otlp: None,
            ready_timeout: None,
            lame_duck_duration: Duration::from_secs(120),
            lame_duck_grace_period: Duration::from_secs(10),
            warnings: Vec::new(),
        }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            debug: false,
            trace: false,
            trace_verbose: false,
            trace_headers: false,
            format: LogFormat::default(),
            logtime: true,
            logtime_utc: false,
            file: None,
            file_size_limit_bytes: None,
            file_max_count: None,
            max_traced_msg_bytes: None,
        }
    }
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self {
            host: DEFAULT_HOST.to_owned(),
            http_port: None,
            https_port: None,
            base_path: "/".to_owned(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload_bytes: DEFAULT_MAX_PAYLOAD_BYTES,
            max_pending_bytes: DEFAULT_MAX_PENDING_BYTES,
            max_control_line_bytes: DEFAULT_MAX_CONTROL_LINE_BYTES,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_subscriptions: None,
            max_subscription_tokens: None,
            ping_interval: Duration::from_secs(120),
            ping_max: 2,
            write_deadline: Duration::from_secs(10),
            no_fast_producer_stall: false,
            max_closed_clients: DEFAULT_MAX_CLOSED_CLIENTS,
        }
    }
}

impl Default for JetStreamOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            store_dir: PathBuf::from("nuthatch-data"),
            store: None,
            tier: None,
            cache: None,
            logs: Vec::new(),
            max_memory_bytes: None,
            max_store_bytes: None,
            domain: None,
            sync: SyncPolicy::default(),
            compression: None,
            keys: Keys::default(),
            strict: true,
            unique_tag: None,
            limits: JetStreamLimits::default(),
        }
    }
}

impl Default for JetStreamLimits {
    fn default() -> Self {
        Self {
            max_ack_pending: None,
            max_request_batch: None,
            duplicate_window: None,
            default_max_consumers: Some(DEFAULT_MAX_CONSUMERS),
            batch: BatchOptions::default(),
        }
    }
}

#[cfg(test)]
mod tests;
