//! What is kept of an account for its users: who may sign them, who is revoked, what they may do.

use super::rights;
use super::store::Held;
use crate::auth::Rights;
use crate::options::Permissions;
use nuthatch_protocol::jwt::SigningKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An account in force.
#[derive(Debug)]
pub struct AccountState {
    /// Its public nkey.
    pub key: String,
    /// Its token; `None`: the system account before its token is there.
    held: Option<Arc<Held>>,
    /// Keys that may sign its users.
    pub(super) signers: BTreeMap<String, SigningKey>,
    /// What users may do whose tokens say nothing about it; `None`: everything.
    default_rights: Option<Arc<Rights>>,
    /// Its time is over.
    pub(super) is_expired: bool,
}

impl AccountState {
    /// The account of a token. With `strict`, its own key may not sign its users.
    pub(super) fn new(held: &Arc<Held>, strict: bool, now: i64) -> Self {
        let account = &held.claims.nats;
        let mut signers = account.signing_keys.clone();
        if !strict {
            signers.insert(held.key().to_owned(), SigningKey::Plain);
        }
        let defaults: Option<Permissions> = rights::permissions(&account.default_permissions);
        let expires = held.claims.data.expires;
        Self {
            key: held.key().to_owned(),
            held: Some(held.clone()),
            signers,
            default_rights: defaults.map(|permissions| Arc::new(Rights::new(&permissions))),
            is_expired: expires > 0 && expires <= now,
        }
    }

    /// The system account before its token is there: its own key may sign users, so that somebody
    /// can bring the token.
    pub(super) fn bootstrap(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            held: None,
            signers: BTreeMap::from([(key.to_owned(), SigningKey::Plain)]),
            default_rights: None,
            is_expired: false,
        }
    }

    /// Its name for people, or its key.
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self.held.as_ref().map(|held| held.claims.data.name.as_str());
        name.filter(|name| !name.is_empty()).unwrap_or(&self.key)
    }

    /// Who signed it; empty if nobody did.
    #[must_use]
    pub fn issuer(&self) -> &str {
        self.held.as_ref().map_or("", |held| &held.claims.data.issuer)
    }

    /// Its token; empty without one.
    #[must_use]
    pub fn jwt(&self) -> &str {
        self.held.as_ref().map_or("", |held| &held.jwt)
    }

    /// Words about it.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        self.held.as_ref().map_or(&[], |held| &held.claims.nats.tags)
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.is_expired
    }

    pub(super) fn default_rights(&self) -> Option<Arc<Rights>> {
        self.default_rights.clone()
    }

    /// Whether the token of a user that was signed at this time does not count any more.
    pub(super) fn is_revoked(&self, user: &str, issued_at: i64) -> bool {
        self.held.as_ref().is_some_and(|held| held.claims.nats.revocations.covers(user, issued_at))
    }

    /// Whether its users must sign the server's nonce.
    pub(super) fn refuses_bearers(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.claims.nats.limits.disallow_bearer)
    }
}
