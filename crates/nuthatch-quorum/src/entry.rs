//! Entries of a log and the chain that they form.

use crate::rules::Rule;
use crate::timing::{BATCH_MAX, WINDOW_BYTES};
use crate::types::{Epoch, Incarnation, Lsn, Position, Sum, WallTime, mix};

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

/// The entries of one directory in memory: dense from 1, some of them possibly damaged.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    slots: Vec<Option<Entry>>,
    damaged: u32,
    starts: Vec<EpochStart>,
}

impl Chain {
    /// Number of the last entry; 0: none.
    #[must_use]
    pub fn last(&self) -> Lsn {
        Lsn(self.slots.len() as u64)
    }

    /// Position of the log.
    #[must_use]
    pub fn position(&self) -> Position {
        // Entries of an epoch lie behind its start, which may itself be damaged.
        let accepted = self.get(self.last()).map_or(Epoch(0), |entry| entry.epoch);
        Position { accepted, lsn: self.last() }
    }

    /// The `Start` entries that can be read, in order.
    #[must_use]
    pub fn starts(&self) -> &[EpochStart] {
        &self.starts
    }

    /// The entry `lsn`; none when it is damaged, 0 or behind the end.
    #[must_use]
    pub fn get(&self, lsn: Lsn) -> Option<&Entry> {
        let index = usize::try_from(lsn.0.checked_sub(1)?).ok()?;
        self.slots.get(index)?.as_ref()
    }

    /// Sum of the entry `lsn`: 0 for the place before the first, none when it is damaged or absent.
    #[must_use]
    pub fn sum_at(&self, lsn: Lsn) -> Option<Sum> {
        if lsn == Lsn(0) { Some(Sum(0)) } else { self.get(lsn).map(|entry| entry.sum) }
    }

    /// The first entry that cannot be read.
    #[must_use]
    pub fn first_damaged(&self) -> Option<Lsn> {
        if self.damaged == 0 {
            return None;
        }
        let at = self.slots.iter().position(Option::is_none).expect("as counted");
        Some(Lsn(at as u64 + 1))
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
        self.note_start(&entry);
        self.slots.push(Some(entry));
    }

    /// Puts a damaged entry behind the last one.
    pub fn push_damaged(&mut self) {
        self.slots.push(None);
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
        let index = usize::try_from(entry.lsn.0 - 1).expect("an index");
        assert!(self.slots[index].is_none(), "only damage is healed");
        self.slots[index] = Some(entry);
        self.damaged -= 1;
        self.note_start(&entry);
    }

    /// Notes that an entry below the last one cannot be read any more; whether it could be.
    ///
    /// # Panics
    /// For the last entry: it says how far the log goes, so the directory has to be read again.
    pub fn damage(&mut self, lsn: Lsn) -> bool {
        assert!(lsn < self.last(), "the last entry ends the log");
        let index = usize::try_from(lsn.0 - 1).expect("an index");
        let readable = self.slots[index].take().is_some();
        self.damaged += u32::from(readable);
        readable
    }

    /// Takes everything behind `last` out of the chain.
    pub fn cut(&mut self, last: Lsn) -> Vec<Option<Entry>> {
        let index = usize::try_from(last.0).expect("an index").min(self.slots.len());
        let tail = self.slots.split_off(index);
        self.damaged -= tail.iter().filter(|slot| slot.is_none()).count() as u32;
        self.starts.retain(|start| start.lsn <= last);
        tail
    }

    fn note_start(&mut self, entry: &Entry) {
        if let Body::Start { .. } = entry.body {
            let start = EpochStart { epoch: entry.epoch, lsn: entry.lsn };
            let at = self.starts.partition_point(|start| start.lsn < entry.lsn);
            // One that was damaged in this process is still known.
            if self.starts.get(at) != Some(&start) {
                self.starts.insert(at, start);
            }
        }
    }
}

/// The last entry that two logs have in common, told from where their epochs began: entries of one
/// epoch have one writer, so they are equal as far as both logs have them.
#[must_use]
pub fn common(a: (&[EpochStart], Lsn), b: (&[EpochStart], Lsn)) -> Lsn {
    let end = |starts: &[EpochStart], index: usize, last: Lsn| {
        starts.get(index + 1).map_or(last, |next| next.lsn.before())
    };
    let same = a.0.iter().zip(b.0).take_while(|(x, y)| x == y).count();
    match same.checked_sub(1) {
        None => Lsn(0),
        Some(index) => end(a.0, index, a.1).min(end(b.0, index, b.1)),
    }
}

#[cfg(test)]
mod tests;
