//! Why a node of a cluster does not start.

use crate::catalog::CatalogError;
use crate::config::ConfigError;
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
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The node cannot belong to the cluster.
    #[error(transparent)]
    Founding(#[from] FoundingError),
    /// The node's port cannot be listened on.
    #[error("listening for nodes on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The system refused something basic.
    #[error("{0}")]
    System(#[from] io::Error),
}
