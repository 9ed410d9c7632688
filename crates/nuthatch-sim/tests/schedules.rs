//! Random schedules of the quorum log's cores: equal seeds give equal traces, no seed breaks an
//! invariant, and seeds that once did never do again.

#[path = "../../../tests/seeds.rs"]
mod seeds;
mod support;

use nuthatch_sim::quorum::{Options, World, run};
use seeds::seeds;

/// Schedules of one test run. `NUTHATCH_SIM_SCHEDULES` asks for more, `NUTHATCH_SEEDS_FROM` for others.
const SCHEDULES: u64 = 400;

const SECOND: u64 = 1_000_000;

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

/// Nothing changes before others are wished for. Then the owner takes over from itself as soon as whoever has the log open
/// has closed it, or once that has not come for a while.
#[test]
fn a_set_changes_when_the_log_is_closed_or_was_not_for_a_while() {
    for seed in seeds(0..20) {
        for (closes, fewest, most) in [(true, 0, 30), (false, 40, 75)] {
            let options = Options { spare: Some(2), closes: Some(closes), ..Options::calm(3) };
            let mut world = World::new(seed, &options);
            world.run_for(5 * SECOND).expect("nothing fails");
            let (owner, epoch) = (world.owner().expect("an owner"), world.epoch());
            world.run_for(6 * SECOND).expect("nothing fails");
            assert_eq!(world.epoch(), epoch, "seed {seed}: nobody wants another set");
            world.wish_for(&[owner as u8, 3, 4]);
            let tenths = (0..most).find(|_| {
                world.run_for(SECOND / 10).expect("nothing fails");
                world.epoch() > epoch
            });
            let is_in_time = tenths.is_some_and(|tenths| tenths >= fewest);
            assert!(is_in_time, "seed {seed}, closed: {closes}: after {tenths:?} tenths");
            world.run_for(SECOND).expect("nothing fails");
            assert_eq!((world.owner(), world.epoch()), (Some(owner), epoch + 1), "seed {seed}");
        }
    }
}
