//! Streams of an account that are not here, by name, with all that is asked for with each new stream.

use super::ServedStream;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome, SubjectTree};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A stream as its subjects have it.
#[derive(Clone)]
struct Keyed {
    key: u64,
    stream: Arc<ServedStream>,
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

/// Streams, each with the key of its subjects, which no other one has.
#[derive(Default)]
pub(super) struct StreamSet {
    by_name: FxHashMap<Arc<str>, (u64, Arc<ServedStream>)>,
    names: BTreeSet<Arc<str>>,
    subjects: SubjectTree<Keyed>,
    /// What they reserve: on disks, then in memory.
    reserved: [u128; 2],
}

impl StreamSet {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// A stream, and its key.
    pub(super) fn get(&self, name: &str) -> Option<(u64, &Arc<ServedStream>)> {
        self.by_name.get(name).map(|(key, stream)| (*key, stream))
    }

    /// Takes a stream in.
    ///
    /// # Panics
    /// There is one of its name.
    pub(super) fn insert(&mut self, stream: ServedStream, key: u64) -> Arc<str> {
        let stream = Arc::new(stream);
        for subject in &stream.subjects {
            let keyed = Keyed { key, stream: stream.clone() };
            self.subjects.insert(subject.as_bytes(), None, keyed);
        }
        self.reserved[usize::from(stream.is_memory)] += u128::from(stream.max_bytes);
        let name: Arc<str> = stream.name.as_str().into();
        self.names.insert(name.clone());
        let before = self.by_name.insert(name.clone(), (key, stream));
        assert!(before.is_none(), "a stream is taken out before another one of its name comes");
        name
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<ServedStream>> {
        let (key, stream) = self.by_name.remove(name)?;
        self.names.remove(name);
        let reserved = &mut self.reserved[usize::from(stream.is_memory)];
        *reserved = reserved.checked_sub(u128::from(stream.max_bytes)).expect("it was counted");
        let keyed = Keyed { key, stream: stream.clone() };
        for subject in &stream.subjects {
            self.subjects.remove(subject.as_bytes(), None, &keyed);
        }
        Some(stream)
    }

    /// The one that takes what is published to this subject.
    pub(super) fn of_subject(&self, subject: &[u8]) -> Option<&Arc<ServedStream>> {
        self.subjects.first_match(subject).map(|one| &one.stream)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ServedStream>> {
        self.names.iter().map(|name| &self.by_name[name].1)
    }

    /// At most `max` of those whose names come behind `after`, by name.
    pub(super) fn part(&self, after: Option<&str>, max: usize) -> Vec<Arc<ServedStream>> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<str, _>((behind, Bound::Unbounded)).take(max);
        names.map(|name| self.by_name[name].1.clone()).collect()
    }

    /// Bytes that those of this storage reserve, but for the one of the name `except`.
    pub(super) fn reserved(&self, is_memory: bool, except: &str) -> u128 {
        let own = self.get(except).map(|(_, stream)| stream);
        let own = own.filter(|stream| stream.is_memory == is_memory);
        self.reserved[usize::from(is_memory)] - own.map_or(0, |own| u128::from(own.max_bytes))
    }

    /// As [`super::Served::overlaps`], of these.
    pub(super) fn overlaps(
        &self,
        search: &mut OverlapSearch<'_>,
        steps: &mut usize,
        except: &str,
    ) -> SearchOutcome {
        let own = self.get(except).map(|(key, _)| key);
        search.search(&self.subjects, steps, |_, one| Some(one.key) != own)
    }
}
