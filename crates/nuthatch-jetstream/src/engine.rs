//! The engine on a log, as the configuration wants it, and how this server shows itself there.

use crate::registry::is_quorum_log;
use crate::settings::{account_bounds, consumer_limits};
use nuthatch_log::{Reporter, Standby};
use nuthatch_server::account_imports::ImportHost;
use nuthatch_server::jetstream_port::LogSlot;
use nuthatch_server::options::{Options, SyncPolicy};
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{BatchLimits, Engine, EngineConfig};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// What follows a quorum log of another node.
pub(super) type LogStandby = Standby<Engine<ServerSink>>;

/// A new engine for a log that will have this number, and of this name.
pub(super) fn engine(
    server: &Arc<Server>,
    slot: (LogSlot, &str),
    is_memory: bool,
    options: &Options,
) -> Engine<ServerSink> {
    let limits = &options.jetstream;
    let bytes_max = if is_memory { limits.max_memory_bytes } else { limits.max_store_bytes };
    engine_within(server, slot, (is_memory, bytes_max), options)
}

/// As [`engine`], for messages of so many bytes; `None`: of as many as there are.
pub(super) fn engine_within(
    server: &Arc<Server>,
    (slot, name): (LogSlot, &str),
    (is_memory, bytes_max): (bool, Option<u64>),
    options: &Options,
) -> Engine<ServerSink> {
    let host: Arc<dyn ImportHost> = server.clone();
    let sink =
        ServerSink::new(server.accounts.clone(), slot).with_streams_of(Arc::downgrade(&host));
    let hash_seed = RandomState::new().build_hasher().finish();
    let config = engine_config(server, (is_memory, bytes_max), options);
    // A server that is alone calls its default log as a cluster calls its first one.
    let memory_consumers_outlive = options.cluster.is_some() && is_quorum_log(name);
    Engine::new(EngineConfig { hash_seed, memory_consumers_outlive, ..config }, sink)
}

/// The settings of an engine, but for what is drawn.
pub(super) fn engine_config(
    server: &Server,
    (is_memory, bytes_max): (bool, Option<u64>),
    options: &Options,
) -> EngineConfig {
    let domain = options.jetstream.domain.clone().unwrap_or_default();
    let limits = &options.jetstream.limits;
    let consumers = consumer_limits(options);
    let batch = &limits.batch;
    let default = BatchLimits::default();
    let batches = BatchLimits {
        per_stream: batch.per_stream.map(|count| count as usize),
        total: batch.total.map(|count| count as usize),
        messages: batch.messages.map_or(default.messages, |count| count as usize),
        idle_ns: batch.timeout.map_or(default.idle_ns, |timeout| {
            i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX)
        }),
    };
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let accounts = account_bounds(&server.accounts, options, is_memory);
    EngineConfig { domain, consumers, batches, bytes_max, accounts, ..EngineConfig::default() }
}

/// Where a log of this server reports what its operator should know.
pub(super) fn reporter(server: &Arc<Server>) -> Reporter {
    let server = Arc::downgrade(server);
    Reporter::new(move |message| {
        if let Some(server) = server.upgrade() {
            server.log.warn(format_args!("JetStream: {message}"));
        }
    })
}

/// How this server shows itself to others at a bucket.
pub(super) fn who(server: &Server) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("server {} (process {} on {})", server.name, std::process::id(), host.trim())
}

pub(super) const fn sync_of(policy: SyncPolicy) -> nuthatch_log::SyncPolicy {
    match policy {
        SyncPolicy::Always => nuthatch_log::SyncPolicy::Always,
        SyncPolicy::Every(interval) => nuthatch_log::SyncPolicy::Every(interval),
        SyncPolicy::Never => nuthatch_log::SyncPolicy::Never,
    }
}
