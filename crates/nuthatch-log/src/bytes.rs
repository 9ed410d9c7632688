//! Little-endian integers, varints and the checksum, as every file of this format uses them.

/// CRC-32C, the checksum of everything in this format.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The four bytes at `at`. The caller has checked the length.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The eight bytes at `at`. The caller has checked the length.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Appends an unsigned LEB128 number.
pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Folds the sign into the lowest bit, so that small negative numbers stay short.
#[must_use]
pub const fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

/// Undoes [`zigzag`].
#[must_use]
pub const fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -((n & 1).cast_signed())
}

/// Reads what the `put` functions wrote; every method returns `None` where the bytes end.
#[derive(Clone)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.take(4)?, 0))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64_at(self.take(8)?, 0))
    }

    /// The next varint, of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (i, byte) in self.bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[i + 1..];
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_survive(n: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            let mut reader = ByteReader::new(&out);
            prop_assert_eq!(reader.varint(), Some(n));
            prop_assert!(reader.rest().is_empty());
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }
}
