//! An entry that a candidate lacks and others have trimmed: only files can replace it.

use crate::entry::Chain;
use crate::rules::Rule;
use crate::types::{Lsn, Sum};

/// Such an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lacking {
    pub(crate) lsn: Lsn,
    pub(crate) sum: Sum,
}

impl Lacking {
    /// True if a log lacks it still. One that has another entry in its place does: a former owner's log ends in what
    /// only that has written.
    pub(crate) fn is_lacked_by(self, log: &Chain) -> bool {
        if !Rule::LacksByContent.holds() {
            return log.base().lsn < self.lsn && log.get(self.lsn).is_none();
        }
        log.base().lsn <= self.lsn && log.sum_at(self.lsn) != Some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Base, Body, Entry};
    use crate::types::{Epoch, WallTime};

    /// A log of two entries, the second of which has this payload.
    fn log(payload: u64) -> Chain {
        let mut log = Chain::default();
        for (lsn, payload) in [(1, 7), (2, payload)] {
            let prev = log.sum_at(log.last()).expect("undamaged");
            let body = Body::Frame { payload, len: 10 };
            log.push(Entry::new(Lsn(lsn), Epoch(1), prev, Lsn(0), WallTime(0), body));
        }
        log
    }

    fn lacking(lsn: u64, of: &Chain) -> Lacking {
        Lacking { lsn: Lsn(lsn), sum: of.sum_at(Lsn(lsn)).expect("undamaged") }
    }

    /// Where a log begins of which both entries are trimmed.
    fn base(of: &Chain) -> Base {
        Base { lsn: Lsn(2), sum: lacking(2, of).sum, ..Base::default() }
    }

    #[test]
    fn an_entry_is_lacked_until_it_or_something_behind_it_is_here() {
        let whole = log(1);
        let lacking = lacking(2, &whole);
        let mut short = log(1);
        short.cut(Lsn(1));
        assert!(lacking.is_lacked_by(&short));
        assert!(!lacking.is_lacked_by(&whole));
        let mut trimmed = whole.clone();
        trimmed.trim(base(&whole));
        assert!(!lacking.is_lacked_by(&trimmed));
    }

    #[test]
    fn another_entry_in_its_place_does_not_replace_it() {
        assert!(lacking(2, &log(1)).is_lacked_by(&log(2)));
    }

    #[test]
    fn another_trimmed_entry_does_not_replace_it() {
        let (whole, other) = (log(1), log(2));
        assert!(lacking(2, &whole).is_lacked_by(&Chain::behind(base(&other))));
        assert!(!lacking(2, &whole).is_lacked_by(&Chain::behind(base(&whole))));
    }
}
