//! The one way in which a segment file is read from the front: by a start, by the doctor, by
//! `log inspect`, and by whoever keeps a copy and wants to know that it is whole. It knows the format
//! and no machine; what a fault means is the caller's to say.

use super::footer::{FOOTER_MAGIC, FOOTER_TRAILER_BYTES};
use super::scan::{ScanPoint, look_beyond};
use super::{
    Footer, FrameScanner, HeaderFault, SEGMENT_HEADER_BYTES, Scanned, Segment, SegmentHeader,
    SegmentId,
};
use crate::catalog::SegmentEntry;
use crate::env::{Disk, DiskFile, again, read_exact_at};
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, RecordIter, pack};
use crate::keys::Keyring;
use crate::later::Unusable;
use crate::types::Lsn;
use std::io;
use std::sync::Arc;

/// Bytes that are looked at at a time where a file may be all zeros.
const BLANK_STEP_BYTES: u64 = 1024 * 1024;

/// A segment file as it lies there.
pub struct SegmentFile {
    /// Its path.
    pub path: String,
    /// Its length.
    pub len: u64,
    /// The decoded first block.
    pub header: Result<SegmentHeader, HeaderFault>,
    /// The file.
    pub file: Arc<dyn DiskFile>,
}

impl SegmentFile {
    /// Opens a file and reads its first block.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: &dyn Disk, path: &str) -> io::Result<Self> {
        let file = again(|| disk.open(path))?;
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let n = again(|| file.read_at(&mut head, 0))?;
        Self::of(path, file, SegmentHeader::decode(&head[..n]))
    }

    /// As [`SegmentFile::open`] for whoever makes the best of it: a first block that cannot be read is a
    /// damaged one.
    ///
    /// # Errors
    /// It cannot be opened, or its length not be had.
    pub fn open_readable(disk: &dyn Disk, path: &str) -> io::Result<Self> {
        let file = disk.open(path)?;
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let header = match file.read_at(&mut head, 0) {
            Ok(n) => SegmentHeader::decode(&head[..n]),
            Err(_) => Err(HeaderFault::Damaged),
        };
        Self::of(path, file, header)
    }

    fn of(
        path: &str,
        file: Arc<dyn DiskFile>,
        header: Result<SegmentHeader, HeaderFault>,
    ) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), len: again(|| file.len())?, header, file })
    }

    /// Where the footer at the end of the file starts, and the last position that it is about. No key is
    /// needed for that.
    #[must_use]
    pub fn footer_at_end(&self, id: SegmentId) -> Option<(Lsn, u64)> {
        let mut trailer = [0; FOOTER_TRAILER_BYTES];
        let at = self.len.checked_sub(FOOTER_TRAILER_BYTES as u64)?;
        self.file.read_at(&mut trailer, at).ok()?;
        let footer_len = u64::from(crate::bytes::u32_at(&trailer, 0));
        if trailer[8..] != FOOTER_MAGIC || footer_len > self.len {
            return None;
        }
        let start = self.len - footer_len;
        let bytes = read_exact_at(&*self.file, start, footer_len as usize).ok()?;
        Footer::end_in(&bytes, id).ok().map(|end| (end, start))
    }

    /// True if any frame of it has an intact header.
    ///
    /// # Errors
    /// The disk's.
    pub fn has_frames(&self) -> io::Result<bool> {
        let Ok(header) = self.header else { return Ok(false) };
        let (file, keys) = (Arc::clone(&self.file), Keyring::default());
        let segment = Segment { header, file, keys };
        Ok(look_beyond(&segment, segment.first_offset(), self.len)?.frames > 0)
    }
}

impl SegmentHeader {
    /// True if it is the first block of the segment that an entry of a log's catalog speaks of.
    #[must_use]
    pub fn is_of(&self, entry: &SegmentEntry, log_id: u64) -> bool {
        self.log_id == log_id
            && (self.id, self.epoch, self.base) == (entry.id, entry.epoch, entry.base)
            && (self.salt, self.compacted) == (entry.salt, entry.compacted)
            && self.block_bytes.is_power_of_two()
    }
}

/// Why a sealed segment's footer is not used.
#[derive(Debug, thiserror::Error)]
pub enum FooterFault {
    /// There was no room for one.
    #[error("has no footer")]
    None,
    /// The disk failed: it may be whole.
    #[error("has a footer that cannot be read ({0})")]
    Io(io::Error),
    /// What was read says so.
    #[error("has no usable footer ({0})")]
    Unusable(Unusable),
}

/// A sealed segment's footer.
///
/// # Errors
/// [`FooterFault`].
pub fn read_footer(segment: &Segment, entry: &SegmentEntry) -> Result<Footer, FooterFault> {
    if entry.footer_len == 0 {
        return Err(FooterFault::None);
    }
    let read = || read_exact_at(&*segment.file, entry.data_end, entry.footer_len as usize);
    let footer = match again(read) {
        Ok(bytes) => {
            Footer::parse(bytes, entry.id, &segment.keys).map_err(FooterFault::Unusable)?
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(FooterFault::Unusable(Unusable::Damaged("the file ends in it")));
        }
        Err(error) => return Err(FooterFault::Io(error)),
    };
    if footer.end() == entry.end {
        Ok(footer)
    } else {
        Err(FooterFault::Unusable(Unusable::Damaged("it ends with another position")))
    }
}

/// A frame that passed every check that the format offers.
pub struct GoodFrame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Offset where it starts in the file.
    pub offset: u64,
    /// Offset where the next one starts.
    pub end: u64,
    /// Its bytes, header included, without padding; what they are decrypted and unpacked.
    pub bytes: &'a [u8],
}

impl<'a> GoodFrame<'a> {
    /// Its records.
    #[must_use]
    pub fn records(&self) -> RecordIter<'a> {
        RecordIter::new(self.body())
    }

    /// Its records' bytes.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[FRAME_HEADER_BYTES..]
    }

    /// True if its records are compressed in the file.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        pack::is_packed(&self.header)
    }
}

/// Where the good frames of a segment end.
pub struct FramesEnd {
    /// Offset behind the last one.
    pub offset: u64,
    /// The position that the next one would have.
    pub next: Lsn,
    /// Why there is no frame there, if there could be one.
    pub fault: Option<FrameFault>,
    /// Where a scan goes on when there are more.
    pub point: ScanPoint,
}

impl FramesEnd {
    fn of(scan: &FrameScanner, fault: Option<FrameFault>) -> Self {
        Self { offset: scan.at(), next: scan.expected(), fault, point: scan.point() }
    }
}

/// Where the frames of a segment end that are good as they are stored, up to `limit`, and how many there
/// are: for a segment whose key is not there.
///
/// # Errors
/// The disk's.
pub fn stored_frames(segment: &Arc<Segment>, limit: u64) -> io::Result<(FramesEnd, u64)> {
    let (mut scan, mut frames) = (FrameScanner::as_stored(Arc::clone(segment), limit), 0);
    loop {
        let fault = match scan.step()? {
            Scanned::Frame(..) => {
                frames += 1;
                continue;
            }
            Scanned::Fault(fault, _) => Some(fault),
            Scanned::End => None,
        };
        return Ok((FramesEnd::of(&scan, fault), frames));
    }
}

/// Shows every frame of a segment up to `limit`, or to the first that is not good.
///
/// # Errors
/// What `visit` says, and what `unreadable` makes of the disk's.
pub fn read_frames<E>(
    segment: &Arc<Segment>,
    limit: u64,
    unreadable: impl Fn(io::Error) -> E,
    visit: impl FnMut(&GoodFrame<'_>) -> Result<(), E>,
) -> Result<FramesEnd, E> {
    read_on(FrameScanner::new(Arc::clone(segment), limit), unreadable, visit)
}

/// As [`read_frames`], of the frames that a scanner has before it.
///
/// # Errors
/// As for [`read_frames`].
pub fn read_on<E>(
    mut scan: FrameScanner,
    unreadable: impl Fn(io::Error) -> E,
    mut visit: impl FnMut(&GoodFrame<'_>) -> Result<(), E>,
) -> Result<FramesEnd, E> {
    loop {
        let fault = match scan.step().map_err(&unreadable)? {
            Scanned::Frame(header, offset) => {
                visit(&GoodFrame { header, offset, end: scan.at(), bytes: scan.frame() })?;
                continue;
            }
            Scanned::Fault(fault, _) => Some(fault),
            Scanned::End => None,
        };
        return Ok(FramesEnd::of(&scan, fault));
    }
}

/// True if bytes of a file are all zero, or not there.
///
/// # Errors
/// The disk's.
pub fn is_blank(file: &dyn DiskFile, from: u64, until: u64) -> io::Result<bool> {
    let step = until.saturating_sub(from).min(BLANK_STEP_BYTES);
    let mut chunk = vec![0; step as usize];
    let mut at = from;
    while at < until {
        let len = (until - at).min(step) as usize;
        let n = again(|| file.read_at(&mut chunk[..len], at))?;
        if n == 0 || chunk[..n].iter().any(|byte| *byte != 0) {
            return Ok(n == 0);
        }
        at += n as u64;
    }
    Ok(true)
}
