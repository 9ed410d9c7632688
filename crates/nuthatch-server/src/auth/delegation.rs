//! Which clients a service decides about (auth callout), and what nobody may publish in its account.

use super::Authenticator;
use crate::identity::Grant;
use crate::identity::{CertificateLogin, Credentials, Identity, Rights};
use crate::operator::{AccountState, Operator, Settings};
use crate::options::{AuthCallout, GLOBAL_ACCOUNT, Permissions, keep_from_asking};
use nuthatch_protocol::nkey::{KeyKind, PublicKey, decode_as};
use std::sync::Arc;

/// The service that says who a client is.
#[derive(Clone)]
pub enum Service {
    /// That of the configuration.
    Configured(Arc<AuthCallout>),
    /// That of an operator's account.
    OfAccount(Arc<OfAccount>),
}

/// The service of an operator's account, and the client as its token has it: one that many share, who
/// are told apart by the service.
pub struct OfAccount {
    /// The operator.
    pub operator: Arc<Operator>,
    /// What the configuration says about its users.
    pub settings: Arc<Settings>,
    /// The account, as it was when the client came.
    pub account: Arc<AccountState>,
    /// What the client's own token says.
    pub grant: Arc<Grant>,
}

impl Service {
    /// The account in which the service listens.
    #[must_use]
    pub fn account(&self) -> &str {
        match self {
            Self::Configured(callout) => &callout.account,
            Self::OfAccount(of) => &of.account.key,
        }
    }

    /// The subject of requests: whose key signs the responses.
    #[must_use]
    pub fn issuer(&self) -> &str {
        match self {
            Self::Configured(callout) => &callout.issuer,
            Self::OfAccount(of) => &of.account.key,
        }
    }

    /// The key that requests are encrypted for.
    #[must_use]
    pub fn xkey(&self) -> Option<PublicKey> {
        match self {
            Self::Configured(callout) => callout.xkey,
            Self::OfAccount(of) => {
                of.account.service().and_then(|said| decode_as(KeyKind::Curve, &said.xkey))
            }
        }
    }

    /// What the client's own token says; `None` outside of operator mode.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        match self {
            Self::Configured(_) => None,
            Self::OfAccount(of) => Some(&of.grant),
        }
    }
}

impl Authenticator {
    /// The service of the account of a client that its own token has let in.
    pub(super) fn service_of_account(&self, found: &Identity) -> Option<Service> {
        let (operator, settings) = self.operator.clone()?;
        let grant = found.grant.clone()?;
        let account = operator.account(&grant.account)?;
        account
            .asks_about(&grant.claims.data.subject)
            .then(|| Service::OfAccount(Arc::new(OfAccount { operator, settings, account, grant })))
    }

    /// The callout that is in force.
    #[must_use]
    pub fn callout(&self) -> Option<&Arc<AuthCallout>> {
        self.callout.as_ref()
    }

    /// The callout whose service decides about a client that showed these credentials and is `found` by
    /// the configuration.
    pub(super) fn service_for(
        &self,
        credentials: &Credentials,
        found: Option<&Identity>,
    ) -> Option<&Arc<AuthCallout>> {
        let callout = self.callout.as_ref()?;
        if self.named(credentials).is_some_and(|name| callout.auth_users.contains(name)) {
            return None;
        }
        let is_leaf = credentials.origin.is_leaf;
        found.is_none_or(|found| delegates(callout, &found.account, is_leaf)).then_some(callout)
    }

    /// True if the service decides about this user of the configuration.
    pub(super) fn asks_about(&self, user: &str, account: &str, is_leaf: bool) -> bool {
        self.callout.as_ref().is_some_and(|callout| {
            !callout.auth_users.contains(user) && delegates(callout, account, is_leaf)
        })
    }

    /// The user of the configuration that credentials name, whether they prove it or not.
    pub(super) fn named<'a>(&'a self, credentials: &'a Credentials) -> Option<&'a str> {
        if !credentials.nkey.is_empty() && !self.nkeys.is_empty() {
            return self.nkeys.get_key_value(&credentials.nkey).map(|(name, _)| name.as_str());
        }
        let origin = &credentials.origin;
        if let (CertificateLogin::Shown(certificate), false) =
            (&origin.certificate, self.users.is_empty())
        {
            return certificate.find_user(&super::Mapped { auth: self, origin });
        }
        if credentials.is_empty() {
            return self.open_user(origin).map(String::as_str);
        }
        let is_single = self.single_of(origin).user.as_ref() == Some(&credentials.user);
        let is_named = is_single || self.users.contains_key(&credentials.user);
        is_named.then_some(credentials.user.as_str())
    }

    /// The one user of the configuration, or the one with the token.
    pub(super) fn single(&self, user: &str) -> Identity {
        Identity { rights: self.rights_in(GLOBAL_ACCOUNT, None), ..Identity::global(user) }
    }

    /// Rights of a user of an account with these permissions. Only the server may ask the service.
    pub(super) fn rights_in(
        &self,
        account: &str,
        permissions: Option<&Permissions>,
    ) -> Option<Arc<Rights>> {
        match &self.callout {
            Some(callout) if callout.account == account => {
                let mut permissions = permissions.cloned().unwrap_or_default();
                keep_from_asking(&mut permissions);
                Some(Arc::new(Rights::new(&permissions)))
            }
            _ => permissions.map(|permissions| Arc::new(Rights::new(permissions))),
        }
    }
}

/// True if the service decides about users of an account. Those whom the configuration knows in the
/// global account are like those whom it does not know.
fn delegates(callout: &AuthCallout, account: &str, is_leaf: bool) -> bool {
    let names = &callout.allowed_accounts;
    is_leaf || account == GLOBAL_ACCOUNT || names.is_empty() || names.contains(account)
}
