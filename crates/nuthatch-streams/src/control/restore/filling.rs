//! What was read of a backup and is not stored yet.

use super::Item;
use crate::op::{Op, Replica};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::ConsumerSnapshot;
use nuthatch_protocol::jserror::JsError;

/// What is stored in one go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Messages in one part.
    pub messages_max: usize,
    /// Bytes in one part, about.
    pub bytes_max: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self { messages_max: 1024, bytes_max: 1 << 20 }
    }
}

/// Memory of a message beside its bytes.
const MESSAGE_BASE_BYTES: usize = 128;
/// Sequences from the first message to the last. The table of a stream's messages has room for what
/// is missing in between too: so many take 256 MiB if most are.
const SPAN_MAX: u64 = 1 << 34;

/// Gathers parts that are stored in one go.
#[derive(Debug, Default)]
pub(super) struct Filling {
    parts: Parts,
    part: Vec<Replica>,
    part_bytes: usize,
    /// Messages of this or earlier parts that were deleted later.
    removed: Vec<u64>,
    /// Sequences, first and last, that are still to be noted as such: they may be very many.
    to_remove: Option<(u64, u64)>,
    consumers: Vec<ConsumerSnapshot>,
    /// The first message; 0: none yet.
    first: u64,
    /// How far the backup was read.
    last: u64,
    /// How far it is stored.
    stored: u64,
    is_complete: bool,
}

impl Filling {
    pub(super) fn new(parts: Parts) -> Self {
        assert!(parts.messages_max > 0, "a part holds something");
        Self { parts, ..Self::default() }
    }

    /// Everything was read.
    pub(super) const fn complete(&mut self) {
        self.is_complete = true;
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn take_consumers(&mut self) -> Vec<ConsumerSnapshot> {
        std::mem::take(&mut self.consumers)
    }

    /// Takes a part of the backup.
    pub(super) fn take(&mut self, item: Item) -> Result<(), JsError> {
        match item {
            Item::Consumer(consumer) => self.consumers.push(*consumer),
            Item::Message(message) => {
                if self.first == 0 {
                    self.first = message.seq;
                }
                self.advance(message.seq)?;
                let bytes = message.subject.len() + message.headers.len() + message.body.len();
                self.part_bytes += bytes + MESSAGE_BASE_BYTES;
                self.part.push(message);
            }
            Item::Removed { first, last } => {
                if first <= last.min(self.last) {
                    self.to_remove = Some((first, last.min(self.last)));
                }
                if last > self.last {
                    self.advance(last)?;
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, seq: u64) -> Result<(), JsError> {
        self.last = seq;
        if self.first > 0 && seq.saturating_sub(self.first) > SPAN_MAX {
            let text = format!(
                "sequences from {} to {seq} are further apart than {SPAN_MAX}: this much is not \
                 kept in one stream",
                self.first
            );
            return Err(JsError::STREAM_RESTORE.with_err(text));
        }
        Ok(())
    }

    /// What is to be stored now, if there is enough of it: messages first, then what of them is gone.
    pub(super) fn store(&mut self, id: StreamId) -> Option<Op> {
        self.note_removed();
        let is_full = self.part.len() >= self.parts.messages_max
            || self.removed.len() >= self.parts.messages_max
            || self.part_bytes >= self.parts.bytes_max;
        if !is_full && !self.is_complete {
            return None;
        }
        if self.last > self.stored {
            (self.stored, self.part_bytes) = (self.last, 0);
            let copies = std::mem::take(&mut self.part);
            return Some(Op::Mirror { id, copies, gap_to: self.last });
        }
        if self.removed.is_empty() {
            return None;
        }
        let mut seqs = std::mem::take(&mut self.removed);
        seqs.sort_unstable();
        seqs.dedup();
        Some(Op::RemoveRestored { id, seqs })
    }

    /// Lists sequences that are gone, as many as a part may have.
    fn note_removed(&mut self) {
        let Some((first, last)) = self.to_remove.take() else { return };
        let room = self.parts.messages_max.saturating_sub(self.removed.len()) as u64;
        if room == 0 {
            self.to_remove = Some((first, last));
            return;
        }
        let end = last.min(first.saturating_add(room - 1));
        self.removed.extend(first..=end);
        self.to_remove = (end < last).then_some((end + 1, last));
    }
}
