//! The reading side: what is in the chunks, in one stream.
//!
//! A chunk is waited for as a whole and unpacked at once: it has a bound that no stranger's number moves.

use super::{CHECKSUM_BYTES, CHUNK_HEADER_BYTES, COMPRESSED, IDENTIFIER, Switch, UNCOMPRESSED};
use bytes::{Buf, BytesMut};
use nuthatch_archive::frames::FrameReader;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of a block; nats-server writes no larger ones.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Bytes of a block of somebody who has not been let in yet.
pub const STRANGERS_BLOCK_BYTES_MAX: usize = 64 * 1024;
/// What does not shrink is stored as it is; the format's own bound on growth is a sixth.
const fn chunk_bytes_max(block: usize) -> usize {
    block + block / 6 + 64
}
/// Bytes of padding, and of what other writers may mean, that are skipped in one chunk.
const SKIPPED_BYTES_MAX: usize = 64 * 1024;
/// Read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Chunks without data, before others have their turn.
const EMPTY_CHUNKS_MAX: u32 = 16;

/// Whole chunks, as their reader takes them.
#[derive(Default)]
struct Chunks(BytesMut);

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.0.len().min(out.len());
        self.0.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

/// Unpacks chunks.
pub(crate) struct Input<R> {
    inner: R,
    /// Bytes pass as they are until it is on.
    switch: Option<Switch>,
    /// Read and not unpacked yet.
    raw: BytesMut,
    chunks: FrameReader<Chunks>,
    /// Bytes of the last block that are still to be handed on.
    left: usize,
    /// Whether the other side was let in.
    admitted: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Of a side that is trusted with large blocks once `admitted` says so.
    pub(crate) fn new(inner: R, admitted: Arc<AtomicBool>) -> Self {
        let chunks = FrameReader::new(Chunks::default());
        Self { inner, switch: None, raw: BytesMut::new(), chunks, left: 0, admitted }
    }

    /// One that begins when `switch` is on.
    pub(crate) fn waiting(inner: R, switch: Switch, admitted: Arc<AtomicBool>) -> Self {
        Self { switch: Some(switch), ..Self::new(inner, admitted) }
    }

    /// Hands a whole chunk to its reader, if there is one: `Some(true)` if it holds data.
    fn next_chunk(&mut self) -> io::Result<Option<bool>> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some(&[kind, a, b, c]) = self.raw.first_chunk::<CHUNK_HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([a, b, c, 0]) as usize;
        let is_data = matches!(kind, COMPRESSED | UNCOMPRESSED);
        let block_max = match self.admitted.load(Ordering::Relaxed) {
            true => BLOCK_BYTES_MAX,
            false => STRANGERS_BLOCK_BYTES_MAX,
        };
        let max = if is_data { chunk_bytes_max(block_max) } else { SKIPPED_BYTES_MAX };
        if len > max {
            return Err(damaged(format!(
                "a compressed chunk of {len} bytes; at most {max} can be"
            )));
        }
        let total = CHUNK_HEADER_BYTES + len;
        if self.raw.len() < total {
            return Ok(None);
        }
        let chunk = self.raw.split_to(total);
        if !is_data {
            // Others than the beginning of a stream and those that may be skipped are an error.
            if kind == IDENTIFIER || kind < 0x80 {
                self.chunks.get_mut().0.unsplit(chunk);
            }
            return Ok(Some(false));
        }
        let size = uncompressed_size(kind, &chunk[CHUNK_HEADER_BYTES..]);
        let size = size.ok_or_else(|| damaged("a compressed chunk that is cut off".to_owned()))?;
        if size > block_max {
            let what = format!("a block of {size} bytes; at most {block_max} can be");
            return Err(damaged(what));
        }
        if size == 0 {
            return Ok(Some(false));
        }
        self.chunks.get_mut().0.unsplit(chunk);
        self.left = size;
        Ok(Some(true))
    }
}

/// How many bytes a chunk will become.
fn uncompressed_size(kind: u8, chunk: &[u8]) -> Option<usize> {
    let data = chunk.get(CHECKSUM_BYTES..)?;
    if kind == UNCOMPRESSED {
        return Some(data.len());
    }
    let mut size = 0_u64;
    for (at, &byte) in data.iter().take(5).enumerate() {
        size |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return usize::try_from(size).ok();
        }
    }
    None
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.switch.as_ref().is_some_and(|switch| !switch.is_on()) {
            return Pin::new(&mut this.inner).poll_read(cx, out);
        }
        let mut empty = 0;
        while this.left == 0 {
            match this.next_chunk()? {
                Some(true) => break,
                Some(false) => {
                    empty += 1;
                    if empty == EMPTY_CHUNKS_MAX {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                None => {
                    let read = read_some(&mut this.inner, cx, &mut this.raw);
                    if ready!(read)? == 0 {
                        // What is cut off says so by its end.
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        let want = this.left.min(out.remaining());
        let count = this.chunks.read(out.initialize_unfilled_to(want))?;
        out.advance(count);
        this.left -= count;
        Poll::Ready(if count > 0 || want == 0 {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        })
    }
}

/// Reads what is there into the room of a buffer.
fn read_some<R: AsyncRead + Unpin>(
    inner: &mut R,
    cx: &mut Context<'_>,
    raw: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut room = [0; READ_BYTES];
    let mut buf = ReadBuf::new(&mut room);
    ready!(Pin::new(inner).poll_read(cx, &mut buf))?;
    raw.extend_from_slice(buf.filled());
    Poll::Ready(Ok(buf.filled().len()))
}
