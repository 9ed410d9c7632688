//! Authentication by token, and expiry of it.

use super::rights::{RightsError, effective};
use super::state::AccountState;
use super::{Operator, seconds, times};
use crate::close_reason::CloseReason;
use crate::identity::Credentials;
use crate::identity::Grant;
use crate::identity::Identity;
use crate::identity::Origin;
use crate::options::{ConnectionType, Options};
use crate::signature;
use nuthatch_protocol::jwt::{self, JwtError, UserClaims, cidr, time_issue, user_issues};
use nuthatch_protocol::nkey::{KeyKind, decode_as};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The configuration's settings for users.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pinned: Option<BTreeSet<String>>,
    sentinel: Option<String>,
}

impl Settings {
    /// Those of these options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let Some(mode) = &options.operator else { return Self::default() };
        let mut pinned = mode.pinned_accounts.clone();
        if let Some(pinned) = &mut pinned {
            pinned.insert(options.system_account.clone());
        }
        Self { pinned, sentinel: mode.default_sentinel.clone() }
    }

    /// True if users may be of this account.
    pub(super) fn serves(&self, account: &str) -> bool {
        self.pinned.as_ref().is_none_or(|pinned| pinned.contains(account))
    }
}

/// Why a client is not let in. The client only hears of a violation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No token.
    #[error("Authentication requires a user JWT")]
    NoToken,
    /// Not a token.
    #[error("User JWT not valid: {0}")]
    Token(#[from] JwtError),
    /// A token that is wrong, or not in force now.
    #[error("User JWT no longer valid: {0}")]
    Invalid(String),
    /// Only some accounts are served.
    #[error("Account {0} not listed as operator pinned account")]
    NotPinned(String),
    /// No such account, or none that counts.
    #[error("Account JWT lookup error: {0} is not an account of a trusted operator")]
    NoAccount(String),
    /// The user's permissions cannot be determined.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The account's time is over.
    #[error("Account JWT has expired")]
    AccountExpired(String),
    /// The account wants its users to sign.
    #[error("Account does not allow bearer tokens")]
    Bearer,
    /// Not over this kind of connection.
    #[error("Connection type not allowed")]
    ConnectionType,
    /// There are no trusted proxies.
    #[error("proxy connection required")]
    ProxyRequired,
    /// The nonce was not signed with the user's key.
    #[error("Signature missing or not verified")]
    Signature,
    /// The token was revoked.
    #[error("User authentication revoked")]
    Revoked,
    /// Not from there.
    #[error("Bad src Ip {0}")]
    Source(String),
    /// Not now.
    #[error("Outside connect times")]
    Times,
}

impl Denial {
    /// The account that may be another one, or there, once it is asked for anew.
    pub(crate) fn account(&self) -> Option<&str> {
        match self {
            Self::NoAccount(key) | Self::AccountExpired(key) => Some(key),
            _ => None,
        }
    }
}

impl Operator {
    /// Who shows these credentials.
    ///
    /// # Errors
    /// [`Denial`]
    pub(crate) fn authenticate(
        &self,
        credentials: &Credentials,
        nonce: &str,
        settings: &Settings,
        now: SystemTime,
    ) -> Result<Identity, Denial> {
        let (token, claims) = user(credentials, settings)?;
        let issues = user_issues(&claims);
        if let Some(issue) = time_issue(&claims.data, seconds(now)) {
            return Err(Denial::Invalid(issue.to_owned()));
        }
        if !issues.is_empty() {
            return Err(Denial::Invalid(issues.join("; ")));
        }
        let account = self.account_of(&claims, settings)?;
        let effective = effective(&claims, &account)?;
        let said = &effective.said;
        if account.is_expired {
            return Err(Denial::AccountExpired(account.key.clone()));
        }
        if said.bearer_token && account.refuses_bearers() {
            return Err(Denial::Bearer);
        }
        if said.proxy_required && !credentials.origin.is_proxied {
            return Err(Denial::ProxyRequired);
        }
        if !admits(&said.allowed_connection_types, &credentials.origin) {
            return Err(Denial::ConnectionType);
        }
        if !said.bearer_token && !signed(&claims, nonce, &credentials.signature) {
            return Err(Denial::Signature);
        }
        if account.is_revoked(&claims.data.subject, claims.data.issued_at) {
            return Err(Denial::Revoked);
        }
        check_source(&said.src, credentials.origin.address)?;
        let stay = times::stay(&said.times, &said.times_location, now).ok_or(Denial::Times)?;
        let grant = Grant {
            jwt: token,
            account: account.key.clone(),
            account_name: account.name().to_owned(),
            rights: effective.rights.clone(),
            said: said.clone(),
            is_bearer: said.bearer_token,
            expires: end(claims.data.expires, stay, now),
            max_subscriptions: effective.max_subscriptions(),
            max_payload_bytes: effective.max_payload_bytes(),
            service: None,
            claims,
        };
        Ok(Identity {
            user: grant.claims.data.subject.clone(),
            account: grant.account.clone(),
            rights: effective.rights,
            grant: Some(Arc::new(grant)),
        })
    }

    fn account_of(
        &self,
        claims: &UserClaims,
        settings: &Settings,
    ) -> Result<Arc<AccountState>, Denial> {
        let by = &claims.nats.issuer_account;
        let name = if by.is_empty() { &claims.data.issuer } else { by };
        if !settings.serves(name) {
            return Err(Denial::NotPinned(name.clone()));
        }
        self.account(name).ok_or_else(|| Denial::NoAccount(name.clone()))
    }

    /// Whether a client may stay now that accounts have changed: why it has to go, and what it is
    /// told.
    pub(crate) fn must_go(&self, grant: &Grant) -> Option<(CloseReason, Option<&'static str>)> {
        const EXPIRED: &str = "Account Authentication Expired";
        const VIOLATION: CloseReason = CloseReason::AuthenticationViolation;
        let account = self.account(&grant.account).filter(|account| !account.is_expired);
        let Some(account) = account else {
            return Some((CloseReason::AuthenticationExpired, Some(EXPIRED)));
        };
        if grant.service.as_ref().is_some_and(|by| !self.still_puts(by, &grant.account)) {
            return Some((VIOLATION, Some("Authorization Violation")));
        }
        if grant.is_bearer && account.refuses_bearers() {
            return Some((VIOLATION, Some("Authorization Violation")));
        }
        if account.is_revoked(&grant.claims.data.subject, grant.claims.data.issued_at) {
            return Some((CloseReason::Revoked, Some("User Authentication Revoked")));
        }
        // A key that was taken away, or a scope that is another one now: it comes back as what it
        // may be then.
        let same = effective(&grant.claims, &account).is_ok_and(|now| {
            // Rights hold the account's defaults too, and templates filled in.
            now.rights == grant.rights && now.said == grant.said
        });
        (!same).then_some((VIOLATION, None))
    }
}

/// The token that a client shows, or that stands in for it, and what it says.
fn user(credentials: &Credentials, settings: &Settings) -> Result<(String, UserClaims), Denial> {
    let decode = |token: &str| jwt::decode(token, &signature::verify);
    let shown = (!credentials.jwt.is_empty()).then(|| decode(&credentials.jwt));
    match (shown, &settings.sentinel) {
        (Some(Ok(claims)), _) => Ok((credentials.jwt.clone(), claims)),
        (_, Some(sentinel)) => Ok((sentinel.clone(), decode(sentinel)?)),
        (Some(Err(error)), None) => Err(error.into()),
        (None, None) => Err(Denial::NoToken),
    }
}

fn signed(claims: &UserClaims, nonce: &str, signature: &str) -> bool {
    let key = decode_as(KeyKind::User, &claims.data.subject);
    key.is_some_and(|key| signature::verify_nonce(&key, nonce, signature))
}

/// True if a connection of this kind is allowed. Kinds that are not known are passed over, but a
/// list of nothing else allows nothing.
pub(crate) fn admits(kinds: &[String], origin: &Origin) -> bool {
    let known = |kind: &String| match kind.to_ascii_uppercase().as_str() {
        "STANDARD" => Some(ConnectionType::Standard),
        "WEBSOCKET" => Some(ConnectionType::Websocket),
        "LEAFNODE" => Some(ConnectionType::Leafnode),
        "LEAFNODE_WS" => Some(ConnectionType::LeafnodeWs),
        _ => None,
    };
    kinds.is_empty() || kinds.iter().filter_map(known).any(|kind| kind == origin.kind())
}

fn check_source(networks: &[String], address: Option<IpAddr>) -> Result<(), Denial> {
    let is_in = |address| networks.iter().any(|net| cidr::contains(net, address) == Some(true));
    if networks.is_empty() || address.is_some_and(is_in) {
        return Ok(());
    }
    Err(Denial::Source(address.map(|address| address.to_string()).unwrap_or_default()))
}

/// When a client has to go: when its token ends, or the span of the day that it is let in for.
pub(crate) fn end(expires: i64, stay: Option<Duration>, now: SystemTime) -> Option<SystemTime> {
    let expires = u64::try_from(expires).ok().filter(|expires| *expires > 0);
    let expires = expires.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at)));
    let leaves = stay.and_then(|stay| now.checked_add(stay));
    expires.into_iter().chain(leaves).min()
}
