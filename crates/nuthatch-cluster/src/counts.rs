//! What the cores of a log notice, counted, and when the catalog has answered them: for who watches by numbers.

use crate::catalog_error::CatalogError;
use crate::clock::now;
use nuthatch_quorum::effect::Alarm;
use nuthatch_quorum::types::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A range of a file was damaged, and another node's was put in its place.
pub(crate) const HEALED: &str = "range_healed";

/// A range of a file is damaged, and no other node that is there has it otherwise.
pub(crate) const NOT_HEALED: &str = "range_not_healed";

const WENT_BACK: &str = "catalog_went_back";

/// What is counted.
const NOTICED: [&str; 15] = [
    "away",
    "began_anew",
    WENT_BACK,
    "damaged",
    "diverged",
    "entries_put_aside",
    "foreign_disk",
    "left_out",
    "left_undrained",
    HEALED,
    NOT_HEALED,
    "sync_failed",
    "unreadable",
    "write_failed",
    "wrong_clock",
];

/// Of a log, since the process began.
pub(crate) struct Counts {
    noticed: [AtomicU64; NOTICED.len()],
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
    pub fn note(&self, what: &str) {
        let mut all = NOTICED.iter().zip(&self.noticed);
        let (_, count) = all.find(|(name, _)| **name == what).expect("it is one of those");
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_alarm(&self, alarm: &Alarm) {
        self.note(name(alarm));
    }

    /// Notes what came of a call to the catalog.
    pub fn note_catalog(&self, error: Option<&CatalogError>) {
        match error {
            None => self.catalog_at.store(now().0, Ordering::Relaxed),
            Some(error) => {
                self.catalog_failures.fetch_add(1, Ordering::Relaxed);
                if matches!(error, CatalogError::SetBack { .. }) {
                    self.note(WENT_BACK);
                }
            }
        }
    }

    pub fn noticed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NOTICED.into_iter().zip(self.noticed.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// For how long the catalog has answered nothing, and how many calls had no success.
    pub fn catalog(&self) -> (Duration, u64) {
        let silent = now().since(Time(self.catalog_at.load(Ordering::Relaxed)));
        (Duration::from_micros(silent), self.catalog_failures.load(Ordering::Relaxed))
    }
}

fn name(alarm: &Alarm) -> &'static str {
    match alarm {
        Alarm::PossiblyAcknowledged { .. } => "entries_put_aside",
        Alarm::SyncFailed { .. } => "sync_failed",
        Alarm::WriteFailed { .. } => "write_failed",
        Alarm::Damaged { .. } => "damaged",
        Alarm::CatalogWentBack { .. } => WENT_BACK,
        Alarm::ForeignDisk { .. } => "foreign_disk",
        Alarm::WrongClock { .. } => "wrong_clock",
        Alarm::Away { .. } => "away",
        Alarm::LeftUndrained { .. } => "left_undrained",
        Alarm::Unreadable { .. } => "unreadable",
        Alarm::BeganAnew { .. } => "began_anew",
        Alarm::LeftOut { .. } => "left_out",
        Alarm::Diverged { .. } => "diverged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_quorum::types::{Epoch, Lsn, NodeId};

    #[test]
    fn each_alarm_has_its_count() {
        let (node, epoch, lsn) = (NodeId(2), Epoch(6), Lsn(9));
        let alarms = [
            Alarm::PossiblyAcknowledged { node, first: lsn, last: lsn },
            Alarm::SyncFailed { node },
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
        [HEALED, NOT_HEALED].iter().for_each(|what| counts.note(what));
        counts.note_catalog(Some(&CatalogError::SetBack { key: "a".to_owned() }));
        let expected = |name| match name {
            "write_failed" => 0,
            WENT_BACK => 2,
            _ => 1,
        };
        counts.noticed().for_each(|(name, count)| assert_eq!(count, expected(name), "{name}"));
        assert_eq!(counts.catalog().1, 1);
    }
}
