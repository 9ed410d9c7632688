//! What a file in a bucket consists of when owners came and went, and objects arrive late.

#[path = "common/objects.rs"]
mod objects;
#[path = "common/toxic.rs"]
mod toxic;

use nuthatch_log::env::{Disk, DiskFile};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toxic::{Interruption, ToxicStore, Toxics};

const FILE: &str = "a.seg";

fn store(inner: &Arc<InMemory>) -> Arc<ToxicStore> {
    let toxics = Toxics { seed: 0, fail_percent: 0, die_at: None, hide_fences: false };
    Arc::new(ToxicStore::new(Arc::clone(inner), toxics))
}

fn open(store: &Arc<ToxicStore>) -> ObjectDisk {
    let options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let there = Arc::clone(store);
    let bucket = Bucket::new(there, Path::from("p/log"), "bucket".to_owned(), options);
    let bucket = Arc::new(bucket.expect("threads"));
    ObjectDisk::open(bucket, ObjectDiskOptions::default()).expect("opens")
}

fn fresh(inner: &Arc<InMemory>) -> ObjectDisk {
    open(&store(inner))
}

/// Three objects, each of one letter.
fn write(disk: &ObjectDisk, letters: [u8; 3]) -> Arc<dyn DiskFile> {
    let file = disk.create(FILE).expect("creates");
    for (n, letter) in (0..).zip(letters) {
        file.write_at(&[letter; 10], n * 10).expect("writes");
        file.sync().expect("stores");
    }
    file
}

fn content(inner: &Arc<InMemory>) -> String {
    let file = fresh(inner).open(FILE).expect("is there");
    String::from_utf8(file.read_shared(0, 1000).expect("reads").to_vec()).expect("letters")
}

#[test]
fn what_a_later_owner_cut_and_completed_is_what_the_next_one_reads() {
    let inner = Arc::new(InMemory::new());
    write(&fresh(&inner), *b"abc");
    let second = fresh(&inner);
    let file = second.open(FILE).expect("is there");
    file.set_len(15).expect("cuts");
    file.write_at(b"xyz", 15).and_then(|()| file.sync()).expect("stores");
    assert_eq!(content(&inner), "aaaaaaaaaabbbbbxyz");
}

#[test]
fn a_manifest_from_before_a_file_was_begun_anew_does_not_count() {
    let inner = Arc::new(InMemory::new());
    write(&fresh(&inner), *b"abc");
    let second = fresh(&inner);
    let file = second.open(FILE).expect("is there");
    file.set_len(15).and_then(|()| file.sync()).expect("cuts");
    let all = objects::all(&inner);
    let late = all.iter().filter(|(key, _)| key.contains("/data/"));
    let late: Vec<_> = late.map(|(key, bytes)| (key.clone(), bytes.clone())).collect();
    let third = fresh(&inner);
    third.remove(FILE).expect("removes");
    write(&third, *b"def");
    // All that the owners before had stored arrives again.
    late.into_iter().for_each(|(key, bytes)| objects::put(&inner, &key, bytes));
    assert_eq!(content(&inner), "ddddddddddeeeeeeeeeeffffffffff");
}

#[test]
fn what_an_owner_that_slept_stores_late_is_no_part_of_the_file() {
    let inner = Arc::new(InMemory::new());
    write(&fresh(&inner), *b"abc");
    let all = objects::all(&inner);
    let late = all.iter().filter(|(key, _)| key.contains("/data/"));
    let late: Vec<_> = late.map(|(key, bytes)| (key.clone(), bytes.clone())).collect();
    let second = fresh(&inner);
    second.remove(FILE).expect("removes");
    let file = second.create(FILE).expect("creates");
    file.write_at(b"new", 0).and_then(|()| file.sync()).expect("stores");
    late.into_iter().for_each(|(key, bytes)| objects::put(&inner, &key, bytes));
    assert_eq!(content(&inner), "new");
}

/// What is overwritten while it is on its way has the same key: the later content must arrive later.
#[test]
fn what_is_overwritten_on_its_way_arrives_behind_it() {
    let inner = Arc::new(InMemory::new());
    let slow = store(&inner);
    let disk = open(&slow);
    let file = disk.create(FILE).expect("creates");
    let ((done, ended), (again, rewritten)) =
        (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let other = Arc::clone(&file);
    let run = Box::new(move || {
        other.write_at(b"later", 0).expect("writes");
        // It may have to wait for the first to arrive.
        std::thread::spawn(move || {
            other.sync_later(Box::new(move |result| drop(again.send(result))));
        });
        std::thread::sleep(Duration::from_millis(100));
    });
    slow.interrupt(Interruption { at: slow.changes() + 1, run });
    file.write_at(b"first", 0).expect("writes");
    file.sync_later(Box::new(move |result| drop(done.send(result))));
    for end in [ended, rewritten] {
        end.recv_timeout(Duration::from_secs(60)).expect("an answer").expect("is stored");
    }
    file.sync().expect("stores");
    assert_eq!(content(&inner), "later");
}
