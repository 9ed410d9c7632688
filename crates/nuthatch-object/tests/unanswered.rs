//! A change of the catalog that is never answered: it was made, it was not, or it is made later. The
//! server goes on, and the next one finds what the last change that was answered says.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/toxic.rs"]
mod toxic;

use common::{History, Rig, tiny, tiny_cold};
use nuthatch_log::env::{Disk, read_exact_at};
use nuthatch_log::{LogOptions, SyncPolicy};
use nuthatch_object::{Bucket, BucketOptions, BucketView, ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use toxic::{PendingFetch, Silence, ToxicStore, Toxics};

const ARRIVALS: [PendingFetch; 3] = [PendingFetch::AtOnce, PendingFetch::Never, PendingFetch::Late];

/// Histories of a run.
const HISTORIES: u64 = 120;

/// Changes without an answer in each of them.
const SILENCES: u64 = 4;

fn store(inner: &Arc<InMemory>) -> Arc<ToxicStore> {
    let toxics = Toxics { seed: 0, fail_percent: 0, die_at: None, hide_fences: false };
    Arc::new(ToxicStore::new(Arc::clone(inner), toxics))
}

/// Gives a request up after one attempt.
fn disk(store: &Arc<ToxicStore>, seed: u64) -> io::Result<ObjectDisk> {
    let retry_for = Duration::ZERO;
    let options = BucketOptions { retry_first_ms: 1, retry_for, ..BucketOptions::default() };
    let there = Arc::clone(store);
    let bucket = Bucket::new(there, Path::from("p/log"), "bucket".to_owned(), options)?;
    let options = ObjectDiskOptions { seed, ..ObjectDiskOptions::default() };
    ObjectDisk::open(Arc::new(bucket), options)
}

fn publish(disk: &ObjectDisk, content: &[u8]) -> io::Result<()> {
    let file = disk.create("tmp/catalog")?;
    file.write_at(content, 0)?;
    file.sync()?;
    disk.rename("tmp/catalog", "catalog")
}

fn published(disk: &dyn Disk) -> Vec<u8> {
    let file = disk.open("catalog").expect("is there");
    let len = usize::try_from(file.len().expect("known")).expect("small");
    read_exact_at(&*file, 0, len).expect("reads")
}

/// What the next owner would find.
fn found(inner: &Arc<InMemory>) -> Vec<u8> {
    let options = BucketOptions::default();
    let bucket = Bucket::new(store(inner), Path::from("p/log"), "bucket".to_owned(), options);
    published(&BucketView::open(Arc::new(bucket.expect("threads"))).expect("can be read"))
}

#[test]
fn a_catalog_without_an_answer_does_not_stop_the_next_one() {
    for arrival in ARRIVALS {
        let inner = Arc::new(InMemory::new());
        let seen = store(&inner);
        let owner = disk(&seen, 1).expect("opens");
        publish(&owner, b"first").expect("is published");
        for attempt in 0..3 {
            seen.silence(Silence { part: "/catalog/", arrival });
            assert!(publish(&owner, b"unanswered").is_err(), "{arrival:?} {attempt}");
            assert_eq!(published(&owner), b"first", "{arrival:?}: nobody relies on it");
        }
        publish(&owner, b"second").unwrap_or_else(|error| panic!("{arrival:?}: {error}"));
        seen.arrive();
        assert_eq!(published(&owner), b"second", "{arrival:?}");
        publish(&owner, b"third").expect("is published");
        assert_eq!(found(&inner), b"third", "{arrival:?}");
    }
}

/// Between a change without an answer and the next one it is found made or not, whole.
#[test]
fn a_catalog_without_an_answer_is_found_made_or_not_made() {
    for arrival in ARRIVALS {
        let inner = Arc::new(InMemory::new());
        let seen = store(&inner);
        let owner = disk(&seen, 1).expect("opens");
        publish(&owner, b"first").expect("is published");
        seen.silence(Silence { part: "/catalog/", arrival });
        assert!(publish(&owner, b"unanswered").is_err());
        let made = arrival == PendingFetch::AtOnce;
        let expected: &[u8] = if made { b"unanswered" } else { b"first" };
        assert_eq!(found(&inner), expected, "{arrival:?}");
        seen.arrive();
        let expected: &[u8] = if arrival == PendingFetch::Never { b"first" } else { b"unanswered" };
        assert_eq!(found(&inner), expected, "{arrival:?}");
        publish(&owner, b"second").expect("is published");
        assert_eq!(found(&inner), b"second", "{arrival:?}");
    }
}

fn options(seed: u64) -> LogOptions {
    let options = if seed.is_multiple_of(2) { tiny() } else { tiny_cold() };
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..options }
}

fn open(store: &Arc<ToxicStore>, seed: u64, salt: u64) -> Result<Rig, String> {
    let disk = disk(store, seed ^ salt << 40).map_err(|error| error.to_string())?;
    let rig = Rig::open_seeded(options(seed), Arc::new(disk), seed ^ salt << 40);
    rig.map_err(|error| error.to_string())
}

/// A log whose catalog changes without an answer now and then: while a segment begins, where it stops,
/// or while it compacts, where it goes on. Returns how often it did.
fn play(seed: u64) -> Result<u64, String> {
    let inner = Arc::new(InMemory::new());
    let mut seen = store(&inner);
    let mut history = History::new(seed);
    let mut rig = open(&seen, seed, 1)?;
    let mut goes_on = 0;
    for round in 0..SILENCES {
        let arrival = ARRIVALS[history.chance.below(3) as usize];
        let while_it_works = history.chance.below(4) == 0;
        history.work(&mut rig, 40);
        seen.silence(Silence { part: "/catalog/", arrival });
        if while_it_works {
            history.work(&mut rig, 20);
        }
        (0..5).for_each(|_| rig.advance(Duration::from_secs(1)));
        let is_met = !seen.end_silence();
        let late = Arc::clone(&seen);
        if rig.core.machine().failed.is_some() {
            history.known.in_flight.clear();
            drop(rig);
            seen = store(&inner);
            rig = open(&seen, seed, 2 + round)?;
            history.check(&mut rig)?;
            history.known.created.extend(rig.core.machine().streams.keys());
        } else {
            goes_on += u64::from(is_met);
        }
        if history.chance.below(2) == 0 {
            late.arrive();
        }
        history.work(&mut rig, 60);
        rig.advance(Duration::from_secs(2));
        if let Some(why) = &rig.core.machine().failed {
            return Err(format!("round {round}, {arrival:?}: the log does not go on: {why}"));
        }
        late.arrive();
        history.check(&mut rig)?;
    }
    drop(rig);
    let mut rig = open(&store(&inner), seed, 99)?;
    history.check(&mut rig)?;
    Ok(goes_on)
}

#[test]
fn a_log_whose_catalog_is_not_answered_loses_nothing_and_goes_on() {
    let mut goes_on = 0;
    for seed in 0..HISTORIES {
        goes_on += play(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(goes_on > HISTORIES / 4, "only {goes_on} changes were not answered by a log at work");
}
