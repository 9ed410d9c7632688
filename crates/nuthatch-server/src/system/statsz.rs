//! `STATSZ`: the numbers that tools watch, asked for or published every ten seconds.

use crate::conn::Connection;
use crate::monitor::{Query, document};
use crate::server::Server;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `{"server":…,"statsz":…}`
pub(super) async fn message(server: &Arc<Server>) -> Value {
    let varz = document(server, "/varz", &Query::default(), |varz| varz).await.unwrap_or_default();
    let data =
        |messages: &str, bytes: &str| json!({ "msgs": varz[messages], "bytes": varz[bytes] });
    let mut stats = json!({
        "start": varz["start"],
        "mem": varz["mem"],
        "cores": varz["cores"],
        "cpu": varz["cpu"],
        "connections": varz["connections"],
        "total_connections": varz["total_connections"],
        "active_accounts": active_accounts(server),
        "subscriptions": varz["subscriptions"],
        "sent": data("out_msgs", "out_bytes"),
        "sent_to_clients": data("out_client_msgs", "out_client_bytes"),
        "received": data("in_msgs", "in_bytes"),
        "received_from_clients": data("in_client_msgs", "in_client_bytes"),
        "slow_consumers": varz["slow_consumers"],
        "stale_connections": varz["stale_connections"],
        "stalled_clients": varz["stalled_clients"],
        "active_servers": 1 + server.nodes.connected(),
        "gomaxprocs": varz["gomaxprocs"],
    });
    if varz["slow_consumers"] != 0 {
        stats["slow_consumer_stats"] = varz["slow_consumer_stats"].clone();
    }
    let routes: Vec<Value> = server.nodes.connections.open().iter().filter_map(route).collect();
    if !routes.is_empty() {
        stats["routes"] = Value::Array(routes);
    }
    if server.options().jetstream.enabled {
        stats["jetstream"] = varz["jetstream"].clone();
    }
    json!({ "server": server.description(), "statsz": stats })
}

/// A connection to another node; `None`: it has not joined yet.
fn route(conn: &Arc<Connection>) -> Option<Value> {
    let (received, sent) = (conn.received.get(), conn.outbox().totals());
    Some(json!({
        "rid": conn.id,
        "name": conn.link()?.remote_name,
        "sent": { "msgs": sent.messages, "bytes": sent.bytes },
        "received": { "msgs": received.messages, "bytes": received.bytes },
        "pending": conn.outbox().pending(),
    }))
}

/// Accounts with connections.
fn active_accounts(server: &Server) -> usize {
    let all = server.accounts.all();
    all.iter().filter(|account| account.connections.load(Ordering::Relaxed) > 0).count()
}
