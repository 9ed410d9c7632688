//! Backups of streams: the archives that nats-server writes and restores, and its store directory.
//!
//! Two formats of archives exist, both behind S2 compression. [`read`] understands both, as
//! nats-server 2.15 does; [`SnapshotWriter`] writes the newer one, as it does too:
//!
//! - the newer one (`NATSARC1`): state, consumers, messages one by one ([`snapshot`]);
//! - the older one, of servers before: a tar of the files of the store ([`tarred`]).
//!
//! [`store`] reads a store directory of a nats-server and writes it as an archive.
//!
//! Everything is streamed: what is in memory at a time is a block of at most 4 MiB, a message and a
//! consumer's state, each with a named bound that is checked before anything is allocated. Damage
//! is an error that says what and where, never a panic, and never passed over.

mod block;
mod entry;
mod error;
pub mod frames;
mod hash;
mod json;
mod odat;
pub mod snapshot;
pub mod store;
pub mod tarred;

pub use error::ArchiveError;
pub use snapshot::SnapshotWriter;

use frames::FrameReader;
use nuthatch_protocol::js::ConsumerSnapshot;
use std::io::{BufReader, Cursor, Read};

/// Bytes of a message, headers included, that are read: more than any server accepts.
pub const MESSAGE_BYTES_MAX: u64 = 80 << 20;
/// Bytes of a subject or a name.
pub const NAME_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a consumer's configuration and state.
pub const CONSUMER_BYTES_MAX: u64 = 64 << 20;
/// Consumers of a stream.
pub const CONSUMERS_MAX: u64 = 100_000;
/// Bytes of a message block, as a file and inflated: nats-server ends one at 8 MiB, and a record has
/// at most 32.
pub const BLOCK_FILE_BYTES_MAX: u64 = 64 << 20;
/// The largest sequence; above it nothing could be stored any more.
pub const SEQ_MAX: u64 = i64::MAX as u64;

/// A message of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Sequence; they rise.
    pub seq: u64,
    /// When it was stored, ns since the epoch.
    pub time_ns: i64,
    /// A literal subject.
    pub subject: &'a [u8],
    /// Header block, empty if none.
    pub headers: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
}

/// Item of an archive, in this order: consumers before or behind everything else.
#[derive(Clone, PartialEq, Debug)]
pub enum Item<'a> {
    /// A consumer. Its name is in its configuration.
    Consumer(Box<ConsumerSnapshot>),
    /// A message.
    Message(Message<'a>),
    /// Sequences from the first to the last that hold nothing. They may lie behind everything so
    /// far, or take back messages that came before.
    Removed {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
}

/// Reads an archive of either format and hands on what it holds. `stream` is the name that the
/// archive must be of, where it says.
///
/// # Errors
/// [`ArchiveError`] as `E`, or what `visit` returned.
pub fn read<R, E>(
    input: R,
    stream: &str,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E>
where
    R: Read,
    E: From<ArchiveError>,
{
    read_uncompressed(FrameReader::new(BufReader::new(input)), stream, visit)
}

fn read_uncompressed<R, E>(
    mut frames: R,
    stream: &str,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E>
where
    R: Read,
    E: From<ArchiveError>,
{
    let mut magic = [0; snapshot::MAGIC.len()];
    let got = fill(&mut frames, &mut magic)?;
    if got < magic.len() {
        return Err(ArchiveError::damaged("the archive", "it ends in its first bytes").into());
    }
    if magic == *snapshot::MAGIC {
        return snapshot::read(frames, visit);
    }
    tarred::read(Cursor::new(magic).chain(frames), stream, visit)
}

/// Refuses a name of a stream or a consumer that no server gives: it may be meant as a path.
fn check_name(name: &str, place: &str) -> Result<(), ArchiveError> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    if name.is_empty() || name.len() as u64 > NAME_BYTES_MAX || name.contains(is_bad) {
        return Err(ArchiveError::damaged(place, format!("{name:?} is not a name")));
    }
    Ok(())
}

/// Reads until the buffer is full or the input ends; returns how many bytes came.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(got)
}

/// Reads exactly `len` bytes into `out`, which grows as they come.
fn read_into(
    input: &mut impl Read,
    len: u64,
    out: &mut Vec<u8>,
    place: &dyn Fn() -> String,
) -> Result<(), ArchiveError> {
    out.clear();
    let got = input.take(len).read_to_end(out)? as u64;
    if got < len {
        return Err(ArchiveError::Damaged {
            place: place(),
            what: format!("it ends {} bytes early", len - got),
        });
    }
    Ok(())
}

/// For fuzzing: looks at an archive of either format, compressed or not. Without the compression no
/// checksum keeps damage from what reads it.
#[doc(hidden)]
pub fn fuzz_archive(bytes: &[u8]) {
    let _ = read::<_, ArchiveError>(bytes, "S", &mut |_| Ok(()));
    let _ = read_uncompressed::<_, ArchiveError>(bytes, "S", &mut |_| Ok(()));
    let _ = odat::decode(bytes);
}
