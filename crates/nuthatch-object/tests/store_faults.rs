//! Seeded faults of the store and deaths of the server at every change it makes: whatever was
//! acknowledged is readable for the next owner, in order, and no sequence is given out twice. And
//! two owners at a time: the one that slept acknowledges nothing that the other does not know. The
//! same checks must fail when the fence is broken.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;
#[path = "common/toxic.rs"]
mod toxic;

use common::{History, Rig, tiny, tiny_cold};
use nuthatch_log::{LogOptions, OpenError, SyncPolicy};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use toxic::{Interruption, Moment, ToxicStore, Toxics};

/// Deaths per history; each history goes on with what the last death left.
const DEATHS: u64 = 3;

/// Histories of a run. With [`DEATHS`]: more than a thousand crash points.
const HISTORIES: u64 = 400;

const QUIET: Toxics = Toxics { seed: 0, fail_percent: 0, die_at: None, hide_fences: false };

fn options() -> LogOptions {
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..tiny() }
}

/// A log that merges, sorts by stream and compresses whatever is sealed.
fn cold() -> LogOptions {
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..tiny_cold() }
}

/// The log in the bucket, seen through a store that fails.
fn disk(store: Arc<ToxicStore>, seed: u64) -> io::Result<ObjectDisk> {
    let options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), options)?;
    // Small objects, so that a frame takes several.
    let options = ObjectDiskOptions { seed, part_bytes: 700, ..ObjectDiskOptions::default() };
    ObjectDisk::open(Arc::new(bucket), options)
}

fn open(options: &LogOptions, store: &Arc<ToxicStore>, seed: u64) -> Result<Rig, String> {
    let disk = disk(Arc::clone(store), seed).map_err(|error| error.to_string())?;
    Rig::open_seeded(options.clone(), Arc::new(disk), seed).map_err(|error| match error {
        OpenError::Io { .. } => "io".to_owned(),
        error => format!("does not open: {error}"),
    })
}

fn healthy(inner: &Arc<InMemory>) -> Arc<ToxicStore> {
    Arc::new(ToxicStore::new(Arc::clone(inner), QUIET))
}

/// What a history led to.
#[derive(PartialEq, Eq, Debug)]
struct Course {
    /// A hash of all changes that were asked for, in their order.
    trace: u64,
    /// What was being done at each death.
    died_at: Vec<Moment>,
}

/// One history with deaths.
fn deaths(options: &LogOptions, seed: u64, fail_percent: u64) -> Result<Course, String> {
    let inner = Arc::new(InMemory::new());
    let mut history = History::new(seed);
    let (mut trace, mut died_at) = (0u64, Vec::new());
    for death in 0..DEATHS {
        // Some die while they take over, which is only a few changes.
        let changes = if history.chance.below(8) == 0 { 10 } else { 250 };
        let die_at = Some(1 + history.chance.below(changes));
        let salt = seed * 31 + death;
        let toxics = Toxics { seed: salt, fail_percent, die_at, hide_fences: false };
        let store = Arc::new(ToxicStore::new(Arc::clone(&inner), toxics));
        if let Ok(mut rig) = open(options, &store, salt) {
            history.work(&mut rig, 150);
            history.collect(&rig);
            if history.chance.below(4) == 0 {
                let _ = rig.core.close();
            }
            history.known.in_flight.clear();
        }
        trace = trace.rotate_left(9) ^ store.trace();
        died_at.extend(store.died_at());
        let mut rig = open(options, &healthy(&inner), salt ^ 7 << 40)
            .map_err(|error| format!("after death {death}: {error}"))?;
        history.check(&mut rig)?;
        history.known.created.extend(rig.core.machine().streams.keys());
    }
    Ok(Course { trace, died_at })
}

/// An owner that is interrupted at a seeded change by another, which works and ends; then the first
/// goes on as if nothing had happened.
fn takeover(options: &LogOptions, seed: u64, hide_fences: bool) -> Result<bool, String> {
    let inner = Arc::new(InMemory::new());
    let mut first = History::new(seed);
    let toxics = Toxics { seed, fail_percent: 5, die_at: None, hide_fences };
    let store = Arc::new(ToxicStore::new(Arc::clone(&inner), toxics));
    let mut rig = open(options, &store, seed)?;
    first.work(&mut rig, 20);
    let (send, receive) = sync_channel(1);
    let (shared, at) = (Arc::clone(&inner), store.changes() + 1 + first.chance.below(60));
    let theirs = options.clone();
    let run = move || {
        let _ = send.send(second_owner(&theirs, &shared, seed));
    };
    store.interrupt(Interruption { at, run: Box::new(run) });
    first.work(&mut rig, 60);
    first.collect(&rig);
    let fenced = rig.core.machine().failed.is_some();
    drop(rig);
    let Ok(second) = receive.recv_timeout(Duration::from_secs(60)) else { return Ok(false) };
    let mut rig = open(options, &healthy(&inner), seed ^ 9 << 40)?;
    let second = second?;
    // What the second acknowledged counts as known to all; a conflict is a sequence given out twice.
    first.merge(second)?;
    first.known.in_flight.clear();
    first.check(&mut rig)?;
    Ok(fenced)
}

fn second_owner(options: &LogOptions, inner: &Arc<InMemory>, seed: u64) -> Result<History, String> {
    let mut history = History::new(seed ^ 0x5555);
    let mut rig = open(options, &healthy(inner), seed ^ 5 << 40)?;
    history.known.created.extend(rig.core.machine().streams.keys());
    history.work(&mut rig, 20);
    history.collect(&rig);
    Ok(history)
}

fn failures(of: impl Fn(u64) -> Result<(), String>, seeds: std::ops::Range<u64>) -> Vec<String> {
    seeds.filter_map(|seed| of(seed).err().map(|why| format!("seed {seed}: {why}"))).collect()
}

/// Plays histories; how many deaths there were at each kind of change.
fn play_deaths(
    options: &LogOptions,
    seeds: impl Iterator<Item = u64>,
    fail_percent: u64,
) -> BTreeMap<Moment, u64> {
    let mut moments = BTreeMap::new();
    for seed in seeds {
        let course = deaths(options, seed, fail_percent);
        for moment in course.unwrap_or_else(|why| panic!("seed {seed}: {why}")).died_at {
            *moments.entry(moment).or_default() += 1;
        }
    }
    moments
}

/// Deaths at each kind of change that a run has at least.
const DEATHS_AT_EACH_MOMENT: u64 = 3;

fn every_moment_was_met(moments: &BTreeMap<Moment, u64>) {
    for moment in [
        Moment::SelfTest,
        Moment::Takeover,
        Moment::Catalog,
        Moment::Flush,
        Moment::Seal,
        Moment::Compaction,
        Moment::Checkpoint,
        Moment::Collection,
    ] {
        let met = moments.get(&moment).copied().unwrap_or(0);
        assert!(met >= DEATHS_AT_EACH_MOMENT, "{moment:?} met {met} times: {moments:?}");
    }
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_server() {
    every_moment_was_met(&play_deaths(&options(), seeds::seeds(0..HISTORIES), 0));
}

#[test]
fn and_a_store_that_fails_all_the_time() {
    every_moment_was_met(&play_deaths(&options(), seeds::seeds(1_000..1_000 + HISTORIES), 25));
}

/// The same where whatever is sealed is merged, sorted by stream and compressed: the server dies at
/// every step of that, with and without failing requests.
#[test]
fn and_the_death_of_one_that_merges_and_compresses() {
    for (seeds, fail_percent) in
        [(2_000..2_000 + HISTORIES / 2, 0), (3_000..3_000 + HISTORIES / 2, 25)]
    {
        let moments = play_deaths(&cold(), seeds::seeds(seeds), fail_percent);
        let met = moments.get(&Moment::Compaction).copied().unwrap_or(0);
        assert!(met >= DEATHS_AT_EACH_MOMENT, "{met} deaths in a compaction: {moments:?}");
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        for options in [options(), cold()] {
            let (one, other) = (deaths(&options, seed, 10), deaths(&options, seed, 10));
            assert_eq!(one, other, "seed {seed}");
        }
    }
    assert_ne!(deaths(&options(), 1, 10), deaths(&options(), 2, 10));
}

#[test]
fn an_owner_that_slept_acknowledges_nothing() {
    let mut fenced = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        let options = if seed % 2 == 0 { options() } else { cold() };
        match takeover(&options, seed, false) {
            Ok(was_fenced) => fenced += u64::from(was_fenced),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(fenced > HISTORIES / 2, "only {fenced} takeovers ended the first owner");
}

#[test]
fn the_harness_notices_a_broken_fence() {
    let failures = failures(|seed| takeover(&options(), seed, true).map(drop), 0..60);
    assert!(failures.len() > 5, "only {} of 60 takeovers lost anything", failures.len());
}
