//! Header blocks: `NATS/1.0[ code[ description]]`, lines of `Name: value`, an empty line.
//!
//! Reading is lenient, as nats-server's is: the block came from a client that may have lied about
//! its length, and what does not look like a header line is skipped. [`Headers::parse`] is the
//! strict door for those who must know. Names are compared exactly, letter case included, as the
//! incumbent does for its own headers.

mod edit;

use memchr::memchr;
use thiserror::Error;

use crate::swar::find_byte;
pub use edit::{append, begin, copy_without, finish, push, remove, set};

/// The version every block begins with.
pub const VERSION: &[u8] = b"NATS/1.0";
/// A block without headers: nothing but its version.
pub const EMPTY_BLOCK: &[u8] = b"NATS/1.0\r\n\r\n";

/// Why bytes are not a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// It does not begin with `NATS/1.0`.
    #[error("header block does not begin with NATS/1.0")]
    NoVersion,
    /// It does not end with an empty line, or that line comes too early: the length was wrong.
    #[error("header block of {len} bytes does not end with its empty line")]
    BadEnd {
        /// The length of the block in bytes.
        len: usize,
    },
    /// A line without a colon, with an empty name, or ended by a lone LF.
    #[error("malformed header line at byte {offset}")]
    BadLine {
        /// Offset where the line starts in the block.
        offset: usize,
    },
    /// The version line carries something that is not a status.
    #[error("malformed status line")]
    BadStatus,
}

/// A borrowed header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    block: &'a [u8],
}

/// One header: name and value, without the space behind the colon.
pub type Header<'a> = (&'a [u8], &'a [u8]);

impl<'a> Headers<'a> {
    /// A block as it came; an empty slice has no headers.
    #[inline]
    #[must_use]
    pub fn new(block: &'a [u8]) -> Self {
        Self { block }
    }

    /// A block that is well formed from its version to its empty line.
    ///
    /// # Errors
    /// [`HeaderError`] at the first thing that is wrong.
    pub fn parse(block: &'a [u8]) -> Result<Self, HeaderError> {
        let rest = block.strip_prefix(VERSION).ok_or(HeaderError::NoVersion)?;
        let bad_end = HeaderError::BadEnd { len: block.len() };
        if !block.ends_with(b"\r\n\r\n") {
            return Err(bad_end);
        }
        let first_end = memchr(b'\n', rest).ok_or(bad_end)?;
        let status = rest[..first_end].strip_suffix(b"\r").ok_or(HeaderError::BadStatus)?;
        if !status.is_empty() && parse_status(status).is_none() {
            return Err(HeaderError::BadStatus);
        }
        let mut offset = VERSION.len() + first_end + 1;
        loop {
            let line = &block[offset..];
            let end = memchr(b'\n', line).ok_or(bad_end)?;
            let text = line[..end].strip_suffix(b"\r").ok_or(HeaderError::BadLine { offset })?;
            offset += end + 1;
            if text.is_empty() {
                return if offset == block.len() { Ok(Self { block }) } else { Err(bad_end) };
            }
            if !matches!(memchr(b':', text), Some(1..)) {
                return Err(HeaderError::BadLine { offset: offset - end - 1 });
            }
        }
    }

    /// The block itself.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.block
    }

    /// The status code and description of the version line, if it has one.
    #[must_use]
    pub fn status(&self) -> Option<(u16, &'a [u8])> {
        let rest = self.block.strip_prefix(VERSION)?;
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        parse_status(line)
    }

    /// Every header, in order.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        // The version line holds no header, whatever it holds.
        let start = find_byte(self.block, b'\n').map_or(self.block.len(), |feed| feed + 1);
        Iter { rest: &self.block[start..] }
    }

    /// The value of the first header called exactly `name`.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The values of every header called exactly `name`.
    pub fn get_all<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The value of the first header called exactly `name` in `block`.
#[inline]
#[must_use]
pub fn find_header<'a>(block: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Headers::new(block).get(name)
}

/// Does a line of `block` begin with `Nats-`, so that JetStream has to look closer?
#[inline]
#[must_use]
pub fn has_nats_header(block: &[u8]) -> bool {
    let mut rest = block;
    while let Some(feed) = find_byte(rest, b'\n') {
        rest = &rest[feed + 1..];
        if rest.starts_with(b"Nats-") {
            return true;
        }
    }
    false
}

/// Iterator over the headers of a block; lines that are not headers are skipped.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Header<'a>;

    #[inline]
    fn next(&mut self) -> Option<Header<'a>> {
        loop {
            let end = find_byte(self.rest, b'\n')?;
            let line = &self.rest[..end];
            self.rest = &self.rest[end + 1..];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(colon) = find_byte(line, b':') {
                let mut value = &line[colon + 1..];
                while let [b' ', tail @ ..] = value {
                    value = tail;
                }
                return Some((&line[..colon], value));
            }
        }
    }
}

/// ` code[ description]` behind the version.
fn parse_status(line: &[u8]) -> Option<(u16, &[u8])> {
    let text = line.strip_prefix(b" ")?;
    let (code, description) = match memchr(b' ', text) {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (text, &text[text.len()..]),
    };
    if code.len() != 3 {
        return None;
    }
    let code = code.iter().try_fold(0u16, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + u16::from(byte - b'0'))
    })?;
    Some((code, description))
}

#[cfg(test)]
mod tests;
