//! Keys about where the tokens of accounts are.

use super::super::keys::{Block, no, said, yes};

/// Keys of `resolver {}`.
pub(in super::super) static RESOLVER: Block = Block {
    place: "in 'resolver'",
    keys: &[
        yes(
            &["type"],
            "required",
            "`full`: the accounts of a directory, which the system account may change. `cache`: accounts are asked for on the system account when they are needed, and kept in a directory. `memory`: those of `resolver_preload`",
        ),
        yes(&["dir"], "required", "that directory: a file `<public key>.jwt` for each account"),
        yes(&["allow_delete"], "false", "`full`: accounts may be deleted; their files are renamed"),
        yes(&["hard_delete"], "false", "`full`: deleted files are removed instead"),
        yes(
            &["limit"],
            "0",
            "most accounts in the directory; 0: 100,000 of `full`, 1000 of `cache`, which removes the file that was not used for the longest time",
        ),
        said(&["interval"], "time between comparisons with other servers", super::ALONE),
        yes(&["timeout"], "`\"1.9s\"`", "`cache`: longest wait for an account; at most a minute"),
        yes(&["ttl"], "0", "`cache`: a file that was not used for so long is removed; 0: none is"),
    ],
};

/// Keys of `resolver_tls`.
pub(in super::super) static RESOLVER_TLS: Block = Block {
    place: "in 'resolver_tls'",
    keys: &[
        yes(&["ca_file"], "the system's", "PEM file of the authorities of the account server"),
        yes(&["cert_file"], "none", "PEM file of the certificate to show"),
        yes(&["key_file"], "none", "PEM file of its private key"),
        yes(&["insecure"], "false", "do not check the account server's certificate"),
        said(&["timeout"], "seconds for the handshake", "1.9 s are for all of a request"),
        said(&["verify"], "check certificates of clients", "the other side is always checked"),
        no(&["verify_and_map"], "the certificate names the user", "there are no clients here"),
        no(&["handshake_first", "first", "immediate"], "TLS before INFO", "HTTPS always is"),
        yes(&["min_version"], "`\"1.2\"`", "oldest TLS version, `\"1.2\"` or `\"1.3\"`"),
        yes(&["cipher_suites"], "all", "the only cipher suites, as in `tls`"),
        yes(&["curve_preferences"], "all", "the only groups for the key exchange, as in `tls`"),
        said(&["allow_insecure_cipher_suites"], "weak cipher suites", "they are never offered"),
        no(&["pinned_certs"], "the only certificates", super::BY_AUTHORITY),
        no(&["certs", "certificates"], "several certificates", super::ONE_CERTIFICATE),
        no(&["connection_rate_limit"], "handshakes per second", "there are no clients here"),
        said(
            &["ocsp_peer"],
            "OCSP of the other side",
            "as in nats-server, account servers are not asked about",
        ),
    ],
};
