//! Rules whose loss breaks no invariant of the log but does harm all the same: each has a schedule of its own,
//! in a world where nothing else fails. The mutation job plays them with the rule turned off.

use nuthatch_quorum::rules::Rule;
use nuthatch_sim::quorum::{Fault, Options, World};

const SECOND: u64 = 1_000_000;
const HOUR: i64 = 3_600_000_000;

/// A world of three keepers after three seconds, and its owner.
fn settled(seed: u64, spare: u8) -> (World, usize) {
    let mut world = World::new(seed, &Options { spare: Some(spare), ..Options::calm(3) });
    world.run_for(3 * SECOND).expect("nothing fails");
    let owner = world.owner().expect("an owner");
    (world, owner)
}

fn wrong(what: &str, facts: String) -> Option<String> {
    Some(format!("{what}: {facts}"))
}

/// M20: a keeper that is gone for good is told once, is sent little, and changes nothing.
fn absent_keeper(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let gone = (owner + 1 + seed as usize % 2) % 3;
    world.shut_down(gone);
    world.run_for(5 * SECOND).expect("nothing breaks");
    let (sent, acked, epoch) = (world.sent_to(gone), world.acked(), world.epoch());
    world.run_for(20 * SECOND).expect("nothing breaks");
    let (sent, acked) = (world.sent_to(gone) - sent, world.acked() - acked);
    if world.told_away() != 1 {
        return wrong("told", format!("{} times that a keeper is away", world.told_away()));
    }
    if sent > 25 {
        return wrong("sent", format!("{sent} messages in 20 s to a keeper that is away"));
    }
    let same = world.epoch() == epoch && acked > 200;
    if same { None } else { wrong("served", format!("{acked} writes, epoch {}", world.epoch())) }
}

/// M22: an owner whose disk is full is no reason to take no writes.
fn full_owner(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    world.inject(Fault::DiskFull, owner).expect("nothing breaks");
    if let Err(violation) = world.run_for(4 * SECOND) {
        return wrong("meanwhile", violation.to_string());
    }
    let acked = world.acked();
    world.run_for(3 * SECOND).expect("nothing breaks");
    let acked = world.acked() - acked;
    if acked > 30 { None } else { wrong("served", format!("{acked} writes in 3 s")) }
}

/// A node with a wrong wall clock follows the owner only if nobody else does.
fn wrong_clock(seed: u64) -> Option<String> {
    (1..3).find_map(|step| {
        let (mut world, owner) = settled(seed, 0);
        let late = (owner + step) % 3;
        world.set_wall(late, if seed.is_multiple_of(2) { HOUR } else { -HOUR });
        world.run_for(SECOND).expect("nothing breaks");
        world.shut_down(owner);
        world.run_for(4 * SECOND).expect("nothing breaks");
        match world.owner() {
            Some(next) if next != late => None,
            next => wrong("followed", format!("{next:?} after {owner}, {late} has a wrong clock")),
        }
    })
}

/// New keepers have nearly everything before the epoch begins that they are part of: writes go on beside.
fn learns_beside(seed: u64) -> Option<String> {
    let (mut world, _) = settled(seed, 2);
    world.run_for(5 * SECOND).expect("nothing fails");
    let owner = world.owner().expect("an owner");
    world.wish_for(&[owner as u8, 3, 4]);
    let epoch = world.epoch();
    for _ in 0..600 {
        world.run_for(SECOND / 100).expect("nothing breaks");
        if world.epoch() > epoch {
            let behind = (3..5).map(|at| world.committed().0.saturating_sub(world.holds(at).0));
            let behind = behind.max().expect("two");
            return (behind > 8).then(|| format!("{behind} entries are lacking"));
        }
    }
    wrong("changed", "no set in 6 s".to_owned())
}

/// The schedules that find the loss of a rule.
fn of(rule: Rule) -> Option<fn(u64) -> Option<String>> {
    match rule {
        Rule::AwayOnce | Rule::AwaySeldom => Some(absent_keeper),
        Rule::FullHandsOver => Some(full_owner),
        Rule::WrongClockLast => Some(wrong_clock),
        Rule::LearnsBeside => Some(learns_beside),
        _ => None,
    }
}

/// What is wrong in the schedules of a rule, if it has some.
pub fn trouble(rule: Rule) -> Option<String> {
    let schedule = of(rule)?;
    (0..10).find_map(|seed| schedule(seed).map(|what| format!("directed seed {seed}: {what}")))
}

#[test]
fn m20_a_keeper_that_is_gone_is_told_once_and_not_repaired_for_ever() {
    assert_eq!(trouble(Rule::AwayOnce), None);
}

#[test]
fn m22_an_owner_with_a_full_disk_leaves_the_log_to_another_keeper() {
    assert_eq!(trouble(Rule::FullHandsOver), None);
}

#[test]
fn a_node_with_a_wrong_clock_takes_over_last() {
    assert_eq!(trouble(Rule::WrongClockLast), None);
}

#[test]
fn new_keepers_are_brought_the_log_beside_serving() {
    assert_eq!(trouble(Rule::LearnsBeside), None);
}
