//! The JetStream API: requests in, operations to the engines, JSON answers out.
//!
//! What changes an account's streams holds a lock of that account to the engine's outcome, or makes
//! its stream a pending change if that takes long: no two creates both win.

use crate::account::AccountInfos;
use crate::account_table::AccountTable;
pub use crate::account_table::{AccountLimits, ServedAccount, ServedAccounts};
use crate::api_stats::ApiStats;
use crate::call_places::CallPlaces;
use crate::consumers::ConsumerCalls;
use crate::core_port::CorePort;
use crate::elections::Elections;
use crate::imports::StreamImports;
use crate::lists::Lists;
use crate::load::Loading;
use crate::log_calls::LogCalls;
use crate::log_loads::LogLoads;
use crate::logs_port::LogsPort;
use crate::moves::StreamMoves;
use crate::other_nodes::OtherNodes;
use crate::parts::{Facts, Parts};
use crate::replicas::Replicas;
use crate::replication::Replication;
use crate::requests::Requests;
use crate::restore::Restores;
use crate::snapshot::Snapshots;
use crate::step_down::StepDowns;
use crate::stream_table::StreamTable;
use crate::streams::StreamCalls;
use crate::transfers::Transfers;
use crate::verdict::Verdicts;
use crate::view::View;
use nuthatch_protocol::js::Nanos;
use nuthatch_server::shares::Shares;
use nuthatch_streams::consumer::ConsumerLimits;
use std::sync::Arc;

/// Bytes of answers to API requests that grow with what is told, over all accounts, until they are
/// handed to whoever gets them.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Those of one account.
pub const ANSWER_BYTES_OF_ACCOUNT_MAX: usize = ANSWER_BYTES_MAX / 2;
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
    /// This node of a cluster; `None`: the server is alone.
    pub node: Option<String>,
    /// The log [`crate::registry::LOCAL_LOG`] is what this node had as a server that was alone.
    pub has_local: bool,
    /// Longest duplicate window of a stream, ns; 0: no limit.
    pub max_duplicate_window: Nanos,
    /// Limits of the server on consumers, which its engines keep.
    pub consumers: ConsumerLimits,
}

/// The JetStream service of a server: which call which part handles, and how much may be under way.
pub struct JetStream {
    pub(super) core: Arc<dyn CorePort>,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) places: CallPlaces,
    pub(super) stream_calls: StreamCalls,
    pub(super) consumers: ConsumerCalls,
    pub(super) lists: Lists,
    pub(super) account_infos: AccountInfos,
    pub(super) step_downs: StepDowns,
    pub(super) elections: Arc<Elections>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) loads: Arc<LogLoads>,
    pub(super) verdicts: Verdicts,
    pub(super) moves: Arc<StreamMoves>,
    pub(super) imports: StreamImports,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) restores: Arc<Restores>,
    pub(super) loading: Loading,
    pub(super) view: View,
    pub(super) replication: Arc<Replication>,
    transfers: Arc<Transfers>,
    pub(super) requests: Requests,
    /// Bytes of their answers.
    pub(super) answer_bytes: Arc<Shares>,
    pub(super) stats: Arc<ApiStats>,
}

impl JetStream {
    /// A service without streams; those of the logs are [loaded](Loading::load) next.
    #[must_use]
    pub fn new(core: Arc<dyn CorePort>, logs: Arc<dyn LogsPort>, settings: Settings) -> Self {
        let Settings { strict, domain, version, max_duplicate_window, .. } = settings;
        let Settings { limits, accounts, lazy_logs, node, has_local, consumers, .. } = settings;
        let facts = Facts { strict, domain, version, max_duplicate_window };
        let accounts = AccountTable::new(accounts, limits, consumers);
        let parts =
            Parts::new(facts, (core.clone(), logs), accounts, (lazy_logs, (node, has_local)));
        let (infos, moves) = (Arc::new(parts.infos()), Arc::new(parts.moves()));
        let checks = (&Arc::new(parts.admission()), &Arc::new(parts.placing()));
        let transfers = Arc::new(parts.transfers());
        let imports = parts.imports(checks, &infos);
        let requests = Requests::new();
        Self {
            accounts: parts.accounts.clone(),
            streams: parts.streams.clone(),
            calls: parts.calls.clone(),
            nodes: parts.nodes.clone(),
            places: CallPlaces::new(core.clone(), parts.streams.clone()),
            stream_calls: parts.stream_calls(checks, &infos, &moves),
            consumers: parts.consumers(&infos),
            lists: parts.lists(&infos),
            account_infos: parts.account_infos(&requests.count),
            step_downs: parts.step_downs(),
            elections: parts.elections.clone(),
            replicas: parts.replicas.clone(),
            loads: Arc::new(LogLoads::new(parts.logs.clone(), parts.nodes.clone())),
            verdicts: Verdicts { streams: parts.streams.clone(), calls: parts.calls.clone() },
            snapshots: Arc::new(parts.snapshots(&transfers)),
            restores: Arc::new(parts.restores(checks, &infos, &transfers)),
            loading: parts.loading(&imports, &moves),
            view: parts.view(&infos),
            replication: Arc::new(parts.replication()),
            stats: parts.stats.clone(),
            core,
            moves,
            imports,
            transfers,
            requests,
            answer_bytes: Shares::new(ANSWER_BYTES_MAX, ANSWER_BYTES_OF_ACCOUNT_MAX),
        }
    }

    /// The server goes down.
    pub(super) fn stop(&self) {
        self.transfers.stop();
    }

    /// Adopts the accounts of a reloaded configuration.
    pub fn set_accounts(&self, accounts: ServedAccounts) {
        self.accounts.set(accounts);
        self.replication.copies.note_accounts();
        // What accounts may copy of each other may have changed with them.
        self.streams.wake();
    }
}
