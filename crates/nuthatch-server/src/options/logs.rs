//! Reads `logs` of `jetstream`.

use super::jetstream::{compression, sync_policy};
use super::read::ConfigReader;
use super::tables::{CACHE, LOG, TIER};
use super::{CacheSettings, Compression, LogStore, NamedLog, TierSettings};
use nuthatch_protocol::config::{Map, Value};
use std::path::PathBuf;

/// Names that the server gives to its own logs.
const RESERVED: [&str; 2] = ["default", "memory"];

/// Logs that a configuration may name: each has threads and caches of its own.
pub const MAX_LOGS: usize = 256;

/// The logs of the block, those that make no sense reported and left out.
pub(super) fn read(r: &mut ConfigReader, map: &Map) -> Vec<NamedLog> {
    let mut logs = Vec::new();
    for entry in map.entries() {
        if logs.len() == MAX_LOGS {
            let what = format!("cannot be more than {MAX_LOGS}");
            r.invalid(&entry.value.pos, "logs", what);
            break;
        }
        if let Some(log) = one(r, &entry.key, &entry.value) {
            logs.push(log);
        }
    }
    logs
}

fn one(r: &mut ConfigReader, name: &str, value: &Value) -> Option<NamedLog> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        let what = "is a name: up to 64 letters, digits, '-' and '_'";
        r.invalid(&value.pos, name, what);
        return None;
    }
    if RESERVED.contains(&name) {
        r.invalid(&value.pos, name, "is the name of one of the server's own logs");
        return None;
    }
    let map = r.map(name, value)?;
    let mut draft = Draft::default();
    r.walk(&LOG, map, |r, key, entry| draft.set(r, key, &entry.value));
    draft.finish(r, name, value)
}

/// A local disk with less for a log is not worth a bucket behind it, and a cache not the trouble.
const LEAST_BYTES: i64 = 8_000_000;

/// `tier {}`.
pub(super) fn tier(r: &mut ConfigReader, key: &str, value: &Value) -> Option<TierSettings> {
    let map = r.map(key, value)?;
    let (mut store, mut after_age, mut local_max_bytes) = (None, None, None);
    r.walk(&TIER, map, |r, key, entry| match key {
        "store" => store = r.word(key, &entry.value).map(str::to_owned),
        "after_age" => after_age = r.duration(key, &entry.value),
        "local_max" => {
            local_max_bytes =
                r.size(key, &entry.value, LEAST_BYTES, i64::MAX).map(i64::cast_unsigned);
        }
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    });
    let Some(store) = store else {
        r.invalid(&value.pos, key, "needs 'store', the address of its bucket");
        return None;
    };
    if after_age.is_none() && local_max_bytes.is_none() {
        r.invalid(&value.pos, key, "needs 'after_age' or 'local_max': what moves there");
        return None;
    }
    Some(TierSettings { store, after_age, local_max_bytes })
}

/// `cache {}`.
pub(super) fn cache(r: &mut ConfigReader, key: &str, value: &Value) -> Option<CacheSettings> {
    let map = r.map(key, value)?;
    let (mut dir, mut max_bytes) = (None, None);
    r.walk(&CACHE, map, |r, key, entry| match key {
        "dir" => dir = r.word(key, &entry.value).map(PathBuf::from),
        "max_bytes" => {
            max_bytes = r.size(key, &entry.value, LEAST_BYTES, i64::MAX).map(i64::cast_unsigned);
        }
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    });
    match (dir, max_bytes) {
        (Some(dir), Some(max_bytes)) => Some(CacheSettings { dir, max_bytes }),
        _ => {
            r.invalid(&value.pos, key, "needs 'dir' and 'max_bytes'");
            None
        }
    }
}

#[derive(Default)]
struct Draft {
    object: Option<bool>,
    tier: Option<TierSettings>,
    cache: Option<CacheSettings>,
    store: Option<String>,
    dir: Option<PathBuf>,
    sync: Option<super::SyncPolicy>,
    compression: Option<Compression>,
}

impl Draft {
    fn set(&mut self, r: &mut ConfigReader, key: &str, value: &Value) {
        match key {
            "mode" => {
                let mode = r.choice(key, value, &["local", "object"], "'local' or 'object'");
                self.object = mode.map(|mode| mode == 1);
            }
            "store" => self.store = r.word(key, value).map(str::to_owned),
            "dir" => self.dir = r.word(key, value).map(PathBuf::from),
            "sync_interval" => self.sync = sync_policy(r, key, value),
            "tier" => self.tier = tier(r, key, value),
            "cache" => self.cache = cache(r, key, value),
            "compression" => self.compression = compression(r, key, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    }

    fn finish(self, r: &mut ConfigReader, name: &str, value: &Value) -> Option<NamedLog> {
        let object = self.object.unwrap_or(self.store.is_some());
        let wrong = match (object, &self.store, &self.dir, self.sync) {
            (true, None, ..) => Some("of mode 'object' needs 'store', the address of its bucket"),
            (true, _, Some(_), _) => Some("of mode 'object' has no 'dir'"),
            (true, _, _, Some(_)) => Some(
                "of mode 'object' has no 'sync_interval': what is acknowledged is in the bucket",
            ),
            (false, Some(_), ..) => Some("of mode 'local' has no 'store'"),
            (true, ..) if self.tier.is_some() => {
                Some("of mode 'object' has no 'tier': all of it is in its bucket")
            }
            (false, ..) if self.cache.is_some() => {
                Some("of mode 'local' has no 'cache': it is on the disk anyway")
            }
            _ => None,
        };
        if let Some(what) = wrong {
            r.invalid(&value.pos, name, what);
            return None;
        }
        let home = match self.store {
            Some(address) => LogStore::Bucket(address),
            None => LogStore::Directory(self.dir),
        };
        let Self { sync, tier, cache, compression, .. } = self;
        Some(NamedLog { name: name.to_owned(), home, sync, compression, tier, cache })
    }
}
