//! What people are told of changes of the nodes.

use super::Roster;
use crate::change::{Change, Draining, Replacing, Resizing};
use nuthatch_quorum::types::NodeId;

impl Roster {
    /// What nodes are doing that come or go, for people.
    #[must_use]
    pub fn told(&self, Resizing { nodes, keep }: &Resizing) -> String {
        let names: Vec<String> = nodes.iter().map(|node| self.name(*node)).collect();
        let (names, verb) = (names.join(", "), if nodes.len() == 1 { "is" } else { "are" });
        match keep {
            true => format!("{names} {verb} to keep the logs, too"),
            false => format!("{names} {verb} to leave the logs to the other nodes"),
        }
    }

    /// What people are told of a change that was made; none: it is their own matter, as where a node is.
    #[must_use]
    pub fn told_of(&self, change: &Change) -> Option<String> {
        let name = |node: &NodeId| self.name(*node);
        Some(match change {
            Change::Join { name, .. } => {
                format!(
                    "node {name} has joined the cluster as a spare: it keeps no log until it takes the place of a node"
                )
            }
            Change::Address { .. } => return None,
            Change::Begin(Replacing { old, new }) => {
                format!("node {} is to take the place of node {}", name(new), name(old))
            }
            Change::Cancel(Replacing { old, new }) => {
                format!(
                    "node {} keeps its place, and node {} is a spare again",
                    name(old),
                    name(new)
                )
            }
            Change::Swap(Replacing { old, new }) => {
                format!(
                    "node {} has taken the place of node {}, which was removed",
                    name(new),
                    name(old)
                )
            }
            Change::Resize(wanted) => self.told(wanted),
            Change::Resized(Resizing { nodes, keep }) => {
                let names: Vec<String> = nodes.iter().map(name).collect();
                let names = names.join(", ");
                match keep {
                    true => format!("{names}: now among the nodes that keep the logs"),
                    false => format!("{names}: no log is there any more, spare from now on"),
                }
            }
            Change::Drain(Draining { node, drain: true }) => {
                format!("node {} is drained: it is to own no log while others can", name(node))
            }
            Change::Drain(Draining { node, drain: false }) => {
                format!("node {} is drained no more: it may own logs again", name(node))
            }
            Change::Finalize { active, .. } => format!(
                "the cluster speaks protocol {active} from now on: programs that do not know it can be no nodes of it any more"
            ),
            Change::Leave(node) => format!("the spare {} was removed", name(node)),
            Change::Disk { node, .. } => {
                format!("node {} takes part in the catalog with another disk", node.0)
            }
        })
    }
}
