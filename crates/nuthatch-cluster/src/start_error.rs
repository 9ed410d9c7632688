//! Why a node of a cluster does not start.

use crate::catalog::CatalogError;
use crate::config::ConfigError;
use nuthatch_catalog_group::Protocol;
use nuthatch_catalog_group::founding::FoundingError;
use nuthatch_object::OpenUrlError;
use std::io;
use std::net::SocketAddr;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot be set up so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The keeper's directory cannot be used.
    #[error("the keeper's directory {dir}: {source}")]
    Directory {
        /// Which one.
        dir: String,
        /// Why not.
        source: io::Error,
    },
    /// Another process uses the keeper's directory.
    #[error("the keeper's directory {dir} is used by another process")]
    Locked {
        /// Which one.
        dir: String,
    },
    /// The catalog has no address.
    #[error("the catalog: {0}")]
    Address(#[from] OpenUrlError),
    /// etcd cannot be used as it is set up.
    #[cfg(feature = "etcd")]
    #[error("the catalog: {0}")]
    Etcd(#[from] nuthatch_etcd::OpenError),
    /// This build knows no etcd.
    #[error(
        "the catalog: this build has no etcd: choose another catalog, or build with `cargo build --release --features \
         etcd` (release artefacts have it)"
    )]
    NoEtcd,
    /// The bucket of the logs does not say whose it is.
    #[error("{store}, the bucket of the logs, does not say whose it is: {why}")]
    Store {
        /// Its address.
        store: String,
        /// Why not.
        why: String,
    },
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The node cannot belong to the cluster.
    #[error(transparent)]
    Founding(#[from] FoundingError),
    /// The node was removed from its cluster.
    #[error("{}", removed_text(name, by.as_deref(), dir))]
    Removed {
        /// The node.
        name: String,
        /// The one that took its place, if one did.
        by: Option<String>,
        /// Its directory.
        dir: String,
    },
    /// The cluster does not take the node.
    #[error("this node cannot join the cluster: {why}")]
    Refused {
        /// Why not.
        why: String,
    },
    /// The cluster has gone on to what this program does not know.
    #[error("{}", too_old_text(*active, *newest))]
    TooOld {
        /// What its nodes speak.
        active: Protocol,
        /// The newest that this one may.
        newest: Protocol,
    },
    /// The node's port cannot be listened on.
    #[error("listening for nodes on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It was ended before it had begun.
    #[error("the node was ended before it had begun")]
    Ended,
    /// The system refused something basic.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// What people are told who start an old program as a node of a cluster that has gone on.
pub(crate) fn too_old_text(active: Protocol, newest: Protocol) -> String {
    format!(
        "the cluster was finalized for protocol {active} (nuthatch cluster finalize), and this program may speak {newest} at \
         most (its own newest is {}, and --protocol-max may keep it below that): start a newer program, or leave --protocol-max \
         out",
        Protocol::NEWEST
    )
}

/// What people are told whose node was removed.
pub(crate) fn removed_text(name: &str, by: Option<&str>, dir: &str) -> String {
    let by = by.map_or_else(String::new, |by| format!(": node {by} has taken its place"));
    format!(
        "node {name} was removed from the cluster{by}. It takes no part any more, and nothing was deleted: what it had is \
         in {dir}. To have this machine in the cluster again start it with an empty directory and another --node-name"
    )
}
