//! Random schedules of the quorum log's cores: equal seeds give equal traces, no seed breaks an
//! invariant, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::quorum::{Options, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 400;

#[test]
fn equal_seeds_give_equal_traces() {
    let play = |seed| run(seed, &Options::drawn()).0;
    support::equal_seeds_give_equal_traces(20, play, |summary| summary.hash);
}

#[test]
fn no_schedule_breaks_an_invariant() {
    let count = support::schedules(SCHEDULES, "NUTHATCH_SIM_SCHEDULES");
    let (mut committed, mut disks, mut epochs) = (0, 0, 0);
    for seed in seeds(0..count) {
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
