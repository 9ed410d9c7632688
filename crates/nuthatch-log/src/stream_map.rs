//! A table by stream id: two loads for a look-up where a hash table takes a hash and a search.
//!
//! Ids are given out in order, server-wide, so a table of pages is dense enough: a page of
//! [`PAGE_STREAMS`] places exists while one of its streams does. What is left of streams that are
//! gone is an empty place for their page, half a byte for each id ever given out. Ids from
//! [`DENSE_IDS`] on, which take years or a damaged file, lie in a tree.

use crate::types::StreamId;
use std::collections::BTreeMap;

/// Places in a page: a power of two.
const PAGE_STREAMS: usize = 1 << PAGE_SHIFT;
const PAGE_SHIFT: u32 = 4;
/// Ids below this one lie in pages: their table takes 8 MiB at most.
const DENSE_IDS: u32 = 1 << 24;

/// Something for each of many streams. Values are visited in the order of ids.
#[derive(Debug)]
pub struct StreamMap<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    beyond: BTreeMap<StreamId, T>,
    len: usize,
}

#[derive(Debug)]
struct Page<T> {
    used: usize,
    values: [Option<T>; PAGE_STREAMS],
}

impl<T> Default for StreamMap<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), beyond: BTreeMap::new(), len: 0 }
    }
}

const fn place(id: StreamId) -> (usize, usize) {
    ((id.0 >> PAGE_SHIFT) as usize, id.0 as usize % PAGE_STREAMS)
}

impl<T> StreamMap<T> {
    /// How many streams have a value.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if none has.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a stream.
    #[inline]
    #[must_use]
    pub fn get(&self, id: &StreamId) -> Option<&T> {
        let (page, at) = place(*id);
        match self.pages.get(page) {
            Some(page) => page.as_ref()?.values[at].as_ref(),
            None => self.beyond(id),
        }
    }

    #[cold]
    fn beyond(&self, id: &StreamId) -> Option<&T> {
        self.beyond.get(id)
    }

    /// The value of a stream, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: &StreamId) -> Option<&mut T> {
        let (page, at) = place(*id);
        match self.pages.get_mut(page) {
            Some(page) => page.as_mut()?.values[at].as_mut(),
            None => self.beyond.get_mut(id),
        }
    }

    /// True if a stream has a value.
    #[must_use]
    pub fn contains_key(&self, id: &StreamId) -> bool {
        self.get(id).is_some()
    }

    /// Gives a stream a value; returns the one that it had.
    pub fn insert(&mut self, id: StreamId, value: T) -> Option<T> {
        let old = if id.0 < DENSE_IDS {
            let (page, at) = place(id);
            if page >= self.pages.len() {
                self.pages.resize_with(page + 1, || None);
            }
            let fresh = || Box::new(Page { used: 0, values: [const { None }; PAGE_STREAMS] });
            let page = self.pages[page].get_or_insert_with(fresh);
            let old = page.values[at].replace(value);
            page.used += usize::from(old.is_none());
            old
        } else {
            self.beyond.insert(id, value)
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// The value of a stream, which gets one if it has none.
    #[inline]
    pub fn get_or_default(&mut self, id: StreamId) -> &mut T
    where
        T: Default,
    {
        if !self.contains_key(&id) {
            self.insert(id, T::default());
        }
        self.get_mut(&id).expect("it was put there")
    }

    /// Takes a stream's value away.
    pub fn remove(&mut self, id: &StreamId) -> Option<T> {
        let old = if id.0 < DENSE_IDS { self.remove_dense(*id) } else { self.beyond.remove(id) };
        self.len -= usize::from(old.is_some());
        old
    }

    fn remove_dense(&mut self, id: StreamId) -> Option<T> {
        let (number, at) = place(id);
        let slot = self.pages.get_mut(number)?;
        let page = slot.as_mut()?;
        let old = page.values[at].take()?;
        page.used -= 1;
        if page.used == 0 {
            *slot = None;
            while self.pages.last().is_some_and(Option::is_none) {
                self.pages.pop();
            }
        }
        Some(old)
    }

    /// Takes all values away.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Keeps the values for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(StreamId, &T) -> bool) {
        let gone = |(id, value)| (!keep(id, value)).then_some(id);
        let gone: Vec<StreamId> = self.iter().filter_map(gone).collect();
        for id in gone {
            self.remove(&id);
        }
    }

    /// Streams with their values.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &T)> {
        let pages = self.pages.iter().enumerate();
        let dense = pages.flat_map(|(number, page)| {
            let values = page.iter().flat_map(|page| page.values.iter().enumerate());
            values.filter_map(move |(at, value)| Some((id_at(number, at), value.as_ref()?)))
        });
        dense.chain(self.beyond.iter().map(|(id, value)| (*id, value)))
    }

    /// Streams with their values, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut T)> {
        let pages = self.pages.iter_mut().enumerate();
        let dense = pages.flat_map(|(number, page)| {
            let values = page.iter_mut().flat_map(|page| page.values.iter_mut().enumerate());
            values.filter_map(move |(at, value)| Some((id_at(number, at), value.as_mut()?)))
        });
        dense.chain(self.beyond.iter_mut().map(|(id, value)| (*id, value)))
    }

    /// Streams that have a value.
    pub fn keys(&self) -> impl Iterator<Item = StreamId> {
        self.iter().map(|(id, _)| id)
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_mut().map(|(_, value)| value)
    }
}

/// The id whose place this is; pages are made for ids below [`DENSE_IDS`] only.
const fn id_at(page: usize, at: usize) -> StreamId {
    StreamId((page * PAGE_STREAMS + at) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_and_gives_pages_back() {
        let (mut map, mut model) = (StreamMap::default(), BTreeMap::new());
        for step in 0..10_000_u32 {
            let id = StreamId(match step.wrapping_mul(2_654_435_761) % 500 {
                far @ 0..50 => u32::MAX - far,
                near => near,
            });
            if step % 3 == 0 {
                assert_eq!(map.remove(&id), model.remove(&id));
            } else {
                assert_eq!(map.insert(id, step), model.insert(id, step));
            }
            assert_eq!((map.len(), map.get(&id)), (model.len(), model.get(&id)));
        }
        assert!(map.iter().eq(model.iter().map(|(id, value)| (*id, value))));
        map.values_mut().chain(model.values_mut()).for_each(|value| *value += 1);
        map.retain(|id, _| id.0 % 2 == 0);
        model.retain(|id, _| id.0 % 2 == 0);
        assert!(map.iter().eq(model.iter().map(|(id, value)| (*id, value))));
        *map.get_or_default(StreamId(501)) += 7;
        assert_eq!(map.get_mut(&StreamId(501)), Some(&mut 7));
        map.retain(|_, _| false);
        assert!(map.is_empty() && map.pages.is_empty());
        assert!(map.get(&StreamId(u32::MAX)).is_none());
    }
}
