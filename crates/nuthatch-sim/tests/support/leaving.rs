//! A node that goes, for good or as it seems, in schedules of logs in memory.

use nuthatch_sim::rng::Rng;

const MILLISECOND: u64 = 1_000;

/// A node that goes for good, and the one that takes its place, which is there from the beginning.
#[derive(Clone, Copy)]
pub struct Leaving {
    /// Its place.
    pub at: usize,
    /// When.
    pub when: u64,
    /// How long after that people say that another node takes its place.
    pub replaced: u64,
    /// How long after that they say that what it held is gone.
    pub given_up: u64,
    /// It hangs, so nobody hears it, and runs on later: what is said of it is not true.
    pub lives: bool,
    /// When it runs on the replacement may be taken back.
    pub kept: Option<u64>,
}

impl Leaving {
    /// Drawn, in two of five schedules.
    pub fn drawn(rng: &mut Rng, nodes: usize) -> Option<Self> {
        let leaves = rng.chance(400);
        let at = rng.below(nodes as u64) as usize;
        let [when, replaced, given_up] = [14_000, 3_000, 3_000].map(|most| rng.between(1, most));
        let leaving = Self {
            at,
            when: (1_000 + when) * MILLISECOND,
            replaced: replaced * MILLISECOND,
            given_up: given_up * MILLISECOND,
            lives: rng.chance(300),
            kept: rng.chance(500).then(|| rng.between(1, 6_000) * MILLISECOND),
        };
        leaves.then_some(leaving)
    }
}
