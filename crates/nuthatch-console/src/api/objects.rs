//! Objects: streams named `OBJ_…` with chunks and, under the name of each object, what is known of it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};

use super::Call;
use super::messages::get;
use crate::ask::needed;
use crate::bounds::{OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX, OBJECT_PART_BYTES, OBJECTS_MAX};
use crate::broker::{Broker, name};
use crate::failure::Failure;

/// What the names of their streams begin with.
pub const STREAM_PREFIX: &str = "OBJ_";
/// Bytes of a chunk, as other clients choose.
const CHUNK_BYTES: usize = 128 * 1024;
/// Bytes of the random part of a chunk's subject.
const ID_BYTES: usize = 16;
const ROLLUP: &[u8] = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n";

fn meta_subject(bucket: &str, object: &str) -> String {
    format!("$O.{bucket}.M.{}", URL_SAFE.encode(object))
}

/// What is known of an object, deleted ones included.
fn find(broker: &mut Broker, bucket: &str, object: &str) -> Result<Option<Value>, Failure> {
    let body = json!({ "last_by_subj": meta_subject(bucket, object) });
    let Some(stored) = get(broker, &format!("{STREAM_PREFIX}{bucket}"), &body)? else {
        return Ok(None);
    };
    let damaged = |_| Failure::Unavailable(format!("what is known of {object:?} is damaged"));
    let mut meta: Value = serde_json::from_slice(&stored.payload).map_err(damaged)?;
    if meta.is_object() {
        meta["mtime"] = stored.time.into();
    }
    Ok(Some(meta))
}

fn object_name(text: &str) -> Result<&str, Failure> {
    match text.is_empty() || text.len() > OBJECT_NAME_BYTES_MAX {
        true => Err(Failure::bad(format!(
            "the name of an object has 1 to {OBJECT_NAME_BYTES_MAX} bytes"
        ))),
        false => Ok(text),
    }
}

/// `GET objects/BUCKET/files?search=&offset=&limit=`.
pub fn list(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let bucket = name(bucket)?;
    let (offset, limit) = call.ask.rows()?;
    let (mut names, more) = names(call.broker, bucket)?;
    let search = call.ask.search();
    names.retain(|name| name.to_lowercase().contains(&search));
    names.sort_unstable();
    let total = names.len();
    let mut rows = Vec::new();
    for object in names.iter().skip(offset).take(limit) {
        match find(call.broker, bucket, object) {
            Ok(Some(meta)) => rows.push(row(object, &meta)),
            Ok(None) => {}
            Err(Failure::Unavailable(error)) => {
                rows.push(json!({ "name": object, "error": error }))
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(json!({ "total": total, "offset": offset, "more_than_looked_at": more, "rows": rows }))
}

fn row(object: &str, meta: &Value) -> Value {
    json!({
        "name": object,
        "description": meta["description"],
        "size": meta["size"],
        "chunks": meta["chunks"],
        "digest": meta["digest"],
        "time": meta["mtime"],
        "deleted": meta["deleted"].as_bool().unwrap_or_default(),
        "link": meta["options"]["link"],
    })
}

/// Names of the objects of a bucket, deleted ones included; and whether there are more.
fn names(broker: &mut Broker, bucket: &str) -> Result<(Vec<String>, bool), Failure> {
    let prefix = format!("$O.{bucket}.M.");
    let (mut names, mut offset) = (Vec::new(), 0);
    loop {
        let body = json!({ "subjects_filter": format!("{prefix}>"), "offset": offset });
        let info = broker.ask(&format!("STREAM.INFO.{STREAM_PREFIX}{bucket}"), &body)?;
        let Some(subjects) = info["state"]["subjects"].as_object().filter(|map| !map.is_empty())
        else {
            return Ok((names, false));
        };
        offset += subjects.len() as u64;
        let decoded = subjects.keys().filter_map(|subject| {
            let encoded = subject.strip_prefix(&prefix)?;
            String::from_utf8(URL_SAFE.decode(encoded).ok()?).ok()
        });
        names.extend(decoded);
        let total = info["total"].as_u64().unwrap_or_default();
        if offset >= total || names.len() >= OBJECTS_MAX {
            return Ok((names, offset < total));
        }
    }
}

/// `GET objects/BUCKET/part?name=&after=`: bytes of an object, as many as one answer holds, of the
/// chunks behind the sequence `after`.
pub fn part(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let bucket = name(bucket)?;
    let object = object_name(call.ask.query("name").unwrap_or_default())?;
    let meta = find(call.broker, bucket, object)?.filter(|meta| meta["deleted"] != true);
    let meta = meta.ok_or_else(|| Failure::NotFound(format!("object {object:?}")))?;
    if meta["options"]["link"].is_object() {
        return Err(Failure::bad("it is a link to another object"));
    }
    let subject = format!("$O.{bucket}.C.{}", meta["nuid"].as_str().unwrap_or_default());
    let stream = format!("{STREAM_PREFIX}{bucket}");
    let mut after = call.ask.number("after")?.unwrap_or_default();
    let mut bytes = Vec::new();
    let is_last = loop {
        if bytes.len() >= OBJECT_PART_BYTES {
            break false;
        }
        let body = json!({ "seq": after.saturating_add(1), "next_by_subj": subject });
        let Some(chunk) = get(call.broker, &stream, &body)? else { break true };
        after = chunk.sequence;
        bytes.extend_from_slice(&chunk.payload);
    };
    Ok(json!({
        "data": STANDARD.encode(&bytes),
        "after": after,
        "is_last": is_last,
        "size": meta["size"],
        "digest": meta["digest"],
    }))
}

/// `PUT objects/BUCKET/file`: `name`, `data` in base64, `description`. What was there goes when the
/// new one is whole.
pub fn put(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let (bucket, object) = (name(bucket)?, object_name(needed(&call.ask.body.name, "name")?)?);
    let bytes = call.ask.bytes()?;
    if bytes.len() > OBJECT_BYTES_MAX {
        return Err(Failure::TooLarge(OBJECT_BYTES_MAX));
    }
    call.change = Some(format!("put object {object:?} of {} bytes in {bucket:?}", bytes.len()));
    let old = find(call.broker, bucket, object)?.filter(|meta| meta["deleted"] != true);
    let id = id()?;
    let mut meta = json!({
        "name": object, "bucket": bucket, "nuid": id, "size": bytes.len(),
        "chunks": bytes.len().div_ceil(CHUNK_BYTES), "mtime": "0001-01-01T00:00:00Z",
        "digest": format!("SHA-256={}", URL_SAFE.encode(digest(&SHA256, &bytes))),
        "options": { "max_chunk_size": CHUNK_BYTES },
    });
    if let Some(text) = call.ask.body.description.as_ref().filter(|text| !text.is_empty()) {
        meta["description"] = text.as_str().into();
    }
    let chunks = format!("$O.{bucket}.C.{id}");
    let mut send = || {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            call.broker.ask_at(&chunks, b"", chunk)?;
        }
        let body = meta.to_string();
        call.broker.ask_at(&meta_subject(bucket, object), ROLLUP, body.as_bytes())
    };
    if let Err(failure) = send() {
        // The first failure is the one to tell; chunks that stay are harmless.
        let _ = drop_chunks(call.broker, bucket, &meta);
        return Err(failure);
    }
    if let Some(old) = old {
        drop_chunks(call.broker, bucket, &old)?;
    }
    Ok(row(object, &meta))
}

/// `DELETE objects/BUCKET/file`: `name`.
pub fn delete(call: &mut Call<'_>, bucket: &str) -> Result<Value, Failure> {
    let (bucket, object) = (name(bucket)?, object_name(needed(&call.ask.body.name, "name")?)?);
    call.ask.confirms(object)?;
    call.change = Some(format!("delete object {object:?} of {bucket:?}"));
    let found = find(call.broker, bucket, object)?.filter(|meta| meta["deleted"] != true);
    let old = found.ok_or_else(|| Failure::NotFound(format!("object {object:?}")))?;
    let mut gone = old.clone();
    for (field, value) in
        [("size", 0.into()), ("chunks", 0.into()), ("digest", "".into()), ("deleted", true.into())]
    {
        gone[field] = value;
    }
    gone["mtime"] = "0001-01-01T00:00:00Z".into();
    let body = gone.to_string();
    call.broker.ask_at(&meta_subject(bucket, object), ROLLUP, body.as_bytes())?;
    drop_chunks(call.broker, bucket, &old)?;
    Ok(json!({}))
}

fn drop_chunks(broker: &mut Broker, bucket: &str, meta: &Value) -> Result<(), Failure> {
    let id = meta["nuid"].as_str().unwrap_or_default();
    if id.is_empty() || id.contains(['*', '>']) {
        return Ok(());
    }
    let body = json!({ "filter": format!("$O.{bucket}.C.{id}") });
    broker.ask(&format!("STREAM.PURGE.{STREAM_PREFIX}{bucket}"), &body).map(drop)
}

fn id() -> Result<String, Failure> {
    let mut bytes = [0; ID_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::Unavailable("the system gives no random bytes".to_owned()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
