//! Logs in buckets, and logs with a tier, that version 0.1.0 wrote (commit 7183523) and left without
//! closing them: they open, everything is there, and nothing of it is written again.
//!
//! A fixture is a list of objects or files: length of the name, name, length, length without the
//! zeros at the end, content without them.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/objects.rs"]
mod objects;
#[path = "common/tier.rs"]
mod tier;

use bytes::Bytes;
use common::{Outcome, Rig, tiny};
use nuthatch_log::env::{Disk, MemDisk, read_exact_at};
use nuthatch_log::{LogOptions, StreamId, SyncPolicy};
use nuthatch_object::{ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tier::{Process, patient};

fn fixture(mut rest: &'static [u8]) -> BTreeMap<String, Bytes> {
    let mut take = |len: usize| {
        let (taken, left) = rest.split_at(len);
        rest = left;
        (taken, rest.is_empty())
    };
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
    let mut all = BTreeMap::new();
    loop {
        let name_len = number(take(4).0);
        let name = String::from_utf8(take(name_len).0.to_vec()).expect("a name");
        let (len, stored) = (number(take(4).0), number(take(4).0));
        let (content, is_last) = take(stored);
        let mut content = content.to_vec();
        content.resize(len, 0);
        all.insert(name, Bytes::from(content));
        if is_last {
            return all;
        }
    }
}

fn body(stream: u32, seq: u64) -> Vec<u8> {
    let mut body = format!("stream {stream} message {seq} ").into_bytes();
    body.resize(100 + (seq as usize * 7) % 150, seq as u8);
    body
}

fn holds(rig: &mut Rig, stream: u32, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        assert_eq!(rig.read(stream, seq), Outcome::Body(body(stream, seq)), "{stream} {seq}");
    }
}

fn options() -> LogOptions {
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..tiny() }
}

fn open(store: &Arc<InMemory>, seed: u64) -> Result<Rig, String> {
    let bucket = patient(Arc::clone(store) as _);
    let disk_options = ObjectDiskOptions { seed, ..ObjectDiskOptions::default() };
    let mut prepared =
        ObjectDisk::prepare(bucket, disk_options).map_err(|error| error.to_string())?;
    prepared.rehearse(&options()).map_err(|error| error.to_string())?;
    let disk = prepared.take().map_err(|error| error.to_string())?;
    Rig::open_seeded(options(), Arc::new(disk), seed).map_err(|error| error.to_string())
}

/// Two merged and compressed stretches, a torn tail that was cut, four owners of whom one closed it.
fn bucket_of_0_1_0() -> BTreeMap<String, Bytes> {
    fixture(include_bytes!("fixtures/bucket-0.1.0"))
}

#[test]
fn a_bucket_of_0_1_0_opens_and_is_rewritten_only_as_it_grows() {
    let before = bucket_of_0_1_0();
    let store = Arc::new(objects::store_of(&before));
    let mut rig = open(&store, 50).expect("opens");
    holds(&mut rig, 1, 1..=93);
    holds(&mut rig, 2, 71..=90);
    let live = &rig.core.machine().streams[&StreamId(2)].live;
    assert!(live.keys().copied().eq(71..=90), "{live:?}");
    let opened = objects::all(&store);
    let is_old_catalog = |key: &str| key.contains("/catalog/");
    for (key, bytes) in before.iter().filter(|(key, _)| !is_old_catalog(key)) {
        assert!(opened.get(key) == Some(bytes), "{key}");
    }
    for seq in 94..=200 {
        assert_eq!(rig.publish(1, &body(1, seq)), Outcome::Acked(seq));
    }
    for _ in 0..100 {
        rig.advance(Duration::from_millis(500));
    }
    holds(&mut rig, 1, 1..=200);
    let grown = objects::all(&store);
    for (key, bytes) in &before {
        assert!(grown.get(key).is_none_or(|now| now == bytes), "{key} was overwritten");
    }
    drop(rig);
    let mut rig = open(&store, 51).expect("opens again");
    holds(&mut rig, 1, 1..=200);
    holds(&mut rig, 2, 71..=90);
}

/// As an owner of a later version would leave it: its catalog is the newest. Nothing changes.
#[test]
fn a_bucket_that_a_later_version_has_written_is_refused_and_unchanged() {
    let mut all = bucket_of_0_1_0();
    let newest = all.keys().rfind(|key| key.contains("/catalog/")).expect("there are some").clone();
    let bytes = all[&newest].clone();
    let number: u64 = newest.rsplit('/').next().and_then(|n| n.parse().ok()).expect("a number");
    let later = objects::of_version(&bytes, u32::MAX, bytes.len());
    all.insert(format!("p/log/catalog/{:020}", number + 1), Bytes::from(later));
    all.insert("p/log/fence/0000000000000005".to_owned(), Bytes::from_static(b"later"));
    let store = Arc::new(objects::store_of(&all));
    let why = open(&store, 52).err().expect("is refused");
    assert!(why.contains("version"), "{why}");
    assert!(objects::all(&store) == all);
}

/// Eight segments moved, one open; killed.
#[test]
fn a_tier_of_0_1_0_opens() {
    let before = fixture(include_bytes!("fixtures/tier-0.1.0.bucket"));
    let files = fixture(include_bytes!("fixtures/tier-0.1.0.directory"));
    let (store, local) = (Arc::new(objects::store_of(&before)), MemDisk::default());
    for (path, bytes) in &files {
        let file = local.create(path).expect("creates");
        file.write_at(bytes, 0).and_then(|()| file.sync()).expect("writes");
    }
    let bucket = patient(Arc::clone(&store) as _);
    let mut process = Process::start(&local, bucket, 60).expect("opens");
    holds(&mut process.rig, 1, 1..=115);
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with("cold/")) {
        let file = local.open(path).expect("is there");
        assert_eq!(read_exact_at(&*file, 0, bytes.len()).expect("reads"), **bytes, "{path}");
    }
    assert!(objects::all(&store) == before);
    for seq in 116..=220 {
        assert_eq!(process.rig.publish(1, &body(1, seq)), Outcome::Acked(seq));
    }
    let (moved, result) = process.move_all();
    result.expect("moves");
    assert!(moved > 2, "{moved}");
    holds(&mut process.rig, 1, 1..=220);
    let status = process.tier.status();
    assert_eq!((status.set_aside, status.unreadable_ends), (0, 0), "{status:?}");
    let grown = objects::all(&store);
    for (key, bytes) in &before {
        assert!(grown.get(key).is_none_or(|now| now == bytes), "{key} was overwritten");
    }
}
