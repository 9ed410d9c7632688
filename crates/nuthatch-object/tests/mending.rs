//! The doctor dies at each change that it makes to a log in a bucket: the file that it replaces is the
//! old one or the new one, whole, and what it replaced can be had.

#[path = "common/objects.rs"]
mod objects;
#[path = "common/toxic.rs"]
mod toxic;

use nuthatch_log::env::{Change, Disk};
use nuthatch_object::{
    Bucket, BucketOptions, BucketRepairer, BucketView, ObjectDisk, ObjectDiskOptions,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use toxic::{ToxicStore, Toxics};

const FILE: &str = "a.seg";

/// More than one object of what the doctor writes.
const NEW_BYTES: usize = 9 << 20;

fn bucket(inner: &Arc<InMemory>, die_at: Option<u64>) -> Arc<Bucket> {
    let toxics = Toxics { seed: die_at.unwrap_or(0), fail_percent: 0, die_at, hide_fences: false };
    let store = Arc::new(ToxicStore::new(Arc::clone(inner), toxics));
    let options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), options);
    Arc::new(bucket.expect("threads"))
}

/// A file of three objects.
fn stored() -> Arc<InMemory> {
    let inner = Arc::new(InMemory::new());
    let disk = ObjectDisk::open(bucket(&inner, None), ObjectDiskOptions::default());
    let disk = disk.expect("opens");
    let file = disk.create(FILE).expect("creates");
    for n in 0..3u8 {
        file.write_at(&[n + 1; 100], u64::from(n) * 100).expect("writes");
        file.sync().expect("stores");
    }
    inner
}

fn old_content() -> Vec<u8> {
    (0..3u8).flat_map(|n| [n + 1; 100]).collect()
}

fn mend(bucket: &Arc<Bucket>, new: &[u8]) -> io::Result<()> {
    let (_, before) = BucketView::survey(Arc::clone(bucket))?;
    let repairer = BucketRepairer::open(bucket, "a doctor")?;
    let changes = BTreeMap::from([(FILE.to_owned(), Change::Written(new.to_vec()))]);
    repairer.apply(&changes, &before, "then").map(drop)
}

fn content(inner: &Arc<InMemory>) -> Vec<u8> {
    let view = BucketView::open(bucket(inner, None)).expect("opens");
    let file = view.open(FILE).expect("is there");
    let len = usize::try_from(file.len().expect("known")).expect("small");
    file.read_shared(0, len).expect("reads").to_vec()
}

#[test]
fn a_doctor_that_dies_leaves_the_old_file_or_the_new_one() {
    let (new, old) = (vec![9; NEW_BYTES], old_content());
    let (mut die_at, mut olds, mut news) = (1, 0, 0);
    loop {
        let inner = stored();
        let before = objects::all(&inner);
        let ended = mend(&bucket(&inner, Some(die_at)), &new);
        let found = content(&inner);
        assert!(found == old || found == new, "death {die_at}: {} bytes", found.len());
        olds += u64::from(found == old);
        news += u64::from(found == new);
        let after = objects::all(&inner);
        for (key, bytes) in before.iter().filter(|(key, _)| key.contains("/data/")) {
            let name = key.strip_prefix("p/log/").expect("of the log");
            let kept = format!("p/log/doctor/then/{name}");
            let there = after.get(key) == Some(bytes) || after.get(&kept) == Some(bytes);
            assert!(there, "death {die_at}: {key} is lost");
        }
        if ended.is_ok() {
            break;
        }
        die_at += 1;
    }
    assert!(olds > 8 && news > 2, "{olds} {news}");
}
