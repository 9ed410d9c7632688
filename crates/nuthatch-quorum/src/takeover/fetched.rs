//! What a candidate fetches of the logs of others.

use crate::entry::Entry;
use crate::types::Lsn;

/// What a keeper has sent of its log, window by window.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetched {
    /// What is intact of it.
    pub(super) entries: Vec<Entry>,
    /// The first entry of the next window; none when that was the last.
    pub(super) next: Option<Lsn>,
}

impl Fetched {
    /// Nothing yet; the first window begins with `from`.
    pub(super) fn behind(from: Lsn) -> Self {
        Self { entries: vec![], next: Some(from) }
    }

    /// With another window, where that is the next one of a log whose entries begin behind `base`. `last` is the
    /// last entry that is wanted.
    pub(super) fn and(
        mut self,
        base: Lsn,
        first: Lsn,
        window: &[Option<Entry>],
        last: Lsn,
    ) -> Self {
        if self.next.map(|next| next.max(base.next())) != Some(first) {
            return self;
        }
        let good = window.iter().flatten().filter(|entry| entry.is_intact());
        self.entries.extend(good.copied());
        let next = Lsn(first.0 + window.len() as u64);
        self.next = (next <= last && !window.is_empty()).then_some(next);
        self
    }

    /// The entry `lsn`. Entries stand in the order of their numbers.
    pub(super) fn get(&self, lsn: Lsn) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&lsn, |entry| entry.lsn).ok()?;
        Some(&self.entries[at])
    }
}
