//! A cache that is full, damaged, deleted, shared, opened again.

use super::*;
use std::time::{Duration, Instant};

struct Dir(PathBuf);

fn open(options: DiskCacheOptions, scope: &str) -> io::Result<DiskCache> {
    DiskCache::start(CacheDir::lock(options)?, scope.to_owned(), Reporter::default())
}

impl Dir {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("nuthatch-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn open(&self, max_bytes: u64) -> DiskCache {
        let options = DiskCacheOptions { dir: self.0.clone(), max_bytes };
        open(options, "scope").expect("opens")
    }

    fn bytes(&self) -> u64 {
        found(&self.0).map_or(0, |files| files.iter().map(|(_, bytes)| bytes).sum())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Blocks are written by a thread.
fn wait_for(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn block(n: u8) -> Bytes {
    Bytes::from(vec![n; 1000])
}

fn put(cache: &DiskCache, number: u64) {
    cache.put("object", number, block(number as u8));
    wait_for(|| cache.contains("object", number));
}

#[test]
fn blocks_are_found_again_after_a_restart() {
    let dir = Dir::new("restart");
    put(&dir.open(1 << 20), 7);
    let cache = dir.open(1 << 20);
    assert_eq!(cache.get("object", 7), Some(block(7)));
    assert_eq!(cache.get("object", 8), None);
    assert_eq!(cache.get("other", 7), None);
    assert_eq!(cache.hits(), 1);
    drop(cache);
    let options = DiskCacheOptions { dir: dir.0.clone(), max_bytes: 1 << 20 };
    let other = open(options, "another life");
    assert_eq!(other.expect("opens").get("object", 7), None);
}

#[test]
fn it_keeps_within_its_bound_and_forgets_the_least_used() {
    let dir = Dir::new("bound");
    let cache = dir.open(3500);
    for number in 0..3 {
        put(&cache, number);
    }
    assert!(cache.get("object", 0).is_some());
    put(&cache, 3);
    wait_for(|| !cache.contains("object", 1));
    assert!(cache.get("object", 0).is_some() && cache.get("object", 2).is_some());
    for number in 4..30 {
        put(&cache, number);
        assert!(dir.bytes() <= 3500 && cache.bytes() <= 3500);
    }
    drop(cache);
    let smaller = dir.open(1200);
    assert!(smaller.bytes() <= 1200 && dir.bytes() <= 1200);
}

#[test]
fn what_is_damaged_or_gone_is_a_miss() {
    let dir = Dir::new("damage");
    let cache = dir.open(1 << 20);
    for number in 0..3 {
        put(&cache, number);
    }
    let path = |number| dir.0.join(file_name(hash_of(&format!("scope object {number}"))));
    let mut bytes = std::fs::read(path(0)).expect("there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path(0), bytes).expect("writes");
    std::fs::write(path(1), b"short").expect("writes");
    assert_eq!(cache.get("object", 0), None);
    assert_eq!(cache.get("object", 1), None);
    assert!(!path(0).exists(), "removed");
    put(&cache, 1);
    std::fs::copy(path(2), path(1)).expect("copies");
    assert_eq!(cache.get("object", 1), None, "another block, and whole");
    std::fs::remove_dir_all(&dir.0).expect("removes");
    assert_eq!(cache.get("object", 2), None);
    put(&cache, 2);
    assert_eq!(cache.get("object", 2), Some(block(2)));
}

#[test]
fn what_may_be_fine_is_a_miss_and_stays() {
    let dir = Dir::new("unread");
    let cache = dir.open(1 << 20);
    (0..2).for_each(|number| put(&cache, number));
    let path = |number| dir.0.join(file_name(hash_of(&format!("scope object {number}"))));
    let mut later = std::fs::read(path(0)).expect("there");
    later[8] = 2;
    std::fs::write(path(0), &later).expect("writes");
    assert_eq!(cache.get("object", 0), None);
    assert_eq!(std::fs::read(path(0)).expect("there"), later, "of a later version");
    // A directory in the file's place: reading it is an error that is not about its content.
    std::fs::remove_file(path(1)).and_then(|()| std::fs::create_dir(path(1))).expect("replaces");
    assert_eq!(cache.get("object", 1), None);
    assert!(path(1).is_dir());
    assert_eq!(cache.unusable(), 2);
    std::fs::remove_dir(path(1)).expect("removes");
    assert_eq!(cache.get("object", 1), None);
    assert_eq!(cache.unusable(), 2, "what is gone is nothing strange");
}

#[test]
fn half_a_block_goes_at_the_next_start() {
    let dir = Dir::new("half");
    put(&dir.open(1 << 20), 1);
    std::fs::write(dir.0.join(TEMPORARY_FILE), [0; 500]).expect("writes");
    let cache = dir.open(1 << 20);
    assert!(!dir.0.join(TEMPORARY_FILE).exists());
    assert_eq!(cache.get("object", 1), Some(block(1)));
}

#[test]
fn a_directory_is_one_servers_only() {
    let dir = Dir::new("shared");
    let _first = dir.open(1 << 20);
    let options = DiskCacheOptions { dir: dir.0.clone(), max_bytes: 1 };
    let second = open(options, "");
    assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
}
