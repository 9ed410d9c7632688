//! Kinds of damage; every kind has a section in `docs/doctor.md`.

use std::fmt;

/// A kind of finding. Its [`Kind::name`] is what the doctor prints and what the manual lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// There are segments and no catalog.
    CatalogMissing,
    /// The catalog cannot be read as one.
    CatalogDamaged,
    /// Entries of the catalog exclude each other.
    CatalogContradiction,
    /// A segment of this log, newer than the catalog knows.
    CatalogStale,
    /// A file of a format that this program does not know.
    LaterVersion,
    /// Encrypted under a key that was not given.
    Encrypted,
    /// A segment of the chain has no file.
    SegmentMissing,
    /// A segment of the chain has another name, or lies in `torn/`.
    SegmentRenamed,
    /// A file that the operating system does not let us read.
    Unreadable,
    /// Parts of a file that the medium does not give back.
    ReadError,
    /// A segment's first block.
    SegmentHeader,
    /// A segment file ends before its frames do.
    SegmentTruncated,
    /// A segment of another log, or another segment than its name says.
    SegmentForeign,
    /// A segment of this log that is not part of the chain.
    SegmentStray,
    /// Two segments stand for the same positions.
    SegmentOverlap,
    /// A frame in which one byte changed, which can be set back.
    FrameFlipped,
    /// Frames that cannot be read.
    FrameLost,
    /// Bytes between frames that should be zero.
    Padding,
    /// Bytes behind the last good frame that were never acknowledged.
    TornTail,
    /// A sealed segment's footer.
    Footer,
    /// A checkpoint that cannot be used.
    Checkpoint,
    /// A checkpoint that knows more than the log.
    CheckpointAhead,
    /// The identity of the directory.
    Identity,
    /// Messages of a stream whose configuration is lost.
    StreamUnknown,
    /// In a bucket: the object that says of which objects a file consists.
    Manifest,
    /// In a bucket: fences that must be there are not.
    FenceMissing,
    /// In a bucket: bytes of a file for which there is no object.
    ObjectMissing,
    /// Inputs of a compaction that are no longer needed, files under construction.
    Leftover,
    /// A file that an earlier recovery or repair set aside.
    SetAside,
    /// A file that a log does not have.
    UnknownFile,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 30] = [
        Self::CatalogMissing,
        Self::CatalogDamaged,
        Self::CatalogContradiction,
        Self::CatalogStale,
        Self::LaterVersion,
        Self::Encrypted,
        Self::SegmentMissing,
        Self::SegmentRenamed,
        Self::Unreadable,
        Self::ReadError,
        Self::SegmentHeader,
        Self::SegmentTruncated,
        Self::SegmentForeign,
        Self::SegmentStray,
        Self::SegmentOverlap,
        Self::FrameFlipped,
        Self::FrameLost,
        Self::Padding,
        Self::TornTail,
        Self::Footer,
        Self::Checkpoint,
        Self::CheckpointAhead,
        Self::Identity,
        Self::StreamUnknown,
        Self::Manifest,
        Self::FenceMissing,
        Self::ObjectMissing,
        Self::Leftover,
        Self::SetAside,
        Self::UnknownFile,
    ];

    /// Its name in reports and in the manual. Stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CatalogMissing => "catalog-missing",
            Self::CatalogDamaged => "catalog-damaged",
            Self::CatalogContradiction => "catalog-contradiction",
            Self::CatalogStale => "catalog-stale",
            Self::LaterVersion => "later-version",
            Self::Encrypted => "encrypted",
            Self::SegmentMissing => "segment-missing",
            Self::SegmentRenamed => "segment-renamed",
            Self::Unreadable => "unreadable",
            Self::ReadError => "read-error",
            Self::SegmentHeader => "segment-header",
            Self::SegmentTruncated => "segment-truncated",
            Self::SegmentForeign => "segment-foreign",
            Self::SegmentStray => "segment-stray",
            Self::SegmentOverlap => "segment-overlap",
            Self::FrameFlipped => "frame-flipped",
            Self::FrameLost => "frame-lost",
            Self::Padding => "padding",
            Self::TornTail => "torn-tail",
            Self::Footer => "footer",
            Self::Checkpoint => "checkpoint",
            Self::CheckpointAhead => "checkpoint-ahead",
            Self::Identity => "identity",
            Self::StreamUnknown => "stream-unknown",
            Self::Manifest => "manifest",
            Self::FenceMissing => "fence-missing",
            Self::ObjectMissing => "object-missing",
            Self::Leftover => "leftover",
            Self::SetAside => "set-aside",
            Self::UnknownFile => "unknown-file",
        }
    }

    /// How bad it is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::LaterVersion | Self::Unreadable | Self::Encrypted => Severity::Blocking,
            // What was in a missing object is found missing by the frames, if anything was.
            Self::ObjectMissing | Self::Leftover | Self::SetAside | Self::UnknownFile => {
                Severity::Note
            }
            _ => Severity::Damage,
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth knowing; nothing needs to be done.
    Note,
    /// The log is not as it was written.
    Damage,
    /// Nothing is mended before a person has dealt with it.
    Blocking,
}

impl Severity {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Damage => "damage",
            Self::Blocking => "blocking",
        }
    }
}

/// Something found in a log's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: Kind,
    /// The file concerned, relative to the directory; empty for the log as a whole.
    pub file: String,
    /// The facts: where, how much.
    pub what: String,
    /// What the repair does about it.
    pub action: String,
}

impl Finding {
    /// A finding about `file`.
    pub fn new(
        kind: Kind,
        file: impl Into<String>,
        what: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self { kind, file: file.into(), what: what.into(), action: action.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "the log" } else { &self.file };
        write!(f, "{}: {file}: {}", self.kind.name(), self.what)?;
        if self.action.is_empty() { Ok(()) } else { write!(f, "\n    -> {}", self.action) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|k| k.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
