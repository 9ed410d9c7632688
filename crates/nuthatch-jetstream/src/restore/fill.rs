//! Feeds an archive's contents into the engine, a batch at a time.

use crate::service::JetStream;
use nuthatch_archive::{ArchiveError, Item};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerSnapshot, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::shares::Share;
use nuthatch_streams::Op;
use nuthatch_streams::op::Replica;
use tokio::runtime::Handle;

/// Messages in one batch.
const BATCH_MESSAGES_MAX: usize = 1024;
/// Bytes in one batch, about.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Memory of a message beside its bytes.
const MESSAGE_BASE_BYTES: usize = 128;
/// Sequences from the first message to the last. The table of a stream's messages has room for what
/// is missing in between too: so many take 256 MiB if most are.
const SPAN_MAX: u64 = 1 << 34;

/// Bytes that all consumers of an archive may take, as JSON: they are kept until the end, and a small
/// upload can be unpacked into a large one.
const CONSUMERS_BYTES_MAX: usize = 256 << 20;

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    /// The archive, or the upload of it.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The stream is refused.
    #[error(transparent)]
    Api(#[from] JsError),
}

/// Gathers batches and hands them over.
pub(super) struct Filler<'a> {
    service: &'a JetStream,
    engine: LogId,
    id: StreamId,
    handle: &'a Handle,
    batch: Vec<Replica>,
    batch_bytes: usize,
    /// Messages of this or earlier batches that were deleted later.
    removed: Vec<u64>,
    consumers: Vec<ConsumerSnapshot>,
    /// Their memory, see [`CONSUMERS_BYTES_MAX`].
    consumer_bytes: usize,
    /// The same as a share of what all transfers may keep.
    share: &'a mut Share,
    /// The first message; 0: none yet.
    first: u64,
    /// How far the archive has come.
    last: u64,
    /// How far the engine has come.
    stored: u64,
}

impl<'a> Filler<'a> {
    pub(super) fn new(
        service: &'a JetStream,
        engine: LogId,
        id: StreamId,
        handle: &'a Handle,
        share: &'a mut Share,
    ) -> Self {
        Self {
            service,
            engine,
            id,
            handle,
            batch: Vec::new(),
            batch_bytes: 0,
            removed: Vec::new(),
            consumers: Vec::new(),
            consumer_bytes: 0,
            share,
            first: 0,
            last: 0,
            stored: 0,
        }
    }

    /// Takes an item of the archive.
    pub(super) fn take(&mut self, item: Item<'_>) -> Result<(), RestoreError> {
        match item {
            Item::Consumer(consumer) => self.keep(*consumer)?,
            Item::Message(message) => {
                if self.first == 0 {
                    self.first = message.seq;
                }
                self.advance(message.seq)?;
                let bytes = message.subject.len() + message.headers.len() + message.body.len();
                self.batch_bytes += bytes + MESSAGE_BASE_BYTES;
                self.batch.push(Replica {
                    seq: message.seq,
                    time: Time(message.time_ns),
                    subject: message.subject.to_vec(),
                    headers: message.headers.to_vec(),
                    body: message.body.to_vec(),
                });
            }
            Item::Removed { first, last } => {
                self.remove(first, last.min(self.last))?;
                if last > self.last {
                    self.advance(last)?;
                }
            }
        }
        let is_full = self.batch.len() >= BATCH_MESSAGES_MAX
            || self.removed.len() >= BATCH_MESSAGES_MAX
            || self.batch_bytes >= BATCH_BYTES_MAX;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Notes that sequences are gone; what an archive says may be very many, so they go in parts.
    fn remove(&mut self, first: u64, last: u64) -> Result<(), RestoreError> {
        let mut next = first;
        while next <= last {
            let room = (BATCH_MESSAGES_MAX - self.removed.len()) as u64;
            let end = last.min(next.saturating_add(room - 1));
            self.removed.extend(next..=end);
            next = end + 1;
            if self.removed.len() >= BATCH_MESSAGES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, consumer: ConsumerSnapshot) -> Result<(), RestoreError> {
        let size = serde_json::to_vec(&consumer).map_or(CONSUMERS_BYTES_MAX, |json| json.len());
        self.consumer_bytes = self.consumer_bytes.saturating_add(size);
        if self.consumer_bytes > CONSUMERS_BYTES_MAX {
            let text = format!("its consumers take more than {CONSUMERS_BYTES_MAX} bytes");
            return Err(ArchiveError::Unsuitable(text).into());
        }
        if self.share.grow(size).is_err() {
            let text = "other snapshots and restores keep too many consumers: try again";
            return Err(JsError::STREAM_RESTORE.with_err(text).into());
        }
        self.consumers.push(consumer);
        Ok(())
    }

    fn advance(&mut self, seq: u64) -> Result<(), RestoreError> {
        self.last = seq;
        if self.first > 0 && seq - self.first > SPAN_MAX {
            let text = format!(
                "sequences from {} to {seq} are further apart than {SPAN_MAX}: this much is not \
                 kept in one stream",
                self.first
            );
            return Err(ArchiveError::Unsuitable(text).into());
        }
        Ok(())
    }

    /// Everything has come; returns the consumers.
    pub(super) fn end(mut self) -> Result<Vec<ConsumerSnapshot>, RestoreError> {
        self.flush()?;
        Ok(self.consumers)
    }

    fn flush(&mut self) -> Result<(), RestoreError> {
        self.batch_bytes = 0;
        if self.last > self.stored {
            let copies = std::mem::take(&mut self.batch);
            self.run(Op::Mirror { id: self.id, copies, gap_to: self.last })?;
            self.stored = self.last;
        }
        if !self.removed.is_empty() {
            let mut seqs = std::mem::take(&mut self.removed);
            seqs.sort_unstable();
            seqs.dedup();
            self.run(Op::RemoveRestored { id: self.id, seqs })?;
        }
        Ok(())
    }

    fn run(&self, op: Op) -> Result<(), JsError> {
        self.handle.block_on(self.service.run(self.engine, op)).map(drop)
    }
}
