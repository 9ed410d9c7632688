//! Keys about the service that says who clients are.

use super::super::keys::{Block, yes};

/// Keys of `auth_callout`.
pub(in super::super) static AUTH_CALLOUT: Block = Block {
    place: "in 'auth_callout'",
    keys: &[
        yes(&["issuer"], "required", "public nkey (`A…`) of the key that signs responses"),
        yes(
            &["account", "acc"],
            "`$G`",
            "the account in which the service listens on `$SYS.REQ.USER.AUTH`",
        ),
        yes(
            &["auth_users", "users"],
            "required",
            "array of users (names or nkeys) about whom the service is not asked: those of the service itself",
        ),
        yes(
            &["allowed_accounts"],
            "all",
            "array of accounts about whose users the service is asked; it always is about users of `$G` and unknown ones",
        ),
        yes(
            &["xkey", "key"],
            "none",
            "public curve key (`X…`) of the service: requests are encrypted for it, and responses may be encrypted for the server",
        ),
    ],
};
