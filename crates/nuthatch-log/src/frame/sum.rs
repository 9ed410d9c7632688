//! The checksum of a frame's records, taken while large bodies are copied in.
//!
//! Small records are summed by the writer in one go: that keeps the sequencer, which has something
//! to do for each of them, free. A large body is summed piece by piece right after each piece was
//! copied, while it is in the processor's cache: the writer then has nothing left to do but write,
//! and does not leave the medium idle while it reads the frame once more.

use super::{FRAME_HEADER_BYTES, crc};
use crc_fast::{CrcAlgorithm, Digest};

/// Bodies from this size on are summed while they are copied.
pub const SUM_AT_ONCE_BYTES: usize = 32 * 1024;

/// Bytes copied and then summed: they fit into the nearest caches.
pub const PIECE_BYTES: usize = 32 * 1024;

/// A checksum under way, and how far it has come; nothing as long as no large body was met.
#[derive(Default)]
pub struct BodySum(Option<Box<(Digest, usize)>>);

impl BodySum {
    /// Takes in everything of the frame so far that was not taken in before.
    pub fn catch_up(&mut self, frame: &[u8]) {
        let fresh = || Box::new((Digest::new(CrcAlgorithm::Crc32Iscsi), FRAME_HEADER_BYTES));
        let (digest, at) = &mut **self.0.get_or_insert_with(fresh);
        digest.update(&frame[*at..]);
        *at = frame.len();
    }

    /// The checksum of the records of the whole frame.
    #[must_use]
    pub fn finish(self, frame: &[u8]) -> u32 {
        match self.0 {
            None => crc(&frame[FRAME_HEADER_BYTES..]),
            Some(under_way) => {
                let (mut digest, at) = *under_way;
                digest.update(&frame[at..]);
                // A 32-bit checksum in a wide integer.
                digest.finalize() as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_in_pieces_is_the_sum_of_all() {
        let frame: Vec<u8> = (0..300_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
        for pieces in [&[][..], &[48], &[49, 50], &[1000, 100_000, 299_999], &[300_000]] {
            let mut sum = BodySum::default();
            for end in pieces {
                sum.catch_up(&frame[..*end]);
            }
            assert_eq!(sum.finish(&frame), crc(&frame[FRAME_HEADER_BYTES..]), "{pieces:?}");
        }
    }
}
