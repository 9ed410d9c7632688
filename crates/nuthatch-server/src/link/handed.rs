//! Reply subjects that were handed over a link, so that answers to them are taken from there whatever
//! its user may publish: acknowledgements of deliveries, and responses to imported services.

use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Reply subjects remembered for each link; beyond that the oldest is forgotten.
const HANDED_MAX: usize = 64 * 1024;

/// The latest reply subjects, as keyed hashes of 64 bits. An answer does not use them up: a delivery
/// may be told to be in work any number of times before it is acknowledged.
#[derive(Default)]
pub(super) struct Handed {
    random: RandomState,
    known: FxHashSet<u64>,
    order: VecDeque<u64>,
}

impl Handed {
    pub(super) fn note(&mut self, reply: &[u8]) {
        let key = self.random.hash_one(reply);
        if !self.known.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > HANDED_MAX {
            let oldest = self.order.pop_front().expect("more than the bound are there");
            self.known.remove(&oldest);
        }
    }

    pub(super) fn holds(&self, subject: &[u8]) -> bool {
        self.known.contains(&self.random.hash_one(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_beyond_the_bound() {
        let mut handed = Handed::default();
        let reply = |number: usize| format!("$JS.ACK.S.C.1.{number}.1.1.0").into_bytes();
        for number in 0..HANDED_MAX {
            handed.note(&reply(number));
            handed.note(&reply(number));
        }
        assert!(handed.holds(&reply(0)) && handed.holds(&reply(HANDED_MAX - 1)));
        handed.note(&reply(HANDED_MAX));
        assert!(!handed.holds(&reply(0)) && handed.holds(&reply(1)));
        assert!(handed.holds(&reply(HANDED_MAX)));
        assert_eq!((handed.known.len(), handed.order.len()), (HANDED_MAX, HANDED_MAX));
    }
}
