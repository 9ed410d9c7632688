//! The tokens of operator mode: JWTs that are signed with nkeys (`github.com/nats-io/jwt/v2`).
//!
//! An operator signs accounts, an account signs its users and its activations (permits to import
//! what it exports). [`decode`] checks form, kind and signature; whether the signer is trusted, and
//! whether the token is in force now, is the caller's question. The signature check itself is an
//! argument, so that nothing here depends on a library for it.

pub use self::account::{
    Account, Authorization, Export, ExportKind, Import, JetStreamLimits, Latency, Limits, MsgTrace,
    ResponseType, SigningKey, UserScope, WeightedMapping,
};
pub use self::authorization::{
    AuthorizationRequest, AuthorizationResponse, ClientInformation, ClientTls, ConnectOptions,
    ServerIdentity,
};
pub use self::claims::{Activation, Claims, ClaimsData, Generic, Operator};
pub use self::decode::{Body, JwtError, MAX_TOKEN_BYTES, Verify, decode, read_claims, undecorate};
pub use self::encode::{NewToken, Sign, encode};
pub use self::revocations::Revocations;
pub use self::template::{Subject, TemplateError, expand};
pub use self::user::{Permission, Permissions, Responses, TimeRange, User, UserPermissions};
pub use self::validate::{
    account_issues, activation_issues, server_version, time_issue, time_of_day, user_issues,
};

mod account;
mod authorization;
pub mod cidr;
mod claims;
mod decode;
mod encode;
mod revocations;
mod template;
mod user;
mod validate;

/// The claims of an account.
pub type AccountClaims = Claims<Account>;
/// The claims of a user.
pub type UserClaims = Claims<User>;
/// The claims of an operator.
pub type OperatorClaims = Claims<Operator>;
/// A permit to import.
pub type ActivationClaims = Claims<Activation>;
/// What the service of an auth callout answers.
pub type AuthorizationResponseClaims = Claims<AuthorizationResponse>;
/// Claims of any kind, as JSON.
pub type GenericClaims = Claims<Generic>;

#[cfg(test)]
mod tests;
