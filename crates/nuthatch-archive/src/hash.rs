//! The checksums of nats-server's files: HighwayHash-64, keyed with the SHA-256 of a name.

use highway::{HighwayHash, HighwayHasher, Key};
use ring::digest::{SHA256, digest};

/// Bytes of a checksum.
pub const SUM_BYTES: usize = 8;

/// Sums with the key of one file.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    key: [u64; 4],
}

impl Sums {
    /// The sums of the file that is known by this name.
    pub fn new(name: &str) -> Self {
        let digest = digest(&SHA256, name.as_bytes());
        let mut key = [0; 4];
        for (word, bytes) in key.iter_mut().zip(digest.as_ref().chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Self { key }
    }

    /// The sum of parts, as if they were one.
    pub fn of(&self, parts: &[&[u8]]) -> [u8; SUM_BYTES] {
        let mut hasher = HighwayHasher::new(Key(self.key));
        for part in parts {
            hasher.append(part);
        }
        hasher.finalize64().to_le_bytes()
    }

    /// True if `hex` is the sum of `data`, in the digits that files called `meta.sum` hold.
    pub fn matches_hex(&self, data: &[u8], hex: &[u8]) -> bool {
        let digits =
            self.of(&[data]).iter().fold(String::new(), |text, b| format!("{text}{b:02x}"));
        hex.trim_ascii().eq_ignore_ascii_case(digits.as_bytes())
    }
}
