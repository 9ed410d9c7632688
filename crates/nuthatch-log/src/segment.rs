//! Segments: files of frames. One is open for writing, all others are sealed and never change.

pub mod footer;
pub mod reader;
pub mod scan;
pub mod writer;

pub use footer::{Footer, FooterBuilder, Mark, Position};
pub use scan::{FrameScanner, Scanned};
pub use writer::{SegmentWriter, Written};

use crate::env::DiskFile;
use crate::frame::{FrameHeader, crc, flags, pack};
use crate::keys::{KeyId, Keyring};
use crate::later::Later;
pub use crate::types::SegmentId;
use crate::types::{Epoch, Lsn};
use std::sync::Arc;

/// First bytes of every segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"NUTHSEGM";

/// Version of the segment format that this code writes, unless frames may be packed.
pub const SEGMENT_VERSION: u32 = 1;

/// Version of segments whose frames may be packed, so that a program that cannot unpack them refuses
/// the segment when it opens the log, and not a message of it when somebody waits for that.
pub const PACKED_VERSION: u32 = 2;

/// Version of segments whose frames are sealed under one key, and may be packed.
pub const SEALED_VERSION: u32 = 3;

/// Bytes of the segment header; the first frame starts at the next block boundary.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// The longest a segment can become, so that offsets fit in 32 bits.
pub const MAX_SEGMENT_BYTES: u64 = u32::MAX as u64;

/// Decoded first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Identity of the log.
    pub log_id: u64,
    /// Identity within the log.
    pub id: SegmentId,
    /// Epoch of the writer.
    pub epoch: Epoch,
    /// Position of the first frame.
    pub base: Lsn,
    /// Repeated in every frame: rejects bytes of other segments.
    pub salt: u32,
    /// Frames start at multiples of this.
    pub block_bytes: u32,
    /// Written by compaction.
    pub compacted: bool,
    /// Frames may be compressed: a segment of [`PACKED_VERSION`] or later.
    pub packed: bool,
    /// Key under which all of its frames and its footer are sealed.
    pub key_id: KeyId,
}

/// Why a segment's first block is not usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFault {
    /// Not a segment, or damaged.
    Damaged,
    /// Written by a later version of the format.
    Later(Later),
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[0..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&self.version().to_le_bytes());
        out[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        out[24..28].copy_from_slice(&self.id.0.to_le_bytes());
        out[28..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.base.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.salt.to_le_bytes());
        out[44..48].copy_from_slice(&self.block_bytes.to_le_bytes());
        out[48..52].copy_from_slice(&u32::from(self.compacted).to_le_bytes());
        out[52..56].copy_from_slice(&self.key_id.0.to_le_bytes());
        let sum = crc(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    const fn version(&self) -> u32 {
        if self.key_id.is_some() {
            SEALED_VERSION
        } else if self.packed {
            PACKED_VERSION
        } else {
            SEGMENT_VERSION
        }
    }

    /// The checksum in the header, to which the first frame is chained.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let bytes = self.encode();
        u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`HeaderFault`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let raw = bytes.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(HeaderFault::Damaged)?;
        let u32_at = |at: usize| crate::bytes::u32_at(raw, at);
        let mut unsummed = *raw;
        unsummed[12..16].fill(0);
        if raw[0..8] != SEGMENT_MAGIC || crc(&unsummed) != u32_at(12) {
            return Err(HeaderFault::Damaged);
        }
        let (version, key_id) = (u32_at(8), KeyId(u32_at(52)));
        if !(SEGMENT_VERSION..=SEALED_VERSION).contains(&version) {
            return Err(HeaderFault::Later(Later::Version(version)));
        }
        let other_key = key_id.is_some() != (version == SEALED_VERSION);
        if u32_at(48) > 1 || other_key || raw[56..].iter().any(|byte| *byte != 0) {
            return Err(HeaderFault::Later(Later::Header));
        }
        Ok(Self {
            log_id: crate::bytes::u64_at(raw, 16),
            id: SegmentId(u32_at(24)),
            epoch: Epoch(u32_at(28)),
            base: Lsn(crate::bytes::u64_at(raw, 32)),
            salt: u32_at(40),
            block_bytes: u32_at(44),
            compacted: u32_at(48) != 0,
            packed: version >= PACKED_VERSION,
            key_id,
        })
    }

    /// True if frames of this segment have such a header.
    #[must_use]
    pub fn owns(&self, frame: &FrameHeader) -> bool {
        let compacted = frame.flags & flags::COMPACTED != 0;
        frame.epoch == self.epoch
            && frame.key_id == self.key_id
            && compacted == self.compacted
            && (self.packed || !pack::is_packed(frame))
    }

    /// Where the first frame starts.
    #[must_use]
    pub fn first_offset(&self) -> u64 {
        (SEGMENT_HEADER_BYTES as u64).next_multiple_of(u64::from(self.block_bytes))
    }

    /// Name of the segment's file.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.id.file_name(self.epoch, self.base, self.compacted)
    }
}

/// A segment in use: its header and its file.
pub struct Segment {
    /// Its decoded first block.
    pub header: SegmentHeader,
    /// The open file.
    pub file: Arc<dyn DiskFile>,
    /// Keys to read it with.
    pub keys: Keyring,
}

impl Segment {
    /// Where the first frame starts.
    #[must_use]
    pub fn first_offset(&self) -> u64 {
        self.header.first_offset()
    }

    /// Identity within the log.
    #[must_use]
    pub const fn id(&self) -> SegmentId {
        self.header.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_damage_is_noticed() {
        let header = SegmentHeader {
            log_id: 7,
            id: SegmentId(8),
            epoch: Epoch(9),
            base: Lsn(10),
            salt: 11,
            block_bytes: 4096,
            compacted: true,
            packed: false,
            key_id: KeyId::NONE,
        };
        let packed = SegmentHeader { packed: true, ..header };
        assert_eq!(SegmentHeader::decode(&packed.encode()), Ok(packed));
        assert_ne!(packed.checksum(), header.checksum(), "the first frame tells them apart");
        let sealed = SegmentHeader { packed: true, key_id: KeyId(7), ..header };
        assert_eq!(SegmentHeader::decode(&sealed.encode()), Ok(sealed));
        assert_eq!(sealed.encode()[8], 3, "a program that knows no keys refuses it");
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes;
            copy[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&copy), Err(HeaderFault::Damaged));
        }
        assert_eq!(header.file_name(), "0000000000000009-00000000000000000010-00000008.seg");
    }
}
