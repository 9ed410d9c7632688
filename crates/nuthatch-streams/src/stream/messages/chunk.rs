//! One chunk of a stream's message table.

use super::{CHUNK_MESSAGES, CHUNK_SHIFT, DOOMED_BIT, Entry, WEIGHT_MASK};
use nuthatch_log::Timestamp;
use std::ops::Range;

/// Subject id that marks a dead entry.
const DEAD: u32 = u32::MAX;
/// A settled chunk with fewer live entries than this becomes sparse.
const SPARSE_BELOW: usize = CHUNK_MESSAGES as usize / 4;

/// An entry whose time fits into 32 bits of nanoseconds after the chunk's.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    subject: u32,
    bits: u32,
    delta_ns: u32,
}

/// An entry with a full time.
#[derive(Clone, Copy, Debug)]
struct Wide {
    subject: u32,
    bits: u32,
    at: i64,
}

/// An entry that says itself which sequence it is.
#[derive(Clone, Copy, Debug)]
struct Sparse {
    offset: u32,
    subject: u32,
    bits: u32,
    at: i64,
}

#[derive(Debug)]
enum Entries {
    Narrow(Vec<Narrow>),
    Wide(Vec<Wide>),
    /// Sorted by offset; may hold dead entries.
    Sparse(Vec<Sparse>),
}

/// Where a live entry lies.
struct Place<'a> {
    subject: &'a mut u32,
    bits: &'a mut u32,
    at: i64,
}

impl Place<'_> {
    #[inline]
    const fn entry(&self) -> Entry {
        Entry { subject: *self.subject, bits: *self.bits, timestamp: Timestamp(self.at) }
    }
}

/// Up to [`CHUNK_MESSAGES`] consecutive sequences.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Sequence of the first entry.
    first: u64,
    /// Time of the first entry.
    base: i64,
    live: u32,
    /// Of all that live, in bytes.
    weight: u64,
    /// No entry is added any more.
    settled: bool,
    entries: Entries,
}

impl Chunk {
    /// A chunk whose first message is `seq`, stored at `at`.
    pub(super) const fn starting_at(seq: u64, at: Timestamp) -> Self {
        Self {
            first: seq,
            base: at.0,
            live: 0,
            weight: 0,
            settled: false,
            entries: Entries::Narrow(Vec::new()),
        }
    }

    /// Which chunk of the table it is.
    #[inline]
    pub(super) const fn number(&self) -> u64 {
        self.first >> CHUNK_SHIFT
    }

    /// Appends `entry` as the next sequence after the last one here.
    #[inline]
    pub(super) fn push(&mut self, entry: &Entry) {
        self.live += 1;
        self.weight += entry.weight() as u64;
        if let Entries::Narrow(list) = &mut self.entries
            && let Ok(delta_ns) = u32::try_from(entry.timestamp.0.wrapping_sub(self.base))
        {
            list.push(Narrow { subject: entry.subject, bits: entry.bits, delta_ns });
            return;
        }
        self.push_wide(entry);
    }

    #[cold]
    fn push_wide(&mut self, entry: &Entry) {
        self.widen();
        let (subject, bits, at) = (entry.subject, entry.bits, entry.timestamp.0);
        match &mut self.entries {
            Entries::Wide(list) => list.push(Wide { subject, bits, at }),
            Entries::Narrow(_) | Entries::Sparse(_) => {
                unreachable!("only open chunks are appended to, and they are dense")
            }
        }
    }

    fn widen(&mut self) {
        if let Entries::Narrow(list) = &self.entries {
            let base = self.base;
            let wide = |e: &Narrow| Wide {
                subject: e.subject,
                bits: e.bits,
                at: base + i64::from(e.delta_ns),
            };
            self.entries = Entries::Wide(list.iter().map(wide).collect());
        }
    }

    /// Appends dead entries so that the next push lands at `seq`, if that is in this chunk.
    pub(super) fn pad_to(&mut self, seq: u64) {
        let chunk_end = (self.first / CHUNK_MESSAGES + 1) * CHUNK_MESSAGES;
        if self.settled || seq >= chunk_end {
            return;
        }
        let wanted = (seq - self.first) as usize;
        match &mut self.entries {
            Entries::Narrow(list) => {
                let delta_ns = list.last().map_or(0, |e| e.delta_ns);
                list.resize(wanted, Narrow { subject: DEAD, bits: 0, delta_ns });
            }
            Entries::Wide(list) => {
                let at = list.last().map_or(self.base, |e| e.at);
                list.resize(wanted, Wide { subject: DEAD, bits: 0, at });
            }
            Entries::Sparse(_) => {}
        }
    }

    /// Says that no entry will be added any more: memory may be given back.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.shrink();
    }

    /// Gives memory back, once the chunk is settled.
    fn shrink(&mut self) {
        let (live, held) = (self.live as usize, self.held());
        if live == 0 {
            self.entries = Entries::Narrow(Vec::new());
        } else if live < SPARSE_BELOW && live * 2 < held {
            self.make_sparse();
        }
    }

    /// Entries that take memory.
    fn held(&self) -> usize {
        match &self.entries {
            Entries::Narrow(list) => list.len(),
            Entries::Wide(list) => list.len(),
            Entries::Sparse(list) => list.len(),
        }
    }

    fn make_sparse(&mut self) {
        let mut list = Vec::with_capacity(self.live as usize);
        let first = self.first;
        self.for_each(&mut |seq, e: Entry| {
            list.push(Sparse {
                offset: (seq - first) as u32,
                subject: e.subject,
                bits: e.bits,
                at: e.timestamp.0,
            });
        });
        self.entries = Entries::Sparse(list);
    }

    /// Index of `seq` among the entries, dead or not.
    #[inline]
    fn index(&self, seq: u64) -> Option<usize> {
        let offset = seq.checked_sub(self.first)?;
        match &self.entries {
            Entries::Narrow(_) | Entries::Wide(_) => Some(offset as usize),
            Entries::Sparse(list) => list.binary_search_by_key(&(offset as u32), |e| e.offset).ok(),
        }
    }

    #[inline]
    fn at(&self, index: usize) -> Option<Entry> {
        let (subject, bits, at) = match &self.entries {
            Entries::Narrow(list) => {
                let e = list.get(index)?;
                (e.subject, e.bits, self.base + i64::from(e.delta_ns))
            }
            Entries::Wide(list) => {
                let e = list.get(index)?;
                (e.subject, e.bits, e.at)
            }
            Entries::Sparse(list) => {
                let e = list.get(index)?;
                (e.subject, e.bits, e.at)
            }
        };
        Some(Entry { subject, bits, timestamp: Timestamp(at) })
    }

    #[inline]
    fn live_at(&self, index: usize) -> Option<Entry> {
        self.at(index).filter(|entry| entry.subject != DEAD)
    }

    fn seq_of(&self, index: usize) -> u64 {
        match &self.entries {
            Entries::Narrow(_) | Entries::Wide(_) => self.first + index as u64,
            Entries::Sparse(list) => {
                self.first + list.get(index).map_or(0, |e| u64::from(e.offset))
            }
        }
    }

    /// The place of a live entry.
    #[inline]
    fn place(&mut self, seq: u64) -> Option<Place<'_>> {
        let offset = seq.checked_sub(self.first)?;
        let place = match &mut self.entries {
            Entries::Narrow(list) => {
                let e = list.get_mut(offset as usize)?;
                let at = self.base + i64::from(e.delta_ns);
                Place { subject: &mut e.subject, bits: &mut e.bits, at }
            }
            Entries::Wide(list) => {
                let e = list.get_mut(offset as usize)?;
                Place { subject: &mut e.subject, bits: &mut e.bits, at: e.at }
            }
            Entries::Sparse(list) => {
                let index = list.binary_search_by_key(&(offset as u32), |e| e.offset).ok()?;
                let e = list.get_mut(index)?;
                Place { subject: &mut e.subject, bits: &mut e.bits, at: e.at }
            }
        };
        (*place.subject != DEAD).then_some(place)
    }

    #[inline]
    pub(super) fn get(&self, seq: u64) -> Option<Entry> {
        self.live_at(self.index(seq)?)
    }

    #[inline]
    pub(super) fn doom(&mut self, seq: u64) -> Option<Entry> {
        let place = self.place(seq)?;
        let entry = place.entry();
        if entry.is_doomed() {
            return None;
        }
        *place.bits |= DOOMED_BIT;
        Some(entry)
    }

    #[inline]
    pub(super) fn remove(&mut self, seq: u64) -> Option<Entry> {
        let place = self.place(seq)?;
        let entry = place.entry();
        *place.subject = DEAD;
        self.live -= 1;
        self.weight -= entry.weight() as u64;
        // Each conversion at least halves what is held, so this stays O(1) amortised.
        if self.settled {
            self.shrink();
        }
        Some(entry)
    }

    /// Index of the first entry at or after `from`.
    fn lower_bound(&self, from: u64) -> usize {
        let offset = from.saturating_sub(self.first);
        match &self.entries {
            Entries::Narrow(_) | Entries::Wide(_) => offset as usize,
            Entries::Sparse(list) => list.partition_point(|e| u64::from(e.offset) < offset),
        }
    }

    #[inline]
    fn find_from(&self, from: u64, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        if self.live == 0 {
            return None;
        }
        for index in self.lower_bound(from)..self.held() {
            if self.live_at(index).is_some_and(|entry| wanted(&entry)) {
                return Some(self.seq_of(index));
            }
        }
        None
    }

    #[inline]
    pub(super) fn next_live(&self, from: u64) -> Option<u64> {
        self.find_from(from, |_| true)
    }

    #[inline]
    pub(super) fn next_kept(&self, from: u64) -> Option<u64> {
        self.find_from(from, |entry| !entry.is_doomed())
    }

    pub(super) fn prev_live(&self, upto: u64) -> Option<u64> {
        if self.live == 0 || upto < self.first {
            return None;
        }
        let end = self.lower_bound(upto.saturating_add(1)).min(self.held());
        (0..end).rev().find(|&i| self.live_at(i).is_some()).map(|index| self.seq_of(index))
    }

    /// The last sequence of the stretch of entries from `seq` on that are live and not doomed;
    /// just `seq` unless the chunk is wholly live.
    pub(super) fn dense_end(&self, seq: u64) -> u64 {
        let mut end = seq;
        let mut index = self.index(seq).expect("a message that lives has a place");
        loop {
            index += 1;
            let next = self.live_at(index).filter(|entry| !entry.is_doomed());
            if next.is_none() || self.seq_of(index) != end + 1 {
                return end;
            }
            end += 1;
        }
    }

    pub(super) fn live_between(&self, from: u64, to: u64) -> u64 {
        if self.live == 0 {
            return 0;
        }
        let range = self.range(from, to);
        if range.len() == self.held() {
            return u64::from(self.live);
        }
        range.filter(|&index| self.live_at(index).is_some()).count() as u64
    }

    /// The places of the entries in `from..=to`.
    fn range(&self, from: u64, to: u64) -> Range<usize> {
        let end = self.lower_bound(to.saturating_add(1)).min(self.held());
        self.lower_bound(from).min(end)..end
    }

    /// True if its first message was stored before `at`.
    pub(super) const fn starts_before(&self, at: Timestamp) -> bool {
        self.base < at.0
    }

    pub(super) fn first_at(&self, at: Timestamp, from: u64) -> Option<u64> {
        self.find_from(from, |entry| entry.timestamp >= at)
    }

    /// Weight of the live messages in `from..=to`, doomed ones included; of all of them without looking at any: a log that is
    /// opened asks so for all of its messages.
    pub(super) fn weight_between(&self, from: u64, to: u64) -> u64 {
        let range = self.range(from, to);
        if range.len() == self.held() {
            return self.weight;
        }
        let weight = |(subject, bits)| match subject {
            DEAD => 0,
            _ => u64::from(bits & WEIGHT_MASK),
        };
        match &self.entries {
            Entries::Narrow(list) => list[range].iter().map(|e| weight((e.subject, e.bits))).sum(),
            Entries::Wide(list) => list[range].iter().map(|e| weight((e.subject, e.bits))).sum(),
            Entries::Sparse(list) => list[range].iter().map(|e| weight((e.subject, e.bits))).sum(),
        }
    }

    pub(super) fn for_each(&self, visit: &mut impl FnMut(u64, Entry)) {
        for index in 0..self.held() {
            if let Some(entry) = self.live_at(index) {
                visit(self.seq_of(index), entry);
            }
        }
    }
}
