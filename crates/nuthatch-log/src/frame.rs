//! Frames: the unit that is written, checksummed, made durable and acknowledged.
//!
//! `docs/format.md` draws the bytes. Sizes found on the medium are checked against the constants
//! here before anything is allocated or indexed by them.

pub mod builder;
pub mod codec;
pub mod pack;
pub mod sealed;
pub mod sum;

pub use crate::bytes::crc;
pub use builder::{FrameBuilder, FrameMeta, MessageRun, SealedFrame};
pub use codec::{RecordIter, encode_record};

use crate::bytes::{u32_at, u64_at};
use crate::keys::{KeyId, SEAL_BYTES};
use crate::rules::{CHECK_BODY, CHECK_HEADER, CHECK_SALT};
use crate::types::{Epoch, Lsn};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 48;

/// The largest record any log takes: the largest `max_payload` (64 MiB), its subject, and room.
pub const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024 + 128 * 1024;

/// The largest frame: its header and one largest record, rounded up to whole blocks.
pub const MAX_FRAME_BYTES: usize = (FRAME_HEADER_BYTES + MAX_RECORD_BYTES).next_multiple_of(4096);

// The largest record's frame can be sealed.
const _: () = assert!(FRAME_HEADER_BYTES + MAX_RECORD_BYTES + SEAL_BYTES <= MAX_FRAME_BYTES);

/// The most records that one frame counts.
pub const MAX_FRAME_RECORDS: usize = u16::MAX as usize;

/// Frame flags. The numbers are part of the format.
pub mod flags {
    /// Written by compaction: `lsn` is the last position that the whole segment stands for.
    pub const COMPACTED: u16 = 1;
    /// Written to an idle log so that the frame before it is covered by a `durable_lsn`.
    pub const COMMIT_MARKER: u16 = 2;
    /// The records are compressed: see [`super::pack`]. Only in compacted segments of version 2.
    pub const PACKED: u16 = 4;
    /// Every flag this version understands.
    pub const KNOWN: u16 = COMPACTED | COMMIT_MARKER | PACKED;
}

/// A frame's header. Little endian: `len u32, header_crc u32, body_crc u32, salt u32, flags u16,
/// count u16, lsn u64, durable_lsn u64, epoch u32, prev_crc u32, key_id u32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameHeader {
    /// Bytes of the frame with its header, without padding.
    pub len: u32,
    /// CRC of the header (with this field left out).
    pub header_crc: u32,
    /// CRC of the records, as they are stored.
    pub body_crc: u32,
    /// The segment's salt.
    pub salt: u32,
    /// See [`flags`].
    pub flags: u16,
    /// Records in the frame.
    pub count: u16,
    /// Position of the frame.
    pub lsn: Lsn,
    /// The newest position known to be durable when the frame was sealed.
    pub durable_lsn: Lsn,
    /// Epoch of the writer.
    pub epoch: Epoch,
    /// `header_crc` of the frame before in this segment; of the segment's header for the first.
    pub prev_crc: u32,
    /// Key under which the records are sealed: see [`sealed`].
    pub key_id: KeyId,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameFault {
    /// All zero: nothing was ever written here.
    Blank,
    /// The header's checksum, salt or sizes do not fit.
    Header,
    /// The records' checksum does not fit.
    Body,
    /// The file ends inside the frame.
    Short,
    /// It does not follow the frame before it.
    Chain,
    /// A flag, a cipher or a record kind of a later version.
    Unknown,
    /// The checksum fits, and the records are sealed under a key that is not configured.
    Key(KeyId),
    /// The checksum fits, and the records are not what was sealed under their key.
    Seal,
}

fn header_crc_of(bytes: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    let mut copy = *bytes;
    copy[4..8].fill(0);
    crc(&copy)
}

impl FrameHeader {
    /// Writes the header with its checksum; returns the checksum.
    pub fn encode(&self, out: &mut [u8; FRAME_HEADER_BYTES]) -> u32 {
        out[0..4].copy_from_slice(&self.len.to_le_bytes());
        out[4..8].fill(0);
        out[8..12].copy_from_slice(&self.body_crc.to_le_bytes());
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..18].copy_from_slice(&self.flags.to_le_bytes());
        out[18..20].copy_from_slice(&self.count.to_le_bytes());
        out[20..28].copy_from_slice(&self.lsn.0.to_le_bytes());
        out[28..36].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        out[36..40].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.prev_crc.to_le_bytes());
        out[44..48].copy_from_slice(&self.key_id.0.to_le_bytes());
        let header_crc = header_crc_of(out);
        out[4..8].copy_from_slice(&header_crc.to_le_bytes());
        header_crc
    }

    /// Reads a header of a segment with this salt and checks everything that it alone can tell.
    ///
    /// # Errors
    /// [`FrameFault`]: `Blank`, `Header`, `Short` or `Unknown`.
    pub fn decode(bytes: &[u8], salt: u32) -> Result<Self, FrameFault> {
        let Some(raw) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Err(FrameFault::Short);
        };
        if raw.iter().all(|byte| *byte == 0) {
            return Err(FrameFault::Blank);
        }
        let header = Self::fields(raw);
        let foreign = header.salt != salt && CHECK_SALT.holds();
        if foreign || header.header_crc != header_crc_of(raw) && CHECK_HEADER.holds() {
            return Err(FrameFault::Header);
        }
        let len = header.len as usize;
        if !(FRAME_HEADER_BYTES..=MAX_FRAME_BYTES).contains(&len) {
            return Err(FrameFault::Header);
        }
        if header.flags & !flags::KNOWN != 0 {
            return Err(FrameFault::Unknown);
        }
        Ok(header)
    }

    fn fields(raw: &[u8; FRAME_HEADER_BYTES]) -> Self {
        Self {
            len: u32_at(raw, 0),
            header_crc: u32_at(raw, 4),
            body_crc: u32_at(raw, 8),
            salt: u32_at(raw, 12),
            flags: u16::from_le_bytes([raw[16], raw[17]]),
            count: u16::from_le_bytes([raw[18], raw[19]]),
            lsn: Lsn(u64_at(raw, 20)),
            durable_lsn: Lsn(u64_at(raw, 28)),
            epoch: Epoch(u32_at(raw, 36)),
            prev_crc: u32_at(raw, 40),
            key_id: KeyId(u32_at(raw, 44)),
        }
    }

    /// Checks the records that follow the header in `frame` (the frame's `len` bytes).
    ///
    /// # Errors
    /// [`FrameFault::Short`] or [`FrameFault::Body`].
    pub fn check_body(&self, frame: &[u8]) -> Result<(), FrameFault> {
        match frame.get(FRAME_HEADER_BYTES..self.len as usize) {
            None => Err(FrameFault::Short),
            Some(body) if CHECK_BODY.holds() && crc(body) != self.body_crc => Err(FrameFault::Body),
            Some(_) => Ok(()),
        }
    }

    /// Bytes the frame takes in a file of `block` sized blocks.
    #[must_use]
    pub const fn padded_len(&self, block: usize) -> usize {
        (self.len as usize).next_multiple_of(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FrameHeader {
        FrameHeader {
            len: 60,
            body_crc: crc(&[7; 12]),
            salt: 99,
            flags: flags::COMMIT_MARKER,
            count: 1,
            lsn: Lsn(1 << 40),
            durable_lsn: Lsn(5),
            epoch: Epoch(3),
            prev_crc: 8,
            key_id: KeyId(0x1a2b_3c4d),
            ..FrameHeader::default()
        }
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        let header_crc = sample().encode(&mut bytes);
        let back = FrameHeader::decode(&bytes, 99).expect("valid");
        assert_eq!(back, FrameHeader { header_crc, ..sample() });
        assert_eq!(FrameHeader::decode(&bytes, 98), Err(FrameFault::Header));
        assert_eq!(FrameHeader::decode(&[0; 48], 98), Err(FrameFault::Blank));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        sample().encode(&mut bytes);
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut copy = bytes;
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&copy, 99).is_err(), "bit {bit}");
        }
    }
}
