//! Connections between servers that are compressed with S2: adapters between a connection's tasks and its
//! socket, as for websockets.
//!
//! Reading takes what nats-server writes, blocks of up to 1 MiB; writing makes blocks of 64 KiB in snappy's
//! format, which every S2 reader understands.

mod input;
mod output;

pub(crate) use self::input::Input;
pub(crate) use self::output::Output;

/// Type and length in front of every chunk.
const CHUNK_HEADER_BYTES: usize = 4;
/// The checksum in front of the data of a chunk.
const CHECKSUM_BYTES: usize = 4;
const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const IDENTIFIER: u8 = 0xff;

#[cfg(test)]
mod tests;
