//! What a catalog's transactions are ordered in: objects that are created where there is none.

use crate::catalog_error::CatalogError;
use bytes::Bytes;
use nuthatch_object::{Bucket, BucketError};

/// An object of a catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its key, of parts with `/` between them.
    pub key: String,
    /// Its bytes. They never change.
    pub bytes: Bytes,
}

/// Objects that are written once. Calls block, for a time that has a bound; what was written before a call began is seen
/// by it.
pub trait CatalogStore: Send + Sync {
    /// Reads an object; none: there is none of that key.
    ///
    /// # Errors
    /// Of the store.
    fn get(&self, key: &str) -> Result<Option<Bytes>, CatalogError>;

    /// Keys of all objects in the directory `under`, in their order.
    ///
    /// # Errors
    /// Of the store.
    fn list(&self, under: &str) -> Result<Vec<String>, CatalogError>;

    /// Creates an object; false: there is another one of that key. One that is there with the same bytes was created by
    /// this call or by an earlier one whose answer was lost: bytes are unique to what they say. `before` is the object
    /// that this one stands behind; a store that can look at both at a time notices that it was set back.
    ///
    /// # Errors
    /// Of the store: whether the object was or will be created is unknown. [`CatalogError::SetBack`]: it was not.
    fn create(&self, object: &Object, before: Option<&Object>) -> Result<bool, CatalogError>;

    /// Reads the object `next`, which stands behind `before`, and perhaps some of those that follow in its directory, in
    /// the order of their keys. Empty: there is none of that key or behind it.
    ///
    /// # Errors
    /// Of the store, and [`CatalogError::SetBack`] as above.
    fn read_on(&self, before: &Object, next: &str) -> Result<Vec<Object>, CatalogError>;
}

/// A bucket has no way to look at two objects at a time: it is not noticed here that it was set back.
impl CatalogStore for Bucket {
    fn get(&self, key: &str) -> Result<Option<Bytes>, CatalogError> {
        match self.get(key) {
            Err(BucketError::NotFound { .. }) => Ok(None),
            bytes => Ok(Some(bytes?)),
        }
    }

    fn list(&self, under: &str) -> Result<Vec<String>, CatalogError> {
        Ok(self.list(under)?.into_iter().map(|listed| listed.key).collect())
    }

    fn create(&self, object: &Object, _: Option<&Object>) -> Result<bool, CatalogError> {
        match self.create(&object.key, &object.bytes) {
            Err(BucketError::Exists { .. }) => Ok(false),
            made => Ok(made.map(|()| true)?),
        }
    }

    fn read_on(&self, _: &Object, next: &str) -> Result<Vec<Object>, CatalogError> {
        let found = CatalogStore::get(self, next)?;
        Ok(found.map(|bytes| Object { key: next.to_owned(), bytes }).into_iter().collect())
    }
}
