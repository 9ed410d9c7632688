//! Changes that a start makes on the disk, after everything has been read and nothing was refused:
//! torn bytes are set aside, the segment that was open is sealed, leftovers go.
//!
//! Each step leaves a log that the next start understands. On a full medium the space that was set
//! aside for that is used.

use super::{Machine, OpenError, Recovery, io_context};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::checkpoint;
use crate::compaction::forget_removed;
use crate::env::{Disk, Entropy, again, is_full, replace_file};
use crate::identity::{IDENTITY_FILE, Identity};
use crate::rules::{CLEAR_UNFINISHED, DRAW_RESERVE, DROP_AFTER_CATALOG, KEEP_TORN};
use crate::segment::reader::{SegmentFile, is_blank};
use crate::segment::scan::Beyond;
use crate::segment::writer::append_footer;
use crate::segment::{FooterBuilder, HeaderFault, Segment, SegmentHeader, SegmentId};
use crate::store::{RESERVE_FILE, TMP_DIR, TORN_DIR};
use std::io;
use std::sync::Arc;

/// A start that finds the medium full takes so much of the reserve at a time.
const DRAW_BYTES: u64 = 1024 * 1024;

/// Something to be done on the disk.
pub(crate) enum Todo {
    /// Bytes behind the last good frame are copied to `torn/`.
    SetAside { segment: Arc<Segment>, from: u64, beyond: Beyond },
    /// A segment gets its footer. The one at the end of a file of so many bytes is set aside.
    Seal {
        id: SegmentId,
        segment: Arc<Segment>,
        data_end: u64,
        builder: FooterBuilder,
        old_footer: Option<u64>,
    },
    /// A sealed segment was not cut behind its footer.
    Cut { segment: Arc<Segment>, entry: SegmentEntry },
    /// A checkpoint that is not usable is moved to `torn/`.
    Checkpoint { name: String },
    /// A checkpoint under another key than the one in use is written anew.
    Reseal { name: String },
}

impl<M: Machine> Recovery<M> {
    /// Does what was noted, and clears what earlier steps left half done.
    pub(super) fn settle(&mut self) -> Result<(), OpenError> {
        self.clear_tmp()?;
        self.clear_leftovers()?;
        if !DROP_AFTER_CATALOG.holds() {
            self.remove_dropped(None)?;
        }
        let mut cuts = Vec::new();
        let mut in_place = false;
        let mut torn_whole = None;
        for todo in std::mem::take(&mut self.todo) {
            match todo {
                Todo::SetAside { segment, from, beyond } => {
                    in_place = !self.set_torn_aside(&segment, from, &beyond)?;
                    if in_place && self.is_dropped(segment.header.id) {
                        (in_place, torn_whole) = (false, Some(segment.header.id));
                    }
                }
                Todo::Seal { id, segment, data_end, builder, old_footer } => {
                    let in_place = std::mem::take(&mut in_place);
                    if !in_place {
                        self.seal(id, &segment, data_end, &builder, old_footer)?;
                        cuts.push((segment, id));
                    }
                }
                Todo::Cut { segment, entry } => self.plan_cut(segment, &entry, &mut cuts)?,
                Todo::Checkpoint { name } => self.checkpoint_aside(&name)?,
                Todo::Reseal { name } => self.reseal(&name),
            }
        }
        self.store_catalog()?;
        self.cut(cuts);
        self.remove_dropped(torn_whole)?;
        self.trim_checkpoints().map_err(io_context(TORN_DIR))?;
        self.forget_replaced()
    }

    /// Writes a checkpoint anew under the key in use, so that none stays behind that an old key opens.
    /// Nothing depends on it: where it fails, a later one takes its place.
    fn reseal(&self, name: &str) {
        let read = checkpoint::read(&*self.disk, name, &self.keys);
        let written = read.map_err(|why| why.to_string()).and_then(|found| {
            let replaced = checkpoint::replace(&*self.disk, found.covers, found.bytes, &self.keys);
            replaced.map_err(|error| error.to_string())
        });
        if let Err(why) = written {
            let (report, key) = (&self.options.report, self.keys.current());
            report.say(&format!("{name} could not be written anew under key {key}: {why}"));
        }
    }

    /// True if a segment leaves the chain because its first frame was never completely written.
    fn is_dropped(&self, id: SegmentId) -> bool {
        self.catalog.segments.iter().any(|entry| entry.id == id && never_held(entry))
    }

    /// Gives a directory its identity. Nothing of the log depends on it: a full medium puts it off to
    /// the next start, because only a log that is open can free space.
    pub(super) fn identify(&self, entropy: &mut dyn Entropy) -> Result<(), OpenError> {
        let bytes = Identity::new(self.catalog.log_id, entropy).encode();
        match self.with_room(|| replace_file(&*self.disk, IDENTITY_FILE, &bytes)) {
            Err(error) if is_full(&error) => {
                let what = "no room for this file: the next start makes it";
                self.options.report.say(&format!("{IDENTITY_FILE}: {what}"));
                Ok(())
            }
            stored => stored.map_err(io_context(IDENTITY_FILE)),
        }
    }

    /// Does a write; while the medium is full, again with a little more of the reserve given back.
    pub(super) fn with_room<T>(&self, write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.with_room_but(0, write)
    }

    /// As [`Recovery::with_room`], leaving so many bytes of the reserve to what must be written.
    pub(super) fn with_room_but<T>(
        &self,
        left: u64,
        mut write: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match write() {
                Err(error)
                    if is_full(&error)
                        && DRAW_RESERVE.holds()
                        && draw_reserve(&*self.disk, left) => {}
                result => return result,
            }
        }
    }

    fn store_catalog(&mut self) -> Result<(), OpenError> {
        if self.catalog != self.stored {
            let stored = self.with_room(|| self.catalog.store(&*self.disk));
            stored.map_err(io_context("catalog"))?;
            self.stored = self.catalog.clone();
        }
        Ok(())
    }

    /// Files under construction are nothing to anybody.
    fn clear_tmp(&self) -> Result<(), OpenError> {
        if !CLEAR_UNFINISHED.holds() {
            return Ok(());
        }
        for name in again(|| self.disk.list(TMP_DIR)).map_err(io_context(TMP_DIR))? {
            self.disk.remove(&format!("{TMP_DIR}/{name}")).map_err(io_context(name))?;
        }
        Ok(())
    }

    /// Removes what earlier steps left half done: inputs of a compaction that was published, and
    /// a segment that was named but never entered into the catalog. The latter goes only if there
    /// is no frame in it; otherwise it is set aside.
    fn clear_leftovers(&self) -> Result<(), OpenError> {
        for name in again(|| self.disk.list("")).map_err(io_context("listing files"))? {
            if !name.ends_with(".seg") {
                continue;
            }
            let known = self.stored.segments.iter().find(|entry| entry.file_name() == name);
            let result = match known.map(|entry| entry.state) {
                None => self.clear_orphan(&name),
                Some(SegmentState::Open | SegmentState::Sealed) => Ok(()),
                Some(SegmentState::Removed) if known.is_some_and(never_held) => {
                    self.clear_dropped(&name)
                }
                Some(SegmentState::Removed | SegmentState::Replaced) => self.disk.remove(&name),
            };
            result.map_err(io_context(name))?;
        }
        Ok(())
    }

    /// The file of a segment that left the chain because nothing was ever in it goes when the catalog
    /// says so. That of `torn_whole`, of which nothing could be copied, is moved to `torn/` itself.
    fn remove_dropped(&self, torn_whole: Option<SegmentId>) -> Result<(), OpenError> {
        for entry in self.catalog.segments.iter().filter(|entry| never_held(entry)) {
            let name = entry.file_name();
            let gone = match torn_whole {
                Some(id) if id == entry.id => self.move_aside(&name),
                _ => self.disk.remove(&name),
            };
            match gone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_context(name)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A crash came between a dropped segment's end in the catalog and that of its file. Whether
    /// what is in it was copied is not known any more: anything but zeros is kept.
    fn clear_dropped(&self, name: &str) -> io::Result<()> {
        let SegmentFile { file, header, len, .. } = SegmentFile::open(&*self.disk, name)?;
        let from = header.map_or(0, |header| header.first_offset());
        if !KEEP_TORN.holds() || is_blank(&*file, from, len)? {
            return self.disk.remove(name);
        }
        self.move_aside(name)
    }

    /// Moves a file to `torn/`.
    pub(super) fn move_aside(&self, name: &str) -> io::Result<()> {
        self.with_room(|| self.disk.rename(name, &format!("{TORN_DIR}/{name}")))?;
        self.disk.sync_dir(TORN_DIR)?;
        self.disk.sync_dir("")
    }

    /// Entries of inputs whose files are gone now say nothing any more, nor do those of segments that
    /// never held a frame.
    fn forget_replaced(&mut self) -> Result<(), OpenError> {
        let is_over =
            |entry: &SegmentEntry| entry.state == SegmentState::Replaced || never_held(entry);
        if !self.catalog.segments.iter().any(is_over) {
            return Ok(());
        }
        self.catalog.segments.retain(|entry| !never_held(entry));
        forget_removed(&mut self.catalog, &|_| true);
        self.disk.sync_dir("").map_err(io_context("the directory"))?;
        self.store_catalog()
    }

    /// True if a file that the catalog does not know is the output of a compaction that ended before
    /// it was entered: everything in it is still in its inputs, which the catalog knows. Not if any
    /// file of the chain is missing: then the catalog may be an old one, and this the only copy.
    fn is_unfinished_compaction(&self, header: &SegmentHeader) -> bool {
        let mut chain =
            self.stored.segments.iter().filter(|entry| entry.state == SegmentState::Sealed);
        header.compacted
            && header.log_id == self.stored.log_id
            && chain.clone().any(|entry| (entry.base..=entry.end).contains(&header.base))
            && chain.all(|entry| self.disk.open(&entry.file_name()).is_ok())
    }

    fn clear_orphan(&self, name: &str) -> io::Result<()> {
        let found = SegmentFile::open(&*self.disk, name)?;
        let has_frames = match found.header {
            // In a bucket the first block may be missing alone.
            Err(HeaderFault::Damaged) => !is_blank(&*found.file, 0, found.len)?,
            Err(HeaderFault::Later(_)) => true,
            Ok(header) if self.is_unfinished_compaction(&header) => false,
            Ok(_) => found.has_frames()?,
        };
        if !has_frames {
            return self.disk.remove(name);
        }
        self.options.report.say(&format!("{name} does not belong to the log: set aside"));
        self.move_aside(name)
    }

    fn seal(
        &mut self,
        id: SegmentId,
        segment: &Segment,
        data_end: u64,
        builder: &FooterBuilder,
        old_footer: Option<u64>,
    ) -> Result<(), OpenError> {
        let name = segment.header.file_name();
        if let Some(len) = old_footer.filter(|len| *len > data_end) {
            match self.keep_bytes(&*segment.file, &format!("{name}-footer"), data_end, len) {
                Err(error) if is_full(&error) => {
                    let what = "no room to set its footer aside: it stays where it is";
                    self.options.report.say(&format!("segment {name}: {what}"));
                    return Ok(());
                }
                kept => kept.map_err(io_context(name.clone()))?,
            }
        }
        let local = self.disk.medium().is_local;
        let written = append_footer(segment, data_end, builder, local);
        let written = written.map_err(io_context(name))?;
        let entry = self.catalog.entry_mut(id).expect("sealing was planned");
        (entry.footer_len, entry.footer_crc) = (written.len, written.crc);
        Ok(())
    }

    /// A crash came between a segment's end in the catalog and the cut. Anything but zeros stays.
    fn plan_cut(
        &self,
        segment: Arc<Segment>,
        entry: &SegmentEntry,
        cuts: &mut Vec<(Arc<Segment>, SegmentId)>,
    ) -> Result<(), OpenError> {
        let name = || io_context(entry.file_name());
        let len = segment.file.len().map_err(name())?;
        let end = entry.data_end + u64::from(entry.footer_len);
        if self.disk.medium().is_local && is_blank(&*segment.file, end, len).map_err(name())? {
            cuts.push((segment, entry.id));
        }
        Ok(())
    }

    /// Cuts segments behind their footers, now that the catalog has them as sealed. Where that fails
    /// only space is lost.
    fn cut(&self, cuts: Vec<(Arc<Segment>, SegmentId)>) {
        for (segment, id) in cuts {
            let entry = self.catalog.segments.iter().find(|entry| entry.id == id);
            if let Some(entry) = entry.filter(|_| self.disk.medium().is_local) {
                let _ = segment.file.set_len(entry.data_end + u64::from(entry.footer_len));
            }
        }
    }
}

/// True if an entry is of a segment that left the chain without a frame.
fn never_held(entry: &SegmentEntry) -> bool {
    entry.state == SegmentState::Removed && entry.end < entry.base
}

/// Gives a part of the reserve back to the medium; false if only `left` bytes of it are left.
fn draw_reserve(disk: &dyn Disk, left: u64) -> bool {
    let Ok(file) = disk.open(RESERVE_FILE) else { return false };
    match file.len() {
        Ok(len) if len > left => file.set_len(len.saturating_sub(DRAW_BYTES).max(left)).is_ok(),
        _ => false,
    }
}
