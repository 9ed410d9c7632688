//! Files of a tier that cannot be read: of a later version, damaged, in the wrong place, not given by
//! the disk for a moment. And a disk that is full at each step. Nothing that cannot be read is
//! deleted or overwritten, and what was acknowledged is there.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/objects.rs"]
mod objects;
#[path = "common/tier.rs"]
mod tier;

use common::History;
use faulty::{FaultyDisk, Plan};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, MemDisk, read_exact_at};
use nuthatch_object::{Step, TierOptions, moved_away};
use object_store::memory::InMemory;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;
use tier::{Process, moved_log, patient, tier_options, tiered};

fn file(disk: &dyn Disk, path: &str) -> Vec<u8> {
    let file = disk.open(path).expect("is there");
    let len = usize::try_from(file.len().expect("known")).expect("small");
    read_exact_at(&*file, 0, len).expect("reads")
}

fn write(disk: &dyn Disk, path: &str, bytes: &[u8]) {
    let file = disk.create(path).expect("creates");
    file.write_at(bytes, 0).and_then(|()| file.sync()).expect("writes");
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir)).expect("syncs");
}

/// Every file of a log's directory.
fn files(disk: &dyn Disk) -> BTreeMap<String, Vec<u8>> {
    let in_dir = |dir: &str| -> Vec<String> {
        let names = disk.list(dir).unwrap_or_default().into_iter();
        names.map(|name| if dir.is_empty() { name } else { format!("{dir}/{name}") }).collect()
    };
    let paths = ["", "tmp", "torn", "cold"].into_iter().flat_map(in_dir);
    paths.map(|path| (path.clone(), file(disk, &path))).collect()
}

/// What is reported, and options that report there.
fn listening(seed: u64) -> (Arc<Mutex<Vec<String>>>, TierOptions) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let report = Reporter::new(move |text| heard.lock().push(text.to_owned()));
    (said, TierOptions { report, ..tier_options(seed) })
}

fn store(inner: &Arc<InMemory>) -> Arc<nuthatch_object::Bucket> {
    patient(Arc::clone(inner) as _)
}

fn is_whole(inner: &Arc<InMemory>, local: &MemDisk, history: &mut History, seed: u64) {
    let mut process = Process::start(&local.survive(), store(inner), seed).expect("opens");
    history.check(&mut process.rig).expect("all is there");
    process.move_all().1.expect("moves");
    history.check(&mut process.rig).expect("all is there");
}

#[test]
fn a_note_of_a_later_version_is_refused_and_unchanged() {
    let (inner, local, mut history) = moved_log(3);
    let note = file(&local, "tier");
    write(&local, "tier", &objects::of_version(&note, 9, note.len()));
    let before = (files(&local), objects::all(&inner));
    let why = tiered(&local, store(&inner), tier_options(4)).err().expect("refused").to_string();
    assert!(why.contains("version 9"), "{why}");
    let why = moved_away(&local).expect_err("nothing is known").to_string();
    assert!(why.contains("version 9"), "{why}");
    assert!((files(&local), objects::all(&inner)) == before);
    write(&local, "tier", &note);
    is_whole(&inner, &local, &mut history, 5);
}

#[test]
fn a_tier_of_a_later_version_is_refused_and_unchanged() {
    let (inner, local, mut history) = moved_log(7);
    let head = objects::get(&inner, "p/log/tier");
    let later = String::from_utf8_lossy(&head).replace("nuthatch tier 1", "nuthatch tier 2");
    objects::put(&inner, "p/log/tier", later);
    let before = (files(&local), objects::all(&inner));
    let why = tiered(&local, store(&inner), tier_options(8)).err().expect("refused").to_string();
    assert!(why.contains("of a version"), "{why}");
    assert!((files(&local), objects::all(&inner)) == before);
    objects::put(&inner, "p/log/tier", head);
    is_whole(&inner, &local, &mut history, 9);
}

#[test]
fn a_damaged_note_is_kept() {
    let (inner, local, mut history) = moved_log(11);
    let mut note = file(&local, "tier");
    note[40] ^= 4;
    write(&local, "tier", &note);
    let (said, options) = listening(12);
    let mut process = Process::with(&local, store(&inner), options, 12).expect("asks the bucket");
    assert_eq!(file(&local, "tier"), note, "looking changes nothing");
    history.check(&mut process.rig).expect("all is there");
    process.move_all().1.expect("moves");
    assert_eq!(file(&local, "torn/tier-0"), note);
    assert_eq!(process.tier.status().set_aside, 1);
    let said = said.lock().join("\n");
    assert!(said.contains("'tier' is damaged") && said.contains("kept as torn/tier-0"), "{said}");
    history.check(&mut process.rig).expect("all is there");
    drop(process);
    is_whole(&inner, &local, &mut history, 13);
}

/// Changes the ends of moved segments in some way; all of them are unreadable then.
fn with_other_ends(
    seed: u64,
    part: &str,
    bend: impl Fn(&BTreeMap<String, Vec<u8>>, &str) -> Vec<u8>,
) {
    let (inner, local, mut history) = moved_log(seed);
    let ends: BTreeMap<String, Vec<u8>> =
        files(&local).into_iter().filter(|(path, _)| path.starts_with("cold/")).collect();
    assert!(ends.len() > 3, "{}", ends.len());
    let bent: BTreeMap<String, Vec<u8>> =
        ends.keys().map(|path| (path.clone(), bend(&ends, path))).collect();
    bent.iter().for_each(|(path, bytes)| write(&local, path, bytes));
    let (said, _) = listening(seed);
    let heard = Arc::clone(&said);
    let report = Reporter::new(move |text| heard.lock().push(text.to_owned()));
    let options = nuthatch_object::BucketOptions { report, ..Default::default() };
    let prefix = object_store::path::Path::from("p/log");
    let there = Arc::clone(&inner);
    let bucket = nuthatch_object::Bucket::new(there, prefix, "bucket".to_owned(), options);
    let bucket = Arc::new(bucket.expect("threads"));
    let mut process = Process::start(&local, bucket, seed + 1).expect("asks the bucket");
    history.check(&mut process.rig).expect("all is there");
    let status = process.tier.status();
    assert_eq!(status.unreadable_ends, ends.len() as u64, "{status:?}");
    assert!(said.lock().iter().all(|text| text.contains(part)), "{:?}", said.lock());
    for (path, bytes) in bent {
        assert_eq!(file(&local, &path), bytes, "is left as it is");
    }
}

#[test]
fn ends_of_a_later_version_are_left_and_the_bucket_is_asked() {
    with_other_ends(17, "version 3", |ends, path| {
        let mut later = ends[path].clone();
        later[8] = 3;
        later
    });
}

#[test]
fn ends_that_are_damaged_are_left_and_the_bucket_is_asked() {
    with_other_ends(19, "damaged", |ends, path| {
        let mut damaged = ends[path].clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        damaged
    });
}

/// The right checksum, the wrong segment: what a misdirected write or a copy leaves.
#[test]
fn ends_of_another_segment_are_left_and_the_bucket_is_asked() {
    with_other_ends(23, "another segment's", |ends, path| {
        let next = ends.range(path.to_owned()..).nth(1).or_else(|| ends.iter().next());
        next.expect("there are several").1.clone()
    });
}

/// Each read of a start and of the moves behind it fails once. Whatever that leads to, nothing is
/// taken for damaged or gone, and nothing is set aside.
#[test]
fn a_read_that_fails_once_is_not_damage() {
    let (inner, local, mut history) = moved_log(29);
    let (mut number, mut refused) = (1, 0);
    loop {
        let (there, here) = (objects::all(&inner), local.survive());
        let inner = Arc::new(objects::store_of(&there));
        let plan = Plan::read(number);
        let below = Arc::new(here.clone()) as Arc<dyn nuthatch_object::LocalDisk>;
        let disk = Arc::new(FaultyDisk { below, plan: Arc::clone(&plan) });
        let (said, options) = listening(number);
        match Process::on(disk, store(&inner), options, Some(0), number) {
            Ok(mut process) => {
                history.check(&mut process.rig).unwrap_or_else(|why| {
                    // A message may be asked for again.
                    assert!(why.contains("Failing"), "read {number}: {why}");
                });
                let moved = process.move_all().1;
                moved.or_else(|_| process.move_all().1).expect("moves when asked again");
                assert_eq!(process.tier.status().set_aside, 0, "read {number}");
            }
            Err(why) => {
                assert!(why.contains("injected"), "read {number}: {why}");
                refused += 1;
            }
        }
        let said = said.lock().join("\n");
        assert!(!said.contains("damaged"), "read {number}: {said}");
        is_whole(&inner, &here, &mut history, number + 1000);
        if plan.reads() < number {
            break;
        }
        number += 1;
    }
    assert!(number > 40, "only {number} reads");
    assert!(refused < number / 2, "{refused} of {number} starts were refused");
}

/// A disk that has no space for each change of a start and of the moves behind it, once, or from then
/// on for many: nothing is left in `tmp/`, and all is there when there is space again.
#[test]
fn a_full_disk_at_each_step_leaves_nothing_behind() {
    let (inner, local, mut history) = moved_log(31);
    let mut process = Process::start(&local, store(&inner), 32).expect("opens");
    history.work(&mut process.rig, 120);
    history.collect(&process.rig);
    process.rig.core.close().expect("closes");
    drop(process);
    for times in [1, 6] {
        let mut number = 1;
        loop {
            let (there, here) = (objects::all(&inner), local.survive());
            let inner = Arc::new(objects::store_of(&there));
            let plan = Plan::full(number, times);
            let below = Arc::new(here.clone()) as Arc<dyn nuthatch_object::LocalDisk>;
            let disk: Arc<dyn nuthatch_object::LocalDisk> =
                Arc::new(FaultyDisk { below, plan: Arc::clone(&plan) });
            let tier = nuthatch_object::TieredDisk::open(disk, store(&inner), tier_options(number));
            let tier = tier.expect("opening takes no space");
            let (mut failed, mut moved) = (0, 0);
            loop {
                match tier.step(SystemTime::UNIX_EPOCH) {
                    Ok(Step::Idle(None)) => break,
                    Ok(Step::Moved(_)) => moved += 1,
                    Ok(_) => {}
                    Err(error) => {
                        assert!(nuthatch_log::env::is_full(&error), "change {number}: {error}");
                        failed += 1;
                        assert!(failed <= times, "change {number}: it does not end");
                    }
                }
            }
            assert!(moved > 3, "change {number}: {moved}");
            assert!(here.list("tmp").unwrap_or_default().is_empty(), "change {number}");
            drop(tier);
            if plan.changes() < number {
                break;
            }
            is_whole(&inner, &here, &mut history, number + 2000);
            number += 1;
        }
        assert!(number > 30, "only {number} changes");
    }
}

/// Not a byte is free: segments move all the same, which makes room.
#[test]
fn segments_move_off_a_disk_without_a_free_byte() {
    let (inner, local, mut history) = moved_log(37);
    let mut process = Process::start(&local, store(&inner), 38).expect("opens");
    history.work(&mut process.rig, 150);
    history.collect(&process.rig);
    process.rig.core.close().expect("closes");
    drop(process);
    let local = local.survive();
    let used: usize = files(&local).values().map(Vec::len).sum();
    local.set_capacity(used as u64);
    let tier = tiered(&local, store(&inner), tier_options(39)).expect("opening takes no space");
    let mut moved = 0;
    loop {
        match tier.step(SystemTime::UNIX_EPOCH).expect("moves") {
            Step::Idle(_) => break,
            Step::Moved(_) => moved += 1,
            _ => {}
        }
    }
    assert!(moved > 3, "{moved}");
    assert!(local.list("tmp").unwrap_or_default().is_empty());
    assert!(local.free_bytes().expect("known") > 8192);
    drop(tier);
    is_whole(&inner, &local, &mut history, 40);
}
