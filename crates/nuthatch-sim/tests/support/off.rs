//! Schedules of the quorum log while rules of its protocol are turned off.

use nuthatch_quorum::rules::{Rule, turn_off};
use nuthatch_sim::quorum::{Options, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A rule and the one behind it, without which alone its loss would show nowhere.
pub fn off_with(rule: Rule) -> Vec<Rule> {
    std::iter::once(rule).chain(rule.behind()).collect()
}

/// What a seed finds that it does not find with only the second line off, or with every rule kept.
pub fn by_seeds(
    rule: Rule,
    theme: &str,
    mut seeds: impl Iterator<Item = u64>,
    options: &Options,
) -> Option<String> {
    let off = off_with(rule);
    let found = seeds.find_map(|seed| {
        turn_off(&off);
        let found = failure(seed, options)?;
        turn_off(&off[1..]);
        failure(seed, options).is_none().then(|| format!("{theme} seed {seed}: {found}"))
    });
    turn_off(&[]);
    found
}

/// What a schedule breaks; a panic is something broken, too.
pub fn failure(seed: u64, options: &Options) -> Option<String> {
    let run = catch_unwind(AssertUnwindSafe(|| run(seed, options).1));
    match run {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation.kind.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}
