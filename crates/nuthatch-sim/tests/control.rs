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
}

/// Schedules of changes of the nodes in one test run.
const ROSTERS: u64 = 1_000;

#[test]
fn nodes_change_in_a_store_and_no_log_is_on_one_that_was_removed() {
    let options = Options { machine: Some(Machine::Rosters), ..Options::drawn() };
    let count = support::schedules(ROSTERS, "NUTHATCH_SIM_SCHEDULES");
    let mut total = Summary::default();
    for seed in seeds(0..count) {
        let (summary, result) = run(seed, &options);
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        total.add(&summary);
    }
    println!("{count} schedules: {}", total.report());
    assert!(total.done > 5 * count && total.claims > count, "too little changes");
    assert!(total.faults > count && total.given_up > count, "too little fails");
}
