//! Operator mode: accounts and users are tokens (JWTs) that an operator signs, as configured.

use std::collections::{BTreeMap, BTreeSet};

use nuthatch_protocol::config::Value;
use nuthatch_protocol::jwt::{self, AccountClaims, OperatorClaims, UserClaims, server_version};
use nuthatch_protocol::nkey::{KeyKind, decode_as};

use super::leafnodes::RemoteTls;
use super::read::ConfigReader;
use super::resolver::{self, Resolver};
use super::{Options, SYSTEM_ACCOUNT, load};
use crate::signature;
use crate::version::NATS_VERSION;

/// Prefix of every token: base64 of `{"`.
const TOKEN_PREFIX: &str = "eyJ";
/// Operator mode.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OperatorOptions {
    /// The operators whose accounts are served.
    pub operators: Vec<TrustedOperator>,
    /// Public nkeys of operators, in place of their tokens.
    pub trusted_keys: Vec<String>,
    /// Store of the tokens of accounts.
    pub resolver: Option<Resolver>,
    /// TLS towards the server of `URL(…)`; `None`: as any client does.
    pub resolver_tls: Option<RemoteTls>,
    /// Tokens of accounts in the configuration, by public nkey.
    pub preload: BTreeMap<String, String>,
    /// The only accounts that users may be of, beside the system account.
    pub pinned_accounts: Option<BTreeSet<String>>,
    /// The token of clients that show none.
    pub default_sentinel: Option<String>,
}

/// An operator.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustedOperator {
    /// The token.
    pub jwt: String,
    /// Its claims.
    pub claims: OperatorClaims,
}

/// Settings of operator mode that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorConflict {
    /// No `resolver`.
    #[error(
        "operators require an account resolver to be configured: resolver: MEMORY with \
         resolver_preload, or {{ type: full, dir: \"jwt\" }}"
    )]
    NoResolver,
    /// Tokens in the configuration beside a server that has them.
    #[error(
        "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR: the server of \
         URL(…) has the accounts"
    )]
    PreloadOfUrl,
    /// A `resolver` and no operator.
    #[error("'{key}' needs an 'operator' whose accounts it is about")]
    NoOperator {
        /// The key.
        key: &'static str,
    },
    /// Operators and their keys.
    #[error("trusted_keys cannot be combined with 'operator', which names its keys itself")]
    KeysAndOperators,
    /// `accounts` too.
    #[error(
        "operators do not allow Accounts to be configured directly: remove 'accounts' and 'mappings'"
    )]
    Accounts,
    /// Users too.
    #[error("operators do not allow users to be configured directly: clear 'authorization'")]
    Users,
    /// `no_auth_user` too.
    #[error("no_auth_user not compatible with Trusted Operator: use default_sentinel")]
    NoAuthUser,
    /// Two system accounts.
    #[error("system_account in config and operator JWT must be identical")]
    SystemAccountDiffers,
    /// A read-only directory.
    #[error(
        "a resolver of type full or cache lives on the system account: name it in the operator JWT or \
         with system_account"
    )]
    NoSystemAccount,
    /// Not an account.
    #[error("system_account '{name}' is not the public nkey of an account (A…)")]
    SystemAccountKey {
        /// The name.
        name: String,
    },
    /// A directory without an operator's token.
    #[error(
        "a resolver of type full or cache needs 'operator': trusted_keys alone do not say who may change it"
    )]
    KeysOnly,
    /// This server is too old.
    #[error("operator {operator} expects server version {wanted}, this is {NATS_VERSION}")]
    Version {
        /// The operator's public nkey.
        operator: String,
        /// The version.
        wanted: String,
    },
    /// The operator's token is wrong in itself.
    #[error("operator {operator}: {why}")]
    Claims {
        /// The operator's public nkey.
        operator: String,
        /// The fault.
        why: String,
    },
}

impl OperatorOptions {
    /// Public nkeys that may sign accounts.
    #[must_use]
    pub fn signers(&self) -> BTreeSet<&str> {
        let of_operators = self.operators.iter().flat_map(|operator| {
            let claims = &operator.claims;
            let main = (!claims.nats.strict_signing_key_usage).then_some(&claims.data.subject);
            main.into_iter().chain(&claims.nats.signing_keys)
        });
        of_operators.chain(&self.trusted_keys).map(String::as_str).collect()
    }

    /// True if nothing of it is configured.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A setting that only goes with an operator.
    fn orphan(&self) -> &'static str {
        match self {
            Self { resolver: Some(_), .. } => "resolver",
            Self { resolver_tls: Some(_), .. } => "resolver_tls",
            Self { pinned_accounts: Some(_), .. } => "resolver_pinned_accounts",
            Self { default_sentinel: Some(_), .. } => "default_sentinel",
            _ => "resolver_preload",
        }
    }
}

/// Reads the keys of operator mode at the top level; `false`: it is none of them.
pub(super) fn key(r: &mut ConfigReader, key: &str, value: &Value, options: &mut Options) -> bool {
    if !matches!(
        key,
        "operator"
            | "trusted_keys"
            | "resolver"
            | "resolver_tls"
            | "resolver_preload"
            | "resolver_pinned_accounts"
            | "default_sentinel"
    ) {
        return false;
    }
    let mode = options.operator.get_or_insert_default();
    match key {
        "operator" => mode.operators = operators(r, key, value),
        "trusted_keys" => {
            mode.trusted_keys = keys(r, key, value, KeyKind::Operator, "an operator (O…)");
        }
        "resolver" => mode.resolver = resolver::resolver(r, value),
        "resolver_tls" => mode.resolver_tls = resolver::tls(r, value),
        "resolver_preload" => mode.preload = preload(r, key, value),
        "resolver_pinned_accounts" => {
            let keys = keys(r, key, value, KeyKind::Account, "an account (A…)");
            mode.pinned_accounts = Some(keys.into_iter().collect());
        }
        _ => mode.default_sentinel = sentinel(r, key, value),
    }
    true
}

/// Files or tokens, one or several.
fn operators(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<TrustedOperator> {
    let mut operators = Vec::new();
    for text in r.texts(key, value).unwrap_or_default() {
        let token = if text.starts_with(TOKEN_PREFIX) {
            Ok(text.clone())
        } else {
            let path = std::path::Path::new(&text);
            load::read_limited(path).map_err(|why| format!("cannot be read from '{text}': {why}"))
        };
        let decoded = token.and_then(|token| {
            let jwt = jwt::undecorate(&token).to_owned();
            let claims = jwt::decode(&jwt, &signature::verify)
                .map_err(|error| format!("is no operator JWT: {error}"))?;
            Ok(TrustedOperator { jwt, claims })
        });
        match decoded {
            Ok(operator) => operators.push(operator),
            Err(what) => r.invalid(&value.pos, key, what),
        }
    }
    operators
}

/// Public nkeys of one kind.
fn keys(
    r: &mut ConfigReader,
    key: &str,
    value: &Value,
    kind: KeyKind,
    whose: &'static str,
) -> Vec<String> {
    let keys = r.texts(key, value).unwrap_or_default();
    for found in &keys {
        if decode_as(kind, found).is_none() {
            r.invalid(&value.pos, key, format!("holds '{found}', not a public nkey of {whose}"));
        }
    }
    keys
}

fn preload(r: &mut ConfigReader, key: &str, value: &Value) -> BTreeMap<String, String> {
    let mut preload = BTreeMap::new();
    let Some(map) = r.map(key, value) else { return preload };
    for entry in map.entries().iter().filter(|entry| !entry.used_as_variable) {
        let Some(token) = r.word(&entry.key, &entry.value) else { continue };
        let token = token.trim();
        match jwt::decode::<jwt::Account>(token, &signature::verify) {
            Ok(AccountClaims { data, .. }) if data.subject == entry.key => {
                preload.insert(entry.key.clone(), token.to_owned());
            }
            Ok(claims) => {
                let what = format!("is the JWT of another account: {}", claims.data.subject);
                r.invalid(&entry.value.pos, &entry.key, what);
            }
            Err(error) => {
                let what = format!("invalid account JWT: {error}");
                r.invalid(&entry.value.pos, &entry.key, what);
            }
        }
    }
    preload
}

fn sentinel(r: &mut ConfigReader, key: &str, value: &Value) -> Option<String> {
    let token = r.word(key, value)?;
    let claims: UserClaims = match jwt::decode(token, &signature::verify) {
        Ok(claims) => claims,
        Err(error) => {
            r.invalid(&value.pos, key, format!("default sentinel JWT not valid: {error}"));
            return None;
        }
    };
    let user = &claims.nats;
    let may_be_scoped = !user.issuer_account.is_empty() && user.rights.is_empty();
    if !user.rights.bearer_token && !may_be_scoped {
        r.invalid(&value.pos, key, "default sentinel must be a bearer token");
        return None;
    }
    Some(token.to_owned())
}

/// Checks what only fits or misfits together.
pub(super) fn check(options: &Options) -> Result<(), OperatorConflict> {
    let Some(mode) = &options.operator else { return Ok(()) };
    if mode.operators.is_empty() && mode.trusted_keys.is_empty() {
        return Err(OperatorConflict::NoOperator { key: mode.orphan() });
    }
    let Some(resolver) = &mode.resolver else { return Err(OperatorConflict::NoResolver) };
    if matches!(resolver, Resolver::Url(_)) && !mode.preload.is_empty() {
        return Err(OperatorConflict::PreloadOfUrl);
    }
    if !mode.operators.is_empty() && !mode.trusted_keys.is_empty() {
        return Err(OperatorConflict::KeysAndOperators);
    }
    if !options.accounts.is_empty() || !options.mappings.is_empty() {
        return Err(OperatorConflict::Accounts);
    }
    if options.auth.is_configured() {
        return Err(OperatorConflict::Users);
    }
    if options.auth.no_auth_user.is_some() {
        return Err(OperatorConflict::NoAuthUser);
    }
    mode.operators.iter().try_for_each(operator)?;
    system_account(options, mode)
}

fn operator(operator: &TrustedOperator) -> Result<(), OperatorConflict> {
    let claims = &operator.claims;
    let name = claims.data.subject.clone();
    let bad_key = |key: &&String| decode_as(KeyKind::Operator, key).is_none();
    let keys = std::iter::once(&claims.data.subject).chain(&claims.nats.signing_keys);
    if let Some(key) = { keys }.find(bad_key) {
        let why = format!("'{key}' is not the public nkey of an operator (O…)");
        return Err(OperatorConflict::Claims { operator: name, why });
    }
    let wanted = &claims.nats.assert_server_version;
    match (server_version(wanted), server_version(NATS_VERSION)) {
        (Err(why), _) => Err(OperatorConflict::Claims { operator: name, why }),
        (Ok(numbers), Ok(own)) if numbers > own => {
            Err(OperatorConflict::Version { operator: name, wanted: wanted.clone() })
        }
        _ => Ok(()),
    }
}

fn system_account(options: &Options, mode: &OperatorOptions) -> Result<(), OperatorConflict> {
    let name = &options.system_account;
    let is_full = matches!(mode.resolver, Some(Resolver::Full(_) | Resolver::Cache(_)));
    if is_full && mode.operators.is_empty() {
        return Err(OperatorConflict::KeysOnly);
    }
    if name == SYSTEM_ACCOUNT {
        return if is_full { Err(OperatorConflict::NoSystemAccount) } else { Ok(()) };
    }
    if decode_as(KeyKind::Account, name).is_none() {
        return Err(OperatorConflict::SystemAccountKey { name: name.clone() });
    }
    let mut said = mode.operators.iter().map(|operator| &operator.claims.nats.system_account);
    let differs = said.clone().any(|said| !said.is_empty()) && !said.any(|said| said == name);
    if differs { Err(OperatorConflict::SystemAccountDiffers) } else { Ok(()) }
}
