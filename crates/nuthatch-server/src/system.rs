//! The system account: requests about the server and its accounts (`$SYS.REQ.…`), which CLI and
//! monitoring tools send.
//!
//! Each kind of request is a subscription of the server itself in the system account, so whoever is
//! in it, or imports from it, can send one. What is asked is answered by the monitoring endpoints.

use crate::account::Account;
use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::egress::{DeliveryContext, Outgoing};
use crate::monitor::{Query, document, is_follower};
use crate::server::Server;
use crate::shares::Shares;
use crate::subscription::{Receiver, Subscription};
use crate::system_port::{OwnRequest, SystemPort};
use crate::tls::ocsp::CertificateInfo;
use bytes::Bytes;
use nuthatch_streams::AccountId;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

pub mod events;

mod actions;
mod cluster_logs;
mod nodes;
mod offline_streams;
mod statsz;

/// Requests under way at a time; more are dropped, which their senders see as a timeout.
pub const REQUESTS_MAX: usize = 256;
/// Requests of one account under way at a time, the system account's included.
pub const REQUESTS_OF_ACCOUNT_MAX: usize = REQUESTS_MAX / 2;
/// Largest request body that is read.
const BODY_MAX: usize = 64 * 1024;

/// Documents of a server: the last token of the request and the endpoint that gives it.
const DOCUMENTS: &[(&str, &str)] = &[
    ("VARZ", "/varz"),
    ("CONNZ", "/connz"),
    ("SUBSZ", "/subsz"),
    ("ROUTEZ", "/routez"),
    ("GATEWAYZ", "/gatewayz"),
    ("LEAFZ", "/leafz"),
    ("ACCOUNTZ", "/accountz"),
    ("JSZ", "/jsz"),
    ("HEALTHZ", "/healthz"),
    ("EXPVARZ", "/debug/vars"),
    ("IPQUEUESZ", "/ipqueuesz"),
    ("RAFTZ", "/raftz"),
];

/// Kind of request.
enum Asked {
    /// By its subject, in the system account or by an import from it.
    Subject(String),
    /// A document about the account of who asks, which is no matter of names.
    Own(&'static str),
}

/// A request, taken out of its connection's buffers.
struct Request {
    asked: Asked,
    reply: Bytes,
    body: Bytes,
}

/// Answer to a request.
enum Answer {
    /// `data` of an answer; `null` is left out.
    Data(Value),
    /// A whole answer.
    Whole(Value),
    /// A whole answer as it is sent, made where large documents may be handled.
    Text(Vec<u8>),
    /// Nothing: it was meant for other servers, or there is nothing to say.
    Silence,
}

/// Why a request failed: HTTP status and text.
struct Failure(u16, String);

impl Failure {
    fn internal(text: impl Into<String>) -> Self {
        Self(500, text.into())
    }
}

/// The service of the system account.
struct System {
    server: Weak<Server>,
    /// Requests under way.
    under_way: Arc<Shares>,
}

impl System {
    /// Answers a request in the background; the answer goes to `reply` of `account`.
    fn accept(&self, account: Arc<Account>, asked: Asked, reply: &[u8], body: &[u8]) {
        let Some(server) = self.server.upgrade() else { return };
        let Some(runtime) = server.runtime().cloned() else { return };
        if body.len() > BODY_MAX {
            return;
        }
        let Ok(share) = self.under_way.take(account.id, 1) else { return };
        let (reply, body) = (Bytes::copy_from_slice(reply), Bytes::copy_from_slice(body));
        let request = Request { asked, reply, body };
        runtime.spawn(async move {
            let _share = share;
            answer(&server, &account, &request).await;
        });
    }
}

impl SystemPort for System {
    fn connected(&self, conn: &Connection) {
        if let Some(server) = self.server.upgrade() {
            events::connected(&server, conn);
        }
    }

    fn leaf_connected(&self, conn: &Connection) {
        if let Some(server) = self.server.upgrade() {
            events::leaf_connected(&server, conn);
        }
    }

    fn disconnected(&self, conn: &Connection, reason: CloseReason) {
        if let Some(server) = self.server.upgrade() {
            events::disconnected(&server, conn, reason);
        }
    }

    fn refused(&self, conn: &Connection, reason: CloseReason) {
        if let Some(server) = self.server.upgrade() {
            events::refused(&server, conn, reason);
        }
    }

    fn ocsp_rejected(&self, kind: &str, peer: &CertificateInfo, reason: &str) {
        if let Some(server) = self.server.upgrade() {
            events::ocsp_rejected(&server, kind, peer, reason);
        }
    }

    fn ocsp_link_invalid(&self, peer: &CertificateInfo, link: &CertificateInfo, reason: &str) {
        if let Some(server) = self.server.upgrade() {
            events::ocsp_link_invalid(&server, peer, link, reason);
        }
    }

    fn own_request(&self, account: Arc<Account>, request: &OwnRequest<'_>) {
        self.accept(account, Asked::Own(request.document), request.reply, request.body);
    }
}

impl Receiver for System {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        let Ok(subject) = std::str::from_utf8(message.routed) else { return false };
        let account = server.accounts.system().clone();
        self.accept(account, Asked::Subject(subject.to_owned()), message.reply, message.body);
        true
    }
}

/// Begins the service of a server: it hears of connections, and of requests in the system account.
/// Only the first call has an effect.
pub fn install(server: &Arc<Server>) {
    let under_way = Shares::new(REQUESTS_MAX, REQUESTS_OF_ACCOUNT_MAX);
    let system = Arc::new(System { server: Arc::downgrade(server), under_way });
    if !server.set_system(system.clone()) {
        return;
    }
    let account = server.accounts.system();
    let id = &server.id;
    let patterns = [
        "$SYS.REQ.SERVER.PING".to_owned(),
        "$SYS.REQ.SERVER.PING.*".to_owned(),
        format!("$SYS.REQ.SERVER.{id}.*"),
        "$SYS.REQ.ACCOUNT.*.*".to_owned(),
    ];
    for pattern in patterns {
        let outlet = server.own_peer().outlet.clone();
        let sub = Subscription::of_server(outlet, pattern.as_bytes(), system.clone());
        account.interest.insert(Arc::new(sub));
    }
    if server.options().cluster.is_some() && !server.options().jetstream.enabled {
        // Only nodes with JetStream know the catalog, and one of the group is asked.
        return;
    }
    let outlet = server.own_peer().outlet.clone();
    let sub = Subscription::of_server(outlet, b"$SYS.REQ.CLUSTER.*", system);
    account.interest.insert(Arc::new(sub.in_group(nodes::GROUP)));
}

async fn answer(server: &Arc<Server>, account: &Arc<Account>, request: &Request) {
    let text = request.body.trim_ascii();
    let options = match text {
        b"" => Ok(Map::new()),
        text => serde_json::from_slice::<Map<String, Value>>(text),
    };
    let result = match options {
        Ok(options) if is_for_others(server, &options) => Ok(Answer::Silence),
        Ok(options) => dispatch(server, account, &request.asked, options).await,
        Err(error) => Err(Failure(400, error.to_string())),
    };
    if request.reply.is_empty() {
        return;
    }
    let body = match result {
        Ok(Answer::Silence) => return,
        Ok(Answer::Text(text)) => text,
        Ok(Answer::Whole(value)) => encode(&value),
        Ok(Answer::Data(data)) => with_data(server, data),
        Err(Failure(code, description)) => encode(&json!({
            "server": server.description(),
            "error": { "code": code, "description": description },
        })),
    };
    server.publish_text(account, &request.reply, &body);
}

/// The text of an answer with `data`; `null` is left out.
fn with_data(server: &Server, data: Value) -> Vec<u8> {
    let mut body = json!({ "server": server.description() });
    if !data.is_null() {
        body["data"] = data;
    }
    encode(&body)
}

fn encode(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can be written")
}

/// The document of an endpoint, or the part of it that `part` takes, as `data` of an answer.
async fn described(
    server: &Arc<Server>,
    endpoint: &str,
    query: &Query,
    part: impl FnOnce(Value) -> Value + Clone + Send + 'static,
) -> Result<Answer, Failure> {
    let told = server.clone();
    let make = move |found| Answer::Text(with_data(&told, part(found)));
    document(server, endpoint, query, make).await.map_err(Failure::internal)
}

async fn dispatch(
    server: &Arc<Server>,
    account: &Account,
    asked: &Asked,
    options: Map<String, Value>,
) -> Result<Answer, Failure> {
    let subject = match asked {
        Asked::Subject(subject) => subject,
        Asked::Own(what) => {
            return of_account(server, account.id, &account.name, what, options).await;
        }
    };
    let tokens: Vec<&str> = subject.split('.').skip(2).collect();
    match tokens[..] {
        ["SERVER", "PING"] => Ok(Answer::Whole(statsz::message(server).await)),
        ["SERVER", "PING", what] => of_server(server, account.id, what, options).await,
        ["SERVER", id, "RELOAD"] if id == server.id => actions::reload(server),
        ["SERVER", id, "KICK"] if id == server.id => actions::kick(server, &options),
        ["SERVER", id, "LDM"] if id == server.id => actions::lame_duck(server, &options),
        ["SERVER", id, what] if id == server.id => {
            of_server(server, account.id, what, options).await
        }
        ["ACCOUNT", "PING", "STATZ"] => {
            let query = Query::from_options(&options).asked_by(account.id);
            account_stats(server, &query).await
        }
        ["CLUSTER", what] => nodes::about_nodes(server, what, &options).await,
        ["ACCOUNT", name, what] => of_account(server, account.id, name, what, options).await,
        _ => Ok(Answer::Silence),
    }
}

async fn of_server(
    server: &Arc<Server>,
    asker: AccountId,
    what: &str,
    options: Map<String, Value>,
) -> Result<Answer, Failure> {
    match what {
        "STATSZ" => return Ok(Answer::Whole(statsz::message(server).await)),
        "IDZ" => {
            let host = &server.options().host;
            return Ok(Answer::Whole(
                json!({ "name": server.name, "host": host, "id": server.id }),
            ));
        }
        // A server that is in no raft group has nothing to show.
        "RAFTZ" if server.cluster.get().is_none() => return Ok(Answer::Data(json!({}))),
        "PROFILEZ" => {
            let text = "there is no Go profiler in this server: use perf";
            return Ok(Answer::Data(json!({ "profile": null, "error": text })));
        }
        _ => {}
    }
    let Some((_, endpoint)) = DOCUMENTS.iter().find(|(name, _)| *name == what) else {
        return Ok(Answer::Silence);
    };
    let query = Query::from_options(&options).asked_by(asker);
    // So that who asks all of them hears the one that leads.
    let wants_leader = what == "JSZ" && query.flag("leader-only").unwrap_or_default();
    if wants_leader && is_follower(server) {
        return Ok(Answer::Silence);
    }
    let is_health = what == "HEALTHZ";
    let complete = move |mut found: Value| {
        if is_health {
            // Over HTTP this is the status line.
            found["status_code"] = match found["status"].as_str() {
                Some("ok") => json!(200),
                Some("unavailable") => json!(503),
                _ => json!(500),
            };
        }
        found
    };
    described(server, endpoint, &query, complete).await
}

async fn account_stats(server: &Arc<Server>, query: &Query) -> Result<Answer, Failure> {
    let wants_unused = query.flag("unused").unwrap_or_default();
    let told = server.clone();
    let make = move |found: Value| {
        let is_empty = found["account_statz"].as_array().is_none_or(Vec::is_empty);
        match is_empty && !wants_unused {
            true => Answer::Silence,
            false => Answer::Text(with_data(&told, found)),
        }
    };
    document(server, "/accstatz", query, make).await.map_err(Failure::internal)
}

async fn of_account(
    server: &Arc<Server>,
    asker: AccountId,
    name: &str,
    what: &str,
    mut options: Map<String, Value>,
) -> Result<Answer, Failure> {
    let endpoint = match what {
        "CONNZ" => "/connz",
        "SUBSZ" => {
            options.insert("subscriptions".to_owned(), json!(true));
            "/subsz"
        }
        "LEAFZ" => "/leafz",
        "JSZ" => "/jsz",
        "INFO" => "/accountz",
        "STATZ" => {
            let query = Query::of_account(&options, name).asked_by(asker);
            return account_stats(server, &query).await;
        }
        "CONNS" => {
            let Some(account) = server.accounts.by_name(name) else { return Ok(Answer::Silence) };
            let leafs = account.leafs.load(Ordering::Relaxed);
            let has_any = account.connections.load(Ordering::Relaxed) + leafs > 0;
            let event = has_any.then(|| events::connections(server, &account));
            return Ok(event.map_or(Answer::Silence, Answer::Whole));
        }
        _ => return Ok(Answer::Silence),
    };
    let query = Query::of_account(&options, name).asked_by(asker);
    let part: fn(&mut Value) -> Option<&mut Value> = match what {
        "INFO" => |found| found.get_mut("account_detail"),
        "JSZ" => |found| found.get_mut("account_details").and_then(|details| details.get_mut(0)),
        _ => |found| Some(found),
    };
    let take = move |mut found: Value| part(&mut found).map(Value::take).unwrap_or_default();
    described(server, endpoint, &query, take).await
}

/// True if a request names other servers only.
fn is_for_others(server: &Server, filter: &Map<String, Value>) -> bool {
    let options = server.options();
    let text = |name: &str| filter.get(name).and_then(Value::as_str).unwrap_or_default();
    let exact = filter.get("exact_match") == Some(&Value::Bool(true));
    let fits = |name: &str, own: &str| {
        let wanted = text(name);
        wanted.is_empty() || if exact { wanted == own } else { own.contains(wanted) }
    };
    let tags = filter.get("tags").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let has_tag = |tag: &Value| {
        let tag = tag.as_str().unwrap_or_default().to_lowercase();
        options.server_tags.contains(&tag)
    };
    let domain = options.jetstream.domain.clone().unwrap_or_default();
    !(fits("server_name", &server.name)
        && fits("host", &options.host)
        && fits("cluster", server.nodes.cluster().unwrap_or_default())
        && tags.iter().all(has_tag)
        && (text("domain").is_empty() || text("domain") == domain))
}
