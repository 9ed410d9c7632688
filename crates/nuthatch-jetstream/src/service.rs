//! The JetStream API: requests in, operations to the engines, JSON answers out.
//!
//! What changes an account's streams holds a lock of that account to the engine's outcome, or makes
//! its stream a pending change if that takes long: no two creates both win.

use crate::copy_tasks::Replication;
use crate::core_port::CorePort;
use crate::import_table::ImportTable;
use crate::logs_port::{LogsPort, NotTaken, begin, call, finished};
use crate::move_table::Moves;
use crate::outcome::{placement_error, told};
use crate::pending_changes::PendingChanges;
use crate::registry::{DEFAULT_LOG, Entry, MEMORY_LOG, Registry};
use arc_swap::ArcSwap;
use nuthatch_log::StreamId;
use nuthatch_log::stats::Latency;
use nuthatch_protocol::js::{
    API_LEVEL, AckPolicy, ClusterInfo, ConsumerConfig, ConsumerInfo, Metadata, Nanos, PersistMode,
    PriorityPolicy, StorageType, StreamConfig, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_server::shares::Shares;
use nuthatch_streams::consumer::ConsumerLimits;
use nuthatch_streams::op::Usage;
use nuthatch_streams::{AccountId, Op, OpOutcome, OpResult};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// API requests under way at once, over all accounts.
pub const MAX_INFLIGHT_REQUESTS: usize = 10_000;
/// Those of one account.
pub const MAX_ACCOUNT_REQUESTS: usize = MAX_INFLIGHT_REQUESTS / 2;
/// Bytes of headers and bodies of API requests under way at once, over all accounts.
pub const MAX_INFLIGHT_BYTES: usize = 64 * 1024 * 1024;
/// Those of one account.
pub const MAX_ACCOUNT_REQUEST_BYTES: usize = MAX_INFLIGHT_BYTES / 2;
/// Bytes of answers to API requests that grow with what is told, over all accounts, until they are
/// handed to whoever gets them.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Those of one account.
pub const ANSWER_BYTES_OF_ACCOUNT_MAX: usize = ANSWER_BYTES_MAX / 2;
/// Bytes of consumers that snapshots and restores keep in memory, over all accounts.
pub const TRANSFER_BYTES_MAX: usize = 512 << 20;
/// Those of one account.
pub const TRANSFER_BYTES_OF_ACCOUNT_MAX: usize = 256 << 20;

/// Snapshots under way at once, over all accounts. Each takes a few MiB.
pub const SNAPSHOTS_MAX: usize = 64;
/// Snapshots of one account under way at once.
pub const SNAPSHOTS_OF_ACCOUNT_MAX: usize = 16;
/// Restores under way at once, over all accounts. Each has a thread and a few MiB.
pub const RESTORES_MAX: usize = 16;
/// Restores of one account under way at once: one that begins many and sends nothing leaves room for
/// others.
pub const RESTORES_OF_ACCOUNT_MAX: usize = 4;

/// Limits of an account. `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccountLimits {
    /// Bytes of memory streams.
    pub max_memory_bytes: Option<u64>,
    /// Bytes of file streams.
    pub max_store_bytes: Option<u64>,
    /// Streams.
    pub max_streams: Option<u64>,
    /// Consumers of one stream.
    pub max_consumers: Option<u64>,
    /// `max_ack_pending` of any consumer (shown here, enforced by the engines).
    pub max_ack_pending: Option<u64>,
    /// Bytes of one memory stream.
    pub max_memory_stream_bytes: Option<u64>,
    /// Bytes of one file stream.
    pub max_store_stream_bytes: Option<u64>,
    /// Every stream must set `max_bytes`.
    pub max_bytes_required: bool,
}

/// An account beside the global one that has JetStream.
#[derive(Clone, Debug)]
pub struct ServedAccount {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: AccountLimits,
    /// The tiers that its token names, if it names any: [`ServedAccount::limits`] are those of streams
    /// with one replica then.
    pub tiers: Vec<(String, AccountLimits)>,
}

/// Accounts beside the global one that have JetStream.
pub type ServedAccounts = FxHashMap<AccountId, ServedAccount>;

/// Settings of the service.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Unknown JSON fields are errors (10025).
    pub strict: bool,
    /// JetStream domain, empty if none.
    pub domain: String,
    /// Version reported in metadata.
    pub version: String,
    /// Limits of accounts that have none of their own.
    pub limits: AccountLimits,
    /// Accounts beside the global one that have JetStream at the start, with their limits.
    pub accounts: ServedAccounts,
    /// Names of logs that answer before everything is durable.
    pub lazy_logs: Vec<String>,
    /// Longest duplicate window of a stream, ns; 0: no limit.
    pub max_duplicate_window: Nanos,
    /// Limits of the server on consumers, which its engines keep.
    pub consumers: ConsumerLimits,
}

/// Requests that were answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ApiCounts {
    /// All of them.
    pub total: u64,
    /// Those answered with an error.
    pub errors: u64,
}

impl ApiCounts {
    fn add(&mut self, failed: bool) {
        self.total += 1;
        self.errors += u64::from(failed);
    }
}

/// Counters of the API (`api` in account info and `/jsz`).
#[derive(Default, Debug)]
pub struct ApiStats {
    /// Of all accounts together, and of each that has asked: as many as there are accounts.
    counts: Mutex<(ApiCounts, FxHashMap<AccountId, ApiCounts>)>,
    /// Restores that were refused or came to nothing.
    pub refused_restores: AtomicU64,
    /// Time from a request to its answer.
    pub(super) latency: Latency,
}

impl ApiStats {
    /// A request of this account is about to be answered.
    pub(super) fn count(&self, account: AccountId, failed: bool) {
        let (all, of_accounts) = &mut *self.counts.lock();
        all.add(failed);
        of_accounts.entry(account).or_default().add(failed);
    }

    /// Requests of all accounts.
    pub(super) fn all(&self) -> ApiCounts {
        self.counts.lock().0
    }

    /// Requests of one account.
    pub(super) fn of(&self, account: AccountId) -> ApiCounts {
        self.counts.lock().1.get(&account).copied().unwrap_or_default()
    }
}

/// The JetStream service of a server.
pub struct JetStream {
    pub(super) core: Arc<dyn CorePort>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) settings: Settings,
    /// Accounts beside the global one that have JetStream now.
    pub(super) accounts: ArcSwap<ServedAccounts>,
    pub(super) registry: RwLock<Registry>,
    /// Copy of [`Registry::version`] that is read without the lock.
    version: AtomicU64,
    /// Counts new streams for which several logs were as good.
    pub(super) next_home: AtomicUsize,
    /// Tells those who wait for streams to come or go; holds the version.
    pub(super) changes: tokio::sync::watch::Sender<u64>,
    pub(super) replication: Replication,
    pub(super) moves: Moves,
    pub(super) imports: Arc<ImportTable>,
    /// Held from giving out an identity until its log has been told of it.
    new_ids: Mutex<()>,
    /// Who changes streams of an account, and changes whose log takes long; see the module header.
    pub(super) pending_changes: Arc<PendingChanges>,
    /// Requests under way.
    pub(super) requests: Arc<Shares>,
    /// Bytes that those keep in memory.
    pub(super) request_bytes: Arc<Shares>,
    /// Bytes of their answers.
    pub(super) answer_bytes: Arc<Shares>,
    /// Snapshots under way.
    pub(super) snapshots: Arc<Shares>,
    /// Restores under way.
    pub(super) restores: Arc<Shares>,
    /// Bytes that snapshots and restores keep in memory for longer than a batch.
    pub(super) transfer_bytes: Arc<Shares>,
    /// True once the server goes down: who waits for a client gives up.
    pub(super) stopping: tokio::sync::watch::Sender<bool>,
    /// Counters.
    pub stats: ApiStats,
}

/// A placement tag that begins so names the log in which a stream lives.
pub const LOG_TAG: &str = "log:";

/// Metadata of a stream's information that names its log where its configuration does not.
pub const HOME_KEY: &str = "_nuthatch.log";
/// Metadata of a stream's information that tells of a move that is under way.
pub const MOVE_KEY: &str = "_nuthatch.move";

/// Result of a handler: the body already encoded, or the error to encode.
pub(super) type Answer = Result<Vec<u8>, JsError>;

/// Work that continues once a request has been answered.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl JetStream {
    /// A service with an empty registry; call [`JetStream::load`] next.
    #[must_use]
    pub fn new(core: Arc<dyn CorePort>, logs: Arc<dyn LogsPort>, settings: Settings) -> Self {
        Self {
            core,
            accounts: ArcSwap::from_pointee(settings.accounts.clone()),
            settings,
            registry: RwLock::default(),
            version: AtomicU64::new(0),
            next_home: AtomicUsize::new(0),
            changes: tokio::sync::watch::Sender::new(0),
            replication: Replication::default(),
            moves: Moves::default(),
            imports: Arc::new(ImportTable::new(logs.clone())),
            logs,
            new_ids: Mutex::default(),
            pending_changes: Arc::default(),
            requests: Shares::new(MAX_INFLIGHT_REQUESTS, MAX_ACCOUNT_REQUESTS),
            request_bytes: Shares::new(MAX_INFLIGHT_BYTES, MAX_ACCOUNT_REQUEST_BYTES),
            answer_bytes: Shares::new(ANSWER_BYTES_MAX, ANSWER_BYTES_OF_ACCOUNT_MAX),
            snapshots: Shares::new(SNAPSHOTS_MAX, SNAPSHOTS_OF_ACCOUNT_MAX),
            restores: Shares::new(RESTORES_MAX, RESTORES_OF_ACCOUNT_MAX),
            transfer_bytes: Shares::new(TRANSFER_BYTES_MAX, TRANSFER_BYTES_OF_ACCOUNT_MAX),
            stopping: tokio::sync::watch::Sender::new(false),
            stats: ApiStats::default(),
        }
    }

    /// True if JetStream is on for an account.
    #[must_use]
    pub fn serves(&self, account: AccountId) -> bool {
        account == AccountId::GLOBAL || self.accounts.load().contains_key(&account)
    }

    /// Limits of an account.
    pub(super) fn limits_of(&self, account: AccountId) -> AccountLimits {
        self.accounts.load().get(&account).map_or(self.settings.limits, |own| own.limits)
    }

    /// The limits on consumers of an account's streams, as its engines keep them; 0: none.
    pub(super) fn consumer_limits(&self, account: AccountId) -> ConsumerLimits {
        let (own, mut limits) = (self.limits_of(account), self.settings.consumers);
        let lower = |server: i64, own: Option<u64>| {
            let own = own.and_then(|own| i64::try_from(own).ok()).unwrap_or_default();
            if server > 0 && own > 0 { server.min(own) } else { server.max(own) }
        };
        limits.max_ack_pending = lower(limits.max_ack_pending, own.max_ack_pending);
        limits.max_consumers = lower(limits.max_consumers, own.max_consumers);
        limits
    }

    /// The server goes down.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Adopts the accounts of a reloaded configuration.
    pub fn set_accounts(&self, accounts: ServedAccounts) {
        self.accounts.store(Arc::new(accounts));
        self.replication.note_accounts();
        // What accounts may copy of each other may have changed with them.
        self.changes.send_modify(|_| {});
    }

    /// Changes whenever routes or names do: one atomic load.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes the registry and tells the connections' route caches.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.registry.write();
        let result = change(&mut registry);
        self.version.store(registry.version(), Ordering::Release);
        self.changes.send_replace(registry.version());
        result
    }

    /// The registry, for routing. Hold it briefly.
    #[must_use]
    pub const fn registry(&self) -> &RwLock<Registry> {
        &self.registry
    }

    /// New location of a stream that moved away from `route`.
    pub(super) fn moved(&self, engine: LogId, id: StreamId) -> Option<StreamRoute> {
        self.registry.read().moved(StreamRoute { log: engine, stream: id })
    }

    /// Sends an operation to an engine and turns "no outcome" into an API error.
    /// A stream that changes its log meanwhile is followed.
    pub(super) async fn run(&self, mut engine: LogId, mut op: Op) -> Result<OpOutcome, JsError> {
        loop {
            let again = self.may_move().then(|| op.clone());
            let outcome = self.run_at(engine, op).await;
            let is_gone = |error: &JsError| error.err_code == JsError::STREAM_NOT_FOUND.err_code;
            let (Some(mut again), Err(error)) = (again, &outcome) else { return outcome };
            let Some(id) = again.stream_mut().filter(|_| is_gone(error)) else { return outcome };
            let Some(route) = self.moved(engine, *id) else { return outcome };
            *id = route.stream;
            (engine, op) = (route.log, again);
        }
    }

    /// True if any stream has changed its log, or is about to.
    fn may_move(&self) -> bool {
        self.moves.active.load(Ordering::Acquire) > 0 || self.registry.read().has_moved()
    }

    async fn run_at(&self, engine: LogId, op: Op) -> Result<OpOutcome, JsError> {
        told(call(&*self.logs, engine, op).await)
    }

    /// Sends the operation that begins a stream, which gets the identity that is returned with what
    /// waits for its outcome. Identities reach their log in the order in which they were given out:
    /// see [`nuthatch_streams::Op::CreateStream`].
    pub(super) fn begin_new<F: FnOnce(StreamId) -> Op>(
        &self,
        engine: LogId,
        op: F,
    ) -> (StreamId, impl Future<Output = Result<OpOutcome, JsError>> + use<F>) {
        let (id, begun) = self.submit_new(engine, op);
        (id, async move { told(finished(begun).await) })
    }

    /// As [`JetStream::begin_new`], for who tries again if the log is busy.
    pub(super) fn submit_new(
        &self,
        engine: LogId,
        op: impl FnOnce(StreamId) -> Op,
    ) -> (StreamId, Result<oneshot::Receiver<OpResult>, NotTaken>) {
        let _ordered = self.new_ids.lock();
        let id = self.registry.write().fresh_id();
        (id, begin(&*self.logs, engine, op(id)))
    }

    /// The entry of a stream or error 10059.
    pub(super) fn entry(&self, account: AccountId, name: &str) -> Result<Arc<Entry>, JsError> {
        self.registry.read().get(account, name).cloned().ok_or(JsError::STREAM_NOT_FOUND)
    }

    /// Which engine a stream belongs to: that of the log that its placement tag `log:NAME` names,
    /// or the default of its storage type.
    pub(super) fn engine_for(&self, config: &StreamConfig) -> Result<LogId, JsError> {
        let Some(name) = self.log_by_tag(config)? else {
            let default = match config.storage {
                StorageType::File => DEFAULT_LOG,
                StorageType::Memory => MEMORY_LOG,
            };
            return self.log_named(default).ok_or_else(|| self.no_such_log(default));
        };
        let found = self.log_named(name).filter(|_| name != MEMORY_LOG);
        found.ok_or_else(|| self.no_such_log(name))
    }

    /// The log that a placement tag names; `None`: no tag does.
    pub(super) fn log_by_tag<'a>(
        &self,
        config: &'a StreamConfig,
    ) -> Result<Option<&'a str>, JsError> {
        let tags = config.placement.iter().flat_map(|placement| &placement.tags);
        let mut names = tags.filter_map(|tag| tag.strip_prefix(LOG_TAG));
        let Some(name) = names.next() else { return Ok(None) };
        if names.any(|other| other != name) {
            return Err(placement_error("a stream lives in one log: give one tag 'log:NAME'"));
        }
        if config.storage == StorageType::Memory {
            return Err(placement_error("a stream of storage 'memory' lives in no other log"));
        }
        Ok(Some(name))
    }

    /// The attached log of this name.
    pub(super) fn log_named(&self, name: &str) -> Option<LogId> {
        let attached = self.logs.attached();
        attached.into_iter().find(|(known, _)| known == name).map(|(_, id)| id)
    }

    /// The name of a log; empty: it is not attached.
    pub(super) fn log_name(&self, log: LogId) -> String {
        let attached = self.logs.attached();
        attached.into_iter().find(|(_, id)| *id == log).map_or_else(String::new, |(name, _)| name)
    }

    pub(super) fn no_such_log(&self, name: &str) -> JsError {
        let attached = self.logs.attached();
        let names = attached.iter().map(|(name, _)| name.as_str());
        let known: Vec<&str> = names.filter(|known| *known != MEMORY_LOG).collect();
        let known = known.join(", ");
        placement_error(&format!("there is no log {name:?} here; there are: {known}"))
    }

    /// Fills in what only the server knows of a stream: domain, dynamic metadata.
    pub(super) fn complete_stream(&self, info: &mut StreamInfo) {
        info.domain.clone_from(&self.settings.domain);
        self.add_dynamic_metadata(&mut Arc::make_mut(&mut info.config).metadata);
    }

    /// Adds the log of a stream, if its configuration does not name it, and the log that it is
    /// moving to.
    pub(super) fn complete_home(&self, account: AccountId, info: &mut StreamInfo) {
        let name = &info.config.name;
        let Some(engine) = self.registry.read().get(account, name).map(|entry| entry.engine) else {
            return;
        };
        let moving = self.move_of(account, name);
        if self.engine_for(&info.config).ok() != Some(engine) {
            let log = self.log_name(engine);
            Arc::make_mut(&mut info.config).metadata.insert(HOME_KEY.into(), log);
        }
        if let Some(moving) = moving {
            let mut text =
                format!("to log {}: {} of {}", moving.to, moving.copied_seq, moving.last_seq);
            if let Some(error) = moving.error {
                text += &format!("; last problem: {error}");
            }
            Arc::make_mut(&mut info.config).metadata.insert(MOVE_KEY.into(), text);
        }
    }

    /// [`JetStream::complete_stream`] for a consumer.
    pub(super) fn complete_consumer(&self, info: &mut ConsumerInfo) {
        self.add_dynamic_metadata(&mut info.config.metadata);
    }

    /// The cluster part of `STREAM.INFO`: a leader, even where there is one server.
    pub(super) fn cluster(&self) -> ClusterInfo {
        ClusterInfo { leader: self.core.server_name().to_owned(), ..ClusterInfo::default() }
    }

    fn add_dynamic_metadata(&self, metadata: &mut Metadata) {
        metadata.insert("_nats.ver".into(), self.settings.version.clone());
        metadata.insert("_nats.level".into(), API_LEVEL.to_string());
    }

    /// Totals of an account's streams on disk or in buckets, and in memory.
    pub(super) async fn usage(&self, account: Option<AccountId>) -> Result<[Usage; 2], JsError> {
        let mut totals = [Usage::default(); 2];
        for (name, engine) in self.logs.attached() {
            if let OpOutcome::Usage(usage) = self.run(engine, Op::Usage { account }).await? {
                totals[usize::from(name == MEMORY_LOG)].add(&usage);
            }
        }
        Ok(totals)
    }
}

/// Metadata that a create or update stores: client-given `_nats.ver`/`_nats.level` are dropped, the
/// level that the configuration needs is set (ADR-44).
fn set_static_metadata(metadata: &mut Metadata, level: u32) {
    metadata.retain(|key, _| {
        key != "_nats.ver" && key != "_nats.level" && key != HOME_KEY && key != MOVE_KEY
    });
    metadata.insert("_nats.req.level".into(), level.to_string());
}

/// [`set_static_metadata`] of a stream.
pub(super) fn set_stream_metadata(config: &mut StreamConfig) {
    let level = if config.allow_batched {
        4
    } else if config.allow_msg_counter
        || config.allow_atomic
        || config.allow_msg_schedules
        || config.persist_mode == PersistMode::Async
    {
        2
    } else {
        u32::from(config.allow_msg_ttl || config.subject_delete_marker_ttl > 0)
    };
    set_static_metadata(&mut config.metadata, level);
}

/// [`set_static_metadata`] of a consumer.
pub(super) fn set_consumer_metadata(config: &mut ConsumerConfig) {
    let pauses = config.pause_until.is_some_and(|until| until != Time::ZERO);
    let has_priorities = config.priority_policy != PriorityPolicy::None
        || config.priority_timeout != 0
        || !config.priority_groups.is_empty();
    let level = match config.ack_policy {
        AckPolicy::FlowControl => 4,
        _ => u32::from(pauses || has_priorities),
    };
    set_static_metadata(&mut config.metadata, level);
}
