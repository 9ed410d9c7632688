//! JSON as Go writes it: members that are `null` are as good as absent.

use crate::error::ArchiveError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a document; `place` says which, for the error.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], place: &str) -> Result<T, ArchiveError> {
    let damaged = |error: serde_json::Error| ArchiveError::damaged(place, error.to_string());
    let mut value: Value = serde_json::from_slice(bytes).map_err(damaged)?;
    drop_nulls(&mut value);
    serde_json::from_value(value).map_err(damaged)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
