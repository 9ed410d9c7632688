//! The fuzz targets of `fuzz/` on a stable compiler: every corpus, and seeded mutations of it for a
//! few seconds. `NUTHATCH_FUZZ_SECONDS` sets how long for each target, `NUTHATCH_FUZZ_SEED` where to begin.

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::path::Path;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

/// Mutations of one run, at least.
const MUTATIONS_MIN: u64 = 2_000;
/// Longest input after mutations.
const INPUT_MAX: usize = 8 << 10;

/// A small generator, so that a seed tells all.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{name} has no corpus");
    files.iter().map(|path| std::fs::read(path).expect("reads")).collect()
}

/// Values that boundaries are made of.
const TELLING: [u64; 8] = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];

fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => input.insert(at, random.next() as u8),
        4 => {
            let value = TELLING[random.below(TELLING.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)];
            for (byte, new) in input.iter_mut().skip(at).zip(&value[..width]) {
                *byte = *new;
            }
        }
        5 => {
            let end = (at + random.below(32)).min(input.len());
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        _ => {
            let other = &others[random.below(others.len())];
            let from = random.below(other.len() + 1);
            let end = (from + random.below(64)).min(other.len());
            input.splice(at..at, other[from..end].iter().copied());
        }
    }
    input.truncate(INPUT_MAX);
}

fn run(name: &str, target: Target) {
    let corpus = corpus(name);
    corpus.iter().for_each(|input| target(input));
    let seed = number("NUTHATCH_FUZZ_SEED", 1) | 1;
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
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
