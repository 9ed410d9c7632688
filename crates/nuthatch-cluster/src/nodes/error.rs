//! Why nodes are not changed.

use crate::change_nodes::ChangeError;
use crate::host::NotWished;
use nuthatch_catalog_group::Protocol;

/// Why the nodes of a cluster are not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodesError {
    /// There is no such node.
    #[error("the cluster has no node {name}: its nodes are {nodes}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// Those that there are.
        nodes: String,
    },
    /// There is no such log.
    #[error("the cluster has no quorum log {name}: its logs are {logs}")]
    NoSuchLog {
        /// The name.
        name: String,
        /// Those that there are.
        logs: String,
    },
    /// The node is to keep no copy of the log.
    #[error(
        "node {name} is to keep no copy of the log, so it cannot own it: it is a spare, or about to be one"
    )]
    KeepsNoCopy {
        /// The node.
        name: String,
    },
    /// The node is to own nothing.
    #[error(
        "node {name} is drained, so it is to own no log: take that back first (`nuthatch cluster undrain {name}`)"
    )]
    Drained {
        /// The node.
        name: String,
    },
    /// Nodes may run programs that do not know that owners are named, and pass the log to and fro.
    #[error(
        "the cluster speaks protocol {active}, and owners of logs are named from protocol {} on: when all nodes run this \
         program, `nuthatch cluster finalize` has them speak it",
        Protocol::OWNERS_NAMED
    )]
    NotFinalized {
        /// What it speaks.
        active: Protocol,
    },
    /// The catalog does not answer.
    #[error(transparent)]
    NotWished(NotWished),
    /// What a node holds is given up only where it keeps no logs any more.
    #[error(
        "node {name} is to keep the logs: say first who takes its place (`nuthatch cluster replace {name}`), or start it, with \
         an empty directory if its own is lost"
    )]
    KeepsItsPlace {
        /// The node.
        name: String,
    },
    /// So it has what it holds.
    #[error(
        "node {name} was heard within 3 s, or this node has just started and may not have heard it yet: only what a node held \
         that is gone is given up"
    )]
    IsThere {
        /// The node.
        name: String,
    },
    /// So this node may be the one that is cut off.
    #[error(
        "node {name} keeps the logs, and this node does not hear it: what another one held is given up only where all that stay \
         are heard. Ask again when {name} is back, or ask a node that hears it"
    )]
    Unheard {
        /// The node.
        name: String,
    },
    /// There is nobody to take the place.
    #[error(
        "the cluster has no spare that could take the place of {name}: start another node with an empty directory, a \
         --node-name of its own and --routes to the nodes that there are, and try again"
    )]
    NoSpare {
        /// The node that was to go.
        name: String,
    },
    /// Another node is being replaced.
    #[error(
        "{new} is taking the place of {old}: one replacement at a time, try again when that is done"
    )]
    Busy {
        /// The node that goes.
        old: String,
        /// The one that takes its place.
        new: String,
    },
    /// Nobody is taking the place of the node.
    #[error("no replacement of {name} is under way: it keeps its place")]
    NotReplaced {
        /// The node.
        name: String,
    },
    /// The replacement is over.
    #[error("{name} was removed from the cluster already, which cannot be taken back")]
    Removed {
        /// The node.
        name: String,
    },
    /// The node that is to be drained is none any more.
    #[error("{name} was removed from the cluster: it owns nothing")]
    Gone {
        /// The node.
        name: String,
    },
    /// It is not known what a node speaks.
    #[error(
        "node {name} is not connected, and nobody knows which program it comes back with: start it, or remove it \
         (nuthatch cluster replace), and try again"
    )]
    VersionUnknown {
        /// The node.
        name: String,
    },
    /// It is not what all nodes know.
    #[error(
        "the cluster is to be finalized for protocol {asked}, and the newest that all nodes know is {all_know} now: look \
         again (nuthatch cluster status)"
    )]
    OtherProtocol {
        /// What was asked for.
        asked: Protocol,
        /// What all know.
        all_know: Protocol,
    },
    /// The catalog refuses it, or does not answer.
    #[error(transparent)]
    Change(#[from] ChangeError),
}
