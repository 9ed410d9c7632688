//! Events that the server publishes in the system account. Without a listener they are not made.

use super::statsz;
use crate::account::Account;
use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::outbox::Tally;
use crate::random::random_id;
use crate::server::Server;
use crate::tls::ocsp::CertificateInfo;
use crate::wall_time::{now, time_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// How often `STATSZ` is published while it has subscribers.
const STATSZ_INTERVAL: Duration = Duration::from_secs(10);
/// How often the connections of an account are published while there are any.
const CONNECTIONS_INTERVAL: Duration = Duration::from_secs(30);
/// Characters of an event's id.
const ID_CHARS: usize = 22;

/// Publishes an event if anybody listens.
fn emit(server: &Arc<Server>, subject: &str, event: impl FnOnce() -> Value) {
    let account = server.accounts.system();
    if account.interest.any(subject.as_bytes()) {
        server.publish_json(account, subject.as_bytes(), &event());
    }
}

fn typed(kind: &str) -> Value {
    json!({
        "type": format!("io.nats.server.advisory.v1.{kind}"),
        "id": random_id(ID_CHARS),
        "timestamp": now(),
    })
}

/// Description of a client in events.
fn client(conn: &Connection, stop: Option<SystemTime>) -> Value {
    let session = conn.session();
    let mut client = json!({
        "start": time_json(conn.since),
        "host": conn.remote.get().ip().to_string(),
        "id": conn.id,
        "acc": session.account.name,
        "kind": if conn.is_leaf() { "Leafnode" } else { "Client" },
        "client_type": conn.client_type(),
    });
    for (name, value) in [
        ("user", &session.user),
        ("name", &session.name),
        ("lang", &session.lang),
        ("ver", &session.version),
    ] {
        if !value.is_empty() {
            client[name] = json!(value);
        }
    }
    if let Some(grant) = &session.grant {
        client["issuer_key"] = json!(grant.claims.data.issuer);
        client["name_tag"] = json!(grant.account_name);
        if !grant.claims.nats.tags.is_empty() {
            client["tags"] = json!(grant.claims.nats.tags);
        }
    }
    let rtt_ns = conn.rtt_ns.load(Ordering::Relaxed);
    if let Some(stop) = stop {
        client["stop"] = time_json(stop);
        if rtt_ns > 0 {
            client["rtt"] = json!(rtt_ns);
        }
    }
    client
}

fn tally(tally: Tally) -> Value {
    json!({ "msgs": tally.messages, "bytes": tally.bytes })
}

/// A client was let in.
pub(super) fn connected(server: &Arc<Server>, conn: &Connection) {
    if conn.announced.swap(true, Ordering::Relaxed) {
        return;
    }
    let account = conn.session().account.clone();
    emit(server, &format!("$SYS.ACCOUNT.{}.CONNECT", account.name), || {
        let mut event = typed("client_connect");
        event["server"] = server.description();
        event["client"] = client(conn, None);
        event
    });
    count_changed(server, &account);
}

/// Another server has joined an account.
pub(super) fn leaf_connected(server: &Arc<Server>, conn: &Connection) {
    connected(server, conn);
    let account = conn.session().account.clone();
    emit(
        server,
        &format!("$SYS.ACCOUNT.{}.LEAFNODE.CONNECT", account.name),
        || json!({ "server": server.description(), "acc": account.name }),
    );
}

/// A client has gone.
pub(super) fn disconnected(server: &Arc<Server>, conn: &Connection, reason: CloseReason) {
    if !conn.announced.load(Ordering::Relaxed) {
        return;
    }
    let account = conn.session().account.clone();
    let subject = format!("$SYS.ACCOUNT.{}.DISCONNECT", account.name);
    emit(server, &subject, || ended(server, conn, reason));
    count_changed(server, &account);
}

/// A client was not let in.
pub(super) fn refused(server: &Arc<Server>, conn: &Connection, reason: CloseReason) {
    emit(server, &format!("$SYS.SERVER.{}.CLIENT.AUTH.ERR", server.id), || {
        ended(server, conn, reason)
    });
}

fn certificate(info: &CertificateInfo) -> Value {
    json!({
        "subject": info.subject,
        "issuer": info.issuer,
        "fingerprint": info.fingerprint,
        "raw": info.raw,
    })
}

/// A connection was refused for what OCSP says of the other side's certificate.
pub(super) fn ocsp_rejected(
    server: &Arc<Server>,
    kind: &str,
    peer: &CertificateInfo,
    reason: &str,
) {
    emit(server, &format!("$SYS.SERVER.{}.OCSP.PEER.CONN.REJECT", server.id), || {
        let mut event = typed("ocsp_peer_reject");
        event["kind"] = json!(kind);
        event["peer"] = certificate(peer);
        event["server"] = server.description();
        event["reason"] = json!(reason);
        event
    });
}

/// OCSP says that a certificate is not good by which the other side's is verified.
pub(super) fn ocsp_link_invalid(
    server: &Arc<Server>,
    peer: &CertificateInfo,
    link: &CertificateInfo,
    reason: &str,
) {
    emit(server, &format!("$SYS.SERVER.{}.OCSP.PEER.LINK.INVALID", server.id), || {
        let mut event = typed("ocsp_peer_link_invalid");
        event["link"] = certificate(link);
        event["peer"] = certificate(peer);
        event["server"] = server.description();
        event["reason"] = json!(reason);
        event
    });
}

fn ended(server: &Server, conn: &Connection, reason: CloseReason) -> Value {
    let mut event = typed("client_disconnect");
    event["server"] = server.description();
    event["client"] = client(conn, Some(SystemTime::now()));
    event["sent"] = tally(conn.received.get());
    event["received"] = tally(conn.outbox().totals());
    event["reason"] = json!(reason.text());
    event
}

/// The number of an account's connections has changed.
fn count_changed(server: &Arc<Server>, account: &Account) {
    for subject in [
        format!("$SYS.ACCOUNT.{}.SERVER.CONNS", account.name),
        format!("$SYS.SERVER.ACCOUNT.{}.CONNS", account.name),
    ] {
        emit(server, &subject, || connections(server, account));
    }
}

/// How many connections an account has.
pub(super) fn connections(server: &Server, account: &Account) -> Value {
    let mut event = typed("account_connections");
    let count = account.connections.load(Ordering::Relaxed);
    let leafs = account.leafs.load(Ordering::Relaxed);
    let traffic = server.traffic_of(account.id);
    for (name, value) in [
        ("server", server.description()),
        ("acc", json!(account.name)),
        ("name", json!(account.name)),
        ("conns", json!(count)),
        ("leafnodes", json!(leafs)),
        ("total_conns", json!(count + leafs)),
        ("num_subscriptions", json!(account.interest.count())),
        ("sent", tally(traffic.sent)),
        ("received", tally(traffic.received)),
        ("slow_consumers", json!(traffic.slow_consumers)),
    ] {
        event[name] = value;
    }
    event
}

/// The server becomes a lame duck.
pub(crate) fn lame_duck(server: &Arc<Server>) {
    emit(server, &format!("$SYS.SERVER.{}.LAMEDUCK", server.id), || server.description());
}

/// The server goes down.
pub(crate) fn shutdown(server: &Arc<Server>) {
    emit(server, &format!("$SYS.SERVER.{}.SHUTDOWN", server.id), || server.description());
}

/// Publishes what is published regularly, for as long as the server runs.
pub(crate) async fn publish_regularly(server: Arc<Server>) {
    let subject = format!("$SYS.SERVER.{}.STATSZ", server.id);
    let mut since_connections = Duration::ZERO;
    while !server.stopping.load(Ordering::Relaxed) {
        tokio::time::sleep(STATSZ_INTERVAL).await;
        let system = server.accounts.system().clone();
        if system.interest.any(subject.as_bytes()) {
            server.publish_json(&system, subject.as_bytes(), &statsz::message(&server).await);
        }
        since_connections += STATSZ_INTERVAL;
        if since_connections >= CONNECTIONS_INTERVAL {
            since_connections = Duration::ZERO;
            for account in server.accounts.all() {
                let leafs = account.leafs.load(Ordering::Relaxed);
                if account.connections.load(Ordering::Relaxed) + leafs > 0 {
                    count_changed(&server, &account);
                }
            }
        }
    }
}
