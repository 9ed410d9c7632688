//! Which clients a service decides about (auth callout), and what nobody may publish in its account.

use super::Authenticator;
use crate::identity::{CertificateLogin, Credentials, Identity, Rights};
use crate::options::{AuthCallout, GLOBAL_ACCOUNT, Permissions};
use std::sync::Arc;

/// The subject on which the service hears of clients.
pub const CALLOUT_SUBJECT: &str = "$SYS.REQ.USER.AUTH";

impl Authenticator {
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
    fn named<'a>(&'a self, credentials: &'a Credentials) -> Option<&'a str> {
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
        let is_single = self.user.as_ref() == Some(&credentials.user);
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

/// Denies publishing to the service.
pub fn keep_from_asking(permissions: &mut Permissions) {
    let publish = permissions.publish.get_or_insert_default();
    publish.deny.push(CALLOUT_SUBJECT.to_owned());
}

/// True if the service decides about users of an account. Those whom the configuration knows in the
/// global account are like those whom it does not know.
fn delegates(callout: &AuthCallout, account: &str, is_leaf: bool) -> bool {
    let names = &callout.allowed_accounts;
    is_leaf || account == GLOBAL_ACCOUNT || names.is_empty() || names.contains(account)
}
