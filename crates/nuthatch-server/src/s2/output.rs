//! The writing side: protocol text in chunks.

use super::{CHECKSUM_BYTES, CHUNK_HEADER_BYTES, COMPRESSED, Switch, UNCOMPRESSED};
use snap::raw::{Encoder, max_compress_len};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Bytes of one block, as snappy has them.
const BLOCK_BYTES: usize = 64 * 1024;
/// Shorter blocks are not compressed.
const COMPRESS_FROM_BYTES: usize = 64;
/// What begins a stream.
const STREAM_START: &[u8] = b"\xff\x06\x00\x00sNaPpY";

thread_local! {
    /// Every block stands for itself, so that one compressor serves all connections of a thread.
    static SNAPPY: RefCell<Encoder> = RefCell::new(Encoder::new());
}

/// Packs what is written to it into chunks.
pub(crate) struct Output<W> {
    inner: W,
    switch: Switch,
    /// Chunks on their way.
    ahead: Vec<u8>,
    ahead_at: usize,
    block: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    pub(crate) fn new(inner: W, compresses: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let switch = Switch::default();
        switch.begin(compresses);
        Self::waiting(inner, switch)
    }

    /// One that begins when `switch` is on.
    pub(crate) fn waiting(inner: W, switch: Switch) -> Self {
        Self { inner, switch, ahead: STREAM_START.to_vec(), ahead_at: 0, block: Vec::new() }
    }

    /// Writes the chunks that are ahead.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead_at < self.ahead.len() {
            let rest = &self.ahead[self.ahead_at..];
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.ahead_at += count;
        }
        self.ahead.clear();
        self.ahead_at = 0;
        Poll::Ready(Ok(()))
    }

    /// Makes a chunk of what there is, up to a block.
    fn push_chunk(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.block.clear();
        for buf in bufs {
            let room = BLOCK_BYTES - self.block.len();
            self.block.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        let len = self.block.len();
        let start = self.ahead.len();
        self.ahead.resize(start + CHUNK_HEADER_BYTES, 0);
        self.ahead.extend_from_slice(&masked_sum(&self.block).to_le_bytes());
        let from = self.ahead.len();
        let mut kind = UNCOMPRESSED;
        if len >= COMPRESS_FROM_BYTES && self.switch.compresses() {
            self.ahead.resize(from + max_compress_len(len), 0);
            let packed = SNAPPY
                .with_borrow_mut(|snappy| snappy.compress(&self.block, &mut self.ahead[from..]))
                .map_err(io::Error::other)?;
            if packed < len - len / 8 {
                kind = COMPRESSED;
                self.ahead.truncate(from + packed);
            } else {
                self.ahead.truncate(from);
            }
        }
        if kind == UNCOMPRESSED {
            self.ahead.extend_from_slice(&self.block);
        }
        let length = (self.ahead.len() - from + CHECKSUM_BYTES) as u32;
        self.ahead[start] = kind;
        self.ahead[start + 1..start + CHUNK_HEADER_BYTES]
            .copy_from_slice(&length.to_le_bytes()[..3]);
        Ok(len)
    }
}

/// The CRC-32C of the uncompressed data, as the format has it.
fn masked_sum(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Output<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !this.switch.is_on() {
            return Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        }
        ready!(this.poll_ahead(cx))?;
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let taken = this.push_chunk(bufs)?;
        // Taken already: what does not fit now goes with the next write or flush.
        match this.poll_ahead(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.switch.is_on() {
            ready!(this.poll_ahead(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
