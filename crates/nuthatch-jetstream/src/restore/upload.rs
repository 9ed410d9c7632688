//! The chunks of an upload as a stream of bytes, with a reply for each once it has been used.

use crate::transfers::Transfers;
use nuthatch_archive::ArchiveError;
use nuthatch_streams::{AccountId, Message};
use std::any::Any;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Chunks that may wait. Who waits for the replies has one on its way.
const CHUNKS_MAX: usize = 1024;
/// Bytes of all of them.
const CHUNKS_BYTES_MAX: usize = 16 << 20;
/// Without a chunk for so long the client is taken to be gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// One message of the upload; an empty body is its end.
struct Chunk {
    reply: Vec<u8>,
    body: Vec<u8>,
}

/// An upload.
pub(super) struct Upload {
    transfers: Arc<Transfers>,
    account: AccountId,
    handle: Handle,
    chunks: mpsc::Receiver<Chunk>,
    queued_bytes: Arc<AtomicUsize>,
    /// The chunk that is being read.
    current: Chunk,
    at: usize,
    is_ended: bool,
    received: u64,
    /// Dropped: no more chunks.
    _subscribed: Box<dyn Any + Send + Sync>,
}

impl Upload {
    /// Takes chunks on this subject from now on; `None` if the account is gone.
    pub(super) fn open(
        transfers: Arc<Transfers>,
        account: AccountId,
        subject: &str,
        handle: Handle,
    ) -> Option<Self> {
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let queued = queued_bytes.clone();
        let take = Box::new(move |message: &Message<'_>| {
            let bytes = message.body.len();
            if queued.fetch_add(bytes, Ordering::AcqRel) + bytes > CHUNKS_BYTES_MAX {
                // Who sends this much without waiting loses a chunk, and its checksum says so.
                queued.fetch_sub(bytes, Ordering::AcqRel);
                return;
            }
            let chunk = Chunk { reply: message.reply.to_vec(), body: message.body.to_vec() };
            if sender.try_send(chunk).is_err() {
                queued.fetch_sub(bytes, Ordering::AcqRel);
            }
        });
        let subscribed = transfers.core.subscribe(account, subject, take)?;
        Some(Self {
            transfers,
            account,
            handle,
            chunks,
            queued_bytes,
            current: Chunk { reply: Vec::new(), body: Vec::new() },
            at: 0,
            is_ended: false,
            received: 0,
            _subscribed: subscribed,
        })
    }

    /// Bytes so far.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Waits for the next chunk; `false`: that was the end. The chunk before is confirmed first.
    fn advance(&mut self) -> io::Result<bool> {
        if self.is_ended {
            return Ok(false);
        }
        let used = std::mem::take(&mut self.current.reply);
        if !used.is_empty() {
            self.transfers.core.answer(self.account, &used, b"", b"");
        }
        let chunk = self.wait()?;
        self.queued_bytes.fetch_sub(chunk.body.len(), Ordering::AcqRel);
        self.received += chunk.body.len() as u64;
        self.is_ended = chunk.body.is_empty();
        (self.current, self.at) = (chunk, 0);
        if self.current.reply.is_empty() {
            return Err(failed("every chunk needs a reply subject"));
        }
        Ok(!self.is_ended)
    }

    /// The next chunk, which does not come when the server goes down.
    fn wait(&mut self) -> io::Result<Chunk> {
        let mut stopping = self.transfers.stopping();
        // A runtime that goes down has no timers any more: it must not be asked for one.
        if *stopping.borrow() {
            return Err(failed("the server goes down"));
        }
        let chunks = &mut self.chunks;
        self.handle.block_on(async {
            let stopped = async {
                // An error means that there is no receiver any more.
                let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
            };
            tokio::select! {
                biased;
                () = stopped => Err(failed("the server goes down")),
                next = timeout(STALL_TIMEOUT, chunks.recv()) => match next {
                    Ok(Some(chunk)) => Ok(chunk),
                    _ => Err(failed("the upload is stalled: no chunk for 10 s")),
                },
            }
        })
    }

    /// Takes what follows the archive, up to the end of the upload.
    pub(super) fn drain(&mut self) -> Result<(), ArchiveError> {
        while self.advance()? {}
        Ok(())
    }

    /// Answers the chunk that waits for it, which is the last one if all went well; else the next
    /// one, if it comes.
    pub(super) fn answer(&mut self, body: &[u8]) {
        if self.current.reply.is_empty() && self.advance().is_err() {
            return;
        }
        let reply = std::mem::take(&mut self.current.reply);
        self.transfers.core.answer(self.account, &reply, b"", body);
    }
}

fn failed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl Read for Upload {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.current.body.len() && !self.advance()? {
            return Ok(0);
        }
        let left = &self.current.body[self.at..];
        let len = left.len().min(out.len());
        out[..len].copy_from_slice(&left[..len]);
        self.at += len;
        Ok(len)
    }
}
