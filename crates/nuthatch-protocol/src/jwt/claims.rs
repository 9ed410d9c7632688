//! Claims of every token, and the small kinds of token: operators, activations, anything.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::account::ExportKind;

/// Claims of every token. Times are in seconds since 1970; 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimsData {
    /// When it ends (`exp`).
    #[serde(rename = "exp")]
    pub expires: i64,
    /// Whom it is meant for (`aud`).
    #[serde(rename = "aud")]
    pub audience: String,
    /// A hash of itself (`jti`).
    #[serde(rename = "jti")]
    pub id: String,
    /// When it was signed (`iat`).
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Public nkey of who signed it (`iss`).
    #[serde(rename = "iss")]
    pub issuer: String,
    /// A name for people.
    pub name: String,
    /// When it begins (`nbf`).
    #[serde(rename = "nbf")]
    pub not_before: i64,
    /// Public nkey of whom it is about (`sub`).
    #[serde(rename = "sub")]
    pub subject: String,
}

/// A token: what every token says, and what those of its kind say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claims<T> {
    /// Claims of every token.
    #[serde(flatten)]
    pub data: ClaimsData,
    /// Claims of its kind.
    pub nats: T,
}

/// An operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Operator {
    /// Further keys that may sign accounts.
    pub signing_keys: Vec<String>,
    /// URL for fetching accounts over HTTP.
    pub account_server_url: String,
    /// Public nkey of the system account.
    pub system_account: String,
    /// Oldest version of a server that may serve the operator.
    pub assert_server_version: String,
    /// Accounts and users must be signed with signing keys, never with the main key.
    pub strict_signing_key_usage: bool,
}

/// A permit for another account to import an export.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Activation {
    /// The subject that may be imported.
    pub subject: String,
    /// A stream or a service.
    pub kind: Option<ExportKind>,
    /// The exporting account, if one of its signing keys signed.
    pub issuer_account: String,
}

/// Any token's own part.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Generic(pub Map<String, Value>);
