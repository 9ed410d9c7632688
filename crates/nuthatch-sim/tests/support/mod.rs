//! What the suites of random schedules have in common.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// How many schedules a run plays: as usual, or what the variable asks for.
pub fn schedules(usual: u64, variable: &str) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// Equal seeds give equal traces, and every seed one of its own. `play` plays a seed; the hash is that of the trace.
pub fn equal_seeds_give_equal_traces<S: PartialEq + Debug>(
    seeds: u64,
    play: impl Fn(u64) -> S,
    hash: impl Fn(&S) -> u64,
) {
    let mut hashes = BTreeSet::new();
    for seed in 0..seeds {
        let first = play(seed);
        assert_eq!(first, play(seed), "seed {seed}");
        hashes.insert(hash(&first));
    }
    assert_eq!(hashes.len() as u64, seeds, "every seed has a trace of its own");
}
