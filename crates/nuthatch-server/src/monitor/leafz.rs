//! `/leafz`: connections to other servers.

use super::connz::go_duration;
use super::large::{Room, SUBSCRIPTIONS_MAX};
use super::query::Query;
use crate::conn::Connection;
use crate::link::Link;
use crate::server::Server;
use crate::wall_time::now;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Those that have joined an account. Parameters: `acc` keeps to one account, `subs` lists what the
/// other sides listen on.
pub(super) fn leafz(server: &Server, query: &Query) -> Result<Value, String> {
    let subs = query.flag("subs")? || query.flag("subscriptions")?;
    let account = query.account().or(query.text("account")).filter(|name| !name.is_empty());
    let open = server.leafs.connections.open();
    let joined = open.iter().filter_map(|conn| Some((conn, conn.link()?)));
    let mut room = Room::new(SUBSCRIPTIONS_MAX);
    let shown: Vec<Value> = joined
        .filter(|(conn, _)| account.is_none_or(|name| conn.session().account.name == name))
        .map(|(conn, link)| leaf(conn, link, subs, &mut room))
        .collect();
    let mut out = json!({
        "server_id": server.id,
        "now": now(),
        "leafnodes": shown.len(),
    });
    out["leafs"] = Value::Array(shown);
    Ok(out)
}

fn leaf(conn: &Connection, link: &Link, subs: bool, room: &mut Room) -> Value {
    let (received, sent) = (conn.received.get(), conn.outbox().totals());
    let mut leaf = json!({
        "id": conn.id,
        "name": link.remote_name,
        "is_spoke": link.is_spoke,
        "account": conn.session().account.name,
        "ip": conn.remote.get().ip().to_string(),
        "port": conn.remote.get().port(),
        "rtt": go_duration(conn.rtt_ns.load(Ordering::Relaxed)),
        "in_msgs": received.messages,
        "out_msgs": sent.messages,
        "in_bytes": received.bytes,
        "out_bytes": sent.bytes,
        "subscriptions": conn.subscription_count(),
        "compression": link.compression,
    });
    if let Some(key) = &conn.session().proxy {
        leaf["proxy"] = json!({ "key": key });
    }
    if link.isolated {
        leaf["is_isolated"] = json!(true);
    }
    if subs {
        let mut list: Vec<String> = conn
            .some_subscriptions(room.rows)
            .iter()
            .map(|sub| String::from_utf8_lossy(&sub.subject).into_owned())
            .take_while(|subject| room.take_bytes(subject.len()))
            .collect();
        list.sort_unstable();
        if list.len() < conn.subscription_count() {
            leaf["subscriptions_truncated"] = json!(true);
        }
        room.rows -= list.len();
        leaf["subscriptions_list"] = list.into();
    }
    leaf
}
