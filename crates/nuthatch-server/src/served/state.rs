//! What a node says of itself to the others, for an account.

use serde::{Deserialize, Serialize};

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// Names of the logs that it serves.
    pub logs: Vec<String>,
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

impl NodeState {
    /// True if they differ in how many are connected at most.
    pub(super) fn is_but_for_counts(&self, other: &Self) -> bool {
        (&self.logs, &self.tags, self.leads_in) == (&other.logs, &other.tags, other.leads_in)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde asks for
fn is_zero(count: &usize) -> bool {
    *count == 0
}
