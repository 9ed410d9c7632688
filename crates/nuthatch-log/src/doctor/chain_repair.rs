//! The chain of segments: from the catalog, or from the files where there is no usable catalog.

use super::examine::Examiner;
use super::finding::{Finding, Kind};
use super::salvage::{Expected, salvage};
use crate::catalog::{CATALOG_FILE, Catalog, CatalogError, SegmentEntry, SegmentState};
use crate::checkpoint;
use crate::env::{Disk, read_what_can_be_read};
use crate::identity::Identity;
use crate::keys::{KeyId, Keyring};
use crate::segment::reader::SegmentFile;
use crate::segment::{HeaderFault, MAX_SEGMENT_BYTES, SegmentHeader, SegmentId};
use crate::store::TORN_DIR;
use crate::types::Lsn;
use std::io;

/// The chain's entry for this file, from what the file itself tells. `end` is the last position
/// if the next segment tells it.
fn entry_of(
    file: &SegmentFile,
    header: SegmentHeader,
    end: Option<Lsn>,
    keys: &Keyring,
) -> io::Result<SegmentEntry> {
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
        allocated: 0,
    };
    if let Some((last, start)) = file.footer_at_end(header.id) {
        entry.state = SegmentState::Sealed;
        (entry.end, entry.data_end) = (last, start);
        entry.footer_len = (file.len - start) as u32;
        return Ok(entry);
    }
    if end.is_none() && !header.compacted {
        return Ok(entry);
    }
    let len = usize::try_from(file.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
    let (image, _) = read_what_can_be_read(&*file.file, len)?;
    let known = Expected { limit: file.len, end: None, likely: false, keys };
    let found = salvage(image, header, known);
    entry.state = SegmentState::Sealed;
    entry.data_end = found.end;
    entry.end = end.unwrap_or(Lsn(found.next.0 - 1));
    Ok(entry)
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
        let (kind, why, old) = match Catalog::load(&*self.disk) {
            Ok(Some(catalog)) => match (contradiction(&catalog), self.newer_than(&catalog)?) {
                (None, None) => {
                    self.catalog = catalog;
                    return Ok(true);
                }
                (None, Some(why)) => (Kind::CatalogStale, why, Some(catalog)),
                (Some(why), _) => (Kind::CatalogContradiction, why, None),
            },
            Ok(None) => (
                Kind::CatalogMissing,
                "there is none, although there are files of a log".into(),
                None,
            ),
            Err(CatalogError::Damaged { what }) => (Kind::CatalogDamaged, what.to_owned(), None),
            Err(error @ (CatalogError::Version { .. } | CatalogError::Later(_))) => {
                self.note(Finding::new(Kind::LaterVersion, "catalog", error.to_string(), ""));
                return Ok(false);
            }
            Err(CatalogError::Io(error)) => {
                self.note(Finding::new(Kind::Unreadable, "catalog", error.to_string(), ""));
                return Ok(false);
            }
        };
        self.rebuild_catalog(kind, &why, old.as_ref())
    }

    /// A segment that was written after the catalog was: no frame goes into a segment that the
    /// catalog does not know.
    fn newer_than(&self, catalog: &Catalog) -> io::Result<Option<String>> {
        let newest = catalog.segments.iter().map(|entry| entry.base).max().unwrap_or_default();
        let names = self.segment_names()?;
        let is_missing = |entry: &SegmentEntry| {
            matches!(entry.state, SegmentState::Open | SegmentState::Sealed)
                && !names.contains(&entry.file_name())
        };
        for path in &names {
            if catalog.segments.iter().any(|entry| entry.file_name() == *path) {
                continue;
            }
            let Ok(file) = SegmentFile::open_readable(&*self.disk, path) else { continue };
            let Ok(header) = file.header else { continue };
            let replaces = |entry: &SegmentEntry| header.compacted && entry.base == header.base;
            let is_newer = header.base > newest
                || catalog.segments.iter().any(|entry| is_missing(entry) && replaces(entry));
            if header.log_id == catalog.log_id && is_newer && may_hold_frames(&file) {
                return Ok(Some(format!("it does not know {path}, which was written after it")));
            }
        }
        Ok(None)
    }

    fn rebuild_catalog(
        &mut self,
        kind: Kind,
        why: &str,
        old: Option<&Catalog>,
    ) -> io::Result<bool> {
        let mut files = Vec::new();
        for path in self.segment_names()? {
            match SegmentFile::open_readable(&*self.disk, &path) {
                Ok(file) => files.push(file),
                Err(error) => {
                    self.note(Finding::new(Kind::Unreadable, path, error.to_string(), ""));
                    return Ok(false);
                }
            }
        }
        let headers = || files.iter().filter_map(|file| file.header.ok());
        let log_id = match old {
            Some(old) => old.log_id,
            None if files.is_empty() => self.id_without_segments()?,
            None => most_common(headers().map(|h| h.log_id)),
        };
        self.catalog = Catalog::new(log_id);
        self.catalog.clean = false;
        let ids = headers().map(|header| header.id.0 + 1).max().unwrap_or(1);
        self.catalog.next_segment =
            SegmentId(ids).max(old.map_or(SegmentId(1), |old| old.next_segment));
        let epoch = headers().map(|header| header.epoch).max().unwrap_or_default();
        self.catalog.epoch = epoch.max(old.map_or(epoch, |old| old.epoch));
        let usable = self.usable(files, old);
        self.catalog.key_id = usable.last().map_or(KeyId::NONE, |(header, _)| header.key_id);
        for number in 0..usable.len() {
            let end = usable[number + 1..]
                .iter()
                .find(|(next, _)| next.base > usable[number].0.base)
                .map(|(next, _)| Lsn(next.base.0 - 1));
            let (header, file) = &usable[number];
            let entry = entry_of(file, *header, end, &self.keys)?;
            self.enter(entry, &file.path, old);
        }
        self.fill_gap(Lsn(u64::MAX), old);
        let count = self.catalog.segments.len();
        let mut action = format!("rebuilt from {} segments ({count} entries)", usable.len());
        if self.catalog.segments.last().is_none_or(|last| last.state != SegmentState::Open) {
            // A newer segment, which only the catalog knew, may be gone.
            self.end_is_guessed = true;
            action.push_str("; nothing tells that the last of them is the newest that there was: ");
            action.push_str("sequences that may have been given out behind it are skipped");
        }
        self.note(Finding::new(kind, CATALOG_FILE, why, action));
        Ok(true)
    }

    /// The identity of a log of which neither catalog nor segments are left.
    fn id_without_segments(&self) -> io::Result<u64> {
        if let Ok(Some(identity)) = Identity::load(&*self.disk) {
            return Ok(identity.log_id);
        }
        let names = checkpoint::names(&*self.disk)?;
        let read = |name: &String| checkpoint::read(&*self.disk, name, &self.keys).ok();
        let newest = names.iter().rev().find_map(read);
        Ok(newest.map_or(0, |found| found.covers.log_id))
    }

    /// The segments that belong to the log, by position. A compacted segment starts where its first
    /// input started and comes before it.
    fn usable(
        &self,
        files: Vec<SegmentFile>,
        old: Option<&Catalog>,
    ) -> Vec<(SegmentHeader, SegmentFile)> {
        let header_of = |file: &SegmentFile| match file.header {
            Ok(header) => Some(header),
            Err(_) => {
                let known = old?.segments.iter().find(|entry| entry.file_name() == file.path)?;
                Some(self.header_of(known, file))
            }
        };
        let mut usable: Vec<_> = files
            .into_iter()
            .filter_map(|file| header_of(&file).map(|header| (header, file)))
            .filter(|(header, file)| {
                header.log_id == self.catalog.log_id && file.path == header.file_name()
            })
            .collect();
        usable.sort_by_key(|(header, _)| (header.base, !header.compacted, header.epoch));
        usable
    }

    /// Appends an entry to a catalog that is being rebuilt, unless others stand for its positions.
    fn enter(&mut self, entry: SegmentEntry, path: &str, old: Option<&Catalog>) {
        let last = self.catalog.segments.last().copied();
        if let Some(last) = last.filter(|last| entry.base <= last.end) {
            let (kind, what) = if last.compacted && entry.end <= last.end {
                (Kind::Leftover, "a compaction has replaced it".to_owned())
            } else {
                (Kind::SegmentOverlap, format!("{} stands for its positions", last.file_name()))
            };
            return self.set_aside(kind, path, what);
        }
        self.fill_gap(entry.base, old);
        self.catalog.segments.push(entry);
    }

    /// Entries for the positions between the end of the rebuilt catalog and `next`, taken from the
    /// old catalog. Without it, positions without a file may have been given back by compaction or
    /// lost; states and gaps tell which messages are missing.
    fn fill_gap(&mut self, next: Lsn, old: Option<&Catalog>) {
        for entry in old.iter().flat_map(|old| &old.segments) {
            let fits = entry.base > self.catalog.end() && entry.base < next;
            if fits && entry.end < next && entry.state != SegmentState::Replaced {
                self.catalog.segments.push(*entry);
            }
        }
        let base = self.catalog.end().next();
        if next <= base || next.0 == u64::MAX {
            return;
        }
        let end = Lsn(next.0 - 1);
        let what = format!(
            "no file holds positions {base} to {end}: compaction has given them back, or the file \
             is gone"
        );
        let id = self.new_id();
        self.holes_without_file.insert(id);
        self.catalog.segments.push(removed(id, base, end));
        self.note(Finding::new(Kind::SegmentMissing, "", what, "entered as removed"));
    }

    /// Segment files that the catalog does not know.
    pub(super) fn strays(&mut self) -> io::Result<()> {
        for path in self.segment_names()? {
            let known = self.catalog.segments.iter().any(|entry| entry.file_name() == path);
            if known || self.is_aside(&path) {
                continue;
            }
            match SegmentFile::open_readable(&*self.disk, &path) {
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
            Err(HeaderFault::Later(what)) => {
                self.note(Finding::new(Kind::LaterVersion, &file.path, what.to_string(), ""));
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
        } else if !self.keys.has(header.key_id) {
            self.note_encrypted(&file.path, header.key_id, "; the catalog does not know it");
        } else if !may_hold_frames(file) {
            let what = "it was being made when the power went, and holds nothing";
            let action = "the server removes it at its next start";
            self.note(Finding::new(Kind::Leftover, &file.path, what, action));
        } else if !self.restore_name(file, header)? {
            let what = "a segment of this log that is not part of its chain".to_owned();
            self.set_aside(Kind::SegmentStray, &file.path, what);
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
        self.note(Finding::new(
            Kind::SegmentRenamed,
            &file.path,
            what,
            format!("renamed to {name}"),
        ));
        Ok(true)
    }

    /// Looks for missing segments under `torn/`.
    pub(super) fn look_in_torn(&mut self) -> io::Result<()> {
        for name in self.disk.list(TORN_DIR)? {
            if !name.ends_with(".seg") {
                continue;
            }
            let path = format!("{TORN_DIR}/{name}");
            if let Ok(file) = SegmentFile::open_readable(&*self.disk, &path)
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
        allocated: 0,
    }
}

fn most_common(ids: impl Iterator<Item = u64>) -> u64 {
    let mut counts = std::collections::BTreeMap::new();
    ids.for_each(|id| *counts.entry(id).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(id, _)| id)
}

/// True unless it is known to hold no frame: what cannot be read is not empty.
fn may_hold_frames(file: &SegmentFile) -> bool {
    file.has_frames().unwrap_or(true)
}
