//! Errors of archives.

use std::io;

/// Why an archive, or a store directory, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Reading failed, or whoever brings the archive went away.
    #[error("{0}")]
    Io(io::Error),
    /// Something is not as it was written.
    #[error("damaged: {place}: {what}")]
    Damaged {
        /// The place.
        place: String,
        /// The fault.
        what: String,
    },
    /// Something is larger than is read.
    #[error("{what} of {bytes} bytes; at most {bytes_max} are read")]
    TooLarge {
        /// The item.
        what: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// It is intact, and not what was asked for.
    #[error("{0}")]
    Unsuitable(String),
}

impl ArchiveError {
    pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), what: what.into() }
    }

    /// Refuses what is larger than its bound.
    pub(crate) fn check_size(what: &str, bytes: u64, bytes_max: u64) -> Result<(), Self> {
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Self::TooLarge { what: what.to_owned(), bytes, bytes_max })
    }
}

impl From<io::Error> for ArchiveError {
    /// The readers of this crate are stacked as [`io::Read`]; what one of them found comes out
    /// whole.
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
