//! A stream whose peer has to take what is written to it.

use super::slots::Activity;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Who takes less of an answer in a second, on average, is not waited for longer than [`Timed`]'s
/// time-out.
const SLOWEST_BYTES_PER_S: u64 = 64 * 1024;

/// Breaks off when what was written has not been taken in time: the time-out, and a second more for
/// each [`SLOWEST_BYTES_PER_S`] that were taken.
pub(super) struct Timed<S> {
    inner: S,
    timeout: Duration,
    activity: Arc<Activity>,
    /// Runs from the first write that has to wait until all is written.
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Instant,
    taken_bytes: u64,
    sleep: Pin<Box<Sleep>>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, timeout: Duration, activity: Arc<Activity>) -> Self {
        Self { inner, timeout, activity, waiting: None }
    }

    /// Counts what was taken, or waits for as long as the peer may take.
    fn look<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
        taken_bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = done {
            if let (Some(waiting), Ok(done)) = (&mut self.waiting, &done) {
                waiting.taken_bytes += taken_bytes(done) as u64;
            }
            return Poll::Ready(done);
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: Instant::now(),
            taken_bytes: 0,
            sleep: Box::pin(tokio::time::sleep(self.timeout)),
        });
        let more = Duration::from_millis(waiting.taken_bytes * 1000 / SLOWEST_BYTES_PER_S);
        waiting.sleep.as_mut().reset(waiting.since + self.timeout + more);
        match waiting.sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        text: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, text);
        self.look(cx, written, |bytes| *bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        let flushed = self.look(cx, flushed, |()| 0);
        if flushed.is_ready() {
            self.waiting = None;
            self.activity.sent();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.look(cx, ended, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn timed(inner: tokio::io::DuplexStream, timeout: Duration) -> Timed<tokio::io::DuplexStream> {
        Timed::new(inner, timeout, Arc::default())
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_not_waited_for_long() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut stream = timed(ours, Duration::from_millis(50));
        stream.write_all(b"12345678").await.unwrap();
        let error = stream.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Who takes something has time.
        let mut some = [0; 8];
        theirs.read_exact(&mut some).await.unwrap();
        let mut stream = timed(stream.inner, Duration::from_secs(10));
        stream.write_all(b"90").await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_takes_little_at_a_time_is_not_waited_for_either() {
        // As much in the same time, of which it takes 1,600 or 3 million bytes in a second.
        for (piece, is_waited_for) in [(8, false), (64 * 1024, true)] {
            let (ours, mut theirs) = tokio::io::duplex(piece);
            let reading = tokio::spawn(async move {
                let mut some = vec![0; piece];
                while theirs.read_exact(&mut some).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            let mut stream = timed(ours, Duration::from_millis(100));
            let written = stream.write_all(&vec![0; 100 * piece]).await;
            assert_eq!(written.is_ok(), is_waited_for, "{written:?}");
            drop(stream);
            reading.await.unwrap();
        }
    }
}
