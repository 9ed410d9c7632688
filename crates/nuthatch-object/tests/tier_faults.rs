//! A local log with a bucket behind it: deaths and power cuts at every step of moving segments,
//! requests that fail, buckets that are gone, full, another's. Whatever was acknowledged is readable,
//! wherever it is.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/objects.rs"]
mod objects;
#[path = "../../../tests/seeds.rs"]
mod seeds;
#[path = "common/tier.rs"]
mod tier;
#[path = "common/toxic.rs"]
mod toxic;

use common::{History, Outcome};
use faulty::{FaultyDisk, Plan};
use nuthatch_log::env::{Disk, Fault, MemDisk};
use nuthatch_log::{Chain, Reporter};
use nuthatch_object::{
    Bucket, BucketOptions, BucketView, ObjectDisk, ObjectDiskOptions, Step, TierOptions, TierStatus,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tier::{Process, bucket, delete, keys, moved_log, patient, segments, tier_options, tiered};
use toxic::{Interruption, ToxicStore, Toxics};

const QUIET: Toxics = Toxics { seed: 0, fail_percent: 0, die_at: None, hide_fences: false };

/// Deaths per history; each history goes on with what the last death left.
const DEATHS: u64 = 3;

/// How long requests are repeated.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Histories of a run, and half as many with a store that fails. With [`DEATHS`]: more than a thousand
/// crash points.
const HISTORIES: u64 = 240;

/// One history with deaths, of the process or of the power, while the log works and segments move;
/// returns how many segments moved, and a hash of all changes that were asked for.
fn deaths(seed: u64, fail_percent: u64) -> Result<(u64, u64), String> {
    deaths_with(seed, fail_percent, 0)
}

/// As [`deaths`], where so many of a hundred removals come late and, if any do, every request is given
/// up after one attempt.
fn deaths_with(seed: u64, fail_percent: u64, late_percent: u64) -> Result<(u64, u64), String> {
    let inner = Arc::new(InMemory::new());
    let mut local = MemDisk::default();
    let mut history = History::new(seed);
    let (mut moved, mut trace) = (0, 0u64);
    for death in 0..DEATHS {
        let salt = seed * 31 + death;
        let (kind, change) = (history.chance.below(3), 1 + history.chance.below(120));
        // The process dies at a change of the bucket, the power goes then, or at one of the disk.
        let (by_bucket, both) = (kind == 0, kind == 1);
        let die_at = (by_bucket || both).then_some(change);
        let toxics = Toxics { seed: salt, fail_percent, die_at, hide_fences: false };
        let store = Arc::new(ToxicStore::new(Arc::clone(&inner), toxics));
        if both {
            let disk = local.clone();
            let run = Box::new(move || disk.inject(Fault::PowerCut(disk.operations() + 1)));
            store.interrupt(Interruption { at: change, run });
        } else if !by_bucket {
            let at = local.operations() + 1 + history.chance.below(1500);
            local.inject(Fault::PowerCut(at));
        }
        store.set_late_percent(late_percent);
        let retry_for = if late_percent > 0 { Duration::ZERO } else { TIMEOUT };
        let remote = bucket(Arc::clone(&store) as _, retry_for);
        if let Ok(mut process) = Process::start(&local, remote, salt) {
            for _ in 0..8 {
                history.work(&mut process.rig, 20);
                moved += process.move_all().0;
            }
            history.collect(&process.rig);
            if history.chance.below(4) == 0 {
                let _ = process.rig.core.close();
            }
            history.known.in_flight.clear();
        }
        store.arrive();
        trace = trace.rotate_left(9) ^ store.trace() ^ local.trace();
        local = if by_bucket { local.survive() } else { local.crash(salt) };
        check(&mut history, &local, &inner, salt).map_err(|why| format!("death {death}: {why}"))?;
        local = local.survive();
    }
    Ok((moved, trace))
}

/// Everything is there before and after what was half done has been finished.
fn check(
    history: &mut History,
    local: &MemDisk,
    inner: &Arc<InMemory>,
    salt: u64,
) -> Result<(), String> {
    let down = ToxicStore::new(Arc::clone(inner), Toxics { fail_percent: 100, ..QUIET });
    let gone = bucket(Arc::new(down), Duration::ZERO);
    // Without the bucket it may not start, but not because a segment has gone that was not noted, and
    // would have to be looked for there.
    if let Err(why) = Process::start(&local.survive(), gone, salt ^ 6 << 40)
        && (why.contains("is missing") || why.contains("list of data/"))
    {
        return Err(format!("without the bucket: {why}"));
    }
    let store = Arc::new(ToxicStore::new(Arc::clone(inner), QUIET));
    let mut process = Process::start(local, patient(store), salt ^ 7 << 40)?;
    history.check(&mut process.rig)?;
    let (_, result) = process.move_all();
    result.map_err(|error| format!("moving: {error}"))?;
    history.check(&mut process.rig)?;
    history.known.created.extend(process.rig.core.machine().streams.keys());
    nothing_is_forgotten(inner, &process.tier.status())?;
    let here = segments(local);
    if here > 8 { Err(format!("{here} segments are still here")) } else { Ok(()) }
}

/// What is in the bucket is noted on the disk: nothing stays there that nobody will remove.
fn nothing_is_forgotten(inner: &InMemory, status: &TierStatus) -> Result<(), String> {
    let mut moves: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
    let mut bytes = 0;
    for (key, content) in objects::all(inner).iter().filter(|(key, _)| key.contains("/data/")) {
        // Segment and epoch: two attempts at one segment are two.
        let (file, part) = key.rsplit_once('/').unwrap_or(("", key));
        let epoch = part.rsplit_once('.').map_or("", |(_, epoch)| epoch);
        moves.insert(format!("{file} {epoch}"));
        bytes += content.len() as u64;
    }
    if (moves.len() as u64, bytes) == (status.moved_segments, status.moved_bytes) {
        return Ok(());
    }
    Err(format!("{} moves of {bytes} bytes are in the bucket: {status:?}", moves.len()))
}

#[test]
fn what_was_acknowledged_survives_deaths_at_every_step_of_moving() {
    let mut moved = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        moved += deaths(seed, 0).unwrap_or_else(|why| panic!("seed {seed}: {why}")).0;
    }
    assert!(moved > 10 * HISTORIES, "only {moved} segments moved");
}

#[test]
fn and_a_store_that_fails_all_the_time() {
    for seed in seeds::seeds(1_000..1_000 + HISTORIES / 2) {
        deaths(seed, 25).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Attempts to move a segment fail again and again, and what an earlier one is to be removed by arrives
/// when a later one has uploaded the segment again.
#[test]
fn and_removals_that_come_late() {
    let mut moved = 0;
    for seed in 2_000..2_000 + HISTORIES / 2 {
        moved += deaths_with(seed, 3, 30).unwrap_or_else(|why| panic!("seed {seed}: {why}")).0;
    }
    assert!(moved > HISTORIES, "only {moved} segments moved");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..10 {
        assert_eq!(deaths(seed, 10), deaths(seed, 10), "seed {seed}");
    }
    assert_ne!(deaths(1, 10), deaths(2, 10));
}

#[test]
fn the_harness_notices_lost_objects() {
    let mut noticed = 0;
    for seed in 0..10 {
        let (inner, local, mut history) = moved_log(seed);
        for path in keys(&inner, "/data/") {
            delete(&inner, &path);
        }
        noticed += u64::from(check(&mut history, &local, &inner, seed).is_err());
    }
    assert!(noticed > 5, "only {noticed} of 10 losses were noticed");
}

#[test]
fn an_upload_that_did_not_arrive_is_noticed_before_anything_is_removed() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let store = Arc::new(ToxicStore::new(Arc::clone(&inner), QUIET));
    let mut history = History::new(5);
    let mut process = Process::start(&local, patient(Arc::clone(&store) as _), 5).expect("opens");
    history.work(&mut process.rig, 60);
    history.collect(&process.rig);
    // Takes the tier and moves a segment.
    assert!(matches!(process.tier.step(SystemTime::UNIX_EPOCH), Ok(Step::Moved(_))));
    let before = segments(&local);
    let at = store.changes() + 2;
    let there = Arc::clone(&inner);
    let known = keys(&inner, "/data/");
    let run = move || {
        for path in keys(&there, "/data/").iter().filter(|path| !known.contains(path)) {
            delete(&there, path);
        }
    };
    store.interrupt(Interruption { at, run: Box::new(run) });
    let error = process.tier.step(SystemTime::UNIX_EPOCH).expect_err("is noticed").to_string();
    assert!(error.contains("did not give back"), "{error}");
    assert_eq!(segments(&local), before);
    process.move_all().1.expect("the next attempt succeeds");
    history.check(&mut process.rig).expect("all is there");
}

/// A removal of what an attempt had uploaded is carried out long after it was asked for: it must not
/// meet what the next attempt has uploaded.
#[test]
fn a_removal_that_comes_late_meets_nothing() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let store = Arc::new(ToxicStore::new(Arc::clone(&inner), QUIET));
    let mut history = History::new(6);
    let mut process = Process::start(&local, patient(Arc::clone(&store) as _), 6).expect("opens");
    history.work(&mut process.rig, 60);
    history.collect(&process.rig);
    assert!(matches!(process.tier.step(SystemTime::UNIX_EPOCH), Ok(Step::Moved(_))));
    let known = keys(&inner, "/data/");
    let uploaded = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (there, late) = (Arc::clone(&inner), Arc::clone(&uploaded));
    let run = move || {
        for path in keys(&there, "/data/").into_iter().filter(|path| !known.contains(path)) {
            delete(&there, &path);
            late.lock().push(path);
        }
    };
    store.interrupt(Interruption { at: store.changes() + 2, run: Box::new(run) });
    assert!(process.tier.step(SystemTime::UNIX_EPOCH).is_err());
    process.move_all().1.expect("the next attempt succeeds");
    let late = uploaded.lock().clone();
    assert!(!late.is_empty());
    late.iter().for_each(|path| delete(&inner, path));
    history.check(&mut process.rig).expect("all is there");
}

/// Compaction removes a segment while it is being uploaded.
#[test]
fn a_segment_that_is_removed_while_it_moves_does_not_come_back() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let store = Arc::new(ToxicStore::new(Arc::clone(&inner), QUIET));
    let mut history = History::new(9);
    let mut process = Process::start(&local, patient(Arc::clone(&store) as _), 9).expect("opens");
    history.work(&mut process.rig, 100);
    let here = |tier: &dyn Disk| -> std::collections::BTreeSet<String> {
        tier.list("").expect("lists").into_iter().filter(|name| name.ends_with(".seg")).collect()
    };
    assert!(matches!(process.tier.step(SystemTime::UNIX_EPOCH), Ok(Step::Moved(_))));
    let (tier, there) = (Arc::clone(&process.tier), Arc::clone(&inner));
    let known = keys(&inner, "/data/");
    let gone = Arc::new(parking_lot::Mutex::new(String::new()));
    let told = Arc::clone(&gone);
    let run = move || {
        let path = keys(&there, "/data/").into_iter().find(|path| !known.contains(path));
        let path = path.expect("something was uploaded").to_string();
        let name = path.split('/').nth_back(1).expect("a segment").to_owned();
        tier.remove(&name).expect("removes");
        *told.lock() = name;
    };
    store.interrupt(Interruption { at: store.changes() + 2, run: Box::new(run) });
    let step = process.tier.step(SystemTime::UNIX_EPOCH);
    let name = gone.lock().clone();
    assert!(!name.is_empty() && !here(&*process.tier).contains(&name), "{name} {step:?}");
    assert_eq!(step.expect("works"), Step::Rejected(name.clone()));
    assert_eq!(process.tier.status().moved_segments, 1, "{name} has come back");
}

#[test]
fn without_the_bucket_a_log_starts_and_goes_on_with_what_is_here() {
    let (inner, local, mut history) = moved_log(7);
    let down = Toxics { fail_percent: 100, ..QUIET };
    let store = Arc::new(ToxicStore::new(Arc::clone(&inner), down));
    let said = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let report = Reporter::new(move |text| heard.lock().push(text.to_owned()));
    let tier = TierOptions { report, ..tier_options(8) };
    let gone = bucket(store, Duration::ZERO);
    let mut process = Process::with(&local, gone, tier, 8).expect("opens all the same");
    assert!(said.lock().iter().any(|text| text.contains("cannot be reached")), "{said:?}");
    assert!(matches!(process.rig.publish(1, b"goes on"), Outcome::Acked(_)));
    let reads: Vec<Outcome> = (1..40).map(|seq| process.rig.read(1, seq)).collect();
    assert!(reads.contains(&Outcome::Failing), "{reads:?}");
    assert!(!reads.iter().any(|read| matches!(read, Outcome::Damaged | Outcome::Missing)));
    assert!(process.move_all().1.is_err());
    drop(process);
    let mut process =
        Process::start(&local.survive(), patient(inner), 9).expect("opens with the bucket");
    history.check(&mut process.rig).expect("all is there");
}

#[test]
fn a_tier_belongs_to_one_log() {
    let (inner, local, mut history) = moved_log(11);
    let store = || patient(Arc::clone(&inner) as _);
    let refusal =
        |error: Option<io::Error>| error.map(|error| error.to_string()).unwrap_or_default();
    let other = MemDisk::default();
    let fresh = refusal(tiered(&other, store(), tier_options(1)).err());
    assert!(fresh.contains("segments of another log"), "{fresh}");
    Process::start(&other, patient(Arc::new(InMemory::new())), 12).expect("a log of its own");
    let known = refusal(tiered(&other.survive(), store(), tier_options(1)).err());
    assert!(known.contains("segments of another log"), "{known}");
    let home = refusal(ObjectDisk::open(store(), ObjectDiskOptions::default()).err());
    assert!(home.contains("cannot live in it"), "{home}");
    // None of them has taken anything from the log that it belongs to.
    let mut process = Process::start(&local, store(), 13).expect("opens");
    history.check(&mut process.rig).expect("all is there");
    // And the home of a log is nobody's tier.
    let objects = Arc::new(InMemory::new());
    drop(ObjectDisk::open(patient(Arc::clone(&objects) as _), ObjectDiskOptions::default()));
    let home = refusal(tiered(&MemDisk::default(), patient(objects), tier_options(1)).err());
    assert!(home.contains("is the home of a log"), "{home}");
}

#[test]
fn a_server_that_was_replaced_moves_nothing_more() {
    let (inner, local, _) = moved_log(17);
    let copy = local.survive();
    let store = || patient(Arc::clone(&inner) as _);
    let mut first = Process::start(&local, store(), 18).expect("opens");
    assert!(first.move_all().1.is_ok());
    let second = Process::start(&copy, store(), 19).expect("opens");
    second.move_all().1.expect("is the newer one");
    let mut history = History::new(18);
    history.known.created.extend(first.rig.core.machine().streams.keys());
    history.work(&mut first.rig, 100);
    let (moved, result) = first.move_all();
    let error = result.expect_err("was replaced").to_string();
    assert!(moved == 0 && error.contains("another server has taken over"), "{moved} {error}");
}

#[test]
fn a_directory_that_is_not_mounted_any_more_takes_nothing() {
    let inner = Arc::new(InMemory::new());
    let options = BucketOptions { retry_for: Duration::ZERO, ..BucketOptions::default() };
    let store = Arc::clone(&inner) as Arc<dyn ObjectStore>;
    let bucket = Bucket::new(store, Path::from("p/log"), "file:///shared".to_owned(), options);
    let (local, mut history) = (MemDisk::default(), History::new(5));
    let bucket = Arc::new(bucket.expect("threads"));
    let mut process = Process::start(&local, bucket, 5).expect("starts");
    history.work(&mut process.rig, 150);
    let (moved, ended) = process.move_all();
    assert!(moved > 0 && ended.is_ok(), "{moved} {ended:?}");
    for path in keys(&inner, "") {
        delete(&inner, &path);
    }
    history.work(&mut process.rig, 150);
    let here = segments(&local);
    for _ in 0..3 {
        let (moved, ended) = process.move_all();
        assert_eq!(moved, 0);
        let error = ended.expect_err("the tier is not there").to_string();
        assert!(error.contains("mounted"), "{error}");
    }
    assert_eq!(segments(&local), here);
}

#[test]
fn a_lost_note_is_made_up_for_by_the_bucket() {
    let (inner, local, mut history) = moved_log(23);
    local.remove("tier").expect("removes");
    for name in local.list("cold").expect("lists") {
        local.remove(&format!("cold/{name}")).expect("removes");
    }
    local.sync_dir("").and_then(|()| local.sync_dir("cold")).expect("syncs");
    let mut process = Process::start(&local, patient(inner), 24).expect("opens");
    history.check(&mut process.rig).expect("all is there");
    process.move_all().1.expect("moves");
    history.check(&mut process.rig).expect("all is there");
}

#[test]
fn a_segment_on_both_sides_counts_here_if_they_differ() {
    let (inner, local, mut history) = moved_log(29);
    let store = || patient(Arc::clone(&inner) as _);
    let tier = tiered(&local, store(), tier_options(30)).expect("opens");
    let moved = |disk: &dyn Disk| {
        let here = local.list("").expect("lists");
        let mut names = disk.list("").expect("lists");
        names.retain(|name| name.ends_with(".seg") && !here.contains(name));
        names
    };
    let names = moved(&*tier);
    for (n, name) in names.iter().take(2).enumerate() {
        let cold = tier.open(name).expect("opens");
        let bytes =
            cold.read_shared(0, usize::try_from(cold.len().expect("known")).expect("small"));
        let file = local.create(name).expect("creates");
        file.write_at(&bytes.expect("reads"), 0).expect("writes");
        // Of the second one the bucket holds something else.
        if n == 1 {
            let path = keys(&inner, name).remove(0);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(inner.put(&path, "else".into())).expect("puts");
        }
    }
    drop(tier);
    let mut process = Process::start(&local, store(), 31).expect("opens");
    history.check(&mut process.rig).expect("all is there");
    process.move_all().1.expect("moves");
    let here = local.list("").expect("lists");
    assert!(!here.contains(&names[0]) && here.contains(&names[1]), "{here:?}");
    assert!(!keys(&inner, &names[1]).is_empty(), "what differs is left");
    history.check(&mut process.rig).expect("all is there");
}

/// Sealed segments whose files are longer than what was sealed.
fn not_cut(local: &MemDisk) -> Vec<String> {
    let chain = Chain::read(local).expect("whole").expect("there is a log");
    let len = |name: &str| local.open(name).and_then(|file| file.len()).unwrap_or(0);
    let longer = chain.sealed.into_iter().filter(|segment| len(&segment.file) > segment.bytes);
    longer.map(|segment| segment.file).collect()
}

/// A log that was closed, killed between the end of its last segment and the cut behind it.
fn killed_before_the_cut(seed: u64) -> (MemDisk, History, String) {
    let mut history = History::new(seed);
    let local = MemDisk::default();
    let nowhere = patient(Arc::new(InMemory::new()));
    let mut process = Process::start(&local, nowhere, seed).expect("opens");
    history.work(&mut process.rig, 60);
    history.collect(&process.rig);
    process.rig.core.close().expect("closes");
    drop(process);
    for salt in 0..100 {
        let left = local.crash(salt);
        if let Some(name) = not_cut(&left).pop() {
            return (left.survive(), history, name);
        }
    }
    panic!("every file is cut");
}

/// Its file could not be removed at first, so it is on both sides, and longer here: a start cuts it,
/// and goes on if that fails.
#[test]
fn a_segment_that_was_not_cut_is_the_same_on_both_sides() {
    for seed in 50..60 {
        let (local, mut history, name) = killed_before_the_cut(seed);
        let uncut_bytes = local.open(&name).and_then(|file| file.len()).expect("is there");
        let inner = Arc::new(InMemory::new());
        let plan = Arc::new(Plan::default());
        let disk = FaultyDisk { below: Arc::new(local.clone()), plan: Arc::clone(&plan) };
        let tier = TierOptions { local_max_bytes: Some(0), ..tier_options(seed) };
        let bucket = patient(Arc::clone(&inner) as _);
        let process = Process::on(Arc::new(disk), bucket, tier, Some(0), seed);
        let mut process = process.expect("opens");
        assert!(!not_cut(&local).contains(&name), "the start does not cut {name}");
        local.open(&name).and_then(|file| file.set_len(uncut_bytes)).expect("grows");
        plan.keep(&name);
        let (_, result) = process.move_all();
        assert!(result.expect_err("is not removed").to_string().contains("not removed"));
        assert!(not_cut(&local).contains(&name), "{name} is not on both sides");
        plan.keep("");
        let mut steps = Vec::new();
        while steps.last() != Some(&Step::Idle(None)) {
            steps.push(process.tier.step(SystemTime::UNIX_EPOCH).expect("works"));
        }
        assert!(steps.contains(&Step::Moved(name.clone())), "{name}: {steps:?}");
        assert!(!local.list("").expect("lists").contains(&name));
        history.check(&mut process.rig).expect("all is there");
        nothing_is_forgotten(&inner, &process.tier.status()).expect("all is noted");
    }
}

/// Torn bytes for which there was no room elsewhere are nowhere else.
#[test]
fn a_segment_with_bytes_behind_its_end_stays_here() {
    let (local, mut history, name) = killed_before_the_cut(61);
    let file = local.open(&name).expect("is there");
    let at = file.len().expect("known") - 10;
    let said = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let report = Reporter::new(move |text| heard.lock().push(text.to_owned()));
    let tier = TierOptions { local_max_bytes: Some(0), report, ..tier_options(62) };
    let bucket = patient(Arc::new(InMemory::new()));
    let mut process = Process::with(&local, bucket, tier, 62).expect("opens");
    // A start keeps them elsewhere if it has room.
    file.write_at(b"torn", at).and_then(|()| file.sync()).expect("writes");
    let (moved, result) = process.move_all();
    result.expect("the others move");
    assert!(moved > 1, "{moved}");
    let kept = local.open(&name).and_then(|file| file.read_shared(at, 4)).expect("is here");
    assert_eq!(&kept[..], b"torn");
    let told = said.lock().iter().filter(|text| text.contains(&name)).count();
    assert_eq!(told, 1, "{said:?}");
    history.check(&mut process.rig).expect("all is there");
}

#[test]
fn what_is_dead_is_removed_from_the_bucket() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let mut process = Process::start(&local, patient(Arc::clone(&inner) as _), 37).expect("opens");
    process.rig.create(1, 20);
    for n in 0..400u64 {
        process.rig.publish(1, &[n as u8; 300]);
        if n % 50 == 0 {
            process.move_all().1.expect("moves");
        }
        process.rig.advance(Duration::from_millis(100));
    }
    process.rig.advance(Duration::from_secs(30));
    for _ in 0..20 {
        process.move_all().1.expect("moves");
        process.rig.advance(Duration::from_secs(2));
    }
    let status = process.tier.status();
    assert!(status.moves > 10, "{status:?}");
    assert!(status.moved_segments < 8, "{status:?}");
    let there: std::collections::BTreeSet<String> = keys(&inner, "/data/")
        .iter()
        .filter_map(|path| Some(path.as_ref().split('/').nth_back(1)?.to_owned()))
        .collect();
    assert_eq!(there.len() as u64, status.moved_segments, "{there:?}");
    for seq in 381..=400 {
        assert_eq!(process.rig.read(1, seq), Outcome::Body(vec![(seq - 1) as u8; 300]));
    }
}

#[test]
fn a_full_disk_is_relieved() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::with_capacity(400 << 10));
    let tier = TierOptions { local_max_bytes: None, headroom_bytes: 16 << 10, ..tier_options(41) };
    let mut process = Process::with(&local, patient(inner), tier, 41).expect("opens");
    process.rig.create(1, 0);
    // Sets space aside for its note, as it does when a server starts.
    process.move_all().1.expect("nothing to move yet");
    let mut published = 0u64;
    for _ in 0..3 {
        let full = (0..3000).any(|_| match process.rig.publish(1, &[7; 500]) {
            Outcome::Acked(seq) => {
                published = seq;
                false
            }
            Outcome::Refused(_) => true,
            other => panic!("{other:?}"),
        });
        assert!(full, "the disk takes everything");
        let (moved, result) = process.move_all();
        result.expect("moves although the disk is full");
        assert!(moved > 0);
        process.rig.advance(Duration::from_secs(30));
    }
    assert!(matches!(process.rig.publish(1, b"again"), Outcome::Acked(_)));
    for seq in (1..=published).step_by(37) {
        assert_eq!(process.rig.read(1, seq), Outcome::Body(vec![7; 500]));
    }
}

#[test]
fn age_counts_from_when_a_segment_was_sealed() {
    let (inner, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let tier = TierOptions {
        local_max_bytes: None,
        after_age: Some(Duration::from_secs(60)),
        ..tier_options(43)
    };
    let mut process = Process::with(&local, patient(inner), tier, 43).expect("opens");
    process.rig.create(1, 0);
    for _ in 0..100 {
        process.rig.publish(1, &[1; 300]);
    }
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let step = |seconds| process.tier.step(start + Duration::from_secs(seconds)).expect("works");
    assert_eq!(step(0), Step::Idle(Some(Duration::from_secs(60))));
    assert_eq!(step(20), Step::Idle(Some(Duration::from_secs(40))));
    assert!(matches!(step(60), Step::Moved(_)));
}

#[test]
fn a_view_of_a_bucket_disturbs_nobody() {
    let inner = Arc::new(InMemory::new());
    let store = || patient(Arc::clone(&inner) as _);
    let missing = BucketView::open(store()).err().map(|error| error.kind());
    assert_eq!(missing, Some(io::ErrorKind::NotFound));
    let owner = ObjectDisk::open(store(), ObjectDiskOptions::default()).expect("opens");
    let file = owner.create("a.seg").expect("creates");
    file.write_at(b"content", 0).and_then(|()| file.sync()).expect("writes");
    let before = keys(&inner, "");
    let view = BucketView::open(store()).expect("opens");
    assert_eq!(view.list("").expect("lists"), ["a.seg"]);
    let seen = view.open("a.seg").and_then(|file| file.read_shared(0, 100)).expect("reads");
    assert_eq!(&seen[..], b"content");
    assert!(view.create("b").is_err() && view.remove("a.seg").is_err());
    assert!(view.open("a.seg").and_then(|file| file.write_at(b"x", 0)).is_err());
    assert_eq!(keys(&inner, ""), before);
    owner.check().expect("is still the owner");
}
