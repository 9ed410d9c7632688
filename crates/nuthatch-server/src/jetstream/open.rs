//! Opening the logs of a server and putting engines and the service on them.

use super::hook::{Answers, Engines, Hook};
use super::registry::EngineIndex;
use super::service::{AccountLimits, ServedAccount, ServedAccounts, Settings};
use crate::account::SYSTEM_ACCOUNT_ID;
use crate::jetstream_hook::{EngineId, Peer};
use crate::options::{AccountJetStream, Options, SyncPolicy};
use crate::process::{OUR_DIRECTORY, StartedJetStream};
use crate::server::{NATS_VERSION, Server};
use crate::sink::ServerSink;
use nuthatch_log::{Log, LogHandle, LogOptions, RecoveryReport, Reporter};
use nuthatch_streams::consumer::ConsumerLimits;
use nuthatch_streams::{AccountBounds, AccountId, Engine, EngineConfig, Event, Message};
use rustc_hash::FxHashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of memory streams when the configuration sets no `max_memory_store`: three quarters of the
/// machine's memory, as upstream, but at least this.
const MEMORY_STORE_MIN_BYTES: u64 = 64 << 20;

/// Answers of the service go through the server's core routing.
struct CoreRouting(Weak<Server>);

impl Answers for CoreRouting {
    fn publish(&self, account: AccountId, message: &Message<'_>) {
        if let Some(server) = self.0.upgrade() {
            server.publish(account, message);
        }
    }
}

/// Opens the logs, starts their threads and loads the registry. Blocks while it recovers; runs on
/// a thread of the runtime that may block.
///
/// # Errors
/// A sentence for the log: which log cannot be opened and what to do about it.
pub fn start(server: &Arc<Server>) -> Result<StartedJetStream, String> {
    let options = server.options();
    let (file, report) = open_file(server, &options)?;
    let memory = open_memory(server, &options)?;
    let answers = Box::new(CoreRouting(Arc::downgrade(server)));
    let engines = Arc::new(Engines::new(vec![file, memory], answers, server.name.clone()));
    let started = Hook::start(engines, settings(server, &options));
    let hook = tokio::runtime::Handle::current().block_on(started)?;
    let lines = banner(&report, hook.stream_count());
    Ok(StartedJetStream { hook, lines })
}

fn open_file(
    server: &Arc<Server>,
    options: &Options,
) -> Result<(LogHandle<Event<Peer>>, RecoveryReport), String> {
    let dir = options.jetstream.store_dir.join(OUR_DIRECTORY).join("default");
    std::fs::create_dir_all(&dir)
        .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let log_options = LogOptions {
        sync: sync_of(options.jetstream.sync),
        report: reporter(server),
        ..LogOptions::local(dir)
    };
    let engine = engine(server, EngineIndex::FILE, options);
    let (core, report) = Log::open_local(log_options, engine).map_err(|error| error.to_string())?;
    let handle = core.spawn("log-default").map_err(|error| error.to_string())?;
    Ok((handle, report))
}

fn open_memory(server: &Arc<Server>, options: &Options) -> Result<LogHandle<Event<Peer>>, String> {
    let budget = options.jetstream.max_memory_bytes.unwrap_or_else(default_memory_bytes);
    let log_options = LogOptions { report: reporter(server), ..LogOptions::memory() };
    let engine = engine(server, EngineIndex::MEMORY, options);
    let (core, _) =
        Log::open_memory(log_options, budget, engine).map_err(|error| error.to_string())?;
    core.spawn("log-memory").map_err(|error| error.to_string())
}

fn engine(server: &Arc<Server>, index: EngineIndex, options: &Options) -> Engine<ServerSink> {
    #[allow(clippy::cast_possible_truncation)] // two engines
    let sink = ServerSink::new(server.clone(), EngineId(index.0 as u8));
    let domain = options.jetstream.domain.clone().unwrap_or_default();
    let limits = &options.jetstream.limits;
    let consumers = ConsumerLimits {
        max_ack_pending: limits.max_ack_pending.map_or(0, i64::from),
        max_request_batch: limits.max_request_batch.map_or(0, i64::from),
        max_consumers: limits.default_max_consumers.map_or(0, i64::from),
    };
    let bytes_max = match index {
        EngineIndex::FILE => options.jetstream.max_store_bytes,
        _ => options.jetstream.max_memory_bytes,
    };
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let accounts = account_bounds(server, options, index);
    let hash_seed = RandomState::new().build_hasher().finish();
    let config = EngineConfig {
        domain,
        consumers,
        hash_seed,
        bytes_max,
        accounts,
        ..EngineConfig::default()
    };
    Engine::new(config, sink)
}

/// What accounts may use of an engine.
pub(super) fn account_bounds(
    server: &Server,
    options: &Options,
    index: EngineIndex,
) -> FxHashMap<AccountId, AccountBounds> {
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = server.accounts.by_name(&account.name)?.id;
        let bytes_max = match index {
            EngineIndex::FILE => own.max_store_bytes,
            _ => own.max_memory_bytes,
        };
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

fn reporter(server: &Arc<Server>) -> Reporter {
    let server = Arc::downgrade(server);
    Reporter::new(move |message| {
        if let Some(server) = server.upgrade() {
            server.log.warn(format_args!("JetStream: {message}"));
        }
    })
}

const fn sync_of(policy: SyncPolicy) -> nuthatch_log::SyncPolicy {
    match policy {
        SyncPolicy::Always => nuthatch_log::SyncPolicy::Always,
        SyncPolicy::Every(interval) => nuthatch_log::SyncPolicy::Every(interval),
        SyncPolicy::Never => nuthatch_log::SyncPolicy::Never,
    }
}

/// What an account may use that has no limits of its own.
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
pub(super) fn served_accounts(server: &Server, options: &Options) -> ServedAccounts {
    let limits = server_limits(options);
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = server.accounts.by_name(&account.name)?.id;
        (id != SYSTEM_ACCOUNT_ID).then(|| {
            let limits = of_account(&limits, own);
            (id, ServedAccount { name: account.name.clone(), limits })
        })
    });
    accounts.collect()
}

fn settings(server: &Server, options: &Options) -> Settings {
    let jetstream = &options.jetstream;
    Settings {
        strict: jetstream.strict,
        domain: jetstream.domain.clone().unwrap_or_default(),
        version: NATS_VERSION.to_owned(),
        limits: server_limits(options),
        accounts: served_accounts(server, options),
        max_duplicate_window: jetstream.limits.duplicate_window.map_or(0, nanos),
    }
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

fn default_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .unwrap_or(0);
    (total_kib * 1024 / 4 * 3).max(MEMORY_STORE_MIN_BYTES)
}

fn banner(report: &RecoveryReport, streams: usize) -> Vec<String> {
    let mut lines = vec![format!(
        "Recovered:       {streams} streams in {:.3} s ({} segments, {} frames replayed, {} \
         messages indexed, epoch {})",
        report.took.as_secs_f64(),
        report.segments,
        report.frames,
        report.indexed,
        report.epoch,
    )];
    if !report.clean && report.last.0 > 0 {
        lines.push("The last stop was not clean".to_owned());
    }
    if report.torn_bytes > 0 {
        lines.push(format!(
            "Cut off {} incomplete frames ({} bytes) that were never acknowledged; kept in torn/",
            report.torn_frames, report.torn_bytes
        ));
    }
    lines
}
