//! `/varz`: the server as a whole.

use super::jsz::{js_config, js_limits, js_stats};
use super::{meta, short_duration, usage};
use crate::options::{Options, RemoteOptions};
use crate::server::Server;
use crate::tls::ocsp::CacheStats;
use crate::version::NATS_VERSION;
use crate::wall_time::{now, time_json};
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) async fn varz(server: &Server) -> Value {
    let options = server.options();
    let mut out = identity(server, &options);
    limits(&mut out, server, &options);
    activity(&mut out, server);
    let mut jetstream = if options.jetstream.enabled {
        json!({
            "config": js_config(&options),
            "stats": js_stats(&server.jetstream().view().totals().await),
            "limits": js_limits(&options),
        })
    } else {
        json!({})
    };
    if let Some(meta) = meta::meta(server).filter(|_| options.jetstream.enabled) {
        jetstream["meta"] = meta;
    }
    out.insert("jetstream".to_owned(), jetstream);
    Value::Object(out)
}

/// The cluster that this server is a node of, as upstream tells its own; empty without one.
fn cluster(server: &Server, options: &Options) -> Value {
    let Some(settings) = &options.cluster else { return json!({}) };
    let others = match (server.cluster.get(), server.core_node.get()) {
        (Some(cluster), _) => cluster.others(),
        (None, Some(core)) => core.known(),
        (None, None) => Vec::new(),
    };
    let urls: Vec<String> = others.iter().map(ToString::to_string).collect();
    let mut out = json!({
        "addr": settings.listen.ip().to_string(),
        "cluster_port": settings.listen.port(),
        "urls": urls,
    });
    // Before the cluster is found its name is not known, unless it is configured.
    if let Some(name) = server.nodes.cluster().or(settings.cluster.as_deref()) {
        out["name"] = json!(name);
    }
    out
}

fn identity(server: &Server, options: &Options) -> Map<String, Value> {
    let mut out = object(json!({
        "server_id": server.id,
        "server_name": server.name,
        "version": NATS_VERSION,
        "proto": 1,
        "go": concat!("nuthatch-", env!("CARGO_PKG_VERSION")),
        "host": options.host,
        "port": server.client_port.load(Ordering::Relaxed),
        "start": time_json(server.since),
        "now": now(),
        "uptime": short_duration(Duration::from_millis(server.uptime_ms())),
        "config_load_time": time_json(**server.config_loaded.load()),
        "config_digest": "",
        "system_account": options.system_account,
        "cluster": cluster(server, options),
        "gateway": {},
        "leaf": leaf(server, options),
        "mqtt": {},
        "websocket": websocket(server, options),
    }));
    let mut set = |name: &str, value: Value, is_set: bool| {
        if is_set {
            out.insert(name.to_owned(), value);
        }
    };
    let auth = server.auth().is_configured();
    set("auth_required", json!(auth), auth);
    set("tls_required", json!(true), options.tls.is_some() && !options.allow_non_tls);
    let verify = options.tls.as_ref().is_some_and(|tls| tls.verify);
    set("tls_verify", json!(verify), verify);
    let checks = options.tls.as_ref().is_some_and(|tls| tls.ocsp_peer.is_some());
    set("tls_ocsp_peer_verify", json!(true), checks);
    if let Some(cache) = server.tls.peers.cache.load_full() {
        set("ocsp_peer_cache", ocsp_cache(&cache.stats()), true);
    }
    if let Some(mode) = &options.operator {
        let tokens: Vec<&str> = mode.operators.iter().map(|o| o.jwt.as_str()).collect();
        set("trusted_operators_jwt", json!(tokens), !tokens.is_empty());
    }
    let trusted: Vec<Value> =
        options.proxies.iter().map(|proxy| json!({ "key": proxy.public })).collect();
    set("proxies", json!({ "trusted": trusted }), !trusted.is_empty());
    set("tags", json!(options.server_tags), !options.server_tags.is_empty());
    set("metadata", json!(options.server_metadata), !options.server_metadata.is_empty());
    out
}

/// The cache of OCSP responses; what is 0 is left out.
fn ocsp_cache(stats: &CacheStats) -> Value {
    let CacheStats { hits, misses, goods, revokes, unknowns } = *stats;
    let mut out = json!({ "cache_type": "local" });
    for (name, count) in [
        ("cache_hits", hits),
        ("cache_misses", misses),
        ("cached_responses", goods + revokes + unknowns),
        ("cached_revoked_responses", revokes),
        ("cached_good_responses", goods),
        ("cached_unknown_responses", unknowns),
    ] {
        if count > 0 {
            out[name] = json!(count);
        }
    }
    out
}

/// The websocket listener as it is configured; empty without one.
fn websocket(server: &Server, options: &Options) -> Value {
    let Some(ws) = &options.websocket else { return json!({}) };
    let mut out = object(json!({
        "host": ws.host,
        "port": server.websocket_port.load(Ordering::Relaxed),
        "handshake_timeout": ws.handshake_timeout.as_nanos() as u64,
    }));
    let mut set = |name: &str, value: Value, is_set: bool| {
        if is_set {
            out.insert(name.to_owned(), value);
        }
    };
    set("advertise", json!(ws.advertise), ws.advertise.is_some());
    set("no_auth_user", json!(ws.no_auth_user), ws.no_auth_user.is_some());
    set("no_tls", json!(true), ws.tls.is_none());
    set("same_origin", json!(true), ws.same_origin);
    let origins: Vec<_> = ws.allowed_origins.iter().map(ToString::to_string).collect();
    set("allowed_origins", json!(origins), !origins.is_empty());
    set("compression", json!(true), ws.compression);
    if let Some(tls) = &ws.tls {
        set("tls_map", json!(true), tls.map_users);
        set("tls_ocsp_peer_verify", json!(true), tls.ocsp_peer.is_some());
        set("tls_pinned_certs", json!(tls.pinned_keys), !tls.pinned_keys.is_empty());
    }
    Value::Object(out)
}

/// Leaf nodes as they are configured; empty without.
fn leaf(server: &Server, options: &Options) -> Value {
    let Some(own) = &options.leafnodes else { return json!({}) };
    let mut out = Map::new();
    if own.port.is_some() {
        out.append(&mut object(json!({
            "host": own.host,
            "port": server.leafs.port.load(Ordering::Relaxed),
            "auth_timeout": own.auth_timeout().as_secs_f64(),
        })));
    }
    if let Some(tls) = &own.tls {
        out.append(&mut object(json!({
            "tls_required": true,
            "tls_verify": tls.verify,
            "tls_timeout": tls.timeout.as_secs_f64(),
        })));
        if tls.ocsp_peer.is_some() {
            out.insert("tls_ocsp_peer_verify".to_owned(), json!(true));
        }
    }
    let remotes: Vec<Value> = own.remotes.iter().map(remote).collect();
    if !remotes.is_empty() {
        out.insert("remotes".to_owned(), json!(remotes));
    }
    Value::Object(out)
}

fn remote(remote: &RemoteOptions) -> Value {
    let urls: Vec<String> = remote.urls.iter().map(ToString::to_string).collect();
    let mut out = json!({ "local_account": remote.account, "urls": urls });
    if !remote.deny_exports.is_empty() || !remote.deny_imports.is_empty() {
        out["deny"] = json!({ "exports": remote.deny_exports, "imports": remote.deny_imports });
    }
    if remote.tls.as_ref().is_some_and(|tls| tls.ocsp_peer.is_some()) {
        out["tls_ocsp_peer_verify"] = json!(true);
    }
    out
}

fn limits(out: &mut Map<String, Value>, server: &Server, options: &Options) {
    let (limits, monitor) = (&options.limits, &options.monitor);
    let tls_timeout = options.tls.as_ref().map_or(2.0, |tls| tls.timeout.as_secs_f64());
    out.append(&mut object(json!({
        "max_connections": limits.max_connections,
        "max_subscriptions": limits.max_subscriptions.unwrap_or(0),
        "ping_interval": limits.ping_interval.as_nanos() as u64,
        "ping_max": limits.ping_max,
        "http_host": monitor.host,
        "http_port": server.monitor_port.load(Ordering::Relaxed),
        "http_base_path": monitor.base_path.trim_end_matches('/'),
        "https_port": server.monitor_https_port.load(Ordering::Relaxed),
        "auth_timeout": options.auth.timeout.as_secs_f64(),
        "max_control_line": limits.max_control_line_bytes,
        "max_payload": limits.max_payload_bytes,
        "max_pending": limits.max_pending_bytes,
        "tls_timeout": tls_timeout,
        "write_deadline": limits.write_deadline.as_nanos() as u64,
    })));
}

fn activity(out: &mut Map<String, Value>, server: &Server) {
    let (mem, cpu) = usage::usage();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let clients = server.connections.traffic();
    let leafs = server.leafs.connections.traffic();
    let remotes = server.options().leafnodes.as_ref().map_or(0, |leafs| leafs.remotes.len());
    let leafs_joined =
        server.leafs.connections.open().iter().filter(|conn| conn.link().is_some()).count();
    let subscriptions: usize =
        server.accounts.all().iter().map(|account| account.interest.count()).sum();
    let slow = server.slow_consumers.pending_bytes.load(Ordering::Relaxed)
        + server.slow_consumers.write_deadline.load(Ordering::Relaxed);
    let slow_leafs = server.leafs.slow_consumers.load(Ordering::Relaxed);
    let slow_nodes = server.nodes.slow_consumers.load(Ordering::Relaxed);
    let stale = server.stale_connections.load(Ordering::Relaxed);
    let stale_leafs = server.leafs.stale.load(Ordering::Relaxed);
    let stale_nodes = server.nodes.stale.load(Ordering::Relaxed);
    out.append(&mut object(json!({
        "mem": mem,
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": cpu,
        "connections": server.connections.len(),
        "total_connections": server.connections.total(),
        "routes": server.nodes.connections.len(),
        "remotes": remotes,
        "leafnodes": leafs_joined,
        "in_msgs": clients.received.messages + leafs.received.messages,
        "in_bytes": clients.received.bytes + leafs.received.bytes,
        "in_client_msgs": clients.received.messages,
        "in_client_bytes": clients.received.bytes,
        "out_msgs": clients.sent.messages + leafs.sent.messages,
        "out_bytes": clients.sent.bytes + leafs.sent.bytes,
        "out_client_msgs": clients.sent.messages,
        "out_client_bytes": clients.sent.bytes,
        "slow_consumers": slow,
        "slow_consumer_stats": {
            "clients": slow.saturating_sub(slow_leafs + slow_nodes),
            "routes": slow_nodes,
            "gateways": 0,
            "leafs": slow_leafs,
        },
        "stale_connections": stale + stale_leafs + stale_nodes,
        "stale_connection_stats": {
            "clients": stale,
            "routes": stale_nodes,
            "gateways": 0,
            "leafs": stale_leafs,
        },
        "refused_publishes": server.refused_publishes.load(Ordering::Relaxed),
        "stalled_clients": server.stalled_clients.load(Ordering::Relaxed),
        "subscriptions": subscriptions,
        "http_req_stats": *server.http_requests.lock(),
    })));
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
