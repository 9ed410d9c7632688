//! Reading frames back from a segment: a stretch at a time, every checksum verified, every frame the
//! one that belongs there, decrypted and unpacked.

use super::expect::{Expect, Link, header_in};
use super::resume::{Resume, Search};
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, pack, sealed};
use crate::keys::Keyring;
use crate::rules::CHECK_PLACE;
use crate::segment::{Segment, SegmentId};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Bytes read ahead from where a frame was missed.
pub const READ_AHEAD_BYTES: u64 = 512 * 1024;

/// A stretch ends with the packed frame that brings what was unpacked to this size.
const UNPACKED_STRETCH_BYTES: usize = 2 * 1024 * 1024;

/// A stretch to read.
pub struct LoadRequest {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Offset where the first frame starts.
    pub offset: u32,
    /// What the frame at that offset must match.
    pub expect: Expect,
    /// Nothing at or behind this offset may be read: it is not committed.
    pub end: u64,
    /// Memory is read frame by frame, without copying or checking.
    pub in_memory: bool,
}

/// Result of a load.
pub struct Loaded {
    /// The segment.
    pub segment: SegmentId,
    /// Offset where the first frame starts.
    pub offset: u32,
    /// Whole, checked frames: at least one.
    pub result: Result<Vec<Stretch>, LoadFailure>,
}

/// The first frame could not be read.
#[derive(Debug)]
pub struct LoadFailure {
    /// Why.
    pub fault: LoadFault,
    /// Where reading resumes behind a frame that cannot be read.
    pub resume: Option<Resume>,
}

/// Whole, checked frames in memory.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Offset where the first one starts in the segment.
    pub offset: u32,
    /// Offset where the frame behind them starts.
    pub end: u32,
    /// Their bytes, as in the file but decrypted (the last one perhaps without its padding); or one frame
    /// that was packed, as it would be if it were not.
    pub bytes: Bytes,
    /// It is one frame that was packed: its length does not tell where the next one starts.
    pub unpacked: bool,
    /// Chain value that the frame behind them must carry.
    pub last: Link,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The disk failed.
    #[error("read error: {0}")]
    Io(#[from] io::Error),
    /// The first frame is damaged.
    #[error("frame is damaged: {0:?}")]
    Damaged(FrameFault),
}

impl LoadRequest {
    /// Reads the stretch.
    #[must_use]
    pub fn run(&self) -> Loaded {
        let result = if self.in_memory { self.one_frame() } else { self.frames() };
        let result = result.map_err(|fault| {
            let resume = self.resume(&fault);
            let end = resume.as_ref().map_or(self.end, |next| u64::from(next.offset));
            let from = u64::from(self.offset);
            self.segment.file.doubt(from, end.saturating_sub(from));
            LoadFailure { fault, resume }
        });
        Loaded { segment: self.segment.id(), offset: self.offset, result }
    }

    /// A stretch; or if a part of that cannot be read, the first frame of it.
    fn frames(&self) -> Result<Vec<Stretch>, LoadFault> {
        match self.stretch() {
            Err(LoadFault::Io(_)) if !self.segment.file.reach().is_remote() => {
                let head =
                    self.segment.file.read_shared(u64::from(self.offset), FRAME_HEADER_BYTES)?;
                let len = self.header(&head)?.len as usize;
                self.checked(&self.segment.file.read_shared(u64::from(self.offset), len)?)
            }
            result => result,
        }
    }

    /// Where to go on behind a frame that cannot be read. What holds a remote file does not answer
    /// better a few bytes further on.
    fn resume(&self, fault: &LoadFault) -> Option<Resume> {
        let in_vain = matches!(fault, LoadFault::Io(_)) && self.segment.file.reach().is_remote();
        if in_vain || self.in_memory {
            return None;
        }
        Search::new(&self.segment, self.end).behind(self.offset, self.expect)
    }

    fn one_frame(&self) -> Result<Vec<Stretch>, LoadFault> {
        let head = self.segment.file.read_shared(u64::from(self.offset), FRAME_HEADER_BYTES)?;
        let header = self.header(&head)?;
        let frame = self.segment.file.read_shared(u64::from(self.offset), header.len as usize)?;
        if frame.len() < header.len as usize {
            return Err(LoadFault::Damaged(FrameFault::Short));
        }
        let mut out = Gathered::new(self);
        out.take(&header, &frame, 0, None)?;
        Ok(out.finish(&frame, header.len as usize))
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, LoadFault> {
        header_in(bytes, &self.segment.header).map_err(LoadFault::Damaged)
    }

    fn stretch(&self) -> Result<Vec<Stretch>, LoadFault> {
        let left = self.end.saturating_sub(u64::from(self.offset));
        let want = usize::try_from(left.min(READ_AHEAD_BYTES)).unwrap_or(0);
        let mut bytes = self.segment.file.read_shared(u64::from(self.offset), want)?;
        let first = self.header(&bytes)?.len as usize;
        if first > bytes.len() {
            bytes = self.segment.file.read_shared(u64::from(self.offset), first)?;
        }
        self.checked(&bytes)
    }

    /// Whole, undamaged frames of the bytes; at least one.
    fn checked(&self, bytes: &Bytes) -> Result<Vec<Stretch>, LoadFault> {
        let block = self.segment.header.block_bytes as usize;
        let mut out = Gathered::new(self);
        let mut at = 0;
        let mut expect = self.expect;
        while at < bytes.len() && out.unpacked_bytes < UNPACKED_STRETCH_BYTES {
            let header = header_in(&bytes[at..], &self.segment.header);
            let good = header.and_then(|header| header.check_body(&bytes[at..]).map(|()| header));
            let taken = good.map_err(LoadFault::Damaged).and_then(|header| {
                out.take(&header, bytes, at, Some(expect))?;
                Ok(header)
            });
            match taken {
                Ok(header) => {
                    at += header.padded_len(block);
                    expect = Expect::Behind(Link::of(&header));
                }
                Err(fault) if at == 0 => return Err(fault),
                // Later faults are reported when they are met.
                Err(_) => break,
            }
        }
        if at == 0 {
            return Err(LoadFault::Damaged(FrameFault::Short));
        }
        Ok(out.finish(bytes, at))
    }
}

/// Stretches being put together from frames that follow each other.
struct Gathered {
    from: u32,
    block: u32,
    done: Vec<Stretch>,
    /// Start of a run of frames that are not packed and that `done` does not hold yet.
    plain: Option<usize>,
    /// Where frames are encrypted: that run, decrypted. Each frame takes as much as in the file, so that
    /// the next one is found behind it; its records are followed by zeros.
    clear: Vec<u8>,
    keys: Keyring,
    unpacked_bytes: usize,
    /// The frame taken last.
    last: Link,
}

impl Gathered {
    fn new(request: &LoadRequest) -> Self {
        let (from, block) = (request.offset, request.segment.header.block_bytes);
        Self {
            from,
            block,
            done: Vec::new(),
            plain: None,
            clear: Vec::new(),
            keys: request.segment.keys.clone(),
            unpacked_bytes: 0,
            last: Link::default(),
        }
    }

    /// Takes in a frame with good checksums that starts at `at` of the bytes, if it is the one that
    /// is expected there.
    fn take(
        &mut self,
        header: &FrameHeader,
        bytes: &Bytes,
        at: usize,
        expect: Option<Expect>,
    ) -> Result<(), LoadFault> {
        let end = at + header.len as usize;
        let frame = &bytes[at..end];
        let strange = |image: &[u8]| {
            CHECK_PLACE.holds() && expect.is_some_and(|expect| !expect.is_met(header, image))
        };
        if !pack::is_packed(header) {
            if header.key_id.is_some() {
                self.decrypt(header, frame, at)?;
            }
            let image = if header.key_id.is_some() { self.decrypted(frame.len()) } else { frame };
            if strange(image) {
                if header.key_id.is_some() {
                    self.clear.truncate(self.clear.len() - frame.len());
                }
                return Err(LoadFault::Damaged(FrameFault::Chain));
            }
            self.plain.get_or_insert(at);
            self.last = Link::of(header);
            return Ok(());
        }
        let image = sealed::image(&self.keys, header, frame).map_err(LoadFault::Damaged)?;
        let image = image.ok_or(LoadFault::Damaged(FrameFault::Body))?;
        if strange(&image) {
            return Err(LoadFault::Damaged(FrameFault::Chain));
        }
        self.end_plain(bytes, at);
        self.unpacked_bytes += image.len();
        self.last = Link::of(header);
        self.push(at, end, Bytes::from(image), true);
        Ok(())
    }

    /// Appends a frame that starts at `at` of what was read to the run that is decrypted.
    fn decrypt(&mut self, header: &FrameHeader, frame: &[u8], at: usize) -> Result<(), LoadFault> {
        let start = at - self.plain.unwrap_or(at);
        self.clear.resize(start, 0);
        self.clear.extend_from_slice(frame);
        let opened = sealed::open_in_place(&self.keys, header, &mut self.clear[start..]);
        if let Err(fault) = opened {
            self.clear.truncate(start);
            return Err(LoadFault::Damaged(fault));
        }
        Ok(())
    }

    /// The frame of this length that was decrypted last.
    fn decrypted(&self, len: usize) -> &[u8] {
        &self.clear[self.clear.len() - len..]
    }

    fn end_plain(&mut self, bytes: &Bytes, until: usize) {
        let Some(start) = self.plain.take() else { return };
        let bytes = match std::mem::take(&mut self.clear) {
            clear if clear.is_empty() => bytes.slice(start..until.min(bytes.len())),
            clear => Bytes::from(clear),
        };
        self.push(start, until, bytes, false);
    }

    fn push(&mut self, start: usize, end: usize, bytes: Bytes, unpacked: bool) {
        let place = |at: usize| self.from.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
        let end = place(end).checked_next_multiple_of(self.block).unwrap_or(u32::MAX);
        let last = self.last;
        self.done.push(Stretch { offset: place(start), end, bytes, unpacked, last });
    }

    fn finish(mut self, bytes: &Bytes, until: usize) -> Vec<Stretch> {
        self.end_plain(bytes, until);
        self.done
    }
}
