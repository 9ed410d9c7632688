//! The writing side: protocol text in binary frames.

use super::Owner;
use super::control::Control;
use super::frame::{self, HEADER_BYTES_MAX, Header};
use crate::close_reason::CloseReason;
use crate::random::fill_random;
use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Payload of one frame. Small enough for browsers to hand on early, large enough to cost nothing.
const FRAME_BYTES: usize = 64 * 1024;
/// Shorter payloads are not compressed.
const COMPRESS_FROM_BYTES: usize = 64;
/// Chunks handed to one vectored write, a header included.
const MAX_SLICES: usize = 65;
/// A message ends here; the receiver puts it back (RFC 7692 §7.2.1).
const DEFLATE_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

thread_local! {
    /// Every message stands for itself, so that one compressor serves all connections of a thread.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
}

/// Wraps what is written to it into frames.
///
/// A frame's header promises its length before all of it can be written, so whoever writes must
/// offer the bytes that were not taken again, as the connection's writer does.
pub struct Output<W> {
    inner: W,
    owner: Arc<dyn Owner>,
    control: Arc<Control>,
    compress: bool,
    /// Frames are masked, as those of a client.
    masked: bool,
    /// A header, control frames or a compressed frame on their way.
    ahead: Vec<u8>,
    ahead_at: usize,
    /// Payload that the last header has promised and that is not written yet.
    left: usize,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// The side of a server.
    pub fn new(inner: W, owner: Arc<dyn Owner>, control: Arc<Control>, compress: bool) -> Self {
        Self {
            inner,
            owner,
            control,
            compress,
            masked: false,
            ahead: Vec::with_capacity(HEADER_BYTES_MAX),
            ahead_at: 0,
            left: 0,
        }
    }

    /// The side of a client, whose frames are masked unless the server wants them plain.
    pub fn masked(self, masked: bool) -> Self {
        Self { masked, ..self }
    }

    /// A fresh key, where frames are masked.
    fn key(&self) -> Option<[u8; 4]> {
        self.masked.then(|| {
            let mut key = [0; 4];
            fill_random(&mut key);
            key
        })
    }

    /// Puts control frames ahead.
    fn take_control(&mut self) {
        let mut ahead = std::mem::take(&mut self.ahead);
        self.control.take(&mut ahead, || self.key());
        self.ahead = ahead;
    }

    /// Writes what is ahead of the payload.
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
        self.control.flushed();
        Poll::Ready(Ok(()))
    }

    /// Begins a frame: returns how much of `bufs` is in it, and whether that is done with.
    fn begin(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<(usize, bool)> {
        self.take_control();
        let total = bufs.iter().map(|buf| buf.len()).sum::<usize>().min(FRAME_BYTES);
        if self.compress && total >= COMPRESS_FROM_BYTES {
            let payload = DEFLATE.with_borrow_mut(|compress| deflate(compress, bufs, total))?;
            match self.key() {
                Some(key) => Header::push_masked(&mut self.ahead, &payload, true, key),
                None => {
                    Header::push_binary(&mut self.ahead, payload.len(), true);
                    self.ahead.extend_from_slice(&payload);
                }
            }
            return Ok((total, true));
        }
        if let Some(key) = self.key() {
            Header::push_masked(&mut self.ahead, &gather(bufs, total), false, key);
            return Ok((total, true));
        }
        Header::push_binary(&mut self.ahead, total, false);
        self.left = total;
        Ok((total, false))
    }

    /// Writes the header, if it is still ahead, and payload in one go: how much payload.
    fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let header = self.ahead.len() - self.ahead_at;
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            slices[0] = IoSlice::new(&self.ahead[self.ahead_at..]);
            let first = usize::from(header > 0);
            let mut room = self.left;
            let mut count = first;
            for buf in bufs.iter().take(MAX_SLICES - 1) {
                let part = &buf[..buf.len().min(room)];
                slices[count] = IoSlice::new(part);
                room -= part.len();
                count += 1;
            }
            let inner = Pin::new(&mut self.inner);
            let written = ready!(inner.poll_write_vectored(cx, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if written < header {
                self.ahead_at += written;
                continue;
            }
            self.ahead.clear();
            self.ahead_at = 0;
            let payload = written - header;
            self.left -= payload;
            if payload > 0 {
                return Poll::Ready(Ok(payload));
            }
        }
    }
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
        if this.left == 0 {
            ready!(this.poll_ahead(cx))?;
            if bufs.iter().all(|buf| buf.is_empty()) {
                return Poll::Ready(Ok(0));
            }
            if let (taken, true) = this.begin(bufs)? {
                // Taken already: what does not fit now goes with the next write or flush.
                return match this.poll_ahead(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Ready(Ok(taken)),
                };
            }
        }
        this.poll_payload(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.left == 0 {
            ready!(this.poll_ahead(cx))?;
            this.take_control();
            ready!(this.poll_ahead(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let reason = self.owner.close_reason().unwrap_or(CloseReason::ClientClosed);
        let mut payload = frame::close_code(reason).to_be_bytes().to_vec();
        payload.extend_from_slice(reason.text().as_bytes());
        self.control.close(&payload);
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The first `total` bytes.
fn gather(bufs: &[IoSlice<'_>], total: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(total);
    for buf in bufs {
        out.extend_from_slice(&buf[..buf.len().min(total - out.len())]);
    }
    out
}

/// Compresses the first `total` bytes as a message of its own.
fn deflate(compress: &mut Compress, bufs: &[IoSlice<'_>], total: usize) -> io::Result<Vec<u8>> {
    compress.reset();
    let mut out = Vec::with_capacity(total / 2 + 64);
    let mut left = total;
    for buf in bufs {
        let mut part = &buf[..buf.len().min(left)];
        left -= part.len();
        while !part.is_empty() {
            let before = compress.total_in();
            compress.compress_vec(part, &mut out, FlushCompress::None).map_err(io::Error::other)?;
            part = &part[(compress.total_in() - before) as usize..];
            out.reserve(COMPRESS_FROM_BYTES);
        }
    }
    loop {
        // Full output means that there may be more to come.
        let status =
            compress.compress_vec(&[], &mut out, FlushCompress::Sync).map_err(io::Error::other)?;
        if out.len() < out.capacity() || status == Status::BufError {
            break;
        }
        out.reserve(COMPRESS_FROM_BYTES);
    }
    if out.ends_with(&DEFLATE_TAIL) {
        out.truncate(out.len() - DEFLATE_TAIL.len());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Decompress, FlushDecompress};

    #[test]
    fn a_message_survives_compression() {
        let mut compress = Compress::new(Compression::fast(), false);
        for size in [64, 1000, 65536] {
            let text: Vec<u8> = (0..size).map(|n| (n * n % 251) as u8).collect();
            let (one, two) = text.split_at(size / 3);
            let bufs = [IoSlice::new(one), IoSlice::new(two), IoSlice::new(b"beyond")];
            let mut packed = deflate(&mut compress, &bufs, size).unwrap();
            packed.extend_from_slice(&DEFLATE_TAIL);
            let mut out = Vec::with_capacity(size + 100);
            let mut inflate = Decompress::new(false);
            inflate.decompress_vec(&packed, &mut out, FlushDecompress::None).unwrap();
            assert!(out == text, "{size}");
        }
    }
}
