//! Random schedules of whole single nodes: equal seeds give equal traces, no seed breaks an invariant, and
//! seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;

use nuthatch_sim::node::{Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_NODES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 60;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_NODES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut hashes = vec![];
    for seed in 0..6 {
        let (first, _) = run(seed, &Options::drawn());
        let (second, _) = run(seed, &Options::drawn());
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 6, "every seed has a trace of its own");
}

#[test]
fn no_node_breaks_its_promises() {
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
    assert!(total.answered > 100 * count, "too little is asked to show anything");
    assert!(total.lives > 2 * count, "too little fails to show anything");
    assert!(total.moves > count && total.given_up > 0, "too little moves to show anything");
    assert!(total.harmed > count, "too little is damaged to show anything");
    assert!(total.unreadable > count && total.damaged > 0, "damage is told");
}
