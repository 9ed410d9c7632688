//! Files of every released format version open, and hold what they held. To add the files of a new
//! version, run this test with `NUTHATCH_WRITE_LOG=tests/versions/vN` in the crate's directory.

mod common;

use common::{Event, Outcome, Rig, tiny_cold, tiny_parts};
use nuthatch_log::StreamId;
use nuthatch_log::env::RealDisk;
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
