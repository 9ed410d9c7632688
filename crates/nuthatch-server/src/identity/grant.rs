//! The rights that a user's token grants, for as long as its connection lives.

use super::Rights;
use nuthatch_protocol::jwt::{UserClaims, UserPermissions};
use std::sync::Arc;
use std::time::SystemTime;

/// A token that let a client in.
#[derive(Debug)]
pub struct Grant {
    /// The token.
    pub jwt: String,
    /// The token's claims.
    pub claims: UserClaims,
    /// Public nkey of the account whose service (auth callout) let it in; `None`: its own token did, or
    /// the service of the configuration.
    pub service: Option<String>,
    /// Public nkey of the account.
    pub account: String,
    /// The account's name for people, as it was then.
    pub account_name: String,
    /// Its permissions; `None`: unrestricted.
    pub rights: Option<Arc<Rights>>,
    /// Its permissions and limits, as the token or the template of its key said them then.
    pub said: UserPermissions,
    /// It need not have signed the nonce.
    pub is_bearer: bool,
    /// When the client has to go.
    pub expires: Option<SystemTime>,
    /// Subscriptions of a connection.
    pub max_subscriptions: Option<u32>,
    /// Largest message, headers and body together, in bytes.
    pub max_payload_bytes: Option<usize>,
}
