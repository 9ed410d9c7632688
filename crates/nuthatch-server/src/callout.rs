//! What a service says of a client (auth callout, `$SYS.REQ.USER.AUTH`): from its response to an identity.
//!
//! The server signs a request that names a fresh user nkey; the service's response must be about that key
//! and for this server, signed by the configured issuer, and so must the user's token in it. The token's
//! audience is the account, its permissions and times are the client's.

use crate::auth::keep_from_asking;
use crate::identity::{Grant, Identity, Origin, Rights};
use crate::operator::{admits, end, limit, permissions, seconds, times};
use crate::options::AuthCallout;
use crate::signature;
use nuthatch_protocol::jwt::{
    self, AuthorizationResponseClaims, JwtError, UserClaims, time_issue, user_issues,
};
use std::sync::Arc;
use std::time::SystemTime;

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
    /// The configuration.
    pub callout: &'a AuthCallout,
    /// This server's id.
    pub server: &'a str,
    /// The user nkey of the request.
    pub user: &'a str,
    /// The name that the client showed, which it keeps unless the token has one.
    pub shown: &'a str,
    /// How it connects.
    pub origin: &'a Origin,
}

impl Expected<'_> {
    /// Who a client is by a response.
    ///
    /// # Errors
    /// [`CalloutError`]
    pub fn identity(&self, response: &[u8], now: SystemTime) -> Result<Identity, CalloutError> {
        let claims = self.user_token(response, now)?;
        let said = &claims.nats.rights;
        if !claims.nats.issuer_account.is_empty() {
            return Err(CalloutError::IssuerAccount);
        }
        if said.proxy_required {
            return Err(CalloutError::ProxyRequired);
        }
        let stay =
            times::stay(&said.times, &said.times_location, now).ok_or(CalloutError::Times)?;
        if !admits(&said.allowed_connection_types, self.origin) {
            return Err(CalloutError::ConnectionType);
        }
        Ok(self.grant(claims, stay, now))
    }

    /// The user's token in a response, once both are what they must be.
    fn user_token(&self, response: &[u8], now: SystemTime) -> Result<UserClaims, CalloutError> {
        const RESPONSE: &str = "response";
        const TOKEN: &str = "user's token";
        let text = std::str::from_utf8(response).unwrap_or_default();
        let token = |what| move |source| CalloutError::Token { what, source };
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
        self.signed(RESPONSE, &found.data.issuer)?;
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
        self.signed(TOKEN, &user.data.issuer)?;
        Ok(user)
    }

    fn signed(&self, what: &'static str, found: &str) -> Result<(), CalloutError> {
        let expected = &self.callout.issuer;
        if found == *expected {
            return Ok(());
        }
        let (found, expected) = (found.to_owned(), expected.clone());
        Err(CalloutError::OtherIssuer { what, found, expected })
    }

    /// The client's identity by its token. Its name is for people; without an account it is in none.
    fn grant(
        &self,
        claims: UserClaims,
        stay: Option<std::time::Duration>,
        now: SystemTime,
    ) -> Identity {
        let account = claims.data.audience.clone();
        let said = claims.nats.rights.clone();
        let mut allowed = permissions(&said.permissions);
        if account == self.callout.account {
            keep_from_asking(allowed.get_or_insert_default());
        }
        let rights = allowed.map(|allowed| Arc::new(Rights::new(&allowed)));
        let name = match claims.data.name.as_str() {
            "" => self.shown,
            name => name,
        };
        // 0 is what a token without limits has here: the service's tokens are no accounts' users.
        let bound = |value: Option<i64>| limit(value).filter(|value| *value > 0);
        let grant = Grant {
            jwt: String::new(),
            account: self.callout.issuer.clone(),
            account_name: account.clone(),
            rights: rights.clone(),
            is_bearer: true,
            expires: end(claims.data.expires, stay, now),
            max_subscriptions: bound(said.subs).map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
            max_payload_bytes: bound(said.payload)
                .map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            said,
            claims: claims.clone(),
        };
        Identity { user: name.to_owned(), account, rights, grant: Some(Arc::new(grant)) }
    }
}

#[cfg(test)]
mod tests;
