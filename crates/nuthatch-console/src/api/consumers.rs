//! Consumers of one stream or of all.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::messages::get;
use super::{Call, streams};
use crate::bounds::{CONSUMER_STREAMS_MAX, CONSUMERS_MAX};
use crate::broker::{Broker, name};
use crate::failure::Failure;

/// Bytes of a time.
const TIME_BYTES_MAX: usize = 64;

/// `GET consumers`, `GET streams/NAME/consumers`: `?search=&sort=&order=&offset=&limit=`.
pub fn list(call: &mut Call<'_>, stream: Option<&str>) -> Result<Value, Failure> {
    let (offset, limit) = call.ask.rows()?;
    let (names, mut more) = match stream {
        Some(stream) => (vec![name(stream)?.to_owned()], false),
        None => streams::names(call.broker, "", "")?,
    };
    more |= names.len() > CONSUMER_STREAMS_MAX;
    let mut rows = Vec::new();
    for stream in names.iter().take(CONSUMER_STREAMS_MAX) {
        if rows.len() >= CONSUMERS_MAX {
            more = true;
            break;
        }
        more |= !of_stream(call.broker, stream, &mut rows)?;
    }
    let search = call.ask.search();
    let lower = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    rows.retain(|row| {
        lower(&row["name"]).contains(&search)
            || (stream.is_none() && lower(&row["stream"]).contains(&search))
    });
    let sort = call.ask.query("sort").unwrap_or("pending");
    let descending = call.ask.query("order").unwrap_or("desc") == "desc";
    rows.sort_by_cached_key(|row| (lower(&row["stream"]), lower(&row["name"])));
    if sort == "name" || sort == "stream" {
        rows.sort_by_cached_key(|row| lower(&row[sort]));
        if descending {
            rows.reverse();
        }
    } else {
        let key = |row: &Value| row[sort].as_u64().unwrap_or_default();
        match descending {
            true => rows.sort_by_key(|row| Reverse(key(row))),
            false => rows.sort_by_key(key),
        }
    }
    let total = rows.len();
    let rows: Vec<Value> = rows.into_iter().skip(offset).take(limit).collect();
    Ok(json!({ "total": total, "offset": offset, "more_than_looked_at": more, "rows": rows }))
}

/// Appends the consumers of a stream; `false`: not all of them.
fn of_stream(broker: &mut Broker, stream: &str, rows: &mut Vec<Value>) -> Result<bool, Failure> {
    let mut offset = 0;
    loop {
        let asked = broker.ask(&format!("CONSUMER.LIST.{stream}"), &json!({ "offset": offset }));
        let page = match asked {
            // Deleted a moment ago.
            Err(Failure::Refused { code: 404, .. }) => return Ok(true),
            asked => asked?,
        };
        let found = page["consumers"].as_array().map(Vec::as_slice).unwrap_or_default();
        offset += found.len();
        rows.extend(found.iter().map(row));
        if found.is_empty() || offset as u64 >= page["total"].as_u64().unwrap_or_default() {
            return Ok(true);
        }
        if rows.len() >= CONSUMERS_MAX {
            return Ok(false);
        }
    }
}

fn row(info: &Value) -> Value {
    let config = &info["config"];
    json!({
        "stream": info["stream_name"],
        "name": info["name"],
        "durable": !config["durable_name"].is_null(),
        "push": config["deliver_subject"],
        "filter": config["filter_subject"],
        "filters": config["filter_subjects"],
        "pending": info["num_pending"],
        "outstanding": info["num_ack_pending"],
        "redelivered": info["num_redelivered"],
        "waiting": info["num_waiting"],
        "delivered": info["delivered"]["stream_seq"],
        "ack_floor": info["ack_floor"]["stream_seq"],
        "last_active": info["delivered"]["last_active"],
        "paused": info["paused"].as_bool().unwrap_or_default(),
        "pause_until": config["pause_until"],
        "created": info["created"],
    })
}

/// `GET streams/NAME/consumers/CONSUMER`: what the broker tells of it, and the oldest message that
/// waits for its acknowledgement.
pub fn info(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    let what = format!("CONSUMER.INFO.{}.{}", name(stream)?, name(consumer)?);
    let mut info = call.broker.ask(&what, &Value::Null)?;
    info["oldest_outstanding"] = oldest_outstanding(call.broker, stream, &info)?;
    Ok(info)
}

/// The first message behind the ack floor: null where there is none, or the user may not read it.
fn oldest_outstanding(broker: &mut Broker, stream: &str, info: &Value) -> Result<Value, Failure> {
    let config = &info["config"];
    let several = config["filter_subjects"].as_array().is_some_and(|all| all.len() > 1);
    if info["num_ack_pending"].as_u64().unwrap_or_default() == 0 || several {
        return Ok(Value::Null);
    }
    let first = config["filter_subjects"].get(0).unwrap_or(&config["filter_subject"]);
    let filter = first.as_str().filter(|filter| !filter.is_empty()).unwrap_or(">");
    let floor = info["ack_floor"]["stream_seq"].as_u64().unwrap_or_default();
    let body = json!({ "seq": floor.saturating_add(1), "next_by_subj": filter });
    match get(broker, stream, &body) {
        Ok(Some(found)) => {
            Ok(json!({ "seq": found.sequence, "time": found.time, "subject": found.subject }))
        }
        Err(failure @ Failure::NotLoggedIn(_)) => Err(failure),
        Ok(None) | Err(_) => Ok(Value::Null),
    }
}

/// `POST streams/NAME/consumers/CONSUMER/reset`: it goes on at the sequence `seq`; without one, behind
/// what was acknowledged.
pub fn reset(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    call.ask.confirms(consumer)?;
    let what = format!("CONSUMER.RESET.{}.{}", name(stream)?, name(consumer)?);
    let body = call.ask.body.seq.map_or_else(|| json!({}), |seq| json!({ "seq": seq }));
    call.change = Some(format!("reset consumer {consumer:?} of stream {stream:?} {body}"));
    call.broker.ask(&what, &body)
}

/// `POST streams/NAME/consumers/CONSUMER/pause`: until a time; none ends the pause.
pub fn pause(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    let what = format!("CONSUMER.PAUSE.{}.{}", name(stream)?, name(consumer)?);
    let until = call.ask.body.until.as_deref().filter(|until| !until.is_empty());
    let (words, body) = match until {
        Some(until) if until.len() > TIME_BYTES_MAX => {
            return Err(Failure::bad("until must be a time"));
        }
        Some(until) => (format!("pause until {until:?}"), json!({ "pause_until": until })),
        None => ("resume".to_owned(), json!({})),
    };
    call.change = Some(format!("{words} of consumer {consumer:?} of stream {stream:?}"));
    call.broker.ask(&what, &body)
}

/// `DELETE streams/NAME/consumers/CONSUMER`.
pub fn delete(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    call.ask.confirms(consumer)?;
    let what = format!("CONSUMER.DELETE.{}.{}", name(stream)?, name(consumer)?);
    call.change = Some(format!("delete consumer {consumer:?} of stream {stream:?}"));
    call.broker.ask(&what, &Value::Null)
}
