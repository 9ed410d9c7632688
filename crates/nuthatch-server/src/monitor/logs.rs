//! Monitoring of the logs below the streams: `logs` of `/jsz`, which `nuthatch log report` shows.

use crate::jetstream_port::JsLog;
use crate::logs::LogLocation;
use crate::options::SyncPolicy;
use crate::server::Server;
use nuthatch_log::stats::LatencySnapshot;
use nuthatch_object::{CacheSnapshot, CountersSnapshot, RequestKind, TierStatus};
use serde_json::{Map, Value, json};

/// One object for each log.
pub(super) fn describe(server: &Server, logs: &[JsLog]) -> Value {
    let places = server.logs.locations();
    let buckets = server.logs.buckets();
    let describe = |log: &JsLog| {
        let place = places.iter().find(|place| place.name == log.name);
        let bucket = buckets.iter().find(|(name, _)| *name == log.name);
        one(log, place, bucket.map(|(_, bucket)| bucket.counters().snapshot()))
    };
    Value::Array(logs.iter().map(describe).collect())
}

fn one(log: &JsLog, place: Option<&LogLocation>, store: Option<CountersSnapshot>) -> Value {
    let stats = &log.stats;
    let mut out = super::varz::object(json!({
        "name": log.name,
        "mode": place.map_or("memory", |place| place.mode),
        "home": place.map_or("memory", |place| place.home.as_str()),
        "durability": durability(place),
        "failed": stats.failed != 0,
        "space_state": stats.space,
        "committed_lsn": stats.committed_lsn,
        "durable_lsn": stats.durable_lsn,
        "segments": stats.segments,
        "segment_bytes": stats.segment_bytes,
        "live_bytes": stats.live_bytes,
        "dead_bytes": stats.segment_bytes.saturating_sub(stats.live_bytes),
        "frames": stats.frames,
        "records": stats.records,
        "frame_bytes": stats.frame_bytes,
        "written_bytes": stats.written_bytes,
        "read_errors": stats.read_errors,
        "commit_us": quantiles(&stats.commit_latency),
        "sync_us": quantiles(&stats.sync_latency),
        "caches": {
            "tail_bytes": stats.tail_bytes,
            "tail_hits": stats.tail_hits,
            "block_bytes": stats.block_bytes,
            "block_hits": stats.block_hits,
            "misses": stats.cache_misses,
        },
    }));
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    set("store", store.map(|store| cost(&store)));
    set("store_cache", place.and_then(LogLocation::cache).map(cache));
    set("tier", place.and_then(LogLocation::tier).map(tier));
    Value::Object(out)
}

/// Below which so many of all durations since the start were, in microseconds: powers of two.
fn quantiles(latency: &LatencySnapshot) -> Value {
    let (count, buckets) = (latency.count(), &latency.buckets);
    let below = |percent: u64| {
        let wanted = (count * percent).div_ceil(100);
        let mut seen = 0;
        let reaches = |bucket: &u64| {
            seen += *bucket;
            seen >= wanted
        };
        buckets.iter().position(reaches).map(|place| 1_u64 << place)
    };
    match count {
        0 => Value::Null,
        _ => json!({ "count": count, "p50": below(50), "p99": below(99) }),
    }
}

fn durability(place: Option<&LogLocation>) -> String {
    match place {
        None => "none: gone with the process".to_owned(),
        Some(place) if place.mode == "object" => "stored before every acknowledgement".to_owned(),
        Some(place) => match place.sync {
            SyncPolicy::Always => "fsync before every acknowledgement".to_owned(),
            SyncPolicy::Every(interval) => format!("fsync every {interval:?}"),
            SyncPolicy::Never => "no fsync".to_owned(),
        },
    }
}

fn cost(store: &CountersSnapshot) -> Value {
    let kinds = RequestKind::ALL.iter();
    let requests: Map<String, Value> =
        kinds.map(|kind| (kind.name().to_owned(), json!(store.of(*kind)))).collect();
    json!({
        "requests": requests,
        "retries": store.retries,
        "put_bytes": store.put_bytes,
        "get_bytes": store.get_bytes,
    })
}

fn cache(cache: CacheSnapshot) -> Value {
    json!({
        "bytes": cache.bytes,
        "max_bytes": cache.capacity_bytes,
        "hits": cache.hits,
        "misses": cache.misses,
        "disk_hits": cache.disk_hits,
        "disk_bytes": cache.disk_bytes,
        "disk_max_bytes": cache.disk_capacity_bytes,
    })
}

fn tier(tier: TierStatus) -> Value {
    json!({
        "store": tier.place,
        "segments": tier.moved_segments,
        "bytes": tier.moved_bytes,
        "local_bytes": tier.local_bytes,
        "waiting_segments": tier.waiting_segments,
        "moved_segments": tier.moves,
        "moved_bytes": tier.moves_bytes,
        "failures": tier.failures,
        "trouble": tier.trouble,
    })
}
