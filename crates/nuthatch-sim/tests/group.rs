//! Random schedules of the built-in catalog's group: equal seeds give equal traces, no seed breaks an invariant, and
//! seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;

use nuthatch_sim::group::{Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 300;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_SCHEDULES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
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
    let count = schedules();
    let mut total = Summary::default();
    for seed in seeds(0..count) {
        let (summary, result) = run(seed, &Options::drawn());
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        total.add(&summary);
    }
    println!("{count} schedules: {total:?}");
    assert!(total.answers > 100 * count, "too little is answered to show anything");
    assert!(
        total.terms > 2 * count && total.disks > count / 4,
        "too little fails to show anything"
    );
    assert!(total.images > count / 50, "too few disks are set back to show anything");
}
