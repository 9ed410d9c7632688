//! Keys about trusted proxies.

use super::super::keys::{Block, yes};

/// Keys of `proxies`.
pub(in super::super) static PROXIES: Block = Block {
    place: "in 'proxies'",
    keys: &[yes(
        &["trusted"],
        "none",
        "array of proxies, at most 64: whoever comes through one shows its signature of the nonce (`proxy_sig` of CONNECT)",
    )],
};

/// Keys of an entry of `trusted`.
pub(in super::super) static TRUSTED_PROXY: Block = Block {
    place: "in a trusted proxy",
    keys: &[yes(&["key", "public_key"], "required", "public nkey of the proxy")],
};
