//! Seeds that once failed: lines of a file that a test runs again for ever.
//!
//! A line is `seed` and what failed then, in words; empty lines and those that begin with `#` are
//! passed over.

use std::num::ParseIntError;
use thiserror::Error;

/// Why a file of seeds cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SeedsError {
    /// A line does not begin with a number.
    #[error("line {line} does not begin with a seed: {source}")]
    NoSeed {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with the number.
        source: ParseIntError,
    },
}

/// A seed and what it found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// What failed when it was kept.
    pub found: String,
}

/// Reads the text of a file of seeds.
pub fn parse(text: &str) -> Result<Vec<Kept>, SeedsError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, text)| {
            let (seed, found) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let seed = seed.parse().map_err(|source| SeedsError::NoSeed { line, source })?;
            Ok(Kept { seed, found: found.trim().to_owned() })
        })
        .collect()
}
