//! Random schedules of the built-in catalog's group: equal seeds give equal traces, no seed breaks an invariant, and
//! seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::group::{Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 300;

#[test]
fn equal_seeds_give_equal_traces() {
    let play = |seed| run(seed, &Options::drawn()).0;
    support::equal_seeds_give_equal_traces(20, play, |summary| summary.hash);
}

#[test]
fn no_schedule_breaks_an_invariant() {
    let count = support::schedules(SCHEDULES, "NUTHATCH_SIM_SCHEDULES");
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
    assert!(
        total.joined > count / 5 && total.replaced > count / 20,
        "too few nodes join and are replaced to show anything"
    );
    assert!(total.drained > count, "too few nodes are drained to show anything");
    assert!(total.together > 10 * count, "too little comes while disks are busy to show anything");
    // Every seventh schedule has them replaced.
    assert!(total.absent > count / 100, "too few nodes are away for long to show anything");
}
