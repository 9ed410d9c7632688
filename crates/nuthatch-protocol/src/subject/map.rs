//! The subjects of a stream: dense numbers for names, and the names a pattern selects.
//!
//! Looking up a literal subject is one probe of a hash table, however many tokens it has. Beside
//! it, subjects hang in lists under their *branch* (everything before the last token) and branches
//! under theirs, so a pattern goes straight to the branch its literal head names and visits only
//! what its wildcards cover. A new subject under a known branch costs two probes, no rebalancing.
//!
//! Tables keep 32 bits of each hash, so growing never touches the names. Per subject: 40 bytes,
//! 9 to 18 bytes of table, the name itself if longer than 22 bytes, and its share of branches (24
//! bytes plus table each).

mod branch;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::compact::CompactBytes;
use branch::Branches;

/// No subject, no branch.
const NIL: u32 = u32::MAX;

/// The number of a subject in one [`SubjectMap`]: dense, and stable until the subject is released;
/// then it may be given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectId(pub u32);

impl SubjectId {
    /// The number as an index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table entry: which thing, and enough of its hash to grow and to reject others.
#[derive(Clone, Copy)]
struct HashSlot {
    hash: u32,
    id: u32,
}

impl HashSlot {
    /// The table's own hash: its low bits choose the place, its top seven are compared first.
    #[inline]
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

#[inline]
fn hash_name(hasher: &FixedState, name: &[u8]) -> u32 {
    let mut state = hasher.build_hasher();
    state.write(name);
    (state.finish() >> 32) as u32
}

/// One subject, live or free.
struct Entry {
    name: CompactBytes,
    branch: u32,
    /// Next subject of the branch; next free number when free.
    next: u32,
    prev: u32,
    /// Odd while live: interning and releasing each add one.
    generation: u32,
}

/// An interner of literal subjects that also answers wildcard patterns.
///
/// Subjects must be valid literals (no empty token, no wildcard). There are no locks.
pub struct SubjectMap {
    entries: Vec<Entry>,
    free: u32,
    live: usize,
    ids: HashTable<HashSlot>,
    branches: Branches,
    hasher: FixedState,
    /// Bytes of names too long to be kept in place.
    name_bytes: usize,
}

impl Default for SubjectMap {
    fn default() -> Self {
        Self::with_seed(0)
    }
}

impl SubjectMap {
    /// An empty map. `seed` keys the hash against chosen collisions; equal seeds behave equally.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: NIL,
            live: 0,
            ids: HashTable::new(),
            branches: Branches::new(),
            hasher: FixedState::with_seed(seed),
            name_bytes: 0,
        }
    }

    /// How many subjects are live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Is no subject live?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// One more than the largest number ever given: the size for tables indexed by [`SubjectId`].
    #[must_use]
    pub fn id_bound(&self) -> usize {
        self.entries.len()
    }

    /// An estimate of the memory held, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.ids.allocation_size()
            + self.branches.memory_bytes()
            + self.name_bytes
    }

    /// The number of `subject`, if it is live.
    #[inline]
    #[must_use]
    pub fn lookup(&self, subject: &[u8]) -> Option<SubjectId> {
        self.lookup_hashed(hash_name(&self.hasher, subject), subject)
    }

    #[inline]
    fn lookup_hashed(&self, hash: u32, subject: &[u8]) -> Option<SubjectId> {
        let is_it = |slot: &HashSlot| {
            slot.hash == hash && self.entries[slot.id as usize].name.as_slice() == subject
        };
        self.ids.find(HashSlot::spread(hash), is_it).map(|slot| SubjectId(slot.id))
    }

    /// The number of `subject`, which becomes live if it was not.
    #[inline]
    pub fn intern(&mut self, subject: &[u8]) -> SubjectId {
        let hash = hash_name(&self.hasher, subject);
        match self.lookup_hashed(hash, subject) {
            Some(id) => id,
            None => self.add(hash, subject),
        }
    }

    fn add(&mut self, hash: u32, subject: &[u8]) -> SubjectId {
        let id = self.take_free();
        let branch = self.branches.of_subject(subject, &self.entries, &self.hasher);
        let name = CompactBytes::new(subject);
        self.name_bytes += name.heap_bytes();
        let next = self.branches.push_subject(branch, id);
        if next != NIL {
            self.entries[next as usize].prev = id;
        }
        let entry = &mut self.entries[id as usize];
        let generation = entry.generation.wrapping_add(1);
        *entry = Entry { name, branch, next, prev: NIL, generation };
        self.ids.insert_unique(HashSlot::spread(hash), HashSlot { hash, id }, |slot| {
            HashSlot::spread(slot.hash)
        });
        self.live += 1;
        SubjectId(id)
    }

    fn take_free(&mut self) -> u32 {
        if self.free != NIL {
            let id = self.free;
            self.free = self.entries[id as usize].next;
            return id;
        }
        let (name, id) = (CompactBytes::new(b""), self.entries.len() as u32);
        self.entries.push(Entry { name, branch: NIL, next: NIL, prev: NIL, generation: 0 });
        id
    }

    /// The name of a live subject; empty for a number out of use.
    #[inline]
    #[must_use]
    pub fn name(&self, id: SubjectId) -> &[u8] {
        self.entries.get(id.index()).map_or(&[], |entry| entry.name.as_slice())
    }

    /// Changes whenever `id` is released or given to another subject; 0 for a number never given.
    #[inline]
    #[must_use]
    pub fn generation(&self, id: SubjectId) -> u32 {
        self.entries.get(id.index()).map_or(0, |entry| entry.generation)
    }

    /// Makes `id` free for another subject; false if it was not live.
    pub fn release(&mut self, id: SubjectId) -> bool {
        let Some(entry) = self.entries.get_mut(id.index()) else { return false };
        if entry.branch == NIL {
            return false;
        }
        let name = std::mem::replace(&mut entry.name, CompactBytes::new(b""));
        let (branch, next, prev) = (entry.branch, entry.next, entry.prev);
        entry.generation = entry.generation.wrapping_add(1);
        (entry.branch, entry.next, entry.prev) = (NIL, self.free, NIL);
        self.free = id.0;
        self.name_bytes -= name.heap_bytes();
        if next != NIL {
            self.entries[next as usize].prev = prev;
        }
        if prev == NIL {
            self.branches.set_first_subject(branch, next);
            self.branches.prune(branch, name.as_slice(), &self.hasher);
        } else {
            self.entries[prev as usize].next = next;
        }
        let hash = hash_name(&self.hasher, name.as_slice());
        if let Ok(slot) = self.ids.find_entry(HashSlot::spread(hash), |slot| slot.id == id.0) {
            slot.remove();
        }
        self.live -= 1;
        true
    }

    /// Every live subject, in the order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SubjectId, &[u8])> {
        let live = self.entries.iter().enumerate().filter(|(_, entry)| entry.branch != NIL);
        live.map(|(index, entry)| (SubjectId(index as u32), entry.name.as_slice()))
    }

    /// Calls `visit` for every live subject that `pattern` selects, in no particular order (the
    /// same for the same history of calls).
    pub fn for_each_match(&self, pattern: &[u8], mut visit: impl FnMut(SubjectId, &[u8])) {
        self.find_match(pattern, |id, name| {
            visit(id, name);
            false
        });
    }

    /// Like [`Self::for_each_match`], but stops once `visit` returns true, and then says so.
    pub fn find_match(
        &self,
        pattern: &[u8],
        mut visit: impl FnMut(SubjectId, &[u8]) -> bool,
    ) -> bool {
        let mut key = Vec::new();
        self.walk(branch::ROOT, pattern, &mut key, &mut visit)
    }

    /// Visits what `pattern` selects below `branch`. `key` is scratch space.
    fn walk(
        &self,
        branch: u32,
        pattern: &[u8],
        key: &mut Vec<u8>,
        visit: &mut impl FnMut(SubjectId, &[u8]) -> bool,
    ) -> bool {
        let head = LiteralHead::of(pattern);
        key.clear();
        if branch != branch::ROOT {
            key.extend_from_slice(self.branches.prefix(branch, &self.entries));
            key.push(super::SEPARATOR);
        }
        key.extend_from_slice(head.literal);
        let Some(rest) = head.rest else {
            return self.lookup(key).is_some_and(|id| visit(id, self.name(id)));
        };
        let branch = if head.literal.is_empty() {
            branch
        } else {
            match self.branches.find(key, &self.entries, &self.hasher) {
                Some(below) => below,
                None => return false,
            }
        };
        match rest {
            super::ANY_TAIL => self.visit_below(branch, visit),
            super::ANY_TOKEN => self.visit_subjects(branch, visit),
            // `*.` and more.
            _ => {
                let tail = &rest[2..];
                self.branches.children(branch).any(|child| self.walk(child, tail, key, visit))
            }
        }
    }

    /// Visits the subjects directly under `branch`.
    fn visit_subjects(
        &self,
        branch: u32,
        visit: &mut impl FnMut(SubjectId, &[u8]) -> bool,
    ) -> bool {
        let mut id = self.branches.first_subject(branch);
        while id != NIL {
            let entry = &self.entries[id as usize];
            if visit(SubjectId(id), entry.name.as_slice()) {
                return true;
            }
            id = entry.next;
        }
        false
    }

    /// Visits all subjects under `branch`, however deep.
    fn visit_below(&self, branch: u32, visit: &mut impl FnMut(SubjectId, &[u8]) -> bool) -> bool {
        let mut at = branch;
        loop {
            if self.visit_subjects(at, visit) {
                return true;
            }
            match self.branches.next_below(at, branch) {
                Some(next) => at = next,
                None => return false,
            }
        }
    }
}

/// A pattern cut before its first wildcard token.
struct LiteralHead<'a> {
    /// The tokens before it, without the separator behind them.
    literal: &'a [u8],
    /// From the wildcard on; `None` if there is no wildcard.
    rest: Option<&'a [u8]>,
}

impl<'a> LiteralHead<'a> {
    fn of(pattern: &'a [u8]) -> Self {
        let mut start = 0;
        for token in super::tokens(pattern) {
            let end = start + token.len();
            let last = end == pattern.len();
            if token == super::ANY_TOKEN || (last && token == super::ANY_TAIL) {
                let literal = &pattern[..start.saturating_sub(1)];
                return Self { literal, rest: Some(&pattern[start..]) };
            }
            start = end + 1;
        }
        Self { literal: pattern, rest: None }
    }
}

#[cfg(test)]
mod tests;
