//! Reading bytes off a connection's socket, without a copy where none is needed.

use crate::buffers::{self, READ_BUFFER_BYTES};
use crate::close_reason::CloseReason;
use bytes::{Bytes, BytesMut};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Messages above this size up to [`AHEAD_MESSAGE_MAX_BYTES`] are read ahead: with the one under way
/// come others behind it. What is behind the last whole one is copied into the next buffer, so there
/// should be several. Still larger ones are read one by one, up to their last byte.
const AHEAD_MESSAGE_MIN_BYTES: usize = 16 * 1024;
const AHEAD_MESSAGE_MAX_BYTES: usize = 256 * 1024;
/// A buffer for reading ahead holds this many messages of the size of the one under way, and at most
/// so many bytes.
const AHEAD_MESSAGES: usize = 4;
const AHEAD_BYTES: usize = 512 * 1024;

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
        if rest.capacity() < need || rest.capacity() == rest.len() {
            rest.reserve(room(rest.len(), need) - rest.len());
        }
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

/// Back to a buffer that can grow; without a copy, since it is not shared.
pub(super) fn into_mut(data: Bytes) -> BytesMut {
    data.try_into_mut().unwrap_or_else(|data| BytesMut::from(&data[..]))
}

/// The bytes behind the handled operations, with room for the operation of `need` bytes that they
/// begin, so that they are copied this once.
pub(super) fn keep_rest(data: &Bytes, consumed: usize, need: usize) -> BytesMut {
    let left = &data[consumed..];
    if left.is_empty() {
        return BytesMut::new();
    }
    let mut rest = BytesMut::with_capacity(room(left.len(), need));
    rest.extend_from_slice(left);
    rest
}

/// Size of a buffer that holds `left` bytes already, of an operation of `need` bytes; always more
/// than `left`.
fn room(left: usize, need: usize) -> usize {
    match need {
        0..AHEAD_MESSAGE_MIN_BYTES => left + READ_BUFFER_BYTES,
        AHEAD_MESSAGE_MIN_BYTES..=AHEAD_MESSAGE_MAX_BYTES => {
            (need * AHEAD_MESSAGES).clamp(READ_BUFFER_BYTES, AHEAD_BYTES).max(left + 1)
        }
        // More would have to be copied once again.
        _ => need.max(left + 1),
    }
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

/// Reads and drops, so that the peer gets to see why it was closed. Returns whether there was anything.
pub(super) async fn drain<R: AsyncRead + Unpin>(input: &mut R) -> bool {
    let deadline = tokio::time::Instant::now() + DRAIN;
    let mut left = DRAIN_BYTES;
    let mut buffer = vec![0; 16 * 1024];
    while left > 0 {
        match tokio::time::timeout_at(deadline, input.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
            _ => break,
        }
    }
    left < DRAIN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_room_for_the_operation_and_never_much_more_than_it_needs() {
        for need in [100, 16_383, 16_384, 65_700, 262_144, 262_145, 8 << 20] {
            for left in [1, 99, need / 2, need - 1].into_iter().filter(|left| *left < need) {
                let room = room(left, need);
                assert!(room > left && room >= need, "{left} of {need}: {room}");
                assert!(room <= need.max(left + READ_BUFFER_BYTES).max(AHEAD_BYTES), "{room}");
                let data = Bytes::from(vec![7; left + 5]);
                let rest = keep_rest(&data, 5, need);
                assert_eq!((rest.len(), rest.capacity() >= need), (left, true));
            }
        }
        assert_eq!(keep_rest(&Bytes::from_static(b"PING\r\n"), 6, 1).capacity(), 0);
    }

    #[tokio::test]
    async fn messages_behind_the_one_under_way_come_with_it() {
        let mut input = std::io::Cursor::new(vec![9; 600_000]);
        let mut rest = keep_rest(&Bytes::from(vec![9; 1000]), 0, 65_000);
        let data = read_some(&mut input, &mut rest, 65_000).await.unwrap().unwrap();
        assert_eq!(data.len(), 260_000);
        // A still larger one comes alone.
        let mut rest = keep_rest(&Bytes::from(vec![9; 1000]), 0, 300_000);
        let data = read_some(&mut input, &mut rest, 300_000).await.unwrap().unwrap();
        assert_eq!(data.len(), 300_000);
    }
}
