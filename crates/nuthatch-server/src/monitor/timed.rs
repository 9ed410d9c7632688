//! A stream whose peer has to take what is written to it.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Breaks off when nothing could be written for too long.
pub(super) struct Timed<S> {
    inner: S,
    timeout: Duration,
    /// Runs while a write waits for the peer.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, timeout: Duration) -> Self {
        Self { inner, timeout, waiting: None }
    }

    fn look<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let end = Instant::now() + self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        match waiting.as_mut().poll(cx) {
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
        self.look(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.look(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.look(cx, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_not_waited_for_long() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut timed = Timed::new(ours, Duration::from_millis(50));
        timed.write_all(b"12345678").await.unwrap();
        let error = timed.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Who takes something now and then has time.
        let mut some = [0; 8];
        theirs.read_exact(&mut some).await.unwrap();
        let mut timed = Timed::new(timed.inner, Duration::from_secs(10));
        timed.write_all(b"90").await.unwrap();
    }
}
