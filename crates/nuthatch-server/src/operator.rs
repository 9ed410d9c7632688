//! Operator mode: accounts and users are tokens (JWTs). An operator whose key the server trusts
//! signs accounts, accounts sign their users.
//!
//! Accounts come from the configuration or from a directory ([`store`]) and may change while the
//! server runs. With every change all of them are turned into the same structures that a
//! configuration file gives ([`derive`]) and put in force as a reload does
//! ([`crate::operator_service`]);
//! so isolation, exports and imports, limits, mappings and JetStream know nothing of tokens. What
//! is only about users (keys, revocations, rights of scoped keys) is kept beside ([`state`]).

use crate::options::{OperatorOptions, Options};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

pub use self::delegated::{Placement, PlacementError};
pub use self::derive::TIER;
pub use self::login::{Denial, Settings};
pub(crate) use self::login::{admits, end};
pub(crate) use self::rights::{limit, permissions};
pub use self::state::AccountState;
use self::store::Store;
pub use self::store::StoreError;

pub(crate) mod cache_dir;
mod delegated;
pub(crate) mod derive;
mod import_permits;
mod login;
mod rights;
mod state;
pub(crate) mod store;
pub(crate) mod times;
pub(crate) mod wants;

/// The operators of a server, and the accounts that they signed.
pub struct Operator {
    pub(crate) trust: Trust,
    /// Name of the system account.
    pub(crate) system_account: String,
    pub(crate) store: Store,
    /// The accounts in force, by public nkey.
    pub(crate) accounts: ArcSwap<FxHashMap<String, Arc<AccountState>>>,
    /// Held while they change: the problems that were said.
    pub(crate) changing: Mutex<BTreeSet<String>>,
    /// When an account or activation begins or ends, in seconds since 1970; [`NEVER`].
    pub(crate) deadline: AtomicI64,
    /// That is another time now.
    pub(crate) rescheduled: Notify,
    /// Accounts that somebody needs.
    pub(crate) wants: wants::Wants,
}

/// No account and no activation begins or ends.
pub(crate) const NEVER: i64 = i64::MAX;

/// Whose signatures count.
pub(crate) struct Trust {
    /// Public nkeys that may sign accounts.
    pub(crate) signers: BTreeSet<String>,
    /// Those among them whose accounts must sign with signing keys too.
    pub(crate) strict: BTreeSet<String>,
    /// The first operator, who alone may delete accounts.
    pub(crate) main: Option<MainOperator>,
    /// The number of operators.
    pub(crate) operators: usize,
}

pub(crate) struct MainOperator {
    pub(crate) key: String,
    pub(crate) is_strict: bool,
    pub(crate) keys: BTreeSet<String>,
}

impl Trust {
    fn new(options: &OperatorOptions) -> Self {
        let strict = options.operators.iter().filter(|o| o.claims.nats.strict_signing_key_usage);
        let main = options.operators.first().map(|operator| {
            let claims = &operator.claims;
            let is_strict = claims.nats.strict_signing_key_usage;
            let mut keys: BTreeSet<String> = claims.nats.signing_keys.iter().cloned().collect();
            if !is_strict {
                keys.insert(claims.data.subject.clone());
            }
            MainOperator { key: claims.data.subject.clone(), is_strict, keys }
        });
        Self {
            signers: options.signers().into_iter().map(str::to_owned).collect(),
            strict: strict.flat_map(|o| o.claims.nats.signing_keys.iter().cloned()).collect(),
            main,
            operators: options.operators.len(),
        }
    }

    /// True if accounts that this key signed are served.
    pub(crate) fn trusts(&self, issuer: &str) -> bool {
        self.signers.contains(issuer)
    }
}

impl Operator {
    /// The operators of these options, without any account yet; `None` outside of operator mode.
    #[must_use]
    pub fn new(options: &Options) -> Option<Arc<Self>> {
        let mode = options.operator.as_ref()?;
        Some(Arc::new(Self {
            trust: Trust::new(mode),
            system_account: options.system_account.clone(),
            store: Store::new(mode.resolver.as_ref()),
            accounts: ArcSwap::default(),
            changing: Mutex::default(),
            deadline: AtomicI64::new(NEVER),
            rescheduled: Notify::new(),
            wants: wants::Wants::default(),
        }))
    }

    /// An account in force.
    #[must_use]
    pub fn account(&self, key: &str) -> Option<Arc<AccountState>> {
        self.accounts.load().get(key).cloned()
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("signers", &self.trust.signers).finish_non_exhaustive()
    }
}
