//! Why a request had no success, and whether to try again.

use object_store::Error;
use std::io;

/// Why a request had no success.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// There is no such object (or bucket).
    #[error("{key} is not there")]
    NotFound {
        /// Its key.
        key: String,
    },
    /// A conditional creation found an object.
    #[error("{key} exists already")]
    Exists {
        /// Its key.
        key: String,
    },
    /// The store refused for good, or did not answer for as long as is waited.
    #[error("{operation} of {key} failed: {source}")]
    Failed {
        /// The operation that failed.
        operation: &'static str,
        /// The key.
        key: String,
        /// The store's answer.
        source: Error,
    },
    /// The bucket is being closed.
    #[error("the store is being closed")]
    Closed,
}

/// An attempt took longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("no answer in time")]
pub struct TimedOut;

impl BucketError {
    /// True if the store refused who asks, or what was asked: asked again it does so again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        let Self::Failed { source, .. } = self else { return false };
        use Error::{NotImplemented, NotSupported, PermissionDenied, Unauthenticated};
        matches!(
            source,
            PermissionDenied { .. }
                | Unauthenticated { .. }
                | NotSupported { .. }
                | NotImplemented { .. }
        )
    }
}

impl From<BucketError> for io::Error {
    fn from(error: BucketError) -> Self {
        let kind = match &error {
            BucketError::NotFound { .. } => io::ErrorKind::NotFound,
            BucketError::Exists { .. } => io::ErrorKind::AlreadyExists,
            BucketError::Failed { source, .. } => match source {
                Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                    io::ErrorKind::PermissionDenied
                }
                _ => io::ErrorKind::Other,
            },
            BucketError::Closed => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// After a conditional creation and a look at the key, which is free: an answer that said it was
/// taken was about something that has passed (a raw 409 of a store under contention).
pub fn unsettled(error: BucketError, key: &str) -> BucketError {
    match error {
        BucketError::Exists { .. } => {
            let source: Box<dyn std::error::Error + Send + Sync> =
                "the store answered that it exists, but it does not".into();
            failed("create", key, Error::Generic { store: "store", source })
        }
        other => other,
    }
}

/// The error of a request.
pub fn failed(operation: &'static str, key: &str, source: Error) -> BucketError {
    let key = key.to_owned();
    match source {
        Error::NotFound { .. } => BucketError::NotFound { key },
        Error::AlreadyExists { .. } | Error::Precondition { .. } => BucketError::Exists { key },
        source => BucketError::Failed { operation, key, source },
    }
}

/// True if a retry may help: for every error that is not plainly an answer about the request.
pub fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { .. } | Error::JoinError { .. })
}
