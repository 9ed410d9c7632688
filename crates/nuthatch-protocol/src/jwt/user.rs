//! Claims of a user's token.

use serde::{Deserialize, Deserializer};

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct User {
    /// Its permissions.
    #[serde(flatten)]
    pub rights: UserPermissions,
    /// The account, if one of its signing keys signed.
    pub issuer_account: String,
    /// Words about it that permissions may refer to.
    pub tags: Vec<String>,
}

/// Permissions of a user. An absent limit is 0 in a user's token, which allows nothing, and none in
/// the template of a scoped key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct UserPermissions {
    /// Subjects.
    #[serde(flatten)]
    pub permissions: Permissions,
    /// Networks that it may connect from, such as `10.0.0.0/8`; none: from anywhere.
    #[serde(deserialize_with = "networks")]
    pub src: Vec<String>,
    /// Times of the day at which it may be connected; none: at any time.
    pub times: Vec<TimeRange>,
    /// The time zone of `times`; empty: the server's.
    pub times_location: String,
    /// Subscriptions of a connection; -1 is without a limit.
    pub subs: Option<i64>,
    /// Bytes; nothing enforces it.
    pub data: Option<i64>,
    /// Largest message, in bytes; -1 is without a limit.
    pub payload: Option<i64>,
    /// It need not sign the server's nonce: whoever has the token is the user.
    pub bearer_token: bool,
    /// It may only come through a trusted proxy.
    pub proxy_required: bool,
    /// Kinds of connection it may have; none: every kind.
    pub allowed_connection_types: Vec<String>,
}

impl UserPermissions {
    /// True if they say nothing, as the tokens of scoped users must.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let said = |limit: Option<i64>| limit.filter(|limit| *limit != 0);
        let limits = [said(self.subs), said(self.data), said(self.payload)];
        let unlimited = Self { subs: None, data: None, payload: None, ..self.clone() };
        limits == [None; 3] && unlimited == Self::default()
    }
}

/// A span of the day, as `15:04:05`; it may go past midnight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TimeRange {
    /// Its begin.
    pub start: String,
    /// Its end.
    pub end: String,
}

/// Subjects that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Permissions {
    /// To publish to.
    #[serde(rename = "pub")]
    pub publish: Permission,
    /// To subscribe to.
    #[serde(rename = "sub")]
    pub subscribe: Permission,
    /// Answers to received messages.
    pub resp: Option<Responses>,
}

impl Permissions {
    /// True if they say nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Allowed and denied subjects. Denied wins; nothing allowed is everything allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Permission {
    /// Allowed ones.
    pub allow: Vec<String>,
    /// Denied ones.
    pub deny: Vec<String>,
}

/// Bounds of answers to received messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Responses {
    /// Answers to one message; 0 is the default, negative is without a limit.
    pub max: i64,
    /// Nanoseconds in which they may be sent, likewise.
    pub ttl: i64,
}

/// An array, or one text with commas, as old tokens have it.
fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum List {
        Array(Vec<String>),
        Text(String),
    }
    Ok(match List::deserialize(from)? {
        List::Array(list) => list,
        List::Text(text) => {
            let parts = text.split(',').map(|part| part.trim().to_lowercase());
            parts.filter(|part| !part.is_empty()).collect()
        }
    })
}
