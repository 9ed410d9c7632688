//! Rules whose loss breaks no invariant of the log but does harm all the same: each has a schedule of its own,
//! in a world where nothing else fails. The mutation job plays them with the rule turned off.

use nuthatch_quorum::rules::Rule;
use nuthatch_quorum::types::Lsn;
use nuthatch_sim::quorum::{Fault, Options, Violation, World};

#[path = "support/handovers.rs"]
mod handovers;

use handovers::{
    claimed_and_gone, cold_keeper, gone_before_its_end, handed_over, handed_over_beside_a_beat,
    handed_to_the_gone,
};

const SECOND: u64 = 1_000_000;
const HOUR: i64 = 3_600_000_000;

/// A world of three keepers after three seconds, none of which is cold, and its owner.
fn settled(seed: u64, spare: u8) -> (World, usize) {
    let mut world = World::new(seed, &Options { spare: Some(spare), ..Options::calm(3) });
    world.run_for(SECOND).expect("nothing fails");
    (0..3).for_each(|at| world.set_cold(at, false));
    world.run_for(2 * SECOND).expect("nothing fails");
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

/// What rots on the disk of a keeper that runs is found by it and brought by its owner, even if nobody writes:
/// a write would be refused where the log before it is damaged.
fn healed(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let keeper = (owner + 1 + seed as usize % 2) % 3;
    world.silence();
    world.run_for(SECOND).expect("nothing breaks");
    world.inject(Fault::RotLive, keeper).expect("nothing breaks");
    world.run_for(10 * SECOND).expect("nothing breaks");
    match world.unreadable(keeper) {
        0 => None,
        left => wrong("healed", format!("{left} entries are still damaged after 10 s")),
    }
}

/// M10: the write of the last entry went to the place of an earlier one, which is found and healed. Then
/// nothing shows the loss any more, and the keeper must not count as whole without it.
fn stray(seed: u64) -> Option<String> {
    // The two places must be read in different parts of a scrub, the earlier one first.
    (0..40).find_map(|step| stray_once(40 * seed + step))
}

fn stray_once(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let keeper = (owner + 1) % 3;
    world.silence();
    world.run_for(SECOND).expect("nothing breaks");
    let had = world.holds(keeper);
    world.inject(Fault::Misdirect, keeper).expect("nothing breaks");
    wait_healed(&mut world, keeper, had);
    let broken = world.inject(Fault::Restart, keeper);
    broken
        .and_then(|()| asked_by_another(&mut world, owner))
        .err()
        .map(|violation| violation.to_string())
}

/// M10: as before, and the earlier place was known to be damaged, so that nobody looked what lay there. The
/// keeper finds its last entry gone and reads its directory again, which shows nothing of it.
fn lost_end(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let keeper = (owner + 1) % 3;
    world.silence();
    world.run_for(SECOND).expect("nothing breaks");
    let (had, early) = (world.holds(keeper), Lsn(2));
    world.read_fails(keeper, early).expect("nothing breaks");
    world.misplace(keeper, early);
    wait_healed(&mut world, keeper, had);
    asked_by_another(&mut world, owner).err().map(|violation| violation.to_string())
}

/// M10: the write of the last entry, which one more disk has, went to the place of an earlier one, and the machine
/// loses its power before anybody has read either. The other disk that has the entry stays dark for longer than a
/// takeover waits, so it is lost, and the row must say so.
fn stray_at_rest(seed: u64) -> Option<String> {
    (0..5).find_map(|step| {
        let (mut world, owner) = settled(5 * seed + step, 0);
        let (keeper, behind) = ((owner + 1) % 3, (owner + 2) % 3);
        for at in [owner, keeper] {
            world.cut(at, behind);
            world.cut(behind, at);
        }
        world.run_for(SECOND).expect("nothing breaks");
        world.silence();
        world.run_for(SECOND / 5).expect("nothing breaks");
        let lost = world.holds(keeper);
        world.set_dark(keeper, SECOND / 100, false);
        world.misplace(keeper, Lsn(2));
        world.set_dark(owner, 10 * SECOND, false);
        world.mend();
        if let Err(violation) = world.run_for(6 * SECOND) {
            return wrong("meanwhile", violation.to_string());
        }
        let recorded = world.summary().alarmed;
        let served = world.owner().is_some_and(|at| at != owner);
        if served && recorded == 1 {
            None
        } else {
            wrong("recorded", format!("{recorded} lost entries, {lost:?} is; served: {served}"))
        }
    })
}

/// M10: the write of the last entry went to the place of an earlier one, and the keeper trims that place before
/// anybody has read it. With that goes the only thing that shows what was lost.
fn stray_trimmed(seed: u64) -> Option<String> {
    (0..10).find_map(|step| {
        let (mut world, owner) = settled(10 * seed + step, 0);
        let keeper = (owner + 1) % 3;
        world.silence();
        world.run_for(SECOND).expect("nothing breaks");
        world.misplace(keeper, Lsn(2));
        world.inject(Fault::Trim, keeper).expect("nothing breaks");
        world.run_for(SECOND / 100).expect("nothing breaks");
        let broken = world.inject(Fault::Restart, keeper);
        let broken = broken.and_then(|()| asked_by_another(&mut world, owner));
        broken.err().map(|violation| violation.to_string())
    })
}

/// Waits until the earlier place is healed, and the entry that lay there is nowhere.
fn wait_healed(world: &mut World, keeper: usize, had: Lsn) {
    for _ in 0..200 {
        world.run_for(SECOND / 200).expect("nothing breaks");
        if world.unreadable(keeper) == 0 && world.holds(keeper) < had {
            return;
        }
    }
}

/// The keeper behind the owner is asked by another node: without its owner, who would bring it again what it
/// lacks.
fn asked_by_another(world: &mut World, owner: usize) -> Result<(), Violation> {
    let (keeper, third) = ((owner + 1) % 3, (owner + 2) % 3);
    world.cut(owner, keeper);
    world.cut(keeper, owner);
    world.run_for(2 * SECOND)?;
    world.inject(Fault::TakeOver, third)?;
    world.run_for(3 * SECOND)
}

/// M10: of the two disks that have the last entries one lost its tail, and the other is back within the time
/// that a takeover waits: nothing is lost, though the two others would be a majority.
fn cut_and_back(seed: u64) -> Option<String> {
    (0..5).find_map(|step| {
        let (mut world, owner) = settled(5 * seed + step, 0);
        let (keeper, behind) = ((owner + 1) % 3, (owner + 2) % 3);
        for at in [owner, keeper] {
            world.cut(at, behind);
            world.cut(behind, at);
        }
        world.run_for(SECOND).expect("nothing breaks");
        world.set_dark(keeper, SECOND / 100, true);
        world.set_dark(owner, SECOND, false);
        world.mend();
        if let Err(violation) = world.run_for(6 * SECOND) {
            return wrong("meanwhile", violation.to_string());
        }
        let lost = world.summary().alarmed;
        if lost == 0 { None } else { wrong("lost", format!("{lost} entries")) }
    })
}

/// M19: all keepers trim, and all lose their power before any of that is durable: something of it may be.
fn trimmed_in_the_dark(seed: u64) -> Option<String> {
    (0..20).find_map(|step| {
        let (mut world, owner) = settled(20 * seed + step, 0);
        for fault in [Fault::TrimOthers, Fault::Trim, Fault::PowerCutAll] {
            world.inject(fault, owner).expect("nothing breaks");
        }
        if let Err(violation) = world.run_for(8 * SECOND) {
            return wrong("meanwhile", violation.to_string());
        }
        let acked = world.acked();
        world.run_for(3 * SECOND).expect("nothing breaks");
        let acked = world.acked() - acked;
        if acked > 0 { None } else { wrong("served", format!("{acked} writes in 3 s")) }
    })
}

/// A takeover of which one of the two keepers that are where the epoch begins goes when the epoch is to start, and the
/// third hears nothing before that: it is brought there then, and nobody waits until the attempt is given up.
fn gone_at_the_start(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let (next, behind) = ((owner + 1) % 3, (owner + 2) % 3);
    for at in [owner, next] {
        world.cut(at, behind);
    }
    world.run_for(SECOND / 4).expect("nothing breaks");
    world.hands_over(owner, true).expect("nothing breaks");
    let starts = (0..20_000).any(|_| {
        world.run_for(20).expect("nothing breaks");
        world.is_starting(next)
    });
    world.shut_down(owner);
    world.mend();
    if !starts {
        return wrong("started", format!("{next} has not, within 400 ms"));
    }
    world.run_for(SECOND).expect("nothing breaks");
    match world.owner() {
        Some(now) if now == next => None,
        now => wrong("followed", format!("{now:?}, not {next}, within a second")),
    }
}

/// M19: an owner was cut off with an entry that nobody else has, and takes over when the only other disk that is left
/// has trimmed what was committed in its place. It leaves the epoch to that one, which follows at once.
fn left_to_trimmed(seed: u64) -> Option<String> {
    let (mut world, first) = settled(seed, 0);
    for other in (0..3).filter(|other| *other != first) {
        world.cut(first, other);
        world.cut(other, first);
    }
    world.run_for(3 * SECOND).expect("nothing breaks");
    let second = world.owner().expect("an owner");
    let keeper = 3 - first - second;
    for _ in 0..20 {
        world.inject(Fault::Trim, keeper).expect("nothing breaks");
    }
    world.run_for(SECOND / 20).expect("nothing breaks");
    world.shut_down(second);
    world.mend();
    // The lease ends, and as a rule the owner is not missed yet.
    world.run_for(3 * SECOND / 10).expect("nothing breaks");
    if world.owner() == Some(keeper) {
        return None;
    }
    world.inject(Fault::TakeOver, first).expect("nothing breaks");
    world.run_for(SECOND / 10).expect("nothing breaks");
    match world.owner() {
        Some(now) if now == keeper => None,
        now => wrong("followed", format!("{now:?}, not {keeper}, within 100 ms")),
    }
}

/// M22: a node without room for what it lacks is told to take over. It leaves the log to one of those that have all of it
/// within what it takes to suspect it, not when its attempt is over.
fn full_candidate(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let full = (owner + 1 + seed as usize % 2) % 3;
    world.cut(owner, full);
    world.run_for(SECOND / 4).expect("nothing breaks");
    world.inject(Fault::DiskFull, full).expect("nothing breaks");
    world.mend();
    world.inject(Fault::TakeOver, full).expect("nothing breaks");
    world.run_for(2 * SECOND).expect("nothing breaks");
    match world.owner() {
        Some(now) if now != full => None,
        now => wrong("followed", format!("{now:?}, and {full} is full, within two seconds")),
    }
}

/// M22: an owner was cut off with an entry that nobody else has, and its disk has no room. It takes over while only one
/// other disk is near, and cannot make its own log the one that the epoch begins with. What it has instead it brings
/// nobody: the other disk would replace by it what was committed meanwhile.
fn full_and_apart(seed: u64) -> Option<String> {
    let (mut world, first) = settled(seed, 0);
    for other in (0..3).filter(|other| *other != first) {
        world.cut(first, other);
        world.cut(other, first);
    }
    world.run_for(3 * SECOND).expect("nothing breaks");
    let second = world.owner().expect("an owner");
    world.inject(Fault::DiskFull, first).expect("nothing breaks");
    world.set_dark(second, 8 * SECOND, false);
    world.mend();
    world.inject(Fault::TakeOver, first).expect("nothing breaks");
    // Its attempt and the other one's; after 8 s the third disk is back, without which nobody has a majority.
    let ran = world.run_for(12 * SECOND);
    let acked = world.acked();
    match ran.and_then(|()| world.run_for(3 * SECOND)) {
        Ok(()) if world.acked() > acked => None,
        Ok(()) => wrong("served", "no write in 3 s".to_owned()),
        Err(violation) => wrong("meanwhile", violation.to_string()),
    }
}

/// The schedules that find the loss of a rule.
fn of(rule: Rule) -> Option<fn(u64) -> Option<String>> {
    match rule {
        Rule::AwayOnce | Rule::AwaySeldom => Some(absent_keeper),
        Rule::FullHandsOver => Some(full_owner),
        Rule::FullGivesUp => Some(full_candidate),
        Rule::BringsGoal => Some(full_and_apart),
        Rule::WrongClockLast => Some(wrong_clock),
        Rule::LearnsBeside => Some(learns_beside),
        Rule::TellsDamage => Some(healed),
        Rule::StraysAreMissed => Some(stray),
        Rule::LostEndIsACut => Some(lost_end),
        Rule::StrayShowsLoss => Some(stray_at_rest),
        Rule::TrimNotesReach => Some(stray_trimmed),
        Rule::WaitForCut => Some(cut_and_back),
        Rule::BaseNotedFirst => Some(trimmed_in_the_dark),
        Rule::PreparedWaits => Some(handed_over),
        Rule::ReleaseLasts => Some(handed_over_beside_a_beat),
        Rule::PreparedEndsWithOwner => Some(gone_before_its_end),
        Rule::ColdLast => Some(cold_keeper),
        Rule::HandedToTheGone => Some(handed_to_the_gone),
        Rule::GoneOwnerMissed => Some(claimed_and_gone),
        Rule::StartingBrings => Some(gone_at_the_start),
        Rule::ClaimsAgain => Some(left_to_trimmed),
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
fn what_rots_while_a_keeper_runs_is_healed() {
    assert_eq!(trouble(Rule::TellsDamage), None);
}

#[test]
fn m10_a_write_that_went_astray_is_missed_where_it_belongs() {
    assert_eq!(trouble(Rule::StraysAreMissed), None);
}

#[test]
fn m10_a_lost_end_is_a_cut_even_if_nothing_shows_it() {
    assert_eq!(trouble(Rule::LostEndIsACut), None);
}

#[test]
fn m10_an_entry_at_the_wrong_place_shows_what_was_lost() {
    assert_eq!(trouble(Rule::StrayShowsLoss), None);
}

#[test]
fn m10_a_lost_end_is_a_cut_even_if_what_shows_it_is_trimmed() {
    assert_eq!(trouble(Rule::TrimNotesReach), None);
}

#[test]
fn m10_a_disk_that_comes_back_in_time_is_waited_for() {
    assert_eq!(trouble(Rule::WaitForCut), None);
}

#[test]
fn m19_what_is_trimmed_is_noted_before_it_is_removed() {
    assert_eq!(trouble(Rule::BaseNotedFirst), None);
}

#[test]
fn m22_an_owner_with_a_full_disk_leaves_the_log_to_another_keeper() {
    assert_eq!(trouble(Rule::FullHandsOver), None);
}

#[test]
fn m22_a_candidate_with_a_full_disk_leaves_the_log_to_another_keeper() {
    assert_eq!(trouble(Rule::FullGivesUp), None);
}

#[test]
fn m22_a_candidate_with_a_full_disk_brings_nobody_another_log() {
    assert_eq!(trouble(Rule::BringsGoal), None);
}

#[test]
fn a_node_with_a_wrong_clock_takes_over_last() {
    assert_eq!(trouble(Rule::WrongClockLast), None);
}

#[test]
fn new_keepers_are_brought_the_log_beside_serving() {
    assert_eq!(trouble(Rule::LearnsBeside), None);
}

#[test]
fn a_keeper_that_goes_when_an_epoch_starts_is_replaced_by_one_that_is_brought() {
    assert_eq!(trouble(Rule::StartingBrings), None);
}

#[test]
fn m19_an_epoch_is_left_to_a_keeper_that_has_trimmed_what_is_lacking() {
    assert_eq!(trouble(Rule::ClaimsAgain), None);
}

#[test]
fn a_beat_that_comes_late_does_not_hold_up_a_handover() {
    assert_eq!(trouble(Rule::ReleaseLasts), None);
}

#[test]
fn a_prepared_handover_is_waited_for_and_then_quick() {
    assert_eq!(trouble(Rule::PreparedWaits), None);
}

#[test]
fn an_owner_that_goes_before_its_handover_is_followed_as_soon_as_any() {
    assert_eq!(trouble(Rule::PreparedEndsWithOwner), None);
}

#[test]
fn a_node_that_would_open_the_log_slowly_takes_it_over_last() {
    assert_eq!(trouble(Rule::ColdLast), None);
}

#[test]
fn a_log_that_is_handed_to_a_node_that_goes_is_owned_again_at_once() {
    assert_eq!(trouble(Rule::HandedToTheGone), None);
}

#[test]
fn an_owner_that_goes_before_the_others_know_of_it_is_missed_at_once() {
    assert_eq!(trouble(Rule::GoneOwnerMissed), None);
}
