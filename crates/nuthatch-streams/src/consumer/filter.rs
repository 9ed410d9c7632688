//! Which messages a consumer wants, by the dense ids of their subjects.
//!
//! A subject's text is matched once; the answer is kept in a direct-mapped table by subject id, so
//! that skipping a message costs a lookup. Ids may be reused: entries carry the id's generation.

use crate::index::MessageIndex;
use crate::subject_set::PatternTree;
use nuthatch_protocol::js::{ConsumerConfig, StreamConfig};
use nuthatch_protocol::subject;

/// Slots of the match table: up to this many subjects are remembered per filtered consumer.
const MATCH_SLOTS_MAX: usize = 1 << 16;
const MATCH_SLOTS_MIN: usize = 1 << 6;
/// More patterns than this are asked as a tree.
const LISTED_PATTERNS_MAX: usize = 16;
/// Most comparisons to find out whether the filters let everything pass. Beyond that a consumer pays
/// for filtering, whatever its filters are.
const SETTLE_LOOKS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FilterSlot {
    id: u32,
    generation: u32,
    /// 0 unknown, 1 no, 2 yes.
    answer: u8,
}

const EMPTY: FilterSlot = FilterSlot { id: 0, generation: 0, answer: 0 };

/// The filter of one consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    patterns: Vec<Box<[u8]>>,
    /// The same, if they are many.
    tree: Option<PatternTree>,
    /// Everything in the stream matches: no filtering at all.
    all: bool,
    slots: Vec<FilterSlot>,
}

/// The filters of a configuration, however they were given.
pub(super) fn patterns_of(config: &ConsumerConfig) -> impl Iterator<Item = &str> {
    std::iter::once(&config.filter_subject)
        .filter(|filter| !filter.is_empty())
        .chain(&config.filter_subjects)
        .map(String::as_str)
}

impl Filter {
    /// The filter of a configuration. `settle` decides later whether it lets everything pass.
    pub fn new(config: &ConsumerConfig) -> Self {
        let patterns: Vec<Box<[u8]>> = patterns_of(config).map(|p| p.as_bytes().into()).collect();
        let all = patterns.is_empty() || patterns.iter().any(|pattern| **pattern == *b">");
        let is_long = patterns.len() > LISTED_PATTERNS_MAX;
        let tree = is_long.then(|| PatternTree::new(patterns.iter().map(|pattern| &**pattern)));
        Self { patterns, tree, all, slots: Vec::new() }
    }

    /// Finds out whether the filter lets everything in the stream pass, now and later.
    ///
    /// Modern clients name the stream's own subject as filter, which must not cost more than none.
    /// Messages from before a change of the stream's subjects may lie outside of them, hence the
    /// count.
    pub fn settle<I: MessageIndex>(&mut self, stream: &StreamConfig, index: &I) {
        self.slots = Vec::new();
        if self.patterns.is_empty() || self.patterns.iter().any(|pattern| **pattern == *b">") {
            self.all = true;
            return;
        }
        let covers = |subject: &String| {
            self.patterns.iter().any(|pattern| subject::is_subset(subject.as_bytes(), pattern))
        };
        let fixed = stream.mirror.is_none()
            && stream.sources.is_empty()
            && stream.subject_transform.is_none()
            && !stream.subjects.is_empty();
        let is_short = stream.subjects.len() * self.patterns.len() <= SETTLE_LOOKS_MAX;
        self.all = fixed && is_short && stream.subjects.iter().all(covers) && {
            let total = index.live_after(nuthatch_log::Seq(0));
            total == 0 || self.totals(index).0 == total
        };
    }

    /// Memory of the patterns, bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let patterns: usize = self.patterns.iter().map(|text| size_of_val(text) + text.len()).sum();
        patterns + self.tree.as_ref().map_or(0, PatternTree::bytes)
    }

    /// True if nothing is filtered.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Live messages that match, and how many subjects had to be looked at.
    pub fn totals<I: MessageIndex>(&self, index: &I) -> (u64, u64) {
        let (mut messages, mut subjects) = (0, 0);
        self.for_each_subject(index, &mut |_, count, _, _| {
            messages += count;
            subjects += 1;
        });
        (messages, subjects)
    }

    /// Visits the stream's subjects that match (see [`MessageIndex::for_each_subject`]).
    pub fn for_each_subject<I: MessageIndex>(
        &self,
        index: &I,
        visit: &mut dyn FnMut(u32, u64, nuthatch_log::Seq, nuthatch_log::Seq),
    ) {
        if self.all {
            return index.for_each_subject(b">", visit);
        }
        index.for_each_subject_of(&self.patterns, visit);
    }

    /// True if messages on this subject are wanted.
    pub fn matches_text(&self, subject: &[u8]) -> bool {
        if self.all {
            return true;
        }
        match &self.tree {
            Some(tree) => tree.matches(subject),
            None => self.patterns.iter().any(|pattern| subject::matches(pattern, subject)),
        }
    }

    /// True if one of these patterns overlaps with one of another filter.
    pub fn overlaps<'a>(&self, mut others: impl Iterator<Item = &'a str>) -> bool {
        match &self.tree {
            Some(tree) => others.any(|other| tree.overlaps(other.as_bytes())),
            None => others.any(|other| {
                self.patterns.iter().any(|own| subject::overlap(own, other.as_bytes()))
            }),
        }
    }

    /// True if messages with this subject id are wanted.
    #[inline]
    pub fn matches<I: MessageIndex>(&mut self, index: &I, id: u32) -> bool {
        if self.all {
            return true;
        }
        let generation = index.subject_generation(id);
        match self.known(id, generation) {
            Some(matched) => matched,
            None => self.learn(index, id, generation),
        }
    }

    /// As [`Filter::matches`] without remembering it. For whoever has not seen yet what was removed:
    /// an answer about a subject that has got the id of another one would pass for an answer about
    /// that one ([`Filter::matched_removed`]).
    pub fn matches_unseen<I: MessageIndex>(&self, index: &I, id: u32) -> bool {
        self.all
            || self
                .known(id, index.subject_generation(id))
                .unwrap_or_else(|| self.matches_text(index.subject(id)))
    }

    #[inline]
    fn known(&self, id: u32, generation: u32) -> Option<bool> {
        let slot = self.slots.get(id as usize & self.slots.len().wrapping_sub(1))?;
        let known = slot.id == id && slot.generation == generation && slot.answer != 0;
        known.then_some(slot.answer == 2)
    }

    #[cold]
    fn learn<I: MessageIndex>(&mut self, index: &I, id: u32, generation: u32) -> bool {
        let wanted = (id as usize + 1).next_power_of_two().clamp(MATCH_SLOTS_MIN, MATCH_SLOTS_MAX);
        if self.slots.len() < wanted {
            // Below the largest size the place of an id is the id itself: growing keeps the entries.
            self.slots.resize(wanted, EMPTY);
        }
        let matched = self.matches_text(index.subject(id));
        let at = id as usize & (self.slots.len() - 1);
        self.slots[at] = FilterSlot { id, generation, answer: 1 + u8::from(matched) };
        matched
    }

    /// Whether a message that is gone was wanted, and whether that is certain: its subject's id may
    /// have been given to another subject since.
    pub fn matched_removed<I: MessageIndex>(&mut self, index: &I, id: u32) -> (bool, bool) {
        if self.all {
            return (true, true);
        }
        let known = self.slots.get(id as usize & self.slots.len().wrapping_sub(1));
        match known.filter(|slot| slot.id == id && slot.answer != 0) {
            Some(slot) => (slot.answer == 2, slot.generation == index.subject_generation(id)),
            None => (self.matches_text(index.subject(id)), false),
        }
    }
}
