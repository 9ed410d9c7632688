//! One compressed block, of S2 or of snappy.
//!
//! ```text
//! block   = varint uncompressed length | elements
//! literal = tag (low bits 0): length - 1 in the upper six bits, 60 to 63: in the next 1 to 4 bytes
//! copy 1  = tag (1): length - 4 in three bits, offset in three bits and a byte; offset 0 repeats
//!           the last one, then lengths of 5, 6 and 7 mean 1, 2 and 3 further bytes of length (S2)
//! copy 2  = tag (2): length - 1, offset in two bytes
//! copy 4  = tag (3): length - 1, offset in four bytes
//! ```

const ENDS_EARLY: &str = "a compressed block ends early";
const TOO_LONG: &str = "a compressed block is longer than it says";

/// Rest of a block's elements.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// A little-endian number of `bytes` bytes, at most four.
    fn number(&mut self, bytes: usize) -> Result<usize, &'static str> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ENDS_EARLY)?;
        self.0 = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<u64, &'static str> {
        let mut length = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.number(1)? as u64;
            length |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err("the length of a compressed block is no number")
    }

    /// Length of a literal whose tag holds `upper`.
    fn literal(&mut self, upper: usize) -> Result<usize, &'static str> {
        let length = if upper < 60 { upper } else { self.number(upper - 59)? };
        Ok(length + 1)
    }

    /// Length and offset of a short copy; `last` is the offset before.
    fn short_copy(&mut self, tag: usize, last: usize) -> Result<(usize, usize), &'static str> {
        let offset = (tag & 0xe0) << 3 | self.number(1)?;
        let length = tag >> 2 & 7;
        if offset > 0 {
            return Ok((length + 4, offset));
        }
        let length = match length {
            5 => self.number(1)? + 8,
            6 => self.number(2)? + (1 << 8) + 4,
            7 => self.number(3)? + (1 << 16) + 4,
            short => short + 4,
        };
        Ok((length, last))
    }
}

/// Appends `length` bytes that begin `offset` bytes before the end; they may overlap what they make.
fn repeat(out: &mut Vec<u8>, offset: usize, length: usize) {
    let start = out.len() - offset;
    let end = out.len() + length;
    while out.len() < end {
        // What was copied so far has the same period.
        let part = (out.len() - start).min(end - out.len());
        out.extend_from_within(start..start + part);
    }
}

/// Uncompresses a block into `out`, which is cleared.
///
/// # Errors
/// What is wrong with it.
pub(super) fn decode(
    block: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), &'static str> {
    let mut source = Source(block);
    let size = usize::try_from(source.length()?).unwrap_or(usize::MAX);
    if size > bytes_max {
        return Err("a compressed block of more than 4 MiB");
    }
    out.clear();
    out.reserve(size);
    let mut offset = 0;
    while !source.0.is_empty() {
        let tag = source.number(1)?;
        let length;
        match tag & 3 {
            0 => {
                let literal = source.literal(tag >> 2)?;
                let bytes = source.take(literal)?;
                if bytes.len() > size - out.len() {
                    return Err(TOO_LONG);
                }
                out.extend_from_slice(bytes);
                continue;
            }
            1 => (length, offset) = source.short_copy(tag, offset)?,
            2 => (length, offset) = ((tag >> 2) + 1, source.number(2)?),
            _ => (length, offset) = ((tag >> 2) + 1, source.number(4)?),
        }
        if offset == 0 || offset > out.len() {
            return Err("a compressed block refers to what is before it");
        }
        if length > size - out.len() {
            return Err(TOO_LONG);
        }
        repeat(out, offset, length);
    }
    if out.len() == size { Ok(()) } else { Err(ENDS_EARLY) }
}
