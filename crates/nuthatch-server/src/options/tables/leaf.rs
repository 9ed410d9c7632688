//! The tables of `leafnodes`.

use super::super::keys::{Block, no, said, yes};

const ALONE: &str = "it moves leaders of replicated streams, of which a single server has none";
const MODES: &str = "S2: `off`, `accept`, `s2_auto`, `s2_fast`, `s2_better`, `s2_best` (the last three compress alike), or `{ mode, rtt_thresholds }`";

/// Keys of `leafnodes`.
pub(in crate::options) static LEAFNODES: Block = Block {
    place: "in 'leafnodes'",
    keys: &[
        yes(&["listen"], "none", "address and port for leaf nodes: `host:port` or a port"),
        yes(&["host", "net"], "as for clients", "address; with users of its own `0.0.0.0`"),
        yes(&["port"], "none", "port; -1: a free one; without it nobody may connect"),
        yes(
            &["advertise", "leafnode_advertise"],
            "the address if it is a particular one",
            "address to tell other servers",
        ),
        yes(&["no_advertise"], "false", "tell other servers no address"),
        yes(&["tls"], "none", "as at the top level, without `verify_and_map`"),
        yes(
            &["authorization"],
            "the users of clients",
            "who may connect as a leaf node; see below. A client's user may if its `allowed_connection_types` has `LEAFNODE` or is not set",
        ),
        yes(&["remotes"], "none", "array of servers to connect to; see below"),
        yes(
            &["reconnect", "reconnect_delay", "reconnect_interval"],
            "`\"1s\"`",
            "pause before the next attempt to connect, with up to as much again by chance; doubled after each failure, up to 16 times",
        ),
        yes(&["dial_timeout"], "`\"1s\"`", "longest time of an attempt to connect"),
        yes(&["compression"], "`off`", MODES),
        yes(
            &["isolate", "isolate_leafnode_interest"],
            "false",
            "leaf nodes do not hear of each other's subscriptions",
        ),
        yes(
            &["min_version", "minimum_version"],
            "any",
            "oldest version of a server that may connect, such as `\"2.9.0\"`; at least 2.8.0",
        ),
        said(
            &["write_deadline"],
            "longest time of one write to a leaf node",
            "the `write_deadline` of the top level holds",
        ),
        said(
            &["write_timeout"],
            "what happens after `write_deadline`",
            "the connection is closed and made anew",
        ),
    ],
};

/// Keys of `authorization` in `leafnodes`.
pub(in crate::options) static AUTHORIZATION: Block = Block {
    place: "in 'authorization' of 'leafnodes'",
    keys: &[
        yes(&["user", "username"], "none", "the name that every leaf node has to give"),
        yes(&["password", "pass"], "none", "its password, plain or bcrypt"),
        yes(&["nkey"], "none", "the public nkey that every leaf node has to have"),
        yes(&["account"], "the global one", "the account of that one user or nkey"),
        yes(&["users"], "none", "array of users instead; see below"),
        yes(&["timeout"], "2, with TLS its timeout + 1", "seconds to authenticate in"),
        yes(
            &["proxy_required"],
            "false",
            "all of them only through a trusted proxy (see `proxies`)",
        ),
    ],
};

/// Keys of a user in `authorization` of `leafnodes`.
pub(in crate::options) static USER: Block = Block {
    place: "in a user of 'leafnodes'",
    keys: &[
        yes(&["user", "username"], "required", "name"),
        yes(&["password", "pass"], "none", "password, plain or bcrypt"),
        yes(&["account"], "the global one", "the account that is connected"),
        yes(&["proxy_required"], "false", "only through a trusted proxy"),
    ],
};

/// Keys of an entry of `remotes`.
pub(in crate::options) static REMOTE: Block = Block {
    place: "in a remote of 'leafnodes'",
    keys: &[
        yes(
            &["urls", "url"],
            "required",
            "address or array of addresses: `nats-leaf://[user:password@]host[:7422]`, `tls://…`, `ws://host[:80][/path]`, `wss://…`",
        ),
        yes(&["account", "local"], "the global one", "the account here that is connected"),
        yes(&["credentials", "creds"], "none", "credentials file: a user's JWT and seed"),
        yes(&["nkey", "seed"], "none", "seed of a user's nkey"),
        yes(&["tls"], "as any client, where the other side asks for it", "see below"),
        yes(
            &["deny_imports", "deny_import"],
            "nothing",
            "subjects that are not taken from the other side",
        ),
        yes(
            &["deny_exports", "deny_export"],
            "nothing",
            "subjects that are not sent to the other side",
        ),
        yes(&["hub"], "false", "this side is the hub although it opens the connection"),
        yes(&["no_randomize", "dont_randomize"], "false", "try the addresses in their order"),
        yes(&["disabled"], "false", "do not connect"),
        yes(&["compression"], "`off`", MODES),
        yes(&["first_info_timeout"], "`\"5s\"`", "longest wait for the other side's greeting"),
        yes(&["dial_timeout"], "as for all remotes", "longest time of an attempt to connect"),
        yes(
            &["isolate", "isolate_leafnode_interest"],
            "false",
            "the other side does not hear of subscriptions of other leaf nodes",
        ),
        yes(&["request_isolation"], "false", "ask the other side to do so towards us"),
        yes(
            &["ignore_discovered_servers"],
            "false",
            "do not use the addresses of its cluster that the other side tells, up to 64",
        ),
        said(
            &["jetstream_cluster_migrate", "js_cluster_migrate"],
            "move leaders away when the connection is lost",
            ALONE,
        ),
        yes(
            &["ws_compress", "ws_compression", "websocket_compress", "websocket_compression"],
            "false",
            "offer compression of a websocket",
        ),
        yes(
            &["ws_no_masking", "websocket_no_masking"],
            "false",
            "send over a websocket unmasked, if the other side agrees",
        ),
        yes(&["proxy"], "none", "connect through an HTTP proxy; see below"),
    ],
};

/// Keys of `tls` in an entry of `remotes`.
pub(in crate::options) static REMOTE_TLS: Block = Block {
    place: "in 'tls' of a remote",
    keys: &[
        yes(&["ca_file"], "the system's", "PEM file of the authorities of the other side"),
        yes(&["cert_file"], "none", "PEM file of the certificate to show"),
        yes(&["key_file"], "none", "PEM file of its private key"),
        yes(&["insecure"], "false", "do not check the other side's certificate"),
        yes(
            &["handshake_first", "first", "immediate"],
            "false",
            "TLS before INFO, as the other side must be configured too",
        ),
        yes(&["timeout"], "2", "seconds for the handshake"),
        said(&["verify"], "check certificates of clients", "the other side is always checked"),
        no(&["verify_and_map"], "the certificate names the user", "there are no clients here"),
        yes(&["min_version"], "`\"1.2\"`", "oldest TLS version, `\"1.2\"` or `\"1.3\"`"),
        yes(&["cipher_suites"], "all", "the only cipher suites, as in `tls`"),
        yes(&["curve_preferences"], "all", "the only groups for the key exchange, as in `tls`"),
        said(&["allow_insecure_cipher_suites"], "weak cipher suites", "they are never offered"),
        no(
            &["pinned_certs"],
            "the only certificates",
            "those of 'tls' of 'leafnodes' count for servers that we connect to too",
        ),
        no(&["certs", "certificates"], "several certificates", super::ONE_CERTIFICATE),
        no(&["connection_rate_limit"], "handshakes per second", "there are no clients here"),
        yes(
            &["ocsp_peer"],
            "false",
            "check the other side's certificate by OCSP, as in `tls`: true, or a map",
        ),
    ],
};

/// Keys of `compression {}`.
pub(in crate::options) static COMPRESSION: Block = Block {
    place: "in 'compression'",
    keys: &[
        yes(&["mode"], "required", "as the word alone"),
        yes(
            &["rtt_thresholds", "thresholds", "rtts", "rtt"],
            "`[\"10ms\", \"50ms\", \"100ms\"]`",
            "`s2_auto`: up to the first round trip nothing is compressed; the others tell levels apart that compress alike here",
        ),
    ],
};

/// Keys of `proxy` in an entry of `remotes`.
pub(in crate::options) static PROXY: Block = Block {
    place: "in 'proxy' of a remote",
    keys: &[
        yes(&["url"], "required", "`http://host[:80]` or `https://host[:443]`"),
        yes(&["username"], "none", "user at the proxy"),
        yes(&["password"], "none", "its password"),
        yes(&["timeout"], "`dial_timeout`", "longest wait for the proxy, and for its answer"),
        yes(&["tls"], "the system's authorities", "TLS towards an `https://` proxy; see below"),
    ],
};

/// Keys of `tls` in `proxy`.
pub(in crate::options) static PROXY_TLS: Block = Block {
    place: "in 'tls' of a proxy",
    keys: &[
        yes(&["ca_file"], "the system's", "PEM file of the authorities of the proxy"),
        yes(&["cert_file"], "none", "PEM file of the certificate to show"),
        yes(&["key_file"], "none", "PEM file of its private key"),
        yes(&["insecure"], "false", "do not check the proxy's certificate"),
        yes(&["timeout"], "2", "seconds for the handshake"),
        yes(&["min_version"], "`\"1.2\"`", "oldest TLS version, `\"1.2\"` or `\"1.3\"`"),
        yes(&["cipher_suites"], "all", "the only cipher suites, as in `tls`"),
        yes(&["curve_preferences"], "all", "the only groups for the key exchange, as in `tls`"),
        said(&["allow_insecure_cipher_suites"], "weak cipher suites", "they are never offered"),
    ],
};
