//! How things are: the server's health, and what the account has and does.

use serde_json::{Value, json};

use super::Call;
use super::server::sees_server;
use crate::failure::Failure;

/// Where a user asks for the traffic of his account.
const STATZ: &str = "$SYS.REQ.ACCOUNT.PING.STATZ";

/// `GET overview`.
pub fn overview(call: &mut Call<'_>) -> Result<Value, Failure> {
    let account = match call.broker.ask("INFO", &Value::Null) {
        Ok(info) => json!({ "jetstream": info }),
        Err(failure @ Failure::NotLoggedIn(_)) => return Err(failure),
        Err(failure) => json!({ "jetstream_error": failure.to_string() }),
    };
    let facts = call.facts;
    let durability: Vec<Value> =
        facts.durability.iter().map(|(log, words)| json!({ "log": log, "words": words })).collect();
    let max_payload = call.broker.info()?.max_payload;
    Ok(json!({
        "server": facts.name,
        "version": facts.version,
        "uptime_ms": facts.uptime_ms,
        "troubles": troubles(call),
        "forecasts": call.watch.forecasts(),
        "durability": durability,
        "max_payload": max_payload,
        "account": account,
        "traffic": traffic(call)?,
    }))
}

/// What is wrong with the server, in sentences; those who may not see it hear that something is.
fn troubles(call: &Call<'_>) -> Vec<String> {
    let all = &call.facts.troubles;
    if all.is_empty() || sees_server(call) {
        return all.clone();
    }
    vec!["Something is wrong with the server; users of its system account see what.".to_owned()]
}

/// `GET history`: the account's last hour, for whoever may ask for its traffic now.
pub fn history(call: &mut Call<'_>) -> Result<Value, Failure> {
    match call.broker.ask_at(STATZ, b"", b"") {
        // An account without connections has no answer.
        Ok(_) | Err(Failure::TimedOut) => Ok(call.watch.history_of(call.account)),
        Err(failure) => Err(failure),
    }
}

/// What the account has sent and received; null where the user may not ask.
fn traffic(call: &mut Call<'_>) -> Result<Value, Failure> {
    match call.broker.ask_at(STATZ, b"", b"") {
        Ok(told) => Ok(told["data"]["account_statz"][0].clone()),
        Err(failure @ Failure::NotLoggedIn(_)) => Err(failure),
        Err(_) => Ok(Value::Null),
    }
}
