//! Users whom the service of an account (auth callout) puts in that account or in another one.

use super::rights::{Effective, RightsError, effective};
use super::state::AccountState;
use super::{Operator, Settings};
use crate::identity::Rights;
use nuthatch_protocol::jwt::{UserClaims, UserPermissions};
use std::sync::Arc;

/// Why a service cannot put a user where it wants to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The account of the service asks another one now, or none.
    #[error("the account of the service has changed meanwhile")]
    Changed,
    /// Not into this account.
    #[error("account {account:?} is not one that the service of account {by:?} may put users in")]
    NotAllowed {
        /// The account.
        account: String,
        /// That of the service.
        by: String,
    },
    /// Only some accounts are served.
    #[error("account {0:?} is not among the pinned ones")]
    NotPinned(String),
    /// No such account, or none that counts.
    #[error("{0:?} is not an account of a trusted operator")]
    NoAccount(String),
    /// The account's time is over.
    #[error("account {0:?} has expired")]
    Expired(String),
    /// The user's token was revoked.
    #[error("the user's token is revoked")]
    Revoked,
    /// The user's permissions cannot be determined.
    #[error(transparent)]
    Rights(#[from] RightsError),
}

/// Where a user was put.
pub struct Placement {
    /// The account.
    pub account: Arc<AccountState>,
    /// Its permissions and limits, by its token or by the template of the key that signed it.
    pub said: UserPermissions,
    /// The subjects; `None`: every subject.
    pub rights: Option<Arc<Rights>>,
    /// Subscriptions of a connection.
    pub max_subscriptions: Option<u32>,
    /// Largest message in bytes.
    pub max_payload_bytes: Option<usize>,
}

impl PlacementError {
    /// The account that may be another one, or there, once it is asked for anew.
    pub(crate) fn account(&self) -> Option<&str> {
        match self {
            Self::NoAccount(key) | Self::Expired(key) => Some(key),
            _ => None,
        }
    }
}

impl Operator {
    /// Where the service of `by`, as that account was when it was asked, puts the user of a token.
    ///
    /// # Errors
    /// [`PlacementError`]
    pub fn place(
        &self,
        by: &AccountState,
        claims: &UserClaims,
        settings: &Settings,
    ) -> Result<Placement, PlacementError> {
        if self.account(&by.key).is_none_or(|now| now.service() != by.service()) {
            return Err(PlacementError::Changed);
        }
        let named = &claims.nats.issuer_account;
        let name = if named.is_empty() { &claims.data.issuer } else { named };
        if !by.may_put_in(name) {
            let (account, by) = (name.clone(), by.key.clone());
            return Err(PlacementError::NotAllowed { account, by });
        }
        if !settings.serves(name) {
            return Err(PlacementError::NotPinned(name.clone()));
        }
        let account = self.account(name).ok_or_else(|| PlacementError::NoAccount(name.clone()))?;
        if account.is_expired() {
            return Err(PlacementError::Expired(name.clone()));
        }
        if account.is_revoked(&claims.data.subject, claims.data.issued_at) {
            return Err(PlacementError::Revoked);
        }
        let effective = effective(claims, &account)?;
        let (max_subscriptions, max_payload_bytes) = bounds(&effective);
        let Effective { said, rights } = effective;
        Ok(Placement { account, said, rights, max_subscriptions, max_payload_bytes })
    }

    /// True if the service of an account may still put users in another one.
    pub(super) fn still_puts(&self, by: &str, account: &str) -> bool {
        self.account(by).is_some_and(|by| !by.is_expired() && by.may_put_in(account))
    }
}

/// Limits; 0, which a service's token has that says nothing, is none.
fn bounds(effective: &Effective) -> (Option<u32>, Option<usize>) {
    let subscriptions = effective.max_subscriptions().filter(|max| *max > 0);
    (subscriptions, effective.max_payload_bytes().filter(|max| *max > 0))
}
