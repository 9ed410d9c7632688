//! A consumer's view of a stream's messages: [`MessageIndex`] over the committed ones.

use super::Contents;
use crate::index::{MessageIndex, MessageMeta};
use nuthatch_log::{Seq, Timestamp};
use rustc_hash::FxHashMap;

/// How one subject's committed messages differ from its assigned ones.
#[derive(Clone, Copy, Default)]
pub(in crate::stream) struct Difference {
    /// Doomed messages that readers still see, less messages that they do not see yet.
    count: i64,
    /// The last message that readers see, as far as the difference knows it.
    last: u64,
}

/// The same for the subjects that differ.
pub(in crate::stream) type Differences = FxHashMap<u32, Difference>;

impl MessageIndex for Contents {
    fn first(&self) -> Seq {
        Seq(self.messages.first().min(self.commits.committed().last_seq + 1))
    }

    fn last(&self) -> Seq {
        Seq(self.commits.committed().last_seq)
    }

    #[inline]
    fn get(&self, seq: Seq) -> Option<MessageMeta> {
        if seq.0 > self.commits.committed().last_seq {
            return None;
        }
        let entry = self.messages.get(seq.0)?;
        let bytes = self.counted_bytes(&entry);
        Some(MessageMeta {
            subject: entry.subject,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            timestamp: entry.timestamp,
        })
    }

    #[inline]
    fn next_live(&self, from: Seq) -> Option<Seq> {
        self.messages
            .next_live(from.0)
            .filter(|&seq| seq <= self.commits.committed().last_seq)
            .map(Seq)
    }

    fn live_after(&self, after: Seq) -> u64 {
        self.messages.live_between(after.0 + 1, self.commits.committed().last_seq)
    }

    fn seq_at(&self, at: Timestamp) -> Seq {
        let last = self.commits.committed().last_seq;
        Seq(self.messages.first_at(at).filter(|&seq| seq <= last).unwrap_or(last + 1))
    }

    #[inline]
    fn subject(&self, id: u32) -> &[u8] {
        self.subjects.name(id)
    }

    fn subject_generation(&self, id: u32) -> u32 {
        self.subjects.generation(id)
    }

    fn for_each_subject(&self, pattern: &[u8], visit: &mut dyn FnMut(u32, u64, Seq, Seq)) {
        self.visit_subjects(std::iter::once(pattern), visit);
    }

    fn for_each_subject_of(
        &self,
        patterns: &[Box<[u8]>],
        visit: &mut dyn FnMut(u32, u64, Seq, Seq),
    ) {
        self.visit_subjects(patterns.iter().map(|pattern| &**pattern), visit);
    }

    fn removed_since(&self, cursor: u64) -> Option<Box<dyn Iterator<Item = (Seq, u32)> + '_>> {
        Some(Box::new(self.journal.since(cursor)?))
    }

    fn removal_cursor(&self) -> u64 {
        self.journal.cursor()
    }
}

impl Contents {
    /// Visits the subjects that match any of the patterns, each once: patterns of which none lies within another may
    /// still have subjects in common (`a.*.x` and `a.b.*`). What is in flight is looked at once, however many patterns
    /// there are.
    fn visit_subjects<'a>(
        &self,
        patterns: impl Iterator<Item = &'a [u8]>,
        visit: &mut dyn FnMut(u32, u64, Seq, Seq),
    ) {
        let differences = self.differences();
        let (mut seen, mut several) = (Vec::new(), false);
        for pattern in patterns {
            several |= !seen.is_empty();
            self.count_matching(pattern, &differences, &mut seen);
        }
        if several {
            seen.sort_unstable();
            seen.dedup();
        }
        let mut unsure = FxHashMap::default();
        let known = |id| {
            let last = self.subjects.last_known(id)?;
            let doomed = differences.get(&id).map_or(0, |difference| difference.last);
            (last <= self.commits.committed().last_seq && doomed <= last).then_some(last)
        };
        unsure.extend(seen.iter().filter(|(id, _)| known(*id).is_none()).map(|(id, _)| (*id, 0)));
        self.find_lasts(&mut unsure, Seq(self.commits.committed().last_seq));
        for (id, count) in seen {
            let last = known(id).or_else(|| unsure.get(&id).copied()).unwrap_or_default();
            visit(id, count, Seq(self.subjects.first_bound(id)), Seq(last));
        }
    }

    /// Subjects that match with their committed messages, those without any left out.
    pub(super) fn counts(&self, pattern: &[u8]) -> Vec<(u32, u64)> {
        let mut seen = Vec::new();
        self.count_matching(pattern, &self.differences(), &mut seen);
        seen
    }

    fn count_matching(
        &self,
        pattern: &[u8],
        differences: &Differences,
        seen: &mut Vec<(u32, u64)>,
    ) {
        self.subjects.for_each_match(pattern, &mut |id| {
            let count = self.committed_count(id, differences);
            if count > 0 {
                seen.push((id, count));
            }
        });
    }

    /// Committed messages of a subject.
    pub(in crate::stream) fn committed_count(&self, id: u32, differences: &Differences) -> u64 {
        let difference = differences.get(&id).copied().unwrap_or_default();
        self.subjects.kept(id).saturating_add_signed(difference.count)
    }

    /// Per subject, how committed messages differ from assigned ones. Empty when nothing is in
    /// flight; otherwise as large as the frames in flight.
    pub(in crate::stream) fn differences(&self) -> Differences {
        let mut differences = Differences::default();
        let mut at = self.messages.next_kept(self.commits.committed().last_seq + 1);
        while let Some(seq) = at {
            if let Some(entry) = self.messages.get(seq) {
                differences.entry(entry.subject).or_default().count -= 1;
            }
            at = self.messages.next_kept(seq + 1);
        }
        for doom in self.commits.dooms() {
            let mut at = self.messages.next_live(doom.first);
            while let Some(seq) =
                at.filter(|&s| s <= doom.last.min(self.commits.committed().last_seq))
            {
                if let Some(entry) = self.messages.get(seq).filter(|entry| entry.is_doomed()) {
                    let difference = differences.entry(entry.subject).or_default();
                    difference.count += 1;
                    difference.last = difference.last.max(seq);
                }
                at = self.messages.next_live(seq + 1);
            }
        }
        differences
    }

    /// Finds the last message at or before `up_to` of each of these subjects whose value is 0, in
    /// one pass backwards. It ends where the oldest message of those can be that have any so early:
    /// subjects whose messages all come later would make it pass over the whole stream.
    pub(super) fn find_lasts(&self, wanted: &mut FxHashMap<u32, u64>, up_to: Seq) {
        let (mut missing, mut oldest) = (0_usize, u64::MAX);
        for (&id, _) in wanted.iter().filter(|(_, last)| **last == 0) {
            let first = self.subjects.first_bound(id);
            if first <= up_to.0 {
                (missing, oldest) = (missing + 1, oldest.min(first));
            }
        }
        if missing == 0 {
            return;
        }
        let mut at = self.messages.prev_live(up_to.0);
        while let Some(seq) = at.filter(|&seq| missing > 0 && seq >= oldest) {
            if let Some(entry) = self.messages.get(seq)
                && let Some(last) = wanted.get_mut(&entry.subject)
                && *last == 0
            {
                *last = seq;
                missing -= 1;
            }
            at = seq.checked_sub(1).and_then(|before| self.messages.prev_live(before));
        }
    }
}
