//! Accounts: separate subject spaces inside one server.

use self::imports::AccountImports;
use crate::account_id::{SYSTEM_ACCOUNT_ID, named_account_id};
use crate::advertised::Told;
use crate::advisories::Advisories;
use crate::interest::Interest;
use crate::log_id::{LogSlot, SlotSet};
use crate::mapping::Mappings;
use crate::msg_trace::{TraceQueue, TraceTarget};
use crate::options::{AccountLimits, GLOBAL_ACCOUNT, Options};
use crate::served::{Served, StreamsOfLog};
use arc_swap::ArcSwap;
use nuthatch_protocol::subject::{has_wildcard, matches};
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub mod imports;
pub(crate) mod responses;

/// Deliver subjects without a listener that are remembered per account. Beyond that every new
/// subscription is reported to the engines as a possible change.
const WAITING_MAX: usize = 16 * 1024;
/// Up to so many of them are compared with a new wildcard subscription; beyond that every such
/// subscription counts as a possible change.
const WAITING_SCAN_MAX: usize = 256;

/// Changes of how many are connected that come within this behind one are told together.
const CONNECTED_SETTLE: Duration = Duration::from_millis(20);

/// An account.
#[derive(Debug)]
pub struct Account {
    /// Its identity.
    pub id: AccountId,
    /// Its name.
    pub name: String,
    /// Its subscriptions.
    pub interest: Interest,
    /// Its connections.
    pub connections: AtomicUsize,
    /// Its connections to other servers.
    pub leafs: AtomicUsize,
    /// Subjects that engines wait for interest in.
    pub watch: Watch,
    /// One of its connections with many subscriptions ends them at a time.
    pub(crate) endings: Semaphore,
    /// Limits of its connections.
    pub limits: ArcSwap<AccountLimits>,
    /// Subject mappings.
    pub mappings: Mappings,
    /// Its imports, and what others import from it.
    pub imports: AccountImports,
    /// Its streams at other nodes of the cluster.
    pub served: Arc<Served>,
    /// What leaf nodes and other nodes of the cluster were told that it takes.
    pub(crate) told: Mutex<Told>,
    /// Other nodes were just told how many are connected, and are told again in a moment.
    is_counted: AtomicBool,
    /// Where messages with a trace context are traced, if the account wants that.
    pub msg_trace: TraceTarget,
}

/// Streams in logs of just one other node, by the names of their accounts.
pub(crate) type RememberedStreams = BTreeMap<String, Vec<StreamsOfLog>>;

/// Deliver subjects that engines care about.
#[derive(Debug, Default)]
pub struct Watch {
    waiting: Mutex<FxHashMap<Box<[u8]>, SlotSet>>,
    waiting_count: AtomicUsize,
    overflowed: AtomicBool,
    /// Targets that engines hold: their loss is worth a notice.
    targets: AtomicUsize,
}

/// Whom a new subscription concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// No engine.
    No,
    /// The engines of these logs wait for exactly this subject.
    Exactly(SlotSet),
    /// Perhaps all.
    Perhaps,
}

impl Watch {
    /// The engine of a log found no subscriber on `subject` and is told of the first one that comes.
    pub fn wait_for(&self, subject: &[u8], slot: LogSlot) {
        let mut waiting = self.waiting.lock();
        if let Some(slots) = waiting.get_mut(subject) {
            slots.insert(slot);
            return;
        }
        if waiting.len() >= WAITING_MAX {
            self.overflowed.store(true, Ordering::Relaxed);
            return;
        }
        waiting.insert(subject.into(), SlotSet::from_iter([slot]));
        self.waiting_count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Whom a new subscription to `pattern` concerns; they are told once.
    pub fn arrived(&self, pattern: &[u8]) -> Awaited {
        if self.overflowed.swap(false, Ordering::Relaxed) {
            self.waiting.lock().clear();
            self.waiting_count.store(0, Ordering::Relaxed);
            return Awaited::Perhaps;
        }
        if self.waiting_count.load(Ordering::Relaxed) == 0 {
            return Awaited::No;
        }
        let mut waiting = self.waiting.lock();
        if has_wildcard(pattern) {
            let concerned = waiting.len() > WAITING_SCAN_MAX
                || waiting.keys().any(|subject| matches(pattern, subject));
            return if concerned { Awaited::Perhaps } else { Awaited::No };
        }
        let Some(slots) = waiting.remove(pattern) else { return Awaited::No };
        self.waiting_count.store(waiting.len(), Ordering::Relaxed);
        Awaited::Exactly(slots)
    }

    /// An engine took hold of a target.
    pub fn hold(&self) {
        self.targets.fetch_add(1, Ordering::Relaxed);
    }

    /// An engine let a target go.
    pub fn release(&self) {
        self.targets.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if the end of a subscription could concern an engine.
    pub fn has_targets(&self) -> bool {
        self.targets.load(Ordering::Relaxed) > 0
    }
}

impl Account {
    fn new(id: AccountId, name: &str) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: name.to_owned(),
            interest: Interest::default(),
            connections: AtomicUsize::new(0),
            leafs: AtomicUsize::new(0),
            watch: Watch::default(),
            endings: Semaphore::new(1),
            limits: ArcSwap::default(),
            mappings: Mappings::default(),
            imports: AccountImports::default(),
            served: Arc::default(),
            told: Mutex::default(),
            is_counted: AtomicBool::new(false),
            msg_trace: TraceTarget::default(),
        })
    }

    /// Takes one more connection in, unless it has as many as it may have at all nodes. Two nodes that each take one in at the
    /// same time may go beyond that.
    pub fn enter(&self) -> bool {
        let max = self.limits.load().max_connections;
        let elsewhere = || self.served.connected_elsewhere().0;
        let max = max.map_or(usize::MAX, |max| (max as usize).saturating_sub(elsewhere()));
        let entered =
            self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < max).then_some(count + 1)
            });
        entered.is_ok()
    }

    /// What other nodes are told of its clients and leaf nodes: how many are connected here, if there is a limit of either.
    pub(crate) fn connected(&self) -> Option<(usize, usize)> {
        let limits = self.limits.load();
        let is_limited = limits.max_connections.is_some() || limits.max_leafnodes.is_some();
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        is_limited.then(|| (count(&self.connections), count(&self.leafs)))
    }

    /// Clients or leaf nodes have come or gone: other nodes are told, if there is a limit of either. The first change is told
    /// at once, since a client that is refused here tries another node next; those that come behind it are told together.
    pub(crate) fn connected_changed(self: &Arc<Self>) {
        if self.connected().is_none() || !self.served.has_nodes() {
            return;
        }
        // Where the runtime is gone nobody is told any more.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_counted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.tell_connected();
        let account = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(CONNECTED_SETTLE).await;
            account.is_counted.store(false, Ordering::Release);
            account.tell_connected();
        });
    }

    fn tell_connected(&self) {
        self.served.tell_connected(self.connected().unwrap_or_default());
    }

    /// Takes one more leaf node in, as [`Account::enter`] does.
    pub fn enter_leaf(&self) -> bool {
        let max = self.limits.load().max_leafnodes;
        let elsewhere = || self.served.connected_elsewhere().1;
        let max = max.map_or(usize::MAX, |max| (max as usize).saturating_sub(elsewhere()));
        let entered = self.leafs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < max).then_some(count + 1)
        });
        entered.is_ok()
    }
}

/// The accounts of a server.
#[derive(Debug)]
pub struct Accounts {
    global: Arc<Account>,
    system: Arc<Account>,
    named: ArcSwap<FxHashMap<AccountId, Arc<Account>>>,
    /// What was remembered of streams of other nodes for accounts that there are not, by their names.
    remembered: Mutex<RememberedStreams>,
    given_up: AtomicU64,
    /// Who hears of advisories beside their subscribers.
    pub advisories: Advisories,
    /// Traces of messages that are finished.
    pub traces: Arc<TraceQueue>,
}

impl Accounts {
    /// The accounts of these options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let this = Self {
            global: Account::new(AccountId::GLOBAL, GLOBAL_ACCOUNT),
            system: Account::new(SYSTEM_ACCOUNT_ID, &options.system_account),
            named: ArcSwap::default(),
            remembered: Mutex::default(),
            given_up: AtomicU64::new(0),
            advisories: Advisories::default(),
            traces: Arc::default(),
        };
        this.update(options);
        this
    }

    /// Makes the accounts those of these options. None is removed: connections may still be in it,
    /// and engines hold it for its streams. Exports and imports are
    /// [installed](crate::account_imports::install) after this.
    pub fn update(&self, options: &Options) {
        let mut named = FxHashMap::clone(&self.named.load());
        for account in &options.accounts {
            if account.name == self.global.name || account.name == self.system.name {
                continue;
            }
            let id = named_account_id(&account.name);
            named
                .entry(id)
                .or_insert_with(|| self.with_remembered(Account::new(id, &account.name)));
        }
        self.named.store(Arc::new(named));
        let by_name: FxHashMap<&str, _> =
            options.accounts.iter().map(|account| (account.name.as_str(), account)).collect();
        for account in self.all() {
            let own = by_name.get(account.name.as_str());
            account.limits.store(Arc::new(own.map_or_else(Default::default, |own| own.limits)));
            let mappings = match own {
                _ if account.id == AccountId::GLOBAL => &options.mappings[..],
                Some(own) => &own.mappings,
                None => &[],
            };
            account.mappings.set(mappings);
            account.msg_trace.set(own.and_then(|own| own.msg_trace.clone()));
            account.interest.touch();
        }
    }

    fn with_remembered(&self, account: Arc<Account>) -> Arc<Account> {
        if let Some(streams) = self.remembered.lock().remove(&account.name) {
            account.served.learn(streams);
        }
        account
    }

    /// Tells the accounts what was remembered before a start; those that come later hear of it then.
    pub(crate) fn set_remembered(&self, streams: RememberedStreams) {
        *self.remembered.lock() = streams;
        for account in self.all() {
            self.with_remembered(account);
        }
    }

    /// What is to be remembered until the next start.
    pub(crate) fn remembered(&self) -> RememberedStreams {
        let mut all = self.remembered.lock().clone();
        for account in self.all() {
            let streams = account.served.to_remember();
            if !streams.is_empty() {
                all.insert(account.name.clone(), streams);
            }
        }
        all
    }

    /// What is known of streams that are offline, by the names of their accounts.
    #[must_use]
    pub(crate) fn offline(&self) -> RememberedStreams {
        let mut all = self.remembered.lock().clone();
        let of_accounts = self.all().into_iter();
        all.extend(of_accounts.map(|one| (one.name.clone(), one.served.offline_streams())));
        all
    }

    /// How often something was given up.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Gives up what is known of streams that are offline with a node.
    pub(crate) fn forget_offline(&self, node: &str) {
        for log in self.remembered.lock().values_mut().flatten() {
            if log.node == node {
                log.given_up = log.given_up.saturating_add(1);
                (log.is_given_up, log.streams) = (true, Vec::new());
            }
        }
        self.given_up.fetch_add(1, Ordering::Relaxed);
        self.all().iter().for_each(|account| account.served.forget_offline(node));
    }

    /// The global account.
    #[must_use]
    pub fn global(&self) -> &Arc<Account> {
        &self.global
    }

    /// The system account.
    #[must_use]
    pub fn system(&self) -> &Arc<Account> {
        &self.system
    }

    /// The account with this identity.
    #[must_use]
    pub fn get(&self, id: AccountId) -> Option<Arc<Account>> {
        match id {
            AccountId::GLOBAL => Some(self.global.clone()),
            SYSTEM_ACCOUNT_ID => Some(self.system.clone()),
            id => self.named.load().get(&id).cloned(),
        }
    }

    /// The account with this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Arc<Account>> {
        if name == self.global.name {
            return Some(self.global.clone());
        }
        if name == self.system.name {
            return Some(self.system.clone());
        }
        self.named.load().get(&named_account_id(name)).filter(|a| a.name == name).cloned()
    }

    /// All accounts, the global one first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Account>> {
        let mut all = vec![self.global.clone(), self.system.clone()];
        let mut named: Vec<_> = self.named.load().values().cloned().collect();
        named.sort_by(|a, b| a.name.cmp(&b.name));
        all.append(&mut named);
        all
    }
}
