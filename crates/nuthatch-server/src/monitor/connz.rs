//! `/connz`: the connections.

use super::large::{Room, SUBSCRIPTIONS_MAX};
use super::query::Query;
use super::short_duration;
use super::subsz::sub_detail;
use super::varz::object;
use crate::conn::{Connection, Session};
use crate::connections::SubscriptionList;
use crate::options::GLOBAL_ACCOUNT;
use crate::server::Server;
use crate::tls::peer::PeerCertificate;
use crate::wall_time::{now, time_json};
use nuthatch_protocol::subject::overlap;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Connections listed unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 1024;

/// A connection, open or closed.
struct Row {
    conn: Arc<Connection>,
    session: Arc<Session>,
    stopped: Option<SystemTime>,
    subscriptions: usize,
    /// Of a closed one: its subscriptions, as far as they are remembered.
    listed: SubscriptionList,
}

impl Row {
    fn last_activity(&self, server: &Server) -> SystemTime {
        let ms = self.conn.last_active_ms.load(Ordering::Relaxed);
        (server.since + Duration::from_millis(ms)).max(self.conn.since)
    }

    fn end(&self) -> SystemTime {
        self.stopped.unwrap_or_else(SystemTime::now)
    }

    fn uptime(&self) -> Duration {
        self.end().duration_since(self.conn.since).unwrap_or_default()
    }
}

pub(super) fn connz(server: &Server, query: &Query) -> Result<Value, String> {
    let mut rows = gather(server, query)?;
    let by = query.text("sort").unwrap_or("cid");
    if matches!(by, "stop" | "reason") && state(query)? != (State { open: false, closed: true }) {
        return Err(format!("sort by {by} only valid on closed connections"));
    }
    sort(server, &mut rows, by)?;
    let total = rows.len();
    let (offset, limit) = query.page(DEFAULT_LIMIT)?;
    let limit = if query.number("cid")?.is_some_and(|cid| cid > 0) { 1 } else { limit };
    let auth = query.flag("auth")?;
    let subs = match query.text("subs") {
        Some(word) if word.eq_ignore_ascii_case("detail") => Subs::Detail,
        _ if query.flag("subs")? => Subs::Names,
        _ => Subs::No,
    };
    let mut room = Room::new(SUBSCRIPTIONS_MAX);
    let mut shown: Vec<Value> = Vec::new();
    for row in rows.iter().skip(offset).take(limit) {
        let row = Value::Object(show(server, row, auth, subs, &mut room));
        // What does not fit is on the next page, unless it is all that there is.
        if !room.take(&row) && !shown.is_empty() {
            break;
        }
        shown.push(row);
    }
    let mut out = object(json!({
        "server_id": server.id,
        "now": now(),
        "num_connections": shown.len(),
        "total": total,
        "offset": offset,
        "limit": limit,
    }));
    out.insert("connections".to_owned(), Value::Array(shown));
    Ok(Value::Object(out))
}

#[derive(PartialEq, Eq)]
struct State {
    open: bool,
    closed: bool,
}

fn state(query: &Query) -> Result<State, String> {
    let text = query.text("state").unwrap_or("open");
    match text.to_ascii_lowercase().as_str() {
        "open" => Ok(State { open: true, closed: false }),
        "closed" => Ok(State { open: false, closed: true }),
        "any" | "all" => Ok(State { open: true, closed: true }),
        _ => Err(format!("Error decoding state for {text}")),
    }
}

fn gather(server: &Server, query: &Query) -> Result<Vec<Row>, String> {
    let State { open, closed } = state(query)?;
    let mut rows = Vec::new();
    if open {
        rows.extend(server.connections.open().into_iter().map(|conn| Row {
            session: conn.session(),
            subscriptions: conn.subscription_count(),
            stopped: None,
            listed: Arc::default(),
            conn,
        }));
    }
    if closed {
        rows.extend(server.connections.closed().into_iter().map(|closed| Row {
            session: closed.conn.session(),
            subscriptions: closed.subscriptions,
            stopped: Some(closed.stopped),
            listed: closed.listed,
            conn: closed.conn,
        }));
    }
    if let Some(cid) = query.number("cid")?.filter(|&cid| cid > 0) {
        rows.retain(|row| row.conn.id == cid as u64);
    }
    if let Some(user) = query.text("user") {
        rows.retain(|row| row.session.user == user);
    }
    if let Some(account) = query.account() {
        rows.retain(|row| row.session.account.name == account);
    }
    // There are no MQTT clients.
    if query.text("mqtt_client").is_some() {
        rows.clear();
    }
    if let Some(filter) = query.text("filter_subject").filter(|filter| *filter != ">") {
        if query.account().is_none() {
            return Err("filter by subject only valid with account filtering".to_owned());
        }
        let listens = |row: &Row| {
            let subscriptions = match row.stopped {
                None => row.conn.subscriptions().into(),
                Some(_) => row.listed.clone(),
            };
            subscriptions.iter().any(|sub| overlap(&sub.subject, filter.as_bytes()))
        };
        rows.retain(listens);
    }
    Ok(rows)
}

fn sort(server: &Server, rows: &mut [Row], by: &str) -> Result<(), String> {
    match by {
        "cid" => rows.sort_by_key(|row| row.conn.id),
        "start" => rows.sort_by_key(|row| row.conn.since),
        "subs" => rows.sort_by_key(|row| Reverse(row.subscriptions)),
        "pending" => rows.sort_by_key(|row| Reverse(row.conn.outbox().pending())),
        "msgs_to" => rows.sort_by_key(|row| Reverse(row.conn.outbox().totals().messages)),
        "msgs_from" => rows.sort_by_key(|row| Reverse(row.conn.received.get().messages)),
        "bytes_to" => rows.sort_by_key(|row| Reverse(row.conn.outbox().totals().bytes)),
        "bytes_from" => rows.sort_by_key(|row| Reverse(row.conn.received.get().bytes)),
        "last" => rows.sort_by_key(|row| Reverse(row.last_activity(server))),
        "idle" => rows.sort_by_key(|row| row.last_activity(server)),
        "uptime" => rows.sort_by_key(|row| Reverse(row.uptime())),
        "rtt" => rows.sort_by_key(|row| Reverse(row.conn.rtt_ns.load(Ordering::Relaxed))),
        "stop" => rows.sort_by_key(|row| Reverse(row.stopped)),
        "reason" => rows.sort_by_key(|row| row.conn.close_reason().map_or("", |r| r.text())),
        other => return Err(format!("invalid sorting option: {other}")),
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subs {
    No,
    Names,
    Detail,
}

fn show(server: &Server, row: &Row, auth: bool, subs: Subs, room: &mut Room) -> Map<String, Value> {
    let Row { conn, session, .. } = row;
    let (received, sent) = (conn.received.get(), conn.outbox().totals());
    let idle = row.end().duration_since(row.last_activity(server)).unwrap_or_default();
    let mut out = object(json!({
        "cid": conn.id,
        "kind": "Client",
        "type": conn.client_type(),
        "ip": conn.remote.get().ip().to_string(),
        "port": conn.remote.get().port(),
        "start": time_json(conn.since),
        "last_activity": time_json(row.last_activity(server)),
        "uptime": short_duration(row.uptime()),
        "idle": short_duration(idle),
        "pending_bytes": conn.outbox().pending(),
        "in_msgs": received.messages,
        "out_msgs": sent.messages,
        "in_bytes": received.bytes,
        "out_bytes": sent.bytes,
        "subscriptions": row.subscriptions,
    }));
    let mut set = |name: &str, value: Value, is_set: bool| {
        if is_set {
            out.insert(name.to_owned(), value);
        }
    };
    let rtt = conn.rtt_ns.load(Ordering::Relaxed);
    set("rtt", json!(go_duration(rtt)), true);
    let stalls = conn.stalls.load(Ordering::Relaxed);
    set("stalls", json!(stalls), stalls > 0);
    set("name", json!(session.name), !session.name.is_empty());
    set("lang", json!(session.lang), !session.lang.is_empty());
    set("version", json!(session.version), !session.version.is_empty());
    if let Some(tls) = conn.tls.get() {
        set("tls_version", json!(tls.version), true);
        set("tls_cipher_suite", json!(tls.cipher), true);
        set("tls_first", json!(true), tls.first);
        if let Some(peer) = &tls.peer {
            set("tls_peer_certs", json!([peer_certificate(peer)]), auth);
        }
    }
    if let Some(stopped) = row.stopped {
        set("stop", time_json(stopped), true);
        set("reason", json!(conn.close_reason().map_or("", |reason| reason.text())), true);
    }
    if let Some(key) = &session.proxy {
        set("proxy", json!({ "key": key }), true);
    }
    set("authorized_user", json!(session.user), auth && !session.user.is_empty());
    let account = &session.account.name;
    set("account", json!(account), auth && account != GLOBAL_ACCOUNT);
    set("name_tag", json!(session.account_name()), auth);
    if let Some(grant) = session.grant.as_ref().filter(|_| auth) {
        // Whoever has a bearer's token is that user.
        set("jwt", json!(grant.jwt), !grant.is_bearer);
        set("issuer_key", json!(grant.claims.data.issuer), true);
        set("tags", json!(grant.claims.nats.tags), !grant.claims.nats.tags.is_empty());
    }
    if subs != Subs::No && row.subscriptions > 0 {
        let (name, list) = subscriptions(row, subs, room);
        room.rows -= list.len();
        set("subscriptions_truncated", json!(true), list.len() < row.subscriptions);
        let is_listed = !list.is_empty();
        set(name, Value::Array(list), is_listed);
    }
    out
}

/// The list of a connection's subscriptions under the name that it has: built only when asked for,
/// since a connection may have very many; at most as many as there is room for.
fn subscriptions(row: &Row, subs: Subs, room: &Room) -> (&'static str, Vec<Value>) {
    let list = match row.stopped {
        None => row.conn.some_subscriptions(room.rows),
        Some(_) => row.listed.iter().take(room.rows).cloned().collect(),
    };
    let mut left = Room::new(list.len());
    let fits = |shown: &Value| left.take(shown);
    if subs == Subs::Detail {
        let details = list.iter().map(|sub| Value::Object(sub_detail(sub)));
        return ("subscriptions_list_detail", details.take_while(fits).collect());
    }
    let names = list.iter().map(|sub| json!(String::from_utf8_lossy(&sub.subject)));
    ("subscriptions_list", names.take_while(fits).collect())
}

fn peer_certificate(peer: &PeerCertificate) -> Value {
    json!({
        "subject": peer.subject,
        "spki_sha256": peer.key_sha256,
        "cert_sha256": peer.sha256,
    })
}

/// A short duration as Go prints it: `1.5ms`, `250µs`.
pub(super) fn go_duration(nanos: u64) -> String {
    let (unit, divisor, digits) = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => ("µs", 1e3, 3),
        1_000_000..1_000_000_000 => ("ms", 1e6, 6),
        _ => ("s", 1e9, 9),
    };
    let text = format!("{:.digits$}", nanos as f64 / divisor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}
