//! Numbers and strings as bytes, little-endian, and back: of records, packets and operations.

use crc_fast::{CrcAlgorithm, checksum};
use std::io;

/// Why something is not read that is not damaged.
pub const LATER: &str =
    "the cluster was finalized for a protocol that this program does not know: start a newer one";

/// The bytes are not what they must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    /// What is wrong with them.
    pub what: &'static str,
}

impl Malformed {
    /// True for what is not damaged, but of a later program.
    #[must_use]
    pub fn is_later(self) -> bool {
        self.what == LATER
    }
}

impl From<Malformed> for io::Error {
    fn from(why: Malformed) -> Self {
        Self::other(why)
    }
}

/// True if bytes were not read because they are of a later program.
#[must_use]
pub fn is_later(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|inner| inner.downcast_ref::<Malformed>());
    why.is_some_and(|why| why.is_later())
}

/// An error with its reason.
#[must_use]
pub const fn malformed(what: &'static str) -> Malformed {
    Malformed { what }
}

/// CRC-32 (ISO-HDLC) of `bytes`.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32IsoHdlc, bytes)).expect("32 bits")
}

/// Appends values to bytes.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// A truth.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Sixteen bytes.
    pub fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A length and so many bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).expect("bounded by the largest frame"));
        self.0.extend_from_slice(value);
    }

    /// A count and so many values.
    pub fn all<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(u32::try_from(values.len()).expect("bounded by the largest message"));
        for value in values {
            each(self, value);
        }
    }

    /// A value that may be absent.
    pub fn option<T>(&mut self, value: Option<T>, each: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            each(self, value);
        }
    }
}

/// Takes values from bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// So many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(malformed("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("as long as it was asked for"))
    }

    /// One byte.
    ///
    /// # Errors
    /// There is none.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// A truth.
    ///
    /// # Errors
    /// There is none, or another byte.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed("a truth is neither 0 nor 1")),
        }
    }

    /// Four bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_le_bytes)
    }

    /// A length and so many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// A string.
    ///
    /// # Errors
    /// There is none, or it is not UTF-8.
    pub fn string(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| malformed("a name is not UTF-8"))
    }

    /// A count and so many values, each of at least one byte: a count beyond what is there is refused
    /// before memory is taken for it.
    ///
    /// # Errors
    /// A value's.
    pub fn all<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(malformed("it counts more values than it has bytes"));
        }
        (0..count).map(|_| each(self)).collect()
    }

    /// A value that may be absent.
    ///
    /// # Errors
    /// The value's.
    pub fn option<T>(
        &mut self,
        each: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool()? { each(self).map(Some) } else { Ok(None) }
    }

    /// Nothing is left.
    ///
    /// # Errors
    /// Something is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed("there is more than it says")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_later_program_is_told_from_damage() {
        assert!(is_later(&malformed(LATER).into()));
        assert!(!is_later(&malformed("it ends too early").into()));
        assert!(!is_later(&io::Error::other(LATER)), "by its kind, not by its text");
    }
}
