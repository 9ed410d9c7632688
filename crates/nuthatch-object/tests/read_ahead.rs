//! What reading in order costs in requests, and what a cache on the disk saves of them.

use nuthatch_log::env::Disk;
use nuthatch_object::{
    Bucket, BucketOptions, DiskCacheOptions, ObjectDisk, ObjectDiskOptions, RequestKind,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// What is read.
const FILE_BYTES: u64 = 64 * MIB;

/// How the log reads.
const READ_BYTES: usize = 512 << 10;

fn open(store: &Arc<InMemory>, options: ObjectDiskOptions) -> ObjectDisk {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let store = Arc::clone(store) as Arc<dyn object_store::ObjectStore>;
        let bucket = Bucket::new(store, Path::from("p"), "bucket".into(), BucketOptions::default());
        match ObjectDisk::open(Arc::new(bucket.expect("threads")), options.clone()) {
            // Threads of the one before still hold its cache for a moment.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.expect("opens"),
        }
    }
}

fn content(at: u64) -> Vec<u8> {
    vec![(at / READ_BYTES as u64 + 1) as u8; READ_BYTES]
}

fn filled() -> Arc<InMemory> {
    let store = Arc::new(InMemory::new());
    // Objects that begin where blocks of the cache do.
    let options = ObjectDiskOptions { part_bytes: 8 << 20, ..ObjectDiskOptions::default() };
    let disk = open(&store, options);
    let file = disk.create("a").expect("creates");
    for at in (0..FILE_BYTES).step_by(READ_BYTES) {
        file.write_at(&content(at), at).expect("writes");
    }
    file.sync().expect("syncs");
    store
}

fn gets(disk: &ObjectDisk) -> u64 {
    disk.bucket().counters().snapshot().of(RequestKind::Get)
}

fn read_in_order(disk: &ObjectDisk) {
    let file = disk.open("a").expect("opens");
    let mut into = vec![0; READ_BYTES];
    for at in (0..FILE_BYTES).step_by(READ_BYTES) {
        assert_eq!(file.read_at(&mut into, at).expect("reads"), READ_BYTES);
        assert!(into == content(at), "at {at}");
    }
}

#[test]
fn reading_in_order_takes_few_large_requests() {
    let disk = open(&filled(), ObjectDiskOptions::default());
    let before = gets(&disk);
    read_in_order(&disk);
    let requests = gets(&disk) - before;
    let bytes = disk.bucket().counters().snapshot().get_bytes;
    println!("{requests} requests for 64 MiB: {} per GiB", requests * 16);
    assert!(requests <= 14, "{requests} requests for 64 MiB");
    assert!(bytes <= FILE_BYTES + MIB, "nothing is read twice: {bytes}");
    let cache = disk.cache();
    assert!(cache.bytes <= cache.capacity_bytes, "{cache:?}");
}

#[test]
fn reading_here_and_there_fetches_nothing_ahead() {
    let disk = open(&filled(), ObjectDiskOptions::default());
    let file = disk.open("a").expect("opens");
    let before = gets(&disk);
    let mut into = vec![0; 4096];
    for n in 0..10 {
        file.read_at(&mut into, (n * 7 % 10) * 6 * MIB).expect("reads");
    }
    assert_eq!(gets(&disk) - before, 10);
}

#[test]
fn a_disk_cache_spares_the_bucket_after_a_restart() {
    let store = filled();
    let dir = std::env::temp_dir().join(format!("nuthatch-store-cache-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = || ObjectDiskOptions {
        // Little in memory, so that what is read again is asked for below it.
        cache_bytes: 4 << 20,
        disk_cache: Some(DiskCacheOptions { dir: dir.clone(), max_bytes: 128 * MIB }),
        ..ObjectDiskOptions::default()
    };
    let disk = open(&store, options());
    read_in_order(&disk);
    // Blocks are written beside the readers, and left out when too many wait: read until most are
    // there.
    let deadline = Instant::now() + Duration::from_secs(60);
    while disk.cache().disk_bytes < FILE_BYTES {
        assert!(Instant::now() < deadline, "{:?}", disk.cache());
        std::thread::sleep(Duration::from_millis(20));
        read_in_order(&disk);
    }
    drop(disk);
    let disk = open(&store, options());
    let before = gets(&disk);
    read_in_order(&disk);
    assert_eq!(gets(&disk) - before, 0);
    assert!(disk.cache().disk_hits >= 32, "{:?}", disk.cache());
    drop(disk);
    std::fs::remove_dir_all(&dir).expect("may be deleted");
    let disk = open(&store, options());
    read_in_order(&disk);
    drop(disk);
    let _ = std::fs::remove_dir_all(&dir);
}
