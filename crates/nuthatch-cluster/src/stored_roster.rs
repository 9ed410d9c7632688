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
        let text = roster.told_of(&change).filter(|_| self.told.len() < TOLD_MAX);
        self.told.extend(text);
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
