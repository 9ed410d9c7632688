//! What a node says of itself to the others, for an account.

use serde::{Deserialize, Serialize};

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// Names of the logs that it serves.
    pub logs: Vec<String>,
    /// Those of them that are on this node only, and on a disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_logs: Vec<OwnLog>,
    /// Its tags (`server_tags`); `None`: its version tells none, and begins no log for streams that tags place on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The epoch in which it decides about new streams; `None`: it does not.
    pub leads_in: Option<u64>,
    /// How many clients of the account are connected there, if the account has a limit of them or of leaf nodes: either is
    /// one for all nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections: usize,
    /// How many leaf nodes of the account are, likewise.
    #[serde(skip_serializing_if = "is_zero")]
    pub leafs: usize,
}

/// A log that is on one node only. Another one may come under its name, on another disk, with another identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnLog {
    /// Its name.
    pub name: String,
    /// Its identity, which it was given when it began.
    pub identity: u64,
}

impl NodeState {
    /// True if they differ in how many are connected at most.
    pub(super) fn is_but_for_counts(&self, other: &Self) -> bool {
        (&self.logs, &self.own_logs, &self.tags, self.leads_in)
            == (&other.logs, &other.own_logs, &other.tags, other.leads_in)
    }

    /// The log of this name, if it is on this node only.
    pub(super) fn own_log(&self, name: &str) -> Option<&OwnLog> {
        self.own_logs.iter().find(|log| log.name == name)
    }

    /// True if it has the log of this identity.
    pub(super) fn has(&self, identity: u64) -> bool {
        self.own_logs.iter().any(|log| log.identity == identity)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde asks for
fn is_zero(count: &usize) -> bool {
    *count == 0
}
