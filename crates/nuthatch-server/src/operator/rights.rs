//! Permissions of a user: from its token, or the template of the scoped key that signed it.

use super::state::AccountState;
use crate::identity::Rights;
use crate::options::{Permissions, ResponsePermission, SubjectPermission, keep_from_asking};
use nuthatch_protocol::jwt::{
    self, Permission, Responses, SigningKey, Subject, UserClaims, UserPermissions, expand,
};
use std::sync::Arc;
use std::time::Duration;

/// Every subject.
const EVERYTHING: &str = ">";

/// Why what a user may do cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// Signed by a key that is not the account's.
    #[error("User JWT issuer is not known")]
    Issuer,
    /// Signed by a scoped key, and says what only that key may say.
    #[error("User JWT is not valid: scoped users require no permissions or limits set")]
    NotScoped,
    /// A template makes no subject.
    #[error("User JWT generated invalid permissions: {0}")]
    Template(#[from] jwt::TemplateError),
}

/// Permissions of a user.
pub(super) struct Effective {
    /// As the token or the template says it.
    pub(super) said: UserPermissions,
    /// The subjects; `None`: every subject.
    pub(super) rights: Option<Arc<Rights>>,
}

impl Effective {
    pub(super) fn max_subscriptions(&self) -> Option<u32> {
        limit(self.said.subs).map(|max| u32::try_from(max).unwrap_or(u32::MAX))
    }

    pub(super) fn max_payload_bytes(&self) -> Option<usize> {
        limit(self.said.payload).map(|max| usize::try_from(max).unwrap_or(usize::MAX))
    }
}

/// A limit of which negative values mean none.
pub(crate) fn limit(value: Option<i64>) -> Option<u64> {
    value.and_then(|value| u64::try_from(value).ok())
}

/// Permissions of a user of this account.
pub(super) fn effective(
    claims: &UserClaims,
    account: &AccountState,
) -> Result<Effective, RightsError> {
    let signer = account.signers.get(&claims.data.issuer).ok_or(RightsError::Issuer)?;
    let said = match signer {
        SigningKey::Plain => {
            let mut said = claims.nats.rights.clone();
            // A user's own token allows nothing that it does not name.
            for limit in [&mut said.subs, &mut said.payload] {
                limit.get_or_insert(0);
            }
            said
        }
        SigningKey::Scoped(_) if !claims.nats.rights.is_empty() => {
            return Err(RightsError::NotScoped);
        }
        SigningKey::Scoped(scope) => fill_in(&scope.template, claims, account)?,
    };
    let rights = match permissions(&said.permissions) {
        Some(permissions) => Some(Arc::new(Rights::new(&permissions))),
        None => account.default_rights(),
    };
    let rights = if account.service().is_some() { kept_from_asking(rights) } else { rights };
    Ok(Effective { said, rights })
}

/// Users of an account with a service cannot ask it in the server's place.
fn kept_from_asking(rights: Option<Arc<Rights>>) -> Option<Arc<Rights>> {
    let mut allowed = rights.map(|rights| rights.source.clone()).unwrap_or_default();
    keep_from_asking(&mut allowed);
    Some(Arc::new(Rights::new(&allowed)))
}

/// The template of a scoped key for one of its users.
fn fill_in(
    template: &UserPermissions,
    claims: &UserClaims,
    account: &AccountState,
) -> Result<UserPermissions, RightsError> {
    let whom = Subject {
        name: &claims.data.name,
        subject: &claims.data.subject,
        tags: &claims.nats.tags,
        account_name: account.name(),
        account_subject: &claims.nats.issuer_account,
        account_tags: account.tags(),
    };
    let mut filled = template.clone();
    let permissions = &mut filled.permissions;
    for permission in [&mut permissions.subscribe, &mut permissions.publish] {
        let restricts = !permission.allow.is_empty();
        permission.allow = expand(&permission.allow, false, &whom)?;
        permission.deny = expand(&permission.deny, true, &whom)?;
        if restricts && permission.allow.is_empty() {
            // Nothing that was allowed is a subject; an empty list would allow everything.
            permission.deny.push(EVERYTHING.to_owned());
        }
    }
    Ok(filled)
}

/// As the configuration would say it; `None`: nothing is said.
pub(crate) fn permissions(said: &jwt::Permissions) -> Option<Permissions> {
    if said.is_empty() {
        return None;
    }
    let mut permissions = Permissions {
        publish: subjects(&said.publish),
        subscribe: subjects(&said.subscribe),
        allow_responses: said.resp.map(responses),
    };
    if permissions.allow_responses.is_some() {
        // Who may answer may not thereby publish everything else.
        permissions.publish.get_or_insert_default().allow.get_or_insert_default();
    }
    Some(permissions)
}

fn subjects(said: &Permission) -> Option<SubjectPermission> {
    if said.allow.is_empty() && said.deny.is_empty() {
        return None;
    }
    let allow = (!said.allow.is_empty()).then(|| said.allow.clone());
    Some(SubjectPermission { allow, deny: said.deny.clone() })
}

/// 0 is the default, negative is without a limit.
fn responses(said: Responses) -> ResponsePermission {
    let default = ResponsePermission::default();
    let max_msgs = match said.max {
        0 => default.max_msgs,
        max => u32::try_from(max).ok(),
    };
    let expires = match said.ttl {
        0 => default.expires,
        ttl => u64::try_from(ttl).ok().map(Duration::from_nanos),
    };
    ResponsePermission { max_msgs, expires }
}
