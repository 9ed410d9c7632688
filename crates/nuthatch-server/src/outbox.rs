//! The queue of bytes to be written to one connection.
//!
//! Any thread appends under a light lock. Whoever holds the *write token* writes: the connection's
//! writer task, or a thread that has just appended and finds the write token free, which saves a
//! hop.

use crate::buffers;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// An owned chunk is closed at this size, so that growing it stays cheap.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks handed to one vectored write.
const MAX_SLICES: usize = 64;
/// Rounds a direct write makes before it leaves the rest to the writer task.
const DIRECT_ROUNDS: usize = 2;

/// Bytes to write, from `start`.
#[derive(Debug)]
enum Chunk {
    Owned(Vec<u8>, usize),
    Shared(Bytes),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes, start) => &bytes[*start..],
            Self::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Owned(_, start) => *start += count,
            Self::Shared(bytes) => bytes::Buf::advance(bytes, count),
        }
    }

    fn recycle(self) {
        if let Self::Owned(bytes, _) = self {
            buffers::give_write(bytes);
        }
    }
}

/// Chunks taken out of the outbox by whoever holds the write token.
#[derive(Default, Debug)]
pub struct Batch {
    chunks: VecDeque<Chunk>,
}

impl Batch {
    /// True if everything is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The next bytes, as slices for a vectored write; returns how many slices were filled.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, chunk) in out.iter_mut().zip(&self.chunks) {
            *slot = IoSlice::new(chunk.bytes());
            count += 1;
        }
        count
    }

    /// Drops written bytes from the front.
    pub fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.chunks.front_mut() {
            let len = front.bytes().len();
            if written < len {
                front.advance(written);
                return;
            }
            written -= len;
            if let Some(chunk) = self.chunks.pop_front() {
                chunk.recycle();
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    chunks: VecDeque<Chunk>,
    tail: Vec<u8>,
    /// The write token is taken.
    pen_taken: bool,
    closed: bool,
    /// For direct writes; `None` with TLS and after the close.
    socket: Option<Arc<TcpStream>>,
    out_messages: u64,
    out_bytes: u64,
}

/// Outcome of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// Taken; that many bytes are waiting now.
    Pending(usize),
    /// More than `max_pending` would wait: the connection is a slow consumer.
    Overflow,
    /// The connection is closed.
    Closed,
}

/// Counts of one append.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Messages.
    pub messages: u64,
    /// Their headers and bodies, in bytes.
    pub bytes: u64,
}

/// The queue of bytes to be written to one connection.
pub struct Outbox {
    inner: Mutex<Inner>,
    pending: AtomicUsize,
    /// Most bytes that may wait (`max_pending`).
    limit_bytes: AtomicUsize,
    notify: Notify,
}

impl Outbox {
    /// An empty outbox that refuses more than `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            inner: Mutex::default(),
            pending: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(limit_bytes),
            notify: Notify::new(),
        }
    }

    /// Allows direct writes to this socket.
    pub fn set_socket(&self, socket: Option<Arc<TcpStream>>) {
        self.inner.lock().socket = socket;
    }

    /// Changes the bound (configuration reload).
    pub fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Bytes that wait, including those being written.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// The bound of [`Outbox::pending`].
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Messages and bytes sent so far.
    #[must_use]
    pub fn totals(&self) -> Tally {
        let inner = self.inner.lock();
        Tally { messages: inner.out_messages, bytes: inner.out_bytes }
    }

    /// Appends bytes; `bytes` comes back empty, possibly with another allocation.
    pub fn append(&self, bytes: &mut Vec<u8>, tally: Tally) -> Appended {
        let mut inner = self.inner.lock();
        let appended = self.admit(&mut inner, bytes.len(), tally);
        if matches!(appended, Appended::Pending(_)) {
            if inner.tail.is_empty() {
                std::mem::swap(&mut inner.tail, bytes);
            } else {
                inner.tail.extend_from_slice(bytes);
            }
            inner.close_large_tail();
        }
        drop(inner);
        bytes.clear();
        appended
    }

    /// Appends a message whose body is shared, not copied: its line and headers, the body, CRLF.
    pub fn append_shared(&self, line: &[u8], body: Bytes, tally: Tally) -> Appended {
        let mut inner = self.inner.lock();
        let appended = self.admit(&mut inner, line.len() + body.len() + 2, tally);
        if matches!(appended, Appended::Pending(_)) {
            inner.tail.extend_from_slice(line);
            inner.close_tail();
            inner.chunks.push_back(Chunk::Shared(body));
            inner.tail.extend_from_slice(b"\r\n");
        }
        appended
    }

    fn admit(&self, inner: &mut Inner, len: usize, tally: Tally) -> Appended {
        if inner.closed {
            return Appended::Closed;
        }
        let pending = self.pending.load(Ordering::Relaxed) + len;
        if pending > self.limit() {
            return Appended::Overflow;
        }
        self.pending.store(pending, Ordering::Relaxed);
        inner.out_messages += tally.messages;
        inner.out_bytes += tally.bytes;
        Appended::Pending(pending)
    }

    /// Takes the write token and all that waits; `None` if another has the write token or nothing
    /// waits.
    pub fn take_pen(&self) -> Option<Batch> {
        let mut inner = self.inner.lock();
        if inner.pen_taken || inner.is_empty() {
            return None;
        }
        inner.pen_taken = true;
        Some(inner.take())
    }

    /// With the write token: counts written bytes and takes what has come meanwhile. An empty batch
    /// means that the write token was put down.
    pub fn next_batch(&self, written: usize) -> Batch {
        let mut inner = self.inner.lock();
        self.settle(written);
        let batch = inner.take();
        inner.pen_taken = !batch.is_empty();
        batch
    }

    /// With the write token: counts written bytes.
    pub fn count_written(&self, written: usize) {
        let _inner = self.inner.lock();
        self.settle(written);
    }

    /// The lock is held by the caller, so load and store suffice.
    fn settle(&self, written: usize) {
        let pending = self.pending.load(Ordering::Relaxed).saturating_sub(written);
        self.pending.store(pending, Ordering::Relaxed);
    }

    /// Writes from the calling thread what fits the socket now; wakes the writer task for the rest.
    pub fn write_direct(&self) {
        let (socket, mut batch) = {
            let mut inner = self.inner.lock();
            if inner.pen_taken || inner.is_empty() {
                return;
            }
            let Some(socket) = inner.socket.clone() else {
                drop(inner);
                self.notify.notify_one();
                return;
            };
            inner.pen_taken = true;
            (socket, inner.take())
        };
        for _ in 0..DIRECT_ROUNDS {
            match write_some(&socket, &mut batch) {
                Ok(written) => {
                    batch = self.next_batch(written);
                    if batch.is_empty() {
                        return;
                    }
                }
                Err((written, _)) => {
                    self.count_written(written);
                    break;
                }
            }
        }
        self.put_back(batch);
    }

    /// Puts the write token down with bytes still unwritten and wakes the writer task, which will
    /// also meet any error of the socket.
    fn put_back(&self, batch: Batch) {
        let mut inner = self.inner.lock();
        for chunk in batch.chunks.into_iter().rev() {
            inner.chunks.push_front(chunk);
        }
        inner.pen_taken = false;
        drop(inner);
        self.notify.notify_one();
    }

    /// Wakes the writer task.
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    /// Waits until [`Outbox::wake`] was called.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Refuses everything from now on. With `keep`, what waits may still be written.
    pub fn close(&self, keep: bool) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.socket = None;
        if !keep {
            inner.chunks = VecDeque::new();
            inner.tail = Vec::new();
            self.pending.store(0, Ordering::Relaxed);
        }
        drop(inner);
        self.notify.notify_one();
    }

    /// True if [`Outbox::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    fn take(&mut self) -> Batch {
        self.close_tail();
        Batch { chunks: std::mem::take(&mut self.chunks) }
    }

    fn close_large_tail(&mut self) {
        if self.tail.len() >= CHUNK_BYTES {
            self.close_tail();
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(Chunk::Owned(std::mem::take(&mut self.tail), 0));
        }
    }
}

/// Writes as much of the batch as the socket takes now: how much, and the error that ended it.
fn write_some(socket: &TcpStream, batch: &mut Batch) -> Result<usize, (usize, io::Error)> {
    let mut total = 0;
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = batch.slices(&mut slices);
        match socket.try_write_vectored(&slices[..count]) {
            Ok(0) => return Err((total, io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                total += written;
                batch.advance(written);
            }
            Err(error) => return Err((total, error)),
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
