//! Lists of keys whose tokens do not count any more.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Stands for every key.
const ALL: &str = "*";

/// Keys with the time, in seconds since 1970, up to which their tokens are void.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Revocations(pub BTreeMap<String, i64>);

impl Revocations {
    /// True if the token of `key` that was signed at `issued_at` is void.
    #[must_use]
    pub fn covers(&self, key: &str, issued_at: i64) -> bool {
        let covers = |key: &str| self.0.get(key).is_some_and(|until| *until >= issued_at);
        covers(key) || covers(ALL)
    }
}
