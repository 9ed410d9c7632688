//! Random schedules of the quorum log's cores: equal seeds give equal traces, no seed breaks an
//! invariant, and seeds that once did never do again.

use nuthatch_sim::quorum::{Options, run};
use nuthatch_sim::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SIM_FROM` for others.
const SCHEDULES: u64 = 400;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut hashes = vec![];
    for seed in 0..20 {
        let (first, _) = run(seed, &Options::drawn());
        let (second, _) = run(seed, &Options::drawn());
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "every seed has a trace of its own");
}

#[test]
fn no_schedule_breaks_an_invariant() {
    let from = number("NUTHATCH_SIM_FROM", 0);
    let count = number("NUTHATCH_SIM_SCHEDULES", SCHEDULES);
    let (mut committed, mut disks, mut epochs) = (0, 0, 0);
    for seed in from..from + count {
        let (summary, result) = run(seed, &Options::drawn());
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        committed += summary.committed;
        disks += summary.disks;
        epochs += u64::from(summary.epochs);
    }
    println!("{count} schedules: {committed} entries, {epochs} epochs, {disks} disks harmed");
    assert!(committed > 20 * count, "the schedules commit too little to show anything");
    assert!(epochs > 2 * count && disks > count / 10, "too little fails to show anything");
}

#[test]
fn seeds_that_failed_once_hold() {
    let kept = seeds::parse(include_str!("seeds.txt")).expect("a file of seeds");
    for seed in kept {
        if let (_, Err(violation)) = run(seed.seed, &Options::drawn()) {
            panic!("seed {} ({}) fails again: {violation}", seed.seed, seed.found);
        }
    }
}
