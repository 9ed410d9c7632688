//! Detection of data that a later version wrote.
//!
//! Everything that reads a file classifies here what it does not understand, so that a start, the
//! doctor and an inspection give the same answer: bytes whose checksum does not fit are *damaged*;
//! bytes whose checksum fits and that say something unknown are *later*. A start refuses what is
//! later and changes nothing; the doctor mends nothing then.

use crate::keys::KeyId;
use std::fmt;

/// Something of a later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Later {
    /// A file's version.
    Version(u32),
    /// Bytes of a header that are zero in every version that this program knows.
    Header,
    /// A flag or a cipher of a frame.
    Frame,
    /// A record's kind.
    RecordKind(u8),
    /// A record's flags.
    RecordFlags(u8),
    /// How much of a state a record is, in a footer.
    StatePiece,
    /// A segment state in the catalog.
    SegmentState(u8),
    /// No later version: sealed under a key that is not configured, and refused like one.
    Key(KeyId),
    /// The content of a record that the machine does not take, although it is as it was written.
    RecordBody,
    /// A snapshot that the machine does not take, although it is as it was written.
    Snapshot,
}

impl Later {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Key(_) => "give that key as jetstream.key or jetstream.prev_key",
            _ => "start the version that wrote it",
        }
    }
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Key(key) = self {
            return write!(f, "encrypted with key {key}, which is not configured");
        }
        f.write_str("of a later version: ")?;
        match self {
            Self::Version(version) => write!(f, "format version {version}"),
            Self::Header => f.write_str("unknown fields in its header"),
            Self::Frame => f.write_str("an unknown flag or cipher of a frame"),
            Self::RecordKind(kind) => write!(f, "a record of the unknown kind {kind}"),
            Self::RecordFlags(flags) => write!(f, "a record with the unknown flags {flags:#04x}"),
            Self::StatePiece => f.write_str("an unknown mark in its footer"),
            Self::SegmentState(state) => write!(f, "a segment in the unknown state {state}"),
            Self::RecordBody => {
                f.write_str("a record whose content this program does not understand")
            }
            Self::Snapshot => f.write_str("a snapshot that this program does not understand"),
            Self::Key(_) => Ok(()),
        }
    }
}

/// Why bytes of a file cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// They are as they were written, by a later version.
    Later(Later),
    /// They are not what was written, or never made sense.
    Damaged(&'static str),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(later) => later.fmt(f),
            Self::Damaged(what) => f.write_str(what),
        }
    }
}
