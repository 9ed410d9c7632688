//! What the cores of a log notice, counted, and when the catalog has answered them: for who watches by numbers.

use crate::catalog_error::CatalogError;
use crate::clock::now;
use nuthatch_quorum::effect::Alarm;
use nuthatch_quorum::types::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noticed {
    Away,
    BeganAnew,
    CatalogWentBack,
    Damaged,
    Diverged,
    EntriesPutAside,
    ForeignDisk,
    LeftOut,
    LeftUndrained,
    /// A range of a file was damaged, and another node's was put in its place.
    RangeHealed,
    /// A range of a file is damaged, and no other node that is there has it otherwise.
    RangeNotHealed,
    SyncFailed,
    Unreadable,
    WriteFailed,
    WrongClock,
}

/// By what is counted, its name, which does not change.
const NAMES: [&str; 15] = [
    "away",
    "began_anew",
    "catalog_went_back",
    "damaged",
    "diverged",
    "entries_put_aside",
    "foreign_disk",
    "left_out",
    "left_undrained",
    "range_healed",
    "range_not_healed",
    "sync_failed",
    "unreadable",
    "write_failed",
    "wrong_clock",
];

const _: () = assert!(NAMES.len() == Noticed::WrongClock as usize + 1, "each has a name");

/// Of a log, since the process began.
pub(crate) struct Counts {
    noticed: [AtomicU64; NAMES.len()],
    catalog_failures: AtomicU64,
    /// When the catalog answered last, or the log began here, by the clock of the cores.
    catalog_at: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let (noticed, catalog_failures) = Default::default();
        Self { noticed, catalog_failures, catalog_at: AtomicU64::new(now().0) }
    }
}

impl Counts {
    pub fn note(&self, what: Noticed) {
        self.noticed[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_alarm(&self, alarm: &Alarm) {
        self.note(noticed(alarm));
    }

    /// Notes what came of a call to the catalog.
    pub fn note_catalog(&self, error: Option<&CatalogError>) {
        match error {
            None => self.catalog_at.store(now().0, Ordering::Relaxed),
            Some(error) => {
                self.catalog_failures.fetch_add(1, Ordering::Relaxed);
                if matches!(error, CatalogError::SetBack { .. }) {
                    self.note(Noticed::CatalogWentBack);
                }
            }
        }
    }

    pub fn noticed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.noticed.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// For how long the catalog has answered nothing, and how many calls had no success.
    pub fn catalog(&self) -> (Duration, u64) {
        let silent = now().since(Time(self.catalog_at.load(Ordering::Relaxed)));
        (Duration::from_micros(silent), self.catalog_failures.load(Ordering::Relaxed))
    }
}

fn noticed(alarm: &Alarm) -> Noticed {
    match alarm {
        Alarm::PossiblyAcknowledged { .. } => Noticed::EntriesPutAside,
        Alarm::SyncFailed { .. } => Noticed::SyncFailed,
        Alarm::WriteFailed { .. } => Noticed::WriteFailed,
        Alarm::Damaged { .. } => Noticed::Damaged,
        Alarm::CatalogWentBack { .. } => Noticed::CatalogWentBack,
        Alarm::ForeignDisk { .. } => Noticed::ForeignDisk,
        Alarm::WrongClock { .. } => Noticed::WrongClock,
        Alarm::Away { .. } => Noticed::Away,
        Alarm::LeftUndrained { .. } => Noticed::LeftUndrained,
        Alarm::Unreadable { .. } => Noticed::Unreadable,
        Alarm::BeganAnew { .. } => Noticed::BeganAnew,
        Alarm::LeftOut { .. } => Noticed::LeftOut,
        Alarm::Diverged { .. } => Noticed::Diverged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_quorum::store::StoreError;
    use nuthatch_quorum::types::{Epoch, Lsn, NodeId};

    #[test]
    fn each_alarm_has_its_count() {
        let (node, epoch, lsn) = (NodeId(2), Epoch(6), Lsn(9));
        let alarms = [
            Alarm::PossiblyAcknowledged { node, first: lsn, last: lsn },
            Alarm::SyncFailed { node },
            Alarm::WriteFailed { node, why: StoreError::Full },
            Alarm::Damaged { node, lsn },
            Alarm::CatalogWentBack { node },
            Alarm::ForeignDisk { node, of: node },
            Alarm::WrongClock { node },
            Alarm::Away { node, epoch },
            Alarm::LeftUndrained { to: node, epoch },
            Alarm::Unreadable { epoch, lsn },
            Alarm::BeganAnew { epoch, left: 1, of: 3 },
            Alarm::LeftOut { node, last: lsn },
            Alarm::Diverged { node, lsn },
        ];
        let counts = Counts::default();
        alarms.iter().for_each(|alarm| counts.note_alarm(alarm));
        [Noticed::RangeHealed, Noticed::RangeNotHealed]
            .into_iter()
            .for_each(|what| counts.note(what));
        counts.note_catalog(Some(&CatalogError::SetBack { key: "a".to_owned() }));
        let expected = |name| 1 + u64::from(name == "catalog_went_back");
        counts.noticed().for_each(|(name, count)| assert_eq!(count, expected(name), "{name}"));
        let count =
            |name| counts.noticed().find(|(known, _)| *known == name).map(|(_, count)| count);
        counts.note(Noticed::LeftOut);
        assert_eq!((count("left_out"), count("left_undrained")), (Some(2), Some(1)));
        assert_eq!(counts.catalog().1, 1);
    }
}
