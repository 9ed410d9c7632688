//! The message table: metadata of every message without its payload: subject, weight, time; 12
//! bytes each.
//!
//! Sequences are grouped in chunks of [`CHUNK_MESSAGES`]. A chunk holds narrow entries (timestamps
//! as 32-bit nanosecond deltas) while its messages lie within four seconds, wide ones otherwise, and
//! becomes a sorted list of survivors once most of it is dead. Chunks that are wholly dead hold
//! nothing, and leave from the front. Where no sequence of a chunk was ever given to a message there
//! is no chunk, so a gap costs nothing however wide it is. Without such gaps the place of a chunk
//! follows from its number, else it is searched for.
//!
//! A message may be *doomed*: removed by a record that has not committed yet. Doomed messages still
//! count as live for readers and for the log, and no longer for checks and limits.

mod chunk;
#[cfg(test)]
mod tests;

use chunk::Chunk;
use nuthatch_log::Timestamp;
use std::collections::VecDeque;

/// Sequences per chunk, a power of two.
pub const CHUNK_MESSAGES: u64 = 1 << CHUNK_SHIFT;
#[cfg(not(test))]
const CHUNK_SHIFT: u32 = 12;
/// Tiny under test, so that boundaries are met constantly.
#[cfg(test)]
const CHUNK_SHIFT: u32 = 3;

/// Largest weight that an entry can hold, in bytes.
pub const MAX_WEIGHT_BYTES: usize = (1 << 30) - 1;

/// Memory of a message in the table, about: a narrow entry with the slack of a vector.
const ENTRY_BYTES: u64 = 16;
/// Memory of a chunk beside its entries.
const CHUNK_BYTES: u64 = 128;

const HEADERS_BIT: u32 = 1 << 31;
const DOOMED_BIT: u32 = 1 << 30;
const WEIGHT_MASK: u32 = DOOMED_BIT - 1;

/// Metadata of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Dense id of its subject.
    pub subject: u32,
    /// Weight with its flags.
    bits: u32,
    /// When it was stored.
    pub timestamp: Timestamp,
}

impl Entry {
    /// A live message of `weight` bytes, which must not exceed [`MAX_WEIGHT_BYTES`].
    #[must_use]
    pub const fn new(subject: u32, weight: usize, has_headers: bool, timestamp: Timestamp) -> Self {
        let bits = (weight as u32 & WEIGHT_MASK) | if has_headers { HEADERS_BIT } else { 0 };
        Self { subject, bits, timestamp }
    }

    /// Bytes of its record in a frame.
    #[must_use]
    pub const fn weight(&self) -> usize {
        (self.bits & WEIGHT_MASK) as usize
    }

    /// True if it has a header block.
    #[must_use]
    pub const fn has_headers(&self) -> bool {
        self.bits & HEADERS_BIT != 0
    }

    /// True if a record that has not committed yet removes it.
    #[must_use]
    pub const fn is_doomed(&self) -> bool {
        self.bits & DOOMED_BIT != 0
    }
}

/// The messages of one stream by sequence.
#[derive(Debug)]
pub struct Messages {
    /// By ascending number (sequence / [`CHUNK_MESSAGES`]).
    chunks: VecDeque<Chunk>,
    /// Number of the front chunk.
    base: u64,
    /// First live sequence, doomed ones included; `next` if there is none.
    first: u64,
    /// First live sequence that is not doomed; `next` if there is none.
    first_kept: u64,
    /// The sequence that the next message gets.
    next: u64,
    /// Live messages, doomed ones included.
    live: u64,
}

impl Messages {
    /// No messages; the first one gets sequence `next`.
    #[must_use]
    pub fn new(next: u64) -> Self {
        Self { chunks: VecDeque::new(), base: 0, first: next, first_kept: next, next, live: 0 }
    }

    /// First live sequence, doomed ones included; [`Messages::next`] if there is none.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// First live sequence that is not doomed; [`Messages::next`] if there is none.
    #[must_use]
    pub const fn first_kept(&self) -> u64 {
        self.first_kept
    }

    /// The sequence that the next message gets.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Appends a live message and returns its sequence.
    #[inline]
    pub fn push(&mut self, entry: Entry) -> u64 {
        let seq = self.next;
        self.tail_for(seq, entry.timestamp).push(&entry);
        self.live += 1;
        self.next = seq + 1;
        seq
    }

    /// Skips sequences so that the next message gets `next`; never goes backwards.
    pub fn skip_to(&mut self, next: u64) {
        if next <= self.next {
            return;
        }
        let (was_empty, none_kept) = (self.first == self.next, self.first_kept == self.next);
        self.next = next;
        if was_empty {
            self.chunks.clear();
            self.first = next;
        } else if let Some(tail) = self.chunks.back_mut() {
            tail.pad_to(next);
        }
        if none_kept {
            self.first_kept = next;
        }
    }

    #[inline]
    fn tail_for(&mut self, seq: u64, at: Timestamp) -> &mut Chunk {
        let number = seq >> CHUNK_SHIFT;
        if self.chunks.back().is_none_or(|tail| tail.number() != number) {
            self.open_chunk(seq, at);
        }
        self.chunks.back_mut().expect("a chunk was opened")
    }

    #[cold]
    fn open_chunk(&mut self, seq: u64, at: Timestamp) {
        let number = seq >> CHUNK_SHIFT;
        match self.chunks.back_mut() {
            Some(full) => {
                assert!(full.number() < number, "sequences of a stream only grow");
                full.settle();
            }
            None => self.base = number,
        }
        self.chunks.push_back(Chunk::starting_at(seq, at));
    }

    /// The place of the first chunk whose number is not below this one.
    #[inline]
    fn place(&self, number: u64) -> usize {
        // No chunk lies further behind than it would without gaps.
        let bound = number.saturating_sub(self.base).min(self.chunks.len() as u64) as usize;
        match self.chunks.get(bound) {
            Some(chunk) if chunk.number() == number => bound,
            None if self.is_gapless() => bound,
            _ => self.search(number),
        }
    }

    /// True if the chunks' numbers follow each other.
    fn is_gapless(&self) -> bool {
        let last = self.chunks.back().map_or(self.base, Chunk::number);
        self.base + self.chunks.len() as u64 == last + 1
    }

    #[cold]
    fn search(&self, number: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.number() < number)
    }

    #[inline]
    fn place_of(&self, seq: u64) -> Option<usize> {
        let number = seq >> CHUNK_SHIFT;
        let place = self.place(number);
        self.chunks.get(place).filter(|chunk| chunk.number() == number).map(|_| place)
    }

    #[inline]
    fn chunk(&self, seq: u64) -> Option<&Chunk> {
        self.chunks.get(self.place_of(seq)?)
    }

    /// The same, to change it.
    #[inline]
    fn chunk_mut(&mut self, seq: u64) -> Option<&mut Chunk> {
        let place = self.place_of(seq)?;
        self.chunks.get_mut(place)
    }

    /// Memory that the table takes, about.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.live * ENTRY_BYTES + self.chunks.len() as u64 * CHUNK_BYTES
    }

    /// A live message, doomed or not.
    #[inline]
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<Entry> {
        self.chunk(seq)?.get(seq)
    }

    /// A live message that is not doomed.
    #[inline]
    #[must_use]
    pub fn get_kept(&self, seq: u64) -> Option<Entry> {
        self.get(seq).filter(|entry| !entry.is_doomed())
    }

    /// Marks a message as doomed; `None` if it is dead or doomed already.
    pub fn doom(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.chunk_mut(seq)?.doom(seq)?;
        if seq == self.first_kept {
            self.first_kept = self.next_kept(seq + 1).unwrap_or(self.next);
        }
        Some(entry)
    }

    /// Removes a message, doomed or not; `None` if it is dead already.
    pub fn remove(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.chunk_mut(seq)?.remove(seq)?;
        self.live -= 1;
        if seq == self.first_kept {
            self.first_kept = self.next_kept(seq + 1).unwrap_or(self.next);
        }
        if seq == self.first {
            self.first = self.next_live(seq + 1).unwrap_or(self.next);
            self.drop_front();
        }
        Some(entry)
    }

    fn drop_front(&mut self) {
        let keep = self.first >> CHUNK_SHIFT;
        while self.base < keep && self.chunks.len() > 1 {
            self.chunks.pop_front();
            self.base = self.chunks.front().map_or(self.base, Chunk::number);
        }
    }

    /// The first live message at or after `from`, doomed ones included.
    #[must_use]
    pub fn next_live(&self, from: u64) -> Option<u64> {
        self.scan_forward(from, Chunk::next_live)
    }

    /// The first live message at or after `from` that is not doomed.
    #[must_use]
    pub fn next_kept(&self, from: u64) -> Option<u64> {
        self.scan_forward(from, Chunk::next_kept)
    }

    #[inline]
    fn scan_forward(&self, from: u64, find: impl Fn(&Chunk, u64) -> Option<u64>) -> Option<u64> {
        let from = from.max(self.first);
        for place in self.place(from >> CHUNK_SHIFT)..self.chunks.len() {
            let found = find(&self.chunks[place], from);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The last live message at or before `upto`, doomed ones included.
    #[must_use]
    pub fn prev_live(&self, upto: u64) -> Option<u64> {
        let end = self.place((upto >> CHUNK_SHIFT) + 1);
        self.chunks.range(..end).rev().find_map(|chunk| chunk.prev_live(upto))
    }

    /// Live messages in `from..=to`, doomed ones included.
    #[must_use]
    pub fn live_between(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.first), to.min(self.next.saturating_sub(1)));
        if from > to || self.live == 0 {
            return 0;
        }
        if self.next - self.first == self.live {
            return to - from + 1;
        }
        let (start, end) = (self.place(from >> CHUNK_SHIFT), self.place((to >> CHUNK_SHIFT) + 1));
        self.chunks.range(start..end).map(|chunk| chunk.live_between(from, to)).sum()
    }

    /// The first live message stored at or after `at`, doomed ones included.
    #[must_use]
    pub fn first_at(&self, at: Timestamp) -> Option<u64> {
        // Chunks start at ascending times; the wanted message may lie inside the chunk before.
        let start = self.chunks.partition_point(|chunk| chunk.starts_before(at)).saturating_sub(1);
        self.chunks.iter().skip(start).find_map(|chunk| chunk.first_at(at, self.first))
    }

    /// Weight of the live messages in `from..=to`, doomed ones included.
    #[must_use]
    pub fn weight_between(&self, from: u64, to: u64) -> u64 {
        let to = to.min(self.next.saturating_sub(1));
        if from > to {
            return 0;
        }
        let (start, end) = (self.place(from >> CHUNK_SHIFT), self.place((to >> CHUNK_SHIFT) + 1));
        self.chunks.range(start..end).map(|chunk| chunk.weight_between(from, to)).sum()
    }

    /// Calls `visit` for every live message in order, doomed ones included.
    pub fn for_each(&self, mut visit: impl FnMut(u64, Entry)) {
        for chunk in &self.chunks {
            chunk.for_each(&mut visit);
        }
    }

    /// Calls `visit(first, last)` for ranges of sequences from [`Messages::first_kept`] on that are
    /// dead or doomed, in order. Ranges may touch.
    pub fn for_each_hole(&self, mut visit: impl FnMut(u64, u64)) {
        let mut expected = self.first_kept;
        let mut seq = self.next_kept(self.first_kept);
        while let Some(live) = seq {
            if live > expected {
                visit(expected, live - 1);
            }
            let run_end = self.chunk(live).map_or(live, |chunk| chunk.dense_end(live));
            expected = run_end + 1;
            seq = self.next_kept(expected);
        }
        if expected < self.next && self.first_kept < self.next {
            visit(expected, self.next - 1);
        }
    }
}
