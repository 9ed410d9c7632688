//! Reads what the parts of the server have counted.

use super::table::{self as t, Metric};
use super::{ACCOUNTS_MAX, Family, Number, Sample};
use crate::jetstream_port::{JsLog, JsSample, JsTotals, SampleQuery};
use crate::monitor::usage;
use crate::options::SyncPolicy;
use crate::server::Server;
use crate::version::NATS_VERSION;
use crate::version::VERSION;
use nuthatch_log::StatsSnapshot;
use nuthatch_object::{RequestKind, TierStatus};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

mod cluster;
mod storage;

/// Everything, with the streams and consumers that are asked for.
pub(super) async fn gather(server: &Server, query: SampleQuery) -> Vec<Family> {
    let view = server.jetstream().view();
    let totals = view.totals().await;
    let sample = view.sample(query).await;
    let mut page = Vec::with_capacity(120);
    of_server(&mut page, server);
    cluster::of_cluster(&mut page, server);
    of_process(&mut page, server);
    of_accounts(&mut page, server, &sample);
    if server.options().jetstream.enabled {
        of_jetstream(&mut page, server, &totals);
        storage::of_accounts(&mut page, &sample);
        storage::of_streams(&mut page, &sample);
        storage::of_consumers(&mut page, &sample);
        storage::of_media(&mut page, server).await;
        of_logs(&mut page, &view.logs());
        of_stores(&mut page, server);
        of_caches(&mut page, server);
        of_tiers(&mut page, server);
        of_set_aside(&mut page, server).await;
    }
    page
}

fn put(page: &mut Vec<Family>, metric: &'static Metric, value: u64) {
    put_number(page, metric, Number::Whole(value));
}

fn put_number(page: &mut Vec<Family>, metric: &'static Metric, value: Number) {
    page.push(Family { metric, samples: vec![Sample { labels: Vec::new(), value }] });
}

fn put_all<'a, V: Into<Number>>(
    page: &mut Vec<Family>,
    metric: &'static Metric,
    samples: impl IntoIterator<Item = (Vec<&'a str>, V)>,
) {
    let sample = |(labels, value): (Vec<&str>, V)| Sample {
        labels: labels.into_iter().map(str::to_owned).collect(),
        value: value.into(),
    };
    page.push(Family { metric, samples: samples.into_iter().map(sample).collect() });
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn of_server(page: &mut Vec<Family>, server: &Server) {
    let who = vec![VERSION, NATS_VERSION, &server.name, &server.id];
    put_all(page, &t::INFO, [(who, 1)]);
    put_number(page, &t::UPTIME, Number::Real(server.uptime_ms() as f64 / 1e3));
    let loaded = unix_seconds(**server.config_loaded.load());
    put_number(page, &t::CONFIG_LOADED, Number::Real(loaded));
    let open = server.connections.open();
    put(page, &t::CONNECTIONS, open.len() as u64);
    put(page, &t::ACCEPTED, server.connections.total());
    let subscriptions = server.accounts.all().iter().map(|a| a.interest.count() as u64).sum();
    put(page, &t::SUBSCRIPTIONS, subscriptions);
    let traffic = server.connections.traffic();
    put(page, &t::RECEIVED_MESSAGES, traffic.received.messages);
    put(page, &t::RECEIVED_BYTES, traffic.received.bytes);
    put(page, &t::SENT_MESSAGES, traffic.sent.messages);
    put(page, &t::SENT_BYTES, traffic.sent.bytes);
    let pending = || open.iter().map(|conn| conn.outbox().pending() as u64);
    put(page, &t::PENDING_BYTES, pending().sum());
    put(page, &t::PENDING_BYTES_MAX, pending().max().unwrap_or(0));
    let slow = &server.slow_consumers;
    let slow = [
        (vec!["pending_bytes"], slow.pending_bytes.load(Ordering::Relaxed)),
        (vec!["write_deadline"], slow.write_deadline.load(Ordering::Relaxed)),
    ];
    put_all(page, &t::SLOW_CONSUMERS, slow);
    put(page, &t::STALE_CONNECTIONS, server.stale_connections.load(Ordering::Relaxed));
    put(page, &t::STALLED_CLIENTS, server.stalled_clients.load(Ordering::Relaxed));
    put(page, &t::REFUSED_PUBLISHES, server.refused_publishes.load(Ordering::Relaxed));
    let options = server.options();
    put(page, &t::MAX_CONNECTIONS, u64::from(options.limits.max_connections));
    put(page, &t::MAX_PENDING, options.limits.max_pending_bytes as u64);
    of_leafs(page, server);
    let requests = server.http_requests.lock().clone();
    put_all(page, &t::HTTP_REQUESTS, requests.iter().map(|(path, count)| (vec![*path], *count)));
}

fn of_leafs(page: &mut Vec<Family>, server: &Server) {
    let open = server.leafs.connections.open();
    let joined = open.iter().filter(|conn| conn.link().is_some()).count();
    put(page, &t::LEAFS, joined as u64);
    let traffic = server.leafs.connections.traffic();
    put(page, &t::LEAF_RECEIVED_MESSAGES, traffic.received.messages);
    put(page, &t::LEAF_RECEIVED_BYTES, traffic.received.bytes);
    put(page, &t::LEAF_SENT_MESSAGES, traffic.sent.messages);
    put(page, &t::LEAF_SENT_BYTES, traffic.sent.bytes);
    let pending = open.iter().map(|conn| conn.outbox().pending() as u64).sum();
    put(page, &t::LEAF_PENDING_BYTES, pending);
}

fn of_process(page: &mut Vec<Family>, server: &Server) {
    put(page, &t::RESIDENT, usage::resident_bytes().unwrap_or(0));
    put_number(page, &t::CPU, Number::Real(usage::cpu_seconds().unwrap_or(0.0)));
    put(page, &t::OPEN_FILES, usage::open_files() as u64);
    if let Some(most) = usage::max_files() {
        put(page, &t::MAX_FILES, most);
    }
    put_number(page, &t::START_TIME, Number::Real(unix_seconds(server.since)));
    put(page, &t::THREADS, usage::threads().len() as u64);
    if let Some(runtime) = server.runtime_usage() {
        put(page, &t::TASKS, runtime.tasks as u64);
        put(page, &t::TASKS_QUEUED, runtime.queued as u64);
    }
}

fn of_accounts(page: &mut Vec<Family>, server: &Server, sample: &JsSample) {
    let accounts = server.accounts.all();
    let traffic = server.connections.traffic_by_account();
    let shown = &accounts[..accounts.len().min(ACCOUNTS_MAX)];
    let mut of = |metric, value: &dyn Fn(&crate::account::Account) -> u64| {
        put_all(page, metric, shown.iter().map(|a| (vec![a.name.as_str()], value(a))));
    };
    of(&t::ACCOUNT_CONNECTIONS, &|a| a.connections.load(Ordering::Relaxed) as u64);
    of(&t::ACCOUNT_SUBSCRIPTIONS, &|a| a.interest.count() as u64);
    let moved = |a: &crate::account::Account| traffic.get(&a.id).copied().unwrap_or_default();
    of(&t::ACCOUNT_RECEIVED_MESSAGES, &|a| moved(a).received.messages);
    of(&t::ACCOUNT_RECEIVED_BYTES, &|a| moved(a).received.bytes);
    of(&t::ACCOUNT_SENT_MESSAGES, &|a| moved(a).sent.messages);
    of(&t::ACCOUNT_SENT_BYTES, &|a| moved(a).sent.bytes);
    let omitted = [
        (vec!["accounts"], (accounts.len() - shown.len()) as u64),
        (vec!["streams"], sample.streams_omitted as u64),
        (vec!["consumers"], u64::from(sample.consumers_omitted)),
    ];
    put_all(page, &t::OMITTED, omitted);
}

fn of_jetstream(page: &mut Vec<Family>, server: &Server, totals: &JsTotals) {
    put(page, &t::JS_STREAMS, totals.streams);
    put(page, &t::JS_CONSUMERS, totals.consumers);
    put(page, &t::JS_MESSAGES, totals.messages);
    put(page, &t::JS_MISSING, totals.missing_messages);
    let bytes = [(vec!["file"], totals.store_bytes), (vec!["memory"], totals.memory_bytes)];
    put_all(page, &t::JS_BYTES, bytes);
    let reserved = [
        (vec!["file"], totals.reserved_store_bytes),
        (vec!["memory"], totals.reserved_memory_bytes),
    ];
    put_all(page, &t::JS_RESERVED, reserved);
    let limits = &server.options().jetstream;
    let limits = [("file", limits.max_store_bytes), ("memory", limits.max_memory_bytes)];
    put_all(
        page,
        &t::JS_LIMIT,
        limits.iter().filter_map(|(name, most)| Some((vec![*name], (*most)?))),
    );
    let latency = Number::Latency(Box::new(totals.api_latency));
    put_number(page, &t::JS_API_LATENCY, latency);
    put(page, &t::JS_API, totals.api_total);
    put(page, &t::JS_API_ERRORS, totals.api_errors);
    put(page, &t::JS_REFUSED_RESTORES, totals.refused_restores);
    let moves = [(vec!["running"], totals.moves), (vec!["failing"], totals.moves_failing)];
    put_all(page, &t::JS_MOVES, moves);
    let (level, interval) = match server.options().jetstream.sync {
        SyncPolicy::Always => ("always", 0.0),
        SyncPolicy::Every(interval) => ("interval", interval.as_secs_f64()),
        SyncPolicy::Never => ("never", -1.0),
    };
    let levels = ["always", "interval", "never"];
    put_all(page, &t::DURABILITY, levels.map(|name| (vec![name], u64::from(name == level))));
    put_number(page, &t::SYNC_INTERVAL, Number::Real(interval));
}

type OfLog = fn(&StatsSnapshot) -> u64;

/// Metrics of a log that are one number each.
const OF_LOG: &[(&Metric, OfLog)] = &[
    (&t::LOG_FRAMES, |s| s.frames),
    (&t::LOG_RECORDS, |s| s.records),
    (&t::LOG_FRAME_BYTES, |s| s.frame_bytes),
    (&t::LOG_WRITTEN, |s| s.written_bytes),
    (&t::LOG_SYNCS, |s| s.syncs),
    (&t::LOG_COMMITTED, |s| s.committed_lsn),
    (&t::LOG_DURABLE, |s| s.durable_lsn),
    (&t::LOG_QUEUE, |s| s.queue_bytes),
    (&t::LOG_QUEUE_REFUSALS, |s| s.queue_refusals),
    (&t::LOG_CACHE_MISSES, |s| s.cache_misses),
    (&t::LOG_SEGMENTS, |s| s.segments),
    (&t::LOG_SEGMENT_BYTES, |s| s.segment_bytes),
    (&t::LOG_LIVE, |s| s.live_bytes),
    (&t::LOG_COMPACTED, |s| s.compacted_segments),
    (&t::LOG_RECLAIMED, |s| s.reclaimed_bytes),
    (&t::LOG_COMPACTION_READ, |s| s.compaction_read_bytes),
    (&t::LOG_COMPACTION_WRITTEN, |s| s.compaction_written_bytes),
    (&t::LOG_PACKED, |s| s.packed_bytes),
    (&t::LOG_PACKED_INTO, |s| s.packed_into_bytes),
    (&t::LOG_CHECKPOINTS, |s| s.checkpoints),
    (&t::LOG_TORN_FRAMES, |s| s.torn_frames),
    (&t::LOG_TORN_BYTES, |s| s.torn_bytes),
    (&t::LOG_UNUSABLE, |s| s.unusable_files),
    (&t::LOG_DAMAGED, |s| s.damaged),
    (&t::LOG_READ_ERRORS, |s| s.read_errors),
    (&t::LOG_STATES_REFUSED, |s| s.states_refused),
    (&t::LOG_FULL_REFUSALS, |s| s.full_refusals),
    (&t::LOG_SPACE, |s| s.space),
    (&t::LOG_FAILED, |s| s.failed),
];

/// Requests to the buckets of logs.
fn of_stores(page: &mut Vec<Family>, server: &Server) {
    let buckets = server.logs.buckets();
    let stores: Vec<_> =
        buckets.iter().map(|(log, bucket)| (log.as_str(), bucket.counters().snapshot())).collect();
    let requests = stores.iter().flat_map(|(log, stats)| {
        RequestKind::ALL.iter().map(|kind| (vec![*log, kind.name()], stats.of(*kind)))
    });
    put_all(page, &t::STORE_REQUESTS, requests);
    put_all(page, &t::STORE_RETRIES, stores.iter().map(|(log, s)| (vec![*log], s.retries)));
    put_all(page, &t::STORE_PUT, stores.iter().map(|(log, s)| (vec![*log], s.put_bytes)));
    put_all(page, &t::STORE_GET, stores.iter().map(|(log, s)| (vec![*log], s.get_bytes)));
}

/// Caches of buckets.
fn of_caches(page: &mut Vec<Family>, server: &Server) {
    let places = server.logs.locations();
    let caches: Vec<_> =
        places.iter().filter_map(|place| Some((place.name.as_str(), place.cache()?))).collect();
    let bytes = caches.iter().flat_map(|(log, cache)| {
        [(vec![*log, "memory"], cache.bytes), (vec![*log, "disk"], cache.disk_bytes)]
    });
    put_all(page, &t::STORE_CACHE_BYTES, bytes);
    let hits = caches.iter().flat_map(|(log, cache)| {
        [(vec![*log, "memory"], cache.hits), (vec![*log, "disk"], cache.disk_hits)]
    });
    put_all(page, &t::STORE_CACHE_HITS, hits);
    let misses = caches
        .iter()
        .map(|(log, cache)| (vec![*log], cache.misses.saturating_sub(cache.disk_hits)));
    put_all(page, &t::STORE_CACHE_MISSES, misses);
}

type OfTier = fn(&TierStatus) -> u64;

/// Metrics of a tier that are one number each.
const OF_TIER: &[(&Metric, OfTier)] = &[
    (&t::TIER_SEGMENTS, |s| s.moved_segments),
    (&t::TIER_BYTES, |s| s.moved_bytes),
    (&t::TIER_LOCAL, |s| s.local_bytes),
    (&t::TIER_WAITING, |s| s.waiting_segments),
    (&t::TIER_MOVED, |s| s.moves),
    (&t::TIER_MOVED_BYTES, |s| s.moves_bytes),
    (&t::TIER_FAILURES, |s| s.failures),
    (&t::TIER_FAILING, |s| u64::from(s.trouble.is_some())),
];

fn of_tiers(page: &mut Vec<Family>, server: &Server) {
    let places = server.logs.locations();
    let tiers: Vec<_> =
        places.iter().filter_map(|place| Some((place.name.as_str(), place.tier()?))).collect();
    for (metric, value) in OF_TIER {
        put_all(page, metric, tiers.iter().map(|(log, tier)| (vec![*log], value(tier))));
    }
}

/// Counts files: that may take long on a medium that fails.
async fn of_set_aside(page: &mut Vec<Family>, server: &Server) {
    let dirs: Vec<_> = server.logs.locations().iter().filter_map(|p| p.set_aside()).collect();
    let count = |dir: &std::path::Path| match std::fs::read_dir(dir) {
        Ok(files) => Some(files.count() as u64),
        Err(error) => (error.kind() == std::io::ErrorKind::NotFound).then_some(0),
    };
    let counting = tokio::task::spawn_blocking(move || {
        let counted = dirs.into_iter().filter_map(|(log, dir)| Some((log, count(&dir)?)));
        counted.collect::<Vec<_>>()
    });
    // Without a number where there is none.
    let counted = counting.await.unwrap_or_default();
    put_all(page, &t::LOG_ASIDE, counted.iter().map(|(log, count)| (vec![log.as_str()], *count)));
}

fn of_logs(page: &mut Vec<Family>, logs: &[JsLog]) {
    for (metric, value) in OF_LOG {
        put_all(page, metric, logs.iter().map(|log| (vec![log.name.as_str()], value(&log.stats))));
    }
    fn caches(log: &JsLog, tail: u64, block: u64) -> [(Vec<&str>, u64); 2] {
        let name = log.name.as_str();
        [(vec![name, "tail"], tail), (vec![name, "block"], block)]
    }
    let hits = logs.iter().flat_map(|l| caches(l, l.stats.tail_hits, l.stats.block_hits));
    put_all(page, &t::LOG_CACHE_HITS, hits);
    let bytes = logs.iter().flat_map(|l| caches(l, l.stats.tail_bytes, l.stats.block_bytes));
    put_all(page, &t::LOG_CACHE_BYTES, bytes);
    let latency = |metric, of: fn(&StatsSnapshot) -> nuthatch_log::stats::LatencySnapshot| {
        let sample = |log: &JsLog| Sample {
            labels: vec![log.name.clone()],
            value: Number::Latency(Box::new(of(&log.stats))),
        };
        Family { metric, samples: logs.iter().map(sample).collect() }
    };
    page.push(latency(&t::LOG_SYNC_LATENCY, |s| s.sync_latency));
    page.push(latency(&t::LOG_COMMIT_LATENCY, |s| s.commit_latency));
    page.push(latency(&t::LOG_ACK_LATENCY, |s| s.ack_latency));
}
