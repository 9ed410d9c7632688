//! Files of other tools among the fences and the catalogs, in memory and in a directory: the log starts,
//! the doctor looks and mends, segments move; the files are named, and stay as they are.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/objects.rs"]
mod objects;
#[path = "common/tier.rs"]
mod tier;

use common::{History, Rig, tiny};
use nuthatch_log::doctor::Kind;
use nuthatch_log::env::MemDisk;
use nuthatch_log::{LogOptions, Reporter};
use nuthatch_object::{
    Bucket, BucketOptions, BucketRepairer, BucketView, ObjectDisk, ObjectDiskOptions, open_url,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tier::{Process, tier_options};

/// What editors, copies and file systems leave beside a file, and names that only look like ours.
const STRANGERS: [&str; 11] = [
    "fence/.DS_Store",
    "fence/.0000000000000001.swp",
    "fence/.nfs0000000000000001",
    "fence/0000000000000001 (copy)",
    "fence/0000000000000009.v2",
    "fence/0000000000000009.tmp",
    "fence/9",
    "fence/old/0000000000000009",
    "catalog/next",
    "catalog/7",
    "catalog/00000000000000000099.part",
];

type Said = Arc<Mutex<Vec<String>>>;

fn bucket_options() -> (BucketOptions, Said) {
    let said: Said = Arc::default();
    let heard = Arc::clone(&said);
    let report = Reporter::new(move |text| heard.lock().push(text.to_owned()));
    (BucketOptions { retry_first_ms: 0, report, ..BucketOptions::default() }, said)
}

fn options() -> LogOptions {
    LogOptions { block_bytes: 64, ..tiny() }
}

/// A log that starts, works, is looked at, is taken by the doctor and starts again.
fn lives(bucket: &dyn Fn() -> (Arc<Bucket>, Said)) {
    let mut history = History::new(3);
    for seed in [4, 5] {
        let (place, said) = bucket();
        let mut prepared = ObjectDisk::prepare(place, ObjectDiskOptions::default()).expect("reads");
        prepared.rehearse(&options()).expect("is whole");
        let disk = prepared.take().expect("takes");
        let mut rig = Rig::open_seeded(options(), Arc::new(disk), seed).expect("opens");
        history.check(&mut rig).expect("all is there");
        history.work(&mut rig, 60);
        history.collect(&rig);
        rig.core.close().expect("closes");
        let told = said.lock().iter().filter(|text| text.contains("left alone")).count();
        assert!(told > 0, "{said:?}");
        drop(rig);
        let (_, survey) = BucketView::survey(bucket().0).expect("can be looked at");
        let unknown = survey.findings.iter().filter(|finding| finding.kind == Kind::UnknownFile);
        let named: Vec<&str> = unknown.map(|finding| finding.file.as_str()).collect();
        assert!(STRANGERS.iter().all(|stranger| named.contains(stranger)), "{named:?}");
        let repairer = BucketRepairer::open(&bucket().0, "a doctor").expect("takes");
        repairer.apply(&BTreeMap::new(), &survey, "then").expect("mends");
        repairer.leave();
    }
}

#[test]
fn strangers_in_memory_are_named_and_left_alone() {
    let store = Arc::new(InMemory::new());
    for stranger in STRANGERS {
        objects::put(&store, &format!("p/log/{stranger}"), stranger);
    }
    lives(&|| {
        let (options, said) = bucket_options();
        let store = Arc::clone(&store);
        let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), options);
        (Arc::new(bucket.expect("threads")), said)
    });
    for stranger in STRANGERS {
        assert_eq!(objects::get(&store, &format!("p/log/{stranger}")), stranger.as_bytes());
    }
}

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn bucket(&self) -> (Arc<Bucket>, Said) {
        let (options, said) = bucket_options();
        let address = format!("file://{}", self.0.display());
        (Arc::new(open_url(&address, "log", options).expect("a bucket")), said)
    }

    /// Puts files where a log's objects are.
    fn strangers(&self) -> Vec<PathBuf> {
        let all = STRANGERS.iter().chain(&["data/x/notes.txt"]);
        let paths: Vec<PathBuf> = all.map(|one| self.0.join("log").join(one)).collect();
        for path in &paths {
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("is made");
            std::fs::write(path, b"of another tool").expect("writes");
        }
        paths
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn are_untouched(strangers: &[PathBuf]) {
    for path in strangers {
        assert_eq!(std::fs::read(path).expect("is there"), b"of another tool", "{path:?}");
    }
}

#[test]
fn strangers_in_a_directory_are_named_and_left_alone() {
    let dir = Dir::new("strangers");
    let strangers = dir.strangers();
    lives(&|| dir.bucket());
    are_untouched(&strangers);
}

#[test]
fn strangers_in_a_tier_are_named_and_left_alone() {
    let dir = Dir::new("tier-strangers");
    let strangers = dir.strangers();
    let (local, mut history) = (MemDisk::default(), History::new(7));
    let (bucket, said) = dir.bucket();
    let process = Process::with(&local, bucket, tier_options(7), 7);
    let mut process = process.expect("opens");
    history.work(&mut process.rig, 100);
    history.collect(&process.rig);
    let (moved, result) = process.move_all();
    result.expect("moves");
    assert!(moved > 0 && said.lock().iter().any(|text| text.contains("left alone")), "{said:?}");
    history.check(&mut process.rig).expect("all is there");
    are_untouched(&strangers);
}

/// The client ends a listing there, so that nothing is known of what else is in the directory.
#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_text_is_refused_and_not_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    for dir_name in ["fence", "catalog", "data/x"] {
        let dir = Dir::new("no-text");
        drop(ObjectDisk::open(dir.bucket().0, ObjectDiskOptions::default()).expect("opens"));
        let at = dir.0.join("log").join(dir_name);
        std::fs::create_dir_all(&at).expect("a directory");
        std::fs::write(at.join(std::ffi::OsStr::from_bytes(b"no\xfftext")), b"").expect("writes");
        let opened = ObjectDisk::open(dir.bucket().0, ObjectDiskOptions::default());
        let why = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("non-unicode"), "{dir_name}: {why}");
    }
}
