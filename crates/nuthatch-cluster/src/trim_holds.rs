//! Entries that a peer will need after it has been brought files: the journal is not trimmed past them meanwhile.
//!
//! Without that a peer that is brought files while much is published finds, once it has them, that the entries
//! behind them are trimmed, too, and begins anew for ever.

use nuthatch_quorum::types::Lsn;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after the files have gone the entries behind them are kept: the peer puts the files in place and catches
/// up.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// Holds that may go on after their files have gone, beside those of connections that are open.
const HOLDS_MAX: usize = 64;

/// Which entries are held, and by whom.
#[derive(Debug, Default)]
pub struct TrimHolds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    holds: Vec<Hold>,
    next: u64,
}

#[derive(Debug)]
struct Hold {
    id: u64,
    /// What lies behind this entry is held.
    behind: Lsn,
    /// When it ends; none while the files are on their way.
    until: Option<Instant>,
}

/// The entries behind one are held while this lives, and for a while afterwards.
pub struct TrimHold {
    holds: Arc<TrimHolds>,
    id: u64,
}

impl TrimHolds {
    /// Holds what lies behind an entry.
    #[must_use]
    pub fn hold(self: &Arc<Self>, behind: Lsn) -> TrimHold {
        let mut held = self.0.lock();
        held.prune(Instant::now());
        let id = held.next;
        held.next += 1;
        held.holds.push(Hold { id, behind, until: None });
        TrimHold { holds: Arc::clone(self), id }
    }

    /// The entry up to which nobody minds that the journal is trimmed; none if nothing is held.
    #[must_use]
    pub fn free_to(&self, now: Instant) -> Option<Lsn> {
        let mut held = self.0.lock();
        held.prune(now);
        held.holds.iter().map(|hold| hold.behind).min()
    }
}

impl Held {
    fn prune(&mut self, now: Instant) {
        self.holds.retain(|hold| hold.until.is_none_or(|until| now < until));
        // A peer that asks again and again ends those that it had longest.
        let mut beyond = self.holds.len().saturating_sub(HOLDS_MAX);
        self.holds.retain(|hold| {
            let goes = hold.until.is_some() && beyond > 0;
            beyond -= usize::from(goes);
            !goes
        });
    }
}

impl Drop for TrimHold {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock();
        let mine = held.holds.iter_mut().find(|hold| hold.id == self.id);
        mine.expect("it lives as long as this").until = Some(Instant::now() + AFTERWARDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_entry_is_held_and_for_a_while_afterwards() {
        let holds = Arc::new(TrimHolds::default());
        let now = Instant::now();
        assert_eq!(holds.free_to(now), None);
        let (early, late) = (holds.hold(Lsn(5)), holds.hold(Lsn(9)));
        assert_eq!(holds.free_to(now), Some(Lsn(5)));
        drop(early);
        assert_eq!(holds.free_to(Instant::now()), Some(Lsn(5)), "the peer catches up");
        assert_eq!(holds.free_to(Instant::now() + AFTERWARDS), Some(Lsn(9)));
        drop(late);
        assert_eq!(holds.free_to(Instant::now() + 2 * AFTERWARDS), None);
        (0..10 * HOLDS_MAX as u64).for_each(|lsn| drop(holds.hold(Lsn(lsn))));
        assert!(holds.0.lock().holds.len() <= HOLDS_MAX + 1, "a peer that asks again and again");
    }
}
