//! What is asked of the whole server: connections, accounts, users, logs, leaf nodes, configuration.
//!
//! A user of the system account asks for it as any client does. Where there are no users, whoever is
//! let in may see it. Others see their own account's connections.

use serde_json::{Map, Value, json};

use super::Call;
use crate::bounds::{CLIENTS_MAX, USERS_MAX};
use crate::broker::check_subject;
use crate::failure::Failure;
use crate::host::{Rule, Setting, User};
use crate::rights::{judge, rule};

/// The subject of what the broker tells of an account's own.
const OWN: &str = "$SYS.REQ.ACCOUNT.PING";

/// Whether the user may ask for the whole server.
pub(super) fn sees_server(call: &Call<'_>) -> bool {
    call.facts.is_open || is_system(call)
}

fn is_system(call: &Call<'_>) -> bool {
    call.account == call.facts.system_account
}

/// A document about the whole server: `CONNZ` and so on.
pub(super) fn report(call: &mut Call<'_>, what: &str, options: &Value) -> Result<Value, Failure> {
    if is_system(call) {
        // By its id: all nodes of a cluster answer a ping.
        let server = call.broker.info()?.server_id.clone();
        let subject = format!("$SYS.REQ.SERVER.{server}.{what}");
        let told = call.broker.ask_at(&subject, b"", options.to_string().as_bytes())?;
        return Ok(told["data"].clone());
    }
    if !call.facts.is_open {
        return Err(Failure::Denied(
            "only users of the system account see the whole server".into(),
        ));
    }
    let options = options.as_object().cloned().unwrap_or_default();
    document(call, what, &options)
}

fn document(call: &Call<'_>, what: &str, options: &Map<String, Value>) -> Result<Value, Failure> {
    let path = format!("/{}", what.to_lowercase());
    let asked = call.host.document(&path, options);
    tokio::runtime::Handle::current().block_on(asked).map_err(Failure::bad)
}

/// Connections: all that the user may see.
pub(super) fn clients(call: &mut Call<'_>, mut options: Value) -> Result<Value, Failure> {
    options["auth"] = true.into();
    options["limit"] = CLIENTS_MAX.into();
    if sees_server(call) {
        return report(call, "CONNZ", &options);
    }
    let subject = format!("{OWN}.CONNZ");
    let told = call.broker.ask_at(&subject, b"", options.to_string().as_bytes())?;
    Ok(told["data"].clone())
}

/// `GET connections?search=&sort=&subject=&account=&closed=&offset=&limit=`.
pub fn connections(call: &mut Call<'_>) -> Result<Value, Failure> {
    let (offset, limit) = call.ask.rows()?;
    let closed = call.ask.query("closed") == Some("1");
    let usual = if closed { "stop" } else { "bytes_to" };
    let mut options = json!({ "sort": call.ask.query("sort").unwrap_or(usual) });
    if closed {
        options["state"] = "closed".into();
    }
    if let Some(subject) = call.ask.query("subject") {
        options["filter_subject"] = subject.into();
        options["acc"] = call.ask.query("account").unwrap_or(call.account).into();
    }
    let mut found = clients(call, options)?;
    let all = found["total"].as_u64().unwrap_or_default();
    let rows = found["connections"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let more = all > rows.len() as u64;
    let search = call.ask.search();
    let holds = |row: &Value, name: &str| {
        row[name].as_str().is_some_and(|text| text.to_lowercase().contains(&search))
    };
    let named = ["name", "ip", "authorized_user", "account", "lang"];
    let wanted = |row: &Value| {
        let is_number = || search.parse().is_ok_and(|cid: u64| row["cid"] == cid);
        search.is_empty() || is_number() || named.iter().any(|name| holds(row, name))
    };
    let rows: Vec<Value> = rows.into_iter().filter(wanted).map(without_tokens).collect();
    let total = rows.len();
    let rows: Vec<Value> = rows.into_iter().skip(offset).take(limit).collect();
    Ok(json!({
        "total": total,
        "offset": offset,
        "more_than_looked_at": more,
        "sees_server": sees_server(call),
        "rows": rows,
    }))
}

/// What a page does not need to know.
fn without_tokens(mut row: Value) -> Value {
    row.as_object_mut().map(|row| row.remove("jwt"));
    row
}

/// `GET connections/CID`: one of them with its subscriptions.
pub fn connection(call: &mut Call<'_>, cid: &str) -> Result<Value, Failure> {
    let found = clients(call, json!({ "cid": number(cid)?, "subscriptions_detail": true }))?;
    let row = found["connections"].get(0).cloned().map(without_tokens);
    row.ok_or_else(|| Failure::NotFound(format!("connection {cid}")))
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::bad(format!("{text:?} is no number of a connection")))
}

/// `POST connections/CID/kick`: closes it.
pub fn kick(call: &mut Call<'_>, cid: &str) -> Result<Value, Failure> {
    let id = number(cid)?;
    call.ask.confirms(cid)?;
    if !sees_server(call) {
        return Err(Failure::Denied("only users of the system account close connections".into()));
    }
    call.change = Some(format!("kick connection {id}"));
    if is_system(call) {
        let server = call.broker.info()?.server_id.clone();
        let body = json!({ "cid": id }).to_string();
        return call.broker.ask_at(&format!("$SYS.REQ.SERVER.{server}.KICK"), b"", body.as_bytes());
    }
    match call.host.kick(id) {
        true => Ok(json!({})),
        false => Err(Failure::NotFound(format!("connection {id}"))),
    }
}

/// `GET accounts`: those that the user may see, with what they have and may have.
pub fn accounts(call: &mut Call<'_>) -> Result<Value, Failure> {
    if !sees_server(call) {
        return own_account(call);
    }
    let names = report(call, "ACCOUNTZ", &json!({}))?;
    let jetstream = report(call, "JSZ", &json!({ "accounts": true }))?;
    let traffic = match is_system(call) {
        true => {
            call.broker.ask_at(&format!("{OWN}.STATZ"), b"", br#"{"unused":true}"#)?["data"].take()
        }
        false => {
            let options = json!({ "unused": true }).as_object().cloned().unwrap_or_default();
            document(call, "ACCSTATZ", &options)?
        }
    };
    let find = |list: &Value, field: &str, name: &str| {
        let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().find(|row| row[field] == name).cloned().unwrap_or(Value::Null)
    };
    let names = names["accounts"].as_array().cloned().unwrap_or_default();
    let names = names.iter().filter_map(Value::as_str).take(USERS_MAX);
    let rows = names.map(|name| {
        json!({
            "name": name,
            "is_system": name == call.facts.system_account,
            "jetstream": find(&jetstream["account_details"], "name", name),
            "traffic": find(&traffic["account_statz"], "acc", name),
        })
    });
    Ok(json!({ "sees_server": true, "rows": rows.collect::<Vec<_>>() }))
}

fn own_account(call: &mut Call<'_>) -> Result<Value, Failure> {
    let overview = super::overview::overview(call)?;
    let row = json!({
        "name": call.account,
        "own": overview["account"]["jetstream"],
        "traffic": overview["traffic"],
    });
    Ok(json!({ "sees_server": false, "rows": [row] }))
}

fn show(rule: Option<&Rule>) -> Value {
    rule.map_or(Value::Null, |rule| json!({ "allow": rule.allow, "deny": rule.deny }))
}

/// The users whose permissions the user may see: himself, or everybody.
fn visible_users(call: &mut Call<'_>) -> Result<Vec<User>, Failure> {
    if sees_server(call) {
        // Whoever may not ask for the accounts is not told of their users either.
        report(call, "ACCOUNTZ", &json!({}))?;
        return Ok(call.host.users());
    }
    let told = call.broker.ask_at("$SYS.REQ.USER.INFO", b"", b"")?;
    let permissions = &told["data"]["permissions"];
    Ok(vec![User {
        account: call.account.to_owned(),
        name: told["data"]["user"].as_str().unwrap_or_default().to_owned(),
        kind: "you",
        publish: rule(&permissions["publish"]),
        subscribe: rule(&permissions["subscribe"]),
    }])
}

/// `GET users`.
pub fn users(call: &mut Call<'_>) -> Result<Value, Failure> {
    let users = visible_users(call)?;
    let row = |user: &User| {
        json!({
            "name": user.name,
            "account": user.account,
            "kind": user.kind,
            "publish": show(user.publish.as_ref()),
            "subscribe": show(user.subscribe.as_ref()),
        })
    };
    let rows: Vec<Value> = users.iter().take(USERS_MAX).map(row).collect();
    Ok(json!({ "total": users.len(), "is_open": call.facts.is_open, "rows": rows }))
}

/// `GET may?user=&account=&subject=&what=publish|subscribe`.
pub fn may(call: &mut Call<'_>) -> Result<Value, Failure> {
    let subject = call.ask.query("subject").unwrap_or_default();
    let publishes = call.ask.query("what") != Some("subscribe");
    match publishes {
        true => check_subject(subject)?,
        false if nuthatch_protocol::subject::is_valid_subject(subject.as_bytes()) => {}
        false => return Err(Failure::bad(format!("{subject:?} is no subject"))),
    }
    let users = visible_users(call)?;
    let (name, account) = (call.ask.query("user"), call.ask.query("account"));
    let found = users.iter().find(|user| {
        name.is_none_or(|name| user.name == name)
            && account.is_none_or(|account| user.account == account)
    });
    let user = found.ok_or_else(|| Failure::NotFound("this user".to_owned()))?;
    let rule = if publishes { &user.publish } else { &user.subscribe };
    Ok(judge(rule.as_ref(), subject, publishes))
}

/// `GET logs`: the logs below the streams.
pub fn logs(call: &mut Call<'_>) -> Result<Value, Failure> {
    report(call, "JSZ", &json!({ "logs": true }))
}

/// `GET nodes`: connections to other nodes of the cluster.
pub fn nodes(call: &mut Call<'_>) -> Result<Value, Failure> {
    report(call, "ROUTEZ", &json!({}))
}

/// `GET leafs`: connections to other servers.
pub fn leafs(call: &mut Call<'_>) -> Result<Value, Failure> {
    report(call, "LEAFZ", &json!({}))
}

fn setting(setting: &Setting) -> Value {
    json!({ "key": setting.key, "place": setting.place, "value": setting.value })
}

/// `GET configuration`: what is in force, what the file says, and what a reload would change.
pub fn configuration(call: &mut Call<'_>) -> Result<Value, Failure> {
    let mut told = report(call, "VARZ", &json!({}))?;
    // What it counts is on other pages.
    for counter in ["http_req_stats", "slow_consumer_stats", "stale_connection_stats"] {
        told.as_object_mut().map(|fields| fields.remove(counter));
    }
    told["written"] = match call.host.settings() {
        Ok(found) => found.iter().map(setting).collect(),
        Err(why) => json!({ "error": why }),
    };
    told["reload"] = match call.host.preview_reload() {
        Ok(plan) => json!({ "now": plan.now, "restart": plan.restart }),
        Err(why) => json!({ "error": why }),
    };
    Ok(told)
}
