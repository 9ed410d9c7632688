//! All 64 patterns of the six directed links between three nodes (M13), from every owner.
//!
//! Where two nodes can talk in both directions the log takes writes again, and stays with one owner.

use nuthatch_sim::quorum::{Options, World};

const SECOND: u64 = 1_000_000;
const ALL_UP: u64 = 0b11_1111;

/// The bit of a link, as `Net::set_pattern` numbers them.
fn bit(from: u64, to: u64) -> u64 {
    from * 2 + if to > from { to - 1 } else { to }
}

fn two_can_talk(pattern: u64) -> bool {
    let up = |from, to| (pattern >> bit(from, to)) & 1 == 1;
    [(0, 1), (0, 2), (1, 2)].into_iter().any(|(a, b)| up(a, b) && up(b, a))
}

/// What is wrong with a pattern that comes after `before`, if anything.
pub fn trouble(seed: u64, before: u64, pattern: u64) -> Option<String> {
    let mut world = World::new(seed, &Options::calm(3));
    let broken = |when: &str, what: String| {
        Some(format!("{pattern:06b} after {before:06b}, {when}: {what}"))
    };
    for (links, seconds) in [(ALL_UP, 3), (before, 3), (pattern, 5)] {
        world.set_links(links);
        if let Err(violation) = world.run_for(seconds * SECOND) {
            return broken("meanwhile", violation.to_string());
        }
    }
    let (acked, epoch) = (world.acked(), world.epoch());
    if let Err(violation) = world.run_for(5 * SECOND) {
        return broken("later", violation.to_string());
    }
    let (acked, epochs) = (world.acked() - acked, world.epoch() - epoch);
    if two_can_talk(pattern) && acked < 20 {
        return broken("in the end", format!("{acked} writes in 5 s"));
    }
    if epochs > 1 {
        return broken("in the end", format!("{epochs} epochs in 5 s"));
    }
    None
}

/// What is wrong with any of the 64 patterns. The seed decides who is the first owner.
pub fn first_trouble(seeds: u64) -> Option<String> {
    (0..64).find_map(|pattern| (0..seeds).find_map(|seed| trouble(seed, ALL_UP, pattern)))
}

#[test]
fn every_pattern_of_links_lets_a_pair_write_under_one_owner() {
    assert_eq!(first_trouble(3), None);
}

#[test]
fn every_change_between_patterns_does() {
    for before in 0..64 {
        for step in 0..4 {
            let pattern = (before * 37 + step * 11 + 5) % 64;
            assert_eq!(trouble(before, before, pattern), None);
        }
    }
}
