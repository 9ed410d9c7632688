//! Branches: what subjects have in common before their last token.
//!
//! A branch does not store its own name. It always has a subject somewhere below it, and that
//! subject's name begins with the branch's.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memchr::memrchr;

use super::{Entry, HashSlot, NIL, hash_name};
use crate::subject::SEPARATOR;

/// The branch of no tokens; it is never removed and not in the table.
pub(super) const ROOT: u32 = 0;

struct Branch {
    parent: u32,
    first_child: u32,
    /// Next child of the parent; next free branch when free.
    next_sibling: u32,
    prev_sibling: u32,
    first_subject: u32,
    /// Length of the name in bytes, without a separator at the end.
    prefix_len: u32,
}

impl Branch {
    fn new(parent: u32, prefix_len: u32) -> Self {
        let (first_child, next_sibling, prev_sibling, first_subject) = (NIL, NIL, NIL, NIL);
        Self { parent, first_child, next_sibling, prev_sibling, first_subject, prefix_len }
    }
}

/// All branches of a map.
pub(super) struct Branches {
    arena: Vec<Branch>,
    free: u32,
    table: HashTable<HashSlot>,
}

impl Branches {
    pub(super) fn new() -> Self {
        Self { arena: vec![Branch::new(NIL, 0)], free: NIL, table: HashTable::new() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.capacity() * size_of::<Branch>() + self.table.allocation_size()
    }

    #[inline]
    fn at(&self, id: u32) -> &Branch {
        &self.arena[id as usize]
    }

    pub(super) fn first_subject(&self, id: u32) -> u32 {
        self.at(id).first_subject
    }

    pub(super) fn set_first_subject(&mut self, id: u32, subject: u32) {
        self.arena[id as usize].first_subject = subject;
    }

    /// Puts `subject` in front of the branch's list and returns the one that was there.
    pub(super) fn push_subject(&mut self, id: u32, subject: u32) -> u32 {
        std::mem::replace(&mut self.arena[id as usize].first_subject, subject)
    }

    /// The name of a branch, read from a subject below it.
    pub(super) fn prefix<'e>(&self, id: u32, entries: &'e [Entry]) -> &'e [u8] {
        let mut below = self.at(id);
        while below.first_subject == NIL && below.first_child != NIL {
            below = self.at(below.first_child);
        }
        let name = entries.get(below.first_subject as usize).map(|entry| entry.name.as_slice());
        name.and_then(|name| name.get(..self.at(id).prefix_len as usize)).unwrap_or(&[])
    }

    /// The branch called `prefix`.
    pub(super) fn find(
        &self,
        prefix: &[u8],
        entries: &[Entry],
        hasher: &FixedState,
    ) -> Option<u32> {
        let hash = hash_name(hasher, prefix);
        let is_it = |slot: &HashSlot| {
            slot.hash == hash
                && self.at(slot.id).prefix_len as usize == prefix.len()
                && self.prefix(slot.id, entries) == prefix
        };
        self.table.find(HashSlot::spread(hash), is_it).map(|slot| slot.id)
    }

    /// The branch under which `subject` belongs, made together with its ancestors if missing. The
    /// caller then hangs the subject there, before any other call.
    pub(super) fn of_subject(
        &mut self,
        subject: &[u8],
        entries: &[Entry],
        hasher: &FixedState,
    ) -> u32 {
        let Some(full) = memrchr(SEPARATOR, subject) else { return ROOT };
        // Most subjects hang under a known branch, so look from the longest name down.
        let mut len = full;
        let (mut branch, from) = loop {
            if let Some(found) = self.find(&subject[..len], entries, hasher) {
                break (found, len + 1);
            }
            match memrchr(SEPARATOR, &subject[..len]) {
                Some(shorter) => len = shorter,
                None => break (ROOT, 0),
            }
        };
        for offset in memchr::memchr_iter(SEPARATOR, &subject[from..=full]) {
            branch = self.add(branch, &subject[..from + offset], hasher);
        }
        branch
    }

    fn add(&mut self, parent: u32, prefix: &[u8], hasher: &FixedState) -> u32 {
        let branch = Branch::new(parent, prefix.len() as u32);
        let id = if self.free == NIL {
            self.arena.push(branch);
            self.arena.len() as u32 - 1
        } else {
            let id = self.free;
            self.free = self.at(id).next_sibling;
            self.arena[id as usize] = branch;
            id
        };
        let next = std::mem::replace(&mut self.arena[parent as usize].first_child, id);
        self.arena[id as usize].next_sibling = next;
        if next != NIL {
            self.arena[next as usize].prev_sibling = id;
        }
        let hash = hash_name(hasher, prefix);
        self.table.insert_unique(HashSlot::spread(hash), HashSlot { hash, id }, |slot| {
            HashSlot::spread(slot.hash)
        });
        id
    }

    /// Frees `id` and its ancestors as far as nothing is below them. `name` is the subject that
    /// went: it still tells the names of the branches.
    pub(super) fn prune(&mut self, mut id: u32, name: &[u8], hasher: &FixedState) {
        while id != ROOT && self.at(id).first_subject == NIL && self.at(id).first_child == NIL {
            let branch = self.at(id);
            let (parent, next, prev) = (branch.parent, branch.next_sibling, branch.prev_sibling);
            let hash = hash_name(hasher, &name[..branch.prefix_len as usize]);
            if let Ok(slot) = self.table.find_entry(HashSlot::spread(hash), |slot| slot.id == id) {
                slot.remove();
            }
            if next != NIL {
                self.arena[next as usize].prev_sibling = prev;
            }
            if prev == NIL {
                self.arena[parent as usize].first_child = next;
            } else {
                self.arena[prev as usize].next_sibling = next;
            }
            self.arena[id as usize] = Branch::new(NIL, 0);
            self.arena[id as usize].next_sibling = self.free;
            self.free = id;
            id = parent;
        }
    }

    /// The branches directly below `id`.
    pub(super) fn children(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |id: u32| (id != NIL).then_some(id);
        std::iter::successors(some(self.at(id).first_child), move |&child| {
            some(self.at(child).next_sibling)
        })
    }

    /// The branch after `at` in a walk over everything below `top`, parents first.
    pub(super) fn next_below(&self, mut at: u32, top: u32) -> Option<u32> {
        if self.at(at).first_child != NIL {
            return Some(self.at(at).first_child);
        }
        while at != top {
            let branch = self.at(at);
            if branch.next_sibling != NIL {
                return Some(branch.next_sibling);
            }
            at = branch.parent;
        }
        None
    }

    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.table.len()
    }
}
