//! S2 framing: chunks with checksums, a superset of snappy's.
//!
//! Reading takes what S2 writers make (blocks of up to 4 MiB, repeated offsets) and what snappy
//! writers make. Writing is left to the `snap` crate, whose frames every S2 reader understands.
//! The decoder is ours: it is a page, has no unsafe code, and meets bytes of strangers.

mod blocks;

use crate::error::ArchiveError;
use crate::fill;
use std::io::{self, Read};

/// Largest uncompressed block (S2; snappy has 64 KiB).
const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Largest chunk of compressed data: what does not shrink is stored as it is, and the format's
/// own bound on growth is a sixth.
const CHUNK_BYTES_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 6 + 64;
/// Type and length in front of every chunk.
const CHUNK_HEADER_BYTES: usize = 4;
/// A checksum in front of the data of a chunk.
const CHECKSUM_BYTES: usize = 4;

const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const UNKNOWN_LAST: u8 = 0x7f;
const IDENTIFIER: u8 = 0xff;
const IDENTIFIERS: [&[u8]; 2] = [b"S2sTwO", b"sNaPpY"];

/// The first bytes of a compressed stream, up to its identifier.
pub(crate) const STREAM_START: [u8; CHUNK_HEADER_BYTES] = [IDENTIFIER, 6, 0, 0];

/// The CRC-32C of the uncompressed data, rotated and shifted as the format wants it.
fn masked_sum(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Uncompresses what it reads.
#[derive(Debug)]
pub struct FrameReader<R> {
    input: R,
    chunk: Vec<u8>,
    block: Vec<u8>,
    /// Bytes of the block already read.
    at: usize,
    /// Compressed bytes before the current chunk.
    offset: u64,
    is_identified: bool,
    is_ended: bool,
}

impl<R: Read> FrameReader<R> {
    /// A reader at the start of a compressed stream.
    pub const fn new(input: R) -> Self {
        Self {
            input,
            chunk: Vec::new(),
            block: Vec::new(),
            at: 0,
            offset: 0,
            is_identified: false,
            is_ended: false,
        }
    }

    /// The underlying reader.
    pub const fn get_mut(&mut self) -> &mut R {
        &mut self.input
    }

    fn damaged(&self, what: impl Into<String>) -> ArchiveError {
        let place = format!("compressed data, chunk at byte {}", self.offset);
        ArchiveError::damaged(place, what)
    }

    /// Brings the next block; `false` at the end.
    fn next_block(&mut self) -> Result<bool, ArchiveError> {
        self.block.clear();
        self.at = 0;
        while self.block.is_empty() {
            let mut header = [0; CHUNK_HEADER_BYTES];
            let got = fill(&mut self.input, &mut header)?;
            if got == 0 && self.is_identified {
                return Ok(false);
            }
            if got < header.len() {
                return Err(self.damaged("it ends in the middle"));
            }
            let [kind, a, b, c] = header;
            let len = u32::from_le_bytes([a, b, c, 0]) as usize;
            if !self.is_identified && kind != IDENTIFIER {
                return Err(self.damaged("this is not S2 or snappy"));
            }
            self.take_chunk(kind, len)?;
            self.offset += (CHUNK_HEADER_BYTES + len) as u64;
        }
        Ok(true)
    }

    fn take_chunk(&mut self, kind: u8, len: usize) -> Result<(), ArchiveError> {
        match kind {
            IDENTIFIER => {
                self.read_chunk(len, IDENTIFIERS[0].len())?;
                if !IDENTIFIERS.contains(&self.chunk.as_slice()) {
                    return Err(self.damaged("this is not S2 or snappy"));
                }
                self.is_identified = true;
                Ok(())
            }
            COMPRESSED | UNCOMPRESSED => {
                self.read_chunk(len, CHUNK_BYTES_MAX)?;
                self.uncompress(kind)
            }
            ..=UNKNOWN_LAST => Err(self.damaged(format!("chunks of type {kind} are unknown"))),
            _ => self.skip_chunk(len),
        }
    }

    fn read_chunk(&mut self, len: usize, len_max: usize) -> Result<(), ArchiveError> {
        if len > len_max {
            return Err(self.damaged(format!("{len} bytes; at most {len_max} can be")));
        }
        self.chunk.resize(len, 0);
        if fill(&mut self.input, &mut self.chunk)? < len {
            return Err(self.damaged("it ends in the middle"));
        }
        Ok(())
    }

    fn skip_chunk(&mut self, len: usize) -> Result<(), ArchiveError> {
        let mut rest = self.input.by_ref().take(len as u64);
        if io::copy(&mut rest, &mut io::sink())? < len as u64 {
            return Err(self.damaged("it ends in the middle"));
        }
        Ok(())
    }

    fn uncompress(&mut self, kind: u8) -> Result<(), ArchiveError> {
        let Some((sum, data)) = self.chunk.split_first_chunk::<CHECKSUM_BYTES>() else {
            return Err(self.damaged("it has no checksum"));
        };
        if kind == COMPRESSED {
            if let Err(what) = blocks::decode(data, &mut self.block, BLOCK_BYTES_MAX) {
                return Err(self.damaged(what));
            }
        } else if data.len() > BLOCK_BYTES_MAX {
            return Err(self.damaged("a block of more than 4 MiB"));
        } else {
            self.block.extend_from_slice(data);
        }
        if u32::from_le_bytes(*sum) != masked_sum(&self.block) {
            return Err(self.damaged("the checksum is wrong"));
        }
        Ok(())
    }
}

impl<R: Read> Read for FrameReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            // A reader that has ended or failed stays so.
            if self.is_ended {
                return Ok(0);
            }
            self.is_ended = true;
            if !self.next_block()? {
                return Ok(0);
            }
            self.is_ended = false;
        }
        let left = &self.block[self.at..];
        let len = left.len().min(out.len());
        out[..len].copy_from_slice(&left[..len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
