//! Packed frames: records compressed with zstd, for data that has grown cold.
//!
//! Only compaction packs, frame by frame, so that a reader unpacks what it wants and little more.
//! The checksum in the frame's header is that of the bytes as they are stored: it is checked before
//! anything is unpacked. What is unpacked has the size that is stated before it, and that size is
//! bounded by what a frame may be, so nothing is allocated on a damaged file's word.

use super::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, MAX_FRAME_BYTES, flags};
use crate::bytes::u32_at;
use std::io;

/// Bytes before the compressed records: how many they are when unpacked, u32.
pub const PACK_HEAD_BYTES: usize = 4;

/// Level of compression. Of events as JSON, level 3 makes the same with half as much work again, and
/// level 9 a tenth less with four to eight times the work (`cargo bench -p nuthatch-log --bench pack`).
const PACK_LEVEL: i32 = 1;

/// A frame is packed if that saves at least this share of it, in percent. Unpacking costs about as
/// much as reading from a fast disk, so a little gain is no gain.
pub const MIN_GAIN_PERCENT: u64 = 10;

/// Packs frames. Keeps its working memory (about a MiB) between them.
pub struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    /// A packer of the level that compaction uses.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new() -> io::Result<Self> {
        let compressor = zstd::bulk::Compressor::new(PACK_LEVEL)?;
        Ok(Self { compressor, packed: Vec::new() })
    }

    /// How many bytes records take when they are packed, whether or not that pays.
    ///
    /// # Errors
    /// The compressor failed: out of memory.
    pub fn packed_len(&mut self, records: &[u8]) -> io::Result<usize> {
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(records.len()));
        self.compressor.compress_to_buffer(records, &mut self.packed)?;
        Ok(PACK_HEAD_BYTES + self.packed.len())
    }

    /// The body of a packed frame with these records, in two pieces; `None` if that does not pay.
    ///
    /// # Errors
    /// As [`Packer::packed_len`].
    pub fn pack(&mut self, records: &[u8]) -> io::Result<Option<([u8; PACK_HEAD_BYTES], &[u8])>> {
        let Ok(raw_len) = u32::try_from(records.len()) else { return Ok(None) };
        let len = self.packed_len(records)?;
        Ok(pays(records.len() as u64, len as u64).then_some((raw_len.to_le_bytes(), &self.packed)))
    }
}

/// True if packing `raw` bytes into `packed` is worth it.
#[must_use]
pub const fn pays(raw: u64, packed: u64) -> bool {
    packed.saturating_mul(100) <= raw.saturating_mul(100 - MIN_GAIN_PERCENT)
}

/// True if a frame's records are compressed.
#[must_use]
pub const fn is_packed(header: &FrameHeader) -> bool {
    header.flags & flags::PACKED != 0
}

/// A packed frame as it would be if it were not: its header with the length that it then has, and
/// its records. `frame` holds the frame's `len` bytes, checked. The checksums in the image are still
/// those of the stored frame.
///
/// # Errors
/// [`FrameFault::Body`] if the bytes are not what the format says.
pub fn unpack(frame: &[u8]) -> Result<Vec<u8>, FrameFault> {
    let (head, body) = frame.split_at_checked(FRAME_HEADER_BYTES).ok_or(FrameFault::Short)?;
    let (raw_len, packed) = body.split_at_checked(PACK_HEAD_BYTES).ok_or(FrameFault::Body)?;
    let raw_len = u32_at(raw_len, 0) as usize;
    if raw_len > MAX_FRAME_BYTES - FRAME_HEADER_BYTES {
        return Err(FrameFault::Body);
    }
    let len = FRAME_HEADER_BYTES + raw_len;
    let mut image = vec![0; len];
    let unpacked = zstd::bulk::decompress_to_buffer(packed, &mut image[FRAME_HEADER_BYTES..]);
    if unpacked.ok() != Some(raw_len) {
        return Err(FrameFault::Body);
    }
    image[..FRAME_HEADER_BYTES].copy_from_slice(head);
    image[0..4].copy_from_slice(&(len as u32).to_le_bytes());
    let plain = u16::from_le_bytes([head[16], head[17]]) & !flags::PACKED;
    image[16..18].copy_from_slice(&plain.to_le_bytes());
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::crc;
    use proptest::prelude::*;

    /// A frame with these stored bytes behind its header.
    fn frame(body: &[u8]) -> (FrameHeader, Vec<u8>) {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        bytes.extend_from_slice(body);
        let (len, body_crc) = (bytes.len() as u32, crc(body));
        let flags = flags::PACKED | flags::COMPACTED;
        let mut header = FrameHeader { len, body_crc, flags, ..FrameHeader::default() };
        if let Some(head) = bytes.first_chunk_mut() {
            header.header_crc = header.encode(head);
        }
        (header, bytes)
    }

    fn packed(records: &[u8]) -> (FrameHeader, Vec<u8>) {
        let mut packer = Packer::new().expect("memory");
        packer.packed_len(records).expect("packs");
        let mut body = (records.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&packer.packed);
        frame(&body)
    }

    #[test]
    fn records_survive_and_the_image_looks_like_a_plain_frame() {
        let records: Vec<u8> = (0..50_000u32).map(|n| (n / 97) as u8).collect();
        let (_, bytes) = packed(&records);
        assert!(bytes.len() < records.len() / 10);
        let image = unpack(&bytes).expect("unpacks");
        assert_eq!(u32_at(&image, 0) as usize, image.len());
        assert_eq!(u16::from_le_bytes([image[16], image[17]]), flags::COMPACTED);
        assert_eq!(image[FRAME_HEADER_BYTES..], records);
    }

    #[test]
    fn what_does_not_shrink_stays_as_it_is() {
        let noise: Vec<u8> =
            (0..20_000u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        let mut noise = noise;
        let mut state = 1u64;
        for byte in &mut noise {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 33) as u8;
        }
        let mut packer = Packer::new().expect("memory");
        assert_eq!(packer.pack(&noise).expect("packs"), None);
        assert!(packer.pack(&[0; 20_000]).expect("packs").is_some());
    }

    /// A size that is stated wrongly is refused, and one beyond all bounds before it is allocated.
    #[test]
    fn sizes_that_lie_are_refused() {
        let (_, good) = packed(&[7; 1000]);
        for lie in [0u32, 1, 999, 1001, 1 << 20, MAX_FRAME_BYTES as u32, u32::MAX] {
            let mut body = good[FRAME_HEADER_BYTES..].to_vec();
            body[..4].copy_from_slice(&lie.to_le_bytes());
            assert_eq!(unpack(&frame(&body).1), Err(FrameFault::Body), "{lie}");
        }
        assert_eq!(unpack(&good[..FRAME_HEADER_BYTES + 3]), Err(FrameFault::Body));
        assert_eq!(unpack(&good[..20]), Err(FrameFault::Short));
    }

    /// The checksum finds every flipped bit before anything is unpacked.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let (header, bytes) = packed(&[7; 1000]);
        assert_eq!(header.check_body(&bytes), Ok(()));
        for bit in FRAME_HEADER_BYTES * 8..bytes.len() * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(header.check_body(&copy), Err(FrameFault::Body), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (_, mut bytes) = frame(&body);
            let _ = unpack(&bytes);
            // With a size that is plausible.
            if bytes.len() >= FRAME_HEADER_BYTES + 4 {
                bytes[FRAME_HEADER_BYTES + 1..FRAME_HEADER_BYTES + 4].fill(0);
                let _ = unpack(&bytes);
            }
        }
    }
}
