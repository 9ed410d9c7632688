//! Random schedules of the step machines of the control plane: equal seeds give equal traces, no seed
//! breaks an invariant, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::control::{Machine, Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 1_500;

#[test]
fn equal_seeds_give_equal_traces() {
    let play = |seed| run(seed, &Options::drawn()).0;
    support::equal_seeds_give_equal_traces(30, play, |summary| summary.hash);
}

#[test]
fn no_machine_breaks_its_promises() {
    let count = support::schedules(SCHEDULES, "NUTHATCH_SIM_SCHEDULES");
    let mut total = Summary::default();
    for seed in seeds(0..count) {
        let (summary, result) = run(seed, &Options::drawn());
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        total.add(&summary);
    }
    println!("{count} schedules: {}", total.report());
    assert!(total.done > count, "too little comes to an end to show anything");
    assert!(total.lives > 2 * count && total.claims > count / 10, "too little fails");
    assert!(total.given_up > 0, "no move is given up");
    assert_eq!(Machine::ALL.len(), 7, "each machine is run by its share of the seeds");
}
