//! Subject mappings of an account: what a client publishes to one subject goes to another.

use crate::member_rng::MemberRng;
use arc_swap::{ArcSwap, Guard};
use nuthatch_protocol::subject::tree::{MatchResult, SubjectTree};
use nuthatch_protocol::transform::Mapping as Configured;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mappings of an account.
#[derive(Default)]
pub struct Mappings {
    any: AtomicBool,
    table: ArcSwap<Table>,
}

/// Result of mapping a message's subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// It stays as it is.
    Unchanged,
    /// It is another one now.
    Changed,
    /// The message is dropped.
    Dropped,
}

/// Mappings with an index by source.
#[derive(Default)]
pub struct Table {
    mappings: Vec<Configured>,
    /// Places in `mappings` by source.
    by_source: SubjectTree<usize>,
}

/// Result of a table for a subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fixed {
    /// Nothing.
    Unchanged,
    /// Always this subject.
    To(Box<[u8]>),
    /// Something else each time: the place of the mapping.
    Choice(usize),
}

impl Mappings {
    /// True if there are any: one load, for every publish.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The mappings in force.
    #[must_use]
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// The subjects that are mapped, as patterns.
    #[must_use]
    pub fn sources(&self) -> Vec<Box<[u8]>> {
        self.table().mappings.iter().map(|mapping| mapping.source().into()).collect()
    }

    /// Replaces them.
    pub fn set(&self, mappings: &[Configured]) {
        let mut by_source = SubjectTree::default();
        for (place, mapping) in mappings.iter().enumerate() {
            by_source.insert(mapping.source(), None, place);
        }
        self.any.store(!mappings.is_empty(), Ordering::Relaxed);
        self.table.store(Arc::new(Table { mappings: mappings.to_vec(), by_source }));
    }

    /// Maps a subject, without a cache. `out` holds the new subject if it changed.
    pub fn apply(&self, subject: &[u8], rng: &mut MemberRng, out: &mut Vec<u8>) -> Mapping {
        if !self.any() {
            return Mapping::Unchanged;
        }
        let table = self.table();
        match table.find(subject) {
            Some(place) => table.choose(place, subject, rng, out),
            None => Mapping::Unchanged,
        }
    }
}

impl Table {
    /// The first mapping, in the order of the configuration, that covers a subject.
    fn find(&self, subject: &[u8]) -> Option<usize> {
        let mut found = MatchResult::default();
        self.by_source.match_into(subject, &mut found);
        found.plain().iter().copied().min()
    }

    /// Result for a subject, if it is always the same.
    #[must_use]
    pub fn fixed(&self, subject: &[u8]) -> Fixed {
        let Some(place) = self.find(subject) else { return Fixed::Unchanged };
        match self.mappings[place].only() {
            Some(transform) if !transform.is_random() => {
                let mut out = Vec::new();
                transform.apply_matching(subject, 0, &mut out);
                Fixed::To(out.into_boxed_slice())
            }
            _ => Fixed::Choice(place),
        }
    }

    /// Chooses among the destinations of a mapping that covers the subject.
    pub fn choose(
        &self,
        place: usize,
        subject: &[u8],
        rng: &mut MemberRng,
        out: &mut Vec<u8>,
    ) -> Mapping {
        let Some(mapping) = self.mappings.get(place) else { return Mapping::Unchanged };
        let Some(transform) = mapping.choose(rng.number()) else { return Mapping::Dropped };
        out.clear();
        // It may have been replaced by a reload since it was found.
        if transform.apply(subject, rng.number(), out) {
            Mapping::Changed
        } else {
            Mapping::Unchanged
        }
    }
}

impl std::fmt::Debug for Mappings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mappings").field("count", &self.table().mappings.len()).finish()
    }
}

#[cfg(test)]
mod tests;
