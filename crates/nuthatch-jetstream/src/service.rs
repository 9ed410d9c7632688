//! The JetStream API: requests in, operations to the engines, JSON answers out.
//!
//! What changes an account's streams holds a lock of that account to the engine's outcome, or makes
//! its stream a pending change if that takes long: no two creates both win.

use crate::account_table::AccountTable;
pub use crate::account_table::{AccountLimits, ServedAccount, ServedAccounts};
use crate::admission::Admission;
use crate::changing::ChangeRights;
use crate::copy_tasks::Replication;
use crate::core_port::CorePort;
use crate::import_table::ImportTable;
use crate::log_calls::LogCalls;
use crate::log_names::LogNames;
use crate::logs_port::LogsPort;
use crate::move_table::Moves;
use crate::stream_table::StreamTable;
use nuthatch_log::stats::Latency;
use nuthatch_protocol::js::{
    API_LEVEL, AckPolicy, ClusterInfo, ConsumerConfig, ConsumerInfo, Metadata, Nanos, PersistMode,
    PriorityPolicy, StreamConfig, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::shares::Shares;
use nuthatch_streams::AccountId;
use nuthatch_streams::consumer::ConsumerLimits;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

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
    pub(super) accounts: Arc<AccountTable>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) admission: Arc<Admission>,
    /// Counts new streams for which several logs were as good.
    pub(super) next_home: AtomicUsize,
    pub(super) replication: Replication,
    pub(super) moves: Arc<Moves>,
    pub(super) imports: Arc<ImportTable>,
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
        let Settings { accounts, limits, consumers, lazy_logs, .. } = &settings;
        let accounts = AccountTable::new(accounts.clone(), *limits, *consumers);
        let names = Arc::new(LogNames::new(logs.clone(), lazy_logs.clone()));
        let streams = Arc::new(StreamTable::new(logs.clone()));
        let moves = Arc::<Moves>::default();
        let rights = Arc::new(ChangeRights::new(names.clone()));
        let admission = Admission::new(core.clone(), streams.clone(), rights.clone());
        Self {
            core,
            settings,
            accounts: Arc::new(accounts),
            calls: Arc::new(LogCalls::new(logs.clone(), streams.clone(), moves.clone())),
            rights,
            admission: Arc::new(admission),
            names,
            streams,
            next_home: AtomicUsize::new(0),
            replication: Replication::default(),
            moves,
            imports: Arc::new(ImportTable::new(logs.clone())),
            logs,
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

    /// The server goes down.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Adopts the accounts of a reloaded configuration.
    pub fn set_accounts(&self, accounts: ServedAccounts) {
        self.accounts.set(accounts);
        self.replication.note_accounts();
        // What accounts may copy of each other may have changed with them.
        self.streams.wake();
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
        let Some(engine) = self.streams.read().get(account, name).map(|entry| entry.engine) else {
            return;
        };
        let moving = self.move_of(account, name);
        if self.names.of_config(&info.config).ok() != Some(engine) {
            let log = self.names.name_of(engine);
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
