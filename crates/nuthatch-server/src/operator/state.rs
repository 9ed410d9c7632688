//! State of an account that its users need: signers, revocations, permissions.

use super::rights;
use super::store::StoredToken;
use crate::identity::Rights;
use crate::options::Permissions;
use nuthatch_protocol::jwt::{Authorization, SigningKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An account in force.
#[derive(Debug)]
pub struct AccountState {
    /// Its public nkey.
    pub key: String,
    /// Its token; `None`: the system account before its token is there.
    stored: Option<Arc<StoredToken>>,
    /// Keys that may sign its users.
    pub(super) signers: BTreeMap<String, SigningKey>,
    /// Permissions of users whose tokens say nothing about them; `None`: unrestricted.
    default_rights: Option<Arc<Rights>>,
    /// Its time is over.
    pub(super) is_expired: bool,
}

impl AccountState {
    /// The account of a token. With `strict`, its own key may not sign its users.
    pub(super) fn new(stored: &Arc<StoredToken>, strict: bool, now: i64) -> Self {
        let account = &stored.claims.nats;
        let mut signers = account.signing_keys.clone();
        if !strict {
            signers.insert(stored.key().to_owned(), SigningKey::Plain);
        }
        let defaults: Option<Permissions> = rights::permissions(&account.default_permissions);
        let expires = stored.claims.data.expires;
        Self {
            key: stored.key().to_owned(),
            stored: Some(stored.clone()),
            signers,
            default_rights: defaults.map(|permissions| Arc::new(Rights::new(&permissions))),
            is_expired: expires > 0 && expires <= now,
        }
    }

    /// The system account before its token is there: its own key may sign users, so that the token
    /// can be sent.
    pub(super) fn bootstrap(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            stored: None,
            signers: BTreeMap::from([(key.to_owned(), SigningKey::Plain)]),
            default_rights: None,
            is_expired: false,
        }
    }

    /// Its name for people, or its key.
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self.stored.as_ref().map(|stored| stored.claims.data.name.as_str());
        name.filter(|name| !name.is_empty()).unwrap_or(&self.key)
    }

    /// Its signer; empty if there is none.
    #[must_use]
    pub fn issuer(&self) -> &str {
        self.stored.as_ref().map_or("", |stored| &stored.claims.data.issuer)
    }

    /// Its token; empty without one.
    #[must_use]
    pub fn jwt(&self) -> &str {
        self.stored.as_ref().map_or("", |stored| &stored.jwt)
    }

    /// Words about it.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        self.stored.as_ref().map_or(&[], |stored| &stored.claims.nats.tags)
    }

    /// The service that says who its users are; `None`: their tokens do.
    #[must_use]
    pub fn service(&self) -> Option<&Authorization> {
        let said = self.stored.as_ref().map(|stored| &stored.claims.nats.authorization);
        said.filter(|said| said.is_enabled())
    }

    /// True if its service decides about a user with this key, who is not the service itself.
    #[must_use]
    pub fn asks_about(&self, user: &str) -> bool {
        self.service().is_some_and(|service| !service.auth_users.iter().any(|own| own == user))
    }

    /// True if its service may put users in this account.
    #[must_use]
    pub fn may_put_in(&self, account: &str) -> bool {
        self.service().is_some_and(|service| account == self.key || service.allows(account))
    }

    /// True if a response of its service may be signed by this key.
    #[must_use]
    pub fn may_answer(&self, signer: &str) -> bool {
        signer == self.key || self.signers.contains_key(signer)
    }

    /// True if its time is over.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.is_expired
    }

    pub(super) fn default_rights(&self) -> Option<Arc<Rights>> {
        self.default_rights.clone()
    }

    /// True if the token of a user that was signed at this time does not count any more.
    pub(super) fn is_revoked(&self, user: &str, issued_at: i64) -> bool {
        self.stored
            .as_ref()
            .is_some_and(|stored| stored.claims.nats.revocations.covers(user, issued_at))
    }

    /// True if its users must sign the server's nonce.
    pub(super) fn refuses_bearers(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.claims.nats.limits.disallow_bearer)
    }
}
