//! The corpora of `fuzz/` and seeded mutations of them.

use std::path::Path;

/// Longest input after mutations.
pub const INPUT_MAX: usize = 8 << 10;

/// A small generator, so that a seed tells all.
pub struct Random(u64);

impl Random {
    /// The same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self((seed | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// The inputs that a target begins with.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
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

/// Changes one thing.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
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
