//! Who the nodes of a cluster are, where its catalog is outside them: a series of objects beside those of the logs.
//!
//! `roster/1` is the first change since the founding, and the roster that it makes, `roster/2` the second. Each is created where
//! there is none, so that one change wins each number. The logs follow the rosters by steps of their own series
//! ([`Roster::due`]).

use crate::catalog::{CatalogError, CatalogStore, Founder, Founding, Object, founding_object};
use crate::catalog::{opened, sealed};
use crate::coding::{Malformed, Reader, Writer, malformed};
use bytes::Bytes;
use nuthatch_catalog_group::roster::Enrolled;
use nuthatch_catalog_group::{Change, MemberId, Roster};
use std::sync::Arc;

/// The roster as far as it was read.
pub struct StoredRoster {
    store: Arc<dyn CatalogStore>,
    /// The last object that was read: what comes next stands behind it.
    before: Object,
    roster: Roster,
    /// What people are to be told of changes that were read.
    told: Vec<String>,
}

/// What people are told at a time: who was away for long is told the last of it.
const TOLD_MAX: usize = 64;

fn key(changes: u64) -> String {
    format!("roster/{changes:020}")
}

fn encode(change: &Change, roster: &Roster) -> Bytes {
    let mut to = Writer::default();
    to.bytes(&change.encode());
    roster.put(&mut to);
    sealed(to)
}

fn decode(from: &mut Reader<'_>) -> Result<(Change, Roster), Malformed> {
    let change = Change::decode(from.bytes()?)?;
    let roster = Roster::read(from)?;
    from.end()?;
    Ok((change, roster))
}

/// The reader of objects, for fuzzers.
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok((change, roster)) = decode(&mut Reader(data)) {
        let again = encode(&change, &roster);
        assert_eq!(decode(&mut Reader(&again[..again.len() - 4])), Ok((change, roster)));
    }
}

/// The nodes as they were founded. Which disks they have is said for each log.
#[must_use]
pub fn founded(founding: &Founding) -> Roster {
    let enrolled = |node: &Founder| {
        let (name, member) = (node.name.clone(), MemberId(node.id.0.into()));
        (node.id, Enrolled { name, member, address: None, keeps: true })
    };
    let nodes = founding.nodes.iter().map(enrolled).collect();
    Roster { nodes, active: founding.active, ..Roster::default() }
}

impl StoredRoster {
    /// The roster of a cluster that was founded.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn open(store: Arc<dyn CatalogStore>, founding: &Founding) -> Result<Self, CatalogError> {
        let (before, roster) = (founding_object(founding), founded(founding));
        let mut stored = Self { store, before, roster, told: vec![] };
        stored.catch_up()?;
        stored.told.clear();
        Ok(stored)
    }

    /// What was read last.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// What people are to be told of changes that were read since this was asked last.
    pub fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Reads what was changed meanwhile.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn catch_up(&mut self) -> Result<&Roster, CatalogError> {
        loop {
            let next = self.roster.changes + 1;
            let read = self.store.read_on(&self.before, &key(next))?;
            for object in read {
                // What others have put between is no roster.
                if object.key != key(self.roster.changes + 1) {
                    break;
                }
                self.take(object)?;
            }
            if self.roster.changes < next {
                return Ok(&self.roster);
            }
        }
    }

    fn take(&mut self, object: Object) -> Result<(), CatalogError> {
        let wrong = |why| CatalogError::Object { key: object.key.clone(), why };
        let (change, roster) = decode(&mut opened(&object.key, &object.bytes)?).map_err(wrong)?;
        if roster.changes != self.roster.changes + 1 {
            return Err(wrong(malformed("it has another number than its roster")));
        }
        self.told.extend(roster.told_of(&change));
        let early = self.told.len().saturating_sub(TOLD_MAX);
        self.told.drain(..early);
        (self.roster, self.before) = (roster, object);
        Ok(())
    }

    /// Makes a change that was checked of the roster that was read last; false: another change came first, which is read
    /// then.
    ///
    /// # Errors
    /// [`CatalogError`]: whether it was made is not known.
    ///
    /// # Panics
    /// It cannot be made ([`Roster::check`]), or counts as none.
    pub fn make(&mut self, change: &Change) -> Result<bool, CatalogError> {
        let mut roster = self.roster.clone();
        roster.make(change).expect("as was looked at");
        assert_eq!(roster.changes, self.roster.changes + 1, "{change:?}");
        let object = Object { key: key(roster.changes), bytes: encode(change, &roster) };
        let made = self.store.create(&object, Some(&self.before))?;
        self.catch_up()?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tests::{MemoryStore, founded as founded_in};
    use nuthatch_catalog_group::Draining;
    use nuthatch_quorum::types::NodeId;

    fn join(name: &str, member: u64) -> Change {
        Change::Join { name: name.to_owned(), member: MemberId(member), address: None }
    }

    fn opened_in(store: &Arc<MemoryStore>, founding: &Founding) -> StoredRoster {
        let store = Arc::clone(store) as Arc<dyn CatalogStore>;
        StoredRoster::open(store, founding).expect("no trouble")
    }

    #[test]
    fn changes_are_read_in_pages_and_one_of_two_wins_a_number() {
        let store = Arc::new(MemoryStore::default());
        let founding = founded_in(&store);
        let (mut one, mut other) = (opened_in(&store, &founding), opened_in(&store, &founding));
        assert!(one.make(&join("n4", 4)).expect("no trouble"));
        assert!(!other.make(&join("n5", 5)).expect("no trouble"), "another one came first");
        assert_eq!(other.roster(), one.roster(), "which is read by then");
        assert!(other.make(&join("n5", 5)).expect("no trouble"));
        assert!(other.make(&join("n6", 6)).expect("no trouble"));
        assert_eq!(one.catch_up().expect("no trouble").spares().count(), 3);
        assert_eq!(one.take_told().len(), 3, "people are told of all");
        assert_eq!(one.take_told(), [""; 0], "once");
        let mut late = opened_in(&store, &founding);
        assert_eq!(late.roster(), other.roster());
        assert_eq!(late.take_told(), [""; 0], "that was before it began");
    }

    #[test]
    fn the_same_change_of_two_nodes_is_made_once() {
        let store = Arc::new(MemoryStore::default());
        let founding = founded_in(&store);
        let (mut one, mut other) = (opened_in(&store, &founding), opened_in(&store, &founding));
        assert!(one.make(&join("n4", 4)).expect("no trouble"));
        assert!(other.make(&join("n4", 4)).expect("no trouble"), "it is what both want");
        assert_eq!(other.roster().changes, 1);
    }

    #[test]
    fn a_store_that_was_set_back_is_noticed_where_two_objects_can_be_looked_at() {
        let store = Arc::new(MemoryStore::default());
        let founding = founded_in(&store);
        let mut stored = opened_in(&store, &founding);
        stored.make(&join("n4", 4)).expect("no trouble");
        store.objects.lock().remove(&key(1));
        assert!(matches!(stored.catch_up(), Err(CatalogError::SetBack { .. })));
        assert!(matches!(stored.make(&join("n5", 5)), Err(CatalogError::SetBack { .. })));
    }

    #[test]
    fn an_object_under_another_number_and_a_damaged_one_are_refused() {
        let store = Arc::new(MemoryStore::default());
        let founding = founded_in(&store);
        let mut stored = opened_in(&store, &founding);
        stored.make(&join("n4", 4)).expect("no trouble");
        let first = store.objects.lock()[&key(1)].clone();
        store.objects.lock().insert(key(2), first.clone());
        assert!(matches!(stored.catch_up(), Err(CatalogError::Object { .. })));
        store.objects.lock().insert(key(2), first.slice(1..));
        assert!(matches!(stored.catch_up(), Err(CatalogError::Object { .. })));
    }

    #[test]
    fn who_was_away_for_long_is_told_the_last_of_it() {
        let store = Arc::new(MemoryStore::default());
        let founding = founded_in(&store);
        let (mut one, mut late) = (opened_in(&store, &founding), opened_in(&store, &founding));
        for _ in 0..50 {
            for drain in [true, false] {
                let change = Change::Drain(Draining { node: NodeId(1), drain });
                assert!(one.make(&change).expect("no trouble"));
            }
        }
        one.make(&join("n4", 4)).expect("no trouble");
        late.catch_up().expect("no trouble");
        let told = late.take_told();
        assert_eq!(told.len(), TOLD_MAX);
        assert!(told.last().is_some_and(|last| last.contains("n4 has joined")), "{told:?}");
    }
}
