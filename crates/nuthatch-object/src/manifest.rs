//! The manifest of a file: which stretches of which objects it consists of. Written when a later
//! owner cuts or completes a file that an earlier one had begun, because the earlier one may still
//! be writing objects that are not to count.

use crate::extents::{Extents, Piece, Source};
use crate::rules;
use crc_fast::{CrcAlgorithm, checksum};

const MAGIC: [u8; 8] = *b"NUTHOMAN";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

/// The error of [`decode`] for a later version, which is whole and must be left alone.
pub const LATER_VERSION: &str = "it is of a version that this program does not know";

const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 40;

/// The checksum of everything small that is stored in a bucket.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "a sum of 32 bits")]
    {
        checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
}

/// The bytes of a manifest. Pieces in memory are not part of it: they must have been stored.
#[must_use]
pub fn encode(extents: &Extents) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&extents.len().to_le_bytes());
    out.resize(HEADER_BYTES, 0);
    for (at, piece) in extents.iter() {
        let Source::Object { offset, epoch, skip } = piece.source else { continue };
        for number in [at, piece.len, offset, skip] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&u64::from(epoch).to_le_bytes());
    }
    let sum = crc(&out);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Reads a manifest; what is wrong with it otherwise.
///
/// # Errors
/// A short sentence.
pub fn decode(bytes: &[u8]) -> Result<Extents, &'static str> {
    if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
        return Err("it does not begin like a manifest");
    }
    let mut unsummed = bytes.to_vec();
    unsummed[12..16].fill(0);
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    if rules::MANIFEST_SUM.holds() && crc(&unsummed) != u32_at(12) {
        return Err("its checksum does not fit");
    }
    if rules::LATER_VERSION_REFUSED.holds() && u32_at(8) != VERSION {
        return Err(LATER_VERSION);
    }
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let entries = &bytes[HEADER_BYTES..];
    if !entries.len().is_multiple_of(ENTRY_BYTES) {
        return Err("an entry is incomplete");
    }
    let starts = (HEADER_BYTES..bytes.len()).step_by(ENTRY_BYTES);
    let piece = |at: usize| {
        let epoch = u32::try_from(u64_at(at + 32)).ok()?;
        u64_at(at).checked_add(u64_at(at + 8))?;
        let source = Source::Object { offset: u64_at(at + 16), epoch, skip: u64_at(at + 24) };
        Some((u64_at(at), Piece { len: u64_at(at + 8), source }))
    };
    let pieces: Option<Vec<_>> = starts.map(piece).collect();
    Ok(Extents::of(pieces.ok_or("an entry makes no sense")?, u64_at(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Extents {
        let object = |offset, epoch, skip| Source::Object { offset, epoch, skip };
        Extents::of(
            [
                (0, Piece { len: 4096, source: object(0, 3, 0) }),
                (4096, Piece { len: 100, source: object(4096, 3, 0) }),
                (4196, Piece { len: 50, source: object(4196, 4, 7) }),
            ],
            4246,
        )
    }

    #[test]
    fn a_manifest_survives_the_round_trip() {
        assert_eq!(decode(&encode(&sample())), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(&sample());
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&copy).is_err(), "bit {bit}");
        }
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode(&[]).is_err());
    }
}
