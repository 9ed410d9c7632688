//! The catalog of a node, wherever its transactions are ordered.

use crate::catalog::{BucketCatalog, CatalogError};
use crate::group::GroupCatalog;
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::{Call, CatalogReply};

/// A catalog of either kind.
pub enum AnyCatalog {
    /// In a bucket, or in a directory that all nodes share.
    Bucket(Box<BucketCatalog>),
    /// Kept by the nodes themselves.
    Group(GroupCatalog),
}

impl AnyCatalog {
    /// Answers one call.
    ///
    /// # Errors
    /// As [`BucketCatalog::call`].
    pub fn call(&mut self, call: &Call, disk: &dyn Disk) -> Result<CatalogReply, CatalogError> {
        match self {
            Self::Bucket(catalog) => catalog.call(call, disk),
            Self::Group(catalog) => catalog.call(call, disk),
        }
    }
}
