//! Opening in two steps: what is asked before a log is taken changes nothing and ends nobody, whatever
//! the answer is.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/objects.rs"]
mod objects;

use bytes::Bytes;
use common::{Outcome, Outputs, Rig, Toy, tiny};
use nuthatch_log::{LogOptions, OpenError};
use nuthatch_object::{
    Bucket, BucketOptions, BucketView, DiskCacheOptions, ObjectDisk, ObjectDiskOptions,
    PreparedDisk,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn options() -> LogOptions {
    LogOptions { block_bytes: 64, ..tiny() }
}

fn bucket(store: &Arc<InMemory>) -> Arc<Bucket> {
    let options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let store = Arc::clone(store);
    let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), options);
    Arc::new(bucket.expect("threads"))
}

fn prepare(store: &Arc<InMemory>) -> std::io::Result<PreparedDisk> {
    ObjectDisk::prepare(bucket(store), ObjectDiskOptions::default())
}

fn open(store: &Arc<InMemory>, seed: u64) -> Rig {
    let disk = ObjectDisk::open(bucket(store), ObjectDiskOptions::default()).expect("opens");
    Rig::open_seeded(options(), Arc::new(disk), seed).expect("opens")
}

/// A log of several segments, whose owner is at work.
fn owned(seed: u64) -> (Arc<InMemory>, Rig) {
    let store = Arc::new(InMemory::new());
    // An owner before, so that there is a file of which the next one wrote a manifest.
    let mut rig = open(&store, seed);
    rig.create(1, 0);
    for n in 0..30u8 {
        assert!(matches!(rig.publish(1, &[n; 700]), Outcome::Acked(_)));
    }
    drop(rig);
    (Arc::clone(&store), open(&store, seed + 1))
}

fn acknowledges(rig: &mut Rig) -> bool {
    matches!(rig.publish(1, b"still the owner"), Outcome::Acked(_))
}

/// The step before the fence refuses, and nothing has changed for anybody.
fn refused_unchanged(store: &Arc<InMemory>, rig: &mut Rig, part: &str) {
    let before = objects::all(store);
    let refusal = prepare(store).and_then(|mut prepared| {
        prepared.rehearse(&options()).map(drop).map_err(std::io::Error::other)
    });
    let why = refusal.expect_err("is refused").to_string();
    assert!(why.contains(part), "{why}");
    assert_eq!(objects::all(store), before, "{part}");
    assert!(acknowledges(rig), "{part}");
}

fn key_of(store: &InMemory, part: &str) -> String {
    objects::all(store).into_keys().rfind(|key| key.contains(part)).expect("is there")
}

#[test]
fn preparing_ends_nobody_and_taking_does() {
    let (store, mut first) = owned(1);
    let before = objects::all(&store);
    let mut prepared = prepare(&store).expect("can be read");
    let report = prepared.rehearse(&options()).expect("is whole").expect("there is a log");
    assert!(prepared.has_log() && report.segments > 2, "{report:?}");
    assert_eq!(objects::all(&store), before);
    assert!(acknowledges(&mut first));
    let disk = prepared.take().expect("takes");
    assert!(!acknowledges(&mut first));
    let mut second = Rig::open_seeded(options(), Arc::new(disk), 3).expect("opens");
    assert_eq!(second.read(1, 7), Outcome::Body(vec![6; 700]));
    assert!(acknowledges(&mut second));
}

/// What only the machine can tell to be of a later version is refused in the step before the fence too.
#[test]
fn content_of_a_later_version_is_refused_before_the_fence() {
    let (store, mut rig) = owned(2);
    // The toy takes the highest byte of this number for a version.
    rig.create(2, 1 << 56);
    assert!(acknowledges(&mut rig));
    let before = objects::all(&store);
    let mut prepared = prepare(&store).expect("can be read");
    let rehearsed = prepared.rehearse_with(&options(), || Toy::new(Outputs::default()));
    let error = rehearsed.expect_err("is refused");
    assert!(matches!(error, OpenError::Unknown { .. }), "{error}");
    assert_eq!(objects::all(&store), before);
    assert!(acknowledges(&mut rig));
}

#[test]
fn what_was_rehearsed_is_not_fetched_again() {
    let (store, rig) = owned(5);
    drop(rig);
    let mut prepared = prepare(&store).expect("can be read");
    prepared.rehearse(&options()).expect("is whole");
    let counted = Arc::clone(prepared.bucket());
    let before = counted.counters().snapshot().get_bytes;
    let disk = prepared.take().expect("takes");
    Rig::open_seeded(options(), Arc::new(disk), 3).expect("opens");
    let fetched = counted.counters().snapshot().get_bytes - before;
    // The catalog, twice, and manifests.
    assert!(fetched < 4000, "{fetched}");
}

#[test]
fn an_empty_bucket_is_prepared_and_stays_empty() {
    let store = Arc::new(InMemory::new());
    let mut prepared = prepare(&store).expect("can be used");
    assert!(!prepared.has_log());
    assert!(prepared.rehearse(&options()).expect("nothing to refuse").is_none());
    assert!(objects::all(&store).is_empty());
    prepared.take().expect("takes");
    assert!(!objects::all(&store).is_empty());
}

#[test]
fn a_later_version_is_refused_before_the_fence() {
    let (store, mut rig) = owned(11);
    let whole = objects::all(&store);
    let later = |part: &str, summed: &dyn Fn(&[u8]) -> usize| {
        let key = key_of(&store, part);
        let bytes = whole[&key].clone();
        objects::put(&store, &key, objects::of_version(&bytes, 9, summed(&bytes)));
        (key, bytes)
    };
    for (part, says, summed) in [
        ("/catalog/", "version", (|bytes: &[u8]| bytes.len()) as fn(&[u8]) -> usize),
        ("/manifest.", "version", |bytes: &[u8]| bytes.len()),
        ("/0000000000000000.00000001", "version 9", |_| 64),
    ] {
        let (key, bytes) = later(part, &summed);
        refused_unchanged(&store, &mut rig, says);
        objects::put(&store, &key, bytes);
    }
}

#[test]
fn a_catalog_of_a_later_version_inside_an_object_of_this_one_is_refused_before_the_fence() {
    let (store, mut rig) = owned(13);
    let key = key_of(&store, "/catalog/");
    let bytes = objects::get(&store, &key);
    let inner = objects::of_version(&bytes[48..], 77, bytes.len() - 48);
    let object = [&bytes[..48], &inner].concat();
    objects::put(&store, &key, objects::of_version(&object, 1, object.len()));
    refused_unchanged(&store, &mut rig, "version 77");
}

#[test]
fn what_has_the_name_of_a_fence_or_a_catalog_and_cannot_be_read_is_refused() {
    for unreadable in ["p/log/fence/0000000100000000", "p/log/catalog/99999999999999999999"] {
        let (store, mut rig) = owned(17);
        objects::put(&store, unreadable, "of a later version");
        let name = unreadable.strip_prefix("p/log/").expect("below the log");
        refused_unchanged(&store, &mut rig, name);
        let before = objects::all(&store);
        let why = BucketView::survey(bucket(&store)).err().map(|error| error.to_string());
        assert!(why.as_ref().is_some_and(|why| why.contains(name)), "{why:?}");
        assert_eq!(objects::all(&store), before);
    }
}

#[test]
fn damage_is_refused_before_the_fence() {
    let damage = |part: &str, says: &str, bend: &dyn Fn(&mut Vec<u8>)| {
        let (store, mut rig) = owned(19);
        let key = key_of(&store, part);
        let mut bytes = objects::get(&store, &key).to_vec();
        bend(&mut bytes);
        objects::put(&store, &key, bytes);
        refused_unchanged(&store, &mut rig, says);
    };
    damage("/catalog/", "checksum", &|bytes| bytes[50] ^= 1);
    damage("/manifest.", "checksum", &|bytes| bytes[40] ^= 1);
    damage("/0000000000000000.00000001", "first block", &|bytes| bytes[20] ^= 1);
}

#[test]
fn a_segment_that_has_gone_is_refused_before_the_fence() {
    let (store, mut rig) = owned(23);
    let key = key_of(&store, "/0000000000000000.00000001");
    let file = key.rsplit_once('/').map_or("", |(file, _)| file).to_owned() + "/";
    for key in objects::all(&store).into_keys().filter(|key| key.starts_with(&file)) {
        objects::delete(&store, &key);
    }
    refused_unchanged(&store, &mut rig, "is missing");
}

/// Looking beside an owner that rolls over, compacts and removes must not take that for damage.
#[test]
fn an_owner_at_work_is_not_taken_for_damage() {
    let store = Arc::new(InMemory::new());
    let mut rig = open(&store, 31);
    rig.create(1, 40);
    let (stop, theirs) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
    let (ended, looks) = (Arc::clone(&stop), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&looks);
    let looking = std::thread::spawn(move || {
        let mut refused = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            let looked = prepare(&theirs).map_err(|error| error.to_string());
            let looked = looked.and_then(|mut prepared| {
                prepared.rehearse(&options()).map_err(|error| error.to_string())
            });
            counted.fetch_add(1, Ordering::Relaxed);
            refused.extend(looked.err());
        }
        refused
    });
    // However busy the machine is: the owner works as long as the other has not looked often enough.
    for n in (0..60_000u64).take_while(|n| *n < 3000 || looks.load(Ordering::Relaxed) <= 20) {
        assert!(matches!(rig.publish(1, &[n as u8; 300]), Outcome::Acked(_)));
        rig.advance(std::time::Duration::from_millis(200));
    }
    stop.store(true, Ordering::Relaxed);
    let refused = looking.join().expect("no panic");
    let looks = looks.load(Ordering::Relaxed);
    assert!(looks > 20, "{looks}");
    assert!(refused.is_empty(), "{} of {looks}: {:?}", refused.len(), refused.first());
    let seen = rig.handle.stats();
    assert!(seen.compacted_segments > 5, "{seen:?}");
}

/// Two logs of one server: the second is refused, so the first stays with whoever has it.
#[test]
fn a_server_whose_second_log_is_refused_takes_none() {
    let ((first, mut healthy), (second, rig)) = (owned(41), owned(43));
    drop(rig);
    let key = key_of(&second, "/catalog/");
    objects::put(&second, &key, "no catalog");
    let taken: Result<Vec<PreparedDisk>, _> = [&first, &second].into_iter().map(prepare).collect();
    assert!(taken.is_err());
    assert!(acknowledges(&mut healthy));
}

#[test]
fn a_cache_directory_that_cannot_be_had_is_said_before_the_fence() {
    let (store, mut rig) = owned(47);
    let file = std::env::temp_dir().join(format!("nuthatch-no-dir-{}", std::process::id()));
    std::fs::write(&file, b"a file").expect("writes");
    let disk_cache = Some(DiskCacheOptions { dir: file.join("cache"), max_bytes: 1 << 20 });
    let before: BTreeMap<String, Bytes> = objects::all(&store);
    let options = ObjectDiskOptions { disk_cache, ..ObjectDiskOptions::default() };
    let why = ObjectDisk::prepare(bucket(&store), options).err().map(|error| error.to_string());
    assert!(why.as_ref().is_some_and(|why| why.contains("cache in ")), "{why:?}");
    assert_eq!(objects::all(&store), before);
    assert!(acknowledges(&mut rig));
    std::fs::remove_file(file).expect("goes");
}

#[test]
fn a_log_that_is_refused_behind_the_fence_keeps_all_that_it_had() {
    let (store, rig) = owned(53);
    drop(rig);
    let prepared = prepare(&store).expect("can be read");
    // Damaged between the two steps.
    let key = key_of(&store, "/manifest.");
    objects::put(&store, &key, "no manifest");
    let before = objects::all(&store);
    assert!(prepared.take().is_err());
    let mut after = objects::all(&store);
    after.retain(|key, _| !before.contains_key(key));
    let new: Vec<&str> = after.keys().map(|key| key.split('/').nth(2).unwrap_or("")).collect();
    assert_eq!(new, ["catalog", "fence", "left"]);
}
