//! Power cuts, failing syncs and full disks under streams whose messages go: work queues, interest,
//! age, times to live, purges and deletes, with consumers that acknowledge, refuse and fall silent.
//!
//! After each life the log is opened again and compared with what was shown and acknowledged:
//! nothing is lost but what a removal under way may have taken, nothing comes back that was durably
//! gone, no sequence has two bodies, no consumer claims an acknowledgement that nobody sent, or
//! forgets one that it confirmed. Then, on a copy, all consumers drain their streams: each gets what
//! it did not acknowledge, and nothing stays that nobody needs.

mod model;
mod rig;
#[path = "../../../../tests/seeds.rs"]
mod seeds;

use model::{CONSUMERS, STREAMS, Shown, World};
use nuthatch_log::OpenError;
use nuthatch_log::env::{Fault, MemDisk};
use rig::{Follower, Rig};
use std::sync::atomic::{AtomicU64, Ordering};

/// Lives in one history; each ends with a cut.
const LIVES: u64 = 3;
/// Histories of an ordinary run.
const HISTORIES: u64 = 240;

/// Logs that were opened from what had followed them.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);

fn content_bytes(disk: &MemDisk) -> u64 {
    use nuthatch_log::Disk;
    let dirs = ["", "tmp/", "torn/", "cold/"];
    let names = dirs.iter().flat_map(|dir| {
        let listed = disk.list(dir).unwrap_or_default();
        listed
            .into_iter()
            .map(move |name| if name.starts_with(dir) { name } else { format!("{dir}{name}") })
    });
    names.filter_map(|name| disk.file_len(&name)).map(|bytes| bytes as u64).sum()
}

/// Arms what will go wrong in this life.
fn arm(world: &mut World, disk: &MemDisk) {
    let at = disk.operations() + 1 + world.chance.below(400);
    match world.chance.below(8) {
        0..5 => disk.inject(Fault::PowerCut(at)),
        5 => disk.inject(Fault::SyncError(at)),
        // It ends between two steps.
        _ => {}
    }
}

/// Lets the disk be full for a while, or no more.
fn fill(world: &mut World, disk: &MemDisk) {
    let room = content_bytes(disk) + world.chance.below(24) * 1024;
    let capacity = if world.chance.below(3) == 0 { room } else { u64::MAX };
    disk.set_capacity(capacity);
}

/// What is done while the disk is well; gives what has followed the log, which has read only what was durable.
fn live(world: &mut World, rig: &mut Rig, disk: &MemDisk) -> Option<Follower> {
    let mut follower = None;
    world.begin(rig);
    for _ in 0..world.chance.below(140) {
        if world.chance.below(30) == 0 {
            fill(world, disk);
        }
        world.step(rig);
        if world.chance.below(3) == 0 {
            world.settle(rig);
            if !rig.has_failed() && world.chance.below(3) == 0 {
                follower = Follower::read(follower, disk);
            }
        }
        if rig.has_failed() {
            break;
        }
    }
    world.end(rig);
    follower
}

/// Plays a history; the disk's trace, or what is wrong.
fn history(seed: u64) -> Result<u64, String> {
    let mut world = World::new(seed);
    let mut disk = MemDisk::default();
    let mut trace = 0_u64;
    for number in 0..LIVES {
        let salt = seed * 31 + number;
        arm(&mut world, &disk);
        let mut follower = None;
        match Rig::open(&disk, salt, world.now_ns) {
            Ok(mut rig) => follower = live(&mut world, &mut rig, &disk),
            Err(OpenError::Io { .. }) => world.shown = Shown::default(),
            Err(error) => return Err(format!("life {number} does not open: {error}")),
        }
        trace = trace.rotate_left(9) ^ disk.trace();
        disk = disk.crash(seed ^ (number << 32));
        let what = |error: String| format!("life {number}: {error}");
        look(&mut world, &disk, salt ^ 6, follower).map_err(what)?;
        drain(&world, &disk, salt ^ 6).map_err(what)?;
        if world.chance.below(3) == 0 {
            disk.set_capacity(u64::MAX);
        }
    }
    Ok(trace)
}

/// Opens what the cut left, on a copy with room, from what has followed the log, if anything has; compares it with what was
/// known.
fn look(
    world: &mut World,
    disk: &MemDisk,
    salt: u64,
    follower: Option<Follower>,
) -> Result<(), String> {
    let copy = disk.survive();
    copy.set_capacity(u64::MAX);
    let (mut rig, is_followed) = Rig::open_from(&copy, salt, world.now_ns, follower)
        .map_err(|error| format!("does not open after a cut: {error}"))?;
    FOLLOWED.fetch_add(u64::from(is_followed), Ordering::Relaxed);
    for stream in 0..STREAMS.len() {
        world.check_stream(&mut rig, stream)?;
    }
    for consumer in 0..CONSUMERS.len() {
        world.check_consumer(&mut rig, consumer)?;
    }
    Ok(())
}

/// On a copy with room, every consumer takes all it can get.
fn drain(world: &World, disk: &MemDisk, salt: u64) -> Result<(), String> {
    let copy = disk.survive();
    copy.set_capacity(u64::MAX);
    let mut rig = Rig::open(&copy, salt, world.now_ns)
        .map_err(|error| format!("does not open for draining: {error}"))?;
    world.drain(&mut rig)
}

#[test]
fn what_goes_is_gone_and_what_stays_is_there() {
    let failed: Vec<String> = seeds::seeds(0..HISTORIES)
        .filter_map(|seed| history(seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect();
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), failed.first());
    let followed = FOLLOWED.load(Ordering::Relaxed);
    assert!(followed > HISTORIES / 4, "only {followed} logs were opened from a standby");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..5 {
        assert_eq!(history(seed), history(seed));
    }
}
