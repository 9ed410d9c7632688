//! Answers that a connection carries one behind the other: each is a length (u32), a CRC-32 (u32) and as many bytes.

use crate::channel::Channel;
use crate::coding::{Reader, Writer, crc};
use std::io::{self, Read, Write as _};

/// Writes an answer.
///
/// # Errors
/// The connection's.
pub(crate) fn put_answer(channel: &mut Channel, bytes: &[u8]) -> io::Result<()> {
    let mut framed = vec![];
    frame_answer(&mut framed, bytes)?;
    channel.write_all(&framed)?;
    channel.flush()
}

/// Appends an answer to others that are written together.
///
/// # Errors
/// It is longer than any may be.
pub(crate) fn frame_answer(to: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let mut framed = Writer(std::mem::take(to));
    framed.u32(u32::try_from(bytes.len()).map_err(invalid)?);
    framed.u32(crc(bytes));
    *to = framed.0;
    to.extend_from_slice(bytes);
    Ok(())
}

/// Reads an answer of at most `max` bytes.
///
/// # Errors
/// The connection's, and `InvalidData` for one that is longer or damaged.
pub(crate) fn read_answer(channel: &mut impl Read, max: u32) -> io::Result<Vec<u8>> {
    let mut head = [0; 8];
    channel.read_exact(&mut head)?;
    let mut from = Reader(&head);
    let (len, sum) = (from.u32().map_err(invalid)?, from.u32().map_err(invalid)?);
    if len > max {
        return Err(invalid("an answer is longer than was asked for"));
    }
    let mut bytes = Vec::with_capacity((len as usize).min(1 << 20));
    if channel.take(u64::from(len)).read_to_end(&mut bytes)? != len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if crc(&bytes) != sum {
        return Err(invalid("the checksum of an answer does not fit"));
    }
    Ok(bytes)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
