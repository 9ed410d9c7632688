//! A consumer's view of a stream: committed messages by sequence, without their payloads.

use nuthatch_log::{Seq, Timestamp};
use nuthatch_protocol::subject;

/// Metadata of a message, known without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageMeta {
    /// Dense id of its subject inside the stream.
    pub subject: u32,
    /// Bytes as JetStream counts them.
    pub bytes: u32,
    /// When it was stored, to the millisecond (rounded down).
    pub timestamp: Timestamp,
}

/// The committed messages of one stream, as its consumers see them.
///
/// Everything is in memory: no call reads the log. Ids of subjects may be reused after a subject
/// has vanished; [`MessageIndex::subject_generation`] tells.
pub trait MessageIndex {
    /// First live message, or `last + 1` if there is none.
    fn first(&self) -> Seq;
    /// Last committed sequence (live or not); 0 before the first.
    fn last(&self) -> Seq;
    /// A live, committed message.
    fn get(&self, seq: Seq) -> Option<MessageMeta>;
    /// The first live, committed message at or after `from`.
    fn next_live(&self, from: Seq) -> Option<Seq>;
    /// Live, committed messages after `after`. O(1) where nothing was deleted in the middle.
    fn live_after(&self, after: Seq) -> u64;
    /// First live message stored at or after `at`, or `last + 1`.
    fn seq_at(&self, at: Timestamp) -> Seq;
    /// Subject text.
    fn subject(&self, id: u32) -> &[u8];
    /// Changes whenever `id` is given to another subject.
    fn subject_generation(&self, id: u32) -> u32;
    /// Calls `visit(subject id, live count, first seq lower bound, last seq)` for every subject
    /// that matches the pattern.
    fn for_each_subject(&self, pattern: &[u8], visit: &mut dyn FnMut(u32, u64, Seq, Seq));
    /// [`MessageIndex::for_each_subject`] for subjects that match any of several patterns, each once.
    fn for_each_subject_of(
        &self,
        patterns: &[Box<[u8]>],
        visit: &mut dyn FnMut(u32, u64, Seq, Seq),
    ) {
        for (at, pattern) in patterns.iter().enumerate() {
            self.for_each_subject(pattern, &mut |id, count, first, last| {
                let text = self.subject(id);
                if !patterns[..at].iter().any(|earlier| subject::matches(earlier, text)) {
                    visit(id, count, first, last);
                }
            });
        }
    }
    /// Live messages with the sequence and subject of removed ones since `cursor`, newest removals
    /// kept in a bounded journal: `None` if the journal no longer reaches back to `cursor`.
    fn removed_since(&self, cursor: u64) -> Option<Box<dyn Iterator<Item = (Seq, u32)> + '_>>;
    /// Position to pass to [`MessageIndex::removed_since`] later.
    fn removal_cursor(&self) -> u64;
}
