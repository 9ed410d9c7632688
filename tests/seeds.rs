//! Seeds of random suites, for tests of every crate: `#[path = "../../../tests/seeds.rs"] mod seeds;`.
//!
//! A test plays the seeds that it once failed with, which are kept in `tests/kept-seeds`, and then a range.
//! `just proof` moves the range with `NUTHATCH_SEEDS_FROM`, so that each run of it plays fresh ones.

use std::ops::Range;
use std::path::Path;

/// Added to every seed of a range. What is kept is not played then.
const FROM_VARIABLE: &str = "NUTHATCH_SEEDS_FROM";

/// How far the seeds of a range are to be moved.
fn moved_by() -> Option<u64> {
    let text = std::env::var(FROM_VARIABLE).ok()?;
    Some(text.parse().expect("NUTHATCH_SEEDS_FROM is a number"))
}

/// The seeds that the test of this thread plays: the kept ones, then the range.
pub fn seeds(usual: Range<u64>) -> Seeds {
    let all = match moved_by() {
        Some(from) => (usual.start + from..usual.end + from).collect(),
        None => kept().into_iter().chain(usual).collect(),
    };
    Seeds { all, played: 0 }
}

/// Says the seed that was being played when a test panics.
pub struct Seeds {
    all: Vec<u64>,
    played: usize,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let seed = self.all.get(self.played).copied();
        self.played += 1;
        seed
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let (true, Some(last)) = (std::thread::panicking(), self.played.checked_sub(1))
            && let Some(seed) = self.all.get(last)
        {
            eprintln!("panicked at seed {seed}");
        }
    }
}

/// Lines `TEST SEED` of the file of this crate's suite; `#` begins a comment.
fn kept() -> Vec<u64> {
    let name = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"), ".txt");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kept-seeds");
    // Most suites have never failed.
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let thread = std::thread::current();
    kept_of(&text, thread.name().unwrap_or_default())
}

/// The test's thread has its name, with the modules before it.
fn kept_of(text: &str, test: &str) -> Vec<u64> {
    let test = test.rsplit("::").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let seed = |line: &str| {
        let (name, seed) = line.split_once(' ').expect("a line of kept seeds is `TEST SEED`");
        let seed = seed.trim().parse().expect("a kept seed is a number");
        (name == test).then_some(seed)
    };
    lines.filter(|line| !line.is_empty()).filter_map(seed).collect()
}

#[test]
fn kept_seeds_are_read() {
    let text = "# of old times\nhere 7\nthere 8 # torn tail\n\nhere 4000001\n";
    assert_eq!(kept_of(text, "power_cut::here"), [7, 4_000_001]);
    assert_eq!(kept_of(text, "nowhere"), [0_u64; 0]);
}
