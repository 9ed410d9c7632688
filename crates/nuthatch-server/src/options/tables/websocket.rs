//! Keys about who may connect over websocket.

use super::super::keys::{Block, yes};

/// Keys of `websocket`.
pub(in super::super) static WEBSOCKET: Block = Block {
    place: "in 'websocket'",
    keys: &[
        yes(&["listen"], "none", "address and port: `host:port` or a port"),
        yes(&["host", "net"], "as for clients", "address"),
        yes(&["port"], "none", "port; -1: a free one; without it nothing is opened"),
        yes(&["advertise"], "none", "address to tell clients instead of our own"),
        yes(&["no_tls"], "false", "do without `tls`"),
        yes(
            &["tls"],
            "required unless `no_tls`",
            "as at the top level; the handshake always comes first",
        ),
        yes(&["same_origin"], "false", "a browser's page must come from this address"),
        yes(
            &[
                "allowed_origins",
                "allowed_origin",
                "allow_origins",
                "allow_origin",
                "origins",
                "origin",
            ],
            "all",
            "the only pages that may connect, such as `https://app.example`",
        ),
        yes(&["compression", "compress"], "false", "compress messages if the client offers it"),
        yes(&["handshake_timeout"], "`\"10s\"`", "longest time of the websocket handshake"),
        yes(&["no_auth_user"], "as at the top level", "the user of clients without credentials"),
        yes(&["user_cookie"], "none", "cookie that holds the user if CONNECT has none"),
        yes(&["pass_cookie"], "none", "cookie that holds the password, likewise"),
        yes(&["token_cookie"], "none", "cookie that holds the token, likewise"),
        yes(&["jwt_cookie"], "none", "cookie that holds the user's JWT, likewise (operator mode)"),
        yes(&["headers"], "none", "map of headers to add to the response of the handshake"),
        yes(&["ping_interval"], "as at the top level", "time between pings"),
        yes(
            &["authorization", "authentication"],
            "as for others",
            "the one user or token of websocket clients instead; see below",
        ),
    ],
};

/// Keys of `authorization` in `websocket`.
pub(in super::super) static WEBSOCKET_AUTHORIZATION: Block = Block {
    place: "in 'authorization' of 'websocket'",
    keys: &[
        yes(&["user", "username"], "none", "the name that every websocket client has to give"),
        yes(&["password", "pass"], "none", "its password, plain or bcrypt"),
        yes(&["token"], "none", "the token that every websocket client has to give"),
        yes(&["timeout"], "as for others", "seconds to authenticate in"),
    ],
};
