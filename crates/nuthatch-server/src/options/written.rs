//! What a configuration file says, and where: for whoever looks at a server.

use std::path::Path;

use nuthatch_protocol::config::{Map, Node, Value, parse};

use super::load::{FileLoader, read_limited};

/// Settings that are listed at most.
pub const WRITTEN_MAX: usize = 2_000;
/// Below keys with these in their names values are secrets.
const SECRET: &[&str] =
    &["pass", "token", "secret", "seed", "header", "jwt", "cred", "user", "url", "preload"];

/// Settings whose values are secrets although many with such names are not.
const SECRET_KEYS: &[&str] =
    &["key", "ek", "encryption_key", "prev_key", "prev_ek", "prev_encryption_key"];

/// A setting of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its keys from the outermost one, with dots between: `jetstream.store_dir`.
    pub key: String,
    /// Where it is: file, line and column.
    pub place: String,
    /// Its value, of simple ones that hold no secret.
    pub value: Option<String>,
}

/// The settings of a file and of those that it includes, as they are written now.
///
/// # Errors
/// A sentence: it cannot be read.
pub fn written(file: &Path) -> Result<Vec<Written>, String> {
    let name = file.to_string_lossy();
    let text = read_limited(file).map_err(|why| format!("{name}: {why}"))?;
    let map = parse(&name, &text, &mut FileLoader).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    collect(&map, "", &mut found);
    Ok(found)
}

fn collect(map: &Map, above: &str, found: &mut Vec<Written>) {
    for entry in map.entries() {
        if found.len() >= WRITTEN_MAX {
            return;
        }
        let key = match above {
            "" => entry.key.clone(),
            above => format!("{above}.{}", entry.key),
        };
        match &entry.value.node {
            Node::Map(inner) if !inner.is_empty() => collect(inner, &key, found),
            _ => {
                let value = shown(&key, &entry.value);
                found.push(Written { key, place: entry.key_pos.to_string(), value });
            }
        }
    }
}

fn shown(key: &str, value: &Value) -> Option<String> {
    let key = key.to_ascii_lowercase();
    let name = key.rsplit('.').next().unwrap_or_default();
    if SECRET.iter().any(|word| key.contains(word)) || SECRET_KEYS.contains(&name) {
        return None;
    }
    match (&value.written, &value.node) {
        (Some(written), _) => Some(written.to_string()),
        (None, Node::Bool(on)) => Some(on.to_string()),
        (None, Node::Int(number)) => Some(number.to_string()),
        (None, Node::Float(number)) => Some(number.to_string()),
        (None, Node::Str(text) | Node::DateTime(text)) => Some(text.clone()),
        (None, Node::Array(_) | Node::Map(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_places_and_no_secrets() {
        let dir = std::env::temp_dir().join(format!("nuthatch-written-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("a.conf");
        let text = "port: 4333\njetstream {\n  store_dir: \"/data\", sync_interval: 2m, prev_key: s3cret\n}\n\
                    authorization { token: s3cret }\naccounts { A { users: [{user: a, password: b}] } }\n\
                    include b.conf\n";
        std::fs::write(&file, text).unwrap();
        std::fs::write(dir.join("b.conf"), "http: 8222").unwrap();
        let found = written(&file).unwrap();
        let missing = written(&dir.join("c.conf")).unwrap_err();
        std::fs::remove_dir_all(&dir).unwrap();
        let rows: Vec<_> = found
            .iter()
            .map(|w| {
                let place = w.place.rsplit('/').next().unwrap();
                (w.key.as_str(), place, w.value.as_deref())
            })
            .collect();
        let expected = [
            ("port", "a.conf:1:1", Some("4333")),
            ("jetstream.store_dir", "a.conf:3:3", Some("/data")),
            ("jetstream.sync_interval", "a.conf:3:23", Some("2m")),
            ("jetstream.prev_key", "a.conf:3:42", None),
            ("authorization.token", "a.conf:5:17", None),
            ("accounts.A.users", "a.conf:6:16", None),
            ("http", "b.conf:1:1", Some("8222")),
        ];
        assert_eq!(rows, expected);
        assert!(missing.contains("no such file"), "{missing}");
    }
}
