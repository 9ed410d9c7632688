//! The chain of segments: from the catalog, or from the files where there is no usable catalog.

use super::examine::Examiner;
use super::finding::{Finding, Kind};
use super::salvage::{Known, salvage};
use crate::catalog::{Catalog, CatalogError, SegmentEntry, SegmentState};
use crate::env::{Disk, DiskFile, read_what_can_be_read};
use crate::segment::footer::{FOOTER_MAGIC, FOOTER_TRAILER_BYTES};
use crate::segment::{
    Footer, HeaderFault, MAX_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentId,
};
use crate::store::TORN_DIR;
use crate::types::Lsn;
use std::io;
use std::sync::Arc;

/// A segment file as it lies there.
pub struct SegmentFile {
    /// Its path.
    pub path: String,
    /// Its length.
    pub len: u64,
    /// What its first block says.
    pub header: Result<SegmentHeader, HeaderFault>,
    /// The file.
    pub file: Arc<dyn DiskFile>,
}

impl SegmentFile {
    /// Opens a file and reads its first block.
    pub fn open(disk: &dyn Disk, path: &str) -> io::Result<Self> {
        let file = disk.open(path)?;
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let header = match file.read_at(&mut head, 0) {
            Ok(n) => SegmentHeader::decode(&head[..n]),
            Err(_) => Err(HeaderFault::Damaged),
        };
        Ok(Self { path: path.to_owned(), len: file.len()?, header, file })
    }

    /// The footer at the end of the file, and where it starts.
    pub fn footer_at_end(&self, id: SegmentId) -> Option<(Footer, u64)> {
        let mut trailer = [0; FOOTER_TRAILER_BYTES];
        let at = self.len.checked_sub(FOOTER_TRAILER_BYTES as u64)?;
        self.file.read_at(&mut trailer, at).ok()?;
        let footer_len = u64::from(crate::bytes::u32_at(&trailer, 0));
        if trailer[8..] != FOOTER_MAGIC || footer_len > self.len {
            return None;
        }
        let start = self.len - footer_len;
        let bytes = crate::env::read_exact_at(&*self.file, start, footer_len as usize).ok()?;
        Footer::parse(bytes, id).map(|footer| (footer, start))
    }

    /// Whether any frame of it is intact.
    pub fn has_frames(&self) -> bool {
        let Ok(header) = self.header else { return false };
        let segment = Segment { header, file: Arc::clone(&self.file) };
        let from = segment.first_offset();
        crate::segment::scan::look_beyond(&segment, from, self.len).is_ok_and(|b| b.frames > 0)
    }

    /// The chain's entry for this file, from what the file itself tells. `end` is the last position
    /// if the next segment tells it.
    fn entry(&self, header: SegmentHeader, end: Option<Lsn>) -> io::Result<SegmentEntry> {
        let mut entry = SegmentEntry {
            id: header.id,
            epoch: header.epoch,
            base: header.base,
            end: Lsn(header.base.0 - 1),
            data_end: 0,
            footer_len: 0,
            footer_crc: 0,
            salt: header.salt,
            state: SegmentState::Open,
            compacted: header.compacted,
        };
        if let Some((footer, start)) = self.footer_at_end(header.id) {
            entry.state = SegmentState::Sealed;
            (entry.end, entry.data_end) = (footer.end(), start);
            entry.footer_len = (self.len - start) as u32;
            return Ok(entry);
        }
        if end.is_none() && !header.compacted {
            return Ok(entry);
        }
        let len = usize::try_from(self.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
        let (image, _) = read_what_can_be_read(&*self.file, len)?;
        let found = salvage(image, header, Known { limit: self.len, end: None, likely: false });
        entry.state = SegmentState::Sealed;
        entry.data_end = found.end;
        entry.end = end.unwrap_or(Lsn(found.next.0 - 1));
        Ok(entry)
    }
}

/// Why the catalog cannot be taken as it is; `None` if it can.
fn contradiction(catalog: &Catalog) -> Option<String> {
    let chain = || catalog.segments.iter().filter(|entry| entry.state != SegmentState::Replaced);
    for (number, entry) in catalog.segments.iter().enumerate() {
        if catalog.segments[..number].iter().any(|other| other.id == entry.id) {
            return Some(format!("segment id {} occurs twice", entry.id.0));
        }
    }
    for (entry, next) in chain().zip(chain().skip(1)) {
        if entry.state == SegmentState::Open {
            return Some(format!("{} is open and not the last", entry.file_name()));
        }
        if next.base <= entry.end || next.base < entry.base {
            let (one, other) = (entry.file_name(), next.file_name());
            return Some(format!("{one} and {other} stand for the same positions"));
        }
    }
    None
}

impl Examiner<'_> {
    /// Reads the catalog, or makes one from the segments. False if nothing can be said of the log.
    pub(super) fn load_catalog(&mut self) -> io::Result<bool> {
        let (kind, why) = match Catalog::load(&*self.disk) {
            Ok(Some(catalog)) => match contradiction(&catalog) {
                None => {
                    self.catalog = catalog;
                    return Ok(true);
                }
                Some(why) => (Kind::CatalogContradiction, why),
            },
            Ok(None) => (Kind::CatalogMissing, "there is none, although there are segments".into()),
            Err(CatalogError::Damaged { what }) => (Kind::CatalogDamaged, what.to_owned()),
            Err(error @ CatalogError::Version { .. }) => {
                self.note(Finding::new(Kind::LaterVersion, "catalog", error.to_string(), ""));
                return Ok(false);
            }
            Err(CatalogError::Io(error)) => {
                self.note(Finding::new(Kind::Unreadable, "catalog", error.to_string(), ""));
                return Ok(false);
            }
        };
        self.rebuild_catalog(kind, &why)
    }

    fn rebuild_catalog(&mut self, kind: Kind, why: &str) -> io::Result<bool> {
        let mut files = Vec::new();
        for path in self.segment_names()? {
            match SegmentFile::open(&*self.disk, &path) {
                Ok(file) => files.push(file),
                Err(error) => {
                    self.note(Finding::new(Kind::Unreadable, path, error.to_string(), ""));
                    return Ok(false);
                }
            }
        }
        let mut usable: Vec<(SegmentHeader, SegmentFile)> = files
            .into_iter()
            .filter_map(|file| file.header.ok().map(|header| (header, file)))
            .collect();
        let log_id = most_common(usable.iter().map(|(header, _)| header.log_id));
        usable.retain(|(header, file)| header.log_id == log_id && file.path == header.file_name());
        // A compacted segment starts where its first input started and comes before it.
        usable.sort_by_key(|(header, _)| (header.base, !header.compacted, header.epoch));
        self.catalog = Catalog::new(log_id);
        self.catalog.clean = false;
        for number in 0..usable.len() {
            let end = usable[number + 1..]
                .iter()
                .find(|(next, _)| next.base > usable[number].0.base)
                .map(|(next, _)| Lsn(next.base.0 - 1));
            let (header, file) = &usable[number];
            let entry = file.entry(*header, end)?;
            self.enter(entry, &file.path);
        }
        let ids = usable.iter().map(|(header, _)| header.id.0).max().unwrap_or(0);
        self.catalog.next_segment = SegmentId(ids + 1);
        let epochs = usable.iter().map(|(header, _)| header.epoch).max();
        self.catalog.epoch = epochs.unwrap_or_default();
        let count = self.catalog.segments.len();
        let action = format!("rebuilt from {} segments ({count} entries)", usable.len());
        self.note(Finding::new(kind, "catalog", why, action));
        Ok(true)
    }

    /// Appends an entry to a catalog that is being rebuilt, unless others stand for its positions.
    fn enter(&mut self, entry: SegmentEntry, path: &str) {
        let last = self.catalog.segments.last().copied();
        let end = last.map_or(Lsn(0), |last| last.end);
        if entry.base <= end {
            let last = last.expect("there is one that ends there");
            let (kind, what) = if last.compacted && entry.end <= last.end {
                (Kind::Leftover, "a compaction has replaced it".to_owned())
            } else {
                (Kind::SegmentOverlap, format!("{} stands for its positions", last.file_name()))
            };
            self.set_aside(kind, path, what);
            return;
        }
        if entry.base > end.next() {
            self.positions_without_file(end.next(), Lsn(entry.base.0 - 1));
        }
        self.catalog.segments.push(entry);
    }

    /// Without a catalog nobody knows whether positions without a file were given back by
    /// compaction or got lost; states and gaps will tell which messages are missing.
    fn positions_without_file(&mut self, base: Lsn, end: Lsn) {
        let what = format!(
            "no file holds positions {base} to {end}: compaction has given them back, or the file is gone"
        );
        let id = self.new_id();
        self.catalog.segments.push(removed(id, base, end));
        self.note(Finding::new(Kind::SegmentMissing, "", what, "entered as removed"));
        self.holes_without_file.insert(id);
    }

    /// Segment files that the catalog does not know.
    pub(super) fn strays(&mut self) -> io::Result<()> {
        for path in self.segment_names()? {
            let known = self.catalog.segments.iter().any(|entry| entry.file_name() == path);
            if known || self.is_aside(&path) {
                continue;
            }
            match SegmentFile::open(&*self.disk, &path) {
                Ok(file) => self.stray(&file)?,
                Err(error) => {
                    self.note(Finding::new(Kind::Unreadable, path, error.to_string(), ""));
                }
            }
        }
        Ok(())
    }

    fn stray(&mut self, file: &SegmentFile) -> io::Result<()> {
        let header = match file.header {
            Ok(header) => header,
            Err(HeaderFault::Version(version)) => {
                let what = format!("it has format version {version}");
                self.note(Finding::new(Kind::LaterVersion, &file.path, what, ""));
                return Ok(());
            }
            Err(HeaderFault::Damaged) => {
                let what = "not in the catalog, and its first block is damaged".to_owned();
                self.set_aside(Kind::SegmentStray, &file.path, what);
                return Ok(());
            }
        };
        if header.log_id != self.catalog.log_id {
            let what = format!("it belongs to log {:016x}", header.log_id);
            self.set_aside(Kind::SegmentForeign, &file.path, what);
        } else if !file.has_frames() {
            let what = "it was being made when the power went, and holds nothing";
            let action = "the server removes it at its next start";
            self.note(Finding::new(Kind::Leftover, &file.path, what, action));
        } else if !self.restore_name(file, header)? {
            self.adopt_or_set_aside(file, header)?;
        }
        Ok(())
    }

    /// The file of an entry whose own file is missing, under another name.
    fn restore_name(&mut self, file: &SegmentFile, header: SegmentHeader) -> io::Result<bool> {
        let entry = self.catalog.segments.iter().find(|entry| {
            (entry.id, entry.salt, entry.base) == (header.id, header.salt, header.base)
                && matches!(entry.state, SegmentState::Open | SegmentState::Sealed)
        });
        let Some(name) = entry.map(SegmentEntry::file_name) else { return Ok(false) };
        if self.disk.list("")?.contains(&name) {
            return Ok(false);
        }
        let what = format!("it is {name}, which is missing");
        self.disk.rename(&file.path, &name)?;
        self.note(Finding::new(Kind::SegmentRenamed, &file.path, what, format!("renamed to {name}")));
        Ok(true)
    }

    fn adopt_or_set_aside(&mut self, file: &SegmentFile, header: SegmentHeader) -> io::Result<()> {
        let end = self.catalog.end();
        let has_open = self.catalog.segments.iter().any(|entry| entry.state == SegmentState::Open);
        if header.compacted || header.base <= end || has_open {
            let what = "a segment of this log that is not part of its chain".to_owned();
            self.set_aside(Kind::SegmentStray, &file.path, what);
            return Ok(());
        }
        let what = format!("it goes on at position {} where the catalog ends ({end})", header.base);
        let entry = file.entry(header, None)?;
        self.catalog.next_segment = self.catalog.next_segment.max(SegmentId(header.id.0 + 1));
        self.catalog.epoch = self.catalog.epoch.max(header.epoch);
        self.enter(entry, &file.path);
        self.note(Finding::new(Kind::CatalogStale, &file.path, what, "entered into the catalog"));
        Ok(())
    }

    /// Looks for missing segments under `torn/`.
    pub(super) fn look_in_torn(&mut self) -> io::Result<()> {
        for name in self.disk.list(TORN_DIR)? {
            if !name.ends_with(".seg") {
                continue;
            }
            let path = format!("{TORN_DIR}/{name}");
            if let Ok(file) = SegmentFile::open(&*self.disk, &path)
                && let Ok(header) = file.header
                && header.log_id == self.catalog.log_id
            {
                self.restore_name(&file, header)?;
            }
        }
        Ok(())
    }

    /// Names of the segment files.
    pub(super) fn segment_names(&self) -> io::Result<Vec<String>> {
        let mut names = self.disk.list("")?;
        names.retain(|name| name.ends_with(".seg"));
        Ok(names)
    }

    /// Identity for an entry that the doctor makes.
    pub(super) fn new_id(&mut self) -> SegmentId {
        self.catalog.new_segment_id()
    }
}

/// An entry for positions without a file.
pub fn removed(id: SegmentId, base: Lsn, end: Lsn) -> SegmentEntry {
    SegmentEntry {
        id,
        epoch: crate::types::Epoch(0),
        base,
        end,
        data_end: 0,
        footer_len: 0,
        footer_crc: 0,
        salt: 0,
        state: SegmentState::Removed,
        compacted: false,
    }
}

fn most_common(ids: impl Iterator<Item = u64>) -> u64 {
    let mut counts = std::collections::BTreeMap::new();
    ids.for_each(|id| *counts.entry(id).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(id, _)| id)
}
