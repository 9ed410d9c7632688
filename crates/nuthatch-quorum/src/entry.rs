//! Entries of a log and the chain that they form.

use crate::rules::Rule;
use crate::timing::{BATCH_MAX, WINDOW_BYTES};
use crate::types::{Epoch, Incarnation, Lsn, Position, Sum, WallTime, mix};
use std::collections::VecDeque;

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// The first entry of an epoch: its owner begins here.
    Start {
        /// The owner's disk.
        owner: Incarnation,
    },
    /// A frame (one group commit) or an operation on files; only a hash of it is kept here.
    Frame {
        /// Hash of the payload.
        payload: u64,
        /// Its length in bytes: what windows are counted in.
        len: u32,
    },
}

/// One operation on the log: on disk a frame of a segment or a record of the journal `ops`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Its number.
    pub lsn: Lsn,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// Sum of the entry before it.
    pub prev: Sum,
    /// What was committed when it was written: entries up to here are no torn tail (A2).
    pub commit: Lsn,
    /// The owner's wall clock when it was written, and never less than that of the entry before.
    pub stamp: WallTime,
    /// What it holds.
    pub body: Body,
    /// Sum of all of the above.
    pub sum: Sum,
}

impl Entry {
    /// An entry behind one with the sum `prev`.
    #[must_use]
    pub fn new(
        lsn: Lsn,
        epoch: Epoch,
        prev: Sum,
        commit: Lsn,
        stamp: WallTime,
        body: Body,
    ) -> Self {
        let mut entry = Self { lsn, epoch, prev, commit, stamp, body, sum: Sum(0) };
        entry.sum = entry.computed();
        entry
    }

    fn computed(&self) -> Sum {
        let (kind, value) = match self.body {
            Body::Start { owner } => (1, mix(owner.0 as u64, (owner.0 >> 64) as u64)),
            Body::Frame { payload, len } => (2, mix(payload, u64::from(len))),
        };
        let epoch = u64::from(self.epoch.0);
        let words = [self.lsn.0, epoch, self.prev.0, self.commit.0, self.stamp.0, kind, value];
        Sum(words.into_iter().fold(0x6e75_7468, mix))
    }

    /// How much of a window it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.body {
            Body::Start { .. } => 0,
            Body::Frame { len, .. } => u64::from(len),
        }
    }

    /// True if the content is what the sum was made of.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.sum == self.computed()
    }
}

/// Where an epoch began: the number of its `Start` entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// Number of its first entry.
    pub lsn: Lsn,
}

/// Where the entries of a directory begin: those up to here are trimmed. They are committed, and what they made
/// is in the directory's files, durably. The default is a log of which nothing was trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Base {
    /// The last trimmed entry; 0: none.
    pub lsn: Lsn,
    /// Its sum.
    pub sum: Sum,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its stamp.
    pub stamp: WallTime,
    /// The first entry of its epoch.
    pub start: Lsn,
}

impl Base {
    fn epoch_start(&self) -> Option<EpochStart> {
        (self.lsn > Lsn(0)).then_some(EpochStart { epoch: self.epoch, lsn: self.start })
    }
}

/// How far a log goes and where its epochs begin: enough to tell where it parts from another one.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    /// The last trimmed entry: committed, like all before it.
    pub base: Lsn,
    /// Where its epochs begin; of those before the base's epoch nothing is known.
    pub starts: &'a [EpochStart],
    /// The last entry.
    pub last: Lsn,
}

/// The entries of one directory in memory: dense from behind its base, some of them possibly damaged.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    base: Base,
    slots: VecDeque<Option<Entry>>,
    damaged: u32,
    starts: Vec<EpochStart>,
    known_commit: Lsn,
}

impl Chain {
    /// A log behind `base`, without entries.
    #[must_use]
    pub fn behind(base: Base) -> Self {
        let starts = base.epoch_start().into_iter().collect();
        Self { base, starts, known_commit: base.lsn, ..Self::default() }
    }

    /// Where the entries begin.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base
    }

    /// An entry that is committed, as far as the entries themselves tell: each frame says what its owner had
    /// committed. The `Start` of an epoch says nothing: that epoch may never have been served.
    #[must_use]
    pub fn known_commit(&self) -> Lsn {
        self.known_commit
    }

    /// How far the log goes and where its epochs begin.
    #[must_use]
    pub fn extent(&self) -> Extent<'_> {
        Extent { base: self.base.lsn, starts: &self.starts, last: self.last() }
    }

    /// The base of a log that is trimmed up to an entry; none where that entry, or where its epoch began, is not
    /// known.
    #[must_use]
    pub fn base_at(&self, lsn: Lsn) -> Option<Base> {
        if lsn == self.base.lsn {
            return Some(self.base);
        }
        let entry = self.get(lsn)?;
        let start = self.starts.iter().find(|start| start.epoch == entry.epoch)?;
        let Entry { epoch, sum, stamp, .. } = *entry;
        Some(Base { lsn, sum, epoch, stamp, start: start.lsn })
    }

    /// Takes the entries up to `base` out of the chain.
    ///
    /// # Panics
    /// When that is behind the end.
    pub fn trim(&mut self, base: Base) {
        assert!(base.lsn <= self.last(), "an entry of the log");
        let count = usize::try_from(base.lsn.0.saturating_sub(self.base.lsn.0)).expect("a size");
        let gone = self.slots.drain(..count).filter(Option::is_none).count();
        self.damaged -= u32::try_from(gone).expect("as counted");
        self.starts.retain(|start| start.lsn > base.lsn);
        self.starts.splice(..0, base.epoch_start());
        self.base = base;
        self.known_commit = self.known_commit.max(base.lsn);
    }

    /// Place of an entry among those that are not trimmed.
    fn index(&self, lsn: Lsn) -> Option<usize> {
        usize::try_from(lsn.0.checked_sub(self.base.lsn.0 + 1)?).ok()
    }

    /// Number of the last entry; 0: none.
    #[must_use]
    pub fn last(&self) -> Lsn {
        Lsn(self.base.lsn.0 + self.slots.len() as u64)
    }

    /// Position of the log.
    #[must_use]
    pub fn position(&self) -> Position {
        // Entries of an epoch lie behind its start, which may itself be damaged.
        let accepted = self.epoch_at(self.last()).unwrap_or_default();
        Position { accepted, lsn: self.last() }
    }

    /// Epoch of an entry that can be read, or of the last trimmed one.
    #[must_use]
    pub fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        if lsn == self.base.lsn { Some(self.base.epoch) } else { self.get(lsn).map(|e| e.epoch) }
    }

    /// Stamp of an entry that can be read, or of the last trimmed one.
    #[must_use]
    pub fn stamp_at(&self, lsn: Lsn) -> Option<WallTime> {
        if lsn == self.base.lsn { Some(self.base.stamp) } else { self.get(lsn).map(|e| e.stamp) }
    }

    /// The `Start` entries that can be read, in order.
    #[must_use]
    pub fn starts(&self) -> &[EpochStart] {
        &self.starts
    }

    /// The entry `lsn`; none when it is trimmed, damaged, 0 or behind the end.
    #[must_use]
    pub fn get(&self, lsn: Lsn) -> Option<&Entry> {
        self.slots.get(self.index(lsn)?)?.as_ref()
    }

    /// Sum of the entry `lsn`, also of the last trimmed one, which is 0 before the first entry of all; none when
    /// it is trimmed before that, damaged or absent.
    #[must_use]
    pub fn sum_at(&self, lsn: Lsn) -> Option<Sum> {
        if lsn == self.base.lsn { Some(self.base.sum) } else { self.get(lsn).map(|e| e.sum) }
    }

    /// The first entry that cannot be read.
    #[must_use]
    pub fn first_damaged(&self) -> Option<Lsn> {
        if self.damaged == 0 {
            return None;
        }
        let at = self.slots.iter().position(Option::is_none).expect("as counted");
        Some(Lsn(self.base.lsn.0 + at as u64 + 1))
    }

    /// A window of entries from one on, none for those that are damaged: as many as one message may hold.
    #[must_use]
    pub fn window(&self, from: Lsn, last: Lsn) -> Vec<Option<Entry>> {
        let mut bytes = 0;
        let fits = |entry: &Option<Entry>| {
            let len = entry.map_or(0, |entry| entry.bytes());
            let first = bytes == 0;
            bytes += len;
            first || bytes <= WINDOW_BYTES || !Rule::Window.holds()
        };
        let all = (from.0..=last.0).map(|lsn| self.get(Lsn(lsn)).copied());
        all.take(BATCH_MAX).take_while(fits).collect()
    }

    /// The last entry up to which everything can be read.
    #[must_use]
    pub fn readable_to(&self) -> Lsn {
        self.first_damaged().map_or(self.last(), Lsn::before)
    }

    /// Puts an entry behind the last one.
    ///
    /// # Panics
    /// When it does not belong there: who receives entries checks that first.
    pub fn push(&mut self, entry: Entry) {
        assert_eq!(entry.lsn, self.last().next(), "an entry out of its place");
        self.note(&entry);
        self.slots.push_back(Some(entry));
    }

    /// Puts a damaged entry behind the last one.
    pub fn push_damaged(&mut self) {
        self.slots.push_back(None);
        self.damaged += 1;
    }

    /// True if an entry is, as far as its neighbours tell, the one that belongs at its place.
    #[must_use]
    pub fn fits(&self, entry: &Entry) -> bool {
        let behind = self.get(entry.lsn.next()).is_none_or(|next| next.prev == entry.sum);
        behind && self.sum_at(entry.lsn.before()).is_none_or(|sum| sum == entry.prev)
    }

    /// Replaces a damaged entry.
    ///
    /// # Panics
    /// When the entry is not damaged: what can be read is never overwritten.
    pub fn heal(&mut self, entry: Entry) {
        let index = self.index(entry.lsn).expect("an entry that is not trimmed");
        assert!(self.slots[index].is_none(), "only damage is healed");
        self.slots[index] = Some(entry);
        self.damaged -= 1;
        self.note(&entry);
    }

    /// Notes that an entry below the last one cannot be read any more; whether it could be.
    ///
    /// # Panics
    /// For the last entry: it says how far the log goes, so the directory has to be read again.
    pub fn damage(&mut self, lsn: Lsn) -> bool {
        assert!(lsn < self.last(), "the last entry ends the log");
        let readable = self.index(lsn).is_some_and(|index| self.slots[index].take().is_some());
        self.damaged += u32::from(readable);
        readable
    }

    /// Takes everything behind `last` out of the chain.
    ///
    /// # Panics
    /// When trimmed entries would have to go.
    pub fn cut(&mut self, last: Lsn) -> VecDeque<Option<Entry>> {
        let index = self.index(last.next()).expect("what is trimmed is never cut");
        let tail = self.slots.split_off(index.min(self.slots.len()));
        self.damaged -= tail.iter().filter(|slot| slot.is_none()).count() as u32;
        self.starts.retain(|start| start.lsn <= last);
        tail
    }

    fn note(&mut self, entry: &Entry) {
        match entry.body {
            Body::Frame { .. } => self.known_commit = self.known_commit.max(entry.commit),
            Body::Start { .. } => {
                let start = EpochStart { epoch: entry.epoch, lsn: entry.lsn };
                let at = self.starts.partition_point(|start| start.lsn < entry.lsn);
                // One that was damaged in this process is still known.
                if self.starts.get(at) != Some(&start) {
                    self.starts.insert(at, start);
                }
            }
        }
    }
}

/// The last entry that two logs have in common, told from where their epochs began. Where both have the same
/// `Start` all before it is equal, since an epoch starts at one sum only; and entries of one epoch have one writer,
/// so they are equal as far as both logs have them. What is trimmed in both is committed, hence equal.
#[must_use]
pub fn common(a: Extent<'_>, b: Extent<'_>) -> Lsn {
    let end = |log: Extent<'_>, start: &EpochStart| {
        let next = log.starts.iter().find(|other| other.lsn > start.lsn);
        next.map_or(log.last, |next| next.lsn.before())
    };
    let shared = a.starts.iter().rev().find(|start| b.starts.contains(start));
    let told = shared.map_or(Lsn(0), |start| end(a, start).min(end(b, start)));
    told.max(a.base.min(b.base))
}

#[cfg(test)]
mod tests;
