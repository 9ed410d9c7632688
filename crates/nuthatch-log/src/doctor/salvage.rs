//! Walking a damaged segment: every frame that is good, every frame that a single changed byte made
//! bad, and the holes between them.

use super::bit_flip::{Flip, is_telling, locate};
use crate::bytes::u32_at;
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, crc, flags, sealed};
use crate::keys::Keyring;
use crate::segment::SegmentHeader;
use crate::types::Lsn;

/// Smallest record: without subject, headers and body.
const MIN_RECORD_BYTES: u64 = crate::record::RECORD_HEADER_BYTES as u64;

/// A stretch of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// A good frame, possibly after a byte was set back in the image.
    Frame {
        /// Offset where it starts.
        offset: u64,
        /// Its header.
        header: FrameHeader,
    },
    /// Frames that cannot be read.
    Hole(Hole),
}

/// Frames that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// Start of the bytes that are no frames.
    pub from: u64,
    /// Offset where they end.
    pub until: u64,
    /// First position lost.
    pub first: Lsn,
    /// Last position lost; before `first` where positions do not count (compacted segments).
    pub last: Lsn,
    /// At most so many records were in them.
    pub records_max: u64,
    /// Why the first of them is no frame.
    pub fault: FrameFault,
}

/// A byte that was set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repair {
    /// Where in the file.
    pub at: u64,
    /// The byte found.
    pub found: u8,
    /// The byte restored.
    pub restored: u8,
    /// Position of its frame.
    pub lsn: Lsn,
}

/// What can still be read of a segment.
#[derive(Debug)]
pub struct Salvage {
    /// Its bytes, repairs included.
    pub image: Vec<u8>,
    /// Frames and holes in order.
    pub pieces: Vec<Piece>,
    /// Bytes that were set back.
    pub repairs: Vec<Repair>,
    /// Bytes between frames that are not zero: offsets of frames with such padding.
    pub padding: Vec<u64>,
    /// Offset where the last good frame ends.
    pub end: u64,
    /// Position after the last frame or hole.
    pub next: Lsn,
    /// Bytes behind `end` that are not zero (open segments: a torn tail).
    pub torn_bytes: u64,
    /// A flag, key or version of a later program was met.
    pub unknown: bool,
}

/// What the catalog and the neighbouring segments say about the segment.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// End of its frames by the catalog, or else the file's length.
    pub limit: u64,
    /// The last position, if the segment is sealed.
    pub end: Option<Lsn>,
    /// Also take repairs for good that chance could have made up.
    pub likely: bool,
    /// Keys that there are. Frames under others are good if their checksums are.
    pub keys: &'a Keyring,
}

/// Walks the bytes of a segment whose header is `header`.
#[must_use]
pub fn salvage(image: Vec<u8>, header: SegmentHeader, known: Expected<'_>) -> Salvage {
    let block = u64::from(header.block_bytes);
    let at = (crate::segment::SEGMENT_HEADER_BYTES as u64).next_multiple_of(block);
    let limit = known.limit.min(image.len() as u64);
    let out = Salvage {
        image,
        pieces: Vec::new(),
        repairs: Vec::new(),
        padding: Vec::new(),
        end: at,
        next: header.base,
        torn_bytes: 0,
        unknown: false,
    };
    let prev_crc = header.checksum();
    let mut walk = SegmentWalk { out, header, known, at, limit, block, prev_crc, vouched: Lsn(0) };
    if known.end.is_none() {
        walk.vouched = walk.newest_vouched();
    }
    walk.run();
    walk.out
}

struct SegmentWalk<'a> {
    out: Salvage,
    header: SegmentHeader,
    known: Expected<'a>,
    at: u64,
    limit: u64,
    block: u64,
    prev_crc: u32,
    /// The newest position of an open segment that a frame in it knew to be durable.
    vouched: Lsn,
}

impl SegmentWalk<'_> {
    fn run(&mut self) {
        while self.at < self.limit && !self.out.unknown {
            match self.frame_here() {
                Ok(frame) => self.accept(frame),
                Err(FrameFault::Unknown) => self.out.unknown = true,
                Err(fault) => {
                    if !self.skip(fault) {
                        break;
                    }
                }
            }
        }
        self.finish();
    }

    fn window(&self, at: u64) -> &[u8] {
        let (at, limit) = (usize::try_from(at).unwrap_or(usize::MAX), self.limit as usize);
        self.out.image.get(at..limit).unwrap_or(&[])
    }

    /// A frame of this segment at an offset, by its own checksums.
    fn intact_at(&self, at: u64) -> Result<FrameHeader, FrameFault> {
        let bytes = self.window(at);
        let header = FrameHeader::decode(bytes, self.header.salt)?;
        header.check_body(bytes)?;
        match sealed::records_of(self.known.keys, &header, bytes) {
            Err(FrameFault::Key(_)) | Ok(_) => {}
            Err(fault) => return Err(fault),
        }
        if self.is_ours(&header) { Ok(header) } else { Err(FrameFault::Chain) }
    }

    fn is_ours(&self, header: &FrameHeader) -> bool {
        let compacted = header.flags & flags::COMPACTED != 0;
        self.header.owns(header) && (compacted || header.lsn >= self.out.next)
    }

    /// The frame where the walk stands, mended if one byte explains what is wrong with it.
    fn frame_here(&mut self) -> Result<FrameHeader, FrameFault> {
        let fault = match self.intact_at(self.at) {
            Ok(header) => return Ok(header),
            Err(fault) => fault,
        };
        let mended = match fault {
            FrameFault::Body => self.mend_body(),
            FrameFault::Header => self.mend_header(),
            _ => None,
        };
        mended.ok_or(fault)
    }

    fn mend_body(&mut self) -> Option<FrameHeader> {
        let bytes = self.window(self.at);
        let header = FrameHeader::decode(bytes, self.header.salt).ok()?;
        let body = bytes.get(FRAME_HEADER_BYTES..header.len as usize)?;
        let flip = locate(body.len(), crc(body) ^ header.body_crc)?;
        let is_next = self.header.compacted || header.lsn == self.out.next;
        if !self.is_ours(&header) || !is_next {
            return None;
        }
        if !is_telling(body.len(), flip) && !self.known.likely {
            return None;
        }
        self.set_back(self.at + FRAME_HEADER_BYTES as u64, flip, header.lsn);
        self.intact_at(self.at).ok()
    }

    /// A header is mended only if everything else about it fits: chain, position, epoch, body.
    fn mend_header(&mut self) -> Option<FrameHeader> {
        let raw: [u8; FRAME_HEADER_BYTES] = *self.window(self.at).first_chunk()?;
        let stored = u32_at(&raw, 4);
        let mut unsummed = raw;
        unsummed[4..8].fill(0);
        let difference = crc(&unsummed) ^ stored;
        let in_sum = difference.to_le_bytes();
        let mut flips: Vec<Flip> = locate(FRAME_HEADER_BYTES, difference).into_iter().collect();
        if let [at] =
            *in_sum.iter().enumerate().filter(|(_, b)| **b != 0).map(|(i, _)| i).collect::<Vec<_>>()
        {
            flips.push(Flip { at: 4 + at, mask: in_sum[at] });
        }
        flips.into_iter().find_map(|flip| {
            let old = self.out.image[self.at as usize + flip.at];
            self.out.image[self.at as usize + flip.at] ^= flip.mask;
            let fits = self.intact_at(self.at).ok().filter(|header| {
                header.prev_crc == self.prev_crc
                    && (self.header.compacted || header.lsn == self.out.next)
            });
            self.out.image[self.at as usize + flip.at] = old;
            let header = fits?;
            self.set_back(self.at, flip, header.lsn);
            Some(header)
        })
    }

    fn set_back(&mut self, from: u64, flip: Flip, lsn: Lsn) {
        let at = from + flip.at as u64;
        let byte = &mut self.out.image[at as usize];
        let found = *byte;
        *byte ^= flip.mask;
        self.out.repairs.push(Repair { at, found, restored: *byte, lsn });
    }

    fn accept(&mut self, header: FrameHeader) {
        if !self.header.compacted && header.lsn > self.out.next {
            let at = self.at;
            self.hole(at, at, header.lsn, FrameFault::Chain);
        }
        let padded = header.padded_len(self.header.block_bytes as usize) as u64;
        let padding = self.window(self.at).get(header.len as usize..).unwrap_or(&[]);
        let padding = &padding[..padding.len().min(padded as usize - header.len as usize)];
        if padding.iter().any(|byte| *byte != 0) {
            self.out.padding.push(self.at);
        }
        self.out.pieces.push(Piece::Frame { offset: self.at, header });
        self.prev_crc = header.header_crc;
        self.out.next = header.lsn.next();
        self.at += padded;
        self.out.end = self.at;
    }

    /// Goes on to the next good frame; false if what comes here was never durable.
    fn skip(&mut self, fault: FrameFault) -> bool {
        let from = self.at;
        if self.known.end.is_none() && self.vouched < self.out.next {
            return false;
        }
        let mut at = from + self.block;
        while at < self.limit {
            if let Ok(header) = self.intact_at(at) {
                self.hole(from, at, header.lsn, fault);
                self.at = at;
                return true;
            }
            at += self.block;
        }
        if self.known.end.is_none() {
            // Durable, unreadable, and nothing good behind it.
            self.hole(from, self.limit, self.vouched.next(), fault);
            self.out.end = self.limit;
        }
        self.at = self.limit;
        true
    }

    /// The newest durable position that any intact frame header of the segment tells.
    fn newest_vouched(&self) -> Lsn {
        let mut newest = Lsn(0);
        let mut at = self.at;
        while at < self.limit {
            if let Ok(header) = FrameHeader::decode(self.window(at), self.header.salt)
                && header.epoch == self.header.epoch
            {
                newest = newest.max(header.durable_lsn);
            }
            at += self.block;
        }
        newest
    }

    fn hole(&mut self, from: u64, until: u64, next: Lsn, fault: FrameFault) {
        let (first, last) = (self.out.next, Lsn(next.0.saturating_sub(1)));
        if self.header.compacted || last >= first {
            let records_max = (until - from) / MIN_RECORD_BYTES;
            self.out.pieces.push(Piece::Hole(Hole {
                from,
                until,
                first,
                last,
                records_max,
                fault,
            }));
            self.out.next = self.out.next.max(next);
        }
    }

    fn finish(&mut self) {
        let from = self.out.end;
        if let Some(end) = self.known.end {
            let short = !self.header.compacted && self.out.next <= end;
            let cut = self.header.compacted && from < self.known.limit;
            if short || cut {
                let limit = self.known.limit.max(from);
                self.hole(from, limit, end.next(), FrameFault::Short);
            }
            return;
        }
        let rest = self.window(from);
        self.out.torn_bytes =
            rest.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1);
    }
}
