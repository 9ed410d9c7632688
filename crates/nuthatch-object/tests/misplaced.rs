//! Objects in the wrong place: one copied over another of the same size, an older one in place of a
//! newer. Every checksum in them is right. What is read is what was stored, or it is an error that
//! says so: never another message, never "no such message".

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/objects.rs"]
mod objects;
#[path = "common/tier.rs"]
mod tier;

use bytes::Bytes;
use common::{Outcome, Rig, tiny};
use nuthatch_log::env::{Disk, MemDisk, OwnableDisk};
use nuthatch_log::{LogOptions, SyncPolicy};
use nuthatch_object::{ObjectDisk, ObjectDiskOptions, Step};
use object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tier::{Process, patient, tier_options};

const MESSAGES: u64 = 90;

/// Of equal length, so that frames and objects are of equal size.
fn body(seq: u64) -> Vec<u8> {
    let mut body = seq.to_le_bytes().to_vec();
    body.resize(300, seq as u8);
    body
}

fn options() -> LogOptions {
    // Nothing in memory that would answer in the place of the medium.
    LogOptions {
        sync: SyncPolicy::Always,
        block_bytes: 64,
        tail_cache_bytes: 0,
        block_cache_bytes: 0,
        ..tiny()
    }
}

fn open(store: &Arc<InMemory>, seed: u64) -> Result<Rig, String> {
    let bucket = patient(Arc::clone(store) as _);
    let disk_options = ObjectDiskOptions { seed, cache_bytes: 0, ..ObjectDiskOptions::default() };
    let disk = ObjectDisk::open(bucket, disk_options).map_err(|error| error.to_string())?;
    Rig::open_seeded(options(), Arc::new(disk), seed).map_err(|error| error.to_string())
}

/// A log in a bucket of sealed segments.
fn stored() -> BTreeMap<String, Bytes> {
    let store = Arc::new(InMemory::new());
    let mut rig = open(&store, 1).expect("opens");
    rig.create(1, 0);
    for seq in 1..=MESSAGES {
        assert_eq!(rig.publish(1, &body(seq)), Outcome::Acked(seq));
    }
    rig.core.close().expect("closes");
    objects::all(&store)
}

/// What became of the messages: how many are there, how many are said to be damaged.
fn read_all(rig: &mut Rig, case: &str) -> (u64, u64) {
    let (mut whole, mut damaged) = (0, 0);
    for seq in 1..=MESSAGES {
        match rig.read(1, seq) {
            Outcome::Body(found) => {
                assert!(found == body(seq), "{case}: another message is shown as {seq}");
                whole += 1;
            }
            Outcome::Damaged | Outcome::Failing => damaged += 1,
            other => panic!("{case}: message {seq} is {other:?}"),
        }
    }
    (whole, damaged)
}

/// Pairs of objects of one size, each with its neighbours and with one far away.
fn pairs(all: &BTreeMap<String, Bytes>) -> Vec<(String, String)> {
    let data: Vec<_> = all.iter().filter(|(key, _)| key.contains("/data/")).collect();
    let mut pairs = Vec::new();
    for (n, (key, bytes)) in data.iter().enumerate() {
        let same = |other: &&(&String, &Bytes)| other.1.len() == bytes.len() && other.0 != *key;
        let behind = data[n..].iter().find(same);
        let before = data[..n].iter().rfind(same);
        let far = data.iter().find(same);
        let others = [behind, before, far].into_iter().flatten();
        pairs.extend(others.map(|other| ((*key).clone(), other.0.clone())));
    }
    pairs.sort();
    pairs.dedup();
    pairs
}

#[test]
fn an_object_over_another_is_noticed() {
    let all = stored();
    let (mut opened, mut refused, mut damages) = (0, 0, 0);
    for (to, from) in pairs(&all) {
        let mut bent = all.clone();
        bent.insert(to.clone(), all[&from].clone());
        let store = Arc::new(objects::store_of(&bent));
        let case = format!("{from} over {to}");
        match open(&store, 2) {
            Ok(mut rig) => {
                opened += 1;
                damages += read_all(&mut rig, &case).1;
            }
            Err(why) => {
                assert!(why.contains("damaged") || why.contains("missing"), "{case}: {why}");
                refused += 1;
            }
        }
    }
    assert!(opened > 20 && damages > 20, "{opened} opened, {refused} refused, {damages} damages");
}

/// The objects of one file from an earlier moment: the last write of it was lost by the store.
#[test]
fn an_older_catalog_in_place_of_the_newest_is_noticed() {
    let all = stored();
    let catalogs: Vec<&String> = all.keys().filter(|key| key.contains("/catalog/")).collect();
    let newest = *catalogs.last().expect("there are some");
    let mut refused = 0;
    for older in &catalogs[..catalogs.len() - 1] {
        let mut bent = all.clone();
        bent.insert(newest.clone(), all[*older].clone());
        let store = Arc::new(objects::store_of(&bent));
        let case = format!("{older} over {newest}");
        match open(&store, 3) {
            Ok(mut rig) => assert_eq!(read_all(&mut rig, &case), (MESSAGES, 0), "{case}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "{refused} of {}", catalogs.len());
}

/// A local log whose segments have moved.
fn moved() -> (BTreeMap<String, Bytes>, MemDisk) {
    let (store, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let mut process = start(&local, &store, 5).expect("opens");
    process.rig.create(1, 0);
    for seq in 1..=MESSAGES {
        assert_eq!(process.rig.publish(1, &body(seq)), Outcome::Acked(seq));
    }
    process.move_all().1.expect("moves");
    process.rig.core.close().expect("closes");
    drop(process);
    (objects::all(&store), local.survive())
}

fn start(local: &MemDisk, store: &Arc<InMemory>, seed: u64) -> Result<Process, String> {
    // Parts of one frame each.
    let tier = nuthatch_object::TierOptions { part_bytes: 512, ..tier_options(seed) };
    let bucket = patient(Arc::clone(store) as _);
    let disk = Arc::new(local.clone()) as Arc<dyn nuthatch_object::LocalDisk>;
    let tier = nuthatch_object::TieredDisk::open(disk, bucket, tier).map(Arc::new);
    let tier = tier.map_err(|error| error.to_string())?;
    let options = LogOptions {
        first_segment_bytes: 4096,
        segment_bytes: 8192,
        tail_cache_bytes: 0,
        block_cache_bytes: 0,
        ..tiny()
    };
    let disk = Arc::clone(&tier) as Arc<dyn OwnableDisk>;
    let rig = Rig::open_seeded(options, disk, seed).map_err(|error| error.to_string())?;
    Ok(Process { rig, tier })
}

#[test]
fn a_part_of_a_moved_segment_over_another_is_noticed() {
    let (all, local) = moved();
    let mut damages = 0;
    for (to, from) in pairs(&all) {
        let mut bent = all.clone();
        bent.insert(to.clone(), all[&from].clone());
        let store = Arc::new(objects::store_of(&bent));
        let case = format!("{from} over {to}");
        // The ends of segments are here, so it starts.
        let mut process = start(&local.survive(), &store, 6).expect("opens");
        damages += read_all(&mut process.rig, &case).1;
    }
    assert!(damages > 100, "{damages}");
}

/// The bucket gives back something else of the right size, or an earlier version: the segment stays.
#[test]
fn what_the_bucket_gives_back_is_compared_byte_by_byte() {
    let (store, local) = (Arc::new(InMemory::new()), MemDisk::default());
    let mut process = start(&local, &store, 7).expect("opens");
    process.rig.create(1, 0);
    for seq in 1..=MESSAGES {
        assert_eq!(process.rig.publish(1, &body(seq)), Outcome::Acked(seq));
    }
    // Moved in both places: as after a death between the note and the removal.
    assert!(matches!(process.tier.step(SystemTime::UNIX_EPOCH), Ok(Step::Moved(_))));
    let here = local.list("").expect("lists");
    let names = process.tier.list("").expect("lists");
    let moved = names.iter().find(|name| !here.contains(name)).expect("one has moved").clone();
    let cold = process.tier.open(&moved).expect("opens");
    let len = usize::try_from(cold.len().expect("known")).expect("small");
    let content = cold.read_shared(0, len).expect("reads");
    drop(cold);
    let file = local.create(&moved).expect("creates");
    file.write_at(&content, 0).and_then(|()| file.sync()).expect("writes");
    // Two parts of it change places.
    let all = objects::all(&store);
    let parts: Vec<&String> = all.keys().filter(|key| key.contains(&moved)).collect();
    assert_eq!(all[parts[2]].len(), all[parts[3]].len());
    objects::put(&store, parts[2], all[parts[3]].clone());
    objects::put(&store, parts[3], all[parts[2]].clone());
    assert_eq!(
        process.tier.step(SystemTime::UNIX_EPOCH).expect("works"),
        Step::Differs(moved.clone())
    );
    assert!(local.list("").expect("lists").contains(&moved));
    process.rig.advance(Duration::from_secs(1));
    assert_eq!(read_all(&mut process.rig, "differs"), (MESSAGES, 0));
}
