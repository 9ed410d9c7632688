//! The tables of configuration keys.

use super::keys::{Block, Key, depends, no, said, yes};

mod callout;
mod jetstream;
pub(super) mod leaf;
mod ocsp;
mod proxies;
mod resolver;
mod sharing;
mod telemetry;
mod websocket;

pub(super) use self::callout::AUTH_CALLOUT;
pub(super) use self::jetstream::{BATCH_LIMITS, CACHE, JETSTREAM, JETSTREAM_LIMITS, LOG, TIER};
pub(super) use self::ocsp::{OCSP, OCSP_CACHE, OCSP_PEER};
pub(super) use self::proxies::{PROXIES, TRUSTED_PROXY};
pub(super) use self::resolver::{RESOLVER, RESOLVER_TLS};
pub(super) use self::sharing::{EXPORT, IMPORT, IMPORTED, LATENCY, MSG_TRACE};
pub(super) use self::telemetry::OTLP;
pub(super) use self::websocket::{WEBSOCKET, WEBSOCKET_AUTHORIZATION};

const NO_ROUTE_USERS: &str = "nodes know each other by the key they share: write 'key_file'";
const NO_MQTT: &str = "this version does not speak MQTT; remove the block";
const ALONE: &str = "there is no other server that knows accounts";
const NO_TPM: &str = "keys are not taken from a TPM; use 'key'";
/// Why a server that we connect to has no pins.
const BY_AUTHORITY: &str = "the other side is known by its authority: name that in 'ca_file'";
const ONE_CERTIFICATE: &str = "one is shown: 'cert_file'";
const NO_WINDOWS: &str = "it concerns Windows only";
const CLUSTER_ONLY: &str = "it concerns clusters, and this server is alone";
const REPORTS: &str =
    "failures to connect as a leaf node are logged at the 1st, 2nd, 4th, 8th, … attempt";

/// Keys at the top of the file.
pub(super) static TOP: Block = Block { place: "at the top level", keys: TOP_KEYS };

const TOP_KEYS: &[Key] = &[
    yes(&["listen"], "`:4222`", "address and port for clients: `host:port` or a port"),
    yes(
        &["host", "net"],
        "`127.0.0.1`, with users `0.0.0.0`",
        "address for clients; under the name `nats-server` always `0.0.0.0`",
    ),
    yes(&["port"], "4222", "port for clients; -1: a free one; 0: the default"),
    yes(
        &["server_name"],
        "the host name; under the name `nats-server` the server's id",
        "name of this server; no spaces",
    ),
    yes(&["client_advertise"], "none", "address to tell clients instead of our own"),
    yes(&["server_tags"], "none", "tags of this server, a string or an array"),
    yes(&["server_metadata"], "none", "map of strings about this server"),
    yes(&["debug"], "false", "debug lines in the log"),
    yes(&["trace"], "false", "the protocol in the log"),
    yes(&["trace_verbose"], "false", "as `trace`, the system account included"),
    yes(&["trace_headers"], "false", "as `trace`, headers without payloads"),
    yes(
        &["log_format"],
        "nats",
        "ours: `nats`, lines as nats-server writes them, or `json`, an object a line",
    ),
    yes(&["logtime"], "true", "log lines begin with the time"),
    yes(&["logtime_utc"], "false", "that time is in UTC"),
    yes(&["log_file", "logfile"], "stderr", "file to log to"),
    yes(
        &["logfile_size_limit", "log_size_limit"],
        "0",
        "bytes at which the log file is rotated; 0: never",
    ),
    yes(&["logfile_max_num", "log_max_num"], "0", "log files that are kept; 0: all"),
    yes(&["max_traced_msg_len"], "0", "bytes of a traced message that are logged; 0: all"),
    said(&["syslog"], "log to syslog", "log lines go to log_file or stderr, which journald keeps"),
    said(&["remote_syslog"], "log to a remote syslog", "log lines go to log_file or stderr"),
    yes(&["pid_file", "pidfile"], "none", "file that receives the process id"),
    yes(&["ports_file_dir"], "none", "directory that receives `<executable>_<pid>.ports`"),
    yes(&["http"], "off", "monitoring over HTTP: `host:port` or a port; -1: a free one"),
    yes(&["http_port", "monitor_port"], "off", "port for monitoring over HTTP"),
    yes(&["https"], "off", "monitoring over HTTPS, with the certificate of `tls`"),
    yes(&["https_port"], "off", "port for monitoring over HTTPS"),
    yes(&["http_base_path"], "`/`", "path under which monitoring lives"),
    yes(&["authorization"], "none", "who may connect; see below"),
    yes(&["accounts"], "none", "accounts and their users; see below"),
    yes(&["no_auth_user"], "none", "the user that clients without credentials become"),
    yes(&["system_account", "system"], "`$SYS`", "name of the system account"),
    said(
        &["no_system_account", "no_system", "no_sys_acc"],
        "run without a system account",
        "the system account is always there and costs nothing",
    ),
    yes(&["tls"], "none", "TLS towards clients; see below"),
    yes(&["allow_non_tls"], "false", "admit plain connections beside TLS"),
    yes(&["jetstream"], "on for `nuthatch serve`, off for `nats-server`", "see below"),
    yes(&["store_dir", "storedir"], "`nuthatch-data`", "as `store_dir` of `jetstream`"),
    yes(&["max_payload"], "1MB", "largest message, headers included; at most 64MB"),
    yes(&["max_pending"], "64MB", "bytes that may wait for a slow client"),
    yes(&["max_connections", "max_conn"], "65536", "client connections; 0: nobody may connect"),
    yes(
        &["max_subscriptions", "max_subs"],
        "0, without users 131072",
        "subscriptions of one connection; 0: any number; under the name `nats-server` always 0 by default",
    ),
    yes(
        &["max_sub_tokens", "max_subscription_tokens"],
        "none",
        "tokens in a subscribed subject, 1 to 255",
    ),
    yes(&["max_control_line"], "4KB", "longest protocol line"),
    yes(&["max_closed_clients"], "10000", "closed connections that `/connz` remembers"),
    yes(&["ping_interval"], "`\"2m\"`", "time between pings"),
    yes(&["ping_max"], "2", "unanswered pings until a connection is closed"),
    yes(&["write_deadline"], "`\"10s\"`", "longest time of one write to a client"),
    yes(
        &["write_timeout"],
        "`default`",
        "`default`, `close` or `retry`, which mean the same: a client that takes nothing within `write_deadline` is closed, one that takes a part is not (there `close` closes that too)",
    ),
    yes(&["no_fast_producer_stall"], "false", "never slow down publishers for slow subscribers"),
    yes(
        &["ready_timeout"],
        "0",
        "ours: longest time from the start until clients are served, else the process ends; 0: any time",
    ),
    yes(&["lame_duck_duration"], "`\"2m\"`", "time over which a lame duck drops clients; ≥ 30s"),
    yes(&["lame_duck_grace_period"], "`\"10s\"`", "time before it drops the first"),
    depends(
        &["cluster"],
        "none",
        "makes this server a node of a cluster (experimental); see below",
        "one that only holds a `name` and such asks for no connections and has no effect",
    ),
    said(
        &["gateway"],
        "connections to other clusters",
        "this server is alone: no port for gateways is opened, and none is looked for",
    ),
    yes(&["leafnodes", "leaf"], "none", "connections of leaf nodes, in both directions; see below"),
    yes(&["websocket", "ws"], "none", "clients over websocket; see below"),
    no(&["mqtt"], "clients over MQTT", NO_MQTT),
    yes(
        &["console"],
        "on for `nuthatch serve`, off for `nats-server`",
        "ours: the web console; see below",
    ),
    yes(&["otlp"], "off", "ours: metrics and traces are sent to a collector; see below"),
    yes(&["mappings", "maps"], "none", "subject mappings of the global account; see below"),
    yes(
        &["operator", "operators", "roots", "root", "root_operators", "root_operator"],
        "none",
        "operator mode: JWT of the operator, in place or as a file; or an array of them",
    ),
    yes(
        &["resolver", "account_resolver", "accounts_resolver"],
        "required with `operator`",
        "where the JWTs of accounts are: `MEMORY`, `URL(http[s]://[user:password@]host[:port]/path/)`, or a directory; see below",
    ),
    yes(
        &["resolver_tls"],
        "as any client",
        "TLS towards the server of `URL(https://…)`; see below",
    ),
    yes(&["resolver_preload"], "none", "map from public keys of accounts to their JWTs"),
    yes(
        &["resolver_pinned_accounts"],
        "all",
        "the only accounts that users may be of, beside the system account",
    ),
    yes(&["trusted_keys", "trusted"], "none", "public keys of operators, in place of `operator`"),
    yes(&["default_sentinel"], "none", "user JWT of clients that show none: a bearer or scoped"),
    yes(
        &["ocsp"],
        "true",
        "OCSP responses stapled to the certificates of clients and websockets: true (mode `auto`), false (`never`), a mode, or a map; see below",
    ),
    yes(
        &["ocsp_cache"],
        "true if there is any `ocsp_peer`",
        "cache of OCSP responses about the other side: true, false, a type, or a map; see below",
    ),
    yes(
        &["proxies"],
        "none",
        "proxies that are believed, by the signature of their key; see below",
    ),
    yes(
        &["proxy_protocol"],
        "false",
        "a PROXY header (v1, v2) in front of what a client sends names its address; whoever can connect is believed, so only the proxy may reach the port",
    ),
    yes(&["no_header_support"], "false", "clients and leaf nodes neither send nor get headers"),
    said(
        &["default_js_domain"],
        "JetStream domains of accounts",
        "a JetStream without a domain is not reached through leaf nodes: name its `domain`",
    ),
    said(
        &["disable_sublist_cache", "no_sublist_cache"],
        "no cache of subscription matches",
        "routes are cached per thread, within a bound",
    ),
    said(&["connect_error_reports"], "how often failed connects are logged", REPORTS),
    said(&["reconnect_error_reports"], "how often failed reconnects are logged", REPORTS),
    said(&["prof_port"], "profiling over HTTP", "there is no Go profiler; use perf"),
    said(&["prof_block_rate"], "rate of the block profile", "there is no Go profiler; use perf"),
    said(&["feature_flags"], "switches of nats-server's own features", "none of them exists here"),
];

/// Keys of `authorization`.
pub(super) static AUTHORIZATION: Block = Block {
    place: "in 'authorization'",
    keys: &[
        yes(&["user", "username"], "none", "the name that every client has to give"),
        yes(&["password", "pass"], "none", "its password, plain or bcrypt"),
        yes(&["token"], "none", "the token that every client has to give, plain or bcrypt"),
        yes(
            &["token_file"],
            "none",
            "ours: file that holds that token; a start without it makes one, and says it once",
        ),
        yes(&["timeout"], "2, with TLS its timeout + 1", "seconds to authenticate in"),
        yes(&["users"], "none", "array of users; see below"),
        yes(
            &["default_permissions", "default_permission", "permissions"],
            "everything",
            "permissions of users that have none",
        ),
        yes(&["auth_callout", "auth_hook"], "none", "a service says who clients are; see below"),
        yes(
            &["proxy_required"],
            "false",
            "the one user, or whoever has the token, only through a trusted proxy",
        ),
    ],
};

/// Keys of one user.
pub(super) static USER: Block = Block {
    place: "in a user",
    keys: &[
        yes(&["user", "username"], "", "name"),
        yes(&["password", "pass"], "none", "password, plain or bcrypt"),
        yes(&["nkey"], "", "public nkey (`U…`) instead of name and password"),
        yes(
            &["permissions", "permission", "authorization"],
            "default_permissions",
            "what the user may do; see below",
        ),
        yes(
            &["allowed_connection_types", "connection_types", "clients"],
            "all",
            "`STANDARD`, `WEBSOCKET`, `LEAFNODE`, `LEAFNODE_WS`, `MQTT`, `MQTT_WS`, `IN_PROCESS`",
        ),
        yes(&["proxy_required"], "false", "only through a trusted proxy"),
    ],
};

/// Keys of permissions.
pub(super) static PERMISSIONS: Block = Block {
    place: "in 'permissions'",
    keys: &[
        yes(
            &["publish", "pub", "import"],
            "everything",
            "subject, array of subjects, or `{allow, deny}`",
        ),
        yes(
            &["subscribe", "sub", "export"],
            "everything",
            "likewise; an entry may be `\"subject queue\"`",
        ),
        yes(
            &["allow_responses", "publish_allow_responses"],
            "false",
            "true or `{max, expires}`: publishing to the reply subject of a received message",
        ),
    ],
};

/// Keys of `publish {}` and `subscribe {}`.
pub(super) static SUBJECTS: Block = Block {
    place: "in subject permissions",
    keys: &[
        yes(&["allow"], "everything", "subject or array of subjects"),
        yes(&["deny"], "nothing", "subject or array of subjects; denied wins"),
    ],
};

/// Keys of `allow_responses {}`.
pub(super) static RESPONSES: Block = Block {
    place: "in 'allow_responses'",
    keys: &[
        yes(
            &["max", "max_msgs", "max_messages", "max_responses"],
            "1",
            "responses to one message; negative: any number",
        ),
        yes(
            &["expires", "expiration", "ttl"],
            "`\"2m\"`",
            "time in which they may be sent; negative: any time",
        ),
    ],
};

/// Keys of one account.
pub(super) static ACCOUNT: Block = Block {
    place: "in an account",
    keys: &[
        yes(&["users"], "none", "array of users, as in `authorization`"),
        yes(&["default_permissions"], "everything", "permissions of users that have none"),
        yes(&["jetstream"], "off", "true, `enabled`, or limits; see below"),
        yes(&["exports"], "none", "array of streams and services for other accounts; see below"),
        yes(&["imports"], "none", "array of streams and services of other accounts; see below"),
        yes(&["mappings", "maps"], "none", "subject mappings; see below"),
        yes(&["limits"], "none", "limits of the account's connections; see below"),
        yes(&["msg_trace", "trace_dest"], "off", "traces of `traceparent` messages; see below"),
        said(&["nkey"], "public nkey of the account", "only operator mode needs it"),
    ],
};

/// Keys of `limits {}` in an account.
pub(super) static ACCOUNT_LIMITS: Block = Block {
    place: "in 'limits' of an account",
    keys: &[
        yes(&["max_connections", "max_conn"], "none", "connections at a time"),
        yes(&["max_subscriptions", "max_subs"], "none", "subscriptions of one connection"),
        yes(&["max_payload", "max_pay"], "none", "largest message; the server's limit counts too"),
        yes(&["max_leafnodes", "max_leafs"], "none", "connections of leaf nodes at a time"),
    ],
};

/// Keys of one destination of a mapping.
pub(super) static MAPPING: Block = Block {
    place: "in a mapping",
    keys: &[
        yes(&["destination", "dest"], "required", "subject, with functions"),
        yes(
            &["weight"],
            "required in a list",
            "percent of the messages, as a number or as `\"25%\"`",
        ),
        yes(&["cluster"], "every cluster", "only in the cluster of this name"),
    ],
};

/// Keys of `jetstream {}` in an account.
pub(super) static ACCOUNT_JETSTREAM: Block = Block {
    place: "in 'jetstream' of an account",
    keys: &[
        yes(&["max_memory", "max_mem", "mem", "memory"], "none", "bytes of memory streams"),
        yes(&["max_file", "max_store", "max_disk", "store", "disk"], "none", "bytes on disk"),
        yes(&["max_streams", "streams"], "none", "number of streams"),
        yes(&["max_consumers", "consumers"], "none", "consumers of one stream"),
        yes(&["max_ack_pending"], "none", "highest max_ack_pending of a consumer"),
        yes(&["memory_max_stream_bytes", "mem_max_stream_bytes"], "none", "bytes of one stream"),
        yes(&["store_max_stream_bytes", "disk_max_stream_bytes"], "none", "bytes of one stream"),
        yes(
            &["max_bytes_required", "max_stream_bytes", "max_bytes"],
            "false",
            "every stream must set max_bytes",
        ),
        said(&["cluster_traffic"], "account of replication traffic", CLUSTER_ONLY),
    ],
};

/// Keys of `tls`.
pub(super) static TLS: Block = Block {
    place: "in 'tls'",
    keys: &[
        yes(&["cert_file"], "required", "PEM file of the certificate chain"),
        yes(&["key_file"], "required", "PEM file of the private key"),
        yes(&["ca_file"], "none", "PEM file of the authorities of client certificates"),
        yes(&["verify"], "false", "clients must present a certificate of `ca_file`"),
        yes(&["timeout"], "2", "seconds for the handshake"),
        yes(
            &["certs", "certificates"],
            "none",
            "array of `{cert_file, key_file}` instead of one: the first whose name a client asks for is shown",
        ),
        yes(&["min_version"], "`\"1.2\"`", "oldest TLS version, `\"1.2\"` or `\"1.3\"`"),
        yes(
            &["verify_and_map"],
            "false",
            "as `verify`, and the certificate names the user: by an e-mail address, DNS name or URI, else by its subject as a distinguished name in any order",
        ),
        depends(
            &["verify_cert_and_check_known_urls"],
            "false",
            "for routes and gateways",
            "refused if true: clients have no known URLs (in nats-server too)",
        ),
        yes(
            &["handshake_first", "first", "immediate"],
            "false",
            "TLS before INFO: true, false, `\"auto\"` (50 ms) or how long to wait for the client to begin",
        ),
        yes(
            &["pinned_certs"],
            "any",
            "SHA-256 (hexadecimal) of the SubjectPublicKeyInfo of the only certificates to admit",
        ),
        yes(&["connection_rate_limit"], "0", "handshakes per second; 0: any number"),
        yes(
            &["cipher_suites"],
            "all",
            "the only cipher suites, by Go's names; those of TLS 1.3 stay unless some are named",
        ),
        depends(
            &["curve_preferences"],
            "all",
            "the only groups for the key exchange, the best first",
            "`X25519`, `CurveP256`, `CurveP384` are honoured; others that Go has are passed over with a warning",
        ),
        said(&["allow_insecure_cipher_suites"], "weak cipher suites", "they are never offered"),
        yes(
            &["ocsp_peer"],
            "false",
            "check the certificates of clients by OCSP, as well as those they come from: true, or a map; see below",
        ),
        no(&["cert_store"], "certificates from Windows", NO_WINDOWS),
        no(&["cert_match_by"], "certificates from Windows", NO_WINDOWS),
        no(&["cert_match"], "certificates from Windows", NO_WINDOWS),
        no(&["cert_match_skip_invalid"], "certificates from Windows", NO_WINDOWS),
        no(&["ca_certs_match"], "certificates from Windows", NO_WINDOWS),
        said(
            &["insecure"],
            "do not check certificates of other servers",
            "it belongs to `tls` of a remote of `leafnodes`",
        ),
    ],
};

/// Keys of an entry of `certs`.
pub(super) static CERTIFICATE: Block = Block {
    place: "in an entry of 'certs'",
    keys: &[
        yes(&["cert_file"], "required", "PEM file of the certificate chain"),
        yes(&["key_file"], "required", "PEM file of the private key"),
    ],
};

/// Keys of `console`.
pub(super) static CONSOLE: Block = Block {
    place: "in 'console'",
    keys: &[
        yes(
            &["listen"],
            "`127.0.0.1:8280`",
            "`host:port` or a port; -1: a free one. The default is left out when its port is taken",
        ),
        yes(&["enabled"], "as above; with `listen` true", "the web console is served"),
        yes(&["read_only"], "false", "it changes nothing, whoever asks"),
        yes(
            &["hosts"],
            "none",
            "names under which browsers reach it, such as that of a proxy; addresses and `localhost` are \
             always accepted",
        ),
    ],
};

/// Keys of `cluster`.
pub(super) static CLUSTER: Block = Block {
    place: "in 'cluster'",
    keys: &[
        yes(&["name"], "drawn at the founding", "the cluster's name, as clients see it"),
        yes(
            &["listen"],
            "none",
            "node port: `host:port` or a port; either this or `port` is needed",
        ),
        yes(
            &["host", "net"],
            "`0.0.0.0`",
            "address of the node port. Off loopback `nuthatch serve` wants a `key_file`; `nats-server` warns without one",
        ),
        yes(&["port"], "none", "node port"),
        yes(
            &["routes"],
            "needed",
            "node ports of all nodes, 3 or 5 with its own: `nats-route://10.0.0.1:6222`; a name stands for one node, and is looked up again and again",
        ),
        yes(
            &["key_file"],
            "none",
            "ours: file with the secret that all nodes share, as `-cluster_key`",
        ),
        yes(
            &["zone"],
            "none",
            "ours: where the node is (an availability zone, a rack), as `-zone`: 1 to 64 letters, digits, `-`, `_`, `.`",
        ),
        no(&["authorization"], "users of routes", NO_ROUTE_USERS),
        no(&["tls"], "TLS of routes", NO_ROUTE_USERS),
        no(&["permissions"], "subjects that go over routes", "all that somebody listens for does"),
        no(
            &["advertise", "cluster_advertise"],
            "address to tell other nodes",
            "they know it from their `routes`",
        ),
        said(&["no_advertise"], "clients are not told of other nodes", "clients are told of them"),
        said(&["connect_retries"], "tries to reach an implicit route", "nodes are tried for ever"),
        said(&["connect_backoff"], "pauses between them grow", "they grow up to a second"),
        said(
            &["pool_size", "accounts"],
            "connections per route",
            "each account has one of its own",
        ),
        said(&["compression"], "S2 between nodes", "connections between nodes are not compressed"),
        said(
            &["ping_interval"],
            "pings between nodes",
            "nodes say that they are alive every 50 ms",
        ),
    ],
};

/// Keys of `quorum` of `jetstream`.
pub(super) static QUORUM: Block = Block {
    place: "in 'quorum' of 'jetstream'",
    keys: &[
        yes(
            &["catalog"],
            "`built-in`",
            "where the cluster's catalog is: `built-in`, `\"file:///shared/dir\"`, `\"s3://bucket/prefix\"`, `\"etcd://host:2379/prefix\"`; as `-catalog`",
        ),
        yes(
            &["logs_per_node"],
            "1",
            "quorum logs for each node, 15 in all at most; a cluster keeps what it was founded with",
        ),
        yes(
            &["replace_after"],
            "never",
            "a duration, at least `10s`: the place of a node that the catalog's leader (without one the first node) has not heard for so long is taken by a spare; the same at all nodes",
        ),
        yes(&["lease"], "`200ms`", "`100ms` to `200ms`: a takeover from a dead node waits so long"),
        yes(
            &["owner_zones"],
            "none",
            "a zone or an array of up to 8: logs are owned by nodes in these where those are there and have everything; the same at all nodes",
        ),
        yes(&["standby_above"], "`50ms`", "logs of others that open slower are followed here"),
        yes(
            &["standby_memory"],
            "an eighth of the machine's",
            "bytes that this node may spend on that, about, so that it takes such logs over at once; 0: none is followed",
        ),
    ],
};

/// Every table with its heading in `docs/configuration.md`.
pub(super) static DOCUMENTED: &[(&str, &Block)] = &[
    ("Top level", &TOP),
    ("`resolver`", &RESOLVER),
    ("`resolver_tls`", &RESOLVER_TLS),
    ("`authorization`", &AUTHORIZATION),
    ("`auth_callout`", &AUTH_CALLOUT),
    ("A user", &USER),
    ("`proxies`", &PROXIES),
    ("An entry of `trusted` in `proxies`", &TRUSTED_PROXY),
    ("`permissions`", &PERMISSIONS),
    ("`publish {}` and `subscribe {}`", &SUBJECTS),
    ("`allow_responses {}`", &RESPONSES),
    ("An account", &ACCOUNT),
    ("`limits {}` of an account", &ACCOUNT_LIMITS),
    ("`msg_trace {}` of an account", &MSG_TRACE),
    ("An export", &EXPORT),
    ("`latency {}` of an export", &LATENCY),
    ("An import", &IMPORT),
    ("`stream {}` and `service {}` of an import", &IMPORTED),
    ("A destination of a mapping", &MAPPING),
    ("`jetstream {}` of an account", &ACCOUNT_JETSTREAM),
    ("`tls`", &TLS),
    ("An entry of `certs` in `tls`", &CERTIFICATE),
    ("`ocsp`", &OCSP),
    ("`ocsp_peer` of `tls`", &OCSP_PEER),
    ("`ocsp_cache`", &OCSP_CACHE),
    ("`websocket`", &WEBSOCKET),
    ("`authorization` of `websocket`", &WEBSOCKET_AUTHORIZATION),
    ("`console`", &CONSOLE),
    ("`otlp`", &OTLP),
    ("`cluster` (experimental)", &CLUSTER),
    ("`quorum {}` of `jetstream`", &QUORUM),
    ("`leafnodes`", &leaf::LEAFNODES),
    ("`authorization` of `leafnodes`", &leaf::AUTHORIZATION),
    ("A user of `leafnodes`", &leaf::USER),
    ("`compression {}` of `leafnodes` and of a remote", &leaf::COMPRESSION),
    ("A remote of `leafnodes`", &leaf::REMOTE),
    ("`proxy` of a remote", &leaf::PROXY),
    ("`tls` of the proxy of a remote", &leaf::PROXY_TLS),
    ("`tls` of a remote", &leaf::REMOTE_TLS),
    ("`jetstream`", &JETSTREAM),
    ("`limits {}` of `jetstream`", &JETSTREAM_LIMITS),
    ("`batch {}` of these `limits {}`", &BATCH_LIMITS),
    ("each of `logs {}` of `jetstream`", &LOG),
    ("`tier {}` of `jetstream` and of its `logs`", &TIER),
    ("`cache {}` of `jetstream` and of its `logs`", &CACHE),
];
