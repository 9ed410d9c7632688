//! Looking a log over without changing it: every segment of the chain, every frame, every checksum.

use crate::catalog::{Catalog, CatalogError, SegmentEntry, SegmentState};
use crate::checkpoint;
use crate::env::{Disk, OwnableDisk};
use crate::frame::{FRAME_HEADER_BYTES, FrameFault};
use crate::keys::{KeyId, Keyring};
use crate::later::{Later, Unusable};
use crate::record::{RecordKind, RecordRef};
use crate::segment::Segment;
use crate::segment::reader::{
    FramesEnd, GoodFrame, SegmentFile, read_footer, read_frames, stored_frames,
};
use crate::segment::scan::look_beyond;
use crate::types::{Epoch, Lsn};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Result of inspecting a log.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Identity of the log.
    pub log_id: u64,
    /// The newest epoch that wrote.
    pub epoch: Epoch,
    /// True if it was closed cleanly.
    pub clean: bool,
    /// The chain, in the order of positions.
    pub segments: Vec<SegmentInspection>,
    /// Segment files that the catalog does not know.
    pub strangers: Vec<String>,
    /// Checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointInspection>,
    /// Those of them that a later version wrote: the log does not open then.
    later: Vec<String>,
}

/// Result of inspecting a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointInspection {
    /// Name of its file.
    pub file: String,
    /// The position that it covers, and its bytes; or why it cannot be used.
    pub content: Result<(Lsn, u64), String>,
}

/// Result of inspecting a segment.
#[derive(Clone, Debug)]
pub struct SegmentInspection {
    /// Identity within the log.
    pub id: u32,
    /// Epoch of its writer.
    pub epoch: Epoch,
    /// Name of its file.
    pub file: String,
    /// Length of its file, if there is one.
    pub file_bytes: u64,
    /// Bytes of its footer; 0 if it has none.
    pub footer_bytes: u64,
    /// Bytes of messages' records.
    pub message_bytes: u64,
    /// First position that it stands for.
    pub base: Lsn,
    /// Last position that it stands for; of an open segment, the last one found.
    pub end: Lsn,
    /// `open`, `sealed`, `removed` or `replaced`.
    pub state: &'static str,
    /// True if compaction wrote it.
    pub compacted: bool,
    /// Key under which it is encrypted.
    pub key_id: KeyId,
    /// True if that key is not there: of its frames no more is known than that their checksums fit.
    pub locked: bool,
    /// Good frames.
    pub frames: u64,
    /// Those among them whose records are compressed.
    pub packed_frames: u64,
    /// Records in them.
    pub records: u64,
    /// Messages among these.
    pub messages: u64,
    /// Offset where the good frames end.
    pub good_bytes: u64,
    /// Faults, in words; empty if there are none.
    pub problems: Vec<String>,
    /// Bytes behind the good frames of an open segment: a torn tail, which recovery cuts off.
    pub torn_bytes: u64,
}

impl Inspection {
    /// True if the log would open without losing anything that was durable.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.segments.iter().all(|segment| segment.problems.is_empty()) && self.later.is_empty()
    }

    /// Looks over the log on `disk`, reading all of it. Takes the directory's lock meanwhile.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn of(disk: &dyn OwnableDisk) -> Result<Self, InspectError> {
        let Some(_tenure) = disk.take()? else { return Err(InspectError::Locked) };
        Self::look(disk, &mut |_, _| {})
    }

    /// As [`Inspection::of`] without the lock, for a log that may be in use: its end may then change
    /// while it is read. `visit` is called for every message of the chain, with the segment's number
    /// in it.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn look(
        disk: &dyn Disk,
        visit: &mut dyn FnMut(usize, &RecordRef<'_>),
    ) -> Result<Self, InspectError> {
        Self::look_with(disk, &Keyring::default(), visit)
    }

    /// As [`Inspection::look`], with keys for what is encrypted.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn look_with(
        disk: &dyn Disk,
        keys: &Keyring,
        visit: &mut dyn FnMut(usize, &RecordRef<'_>),
    ) -> Result<Self, InspectError> {
        let catalog = Catalog::load(disk)?.ok_or(InspectError::NoLog)?;
        let known: Vec<String> = catalog.segments.iter().map(SegmentEntry::file_name).collect();
        let mut strangers = disk.list("")?;
        strangers.retain(|name| name.ends_with(".seg") && !known.contains(name));
        let segments = catalog.segments.iter().enumerate();
        let segments = segments
            .map(|(number, entry)| {
                inspect((disk, keys), catalog.log_id, entry, &mut |record| visit(number, record))
            })
            .collect();
        let Catalog { log_id, epoch, clean, .. } = catalog;
        let mut later = Vec::new();
        let checkpoints = checkpoint::names(disk)?.into_iter();
        let checkpoints =
            checkpoints.map(|name| inspect_checkpoint(disk, keys, name, &mut later)).collect();
        Ok(Self { log_id, epoch, clean, segments, strangers, checkpoints, later })
    }
}

/// Why a log could not be looked over.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A server has it open.
    #[error("the log is in use")]
    Locked,
    /// There is no catalog.
    #[error("there is no log")]
    NoLog,
    /// The catalog cannot be used.
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = if self.clean { "closed cleanly" } else { "not closed cleanly" };
        writeln!(f, "log {:016x}, epoch {}, {closed}", self.log_id, self.epoch)?;
        for segment in &self.segments {
            writeln!(f, "{segment}")?;
        }
        for name in &self.strangers {
            writeln!(f, "{name}: not part of the log")?;
        }
        Ok(())
    }
}

impl fmt::Display for SegmentInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, state, base, end, frames, records, messages, good_bytes, .. } = self;
        write!(f, "{file} {state} {base}..{end}: {frames} frames, {records} records, ")?;
        write!(f, "{messages} messages, {good_bytes} bytes")?;
        if self.packed_frames > 0 {
            write!(f, ", {} frames packed", self.packed_frames)?;
        }
        if self.key_id.is_some() {
            let locked = if self.locked { ", which was not given" } else { "" };
            write!(f, ", encrypted with key {}{locked}", self.key_id)?;
        }
        if self.torn_bytes > 0 {
            write!(f, ", torn tail of {} bytes", self.torn_bytes)?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n    PROBLEM: {problem}"))
    }
}

const fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Open => "open",
        SegmentState::Sealed => "sealed",
        SegmentState::Removed => "removed",
        SegmentState::Replaced => "replaced",
    }
}

type Visit<'a> = dyn FnMut(&RecordRef<'_>) + 'a;

fn inspect(
    (disk, keys): (&dyn Disk, &Keyring),
    log_id: u64,
    entry: &SegmentEntry,
    visit: &mut Visit<'_>,
) -> SegmentInspection {
    let mut found = SegmentInspection {
        id: entry.id.0,
        epoch: entry.epoch,
        file: entry.file_name(),
        file_bytes: 0,
        footer_bytes: u64::from(entry.footer_len),
        message_bytes: 0,
        base: entry.base,
        end: entry.end,
        state: state_name(entry.state),
        compacted: entry.compacted,
        key_id: KeyId::NONE,
        locked: false,
        frames: 0,
        packed_frames: 0,
        records: 0,
        messages: 0,
        good_bytes: 0,
        problems: Vec::new(),
        torn_bytes: 0,
    };
    if matches!(entry.state, SegmentState::Open | SegmentState::Sealed)
        && let Err(problem) = look_into((disk, keys), log_id, entry, &mut found, visit)
    {
        found.problems.push(problem);
    }
    found
}

fn look_into(
    (disk, keys): (&dyn Disk, &Keyring),
    log_id: u64,
    entry: &SegmentEntry,
    found: &mut SegmentInspection,
    visit: &mut Visit<'_>,
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let SegmentFile { file, len, header, .. } =
        SegmentFile::open(disk, &found.file).map_err(words)?;
    found.file_bytes = len;
    let header = header.map_err(|fault| format!("the segment's header: {fault:?}"))?;
    if !header.is_of(entry, log_id) {
        return Err("the file is another segment than the catalog says".to_owned());
    }
    let segment = Arc::new(Segment { header, file, keys: keys.clone() });
    found.key_id = header.key_id;
    if !keys.has(header.key_id) {
        return look_at_locked(&segment, entry, found);
    }
    if entry.state == SegmentState::Open {
        return look_into_open(&segment, entry.allocated, found, visit);
    }
    let end = scan(&segment, entry.data_end, found, visit).map_err(words)?;
    if let Some(fault) = end.fault {
        found.problems.push(format!("frame at offset {}: {fault:?}", end.offset));
    }
    if read_footer(&segment, entry).is_err() {
        found.problems.push("the footer is missing or damaged (it will be rebuilt)".to_owned());
    }
    Ok(())
}

/// A segment whose key is not there: whether it is as it was stored.
fn look_at_locked(
    segment: &Arc<Segment>,
    entry: &SegmentEntry,
    found: &mut SegmentInspection,
) -> Result<(), String> {
    found.locked = true;
    let is_open = entry.state == SegmentState::Open;
    let limit = if is_open { found.file_bytes } else { entry.data_end };
    let (end, frames) = stored_frames(segment, limit).map_err(|error| error.to_string())?;
    (found.frames, found.good_bytes) = (frames, end.offset);
    if is_open {
        found.end = Lsn(end.next.0.saturating_sub(1));
        return Ok(());
    }
    end.fault.map_or(Ok(()), |fault| Err(format!("frame at offset {}: {fault:?}", end.offset)))
}

fn look_into_open(
    segment: &Arc<Segment>,
    allocated: u64,
    found: &mut SegmentInspection,
    visit: &mut Visit<'_>,
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let limit = segment.file.len().map_err(words)?;
    if limit < allocated {
        found.problems.push(format!("the file has {limit} of {allocated} bytes"));
    }
    let end = scan(segment, limit, found, visit).map_err(words)?;
    let from = end.offset;
    if end.fault == Some(FrameFault::Unknown) {
        found.problems.push(format!("frame at offset {from}: {}", Later::Frame));
    }
    let beyond = look_beyond(segment, from, limit).map_err(words)?;
    found.torn_bytes = beyond.end.saturating_sub(from);
    if beyond.durable > found.end {
        let what = end.fault.unwrap_or(FrameFault::Short);
        return Err(format!(
            "position {} at offset {from} was durable and is damaged: {what:?}",
            found.end.next()
        ));
    }
    Ok(())
}

fn inspect_checkpoint(
    disk: &dyn Disk,
    keys: &Keyring,
    file: String,
    later: &mut Vec<String>,
) -> CheckpointInspection {
    let content = checkpoint::read(disk, &file, keys);
    match &content {
        Err(checkpoint::CheckpointFault::Unusable(Unusable::Later(Later::Key(_)))) | Ok(_) => {}
        Err(checkpoint::CheckpointFault::Unusable(Unusable::Later(_))) => later.push(file.clone()),
        Err(_) => {}
    }
    let content = content.map(|found| (found.covers.lsn, found.bytes.len() as u64));
    CheckpointInspection { file, content: content.map_err(|fault| fault.to_string()) }
}

/// Reads all frames up to `limit`, or to where they stop making sense.
fn scan(
    segment: &Arc<Segment>,
    limit: u64,
    found: &mut SegmentInspection,
    visit: &mut Visit<'_>,
) -> io::Result<FramesEnd> {
    read_frames(
        segment,
        limit,
        |error| error,
        |frame| {
            found.frames += 1;
            found.packed_frames += u64::from(frame.is_packed());
            found.end = frame.header.lsn;
            found.good_bytes = frame.end;
            let mut records = frame.records();
            for (_, record) in records.by_ref() {
                found.records += 1;
                if record.kind == RecordKind::Message {
                    found.messages += 1;
                    found.message_bytes += record.weight() as u64;
                    visit(&record);
                }
            }
            if let Some(fault) = records.fault {
                found.problems.push(format!("frame at offset {}: {fault}", frame.offset));
            }
            Ok(())
        },
    )
}

/// Something in a segment, in the order of the file.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A good frame.
    Frame(&'a FrameView),
    /// A record of the last frame, and its offset in the frame.
    Record(usize, RecordRef<'a>),
    /// Offset at which frames stop although more should follow.
    Fault(FrameFault, u64),
}

/// Decoded header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameView {
    /// Offset where it starts in the file.
    pub offset: u64,
    /// Its length without padding.
    pub bytes: u32,
    /// The same, if its records are compressed, when they are not.
    pub unpacked_bytes: Option<usize>,
    /// Records in it.
    pub records: u16,
    /// Its position.
    pub lsn: Lsn,
    /// The durable position when it was sealed.
    pub durable_lsn: Lsn,
    /// Flags, as in the format.
    pub flags: u16,
    /// Checksum of the header.
    pub header_crc: u32,
    /// Checksum of the records.
    pub body_crc: u32,
    /// Key under which the records are encrypted.
    pub key_id: KeyId,
}

impl FrameView {
    fn of(frame: &GoodFrame<'_>) -> Self {
        let header = frame.header;
        Self {
            offset: frame.offset,
            bytes: header.len,
            unpacked_bytes: frame.is_packed().then_some(frame.bytes.len()),
            records: header.count,
            lsn: header.lsn,
            durable_lsn: header.durable_lsn,
            flags: header.flags,
            header_crc: header.header_crc,
            body_crc: header.body_crc,
            key_id: header.key_id,
        }
    }
}

/// Shows every frame and record of a segment file of the log.
///
/// # Errors
/// It is not a segment, or cannot be read.
pub fn walk_segment(
    disk: &dyn Disk,
    file: &str,
    visit: &mut dyn FnMut(Seen<'_>) -> io::Result<()>,
) -> io::Result<()> {
    walk_segment_with(disk, &Keyring::default(), file, visit)
}

/// As [`walk_segment`], with keys for what is encrypted.
///
/// # Errors
/// As [`walk_segment`].
pub fn walk_segment_with(
    disk: &dyn Disk,
    keys: &Keyring,
    file: &str,
    visit: &mut dyn FnMut(Seen<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let found = SegmentFile::open_readable(disk, file)?;
    let header = found.header.map_err(|fault| {
        io::Error::new(io::ErrorKind::InvalidData, format!("its header: {fault:?}"))
    })?;
    let limit = found.footer_at_end(header.id).map_or(found.len, |(_, start)| start);
    let segment = Arc::new(Segment { header, file: found.file, keys: keys.clone() });
    let end = read_frames(
        &segment,
        limit,
        |error| error,
        |frame| {
            visit(Seen::Frame(&FrameView::of(frame)))?;
            for (at, record) in frame.records() {
                visit(Seen::Record(at + FRAME_HEADER_BYTES, record))?;
            }
            Ok(())
        },
    )?;
    match end.fault {
        None | Some(FrameFault::Blank) => Ok(()),
        Some(fault) => visit(Seen::Fault(fault, end.offset)),
    }
}
