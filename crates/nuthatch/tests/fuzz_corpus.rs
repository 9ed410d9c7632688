//! The fuzz targets of `fuzz/` on a stable compiler: every corpus, and seeded mutations of it for a
//! few seconds. `NUTHATCH_FUZZ_SECONDS` sets how long for each target, `NUTHATCH_FUZZ_SEED` where to begin.

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

#[path = "support/mutate.rs"]
mod mutate;

use mutate::{Random, corpus, mutate};
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

/// Mutations of one run, at least.
const MUTATIONS_MIN: u64 = 2_000;
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(name: &str, target: Target) {
    let corpus = corpus(name);
    corpus.iter().for_each(|input| target(input));
    let seed = number("NUTHATCH_FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    let long = Duration::from_secs(number("NUTHATCH_FUZZ_SECONDS", 1));
    let (start, mut done) = (Instant::now(), 0);
    let mut input = Vec::new();
    while done < MUTATIONS_MIN || start.elapsed() < long {
        if done % 8 == 0 {
            input.clone_from(&corpus[random.below(corpus.len())]);
        }
        mutate(&mut input, &corpus, &mut random);
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "{name}, seed {seed}, mutation {done}: {}", input.escape_ascii());
        done += 1;
    }
}

#[test]
fn targets_hold_on_their_corpora_and_mutations() {
    for (name, target) in TARGETS {
        run(name, *target);
    }
}
