//! Every segment of the chain: is it there, is it what the catalog says, is every frame good.

use super::chain_repair::removed;
use super::examine::Examiner;
use super::finding::{Finding, Kind};
use super::salvage::{Expected, Hole, Piece, Salvage, salvage};
use crate::catalog::{SegmentEntry, SegmentState};
use crate::env::{Disk, read_exact_at, read_what_can_be_read};
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, RecordIter, sealed};
use crate::keys::{KeyId, Keyring};
use crate::later::Unusable;
use crate::record::RecordKind;
use crate::segment::reader::{
    FooterFault, SegmentFile, is_blank, read_footer, read_frames, stored_frames,
};
use crate::segment::{Footer, HeaderFault, MAX_SEGMENT_BYTES, Segment, SegmentHeader, SegmentId};
use crate::types::{Lsn, StreamId};
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// Block sizes to try where a header that told it is gone, the usual one first.
const BLOCK_SIZES: [u32; 7] = [4096, 512, 64, 128, 256, 1024, 2048];

/// Frames start at multiples of this at least.
const LEAST_BLOCK_BYTES: usize = 64;

/// Result of the first pass over a segment: where it stopped, and why.
struct Pass {
    /// Everything before this offset was good and has been counted.
    at: u64,
    /// The fault at that offset, if any.
    fault: Option<FrameFault>,
    /// Offset of a frame whose padding is not zero.
    padding: Option<u64>,
    next: Lsn,
}

/// Of headers that a segment may have had, whose first frame is gone too, the one that makes most sense
/// of the rest.
fn with_most_frames(
    headers: impl Iterator<Item = SegmentHeader>,
    usual: SegmentHeader,
    entry: &SegmentEntry,
    file: &SegmentFile,
    keys: &Keyring,
) -> SegmentHeader {
    let len = usize::try_from(file.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
    let (image, _) = read_what_can_be_read(&*file.file, len).unwrap_or_default();
    let is_sealed = entry.state == SegmentState::Sealed;
    let limit = if is_sealed { entry.data_end } else { file.len };
    let known = Expected { limit, end: is_sealed.then_some(entry.end), likely: false, keys };
    let frames = |header: &SegmentHeader| {
        let found = salvage(image.clone(), *header, known);
        found.pieces.iter().filter(|piece| matches!(piece, Piece::Frame { .. })).count()
    };
    // Of equals the last one counts: that is to be the usual one.
    let mut headers: Vec<SegmentHeader> = headers.collect();
    headers.reverse();
    headers.sort_by_cached_key(frames);
    headers.pop().unwrap_or(usual)
}

impl Examiner<'_> {
    pub(super) fn segments(&mut self) -> io::Result<()> {
        for entry in self.catalog.segments.clone() {
            match entry.state {
                SegmentState::Open | SegmentState::Sealed => self.segment(&entry)?,
                SegmentState::Removed | SegmentState::Replaced => self.without_file(&entry)?,
            }
        }
        Ok(())
    }

    fn without_file(&mut self, entry: &SegmentEntry) -> io::Result<()> {
        if self.holes_without_file.contains(&entry.id) {
            self.inventory.hole(entry.end, 0);
        }
        let name = entry.file_name();
        if self.base.list("")?.contains(&name) && !self.is_aside(&name) {
            let what = "compaction has replaced it";
            let action = "the server removes it at its next start";
            self.note(Finding::new(Kind::Leftover, name, what, action));
        }
        Ok(())
    }

    fn segment(&mut self, entry: &SegmentEntry) -> io::Result<()> {
        let name = entry.file_name();
        let file = match SegmentFile::open_readable(&*self.disk, &name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("positions {} to {} have no file", entry.base, end_of(entry));
                self.give_up(entry, Kind::SegmentMissing, what);
                return Ok(());
            }
            Err(error) => {
                self.note(Finding::new(Kind::Unreadable, name, error.to_string(), ""));
                return Ok(());
            }
        };
        match file.header {
            Ok(header) if header.is_of(entry, self.catalog.log_id) => {
                self.frames(entry, file, header, false)
            }
            Ok(header) => {
                let what = format!(
                    "it is segment {} of log {:016x}, not segment {} of log {:016x}",
                    header.id.0, header.log_id, entry.id.0, self.catalog.log_id
                );
                self.give_up(entry, Kind::SegmentForeign, what);
                self.disk.remove(&name)
            }
            Err(HeaderFault::Later(what)) => {
                self.note(Finding::new(Kind::LaterVersion, name, what.to_string(), ""));
                Ok(())
            }
            Err(HeaderFault::Damaged) => {
                let header = self.header_of(entry, &file);
                self.frames(entry, file, header, true)
            }
        }
    }

    /// The header that a segment had: the catalog knows all of it but the block size, and the first
    /// frame is chained to it.
    pub(super) fn header_of(&self, entry: &SegmentEntry, file: &SegmentFile) -> SegmentHeader {
        let key_id = key_in_frames(entry, file);
        let with = |block_bytes, packed| SegmentHeader {
            log_id: self.catalog.log_id,
            id: entry.id,
            epoch: entry.epoch,
            base: entry.base,
            salt: entry.salt,
            block_bytes,
            compacted: entry.compacted,
            packed: packed || key_id.is_some(),
            key_id,
        };
        let fits = |header: &SegmentHeader| {
            let block = u64::from(header.block_bytes);
            let at = (crate::segment::SEGMENT_HEADER_BYTES as u64).next_multiple_of(block);
            let bytes = read_exact_at(&*file.file, at, FRAME_HEADER_BYTES).unwrap_or_default();
            FrameHeader::decode(&bytes, entry.salt)
                .is_ok_and(|frame| frame.prev_crc == header.checksum())
        };
        let headers = || BLOCK_SIZES.into_iter().flat_map(|b| [with(b, false), with(b, true)]);
        let first = headers().find(fits);
        first.unwrap_or_else(|| {
            let usual = with(BLOCK_SIZES[0], false);
            with_most_frames(headers(), usual, entry, file, &self.keys)
        })
    }

    /// Reads every frame; what is damaged is mended.
    fn frames(
        &mut self,
        entry: &SegmentEntry,
        file: SegmentFile,
        header: SegmentHeader,
        header_damaged: bool,
    ) -> io::Result<()> {
        if !self.keys.has(header.key_id) {
            return self.locked(entry, &file, header, header_damaged);
        }
        let is_sealed = entry.state == SegmentState::Sealed;
        if header_damaged {
            let what = "its first block is damaged; the catalog tells what it said";
            self.note(Finding::new(Kind::SegmentHeader, &file.path, what, "written anew"));
        }
        if is_sealed && file.len < entry.data_end {
            let what = format!("it has {} of {} bytes", file.len, entry.data_end);
            self.note(Finding::new(Kind::SegmentTruncated, &file.path, what, ""));
        }
        let limit = if is_sealed { entry.data_end.min(file.len) } else { file.len };
        let (opened, keys) = (Arc::clone(&file.file), self.keys.clone());
        let segment = Arc::new(Segment { header, file: opened, keys });
        let pass = self.first_pass(entry, &segment, limit);
        let whole = entry.compacted || pass.next == entry.end.next();
        let cut_off = !is_sealed && file.len < entry.allocated;
        let good = pass.fault.is_none() && pass.padding.is_none() && !header_damaged && !cut_off;
        if good && is_sealed && whole && limit == entry.data_end {
            return self.footer(entry, &segment);
        }
        if good && !is_sealed {
            self.open_end = Lsn(pass.next.0 - 1);
            return Ok(());
        }
        let keys = self.keys.clone();
        let known = Expected {
            limit: if is_sealed { entry.data_end } else { file.len },
            end: is_sealed.then_some(entry.end),
            likely: self.options.likely,
            keys: &keys,
        };
        let len = usize::try_from(file.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
        let (image, unreadable) = read_what_can_be_read(&*file.file, len)?;
        for (from, until) in &unreadable {
            let what = format!("bytes {from} to {until} cannot be read");
            self.note(Finding::new(Kind::ReadError, &file.path, what, "taken as lost"));
        }
        let found = salvage(image, header, known);
        // Behind its last frame an open segment may have held any number of others.
        let unread = unreadable.iter().any(|(_, until)| *until > found.end);
        if !is_sealed && (unread || header_damaged && found.pieces.is_empty()) {
            self.inventory.lost_end();
        }
        self.mend(entry, header, &found, pass.at, header_damaged)?;
        if cut_off { self.end_of_cut(entry, &file) } else { Ok(()) }
    }

    /// A segment whose key was not given: all that can be said is whether it is as it was stored.
    fn locked(
        &mut self,
        entry: &SegmentEntry,
        file: &SegmentFile,
        header: SegmentHeader,
        header_damaged: bool,
    ) -> io::Result<()> {
        let is_sealed = entry.state == SegmentState::Sealed;
        let limit = if is_sealed { entry.data_end.min(file.len) } else { file.len };
        let (opened, keys) = (Arc::clone(&file.file), self.keys.clone());
        let segment = Arc::new(Segment { header, file: opened, keys });
        let (end, frames) = stored_frames(&segment, limit)?;
        let mut more = format!("; the checksums of {frames} frames fit");
        let ends_well = end.fault.is_none() || !is_sealed && end.fault == Some(FrameFault::Blank);
        if header_damaged || !ends_well || is_sealed && file.len < entry.data_end {
            let at = if header_damaged { 0 } else { end.offset };
            more.push_str(&format!(
                ", and it is damaged at offset {at}: run this again with the key"
            ));
        }
        self.note_encrypted(&file.path, header.key_id, &more);
        Ok(())
    }

    /// An open segment whose file has become shorter: the content of the missing part is unknown.
    fn end_of_cut(&mut self, entry: &SegmentEntry, file: &SegmentFile) -> io::Result<()> {
        let what = format!("it has {} of {} bytes", file.len, entry.allocated);
        self.note(Finding::new(Kind::SegmentTruncated, &file.path, what, CUT_ACTION));
        self.inventory.lost_end();
        self.seal_open()
    }

    /// Walks the frames from the front and counts what they hold, as far as all is well. What cannot be
    /// read is taken as lost.
    fn first_pass(&mut self, entry: &SegmentEntry, segment: &Arc<Segment>, limit: u64) -> Pass {
        let mut pass =
            Pass { at: segment.first_offset(), fault: None, padding: None, next: entry.base };
        let walked = read_frames(segment, limit, drop::<io::Error>, |frame| {
            self.count(frame.body(), frame.header.lsn, entry);
            let behind = frame.offset + u64::from(frame.header.len);
            if pass.padding.is_none() && !is_zero(segment, behind, frame.end) {
                pass.padding = Some(frame.offset);
            }
            (pass.at, pass.next) = (frame.end, frame.header.lsn.next());
            Ok(())
        });
        let fault = walked.map_or(Some(FrameFault::Short), |end| end.fault);
        let blank = fault == Some(FrameFault::Blank) && is_zero(segment, pass.at, limit);
        let is_end = entry.state == SegmentState::Open && blank;
        pass.fault = fault.filter(|_| !is_end);
        pass
    }

    fn count(&mut self, body: &[u8], lsn: Lsn, entry: &SegmentEntry) {
        let mut records = RecordIter::new(body);
        for (_, record) in records.by_ref() {
            self.inventory.record(&record, lsn, entry.compacted, self.decoder);
        }
        let Some(fault) = records.fault else { return };
        let kind = match fault {
            Unusable::Later(_) => Kind::LaterVersion,
            Unusable::Damaged(_) => Kind::Unreadable,
        };
        let name = entry.file_name();
        // One frame tells of all.
        if !self.findings.iter().any(|found| found.kind == kind && found.file == name) {
            let what = format!("the frame at position {lsn} is whole and holds {fault}");
            self.note(Finding::new(kind, name, what, ""));
        }
    }

    fn footer(&mut self, entry: &SegmentEntry, segment: &Segment) -> io::Result<()> {
        let name = entry.file_name();
        match footer_of(entry, segment) {
            _ if entry.footer_len == 0 => return Ok(()),
            Ok(_) => return Ok(()),
            Err(Unusable::Later(what)) => {
                self.note(Finding::new(Kind::LaterVersion, name, what.to_string(), ""));
                return Ok(());
            }
            Err(Unusable::Damaged(_)) => {}
        }
        let image = read_exact_at(&*segment.file, 0, entry.data_end as usize)?;
        let (limit, end) = (entry.data_end, Some(entry.end));
        let known = Expected { limit, end, likely: false, keys: &self.keys };
        let found = salvage(image, segment.header, known);
        let what = "it is missing or damaged; all frames are good";
        self.note(Finding::new(Kind::Footer, name, what, "made anew from the frames"));
        self.write_segment(entry, segment.header, &found)
    }

    /// Says what was found in a damaged segment and writes what is left of it.
    fn mend(
        &mut self,
        entry: &SegmentEntry,
        header: SegmentHeader,
        found: &Salvage,
        counted: u64,
        header_damaged: bool,
    ) -> io::Result<()> {
        let name = entry.file_name();
        if found.unknown {
            let what = "a frame has flags or a key of a later version";
            self.note(Finding::new(Kind::LaterVersion, name, what, ""));
            return Ok(());
        }
        self.report(entry, found);
        let segment = Segment { header, file: self.disk.open(&name)?, keys: self.keys.clone() };
        let footer = footer_of(entry, &segment).ok();
        self.count_rest(entry, found, counted, footer.as_ref());
        let nothing = found.repairs.is_empty()
            && found.padding.is_empty()
            && found.torn_bytes == 0
            && !header_damaged
            && !found.pieces.iter().any(|piece| matches!(piece, Piece::Hole(_)));
        if nothing && entry.state == SegmentState::Open {
            return Ok(());
        }
        if found.pieces.is_empty() && entry.state == SegmentState::Open {
            self.catalog.segments.retain(|other| other.id != entry.id);
            return self.disk.remove(&name);
        }
        self.write_segment(entry, header, found)
    }

    fn report(&mut self, entry: &SegmentEntry, found: &Salvage) {
        let name = entry.file_name();
        for repair in &found.repairs {
            let what = format!(
                "the byte at offset {} is {:#04x} and was {:#04x} (position {}): the checksum tells",
                repair.at, repair.found, repair.restored, repair.lsn
            );
            self.note(Finding::new(Kind::FrameFlipped, &name, what, "set back; nothing is lost"));
        }
        for offset in &found.padding {
            let what = format!("bytes behind the frame at offset {offset} are not zero");
            self.note(Finding::new(Kind::Padding, &name, what, "zeroed; nothing is lost"));
        }
        for piece in &found.pieces {
            if let Piece::Hole(hole) = piece {
                self.note(Finding::new(Kind::FrameLost, &name, hole_text(hole), HOLE_ACTION));
            }
        }
        if found.torn_bytes > 0 && entry.state == SegmentState::Open {
            let (bytes, end) = (found.torn_bytes, found.end);
            let what = format!("{bytes} bytes from offset {end} on were never acknowledged");
            let action =
                "cut off, as the server does at its next start; the segment is sealed there";
            self.note(Finding::new(Kind::TornTail, name, what, action));
        }
    }

    /// Counts what the first pass did not reach: frames behind the damage, and the holes.
    fn count_rest(
        &mut self,
        entry: &SegmentEntry,
        found: &Salvage,
        counted: u64,
        footer: Option<&Footer>,
    ) {
        for piece in &found.pieces {
            match piece {
                Piece::Frame { offset, header } if *offset >= counted => {
                    let body = body_of(&self.keys, found, *offset, header);
                    self.count(&body, header.lsn, entry);
                }
                Piece::Hole(hole) if footer.is_none() => {
                    self.inventory.hole(hole.last.max(hole.first), hole.records_max);
                }
                Piece::Frame { .. } | Piece::Hole(_) => {}
            }
        }
        if let Some(footer) = footer {
            self.compare_with_footer(footer, found);
        }
    }

    /// The footer tells which messages the holes held.
    fn compare_with_footer(&mut self, footer: &Footer, found: &Salvage) {
        let mut readable: FxHashSet<(StreamId, u64)> = FxHashSet::default();
        let mut holes: Vec<Hole> = Vec::new();
        for piece in &found.pieces {
            match piece {
                Piece::Hole(hole) => holes.push(*hole),
                Piece::Frame { offset, header } => {
                    for (_, record) in RecordIter::new(&body_of(&self.keys, found, *offset, header))
                    {
                        if record.kind == RecordKind::Message {
                            readable.insert((record.stream, record.seq.0));
                        }
                    }
                }
            }
        }
        for stream in footer.streams() {
            let (mut last, mut missing) = (0, Vec::new());
            footer.for_each_message(stream, |message| {
                last = message.seq.0;
                if !readable.contains(&(stream.stream, last)) {
                    missing.push(last);
                }
            });
            self.inventory.footer_messages(stream.stream, last, &missing);
            let at = stream.last_at.lsn;
            let hole = holes.iter().find(|hole| (hole.first..=hole.last).contains(&at));
            if let Some(hole) = hole.filter(|_| missing.is_empty()) {
                self.inventory.footer_records(stream.stream, hole.records_max);
            }
        }
    }

    /// A segment of which nothing can be had: its positions stay, without a file.
    fn give_up(&mut self, entry: &SegmentEntry, kind: Kind, what: String) {
        if entry.state == SegmentState::Sealed {
            let records_max = entry.data_end / crate::record::RECORD_HEADER_BYTES as u64;
            self.inventory.hole(end_of(entry), records_max);
        } else {
            self.inventory.lost_end();
        }
        let (id, base, end) = (entry.id, entry.base, end_of(entry));
        if let Some(slot) = self.catalog.entry_mut(id) {
            *slot = removed(id, base, end);
        }
        self.note(Finding::new(kind, entry.file_name(), what, HOLE_ACTION));
    }

    /// Seals the open segment where its good frames end, so that something can come behind it.
    pub(super) fn seal_open(&mut self) -> io::Result<()> {
        let open = |entry: &&SegmentEntry| entry.state == SegmentState::Open;
        let Some(entry) = self.catalog.segments.iter().find(open).copied() else { return Ok(()) };
        let file = SegmentFile::open_readable(&*self.disk, &entry.file_name())?;
        let Ok(header) = file.header else { return Ok(()) };
        let len = usize::try_from(file.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
        let (image, _) = read_what_can_be_read(&*file.file, len)?;
        let known = Expected { limit: file.len, end: None, likely: false, keys: &self.keys };
        let found = salvage(image, header, known);
        if found.pieces.is_empty() {
            self.catalog.segments.retain(|other| other.id != entry.id);
            return self.disk.remove(&entry.file_name());
        }
        self.write_segment(&entry, header, &found)
    }

    /// Replaces a segment's entry.
    pub(super) fn replace_entry(&mut self, id: SegmentId, entry: SegmentEntry) {
        if let Some(slot) = self.catalog.entry_mut(id) {
            *slot = entry;
        }
    }
}

/// The repair's action for a file that was cut off.
const CUT_ACTION: &str =
    "sealed where its frames end; sequences that may have been behind are skipped";

/// The repair's action where frames are gone.
const HOLE_ACTION: &str = "what they held is given up: its sequences become deleted ones";

/// The last position that a missing segment stands for.
fn end_of(entry: &SegmentEntry) -> Lsn {
    entry.end.max(entry.base)
}

/// The records of a frame that salvage found good, which includes that it can be decrypted and unpacked.
fn body_of<'a>(
    keys: &Keyring,
    found: &'a Salvage,
    offset: u64,
    header: &FrameHeader,
) -> Cow<'a, [u8]> {
    sealed::records_of(keys, header, &found.image[offset as usize..]).unwrap_or_default()
}

/// The key of a segment whose first block does not tell it: of the first frame with a good header.
fn key_in_frames(entry: &SegmentEntry, file: &SegmentFile) -> KeyId {
    let len = usize::try_from(file.len.min(MAX_SEGMENT_BYTES)).unwrap_or(0);
    let (image, _) = read_what_can_be_read(&*file.file, len).unwrap_or_default();
    let mut frames = image.chunks(LEAST_BLOCK_BYTES);
    let is_ours = |header: &FrameHeader| header.epoch == entry.epoch;
    let first = frames.find_map(|at| FrameHeader::decode(at, entry.salt).ok().filter(is_ours));
    first.map_or(KeyId::NONE, |header| header.key_id)
}

fn hole_text(hole: &Hole) -> String {
    let why = match hole.fault {
        FrameFault::Blank => "zeros where frames were",
        FrameFault::Header => "a damaged frame header",
        FrameFault::Body => "a damaged frame",
        FrameFault::Short => "the file ends too early",
        FrameFault::Chain => "frames are missing",
        FrameFault::Unknown => "an unknown frame",
        FrameFault::Key(_) => "a frame under another key than its segment",
        FrameFault::Seal => "a frame whose checksum fits and that is not what was encrypted",
    };
    format!(
        "{why} at offsets {} to {} (positions {} to {})",
        hole.from, hole.until, hole.first, hole.last
    )
}

fn footer_of(entry: &SegmentEntry, segment: &Segment) -> Result<Footer, Unusable> {
    read_footer(segment, entry).map_err(|fault| match fault {
        FooterFault::None => Unusable::Damaged("there was no room for one"),
        FooterFault::Io(_) => Unusable::Damaged("it cannot be read"),
        FooterFault::Unusable(why) => why,
    })
}

/// True if bytes of a segment are all zero, or not there; not if they cannot be read.
fn is_zero(segment: &Segment, from: u64, until: u64) -> bool {
    is_blank(&*segment.file, from, until).unwrap_or(false)
}
