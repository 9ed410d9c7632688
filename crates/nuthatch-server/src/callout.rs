//! What a service says of a client (auth callout, `$SYS.REQ.USER.AUTH`): from its response to an identity.
//!
//! The server signs a request that names a fresh user nkey; the service's response must be about that key
//! and for this server, signed by the configured issuer, and so must the user's token in it. The token's
//! audience is the account, its permissions and times are the client's.

use crate::auth::{OfAccount, Service};
use crate::identity::{Grant, Identity, Origin, Rights};
use crate::operator::{PlacementError, admits, end, limit, permissions, seconds, times};
use crate::options::{AuthCallout, keep_from_asking};
use crate::signature;
use crate::xkey::CurveKey;
use nuthatch_protocol::jwt::{
    self, AuthorizationResponseClaims, JwtError, UserClaims, UserPermissions, time_issue,
    user_issues,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Why a service lets nobody in. The client only hears of a violation.
#[derive(Debug, thiserror::Error)]
pub enum CalloutError {
    /// As many wait as may.
    #[error(
        "auth callout: too many clients wait for the service already (8192, of one address 4096)"
    )]
    TooMany,
    /// The account of the service, or the one that it names, is not configured.
    #[error("auth callout: there is no account {account:?}")]
    NoAccount {
        /// Which.
        account: String,
    },
    /// It does not answer.
    #[error("auth callout: no response in time on account {account:?}")]
    Silent {
        /// The account of the service.
        account: String,
    },
    /// It answers nothing.
    #[error("auth callout: no reason supplied on account {account:?}")]
    Empty {
        /// The account of the service.
        account: String,
    },
    /// No token.
    #[error("auth callout: {what} not valid: {source}")]
    Token {
        /// Whose.
        what: &'static str,
        /// Why not.
        source: JwtError,
    },
    /// A token that is wrong, or not in force.
    #[error("auth callout: {what} not valid: {why}")]
    Invalid {
        /// Whose.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// About another user than asked.
    #[error("auth callout: the {what} is not for the expected user")]
    OtherUser {
        /// Which token.
        what: &'static str,
    },
    /// For another server.
    #[error("auth callout: the response is not for this server")]
    OtherServer,
    /// Signed by somebody else.
    #[error("auth callout: the {what} is signed by {found:?}, not by the issuer {expected:?}")]
    OtherIssuer {
        /// Which token.
        what: &'static str,
        /// Who signed.
        found: String,
        /// Who should have.
        expected: String,
    },
    /// `issuer_account` is of operators.
    #[error(
        "auth callout: the user's token has an issuer_account, which only operators' accounts have"
    )]
    IssuerAccount,
    /// Sealed by another key, for another server, or damaged.
    #[error("auth callout: the response cannot be decrypted on account {account:?}")]
    Sealed {
        /// The account of the service.
        account: String,
    },
    /// In the name of another account than the service's.
    #[error("auth callout: the response's issuer_account {found:?} is not the service's account")]
    OtherAccount {
        /// Which.
        found: String,
    },
    /// Not where the service wants it to be.
    #[error("auth callout: {0}")]
    Placement(#[from] PlacementError),
    /// The service said no.
    #[error("auth callout: the service returned an error: {0}")]
    Refused(String),
    /// A reload has put another service, or none, in its place meanwhile.
    #[error("auth callout: the configuration has changed meanwhile")]
    Changed,
    /// Not over this kind of connection.
    #[error("auth callout: the user may not connect like this")]
    ConnectionType,
    /// There are no trusted proxies.
    #[error("auth callout: the user may only come through a trusted proxy")]
    ProxyRequired,
    /// Not now.
    #[error("auth callout: the user is outside of its connect times")]
    Times,
}

/// What a response is compared with.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// Who was asked.
    pub service: &'a Service,
    /// This server's key that responses may be encrypted for.
    pub xkey: &'a CurveKey,
    /// This server's id.
    pub server: &'a str,
    /// The user nkey of the request.
    pub user: &'a str,
    /// The name that the client showed, which it keeps unless the token has one.
    pub shown: &'a str,
    /// How it connects.
    pub origin: &'a Origin,
}

/// How a token, encrypted or not, begins: with base64 of `{"`.
const TOKEN_PREFIX: &[u8] = b"eyJ";
const RESPONSE: &str = "response";
const TOKEN: &str = "user's token";

impl Expected<'_> {
    /// Who a client is by a response.
    ///
    /// # Errors
    /// [`CalloutError`]
    pub fn identity(&self, response: &[u8], now: SystemTime) -> Result<Identity, CalloutError> {
        let claims = self.user_token(response, now)?;
        match self.service {
            Service::Configured(callout) => self.configured(callout, claims, now),
            Service::OfAccount(of) => self.of_account(of, claims, now),
        }
    }

    /// The user's token in a response, once both are what they must be; who signed the token is looked at
    /// where it is known which account it is of.
    fn user_token(&self, response: &[u8], now: SystemTime) -> Result<UserClaims, CalloutError> {
        let token = |what| move |source| CalloutError::Token { what, source };
        let opened = self.opened(response)?;
        let text = std::str::from_utf8(&opened).unwrap_or_default();
        let found: AuthorizationResponseClaims =
            jwt::decode(text, &signature::verify).map_err(token(RESPONSE))?;
        if let Some(why) = time_issue(&found.data, seconds(now)) {
            return Err(CalloutError::Invalid { what: RESPONSE, why: why.to_owned() });
        }
        if found.data.subject != self.user {
            return Err(CalloutError::OtherUser { what: RESPONSE });
        }
        if found.data.audience != self.server {
            return Err(CalloutError::OtherServer);
        }
        // Of one that was sealed the seal shows whom it is from.
        if matches!(opened, Cow::Borrowed(_)) {
            self.answered(&found)?;
        }
        if !found.nats.error.is_empty() {
            return Err(CalloutError::Refused(found.nats.error));
        }
        let user: UserClaims =
            jwt::decode(&found.nats.jwt, &signature::verify).map_err(token(TOKEN))?;
        let late = time_issue(&user.data, seconds(now)).map(str::to_owned);
        if let Some(why) = late.into_iter().chain(user_issues(&user)).next() {
            return Err(CalloutError::Invalid { what: TOKEN, why });
        }
        if user.data.subject != self.user {
            return Err(CalloutError::OtherUser { what: TOKEN });
        }
        Ok(user)
    }

    /// A response as it was before it was sealed. A service that is sent sealed requests may answer plainly.
    fn opened<'r>(&self, response: &'r [u8]) -> Result<Cow<'r, [u8]>, CalloutError> {
        match self.service.xkey() {
            Some(sender) if !response.starts_with(TOKEN_PREFIX) => {
                let account = || self.service.account().to_owned();
                let opened = self.xkey.open(response, &sender).map(Cow::Owned);
                opened.ok_or_else(|| CalloutError::Sealed { account: account() })
            }
            _ => Ok(Cow::Borrowed(response)),
        }
    }

    /// Whether a response that was not sealed is the service's.
    fn answered(&self, found: &AuthorizationResponseClaims) -> Result<(), CalloutError> {
        let Service::OfAccount(of) = self.service else {
            return self.signed(RESPONSE, &found.data.issuer);
        };
        let named = &found.nats.issuer_account;
        if !named.is_empty() && *named != of.account.key {
            return Err(CalloutError::OtherAccount { found: named.clone() });
        }
        match of.account.may_answer(&found.data.issuer) {
            true => Ok(()),
            false => Err(self.other_issuer(RESPONSE, &found.data.issuer)),
        }
    }

    fn signed(&self, what: &'static str, found: &str) -> Result<(), CalloutError> {
        let is_right = found == self.service.issuer();
        if is_right { Ok(()) } else { Err(self.other_issuer(what, found)) }
    }

    fn other_issuer(&self, what: &'static str, found: &str) -> CalloutError {
        let (found, expected) = (found.to_owned(), self.service.issuer().to_owned());
        CalloutError::OtherIssuer { what, found, expected }
    }

    /// Whether what a token says lets its user in over this connection now, and for how long.
    fn admitted(
        &self,
        said: &UserPermissions,
        now: SystemTime,
    ) -> Result<Option<Duration>, CalloutError> {
        if said.proxy_required && !self.origin.is_proxied {
            return Err(CalloutError::ProxyRequired);
        }
        let stay =
            times::stay(&said.times, &said.times_location, now).ok_or(CalloutError::Times)?;
        if !admits(&said.allowed_connection_types, self.origin) {
            return Err(CalloutError::ConnectionType);
        }
        Ok(stay)
    }

    /// The name of a user is for people.
    fn name(&self, claims: &UserClaims) -> String {
        let named = Some(claims.data.name.as_str()).filter(|name| !name.is_empty());
        named.unwrap_or(self.shown).to_owned()
    }

    /// The client's identity by the service of the configuration: its token's audience is the account;
    /// without one it is in none.
    fn configured(
        &self,
        callout: &AuthCallout,
        claims: UserClaims,
        now: SystemTime,
    ) -> Result<Identity, CalloutError> {
        self.signed(TOKEN, &claims.data.issuer)?;
        if !claims.nats.issuer_account.is_empty() {
            return Err(CalloutError::IssuerAccount);
        }
        let said = claims.nats.rights.clone();
        let stay = self.admitted(&said, now)?;
        let account = claims.data.audience.clone();
        let mut allowed = permissions(&said.permissions);
        if account == callout.account {
            keep_from_asking(allowed.get_or_insert_default());
        }
        let rights = allowed.map(|allowed| Arc::new(Rights::new(&allowed)));
        // 0 is what a token without limits has here: the service's tokens are no accounts' users.
        let bound = |value: Option<i64>| limit(value).filter(|value| *value > 0);
        let user = self.name(&claims);
        let grant = Grant {
            jwt: String::new(),
            service: None,
            account: callout.issuer.clone(),
            account_name: account.clone(),
            rights: rights.clone(),
            is_bearer: true,
            expires: end(claims.data.expires, stay, now),
            max_subscriptions: bound(said.subs).map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
            max_payload_bytes: bound(said.payload)
                .map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            said,
            claims,
        };
        Ok(Identity { user, account, rights, grant: Some(Arc::new(grant)) })
    }

    /// The client's identity by the service of an operator's account: the account that signed its token,
    /// itself or with one of its keys.
    fn of_account(
        &self,
        of: &OfAccount,
        claims: UserClaims,
        now: SystemTime,
    ) -> Result<Identity, CalloutError> {
        let placed = of.operator.place(&of.account, &claims, &of.settings)?;
        let stay = self.admitted(&placed.said, now)?;
        let (user, account) = (self.name(&claims), placed.account.key.clone());
        let grant = Grant {
            jwt: String::new(),
            service: Some(of.account.key.clone()),
            account: account.clone(),
            account_name: placed.account.name().to_owned(),
            rights: placed.rights.clone(),
            // It has signed nothing, and need not have: the service answers for it.
            is_bearer: false,
            expires: end(claims.data.expires, stay, now).or(of.grant.expires),
            max_subscriptions: placed.max_subscriptions,
            max_payload_bytes: placed.max_payload_bytes,
            said: placed.said,
            claims,
        };
        Ok(Identity { user, account, rights: placed.rights, grant: Some(Arc::new(grant)) })
    }
}

#[cfg(test)]
mod tests;
