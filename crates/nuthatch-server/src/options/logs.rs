//! Reads `logs` of `jetstream`.

use super::jetstream::sync_policy;
use super::read::Reader;
use super::tables::LOG;
use super::{LogHome, NamedLog};
use nuthatch_protocol::config::{Map, Value};
use std::path::PathBuf;

/// Names that the server gives to its own logs.
const RESERVED: [&str; 2] = ["default", "memory"];

/// Logs of one server.
pub const MAX_LOGS: usize = 64;

/// The logs of the block, those that make no sense reported and left out.
pub(super) fn read(r: &mut Reader, map: &Map) -> Vec<NamedLog> {
    let mut logs = Vec::new();
    for entry in map.entries() {
        if logs.len() == MAX_LOGS {
            r.invalid(&entry.value.pos, "logs", "cannot be more than 64");
            break;
        }
        if let Some(log) = one(r, &entry.key, &entry.value) {
            logs.push(log);
        }
    }
    logs
}

fn one(r: &mut Reader, name: &str, value: &Value) -> Option<NamedLog> {
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

#[derive(Default)]
struct Draft {
    object: Option<bool>,
    store: Option<String>,
    dir: Option<PathBuf>,
    sync: Option<super::SyncPolicy>,
}

impl Draft {
    fn set(&mut self, r: &mut Reader, key: &str, value: &Value) {
        match key {
            "mode" => {
                let mode = r.choice(key, value, &["local", "object"], "'local' or 'object'");
                self.object = mode.map(|mode| mode == 1);
            }
            "store" => self.store = r.word(key, value).map(str::to_owned),
            "dir" => self.dir = r.word(key, value).map(PathBuf::from),
            "sync_interval" => self.sync = sync_policy(r, key, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    }

    fn finish(self, r: &mut Reader, name: &str, value: &Value) -> Option<NamedLog> {
        let object = self.object.unwrap_or(self.store.is_some());
        let wrong = match (object, &self.store, &self.dir, self.sync) {
            (true, None, ..) => Some("of mode 'object' needs 'store', the address of its bucket"),
            (true, _, Some(_), _) => Some("of mode 'object' has no 'dir'"),
            (true, _, _, Some(_)) => Some(
                "of mode 'object' has no 'sync_interval': what is acknowledged is in the bucket",
            ),
            (false, Some(_), ..) => Some("of mode 'local' has no 'store'"),
            _ => None,
        };
        if let Some(what) = wrong {
            r.invalid(&value.pos, name, what);
            return None;
        }
        let home = match self.store {
            Some(address) => LogHome::Bucket(address),
            None => LogHome::Directory(self.dir),
        };
        Some(NamedLog { name: name.to_owned(), home, sync: self.sync })
    }
}
