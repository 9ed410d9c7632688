//! `/routez`: connections to other nodes of the cluster.

use super::connz::go_duration;
use super::query::Query;
use crate::conn::Connection;
use crate::link::Link;
use crate::server::Server;
use crate::wall_time::{now, time_json};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Those that have joined an account. The parameter `acc` keeps to one account.
pub(super) fn routez(server: &Server, query: &Query) -> Value {
    let account = query.account();
    let open = server.nodes.connections.open();
    let joined = open.iter().filter_map(|conn| Some((conn, conn.link()?)));
    let shown: Vec<Value> = joined
        .filter(|(conn, _)| account.is_none_or(|name| conn.session().account.name == name))
        .map(|(conn, link)| route(server, conn, link))
        .collect();
    let mut out = json!({
        "server_id": server.id,
        "server_name": server.name,
        "now": now(),
        "num_routes": shown.len(),
    });
    out["routes"] = Value::Array(shown);
    out
}

fn route(server: &Server, conn: &Connection, link: &Link) -> Value {
    let (received, sent) = (conn.received.get(), conn.outbox().totals());
    let uptime = SystemTime::now().duration_since(conn.since).unwrap_or_default();
    let active_ms = conn.last_active_ms.load(Ordering::Relaxed);
    let idle = Duration::from_millis(server.uptime_ms().saturating_sub(active_ms));
    let last_active = (server.since + Duration::from_millis(active_ms)).max(conn.since);
    json!({
        "start": time_json(conn.since),
        "last_activity": time_json(last_active),
        "rid": conn.id,
        "remote_name": link.remote_name,
        "account": conn.session().account.name,
        "did_solicit": link.solicited,
        "is_configured": true,
        "ip": conn.remote.get().ip().to_string(),
        "port": conn.remote.get().port(),
        "rtt": go_duration(conn.rtt_ns.load(Ordering::Relaxed)),
        "uptime": go_duration(u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX)),
        "idle": go_duration(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX)),
        "pending_size": conn.outbox().pending(),
        "in_msgs": received.messages,
        "out_msgs": sent.messages,
        "in_bytes": received.bytes,
        "out_bytes": sent.bytes,
        "subscriptions": conn.subscription_count(),
        "compression": "off",
    })
}
