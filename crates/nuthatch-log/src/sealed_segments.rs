//! What tiered storage needs to know of a log: its identity, and which segments are sealed for
//! good.

use crate::catalog::{Catalog, CatalogError, SegmentState};
use crate::env::Disk;
use crate::types::Lsn;
use std::collections::BTreeSet;

/// File in which a tier records the segments it has moved; made when the first one moves.
pub const TIER_NOTE: &str = "tier";

/// Files beside a log's own that a tier keeps in its directory.
pub const TIER_FILES: [&str; 2] = [TIER_NOTE, "tier-spare"];

/// A sealed segment, as the catalog describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedSegment {
    /// Name of its file.
    pub file: String,
    /// First position in it.
    pub base: Lsn,
    /// Offset where its frames end and its footer begins, in bytes.
    pub data_end: u64,
    /// Bytes of the file that count: frames and footer.
    pub bytes: u64,
}

/// The chain of a log on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Identity of the log.
    pub log_id: u64,
    /// Sealed segments in the order of positions.
    pub sealed: Vec<SealedSegment>,
    /// Names of all segments that must have a file.
    pub files: BTreeSet<String>,
}

impl Chain {
    /// Reads the chain of the log on `disk`; `None` if there is no log yet. The catalog is replaced
    /// as a whole, so this may be called beside a running log.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, CatalogError> {
        Ok(Catalog::load(disk)?.map(|catalog| Self::of(&catalog)))
    }

    fn of(catalog: &Catalog) -> Self {
        let with_file = |state| matches!(state, SegmentState::Open | SegmentState::Sealed);
        let files = catalog.segments.iter().filter(|entry| with_file(entry.state));
        let sealed = catalog.segments.iter().filter(|entry| entry.state == SegmentState::Sealed);
        let mut sealed: Vec<_> = sealed
            .map(|entry| SealedSegment {
                file: entry.file_name(),
                base: entry.base,
                data_end: entry.data_end,
                bytes: entry.data_end + u64::from(entry.footer_len),
            })
            .collect();
        sealed.sort_by_key(|segment| segment.base);
        let files = files.map(crate::catalog::SegmentEntry::file_name).collect();
        Self { log_id: catalog.log_id, sealed, files }
    }
}
