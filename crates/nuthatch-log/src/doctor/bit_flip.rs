//! Locates single changed bytes by the difference of the checksums.
//!
//! CRC-32C is linear: the difference between the sum found and the sum stored depends only on which
//! bits changed and how far they lie from the end. Walking it backwards finds every single byte whose
//! change explains it. If there is exactly one, and chance could hardly have made one up, the byte is
//! set back and the checksum fits again.

/// One changed byte that explains a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flip {
    /// Its place in the bytes that were summed.
    pub at: usize,
    /// Mask to xor to it.
    pub mask: u8,
}

impl Flip {
    /// True if just one bit changed.
    #[must_use]
    pub const fn is_one_bit(self) -> bool {
        self.mask.is_power_of_two()
    }
}

/// Polynomial of CRC-32C, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The sum of each single byte, and which byte has a sum with that top byte.
struct Tables {
    sum: [u32; 256],
    by_top: [u8; 256],
}

const TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables { sum: [0; 256], by_top: [0; 256] };
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables.sum[byte] = sum;
        tables.by_top[(sum >> 24) as usize] = byte as u8;
        byte += 1;
    }
    tables
}

/// A single changed byte among `len` that turns a sum into one that differs by `difference`; `None`
/// if there is none, or more than one.
#[must_use]
pub fn locate(len: usize, difference: u32) -> Option<Flip> {
    let mut state = difference;
    let mut found = None;
    for at in (0..len).rev() {
        let byte = TABLES.by_top[(state >> 24) as usize];
        let sum = TABLES.sum[byte as usize];
        if state == sum && byte != 0 {
            if found.is_some() {
                return None;
            }
            found = Some(Flip { at, mask: byte });
        }
        state = ((state ^ sum) << 8) | u32::from(byte);
    }
    found
}

/// True if chance could hardly have made `flip` up: the odds that damage of another shape among
/// `len` bytes looks like a flip of this kind are below 1 in 256.
#[must_use]
pub fn is_telling(len: usize, flip: Flip) -> bool {
    let kinds: u64 = if flip.is_one_bit() { 8 } else { 255 };
    (len as u64).saturating_mul(kinds) <= 1 << 24
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::crc;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_byte_is_found(
            bytes in proptest::collection::vec(any::<u8>(), 1..3000),
            at: prop::sample::Index,
            mask in 1u8..,
        ) {
            let at = at.index(bytes.len());
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            let found = locate(bytes.len(), crc(&bytes) ^ crc(&changed));
            prop_assert_eq!(found, Some(Flip { at, mask }));
        }
    }

    #[test]
    fn a_lost_sector_is_not_taken_for_one_byte() {
        let bytes: Vec<u8> =
            (0..2000u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        let mut changed = bytes.clone();
        changed[512..1024].fill(0);
        assert_eq!(locate(bytes.len(), crc(&bytes) ^ crc(&changed)), None);
    }
}
