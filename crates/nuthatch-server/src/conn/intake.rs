//! Reading bytes off a connection's socket, without a copy where none is needed.

use super::CloseReason;
use crate::buffers::{self, READ_BUFFER_BYTES};
use bytes::{Bytes, BytesMut};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// After an error that closes, input is read and dropped for at most so long and so many bytes, so
/// that the error text is not lost in a reset.
const DRAIN: Duration = Duration::from_millis(500);
const DRAIN_BYTES: usize = 8 * 1024 * 1024;

/// Reads once. With nothing left from before into a pooled buffer, so that a connection that waits
/// owns none; else behind what is left.
pub(super) async fn read_some<R: AsyncRead + Unpin>(
    input: &mut R,
    rest: &mut BytesMut,
    need: usize,
) -> io::Result<Option<Bytes>> {
    if rest.is_empty() && need <= READ_BUFFER_BYTES {
        return poll_fn(|cx| {
            let mut buffer = buffers::take_read();
            let polled = poll_read(Pin::new(&mut *input), cx, &mut buffer);
            let data = buffer.split().freeze();
            buffers::give_read(buffer);
            polled.map_ok(|count| (count > 0).then_some(data))
        })
        .await;
    }
    // The buffer is not handed out before all is there: each round would copy what came so far.
    loop {
        // For a large message exactly what is missing: more would copy it all once again.
        let missing = need.saturating_sub(rest.len());
        rest.reserve(if need > READ_BUFFER_BYTES { missing } else { READ_BUFFER_BYTES });
        let count = poll_fn(|cx| poll_read(Pin::new(&mut *input), cx, rest)).await?;
        if count == 0 {
            return Ok(None);
        }
        if rest.len() >= need {
            return Ok(Some(rest.split().freeze()));
        }
    }
}

/// Reads into the spare capacity of `buffer`.
fn poll_read<R: AsyncRead>(
    input: Pin<&mut R>,
    cx: &mut std::task::Context<'_>,
    buffer: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut target = ReadBuf::uninit(buffer.spare_capacity_mut());
    let polled = input.poll_read(cx, &mut target);
    let count = target.filled().len();
    match polled {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Ready(Ok(())) => {
            // SAFETY: `count` bytes of the spare capacity have been filled through `target`.
            unsafe { buffer.set_len(buffer.len() + count) };
            Poll::Ready(Ok(count))
        }
    }
}

/// Back to a buffer that can grow; without a copy, since nobody else has a share.
pub(super) fn into_mut(data: Bytes) -> BytesMut {
    data.try_into_mut().unwrap_or_else(|data| BytesMut::from(&data[..]))
}

/// What is left behind the handled operations.
pub(super) fn keep_rest(data: &Bytes, consumed: usize) -> BytesMut {
    if consumed == data.len() { BytesMut::new() } else { BytesMut::from(&data[consumed..]) }
}

/// Why a connection ends whose socket says this.
pub(super) fn read_error(error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => CloseReason::ClientClosed,
        _ => CloseReason::ReadError,
    }
}

/// Reads and drops, so that the peer gets to see why it was closed.
pub(super) async fn drain<R: AsyncRead + Unpin>(input: &mut R) {
    let deadline = tokio::time::Instant::now() + DRAIN;
    let mut left = DRAIN_BYTES;
    let mut buffer = vec![0; 16 * 1024];
    while left > 0 {
        match tokio::time::timeout_at(deadline, input.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
            _ => return,
        }
    }
}
