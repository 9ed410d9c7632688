//! Messages that consumers have given up, and what else advisories have told.
//!
//! The console keeps them of every account. A user is shown those of his own, if he may subscribe to
//! the advisories; the messages themselves are read, published and deleted as him.

use serde_json::{Value, json};

use super::messages::{Stored, get};
use super::{Call, publish};
use crate::bounds::{
    DEAD_AT_A_TIME_MAX, DEAD_OF_ACCOUNT_MAX, EVENTS_OF_ACCOUNT_MAX, PREVIEW_BYTES,
};
use crate::broker::name;
use crate::failure::Failure;
use crate::watch::Dead;

/// What a user must be allowed to subscribe to.
const DEAD: &str = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>";
const EVENTS: &str = "$JS.EVENT.ADVISORY.>";
/// Headers that the broker has set, or that would keep a message from being stored again.
const OWN_HEADERS: &str = "nats-";

/// `GET dead?search=&offset=&limit=`: the newest first, with the messages where they still are.
pub fn list(call: &mut Call<'_>) -> Result<Value, Failure> {
    call.broker.check_listens(DEAD)?;
    let (offset, limit) = call.ask.rows()?;
    let search = call.ask.search();
    let wanted = |dead: &Dead| {
        [&dead.stream, &dead.consumer, &dead.reason]
            .iter()
            .any(|text| text.to_lowercase().contains(&search))
    };
    let (found, left_out): (Vec<Dead>, u64) = call.watch.heard(call.account, |view| {
        let found = view.dead.iter().rev().filter(|dead| wanted(dead));
        (found.cloned().collect(), view.dead_left_out)
    });
    let total = found.len();
    let mut rows = Vec::new();
    for dead in found.iter().skip(offset).take(limit.min(DEAD_AT_A_TIME_MAX)) {
        rows.push(row(call, dead)?);
    }
    Ok(json!({
        "total": total,
        "offset": offset,
        "left_out": left_out,
        "kept_max": DEAD_OF_ACCOUNT_MAX,
        "uptime_ms": call.facts.uptime_ms,
        "rows": rows,
    }))
}

fn row(call: &mut Call<'_>, dead: &Dead) -> Result<Value, Failure> {
    let (message, error) = match stored(call, dead) {
        Ok(found) => (found.map(|stored| stored.show(PREVIEW_BYTES)), None),
        Err(failure @ Failure::NotLoggedIn(_)) => return Err(failure),
        Err(failure) => (None, Some(failure.to_string())),
    };
    Ok(json!({
        "id": dead.id,
        "stream": dead.stream,
        "consumer": dead.consumer,
        "seq": dead.sequence,
        "deliveries": dead.deliveries,
        "kind": dead.kind,
        "reason": dead.reason,
        "time": dead.time,
        "message": message,
        "error": error,
    }))
}

/// The message in its stream; `None`: it is gone, or the stream is.
fn stored(call: &mut Call<'_>, dead: &Dead) -> Result<Option<Stored>, Failure> {
    match get(call.broker, name(&dead.stream)?, &json!({ "seq": dead.sequence })) {
        Err(Failure::Refused { code: 404, .. }) => Ok(None),
        found => found,
    }
}

/// `POST dead/WHAT`: `ids`, and what is done to each of them. `retry` publishes it again, to `subject`
/// if there is one, and with `remove` deletes the original; `discard` deletes the original; `forget`
/// only takes it off the list.
pub fn act(call: &mut Call<'_>, what: &str) -> Result<Value, Failure> {
    call.broker.check_listens(DEAD)?;
    let ids = call.ask.body.ids.clone().unwrap_or_default();
    if ids.is_empty() || ids.len() > DEAD_AT_A_TIME_MAX {
        return Err(Failure::bad(format!("1 to {DEAD_AT_A_TIME_MAX} messages at a time")));
    }
    if what == "discard" {
        call.ask.confirms("discard")?;
    }
    let mut found: Vec<Dead> = call.watch.heard(call.account, |view| {
        view.dead.iter().filter(|dead| ids.contains(&dead.id)).cloned().collect()
    });
    // As they were published, not as they were given up.
    found.sort_by(|a, b| (&a.stream, a.sequence).cmp(&(&b.stream, b.sequence)));
    let names: Vec<String> =
        found.iter().map(|dead| format!("{:?} {}", dead.stream, dead.sequence)).collect();
    call.change = Some(format!("{what} of {} dead messages: {}", found.len(), names.join(", ")));
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for dead in &found {
        match one(call, what, dead) {
            Ok(()) => done.push(dead.id),
            Err(failure @ (Failure::NotLoggedIn(_) | Failure::TimedOut)) => {
                forget(call, &done);
                return Err(failure);
            }
            Err(failure) => failed.push(json!({ "id": dead.id, "error": failure.to_string() })),
        }
    }
    forget(call, &done);
    if let Some(change) = call.change.as_mut().filter(|_| !failed.is_empty()) {
        change.insert_str(0, &format!("({} failed) ", failed.len()));
    }
    Ok(json!({ "done": done.len(), "failed": failed }))
}

fn forget(call: &Call<'_>, ids: &[u64]) {
    call.watch.heard(call.account, |view| view.dead.retain(|dead| !ids.contains(&dead.id)));
}

fn one(call: &mut Call<'_>, what: &str, dead: &Dead) -> Result<(), Failure> {
    match what {
        "forget" => Ok(()),
        "discard" => remove(call, dead),
        _ => retry(call, dead),
    }
}

fn retry(call: &mut Call<'_>, dead: &Dead) -> Result<(), Failure> {
    let found = stored(call, dead)?;
    let found = found.ok_or_else(|| Failure::NotFound("the message is gone; it".to_owned()))?;
    let own = |(name, _): &(String, String)| !name.to_lowercase().starts_with(OWN_HEADERS);
    let headers: Vec<(String, String)> = found.headers.into_iter().filter(own).collect();
    let block = publish::headers(&headers)?;
    let given = call.ask.body.subject.as_deref().filter(|subject| !subject.is_empty());
    let subject = given.unwrap_or(&found.subject);
    call.broker.ask_at(subject, &block, &found.payload)?;
    match call.ask.body.remove.unwrap_or_default() {
        true => remove(call, dead),
        false => Ok(()),
    }
}

fn remove(call: &mut Call<'_>, dead: &Dead) -> Result<(), Failure> {
    let what = format!("STREAM.MSG.DELETE.{}", name(&dead.stream)?);
    match call.broker.ask(&what, &json!({ "seq": dead.sequence })) {
        // It is gone already.
        Err(Failure::Refused { code: 404, .. } | Failure::Refused { err_code: 10043, .. }) => {
            Ok(())
        }
        done => done.map(drop),
    }
}

/// `GET events?after=`: what happened in the account, the newest first.
pub fn events(call: &mut Call<'_>) -> Result<Value, Failure> {
    call.broker.check_listens(EVENTS)?;
    let after = call.ask.number("after")?.unwrap_or_default();
    let rows: Vec<Value> = call.watch.heard(call.account, |view| {
        let fresh = view.events.iter().rev().take_while(|told| told.id > after);
        let body = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
        let row = |told: &crate::watch::Told| {
            json!({ "id": told.id, "subject": told.subject, "body": body(&told.body) })
        };
        fresh.map(row).collect()
    });
    Ok(json!({
        "rows": rows,
        "kept_max": EVENTS_OF_ACCOUNT_MAX,
        "uptime_ms": call.facts.uptime_ms,
    }))
}
