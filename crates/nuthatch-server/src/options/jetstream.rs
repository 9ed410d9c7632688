//! Reads `jetstream` and `store_dir`.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_log::{Cipher, Key};
use nuthatch_protocol::config::{Map, Node, Value};

use super::draft::Draft;
use super::error::ProblemKind;
use super::read::ConfigReader;
use super::tables::{BATCH_LIMITS, JETSTREAM, JETSTREAM_LIMITS};
use super::{BatchOptions, Compression, JetStreamLimits, JetStreamOptions, SyncPolicy, logs};

/// Most messages of an atomic batch that may be asked for: a replay holds the headers of all.
const BATCH_MESSAGES_MAX: u32 = 65_536;

/// `true`, `enabled` or a block.
pub(super) fn jetstream(r: &mut ConfigReader, value: &Value, draft: &mut Draft) {
    if let Some(on) = switch(r, "jetstream", value) {
        draft.jetstream = Some(on);
        return;
    }
    let Node::Map(map) = &value.node else { return };
    draft.jetstream = Some(true);
    let mut cipher_at = None;
    r.walk(&JETSTREAM, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "enabled" => draft.jetstream = r.boolean(key, value).or(draft.jetstream),
            "store_dir" => store_dir(r, &entry.key, value, draft),
            "store" => match r.word(key, value) {
                Some(address) if address.contains("://") => {
                    draft.options.jetstream.store = Some(address.to_owned());
                }
                // nats-server calls its directory so as well.
                _ => store_dir(r, &entry.key, value, draft),
            },
            "tier" => draft.options.jetstream.tier = logs::tier(r, key, value),
            "cache" => draft.options.jetstream.cache = logs::cache(r, key, value),
            "quorum" => {
                if let Some(map) = r.map(key, value) {
                    draft.cluster.quorum(r, map);
                }
            }
            "logs" => {
                if let Some(map) = r.map(key, value) {
                    draft.options.jetstream.logs = logs::read(r, map);
                }
            }
            "cipher" => {
                cipher_at = Some(value.pos.clone());
                let keys = &mut draft.options.jetstream.keys;
                keys.cipher = cipher(r, key, value).unwrap_or_default();
            }
            _ => setting(r, key, value, &mut draft.options.jetstream),
        }
    });
    if let Some(at) = cipher_at
        && draft.options.jetstream.keys.current.is_none()
    {
        r.invalid(&at, "cipher", "is given without 'key', so nothing would be encrypted with it");
    }
}

/// A key of encryption at rest.
fn encryption_key(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Key> {
    r.word(key, value).and_then(|text| Key::of_text(text.as_bytes()))
}

fn cipher(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Cipher> {
    let words = &["chacha", "chachapoly", "aes", "aesgcm"];
    let chosen = r.choice(key, value, words, "'chacha', 'chachapoly', 'aes' or 'aesgcm'")?;
    Some(if chosen < 2 { Cipher::ChaCha20Poly1305 } else { Cipher::Aes256Gcm })
}

/// Reads a boolean or one of the words `enabled` and `disabled`; a map is left to the caller.
pub(super) fn switch(r: &mut ConfigReader, key: &str, value: &Value) -> Option<bool> {
    let words = &["enabled", "enable", "disabled", "disable"];
    match &value.node {
        Node::Bool(on) => Some(*on),
        Node::Str(_) => {
            let wanted = "'enabled' or 'disabled'";
            r.choice(key, value, words, wanted).map(|word| word < 2)
        }
        Node::Map(_) => None,
        other => {
            let (key, found) = (key.to_owned(), other.type_name());
            let wanted = "true, false, 'enabled', 'disabled' or a map";
            r.problem(&value.pos, ProblemKind::WrongType { key, wanted, found, advice: None });
            None
        }
    }
}

/// `store_dir`, which may be at the top level or in `jetstream` and not in both.
pub(super) fn store_dir(r: &mut ConfigReader, key: &str, value: &Value, draft: &mut Draft) {
    let Some(dir) = r.word(key, value) else { return };
    if draft.store_dir.is_some() {
        let what = "is given twice: keep one, at the top level or in 'jetstream'";
        r.invalid(&value.pos, key, what);
        return;
    }
    draft.store_dir = Some(PathBuf::from(dir));
}

fn setting(r: &mut ConfigReader, key: &'static str, value: &Value, js: &mut JetStreamOptions) {
    match key {
        "strict" => js.strict = r.boolean(key, value).unwrap_or(js.strict),
        "unique_tag" => {
            let tag = r.word(key, value).map(|tag| tag.trim().to_lowercase());
            js.unique_tag = tag.filter(|tag| !tag.is_empty());
        }
        "sync_interval" => js.sync = sync_policy(r, key, value).unwrap_or(js.sync),
        "compression" => js.compression = compression(r, key, value),
        "key" => js.keys.current = encryption_key(r, key, value),
        "prev_key" => js.keys.previous = encryption_key(r, key, value).into_iter().collect(),
        "max_memory_store" => {
            js.max_memory_bytes = r.limit(key, value, false).unwrap_or_default();
        }
        "max_file_store" => js.max_store_bytes = r.limit(key, value, false).unwrap_or_default(),
        "domain" => js.domain = r.word(key, value).and_then(|d| domain(r, value, d)),
        "limits" => {
            if let Some(map) = r.map(key, value) {
                limits(r, map, &mut js.limits);
            }
        }
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

/// A domain is a token of API subjects.
fn domain(r: &mut ConfigReader, value: &Value, domain: &str) -> Option<String> {
    if domain.contains(['.', '*', '>']) || domain.contains(char::is_whitespace) {
        r.invalid(&value.pos, "domain", "cannot hold '.', '*', '>' or spaces");
        return None;
    }
    Some(domain.to_owned())
}

/// `compression` of a log.
pub(super) fn compression(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Compression> {
    let chosen = r.choice(key, value, &["none", "zstd"], "'none' or 'zstd'")?;
    Some(if chosen == 0 { Compression::None } else { Compression::Zstd })
}

pub(super) fn sync_policy(r: &mut ConfigReader, key: &str, value: &Value) -> Option<SyncPolicy> {
    if let Node::Str(text) = &value.node
        && let Some(policy) = sync_word(text)
    {
        return Some(policy);
    }
    r.duration(key, value).map(sync_every)
}

/// `always` and `never`.
pub(super) fn sync_word(text: &str) -> Option<SyncPolicy> {
    match text.to_ascii_lowercase().as_str() {
        "always" => Some(SyncPolicy::Always),
        "never" => Some(SyncPolicy::Never),
        _ => None,
    }
}

/// An interval of nothing is always.
pub(super) fn sync_every(interval: Duration) -> SyncPolicy {
    if interval.is_zero() { SyncPolicy::Always } else { SyncPolicy::Every(interval) }
}

fn limits(r: &mut ConfigReader, map: &Map, limits: &mut JetStreamLimits) {
    r.walk(&JETSTREAM_LIMITS, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "max_ack_pending" => {
                limits.max_ack_pending = r.count(key, value, true).unwrap_or_default();
            }
            "max_request_batch" => {
                limits.max_request_batch = r.count(key, value, true).unwrap_or_default();
            }
            "default_max_consumers" => match r.count(key, value, false) {
                Some(Some(0)) | None => {}
                Some(count) => limits.default_max_consumers = count,
            },
            "duplicate_window" => {
                limits.duplicate_window = r.duration(key, value).filter(|d| !d.is_zero());
            }
            "batch" => {
                if let Some(map) = r.map(key, value) {
                    batch_limits(r, map, &mut limits.batch);
                }
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
}

fn batch_limits(r: &mut ConfigReader, map: &Map, limits: &mut BatchOptions) {
    r.walk(&BATCH_LIMITS, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "max_inflight_per_stream" => {
                limits.per_stream = r.count(key, value, true).unwrap_or_default();
            }
            "max_inflight_total" => limits.total = r.count(key, value, true).unwrap_or_default(),
            "max_msgs" => {
                limits.messages = r.count(key, value, true).unwrap_or_default();
                if limits.messages.is_some_and(|messages| messages > BATCH_MESSAGES_MAX) {
                    r.invalid(&value.pos, key, "can be 65536 at most");
                }
            }
            "timeout" => limits.timeout = r.duration(key, value).filter(|d| !d.is_zero()),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
}
