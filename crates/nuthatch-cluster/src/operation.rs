//! Operations on the files of a replicated directory. What a log does between two syncs is one entry of
//! the quorum log, whose payload is these operations one after the other.
//!
//! A file has a number that is never given twice; a name is an entry of the directory that points to it. So an
//! operation that is done twice, behind all that follow it, ends in the same directory: what keeps files
//! may be behind the journal after a power cut and is brought forward by doing it again.

use crate::coding::{Malformed, Reader, Writer, malformed};
use nuthatch_quorum::types::Epoch;

/// Number of a file in a replicated directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// An empty file under this name; one that had the name is gone.
    Create {
        /// Its name.
        path: String,
        /// Its number.
        file: FileId,
    },
    /// Bytes at a place of a file.
    Write {
        /// The file.
        file: FileId,
        /// Offset of the first byte.
        at: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The file is cut, or extended with zeros.
    SetLen {
        /// The file.
        file: FileId,
        /// Its length from now on.
        len: u64,
    },
    /// A file gets another name; one that had that is gone.
    Rename {
        /// The name that it had.
        from: String,
        /// The name that it has now.
        to: String,
    },
    /// A file is gone.
    Remove {
        /// Its name.
        path: String,
    },
}

const CREATE: u8 = 1;
const WRITE: u8 = 2;
const SET_LEN: u8 = 3;
const RENAME: u8 = 4;
const REMOVE: u8 = 5;

/// Bytes of an operation beside its names and content, at most.
pub const OPERATION_OVERHEAD: usize = 32;

impl Operation<'_> {
    /// Appends the operation to a payload.
    pub fn encode(&self, to: &mut Writer) {
        match self {
            Self::Create { path, file } => {
                to.u8(CREATE);
                to.bytes(path.as_bytes());
                to.u64(file.0);
            }
            Self::Write { file, at, bytes } => {
                to.u8(WRITE);
                to.u64(file.0);
                to.u64(*at);
                to.bytes(bytes);
            }
            Self::SetLen { file, len } => {
                to.u8(SET_LEN);
                to.u64(file.0);
                to.u64(*len);
            }
            Self::Rename { from, to: name } => {
                to.u8(RENAME);
                to.bytes(from.as_bytes());
                to.bytes(name.as_bytes());
            }
            Self::Remove { path } => {
                to.u8(REMOVE);
                to.bytes(path.as_bytes());
            }
        }
    }

    fn decode<'a>(from: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
        Ok(match from.u8()? {
            CREATE => Operation::Create { path: from.string()?, file: FileId(from.u64()?) },
            WRITE => Operation::Write {
                file: FileId(from.u64()?),
                at: from.u64()?,
                bytes: from.bytes()?,
            },
            SET_LEN => Operation::SetLen { file: FileId(from.u64()?), len: from.u64()? },
            RENAME => Operation::Rename { from: from.string()?, to: from.string()? },
            REMOVE => Operation::Remove { path: from.string()? },
            _ => return Err(malformed("an operation of another kind")),
        })
    }
}

/// A payload without operations. It begins with the epoch and a number that its owner gives no other
/// one, so that two that do the same are told apart by their hashes.
#[must_use]
pub fn begin_payload(epoch: Epoch, serial: u64) -> Writer {
    let mut to = Writer::default();
    to.u32(epoch.0);
    to.u64(serial);
    to
}

/// Bytes of a payload without operations.
pub const EMPTY_PAYLOAD: usize = 12;

/// The operations of a payload, in their order; none of an entry without one.
///
/// # Errors
/// It is not one. As its hash has been compared, its writer has a fault, or is of a later version.
pub fn operations(payload: &[u8]) -> Result<Vec<Operation<'_>>, Malformed> {
    let mut from = Reader(payload);
    let mut all = Vec::new();
    if !payload.is_empty() {
        from.u32()?;
        from.u64()?;
    }
    while !from.0.is_empty() {
        all.push(Operation::decode(&mut from)?);
    }
    Ok(all)
}
