//! Directed schedules of handovers, of nodes that go beside them, and of nodes that had better not be the next owner.

use super::{SECOND, settled, wrong};
use nuthatch_sim::quorum::Fault;

/// A node that is about to follow the log neither takes it over from an owner that goes nor gets it in a handover, where the third
/// one follows it.
pub fn cold_keeper(seed: u64) -> Option<String> {
    all_are_cold(seed).or_else(|| one_is_cold(seed))
}

/// One of them is as good as another then.
fn all_are_cold(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    (0..3).for_each(|at| world.set_cold(at, true));
    world.run_for(SECOND / 10).expect("nothing breaks");
    world.dies(owner).expect("nothing breaks");
    world.run_for(SECOND).expect("nothing breaks");
    let gone = world.owner().is_none_or(|next| next == owner);
    gone.then(|| format!("nobody of those that are cold follows {owner}"))
}

fn one_is_cold(seed: u64) -> Option<String> {
    let cases = [(1, false), (2, false), (1, true), (2, true)];
    cases.into_iter().find_map(|(place, is_planned)| {
        let (mut world, owner) = settled(seed, 0);
        let cold = (owner + place) % 3;
        world.set_cold(cold, true);
        world.run_for(SECOND / 10).expect("nothing breaks");
        if is_planned {
            world.hands_over(owner, true).expect("nothing breaks");
        } else {
            world.dies(owner).expect("nothing breaks");
        }
        world.run_for(SECOND).expect("nothing breaks");
        match world.owner() {
            Some(next) if ![owner, cold].contains(&next) => None,
            next => {
                wrong("followed", format!("{next:?} after {owner}, {cold} is cold: {is_planned}"))
            }
        }
    })
}

/// A handover that is prepared: the owner serves until it has ended, and then the next one does at once.
pub fn handed_over(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let acked = world.acked();
    world.hands_over(owner, false).expect("nothing breaks");
    world.run_for(SECOND / 2).expect("nothing breaks");
    let acked = world.acked() - acked;
    if world.owner() != Some(owner) || acked == 0 {
        return wrong("meanwhile", format!("{:?} owns the log, {acked} writes", world.owner()));
    }
    world.hands_over(owner, true).expect("nothing breaks");
    world.run_for(SECOND / 10).expect("nothing breaks");
    match world.owner() {
        Some(next) if next != owner => None,
        next => wrong("followed", format!("{next:?} after {owner} within 100 ms")),
    }
}

/// A handover at the moment of a beat, which may come after it.
pub fn handed_over_beside_a_beat(seed: u64) -> Option<String> {
    (0..40).find_map(|step| handed_over(40 * seed + step))
}

/// An owner that goes while the next one waits for its end: that waits no longer than for any owner that goes.
pub fn gone_before_its_end(seed: u64) -> Option<String> {
    [false, true].into_iter().find_map(|silent| {
        let (mut world, owner) = settled(seed, 0);
        world.hands_over(owner, false).expect("nothing breaks");
        world.run_for(SECOND / 5).expect("nothing breaks");
        if silent {
            for other in (0..3).filter(|other| *other != owner) {
                world.cut(owner, other);
                world.cut(other, owner);
            }
        } else {
            world.inject(Fault::Kill, owner).expect("nothing breaks");
        }
        // The lease, the takeover, and what is waited for in silence: less than what it is told to wait.
        world.run_for(if silent { 1_500_000 } else { SECOND }).expect("nothing breaks");
        match world.owner() {
            Some(next) if next != owner => None,
            next => wrong("followed", format!("{next:?} after {owner}, silent: {silent}")),
        }
    })
}

/// The log is handed to a node that goes before it has claimed the next epoch, or beside that: another one owns it at once, also
/// where the one that is gone was made ready.
pub fn handed_to_the_gone(seed: u64) -> Option<String> {
    let mut cases = (0..12).map(|case| (case % 2 == 0, 1 + case / 2 % 2, case / 4));
    let handed = cases.find_map(|(is_ready, place, after_ms)| {
        let (mut world, owner) = settled(seed, 0);
        let (gone, epoch) = ((owner + place) % 3, world.epoch());
        if is_ready {
            world.hands_over(owner, false).expect("nothing breaks");
            world.run_for(SECOND / 10).expect("nothing breaks");
        }
        world.hands_over(owner, true).expect("nothing breaks");
        world.run_for(after_ms as u64 * SECOND / 1_000).expect("nothing breaks");
        world.dies(gone).expect("nothing breaks");
        world.run_for(SECOND / 4).expect("nothing breaks");
        let facts =
            |next| format!("{next:?}, not {gone}: {is_ready}, {after_ms} ms, {owner}'s log");
        match world.owner() {
            Some(next) if next != gone && world.epoch() > epoch => None,
            next => wrong("followed", facts(next)),
        }
    });
    handed.or_else(|| handed_back(seed))
}

/// So it is where nobody else has everything: the former owner has the log again, or the one that it has brought what it lacked.
fn handed_back(seed: u64) -> Option<String> {
    let (mut world, owner) = settled(seed, 0);
    let (gone, behind, epoch) = ((owner + 1) % 3, (owner + 2) % 3, world.epoch());
    world.cut(owner, behind);
    world.run_for(SECOND / 5).expect("nothing breaks");
    world.hands_over(owner, true).expect("nothing breaks");
    world.mend();
    world.dies(gone).expect("nothing breaks");
    world.run_for(SECOND / 2).expect("nothing breaks");
    match world.owner() {
        Some(next) if next != gone && world.epoch() > epoch => None,
        next => wrong("followed", format!("{next:?}, not {gone}, and {behind} was behind")),
    }
}

/// A node claims an epoch and goes before the others hear of that from the catalog: they do not wait as if it were silent.
pub fn claimed_and_gone(seed: u64) -> Option<String> {
    (1..12).find_map(|after_ms| {
        let (mut world, owner) = settled(seed, 0);
        let gone = (owner + 1) % 3;
        world.inject(Fault::TakeOver, gone).expect("nothing breaks");
        world.run_for(after_ms * SECOND / 1_000).expect("nothing breaks");
        world.dies(gone).expect("nothing breaks");
        world.run_for(SECOND / 2).expect("nothing breaks");
        match world.owner() {
            Some(next) if next != gone => None,
            next => {
                wrong("followed", format!("{next:?}, not {gone}: {after_ms} ms, {owner}'s log"))
            }
        }
    })
}
