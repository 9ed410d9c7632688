//! Random schedules of the step machines of the control plane: equal seeds give equal traces, no seed
//! breaks an invariant, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;

use nuthatch_sim::control::{Machine, Options, Summary, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 1_500;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_SCHEDULES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut hashes = vec![];
    for seed in 0..30 {
        let (first, _) = run(seed, &Options::drawn());
        let (second, _) = run(seed, &Options::drawn());
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 30, "every seed has a trace of its own");
}

#[test]
fn no_machine_breaks_its_promises() {
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
    assert!(total.done > count, "too little comes to an end to show anything");
    assert!(total.lives > 2 * count && total.claims > count / 10, "too little fails");
    assert!(total.given_up > 0, "no move is given up");
    assert_eq!(Machine::ALL.len(), 6, "each machine is run by its share of the seeds");
}
