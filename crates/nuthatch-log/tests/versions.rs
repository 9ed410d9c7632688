//! Files of every released format version open, and hold what they held. To add the files of a new
//! version, run this test with `NUTHATCH_WRITE_LOG=tests/versions/vN` in the crate's directory.

mod common;

use common::{Event, Outcome, Rig, tiny, tiny_cold, tiny_parts};
use nuthatch_log::env::RealDisk;
use nuthatch_log::{LogOptions, StreamId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn body(stream: u32, n: u64) -> Vec<u8> {
    format!("message {n} of stream {stream}, {}", "x".repeat((n % 50) as usize)).into_bytes()
}

/// A log with messages, deletes, a purge, a dropped stream, a compacted segment, states in parts, a checkpoint, and
/// an end that was not closed. From version 2 on, with packed frames and segments for single streams.
fn write(dir: &Path) {
    let disk = Arc::new(RealDisk::open(dir).expect("a directory"));
    let mut rig = Rig::open(tiny_cold(), disk).expect("opens");
    rig.create(1, 0);
    rig.create(2, 5);
    rig.create(3, 0);
    for n in 1..=60 {
        rig.publish(1, &body(1, n));
        rig.publish(2, &body(2, n));
        rig.publish(3, &body(3, n));
        rig.advance(Duration::from_millis(60));
    }
    rig.run(Event::Delete { stream: StreamId(1), seq: 7, token: 0 });
    rig.run(Event::Purge { stream: StreamId(1), up_to: 3 });
    rig.run(Event::Drop { stream: StreamId(3) });
    for n in 61..=80 {
        rig.publish(2, &body(2, n));
        rig.advance(Duration::from_millis(200));
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 0 && stats.checkpoints > 0, "{stats:?}");
    assert!(stats.packed_bytes > 0, "{stats:?}");
}

fn check(dir: &Path) {
    let disk = Arc::new(RealDisk::open(dir).expect("a directory"));
    let mut rig = Rig::open(tiny_parts(), disk).expect("opens");
    let streams = &rig.core.machine().streams;
    assert_eq!(streams.keys().copied().collect::<Vec<_>>(), [StreamId(1), StreamId(2)]);
    let live = |stream: u32| streams[&StreamId(stream)].live.keys().copied().collect::<Vec<_>>();
    assert_eq!(live(1), (4..=60).filter(|seq| *seq != 7).collect::<Vec<_>>());
    assert_eq!(live(2), (76..=80).collect::<Vec<_>>());
    for seq in [4, 30, 60] {
        assert_eq!(rig.read(1, seq), Outcome::Body(body(1, seq)));
    }
    assert_eq!(rig.read(2, 78), Outcome::Body(body(2, 78)));
    assert_eq!(rig.publish(1, b"goes on"), Outcome::Acked(61));
}

fn version_of(catalog: &Path) -> u32 {
    let bytes = std::fs::read(catalog).expect("a catalog");
    u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"))
}

/// A directory of 0.1.0 (written by commit 7183523) gets a catalog of the second version and an
/// identity. What was sealed is as it was, to the byte.
#[test]
fn a_directory_of_the_first_release_is_rewritten_only_as_it_grows() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/versions/v0.1.0");
    assert_eq!(version_of(&old.join("catalog")), 1);
    let dir = std::env::temp_dir().join(format!("nuthatch-grows-{}", std::process::id()));
    copy(&old, &dir);
    let disk = Arc::new(RealDisk::open(&dir).expect("a directory"));
    let mut rig =
        Rig::open(LogOptions { compact_below_percent: 0, ..tiny() }, disk).expect("opens");
    assert_eq!(version_of(&dir.join("catalog")), 2);
    assert_eq!(std::fs::read(dir.join("identity")).expect("written").len(), 64);
    for n in 61..=70 {
        assert_eq!(rig.publish(1, &[0; 300]), Outcome::Acked(n));
    }
    rig.core.close().expect("closes");
    let mut names: Vec<_> = std::fs::read_dir(&old).expect("lists").flatten().collect();
    names.retain(|entry| entry.path().extension().is_some_and(|ending| ending == "seg"));
    names.sort_by_key(std::fs::DirEntry::path);
    let open = names.pop().expect("segments");
    for sealed in names {
        let now = std::fs::read(dir.join(sealed.file_name())).expect("there");
        assert!(now == std::fs::read(sealed.path()).expect("there"), "{sealed:?} was rewritten");
    }
    let now = std::fs::read(dir.join(open.file_name())).expect("there");
    assert!(now.len() < 16_384, "it was sealed where its frames ended");
    std::fs::remove_dir_all(&dir).expect("removes");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("files").flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copies");
        }
    }
}

#[test]
fn files_of_every_version_open() {
    if let Some(dir) = std::env::var_os("NUTHATCH_WRITE_LOG") {
        write(&PathBuf::from(dir));
    }
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/versions");
    let mut count = 0;
    for version in std::fs::read_dir(versions).expect("versions").flatten() {
        let name = version.file_name().to_string_lossy().into_owned();
        let dir = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        copy(&version.path(), &dir);
        check(&dir);
        std::fs::remove_dir_all(&dir).expect("removes");
        count += 1;
    }
    assert!(count >= 1);
}
