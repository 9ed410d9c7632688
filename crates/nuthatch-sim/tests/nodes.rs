//! Random schedules of whole single nodes: equal seeds give equal traces, no seed breaks an invariant, and
//! seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::node::{Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_NODES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 60;

#[test]
fn equal_seeds_give_equal_traces() {
    let play = |seed| run(seed, &Options::drawn()).0;
    support::equal_seeds_give_equal_traces(6, play, |summary| summary.hash);
}

#[test]
fn no_node_breaks_its_promises() {
    let count = support::schedules(SCHEDULES, "NUTHATCH_SIM_NODES");
    let mut total = Summary::default();
    for seed in seeds(0..count) {
        let (summary, result) = run(seed, &Options::drawn());
        if let Err(violation) = result {
            panic!("seed {seed}: {violation}");
        }
        total.add(&summary);
    }
    println!("{count} schedules: {}", total.report());
    assert!(total.answered > 100 * count, "too little is asked to show anything");
    assert!(total.lives > 2 * count, "too little fails to show anything");
    assert!(total.moves > count && total.given_up > 0, "too little moves to show anything");
    assert!(total.harmed > count, "too little is damaged to show anything");
    assert!(total.unreadable > count && total.damaged > 0, "damage is told");
}
