//! Virtual time and the queue of what happens in it: one thread, one order for each seed.

use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// A hash of everything that happened, and on demand its text.
#[derive(Debug, Default)]
pub struct Trace {
    hash: Mixer,
    printed: bool,
}

/// A hasher that gives the same on every machine and in every build.
#[derive(Clone, Copy, Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    // What `write` makes of their bytes, without going through them.

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u128(&mut self, words: u128) {
        self.write_u64(words as u64);
        self.write_u64((words >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

impl Trace {
    /// Adds a happening.
    pub fn record(&mut self, now: u64, what: &(impl Hash + Debug)) {
        self.hash.write_u64(now);
        what.hash(&mut self.hash);
        if self.printed {
            println!("{:>10}.{:03} ms  {what:?}", now / 1000, now % 1000);
        }
    }

    /// The hash of all happenings so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.0
    }
}

/// When something is due, the order of its number at that moment, and its place: one comparison instead of three.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    at_and_number: u128,
    place: usize,
}

impl Due {
    fn new(at: u64, number: u64, place: usize) -> Self {
        Self { at_and_number: u128::from(at) << 64 | u128::from(number), place }
    }

    fn at(self) -> u64 {
        (self.at_and_number >> 64) as u64
    }
}

/// The queue of happenings `E` of one seed.
#[derive(Debug)]
pub struct Scheduler<E> {
    now: u64,
    order: BinaryHeap<Reverse<Due>>,
    /// Apart from their order: happenings are hundreds of bytes, which the heap would move again and again.
    happenings: Vec<Option<E>>,
    /// Places that are free.
    free: Vec<usize>,
    numbered: u64,
    steps: u64,
    /// The source of all chance.
    pub rng: Rng,
    /// What happened.
    pub trace: Trace,
}

impl<E> Scheduler<E> {
    /// An empty queue at time 0. With `printed` the trace goes to the standard output.
    #[must_use]
    pub fn new(seed: u64, printed: bool) -> Self {
        Self {
            now: 0,
            order: BinaryHeap::new(),
            happenings: vec![],
            free: vec![],
            numbered: 0,
            steps: 0,
            rng: Rng::new(seed),
            trace: Trace { hash: Mixer(seed), printed },
        }
    }

    /// Microseconds since the beginning.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many happenings there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Lets `happening` happen after `delay` microseconds; what is due at one moment happens in the
    /// order of these calls.
    pub fn after(&mut self, delay: u64, happening: E) {
        self.numbered += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[place] = Some(happening);
        self.order.push(Reverse(Due::new(self.now + delay, self.numbered, place)));
    }

    /// Lets time pass in which nothing happens: what was due meanwhile is due at once afterwards, in its
    /// order.
    pub fn sleep(&mut self, time: u64) {
        self.now += time;
    }

    /// The next happening that is due at `until` or before. Time goes on to it, or else to `until`.
    pub fn next_until(&mut self, until: u64) -> Option<E> {
        match self.order.peek() {
            Some(Reverse(due)) if due.at() <= until => {
                let (at, place) = (due.at(), due.place);
                self.order.pop();
                self.free.push(place);
                self.now = self.now.max(at);
                self.steps += 1;
                Some(self.happenings[place].take().expect("queued with its place"))
            }
            _ => {
                self.now = until.max(self.now);
                None
            }
        }
    }
}
