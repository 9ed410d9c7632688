//! The steps by which nodes change whose catalog is outside them, one node's part of them: reads and conditional creations in
//! the store, in an order that any other node may come between.

use crate::catalog::{CatalogError, NumberedCatalog};
use crate::stored_roster::StoredRoster;
use nuthatch_catalog_group::roster::Due;
use nuthatch_catalog_group::{Change, LogCatalog, LogNumber, Protocol, Roster};
use nuthatch_log::env::Disk;
use parking_lot::Mutex;
use std::sync::Arc;

/// The catalog of a log, and the disk that remembers how far it was seen.
pub type LogWay = (Arc<Mutex<NumberedCatalog>>, Arc<dyn Disk>);

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// It is made, by this call or before.
    Done,
    /// Another change came first.
    Late,
    /// It cannot be made: why.
    Refused(String),
}

/// The roster and the logs that follow it.
pub struct StoredSteps {
    roster: StoredRoster,
    /// The catalogs of all logs, in the order of their numbers.
    ways: Vec<LogWay>,
}

impl StoredSteps {
    /// Those of a roster that was read, and of all logs.
    #[must_use]
    pub fn new(roster: StoredRoster, ways: Vec<LogWay>) -> Self {
        Self { roster, ways }
    }

    /// The roster as it is now.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn read_roster(&mut self) -> Result<&Roster, CatalogError> {
        self.roster.catch_up()
    }

    /// The roster as it was read last, and what people are to be told of changes that were read since this was asked last.
    pub fn known(&mut self) -> (&Roster, Vec<String>) {
        let told = self.roster.take_told();
        (self.roster.roster(), told)
    }

    /// What is to be done next for what was begun. The logs are read after the roster was.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn due(&mut self) -> Result<Due, CatalogError> {
        let logs = self.read_logs()?;
        let roster = self.roster.roster();
        // Programs that do not know it could not read that a log follows a roster.
        let begun = roster.active >= Protocol::ROSTER_IN_STORE;
        Ok(if begun { roster.due(&logs) } else { Due::Nothing })
    }

    /// Does it, unless another node has.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn take(&mut self, due: Due) -> Result<(), CatalogError> {
        match due {
            Due::Nothing => Ok(()),
            Due::Follow(logs) => self.follow(&logs),
            Due::End(change) => self.make(&change).map(drop),
        }
    }

    /// Makes a change, if it can be made.
    ///
    /// # Errors
    /// [`CatalogError`]: whether it was made is not known. To ask again does no harm.
    pub fn make(&mut self, change: &Change) -> Result<Made, CatalogError> {
        self.roster.catch_up()?;
        self.make_next(change)
    }

    /// The same of the roster that was read last.
    ///
    /// # Errors
    /// As above.
    pub fn make_next(&mut self, change: &Change) -> Result<Made, CatalogError> {
        let roster = self.roster.roster().clone();
        if roster.has(change) {
            return Ok(Made::Done);
        }
        if let Err(why) = check(&roster, change) {
            return Ok(Made::Refused(why));
        }
        if change.is_of_copies() {
            // What holds of the logs when they have followed this roster does not cease to hold before they follow a later
            // one, which is another roster than the one that this change goes on from.
            let logs = self.read_logs()?;
            if self.roster.roster() != &roster {
                return Ok(Made::Late);
            }
            self.follow(&roster.to_follow(change, &logs))?;
            let logs = self.read_logs()?;
            let is_wished = |log: &LogCatalog| log.is_wished(&roster.keepers());
            if self.roster.roster() != &roster || !logs.iter().all(is_wished) {
                return Ok(Made::Late);
            }
            if let Err(why) = roster.check_with(change, &logs) {
                return Ok(Made::Refused(why.to_string()));
            }
        }
        Ok(if self.roster.make(change)? { Made::Done } else { Made::Late })
    }

    /// All logs as they are now. One that has followed a later roster than was read says that there is one.
    fn read_logs(&mut self) -> Result<Vec<LogCatalog>, CatalogError> {
        let read = |(way, disk): &LogWay| way.lock().look(&**disk);
        let logs = self.ways.iter().map(read).collect::<Result<Vec<LogCatalog>, CatalogError>>()?;
        let Some(last) = logs.iter().max_by_key(|log| log.followed()) else { return Ok(logs) };
        if last.followed() > self.roster.roster().changes {
            let (now, followed) = (self.roster.catch_up()?.changes, last.followed());
            if followed > now {
                return Err(CatalogError::RosterWentBack { now, followed, log: last.number().0 });
            }
        }
        Ok(logs)
    }

    fn follow(&self, logs: &[LogNumber]) -> Result<(), CatalogError> {
        let roster = self.roster.roster();
        let keepers = roster.keepers();
        for log in logs {
            let (way, disk) = &self.ways[log.index()];
            way.lock().follow((roster.changes, &keepers), &**disk)?;
        }
        Ok(())
    }
}

/// Whether a change can be made that was not made before, whatever the logs have.
pub(crate) fn check(roster: &Roster, change: &Change) -> Result<(), String> {
    roster.check(change).map_err(|why| why.to_string())?;
    match roster.active >= Protocol::ROSTER_IN_STORE || matches!(change, Change::Finalize { .. }) {
        true => Ok(()),
        false => Err(not_finalized(roster.active)),
    }
}

/// What people are told of a cluster whose nodes do not change yet: nodes that do not know how would not see it.
pub(crate) fn not_finalized(active: Protocol) -> String {
    format!(
        "the cluster speaks protocol {active}, and with a catalog outside its nodes these change from protocol {} on: when all \
         nodes run this program, `nuthatch cluster finalize` has them speak it",
        Protocol::ROSTER_IN_STORE
    )
}
