//! `/jsz`: JetStream, in the shape that KEDA and prometheus-nats-exporter read.

use super::large::{ASSETS_MAX, DOCUMENT_BYTES_MAX};
use super::meta::{self, Clusters};
use super::query::Query;
use super::varz::object;
use crate::jetstream_port::{JsAccount, JsStream, JsTotals, JszQuery};
use crate::options::{Options, SyncPolicy};
use crate::server::Server;
use crate::version::API_LEVEL;
use crate::wall_time::now;
use serde_json::{Map, Value, json};

/// Accounts listed unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 1024;

pub(super) async fn jsz(server: &Server, query: &Query) -> Result<Value, String> {
    let options = server.options();
    let account = query.account().map(ToOwned::to_owned);
    let consumers = query.flag("consumers")?;
    let streams = query.flag("streams")? || consumers;
    let accounts = query.flag("accounts")? || streams || account.is_some();
    let (offset, limit) = query.page(DEFAULT_LIMIT)?;
    let config = query.flag("config")?;
    let (assets_max, bytes_max) = (ASSETS_MAX, DOCUMENT_BYTES_MAX);
    let wanted =
        JszQuery { account, streams, consumers, config, offset, limit, assets_max, bytes_max };
    if query.flag("leader-only")? && meta::is_follower(server) {
        return Err("this server is not the leader of the cluster's JetStream".to_owned());
    }
    // Without effect: a server shows what it leads, and consumers of its own are all public.
    for flag in ["stream-leader-only", "direct-consumers"] {
        query.flag(flag)?;
    }
    let raft = query.flag("raft")?;
    let mut out = object(json!({ "server_id": server.id, "now": now() }));
    if !options.jetstream.enabled {
        out.insert("disabled".to_owned(), json!(true));
        out.append(&mut object(js_stats(&JsTotals::default())));
        for count in ["streams", "consumers", "messages", "bytes", "total"] {
            out.insert(count.to_owned(), json!(0));
        }
        return Ok(Value::Object(out));
    }
    let view = server.jetstream().view();
    let totals = view.totals().await;
    out.append(&mut object(js_stats(&totals)));
    out.append(&mut object(json!({
        "config": js_config(&options),
        "limits": js_limits(&options),
        "streams": totals.streams,
        "consumers": totals.consumers,
        "messages": totals.messages,
        "bytes": totals.memory_bytes + totals.store_bytes,
        "total": totals.accounts,
    })));
    if let Some(meta) = meta::meta(server) {
        out.insert("meta_cluster".to_owned(), meta);
    }
    if raft {
        out.insert("streams_leader".to_owned(), json!(totals.streams));
        out.insert("consumers_leader".to_owned(), json!(totals.consumers));
    }
    if query.flag("logs")? {
        out.insert("logs".to_owned(), super::logs::describe(server, &view.logs()));
    }
    if accounts {
        let (found, is_cut) = view.accounts(wanted.clone()).await;
        let clusters = Clusters::of(server, raft);
        let details: Vec<_> =
            found.iter().map(|found| show_account(&clusters, found, &wanted)).collect();
        if is_cut || assets_of(&found) >= ASSETS_MAX {
            out.insert("account_details_truncated".to_owned(), json!(true));
        }
        if !details.is_empty() {
            out.insert("account_details".to_owned(), Value::Array(details));
        }
    }
    Ok(Value::Object(out))
}

/// Streams and consumers that were gathered.
fn assets_of(accounts: &[JsAccount]) -> usize {
    let streams = accounts.iter().flat_map(|account| &account.streams);
    streams.map(|stream| 1 + stream.consumers.len()).sum()
}

/// `config` of `/jsz` and of `jetstream` in `/varz`.
pub(super) fn js_config(options: &Options) -> Value {
    let jetstream = &options.jetstream;
    let bytes = |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(-1));
    let mut out = object(json!({
        "max_memory": bytes(jetstream.max_memory_bytes),
        "max_storage": bytes(jetstream.max_store_bytes),
        "store_dir": jetstream.store_dir.join(crate::private_files::OUR_DIRECTORY),
        "strict": jetstream.strict,
    }));
    match jetstream.sync {
        SyncPolicy::Always => {
            out.insert("sync_interval".to_owned(), json!(0));
            out.insert("sync_always".to_owned(), json!(true))
        }
        SyncPolicy::Every(interval) => {
            out.insert("sync_interval".to_owned(), json!(interval.as_nanos() as u64))
        }
        SyncPolicy::Never => out.insert("sync_interval".to_owned(), json!(-1)),
    };
    if let Some(domain) = &jetstream.domain {
        out.insert("domain".to_owned(), json!(domain));
    }
    Value::Object(out)
}

/// `limits` of `/jsz` and of `jetstream` in `/varz`.
pub(super) fn js_limits(options: &Options) -> Value {
    let limits = &options.jetstream.limits;
    let mut out = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    set("max_request_batch", limits.max_request_batch.map(Value::from));
    set("max_ack_pending", limits.max_ack_pending.map(Value::from));
    let window = limits.duplicate_window.map(|window| window.as_nanos() as u64);
    set("max_duplicate_window", window.map(Value::from));
    set("default_max_consumers", limits.default_max_consumers.map(Value::from));
    let batch = &limits.batch;
    set("max_batch_inflight_per_stream", batch.per_stream.map(Value::from));
    set("max_batch_inflight_total", batch.total.map(Value::from));
    set("max_batch_size", batch.messages.map(Value::from));
    let timeout = batch.timeout.map(|timeout| timeout.as_nanos() as u64);
    set("max_batch_timeout", timeout.map(Value::from));
    Value::Object(out)
}

/// Totals in the shape of nats-server's `JetStreamStats`.
pub(super) fn js_stats(totals: &JsTotals) -> Value {
    json!({
        "memory": totals.memory_bytes,
        "storage": totals.store_bytes,
        "reserved_memory": totals.reserved_memory_bytes,
        "reserved_storage": totals.reserved_store_bytes,
        "accounts": totals.accounts,
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": totals.api_total,
            "errors": totals.api_errors,
        },
    })
}

fn show_account(clusters: &Clusters, account: &JsAccount, wanted: &JszQuery) -> Value {
    let mut out = object(json!({ "name": account.name, "id": account.name }));
    out.append(&mut object(js_stats(&account.totals)));
    if wanted.streams {
        let streams: Vec<_> =
            account.streams.iter().map(|stream| show_stream(clusters, stream, wanted)).collect();
        out.insert("stream_detail".to_owned(), Value::Array(streams));
    }
    Value::Object(out)
}

fn show_stream(clusters: &Clusters, stream: &JsStream, wanted: &JszQuery) -> Value {
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    set("name", json!(stream.config.name));
    set("created", json!(stream.created));
    // KEDA asks the leader for the consumers of a stream.
    set("cluster", clusters.show(&stream.log, stream.config.num_replicas));
    set("state", json!(stream.state));
    set("log", json!(stream.log));
    if let Some(moving) = &stream.moving {
        set("move", json!(moving));
    }
    if let Some(group) = clusters.group_of(stream) {
        set("stream_raft_group", json!(group));
    }
    if wanted.config {
        set("config", json!(stream.config));
    }
    if wanted.consumers {
        let consumers: Vec<_> = stream
            .consumers
            .iter()
            .map(|consumer| {
                let mut shown = object(json!(consumer));
                let replicas = consumer.config.replicas_in(&stream.config);
                shown.insert("cluster".to_owned(), clusters.show(&stream.log, replicas));
                if !wanted.config {
                    shown.remove("config");
                }
                Value::Object(shown)
            })
            .collect();
        set("consumer_detail", Value::Array(consumers));
    }
    Value::Object(out)
}
