//! Streams: the list, one of them, and changes of it.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::Call;
use crate::bounds::{NAMES_MAX, SORTED_STREAMS_MAX};
use crate::broker::{Broker, name};
use crate::failure::Failure;

/// Names of streams, sorted, that begin with `prefix` and hold `search` in whatever case; and whether
/// there are more than are looked at.
pub fn names(
    broker: &mut Broker,
    prefix: &str,
    search: &str,
) -> Result<(Vec<String>, bool), Failure> {
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let page = broker.ask("STREAM.NAMES", &json!({ "offset": offset }))?;
        let total = page["total"].as_u64().unwrap_or_default() as usize;
        let names = page["streams"].as_array().map(Vec::as_slice).unwrap_or_default();
        offset += names.len();
        let names = names.iter().filter_map(Value::as_str);
        let wanted = names.filter(|name| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| search.is_empty() || rest.to_lowercase().contains(search))
        });
        found.extend(wanted.map(str::to_owned));
        let is_last = offset >= total || page["streams"].as_array().is_none_or(Vec::is_empty);
        if is_last || offset >= NAMES_MAX {
            found.sort_unstable();
            return Ok((found, offset < total));
        }
    }
}

/// `GET streams?search=&sort=&order=&offset=&limit=`, and the same of buckets.
pub fn list(call: &mut Call<'_>, prefix: &str) -> Result<Value, Failure> {
    let (offset, limit) = call.ask.rows()?;
    let (mut names, more) = names(call.broker, prefix, &call.ask.search())?;
    let total = names.len();
    let wanted = call.ask.query("sort").unwrap_or("name");
    let sort = if total > SORTED_STREAMS_MAX { "name" } else { wanted };
    let descending = call.ask.query("order") == Some("desc");
    let rows = if sort == "name" {
        if descending {
            names.reverse();
        }
        let shown = names.iter().skip(offset).take(limit);
        rows(call.broker, shown)?
    } else {
        let mut all = rows(call.broker, names.iter())?;
        let key = |row: &Value| row[sort].as_u64().unwrap_or_default();
        match descending {
            true => all.sort_by_key(|row| Reverse(key(row))),
            false => all.sort_by_key(key),
        }
        all.into_iter().skip(offset).take(limit).collect()
    };
    Ok(json!({
        "total": total,
        "offset": offset,
        "sorted_by": sort,
        "more_than_looked_at": more,
        "rows": rows,
    }))
}

fn rows<'n>(
    broker: &mut Broker,
    names: impl Iterator<Item = &'n String>,
) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for name in names {
        match broker.ask(&format!("STREAM.INFO.{name}"), &Value::Null) {
            Ok(info) => rows.push(row(&info)),
            // Deleted a moment ago.
            Err(Failure::Refused { code: 404, .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(rows)
}

fn row(info: &Value) -> Value {
    let (config, state) = (&info["config"], &info["state"]);
    json!({
        "name": config["name"],
        "description": config["description"],
        "subjects": config["subjects"],
        "storage": config["storage"],
        "retention": config["retention"],
        "history": config["max_msgs_per_subject"],
        "messages": state["messages"],
        "bytes": state["bytes"],
        "consumers": state["consumer_count"],
        "first": state["first_seq"],
        "last": state["last_seq"],
        "last_time": state["last_ts"],
        "created": info["created"],
        "mirror": config["mirror"]["name"],
        "sources": config["sources"].as_array().map_or(0, Vec::len),
    })
}

/// `GET streams/NAME`: what the broker tells of it.
pub fn info(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    call.broker.ask(&format!("STREAM.INFO.{}", name(stream)?), &Value::Null)
}

/// `POST streams`, `PUT streams`: the body is a configuration.
pub fn save(call: &mut Call<'_>, what: &str) -> Result<Value, Failure> {
    let config = call.ask.config()?;
    let stream = config["name"].as_str().ok_or_else(|| Failure::bad("name is missing"))?;
    let stream = name(stream)?;
    let word = if what == "CREATE" { "create" } else { "edit" };
    call.change = Some(format!("{word} stream {stream:?}"));
    call.broker.ask(&format!("STREAM.{what}.{stream}"), &config)
}

/// `DELETE streams/NAME`.
pub fn delete(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    let stream = name(stream)?;
    call.ask.confirms(stream)?;
    call.change = Some(format!("delete stream {stream:?}"));
    call.broker.ask(&format!("STREAM.DELETE.{stream}"), &Value::Null)
}

/// `POST streams/NAME/purge`: everything, or a subject's, up to a sequence, or all but the newest.
pub fn purge(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    let stream = name(stream)?;
    call.ask.confirms(stream)?;
    let given = &call.ask.body;
    let mut body = json!({});
    if let Some(filter) = given.filter.as_ref().filter(|filter| !filter.is_empty()) {
        body["filter"] = filter.as_str().into();
    }
    for (field, value) in [("seq", given.seq), ("keep", given.keep)] {
        if let Some(value) = value {
            body[field] = value.into();
        }
    }
    call.change = Some(format!("purge stream {stream:?} {body}"));
    call.broker.ask(&format!("STREAM.PURGE.{stream}"), &body)
}

/// `GET streams/NAME/move`: how a move to another log is doing.
pub fn moving(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    call.broker.ask(&format!("STREAM.MOVE.{}", name(stream)?), &json!({}))
}

/// `POST streams/NAME/move`: to the log `log`, or `cancel` what is under way.
pub fn relocate(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    let stream = name(stream)?;
    call.ask.confirms(stream)?;
    let given = &call.ask.body;
    let body = match (&given.log, given.cancel.unwrap_or_default()) {
        (_, true) => json!({ "cancel": true }),
        (Some(log), _) if !log.is_empty() => json!({ "log": log }),
        _ => return Err(Failure::bad("log is missing")),
    };
    call.change = Some(format!("move stream {stream:?} {body}"));
    call.broker.ask(&format!("STREAM.MOVE.{stream}"), &body)
}
