//! The subjects of a stream: how many messages each has, and where the last one is.
//!
//! Counts follow *assigned* state (what has been appended and not doomed); an id stays taken until
//! the last message that carries it is physically gone, because readers may still see that one.

#[cfg(test)]
mod tests;

use super::messages::Messages;
use nuthatch_protocol::subject::map::{SubjectId, SubjectMap};
use std::collections::VecDeque;

/// Counts of one subject.
#[derive(Clone, Copy, Default, Debug)]
struct Stats {
    /// Messages that are neither dead nor doomed.
    kept: u32,
    /// Messages that are not dead: doomed ones count.
    held: u32,
    /// No held message comes before this one.
    first: u64,
    /// The last kept message, or an upper bound of it if `last_is_bound`.
    last: u64,
    last_is_bound: bool,
}

/// The subjects of one stream.
pub struct Subjects {
    names: SubjectMap,
    stats: Vec<Stats>,
    /// Sequences of each subject's kept messages in order, possibly with removed ones among them;
    /// kept only where a limit per subject above one needs the oldest.
    order: Option<Vec<VecDeque<u64>>>,
    /// Id of the subject that came last, which is likely to come again.
    latest: Option<u32>,
}

impl Subjects {
    /// No subjects. `seed` keys their hashes against chosen collisions.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self { names: SubjectMap::with_seed(seed), stats: Vec::new(), order: None, latest: None }
    }

    /// Subjects with at least one message that is not dead.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The id of a subject, if it has messages.
    #[inline]
    #[must_use]
    pub fn find(&self, subject: &[u8]) -> Option<u32> {
        if let Some(id) = self.latest
            && self.names.name(SubjectId(id)) == subject
        {
            return Some(id);
        }
        self.names.lookup(subject).map(|id| id.0)
    }

    /// The id of a subject, new or known. Follow with [`Subjects::added`].
    #[inline]
    pub fn intern(&mut self, subject: &[u8]) -> u32 {
        if let Some(id) = self.find(subject) {
            self.latest = Some(id);
            return id;
        }
        self.intern_new(subject)
    }

    #[cold]
    fn intern_new(&mut self, subject: &[u8]) -> u32 {
        let id = self.names.intern(subject).0;
        let index = id as usize;
        if index >= self.stats.len() {
            self.stats.resize(index + 1, Stats::default());
        }
        self.stats[index] = Stats::default();
        if let Some(order) = &mut self.order {
            order.resize_with(self.stats.len(), VecDeque::new);
            order[index].clear();
        }
        self.latest = Some(id);
        id
    }

    /// The text of a subject; empty if the id is not in use.
    #[inline]
    #[must_use]
    pub fn name(&self, id: u32) -> &[u8] {
        self.names.name(SubjectId(id))
    }

    /// Changes whenever `id` is given to another subject.
    #[must_use]
    pub fn generation(&self, id: u32) -> u32 {
        self.names.generation(SubjectId(id))
    }

    /// Kept messages of a subject.
    #[must_use]
    pub fn kept(&self, id: u32) -> u64 {
        self.stats.get(id as usize).map_or(0, |stats| u64::from(stats.kept))
    }

    /// No message of the subject that is not dead comes before this one.
    #[must_use]
    pub fn first_bound(&self, id: u32) -> u64 {
        self.stats.get(id as usize).map_or(0, |stats| stats.first)
    }

    /// The last kept message of a subject if it is known without a search.
    #[must_use]
    pub fn last_known(&self, id: u32) -> Option<u64> {
        let stats = self.stats.get(id as usize)?;
        (stats.kept > 0 && !stats.last_is_bound).then_some(stats.last)
    }

    /// The last kept message of a subject, searched for backwards if need be.
    pub fn last(&mut self, id: u32, messages: &Messages) -> Option<u64> {
        let stats = self.stats.get_mut(id as usize)?;
        if stats.kept == 0 {
            return None;
        }
        let mut at = stats.last;
        while stats.last_is_bound {
            let seq = messages.prev_live(at).filter(|&seq| seq >= stats.first)?;
            let entry = messages.get(seq)?;
            if entry.subject == id && !entry.is_doomed() {
                (stats.last, stats.last_is_bound) = (seq, false);
            }
            at = seq.saturating_sub(1);
        }
        Some(stats.last)
    }

    /// A message was appended.
    #[inline]
    pub fn added(&mut self, id: u32, seq: u64) {
        let stats = &mut self.stats[id as usize];
        if stats.held == 0 {
            stats.first = seq;
        }
        stats.kept += 1;
        stats.held += 1;
        (stats.last, stats.last_is_bound) = (seq, false);
        if let Some(order) = &mut self.order {
            order[id as usize].push_back(seq);
        }
    }

    /// A message was doomed: it no longer counts.
    pub fn doomed(&mut self, id: u32, seq: u64) {
        let stats = self.stats.get_mut(id as usize).expect("a subject with messages is known");
        stats.kept = stats.kept.checked_sub(1).expect("the message counted");
        stats.last_is_bound |= stats.last == seq;
        self.forget_front(id, seq);
    }

    /// A doomed message is gone.
    pub fn buried(&mut self, id: u32, seq: u64) {
        let stats = self.stats.get_mut(id as usize).expect("a subject with messages is known");
        stats.held = stats.held.checked_sub(1).expect("the message was held");
        if stats.held == 1 && stats.kept == 1 && !stats.last_is_bound {
            stats.first = stats.last;
        } else if stats.first == seq {
            stats.first = seq + 1;
        }
        if stats.held == 0 {
            self.names.release(SubjectId(id));
            self.latest = self.latest.filter(|&latest| latest != id);
        }
    }

    fn forget_front(&mut self, id: u32, seq: u64) {
        if let Some(queue) = self.order.as_mut().and_then(|order| order.get_mut(id as usize))
            && queue.front() == Some(&seq)
        {
            queue.pop_front();
        }
    }

    /// Keeps or drops what [`Subjects::oldest`] needs, for a new limit per subject (0: none).
    pub fn track_order(&mut self, max_per_subject: u64, messages: &Messages) {
        if max_per_subject <= 1 {
            self.order = None;
            return;
        }
        if self.order.is_some() {
            return;
        }
        let mut order = vec![VecDeque::new(); self.stats.len()];
        messages.for_each(|seq, entry| {
            if !entry.is_doomed()
                && let Some(queue) = order.get_mut(entry.subject as usize)
            {
                queue.push_back(seq);
            }
        });
        self.order = Some(order);
    }

    /// True if [`Subjects::oldest`] is O(1).
    #[must_use]
    pub fn has_order(&self) -> bool {
        self.order.is_some()
    }

    /// The oldest kept message of a subject.
    pub fn oldest(&mut self, id: u32, messages: &Messages) -> Option<u64> {
        let is_kept = |seq: u64| messages.get_kept(seq).is_some_and(|entry| entry.subject == id);
        if let Some(queue) = self.order.as_mut().and_then(|order| order.get_mut(id as usize)) {
            while let Some(&seq) = queue.front() {
                if is_kept(seq) {
                    return Some(seq);
                }
                queue.pop_front();
            }
            return None;
        }
        // No order is kept: walk from the lower bound.
        let stats = self.stats.get_mut(id as usize)?;
        let mut seq = messages.next_kept(stats.first)?;
        while !is_kept(seq) {
            seq = messages.next_kept(seq + 1)?;
        }
        Some(seq)
    }

    /// No id is at or above this one.
    #[must_use]
    pub fn id_bound(&self) -> usize {
        self.names.id_bound()
    }

    /// The ids of the subjects that match, in order; `None` if there are more than `most`.
    #[must_use]
    pub fn matching(&self, pattern: &[u8], most: usize) -> Option<Vec<u32>> {
        let mut ids = Vec::new();
        let is_more = self.names.find_match(pattern, |id, _| {
            ids.push(id.0);
            ids.len() > most
        });
        ids.sort_unstable();
        (!is_more).then_some(ids)
    }

    /// Calls `visit` with the id of every subject that matches `pattern`.
    pub fn for_each_match(&self, pattern: &[u8], visit: &mut dyn FnMut(u32)) {
        self.names.for_each_match(pattern, |id, _| visit(id.0));
    }
}
