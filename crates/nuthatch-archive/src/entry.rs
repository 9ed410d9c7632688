//! Entries of the newer archives: five numbers, a name, and bytes.
//!
//! ```text
//! archive = "NATSARC1" | entries
//! entry   = varints: length of the name, timestamp (zigzag), sequence, bytes of headers,
//!           bytes of the payload
//!         | name | headers | payload
//! ```

use crate::error::ArchiveError;
use crate::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX, read_into};
use std::io::{self, Read, Write};

/// An entry without its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    pub name: Vec<u8>,
    pub time_ns: i64,
    pub seq: u64,
    pub headers_bytes: u64,
    pub body_bytes: u64,
}

impl Header {
    /// True if it marks the end of an archive.
    pub fn is_end(&self) -> bool {
        *self == Self::default()
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes an entry.
pub fn write(out: &mut impl Write, header: &Header, bytes: [&[u8]; 2]) -> io::Result<()> {
    let mut front = Vec::with_capacity(header.name.len() + 32);
    put_varint(&mut front, header.name.len() as u64);
    put_varint(&mut front, (header.time_ns << 1 ^ header.time_ns >> 63) as u64);
    put_varint(&mut front, header.seq);
    put_varint(&mut front, header.headers_bytes);
    put_varint(&mut front, header.body_bytes);
    front.extend_from_slice(&header.name);
    out.write_all(&front)?;
    out.write_all(bytes[0])?;
    out.write_all(bytes[1])
}

/// Reads entries.
pub struct Entries<R> {
    input: R,
    /// Entries read so far.
    count: u64,
}

impl<R: Read> Entries<R> {
    /// A reader behind the magic bytes.
    pub fn new(input: R) -> Self {
        Self { input, count: 0 }
    }

    /// Its place, for errors.
    pub fn place(&self) -> String {
        format!("entry {}", self.count)
    }

    /// A fault of the current entry.
    pub fn damaged(&self, what: impl Into<String>) -> ArchiveError {
        ArchiveError::damaged(self.place(), what)
    }

    fn varint(&mut self) -> Result<u64, ArchiveError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if self.input.read(&mut byte)? == 0 {
                return Err(self.damaged("the archive ends before its end mark"));
            }
            let bits = u64::from(byte[0] & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number of more than 64 bits"))
    }

    /// The next entry; its bytes must be read next.
    pub fn next(&mut self) -> Result<Header, ArchiveError> {
        self.count += 1;
        let name_bytes = self.varint()?;
        let time = self.varint()?;
        let mut header = Header {
            time_ns: (time >> 1) as i64 ^ -((time & 1) as i64),
            seq: self.varint()?,
            headers_bytes: self.varint()?,
            body_bytes: self.varint()?,
            name: Vec::new(),
        };
        ArchiveError::check_size("a name", name_bytes, NAME_BYTES_MAX)?;
        let total = header.headers_bytes.saturating_add(header.body_bytes);
        ArchiveError::check_size(&self.place(), total, MESSAGE_BYTES_MAX)?;
        self.bytes(name_bytes, &mut header.name)?;
        Ok(header)
    }

    /// The entry's next bytes.
    pub fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), ArchiveError> {
        let count = self.count;
        read_into(&mut self.input, len, out, &|| format!("entry {count}"))
    }
}
