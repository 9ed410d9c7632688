//! Key-value buckets: streams named `KV_…` whose subjects are keys.

use serde_json::{Value, json};

use super::Call;
use super::messages::{Stored, get};
use crate::ask::needed;
use crate::bounds::{HISTORY_BYTES_MAX, HISTORY_MAX, KEYS_MAX, PREVIEW_BYTES, SUBJECT_BYTES_MAX};
use crate::broker::{Broker, name};
use crate::failure::Failure;

/// What the names of their streams begin with.
pub const STREAM_PREFIX: &str = "KV_";

/// The header that tells a deletion from a value.
const OPERATION: &str = "KV-Operation";
/// Bytes of a value that the page of a key shows.
const VALUE_BYTES_MAX: usize = 1024 * 1024;

/// `GET kv/BUCKET/keys?search=&order=&offset=&limit=`.
pub fn keys(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let bucket = name(bucket)?;
    let stream = format!("{STREAM_PREFIX}{bucket}");
    let (offset, limit) = call.ask.rows()?;
    let (mut keys, more) = all(call.broker, bucket, &stream)?;
    let search = call.ask.search();
    keys.retain(|key| key.to_lowercase().contains(&search));
    keys.sort_unstable();
    if call.ask.query("order") == Some("desc") {
        keys.reverse();
    }
    let total = keys.len();
    let mut rows = Vec::new();
    for key in keys.iter().skip(offset).take(limit) {
        let body = json!({ "last_by_subj": format!("$KV.{bucket}.{key}") });
        if let Some(stored) = get(call.broker, &stream, &body)? {
            rows.push(revision(&stored, key, PREVIEW_BYTES));
        }
    }
    Ok(json!({ "total": total, "offset": offset, "more_than_looked_at": more, "rows": rows }))
}

/// Keys of a bucket, deleted ones included; and whether there are more.
fn all(broker: &mut Broker, bucket: &str, stream: &str) -> Result<(Vec<String>, bool), Failure> {
    let prefix = format!("$KV.{bucket}.");
    let (mut keys, mut offset) = (Vec::new(), 0);
    loop {
        let body = json!({ "subjects_filter": format!("{prefix}>"), "offset": offset });
        let info = broker.ask(&format!("STREAM.INFO.{stream}"), &body)?;
        let Some(subjects) = info["state"]["subjects"].as_object().filter(|map| !map.is_empty())
        else {
            return Ok((keys, false));
        };
        offset += subjects.len();
        let found = subjects.keys().filter_map(|subject| subject.strip_prefix(&prefix));
        keys.extend(found.map(str::to_owned));
        let total = info["total"].as_u64().unwrap_or_default();
        if offset as u64 >= total || keys.len() >= KEYS_MAX {
            return Ok((keys, (offset as u64) < total));
        }
    }
}

fn revision(stored: &Stored, key: &str, bytes_max: usize) -> Value {
    let mut shown = stored.show(bytes_max);
    shown["key"] = key.into();
    let marked = stored.header("Nats-Marker-Reason").map(|_| "DEL");
    shown["operation"] = stored.header(OPERATION).or(marked).unwrap_or("PUT").into();
    shown
}

/// `GET kv/BUCKET/entry?key=&revision=`: the newest value, and as much of the older ones as
/// a list shows, the newest first. With `revision`, that one alone and whole.
pub fn entry(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let key = call.ask.query("key").ok_or_else(|| Failure::bad("key is missing"))?;
    let (bucket, subject) = (name(bucket)?, subject(bucket, key)?);
    let stream = format!("{STREAM_PREFIX}{bucket}");
    let missing = || Failure::NotFound(format!("key {key:?}"));
    if let Some(sequence) = call.ask.number("revision")? {
        let body = json!({ "seq": sequence, "next_by_subj": subject });
        let found = get(call.broker, &stream, &body)?.filter(|found| found.sequence == sequence);
        return Ok(revision(&found.ok_or_else(missing)?, key, VALUE_BYTES_MAX));
    }
    let body = json!({ "last_by_subj": subject });
    let newest = get(call.broker, &stream, &body)?.ok_or_else(missing)?;
    let mut history = vec![revision(&newest, key, VALUE_BYTES_MAX)];
    let (mut sequence, mut bytes) = (1, 0);
    while history.len() < HISTORY_MAX && bytes < HISTORY_BYTES_MAX {
        let body = json!({ "seq": sequence, "next_by_subj": subject });
        let found = get(call.broker, &stream, &body)?;
        let Some(stored) = found.filter(|found| found.sequence < newest.sequence) else { break };
        sequence = stored.sequence.saturating_add(1);
        bytes += stored.bytes();
        history.insert(1, revision(&stored, key, PREVIEW_BYTES));
    }
    Ok(json!({ "key": key, "history": history, "is_whole": bytes < HISTORY_BYTES_MAX }))
}

/// `PUT kv/BUCKET/entry`: `key`, `data` in base64; with `revision` only if that is the newest.
pub fn put(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let (key, data) = (needed(&call.ask.body.key, "key")?, call.ask.bytes()?);
    let subject = subject(bucket, key)?;
    call.change = Some(format!("put key {key:?} of bucket {bucket:?}"));
    write(call, &subject, &[], &data)
}

/// `DELETE kv/BUCKET/entry`: `key`; with `purge` its history goes too.
pub fn delete(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let key = needed(&call.ask.body.key, "key")?;
    let subject = subject(bucket, key)?;
    call.ask.confirms(key)?;
    let purge = call.ask.body.purge.unwrap_or_default();
    let word = if purge { "purge" } else { "delete" };
    call.change = Some(format!("{word} key {key:?} of bucket {bucket:?}"));
    match purge {
        true => write(call, &subject, &[(OPERATION, "PURGE"), ("Nats-Rollup", "sub")], b""),
        false => write(call, &subject, &[(OPERATION, "DEL")], b""),
    }
}

fn write(
    call: &mut Call<'_>,
    subject: &str,
    headers: &[(&str, &str)],
    data: &[u8],
) -> Result<Value, Failure> {
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let mut pairs: Vec<(String, String)> = headers.iter().map(own).collect();
    if let Some(revision) = call.ask.body.revision {
        pairs.push(("Nats-Expected-Last-Subject-Sequence".to_owned(), revision.to_string()));
    }
    let block = super::publish::headers(&pairs)?;
    let ack = call.broker.ask_at(subject, &block, data)?;
    Ok(json!({ "revision": ack["seq"] }))
}

fn subject(bucket: &str, key: &str) -> Result<String, Failure> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || "-/_=.".contains(c);
    let is_key = !key.is_empty()
        && key.chars().all(is_sound)
        && !key.starts_with('.')
        && !key.ends_with('.')
        && !key.contains("..")
        && key.len() <= SUBJECT_BYTES_MAX;
    match is_key {
        true => Ok(format!("$KV.{}.{key}", name(bucket)?)),
        false => {
            Err(Failure::bad(format!("{key:?} is no key: letters, digits and - / _ = . make one")))
        }
    }
}
