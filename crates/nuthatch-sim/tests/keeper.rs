//! Random schedules of a quorum log's nodes on real directories: equal seeds give equal traces, no seed breaks a
//! promise of a directory, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::keeper::{Options, Planted, Summary, run};
use seeds::seeds;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 60;

/// Schedules in which logs are mixed up, of which one at least must fail.
const MIXED_UP: u64 = 20;

#[test]
fn equal_seeds_give_equal_traces() {
    let play = |seed| run(seed, &Options::drawn()).0;
    support::equal_seeds_give_equal_traces(5, play, |summary| summary.hash);
}

#[test]
fn no_directory_breaks_its_promises() {
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
    assert!(total.committed > 20 * count, "too little is committed to show anything");
    assert!(total.cuts > 2 * count, "too little power is cut to show anything");
    assert!(total.trims > count && total.installs > count / 20, "too little is trimmed or brought");
}

/// Logs of one machine are apart: where messages of one come to another, or all have the rows of one, schedules fail.
#[test]
fn logs_that_are_mixed_up_are_found() {
    for planted in [Planted::Messages, Planted::Rows] {
        let options = Options { logs: Some(3), planted: Some(planted), ..Options::drawn() };
        let fails = |seed: &u64| {
            let play = AssertUnwindSafe(|| run(*seed, &options).1);
            catch_unwind(play).map_or(true, |result| result.is_err())
        };
        let found = (0..MIXED_UP).find(fails);
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?} is not found");
    }
}
