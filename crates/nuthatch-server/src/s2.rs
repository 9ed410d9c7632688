//! Connections between servers that are compressed with S2: adapters between a connection's tasks and its
//! socket, as for websockets.
//!
//! Reading takes what nats-server writes, blocks of up to 1 MiB; writing makes blocks of 64 KiB in snappy's
//! format, which every S2 reader understands.

mod input;
mod output;

pub(crate) use self::input::Input;
pub(crate) use self::output::Output;

use std::sync::{Arc, OnceLock};

/// Whether what is written now is to be compressed.
type Compresses = Box<dyn Fn() -> bool + Send + Sync>;

/// Whether a connection has begun to be compressed: bytes pass as they are until then. On a websocket the
/// handshake and the first frames do, and then all frames are compressed, as nats-server has it.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<OnceLock<Compresses>>);

impl Switch {
    /// What comes and goes from now on is in chunks.
    pub(crate) fn begin(&self, compresses: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(compresses));
    }

    fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    fn compresses(&self) -> bool {
        self.0.get().is_some_and(|compresses| compresses())
    }
}

/// Type and length in front of every chunk.
const CHUNK_HEADER_BYTES: usize = 4;
/// The checksum in front of the data of a chunk.
const CHECKSUM_BYTES: usize = 4;
const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const IDENTIFIER: u8 = 0xff;

#[cfg(test)]
mod tests;
