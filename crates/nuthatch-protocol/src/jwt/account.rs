//! Claims of an account's token.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::revocations::Revocations;
use super::user::{Permissions, UserPermissions};

/// An account. The maps are ordered, so that the same token always means the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Imports from other accounts.
    pub imports: Vec<Import>,
    /// Exports.
    pub exports: Vec<Export>,
    /// Limits.
    pub limits: Limits,
    /// Further keys that may sign its users and activations.
    #[serde(deserialize_with = "signing_keys")]
    pub signing_keys: BTreeMap<String, SigningKey>,
    /// Users whose tokens do not count any more.
    pub revocations: Revocations,
    /// Permissions of users whose tokens say nothing about them.
    pub default_permissions: Permissions,
    /// Subject mappings by source.
    pub mappings: BTreeMap<String, Vec<WeightedMapping>>,
    /// Authentication by a service (auth callout).
    pub authorization: Authorization,
    /// Words about it that permissions may refer to.
    pub tags: Vec<String>,
    /// Traces of messages with a trace context.
    pub trace: Option<MsgTrace>,
}

/// Traces of messages with a trace context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MsgTrace {
    /// The subject that they are published on.
    pub dest: String,
    /// Share of the messages in percent; 0: all.
    pub sampling: i64,
}

/// Authentication by a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Authorization {
    /// The users that the service itself has.
    pub auth_users: Vec<String>,
    /// Accounts that it may put users in, beside its own; `*` alone: in any.
    pub allowed_accounts: Vec<String>,
    /// Public key (`X…`) that requests are encrypted for; empty: they are not.
    pub xkey: String,
}

impl Authorization {
    /// What stands for every account.
    const EVERY_ACCOUNT: &str = "*";

    /// True if a service decides about users.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.auth_users.is_empty()
    }

    /// True if the service may put users in an account other than its own.
    #[must_use]
    pub fn allows(&self, account: &str) -> bool {
        match self.allowed_accounts.as_slice() {
            [only] if only == Self::EVERY_ACCOUNT => true,
            named => named.iter().any(|name| name == account),
        }
    }
}

/// Kind of an export or import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportKind {
    /// Messages.
    Stream,
    /// Requests.
    Service,
}

/// How many responses a service gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ResponseType {
    /// One.
    #[default]
    #[serde(alias = "")]
    Singleton,
    /// Any number.
    Stream,
    /// Any number, the last one empty.
    Chunked,
}

/// A stream or service that other accounts may import.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Export {
    /// Its subject.
    pub subject: String,
    /// Its kind; absent is an error.
    #[serde(rename = "type")]
    pub kind: Option<ExportKind>,
    /// Importing takes an activation.
    pub token_req: bool,
    /// Accounts whose activations do not count any more.
    pub revocations: Revocations,
    /// How many responses a service gives; absent is one.
    pub response_type: Option<ResponseType>,
    /// How long a response may take, in nanoseconds; 0 is the default.
    pub response_threshold: i64,
    /// Publication of latencies.
    pub service_latency: Option<Latency>,
    /// Which token must be the importing account's key, from 1; 0: none.
    pub account_token_position: usize,
    /// Of a service: traces follow requests into the exporting account.
    pub allow_trace: bool,
}

/// Published latencies of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Share of requests in percent; 0: those whose tracing headers ask for it.
    #[serde(deserialize_with = "sampling")]
    pub sampling: i64,
    /// The subject.
    pub results: String,
}

/// A stream or service of another account.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Import {
    /// Of a stream, its subject there; of a service without `local_subject`, its subject here.
    pub subject: String,
    /// Public nkey of the exporting account.
    pub account: String,
    /// The activation, if the export asks for one.
    pub token: String,
    /// Of a stream a prefix for its subject here; of a service its subject there. Superseded by
    /// `local_subject`.
    pub to: String,
    /// The subject here; wildcards as `*` or `$1`.
    pub local_subject: String,
    /// Its kind; absent is an error.
    #[serde(rename = "type")]
    pub kind: Option<ExportKind>,
    /// The exporting account learns who asks.
    pub share: bool,
    /// Of a stream: traces follow its messages into the importing account.
    pub allow_trace: bool,
}

impl Import {
    /// The subject in the exporting account.
    #[must_use]
    pub fn there(&self) -> &str {
        let renamed = self.kind == Some(ExportKind::Service)
            && self.local_subject.is_empty()
            && !self.to.is_empty();
        if renamed { &self.to } else { &self.subject }
    }

    /// The subject in the importing account.
    #[must_use]
    pub fn here(&self) -> String {
        if !self.local_subject.is_empty() {
            return self.local_subject.clone();
        }
        match self.kind {
            Some(ExportKind::Stream) if !self.to.is_empty() => {
                format!("{}.{}", self.to.trim_end_matches('.'), self.subject)
            }
            _ => self.subject.clone(),
        }
    }
}

/// Limits that the operator sets. -1 is without a limit; what is absent is 0, which allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Subscriptions of a connection.
    pub subs: i64,
    /// Largest message, in bytes.
    pub payload: i64,
    /// Imports.
    pub imports: i64,
    /// Exports.
    pub exports: i64,
    /// Exports may have wildcards.
    pub wildcards: bool,
    /// Users may not be bearers.
    pub disallow_bearer: bool,
    /// Connections.
    pub conn: i64,
    /// Connections of leaf nodes.
    pub leaf: i64,
    /// JetStream, unless there are tiers.
    #[serde(flatten)]
    pub jetstream: JetStreamLimits,
    /// JetStream by number of replicas (`R1`, `R3`).
    pub tiered_limits: BTreeMap<String, JetStreamLimits>,
}

/// JetStream limits. -1 is without a limit; both storages at 0 are no JetStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JetStreamLimits {
    /// Bytes of memory streams.
    pub mem_storage: i64,
    /// Bytes of stored streams.
    pub disk_storage: i64,
    /// Streams.
    pub streams: i64,
    /// Consumers.
    pub consumer: i64,
    /// Highest `max_ack_pending` of a consumer.
    pub max_ack_pending: i64,
    /// Bytes of one memory stream; 0 is without a limit.
    pub mem_max_stream_bytes: i64,
    /// Bytes of one stored stream; 0 is without a limit.
    pub disk_max_stream_bytes: i64,
    /// Every stream must set `max_bytes`.
    pub max_bytes_required: bool,
}

/// A destination of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WeightedMapping {
    /// The destination.
    pub subject: String,
    /// Share in percent; 0 is 100.
    pub weight: u8,
    /// Only in this cluster.
    pub cluster: String,
}

/// A key that may sign for an account.
#[derive(Clone, Debug, PartialEq)]
pub enum SigningKey {
    /// Users of any kind.
    Plain,
    /// Users with these rights only.
    Scoped(Box<UserScope>),
}

/// Permissions of users that a scoped key signs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct UserScope {
    /// The key.
    pub key: String,
    /// Permissions of its users; subjects may hold templates such as `{{name()}}`.
    #[serde(default)]
    pub template: UserPermissions,
}

fn signing_keys<'de, D>(from: D) -> Result<BTreeMap<String, SigningKey>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Scope {
        UserScope(Box<UserScope>),
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Key(String),
        Scope(Scope),
    }
    let entries = Vec::<Entry>::deserialize(from)?;
    let keyed = entries.into_iter().map(|entry| match entry {
        Entry::Key(key) => (key, SigningKey::Plain),
        Entry::Scope(Scope::UserScope(scope)) => (scope.key.clone(), SigningKey::Scoped(scope)),
    });
    Ok(keyed.collect())
}

/// A number, or `headers`, which is 0.
fn sampling<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Rate {
        Percent(i64),
        Word(String),
    }
    match Rate::deserialize(from)? {
        Rate::Percent(percent) => Ok(percent),
        Rate::Word(word) if word.eq_ignore_ascii_case("headers") => Ok(0),
        Rate::Word(word) => Err(serde::de::Error::custom(format!("unknown sampling {word:?}"))),
    }
}
