//! Operator mode: accounts and users are tokens (JWTs). An operator whose key the server trusts
//! signs accounts, accounts sign their users.
//!
//! Accounts come from the configuration or from a directory ([`store`]) and may change while the
//! server runs ([`requests`]). With every change all of them are turned into the same structures
//! that a configuration file gives ([`derive`]) and put in force as a reload does ([`enforce`]);
//! so isolation, exports and imports, limits, mappings and JetStream know nothing of tokens. What
//! is only about users (keys, revocations, rights of scoped keys) is kept beside ([`state`]).

use crate::options::{OperatorOptions, Options};
use crate::server::Server;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc};

pub(crate) use self::enforce::recheck_new;
pub use self::login::{Denial, Settings};
use self::requests::Request;
pub use self::state::AccountState;
use self::store::Store;
pub use self::store::StoreError;

mod derive;
mod enforce;
mod import_permits;
mod login;
mod requests;
mod rights;
mod state;
mod store;
mod times;

/// The operators of a server, and the accounts that they signed.
pub struct Operator {
    trust: Trust,
    /// Name of the system account.
    system_account: String,
    store: Store,
    /// The accounts in force, by public nkey.
    accounts: ArcSwap<FxHashMap<String, Arc<AccountState>>>,
    /// Held while they change: the problems that were said.
    changing: Mutex<BTreeSet<String>>,
    /// When an account or activation begins or ends, in seconds since 1970; [`NEVER`].
    deadline: AtomicI64,
    /// That is another time now.
    rescheduled: Notify,
    requests: OnceLock<mpsc::Sender<Request>>,
}

/// No account and no activation begins or ends.
const NEVER: i64 = i64::MAX;

/// Whose signatures count.
pub(crate) struct Trust {
    /// Public nkeys that may sign accounts.
    signers: BTreeSet<String>,
    /// Those among them whose accounts must sign with signing keys too.
    strict: BTreeSet<String>,
    /// The first operator, who alone may delete accounts.
    main: Option<MainOperator>,
    /// The number of operators.
    operators: usize,
}

struct MainOperator {
    key: String,
    is_strict: bool,
    keys: BTreeSet<String>,
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
    fn trusts(&self, issuer: &str) -> bool {
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
            requests: OnceLock::new(),
        }))
    }

    /// An account in force.
    #[must_use]
    pub fn account(&self, key: &str) -> Option<Arc<AccountState>> {
        self.accounts.load().get(key).cloned()
    }
}

/// Reads the accounts, puts them in force, and sees to them from then on. Nothing outside of
/// operator mode.
///
/// # Errors
/// The directory of the accounts cannot be used.
pub fn start(server: &Arc<Server>) -> Result<(), StoreError> {
    let Some(operator) = server.operator().cloned() else { return Ok(()) };
    for key in &operator.trust.signers {
        server.log.info(format_args!("Trusted operator key: {key}"));
    }
    read(server, &server.options())?;
    apply(server);
    server.log.info(format_args!("Accounts of operators: {}", operator.accounts.load().len()));
    requests::install(server, &operator);
    if let Some(runtime) = server.runtime() {
        runtime.spawn(enforce::at_deadlines(Arc::downgrade(server), operator));
    }
    Ok(())
}

/// Reads the accounts anew, as these options say; nothing is in force yet.
///
/// # Errors
/// The directory of the accounts cannot be used; then they are as before.
pub(crate) fn read(server: &Server, options: &Options) -> Result<(), StoreError> {
    let Some(operator) = server.operator() else { return Ok(()) };
    let preload = options.operator.as_ref().map(|mode| &mode.preload);
    for problem in operator.store.load(preload.into_iter().flatten())? {
        server.log.error(format_args!("{problem}"));
    }
    Ok(())
}

/// Puts the accounts in force that were read.
pub(crate) fn apply(server: &Arc<Server>) {
    if let Some(operator) = server.operator() {
        enforce::apply(server, operator);
    }
}

/// Seconds since 1970.
fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("signers", &self.trust.signers).finish_non_exhaustive()
    }
}
