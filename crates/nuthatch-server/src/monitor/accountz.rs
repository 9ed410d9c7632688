//! `/accountz` and `/accstatz`: the accounts.

use super::large::PAGE_MAX;
use super::query::Query;
use super::subsz::sublist_stats;
use super::varz::object;
use crate::account::Account;
use crate::connections::AccountTraffic;
use crate::options::{self, Export, Import, ResponseKind};
use crate::outbox::Tally;
use crate::server::Server;
use crate::wall_time::{now, time_json};
use nuthatch_streams::AccountId;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Names of the accounts, or with `acc` what one of them is.
pub(super) fn accountz(server: &Server, query: &Query) -> Result<Value, String> {
    let mut out = object(json!({
        "server_id": server.id,
        "now": now(),
        "system_account": server.accounts.system().name,
    }));
    match query.account() {
        None => {
            let names: Vec<_> = server.accounts.all().iter().map(|a| a.name.clone()).collect();
            out.insert("accounts".to_owned(), json!(names));
        }
        Some(name) => {
            let account = server.accounts.by_name(name);
            let account = account.ok_or_else(|| format!("Account {name} does not exist"))?;
            out.insert("account_detail".to_owned(), detail(server, &account));
        }
    }
    Ok(Value::Object(out))
}

fn detail(server: &Server, account: &Account) -> Value {
    let is_system = account.id == server.accounts.system().id;
    let mut out = object(json!({
        "account_name": account.name,
        "update_time": time_json(**server.config_loaded.load()),
        "expired": false,
        "complete": true,
        "jetstream_enabled": server.jetstream().enabled(account.id),
        "leafnode_connections": account.leafs.load(Ordering::Relaxed),
        "client_connections": account.connections.load(Ordering::Relaxed),
        "subscriptions": account.interest.count(),
        "name_tag": account.name,
        "sublist_stats": sublist_stats(&account.interest.stats()),
    }));
    if is_system {
        out.insert("is_system".to_owned(), json!(true));
    }
    let options = server.options();
    if let Some(own) = options.accounts.iter().find(|own| own.name == account.name) {
        for (name, list) in [("exports", exports(own)), ("imports", imports(own))] {
            if !list.is_empty() {
                out.insert(name.to_owned(), json!(list));
            }
        }
    }
    if let Some(state) = server.operator().and_then(|operator| operator.account(&account.name)) {
        out.insert("name_tag".to_owned(), json!(state.name()));
        out.insert("expired".to_owned(), json!(state.is_expired()));
        out.insert("issuer_key".to_owned(), json!(state.issuer()));
        out.insert("jwt".to_owned(), json!(state.jwt()));
        if !state.tags().is_empty() {
            out.insert("tags".to_owned(), json!(state.tags()));
        }
    }
    let waiting = account.imports.responses.count();
    if waiting > 0 {
        out.insert("responses".to_owned(), json!(waiting));
    }
    Value::Object(out)
}

/// Exports of an account, in the shape of nats-server.
fn exports(own: &options::Account) -> Vec<Value> {
    let shown = |export: &Export| {
        let (kind, response) = match &export.service {
            None => ("stream", None),
            Some(service) => ("service", Some(response_type(service.response))),
        };
        let mut out = json!({ "subject": export.subject, "type": kind });
        if let Some(response) = response {
            out["response_type"] = json!(response);
        }
        if export.account_token_position > 0 {
            out["account_token_position"] = json!(export.account_token_position);
        }
        if let Some(accounts) = &export.accounts {
            out["approved_accounts"] = json!(accounts);
        }
        out
    };
    own.exports.iter().map(shown).collect()
}

fn response_type(kind: ResponseKind) -> &'static str {
    match kind {
        ResponseKind::Single => "Singleton",
        ResponseKind::Stream => "Stream",
        ResponseKind::Chunked => "Chunked",
    }
}

/// Imports of an account, in the shape of nats-server.
fn imports(own: &options::Account) -> Vec<Value> {
    let shown = |import: &Import| {
        json!({
            "subject": import.subject,
            "account": import.account,
            "local_subject": import.to,
            "type": if import.is_service { "service" } else { "stream" },
            "share": import.share,
        })
    };
    own.imports.iter().map(shown).collect()
}

/// Connections and traffic by account. Parameters: `unused` shows accounts without connections
/// too; `accounts` (names separated by commas) keeps to some of them.
pub(super) fn accstatz(server: &Server, query: &Query) -> Result<Value, String> {
    let unused = query.flag("unused")?;
    let wanted = query.accounts();
    let clients = server.connections.traffic_by_account();
    let leafs = server.leafs.connections.traffic_by_account();
    let of = |traffic: &FxHashMap<AccountId, AccountTraffic>, account: &Account| {
        traffic.get(&account.id).copied().unwrap_or_default()
    };
    let shown: Vec<Value> = server
        .accounts
        .all()
        .iter()
        .filter(|a| wanted.as_ref().is_none_or(|names| names.contains(&a.name.as_str())))
        .filter(|a| unused || total(a) > 0)
        .take(PAGE_MAX)
        .map(|a| stat(a, of(&clients, a), of(&leafs, a)))
        .collect();
    let mut out = json!({ "server_id": server.id, "now": now() });
    out["account_statz"] = Value::Array(shown);
    Ok(out)
}

/// Connections of an account, to clients and to other servers.
fn total(account: &Account) -> usize {
    account.connections.load(Ordering::Relaxed) + account.leafs.load(Ordering::Relaxed)
}

fn stat(account: &Account, mut traffic: AccountTraffic, leafs: AccountTraffic) -> Value {
    traffic.add(&leafs);
    json!({
        "acc": account.name,
        "name": account.name,
        "conns": account.connections.load(Ordering::Relaxed),
        "leafnodes": account.leafs.load(Ordering::Relaxed),
        "total_conns": total(account),
        "num_subscriptions": account.interest.count(),
        "sent": data_stats(traffic.sent, leafs.sent),
        "received": data_stats(traffic.received, leafs.received),
        "slow_consumers": traffic.slow_consumers,
    })
}

fn data_stats(tally: Tally, leafs: Tally) -> Value {
    let none = json!({ "msgs": 0, "bytes": 0 });
    json!({
        "msgs": tally.messages,
        "bytes": tally.bytes,
        "gateways": none,
        "routes": none,
        "leafs": { "msgs": leafs.messages, "bytes": leafs.bytes },
    })
}
