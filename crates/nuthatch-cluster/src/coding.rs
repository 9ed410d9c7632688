//! Numbers and strings as bytes, and the hash of payloads.

pub use nuthatch_catalog_group::coding::{Malformed, Reader, Writer, crc, malformed};

/// Hash of an entry's payload: XXH3, 64 bits.
#[must_use]
pub fn payload_hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
