//! Keys about OCSP.

use super::super::keys::{Block, yes};

/// Keys of `ocsp {}`.
pub(in super::super) static OCSP: Block = Block {
    place: "in 'ocsp'",
    keys: &[
        yes(
            &["mode"],
            "auto",
            "`auto`: to certificates that demand it (must-staple). `must`: to those, and a revoked one stops the server. `always`: to all, likewise. `never`: to none",
        ),
        yes(
            &["urls", "url"],
            "the certificate's",
            "responders to ask, `http://` or `https://`, up to 8",
        ),
    ],
};

/// Keys of `ocsp_cache {}`.
pub(in super::super) static OCSP_CACHE: Block = Block {
    place: "in 'ocsp_cache'",
    keys: &[
        yes(&["type"], "local", "`local`: in memory and in a file. `none`: nothing is kept"),
        yes(
            &["local_store"],
            "`_rc_` in the working directory",
            "directory of the file `cache.json`, which is read and written as nats-server does",
        ),
        yes(
            &["preserve_revoked"],
            "false",
            "keep revocations that are over; always done while any `allow_when_ca_unreachable` is on",
        ),
        yes(
            &["save_interval"],
            "300",
            "seconds between writes of the file; at least 1, at most 31622400 (366 days)",
        ),
    ],
};

/// Keys of `ocsp_peer {}`.
pub(in super::super) static OCSP_PEER: Block = Block {
    place: "in 'ocsp_peer'",
    keys: &[
        yes(&["verify"], "false", "check the other side's certificate, and those it comes from"),
        yes(
            &["ca_timeout"],
            "2",
            "seconds to wait for a responder, at most 3600; in all at most four times that",
        ),
        yes(&["allowed_clockskew"], "30", "seconds that the clocks may be apart, at most 86400"),
        yes(&["warn_only"], "false", "log what fails and let it in"),
        yes(&["unknown_is_good"], "false", "let in what the responder does not know"),
        yes(
            &["allow_when_ca_unreachable"],
            "false",
            "let in if no responder that was asked answers, unless the cache knows of a revocation, even one that is over. Who could not be asked about in time, as too many requests are under way, is refused",
        ),
        yes(
            &["cache_ttl_when_next_update_unset"],
            "3600",
            "seconds that a response counts which does not say until when, at most 31622400 (366 days)",
        ),
    ],
};
