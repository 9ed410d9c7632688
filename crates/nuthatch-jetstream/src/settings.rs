//! What the service is told by the configuration: limits, accounts, names of logs.

use crate::local_log::local_log_dir;
use crate::registry::{DEFAULT_LOG, LOCAL_LOG};
use crate::service::{AccountLimits, ServedAccount, ServedAccounts, Settings};
use nuthatch_server::account::Accounts;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::options::{AccountJetStream, LogStore, Options, SyncPolicy};
use nuthatch_server::server::Server;
use nuthatch_server::version::NATS_VERSION;
use nuthatch_streams::consumer::ConsumerLimits;
use nuthatch_streams::{AccountBounds, AccountId};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Bounds of accounts in the engine of the memory log, or of another one.
pub(super) fn account_bounds(
    known: &Accounts,
    options: &Options,
    is_memory: bool,
) -> FxHashMap<AccountId, AccountBounds> {
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = known.by_name(&account.name)?.id;
        let bytes_max = if is_memory { own.max_memory_bytes } else { own.max_store_bytes };
        let bounds = AccountBounds {
            bytes_max: bytes_max.unwrap_or(u64::MAX),
            max_ack_pending: own.max_ack_pending.map_or(0, i64::from),
            max_consumers: own.max_consumers.map_or(0, i64::from),
        };
        Some((id, bounds))
    });
    accounts.collect()
}

/// The lower of two limits, where `None` is no limit.
fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// The server's limits on consumers; 0: none.
pub(super) fn consumer_limits(options: &Options) -> ConsumerLimits {
    let limits = &options.jetstream.limits;
    ConsumerLimits {
        max_ack_pending: limits.max_ack_pending.map_or(0, i64::from),
        max_request_batch: limits.max_request_batch.map_or(0, i64::from),
        max_consumers: limits.default_max_consumers.map_or(0, i64::from),
    }
}

/// Limits of an account that has none of its own.
fn server_limits(options: &Options) -> AccountLimits {
    let jetstream = &options.jetstream;
    AccountLimits {
        max_memory_bytes: jetstream.max_memory_bytes,
        max_store_bytes: jetstream.max_store_bytes,
        max_ack_pending: jetstream.limits.max_ack_pending.map(u64::from),
        ..AccountLimits::default()
    }
}

/// The accounts of these options that have JetStream.
pub(super) fn served_accounts(known: &Accounts, options: &Options) -> ServedAccounts {
    let limits = server_limits(options);
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = known.by_name(&account.name)?.id;
        (id != SYSTEM_ACCOUNT_ID).then(|| {
            let tier = |(name, tier): &(String, AccountJetStream)| {
                (name.clone(), of_account(&AccountLimits::default(), tier))
            };
            let tiers = own.tiers.iter().map(tier).collect();
            let limits = of_account(&limits, own);
            (id, ServedAccount { name: account.name.clone(), limits, tiers })
        })
    });
    accounts.collect()
}

/// Settings of the service of this server.
pub(super) fn settings(server: &Server, options: &Options) -> Settings {
    let jetstream = &options.jetstream;
    Settings {
        strict: jetstream.strict,
        domain: jetstream.domain.clone().unwrap_or_default(),
        version: NATS_VERSION.to_owned(),
        limits: server_limits(options),
        accounts: served_accounts(&server.accounts, options),
        lazy_logs: lazy_logs(options),
        has_local: local_log_dir(options).is_some(),
        node: options.cluster.as_ref().map(|cluster| cluster.name.clone()),
        max_duplicate_window: jetstream.limits.duplicate_window.map_or(0, nanos),
        consumers: consumer_limits(options),
    }
}

/// Names of the logs on a local disk that do not sync before they answer.
fn lazy_logs(options: &Options) -> Vec<String> {
    let jetstream = &options.jetstream;
    let is_lazy = jetstream.sync != SyncPolicy::Always;
    let default = match options.cluster {
        // It may be begun later.
        Some(_) => Some(LOCAL_LOG),
        None => jetstream.store.is_none().then_some(DEFAULT_LOG),
    };
    let default = default.filter(|_| is_lazy).map(str::to_owned);
    let named = jetstream.logs.iter().filter(|log| {
        matches!(log.home, LogStore::Directory(_))
            && log.sync.unwrap_or(jetstream.sync) != SyncPolicy::Always
    });
    default.into_iter().chain(named.map(|log| log.name.clone())).collect()
}

/// An account's own limits under those of the server.
fn of_account(server: &AccountLimits, own: &AccountJetStream) -> AccountLimits {
    AccountLimits {
        max_memory_bytes: lower(server.max_memory_bytes, own.max_memory_bytes),
        max_store_bytes: lower(server.max_store_bytes, own.max_store_bytes),
        max_streams: own.max_streams.map(u64::from),
        max_consumers: own.max_consumers.map(u64::from),
        max_ack_pending: lower(server.max_ack_pending, own.max_ack_pending.map(u64::from)),
        max_memory_stream_bytes: own.memory_max_stream_bytes,
        max_store_stream_bytes: own.store_max_stream_bytes,
        max_bytes_required: own.max_bytes_required,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
