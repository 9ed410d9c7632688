//! Entry points for fuzzers: every reader of bytes that come from a disk, with the checksums set
//! right first, because no fuzzer guesses them. Not part of the API.

use crate::bytes::u32_at;
use crate::catalog::Catalog;
use crate::doctor::fuzz_salvage;
use crate::env::{Disk, MemDisk};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, RecordIter, crc};
use crate::keys::{KeyId, Keyring};
use crate::segment::footer::FOOTER_MAGIC;
use crate::segment::{
    Footer, FooterBuilder, FrameScanner, SEGMENT_HEADER_BYTES, Scanned, Segment, SegmentHeader,
    SegmentId,
};
use crate::types::{Epoch, Lsn};
use std::sync::Arc;

const SALT: u32 = 7;
const BLOCK_BYTES: u32 = 64;

/// A catalog: what is read back is written as it was.
pub fn catalog(data: &[u8]) {
    let _ = Catalog::decode(data);
    let mut bytes = data.to_vec();
    if bytes.len() < 16 {
        return;
    }
    bytes[..8].copy_from_slice(b"NUTHCATL");
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].fill(0);
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    if let Ok(catalog) = Catalog::decode(&bytes) {
        let again = Catalog::decode(&catalog.encode());
        assert_eq!(again.ok(), Some(catalog));
    }
}

/// A checkpoint's header.
pub fn checkpoint(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.len() >= crate::checkpoint::HEADER_BYTES {
        bytes[..8].copy_from_slice(b"NUTHCKPT");
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        let len = (bytes.len() - crate::checkpoint::HEADER_BYTES) as u64;
        bytes[40..48].copy_from_slice(&len.to_le_bytes());
        bytes[12..16].fill(0);
        let sum = crc(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    for bytes in [data, &bytes] {
        let disk = MemDisk::default();
        let file = disk.create("checkpoint-1").and_then(|file| file.write_at(bytes, 0));
        assert!(file.is_ok());
        let _ = crate::checkpoint::read(&disk, "checkpoint-1", &Keyring::default());
    }
}

/// A footer, and everything that is read from it later.
pub fn footer(data: &[u8]) {
    let _ = Footer::parse(data.to_vec(), SegmentId(1), &Keyring::default());
    let mut bytes = data.to_vec();
    if bytes.len() < 64 {
        return;
    }
    let total = bytes.len() + 16;
    bytes[..8].copy_from_slice(&FOOTER_MAGIC);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&(total as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&1u32.to_le_bytes());
    let sum = crc(&bytes);
    bytes.extend_from_slice(&(total as u32).to_le_bytes());
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&FOOTER_MAGIC);
    let Ok(footer) = Footer::parse(bytes, SegmentId(1), &Keyring::default()) else { return };
    let _ = footer.end();
    for stream in footer.streams() {
        footer.places(stream, SegmentId(1)).for_each(drop);
        let mut count = 0u64;
        footer.for_each_message(stream, |_| count += 1);
        assert!(count <= data.len() as u64, "a row takes a byte at least");
    }
}

/// A frame: header and records.
pub fn frame(data: &[u8]) {
    if let Ok(header) = FrameHeader::decode(data, SALT) {
        let _ = header.check_body(data);
    }
    RecordIter::new(data).for_each(drop);
    let mut footer = FooterBuilder::new(SegmentId(1), Lsn(1));
    if footer.add_frame(data, Lsn(1), 64).is_ok() {
        let (bytes, _) = footer.encode();
        assert!(
            Footer::parse(bytes, SegmentId(1), &Keyring::default()).is_ok(),
            "a footer that was made is valid"
        );
    }
}

/// A segment behind its first block: the scanner and the doctor's salvage, which must find every
/// frame that the scanner finds. Frames' checksums are set right where their sizes make sense.
pub fn segment(data: &[u8]) {
    let header = SegmentHeader {
        log_id: 1,
        id: SegmentId(1),
        epoch: Epoch(1),
        base: Lsn(1),
        salt: SALT,
        block_bytes: BLOCK_BYTES,
        compacted: data.first().is_some_and(|byte| byte & 1 == 1),
        packed: data.first().is_some_and(|byte| byte & 5 == 5),
        key_id: KeyId::NONE,
    };
    let mut bytes = header.encode().to_vec();
    debug_assert_eq!(bytes.len(), SEGMENT_HEADER_BYTES);
    bytes.extend_from_slice(data.get(1..).unwrap_or(&[]));
    let sealed = data.first().is_some_and(|byte| byte & 2 == 2);
    seal_frames(&mut bytes, &header);
    let disk = MemDisk::default();
    let Ok(file) = disk.create("s") else { return };
    assert!(file.write_at(&bytes, 0).is_ok());
    let segment = Arc::new(Segment { header, file, keys: Keyring::default() });
    let limit = bytes.len() as u64;
    let _ = crate::segment::scan::look_beyond(&segment, segment.first_offset(), limit);
    let mut scan = FrameScanner::new(segment, limit);
    let mut good = 0;
    while let Ok(Scanned::Frame(..)) = scan.step() {
        good += 1;
    }
    let found = fuzz_salvage(bytes, header, sealed.then(|| Lsn(scan.expected().0 + 3)));
    assert!(found >= good, "the scanner found {good} frames, the doctor {found}");
}

/// Sets salt, epoch, chain and checksums of the frames that the sizes in the bytes make up.
fn seal_frames(bytes: &mut [u8], segment: &SegmentHeader) {
    let mut at = SEGMENT_HEADER_BYTES;
    let mut prev = segment.checksum();
    while let Some(head) = bytes.get(at..at + FRAME_HEADER_BYTES) {
        let len = (u32_at(head, 0) as usize).clamp(FRAME_HEADER_BYTES, 4096);
        // A byte of the fuzzer's chooses frames that stay damaged.
        let stays = head[15] & 1 == 1;
        let Some(body) = bytes.get(at + FRAME_HEADER_BYTES..at + len) else { return };
        let header = FrameHeader {
            len: len as u32,
            header_crc: 0,
            body_crc: crc(body),
            salt: SALT,
            // Another byte chooses frames that say they are packed.
            flags: u16::from(segment.compacted)
                | u16::from(segment.packed && head[14] & 1 == 1) << 2,
            count: u16::from_le_bytes([head[18], head[19]]),
            lsn: Lsn(crate::bytes::u64_at(head, 20) & 0xFF),
            durable_lsn: Lsn(crate::bytes::u64_at(head, 28) & 0xFF),
            epoch: segment.epoch,
            prev_crc: prev,
            key_id: KeyId::NONE,
        };
        if !stays && let Some(out) = bytes[at..].first_chunk_mut() {
            prev = header.encode(out);
        }
        at += len.next_multiple_of(BLOCK_BYTES as usize);
    }
}
