//! Frames whose records are encrypted.
//!
//! The body of such a frame is `cipher u8, zero 3 bytes, nonce 12 bytes, salt 16 bytes`, the records
//! encrypted, and a tag of 16 bytes. What is packed is packed first. The checksum in the header is that
//! of the sealed bytes: a scrub needs no key. What the tag binds is what no rewriting of a segment
//! changes: the position, the number of records and whether they are packed.

use super::{FRAME_HEADER_BYTES, FrameFault, FrameHeader, pack};
use crate::keys::{Keyring, SEAL_BYTES, SEAL_HEAD_BYTES, SEAL_TAG_BYTES, SealFault};
use std::borrow::Cow;

const CONTEXT_BYTES: usize = 16;

/// What the tag binds besides the records.
fn context(header: &FrameHeader) -> [u8; CONTEXT_BYTES] {
    let mut context = [0; CONTEXT_BYTES];
    context[0] = b'F';
    context[1] = u8::from(pack::is_packed(header));
    context[2..4].copy_from_slice(&header.count.to_le_bytes());
    context[4..8].copy_from_slice(&header.key_id.0.to_le_bytes());
    context[8..16].copy_from_slice(&header.lsn.0.to_le_bytes());
    context
}

/// Encrypts a body in place under the key that the header names; what stands before it and behind it.
#[must_use]
pub fn seal(
    keys: &Keyring,
    header: &FrameHeader,
    body: &mut [u8],
) -> ([u8; SEAL_HEAD_BYTES], [u8; SEAL_TAG_BYTES]) {
    keys.seal(header.key_id, &context(header), body)
}

/// Decrypts the records of a checked frame of `header.len` bytes in place; returns how long the frame is
/// then. Its header stays, and what is behind the records is zero: for a walk over them they end there.
///
/// # Errors
/// [`FrameFault`]: `Key`, `Seal` or `Unknown`.
pub fn open_in_place(
    keys: &Keyring,
    header: &FrameHeader,
    frame: &mut [u8],
) -> Result<usize, FrameFault> {
    if !header.key_id.is_some() {
        return Ok(frame.len());
    }
    let body = frame.get_mut(FRAME_HEADER_BYTES..).ok_or(FrameFault::Short)?;
    let len = keys.open(header.key_id, &context(header), body).map_err(|fault| match fault {
        SealFault::NoKey(id) => FrameFault::Key(id),
        SealFault::Unknown => FrameFault::Unknown,
        SealFault::Broken => FrameFault::Seal,
    })?;
    body[len..].fill(0);
    Ok(FRAME_HEADER_BYTES + len)
}

/// A stored frame as it would be if it were neither encrypted nor packed: its header with the length
/// that it then has, and its records. `None` if it is neither. `frame` holds the frame's `len` bytes,
/// checked. The checksums in the image are still those of the stored frame.
///
/// # Errors
/// As [`open_in_place`], and as [`pack::unpack`].
pub fn image(
    keys: &Keyring,
    header: &FrameHeader,
    frame: &[u8],
) -> Result<Option<Vec<u8>>, FrameFault> {
    if !header.key_id.is_some() {
        return if pack::is_packed(header) { pack::unpack(frame).map(Some) } else { Ok(None) };
    }
    let mut clear = frame.to_vec();
    let len = open_in_place(keys, header, &mut clear)?;
    clear.truncate(len);
    if pack::is_packed(header) {
        return pack::unpack(&clear).map(Some);
    }
    clear[0..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(Some(clear))
}

/// The records of a checked frame, whatever was done to them.
///
/// # Errors
/// As [`image`].
pub fn records_of<'a>(
    keys: &Keyring,
    header: &FrameHeader,
    frame: &'a [u8],
) -> Result<Cow<'a, [u8]>, FrameFault> {
    let frame = frame.get(..header.len as usize).ok_or(FrameFault::Short)?;
    match image(keys, header, frame)? {
        None => Ok(Cow::Borrowed(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())),
        Some(mut image) => {
            image.drain(..FRAME_HEADER_BYTES);
            Ok(Cow::Owned(image))
        }
    }
}

/// The stored body of a frame with these records (packed, if its flags say so), and its header but for
/// length and checksums.
#[must_use]
pub fn body_of(keys: &Keyring, header: &FrameHeader, records: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(records.len() + SEAL_BYTES);
    body.extend_from_slice(records);
    if header.key_id.is_some() {
        keys.seal_vec(header.key_id, &context(header), &mut body, 0);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededEntropy;
    use crate::frame::{crc, flags};
    use crate::keys::{Cipher, Key, Keys};
    use crate::types::Lsn;
    use proptest::prelude::*;

    fn ring(text: &str, cipher: Cipher) -> Keyring {
        let keys = Keys { current: Key::of_text(text.as_bytes()), cipher, ..Keys::default() };
        Keyring::new(&keys, &mut SeededEntropy::new(1))
    }

    /// A sealed frame with these records, which are packed if `packs`.
    fn sealed(keys: &Keyring, records: &[u8], packs: bool) -> (FrameHeader, Vec<u8>) {
        let mut packer = pack::Packer::new().expect("memory");
        let packed = packer.pack(records).expect("packs").filter(|_| packs);
        let flags = if packed.is_some() { flags::PACKED | flags::COMPACTED } else { 0 };
        let stored = packed.map_or(records.to_vec(), |(head, rest)| [&head, rest].concat());
        let mut header = FrameHeader {
            flags,
            count: 3,
            lsn: Lsn(77),
            key_id: keys.current(),
            ..FrameHeader::default()
        };
        let body = body_of(keys, &header, &stored);
        header.len = (FRAME_HEADER_BYTES + body.len()) as u32;
        header.body_crc = crc(&body);
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        header.encode(bytes.first_chunk_mut().expect("room"));
        bytes.extend_from_slice(&body);
        (FrameHeader::decode(&bytes, 0).expect("valid"), bytes)
    }

    #[test]
    fn what_is_sealed_and_packed_comes_out_again() {
        for cipher in [Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm] {
            for packs in [false, true] {
                let keys = ring("one", cipher);
                let records = b"one subject, one body; ".repeat(100);
                let (header, bytes) = sealed(&keys, &records, packs);
                assert_eq!(pack::is_packed(&header), packs);
                assert_eq!(header.check_body(&bytes), Ok(()));
                assert_eq!(records_of(&keys, &header, &bytes).as_deref(), Ok(&records[..]));
                let plain = image(&keys, &header, &bytes).expect("opens").expect("an image");
                let len = (FRAME_HEADER_BYTES + records.len()) as u32;
                assert_eq!(plain[0..4], len.to_le_bytes());
                let other = ring("two", cipher);
                let fault = records_of(&other, &header, &bytes).expect_err("another key");
                assert_eq!(fault, FrameFault::Key(keys.current()));
            }
        }
    }

    /// A frame cannot stand for another one: neither its place nor what it is made of.
    #[test]
    fn the_tag_binds_what_stays_when_a_segment_is_written_anew() {
        let keys = ring("one", Cipher::default());
        let (header, bytes) = sealed(&keys, b"records", false);
        for other in [
            FrameHeader { lsn: Lsn(78), ..header },
            FrameHeader { count: 4, ..header },
            FrameHeader { flags: header.flags | flags::PACKED, ..header },
        ] {
            assert_eq!(records_of(&keys, &other, &bytes).expect_err("bound"), FrameFault::Seal);
        }
        let moved = FrameHeader { prev_crc: 5, salt: 6, durable_lsn: Lsn(1), ..header };
        assert!(records_of(&keys, &moved, &bytes).is_ok());
    }

    proptest! {
        /// Whatever bit changes, it is damage; and where a checksum was made to fit, the tag tells.
        #[test]
        fn no_changed_bit_gives_other_records(
            records in proptest::collection::vec(any::<u8>(), 0..400),
            at: prop::sample::Index,
            bit in 0..8u8,
        ) {
            let keys = ring("one", Cipher::default());
            let (header, mut bytes) = sealed(&keys, &records, false);
            let at = FRAME_HEADER_BYTES + at.index(bytes.len() - FRAME_HEADER_BYTES);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(header.check_body(&bytes), Err(FrameFault::Body));
            let fault = records_of(&keys, &header, &bytes).expect_err("changed");
            prop_assert!(matches!(fault, FrameFault::Seal | FrameFault::Unknown));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            body in proptest::collection::vec(any::<u8>(), 0..300), flags: u16,
        ) {
            let keys = ring("one", Cipher::default());
            let mut bytes = vec![0; FRAME_HEADER_BYTES];
            bytes.extend_from_slice(&body);
            let len = bytes.len() as u32;
            let header = FrameHeader { len, flags, key_id: keys.current(), ..Default::default() };
            let _ = records_of(&keys, &header, &bytes);
            let _ = open_in_place(&keys, &header, &mut bytes);
        }
    }
}
