//! The catalog of a node, wherever its transactions are ordered.

use crate::catalog::{CatalogError, NumberedCatalog};
use crate::group::GroupCatalog;
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::{Call, CatalogReply};
use parking_lot::Mutex;
use std::sync::Arc;

/// A catalog of either kind.
pub enum AnyCatalog {
    /// In a bucket, in a directory that all nodes share, or in etcd. The cores of the log ask it, and who has the log follow
    /// the roster.
    Numbered(Arc<Mutex<NumberedCatalog>>),
    /// Kept by the nodes themselves.
    Group(GroupCatalog),
}

impl AnyCatalog {
    /// Answers one call.
    ///
    /// # Errors
    /// As [`NumberedCatalog::call`].
    pub fn call(&mut self, call: &Call, disk: &dyn Disk) -> Result<CatalogReply, CatalogError> {
        match self {
            Self::Numbered(catalog) => catalog.lock().call(call, disk),
            Self::Group(catalog) => catalog.call(call, disk),
        }
    }
}
