//! Consumers that have caught up with their stream, and which new messages wake them.
//!
//! A consumer with one literal filter is woken by its subject only, so that thousands of them on one
//! stream cost nothing while others' messages pass. Everybody else is woken by any message.

use crate::stream::Stream;
use nuthatch_log::Seq;
use nuthatch_protocol::js::ConsumerConfig;
use nuthatch_protocol::subject;
use rustc_hash::FxHashMap;

/// With fewer literal filters than this, waking them all is cheaper than looking subjects up.
const WORTH_LOOKING_UP: usize = 4;

/// The caught-up consumers of one stream, by index. Entries may be stale.
#[derive(Default)]
pub(super) struct CaughtUp {
    by_any: Vec<u32>,
    by_subject: FxHashMap<Box<[u8]>, Vec<u32>>,
}

/// The only subject that a consumer wants, if it is literal.
fn literal_filter(config: &ConsumerConfig) -> Option<&[u8]> {
    let filter = match config.filter_subjects.as_slice() {
        [] => config.filter_subject.as_bytes(),
        [only] => only.as_bytes(),
        _ => return None,
    };
    (!filter.is_empty() && !subject::has_wildcard(filter)).then_some(filter)
}

impl CaughtUp {
    pub(super) fn push(&mut self, index: u32, config: &ConsumerConfig) {
        let Some(filter) = literal_filter(config) else { return self.by_any.push(index) };
        match self.by_subject.get_mut(filter) {
            Some(waiting) => waiting.push(index),
            None => {
                self.by_subject.insert(filter.into(), vec![index]);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_any.is_empty() && self.by_subject.is_empty()
    }

    /// Takes those whom the messages after `seen` concern.
    pub(super) fn wake(&mut self, stream: &Stream, seen: Seq) -> Vec<u32> {
        let mut woken = std::mem::take(&mut self.by_any);
        if self.by_subject.len() < WORTH_LOOKING_UP {
            woken.extend(self.by_subject.drain().flat_map(|(_, waiting)| waiting));
            return woken;
        }
        let mut previous = None;
        stream.contents().for_each_committed_after(seen, &mut |id| {
            if previous != Some(id) {
                previous = Some(id);
                woken.extend(
                    self.by_subject
                        .remove(stream.contents().subject_name(id))
                        .into_iter()
                        .flatten(),
                );
            }
        });
        woken
    }
}
