//! Random schedules of a quorum log's nodes on real directories: equal seeds give equal traces, no seed breaks a
//! promise of a directory, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;

use nuthatch_sim::keeper::{Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 60;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_SCHEDULES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut hashes = vec![];
    for seed in 0..5 {
        let (first, _) = run(seed, &Options::drawn());
        let (second, _) = run(seed, &Options::drawn());
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 5, "every seed has a trace of its own");
}

#[test]
fn no_directory_breaks_its_promises() {
    let count = schedules();
    let mut total = Summary::default();
    for seed in seeds(0..count) {
        let (summary, result) = run(seed, &Options::drawn());
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        total.add(&summary);
    }
    println!("{count} schedules: {}", total.report());
    assert!(total.committed > 20 * count, "too little is committed to show anything");
    assert!(total.cuts > 2 * count, "too little power is cut to show anything");
    assert!(total.trims > count && total.installs > count / 20, "too little is trimmed or brought");
}
