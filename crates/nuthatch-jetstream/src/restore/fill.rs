//! What an archive holds, as a restore takes it.

use nuthatch_archive::{ArchiveError, Item as Archived};
use nuthatch_protocol::js::{ConsumerSnapshot, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::shares::Share;
use nuthatch_streams::control::restore::Item;
use nuthatch_streams::op::Replica;

/// Bytes that all consumers of an archive may take, as JSON: they are kept until the end, and a small
/// upload can be unpacked into a large one.
const CONSUMERS_BYTES_MAX: usize = 256 << 20;

/// Why an archive is not read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The archive, or the upload of it.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Its contents.
    #[error(transparent)]
    Refused(#[from] JsError),
    /// The restore has ended.
    #[error("the restore is over")]
    Over,
}

impl From<ReadError> for JsError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Refused(error) => error,
            other => Self::STREAM_RESTORE.with_err(other),
        }
    }
}

/// The memory that the consumers of an archive take until its end.
pub(super) struct ConsumerRoom {
    bytes: usize,
    /// The same as a share of what all transfers may keep.
    share: Share,
}

impl ConsumerRoom {
    pub(super) const fn new(share: Share) -> Self {
        Self { bytes: 0, share }
    }

    /// An item of the archive, of its own.
    pub(super) fn take(&mut self, item: Archived<'_>) -> Result<Item, ReadError> {
        Ok(match item {
            Archived::Consumer(consumer) => {
                self.keep(&consumer)?;
                Item::Consumer(consumer)
            }
            Archived::Message(message) => Item::Message(Replica {
                seq: message.seq,
                time: Time(message.time_ns),
                subject: message.subject.to_vec(),
                headers: message.headers.to_vec(),
                body: message.body.to_vec(),
            }),
            Archived::Removed { first, last } => Item::Removed { first, last },
        })
    }

    fn keep(&mut self, consumer: &ConsumerSnapshot) -> Result<(), ReadError> {
        let size = serde_json::to_vec(consumer).map_or(CONSUMERS_BYTES_MAX, |json| json.len());
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > CONSUMERS_BYTES_MAX {
            let text = format!("its consumers take more than {CONSUMERS_BYTES_MAX} bytes");
            return Err(ArchiveError::Unsuitable(text).into());
        }
        if self.share.grow(size).is_err() {
            let text = "other snapshots and restores keep too many consumers: try again";
            return Err(JsError::STREAM_RESTORE.with_err(text).into());
        }
        Ok(())
    }
}
