//! The doctor under the real engine: logs with a history are damaged in every way, mended, and
//! opened as a server opens them.
//!
//! What must hold each time: the log opens; every acknowledged message whose frame was not touched
//! is there with its payload; every other one is there or named as lost; nothing that can be read is
//! named as lost; no sequence is given out twice; and a second examination finds nothing.

mod failing;
mod later;
mod rig;
#[path = "../../../../tests/seeds.rs"]
mod seeds;

use failing::{Failing, FailingDisk, INPUT_OUTPUT_ERROR, PERMISSION_DENIED};
use nuthatch_log::doctor::{
    Diagnosis, DoctorOptions, Kind, Seen, Uncertain, diagnose, walk_segment,
};
use nuthatch_log::env::{MemDisk, SeededEntropy};
use nuthatch_log::{Disk, Entropy, RecordKind, StreamId};
use rig::{History, KEPT, LIMITED, PLAIN, Rig, TestStateDecoder};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Seeds of each kind of damage.
const SEEDS: u64 = 40;

/// What an operating system reads at least.
const PAGE_BYTES: u64 = 4096;

/// Where each message of a log lies: file and bytes of its frame.
type Places = BTreeMap<(StreamId, u64), Vec<(String, Range<u64>)>>;

/// What was done to a disk: bytes of files that are not what they were.
#[derive(Debug, Default)]
struct Harm(Vec<(String, Range<u64>)>);

impl Harm {
    fn touches(&self, file: &str, range: &Range<u64>) -> bool {
        self.0
            .iter()
            .any(|(name, harm)| name == file && harm.start < range.end && range.start < harm.end)
    }
}

fn places(disk: &MemDisk) -> Places {
    let mut places = Places::new();
    for name in segments(disk) {
        let mut frame = 0..0;
        let _ = walk_segment(disk, &name, &mut |seen| {
            match seen {
                Seen::Frame(view) => frame = view.offset..view.offset + u64::from(view.bytes),
                Seen::Record(_, record) if record.kind == RecordKind::Message => {
                    let key = (record.stream, record.seq.0);
                    places.entry(key).or_default().push((name.clone(), frame.clone()));
                }
                _ => {}
            }
            Ok(())
        });
    }
    places
}

fn segments(disk: &MemDisk) -> Vec<String> {
    let mut names = disk.list("").expect("lists");
    names.retain(|name| name.ends_with(".seg"));
    names
}

fn examine(disk: &MemDisk) -> Diagnosis {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    diagnose(&disk, &TestStateDecoder, DoctorOptions::default()).expect("can be examined")
}

/// Examines, mends, opens and checks.
fn check(disk: &MemDisk, history: &History, harm: &Harm, before: &Places) -> Diagnosis {
    let diagnosis = examine(disk);
    assert!(diagnosis.is_mendable(), "{harm:?}\n{diagnosis:#?}");
    if !diagnosis.changes.is_empty() {
        diagnosis.apply(disk, "now").expect("applies");
    }
    check_mended(disk, history, harm, before, diagnosis)
}

/// What must hold of a log that was mended.
fn check_mended(
    disk: &MemDisk,
    history: &History,
    harm: &Harm,
    before: &Places,
    diagnosis: Diagnosis,
) -> Diagnosis {
    let again = examine(disk);
    assert!(again.is_healthy(), "{harm:?}\n{:#?}\nagain {:#?}", diagnosis.findings, again.findings);
    let mut rig = Rig::open(disk, 99).unwrap_or_else(|e| panic!("{harm:?}: {e}\n{diagnosis:#?}"));
    let is_lost = |stream: StreamId, seq: u64| {
        diagnosis.lost.iter().any(|l| l.stream == stream && (l.first..=l.last).contains(&seq))
    };
    let may_be_lost = |stream: StreamId, seq: u64| {
        diagnosis.uncertain.iter().any(|u| u.stream == stream && seq > u.last)
    };
    for ((stream, seq), body) in &history.acked {
        let found = rig.read(*stream, *seq);
        let untouched = before
            .get(&(*stream, *seq))
            .is_some_and(|places| places.iter().any(|(file, range)| !harm.touches(file, range)));
        match found {
            Some(found) => {
                assert!(found == *body, "{harm:?}: message {seq} of {stream} changed");
                assert!(!is_lost(*stream, *seq), "{harm:?}: {seq} of {stream} is there");
            }
            None if history.was_evicted(*stream, *seq) => {}
            None => {
                // What lies in compacted segments alone needs a state, which may have been touched.
                let places = before.get(&(*stream, *seq));
                let needs_state = places.is_some_and(|at| at.iter().all(|(f, _)| is_compacted(f)));
                let untouched = untouched && !needs_state;
                assert!(!untouched, "{harm:?}: {seq} of {stream} was not touched\n{diagnosis:#?}");
                let told = is_lost(*stream, *seq) || may_be_lost(*stream, *seq);
                assert!(told, "{harm:?}: {seq} of {stream}\n{diagnosis:#?}");
            }
        }
    }
    for Uncertain { stream, last, .. } in &diagnosis.uncertain {
        let known = diagnosis.lost.iter().any(|l| l.stream == *stream && l.first > *last);
        assert!(!known, "{harm:?}: messages behind {last} of {stream} are known\n{diagnosis:#?}");
    }
    for stream in rig.streams() {
        let newest = history.newest(stream);
        let next = rig.publish_one(stream);
        assert!(
            next > newest,
            "{harm:?}: sequence {next} of {stream} again, {newest} was given out"
        );
    }
    diagnosis
}

/// A log with a history; `clean`: closed.
fn furnished(seed: u64, clean: bool) -> (MemDisk, History) {
    let disk = MemDisk::default();
    let mut history = History::new(seed);
    for life in 0..3 {
        let mut rig = Rig::open(&disk, seed * 7 + life).expect("opens");
        history.work(&mut rig);
        if life < 2 || clean {
            rig.core.close().expect("closes");
        }
        drop(rig);
        disk.release_lock();
    }
    (disk, history)
}

fn flip(disk: &MemDisk, file: &str, at: u64, bit: u8) -> Harm {
    disk.flip_bit(file, at as usize, bit);
    Harm(vec![(file.to_owned(), at..at + 1)])
}

fn overwrite(disk: &MemDisk, file: &str, range: Range<u64>, chance: &mut SeededEntropy) -> Harm {
    let bytes: Vec<u8> = range.clone().map(|_| chance.next() as u8).collect();
    disk.open(file).and_then(|f| f.write_at(&bytes, range.start)).expect("writes");
    Harm(vec![(file.to_owned(), range)])
}

fn len(disk: &MemDisk, file: &str) -> u64 {
    disk.open(file).and_then(|f| f.len()).expect("there")
}

fn pick(names: &[String], chance: &mut SeededEntropy) -> String {
    names[chance.below(names.len() as u64) as usize].clone()
}

#[test]
fn a_healthy_log_is_found_healthy() {
    for seed in 0..10 {
        for clean in [true, false] {
            let (disk, history) = furnished(seed, clean);
            let before = places(&disk);
            let diagnosis = check(&disk, &history, &Harm::default(), &before);
            assert!(diagnosis.is_healthy(), "{diagnosis:#?}");
            assert!(diagnosis.changes.is_empty(), "{:?}", diagnosis.changes.keys());
        }
    }
}

fn is_compacted(file: &str) -> bool {
    file.matches('-').count() > 1
}

/// The newest segment that holds states and was not compacted.
fn last_with_states(disk: &MemDisk) -> Option<String> {
    let has_states = |name: &String| {
        let mut found = false;
        let walked = walk_segment(disk, name, &mut |seen| {
            if let Seen::Record(_, record) = seen {
                found |= matches!(record.kind, RecordKind::StreamState | RecordKind::StatePart);
            }
            Ok(())
        });
        walked.is_ok() && found
    };
    segments(disk).into_iter().rev().find(|name| !is_compacted(name) && has_states(name))
}

/// A log with an old checkpoint that was killed after a compaction, and writes no checkpoint by itself
/// any more.
fn compacted(seed: u64) -> (MemDisk, History) {
    let disk = MemDisk::default();
    let mut history = History::new(seed);
    let mut rig = Rig::open(&disk, 2 * seed).expect("opens");
    rig.create(PLAIN);
    (0..3).for_each(|_| history.publish_to(&mut rig, PLAIN));
    rig.core.close().expect("closes");
    drop(rig);
    disk.release_lock();
    let mut rig = Rig::open_rarely_checkpointed(&disk, 2 * seed + 1).expect("opens");
    for n in 1..=30 {
        history.publish_to(&mut rig, PLAIN);
        if n % 6 == 0 {
            rig.clock.advance(Duration::from_millis(1100));
            rig.settle();
        }
    }
    drop(rig);
    disk.release_lock();
    (disk.survive(), history)
}

/// The segment with the states that a compaction logged is lost before a checkpoint was due: what lies
/// whole in compacted segments is not given up.
#[test]
fn what_was_compacted_outlives_the_states_of_its_compaction() {
    let mut met = 0;
    for seed in seeds::seeds(0..SEEDS) {
        let (disk, history) = compacted(seed);
        let before = places(&disk);
        let Some(with_states) = last_with_states(&disk) else { continue };
        let whole = |at: &[(String, Range<u64>)]| at.iter().any(|(file, _)| is_compacted(file));
        let kept: Vec<_> = before.iter().filter(|(_, at)| whole(at)).map(|(key, _)| *key).collect();
        met += u64::from(!kept.is_empty());
        disk.remove(&with_states).and_then(|()| disk.sync_dir("")).expect("removes");
        let harm = Harm(vec![(with_states.clone(), 0..u64::MAX)]);
        let diagnosis = check(&disk, &history, &harm, &before);
        disk.release_lock();
        let mut rig = Rig::open(&disk, 99).expect("opens");
        for (stream, seq) in kept {
            let found = rig.read(stream, seq);
            assert!(found.is_some(), "seed {seed}: {seq} of {stream} is given up\n{diagnosis:#?}");
        }
    }
    assert!(met > SEEDS / 2, "only {met} logs were compacted");
}

/// The bytes of small frames, headers, footers, checkpoints and the catalog: wherever one bit
/// changes, nothing is lost.
#[test]
fn one_changed_bit_loses_nothing() {
    for seed in seeds::seeds(0..4 * SEEDS) {
        let (disk, history) = furnished(seed % 5, seed % 2 == 0);
        let mut chance = SeededEntropy::new(seed);
        let before = places(&disk);
        let names: Vec<String> = disk.list("").expect("lists");
        let file = pick(&names, &mut chance);
        let at = chance.below(len(&disk, &file));
        let harm = flip(&disk, &file, at, chance.below(8) as u8);
        let diagnosis = check(&disk, &history, &harm, &before);
        assert!(diagnosis.lost.is_empty(), "{harm:?}\n{diagnosis:#?}");
    }
}

#[test]
fn a_lost_sector_loses_only_its_frames() {
    for seed in seeds::seeds(0..2 * SEEDS) {
        let (disk, history) = furnished(seed % 5, seed % 2 == 0);
        let mut chance = SeededEntropy::new(seed);
        let before = places(&disk);
        let file = pick(&segments(&disk), &mut chance);
        let start = chance.below(len(&disk, &file)) / 512 * 512;
        let harm = overwrite(&disk, &file, start..start + 512, &mut chance);
        check(&disk, &history, &harm, &before);
    }
}

#[test]
fn a_missing_segment_loses_only_its_own_messages() {
    for seed in seeds::seeds(0..10 * SEEDS) {
        let (disk, history) = furnished(seed % SEEDS, seed % 2 == 0);
        let mut chance = SeededEntropy::new(seed);
        let before = places(&disk);
        let file = pick(&segments(&disk), &mut chance);
        disk.remove(&file).expect("removes");
        let harm = Harm(vec![(file, 0..u64::MAX)]);
        let diagnosis = check(&disk, &history, &harm, &before);
        assert!(diagnosis.findings.iter().any(|f| f.kind == Kind::SegmentMissing));
    }
}

/// A checkpoint that is damaged, with a position in its name that the log cannot have reached: the name
/// is not believed, and no sequence is given out twice whatever the checkpoint covered.
#[test]
fn an_impossible_position_in_the_name_of_a_damaged_checkpoint_is_not_believed() {
    for (seed, position) in [(1, u64::MAX), (2, 1 << 40), (3, u64::MAX - 1)] {
        let (disk, history) = furnished(seed, true);
        let before = places(&disk);
        let name = format!("checkpoint-{position:020}");
        disk.create(&name).and_then(|file| file.write_at(&[7; 900], 0)).expect("writes");
        assert!(Rig::open(&disk, 1).is_err(), "a start leaves that to the operator");
        disk.release_lock();
        let diagnosis = check(&disk, &history, &Harm::default(), &before);
        let ahead = diagnosis.findings.iter().find(|f| f.kind == Kind::CheckpointAhead);
        assert!(ahead.is_some_and(|f| f.what.contains("cannot have reached")), "{diagnosis:#?}");
        let mut rig = Rig::open(&disk, 1).expect("opens");
        let next = rig.publish_one(PLAIN);
        assert!(next < 1 << 32, "{next}");
    }
}

/// The catalog is gone and the newest segment with it: nothing tells that it was there, which is said,
/// and what it may have held is not given out again.
#[test]
fn a_lost_catalog_and_newest_segment_give_nothing_out_twice() {
    for seed in 0..SEEDS {
        let (disk, history) = furnished(seed, seed % 2 == 0);
        let before = places(&disk);
        let mut names = segments(&disk);
        names.sort_by_key(|name| name.split('-').nth(1).map(str::to_owned));
        let newest = names.pop().expect("a segment");
        for name in [newest.as_str(), "catalog"] {
            disk.remove(name).expect("removes");
        }
        let harm = Harm(vec![(newest, 0..u64::MAX)]);
        check(&disk, &history, &harm, &before);
    }
}

#[test]
fn a_truncated_segment_keeps_its_beginning() {
    for seed in seeds::seeds(0..SEEDS) {
        let (disk, history) = furnished(seed % 5, seed % 2 == 0);
        let mut chance = SeededEntropy::new(seed);
        let before = places(&disk);
        let file = pick(&segments(&disk), &mut chance);
        let cut = chance.below(len(&disk, &file));
        disk.open(&file).and_then(|f| f.set_len(cut)).expect("cuts");
        check(&disk, &history, &Harm(vec![(file, cut..u64::MAX)]), &before);
    }
}

#[test]
fn a_lost_catalog_is_made_anew_and_loses_nothing() {
    for seed in seeds::seeds(0..SEEDS) {
        let (disk, history) = furnished(seed % 5, seed % 2 == 0);
        let before = places(&disk);
        if seed % 3 == 0 {
            disk.open("catalog").and_then(|f| f.set_len(20)).expect("cuts");
        } else {
            disk.remove("catalog").expect("removes");
        }
        let diagnosis = check(&disk, &history, &Harm::default(), &before);
        assert!(diagnosis.lost.is_empty(), "{diagnosis:#?}");
    }
}

/// A backup of the catalog was put back, older than the segments.
#[test]
fn a_stale_catalog_is_brought_up_to_date() {
    let (disk, mut history) = furnished(3, true);
    let old = nuthatch_log::env::read_exact_at(
        &*disk.open("catalog").expect("there"),
        0,
        len(&disk, "catalog") as usize,
    );
    let mut rig = Rig::open(&disk, 5).expect("opens");
    history.work(&mut rig);
    rig.core.close().expect("closes");
    drop(rig);
    let before = places(&disk);
    let file = disk.create("catalog").expect("creates");
    file.write_at(&old.expect("reads"), 0).expect("writes");
    let diagnosis = check(&disk, &history, &Harm::default(), &before);
    assert!(diagnosis.lost.is_empty(), "{diagnosis:#?}");
}

#[test]
fn a_renamed_segment_gets_its_name_back() {
    let (disk, history) = furnished(1, true);
    let before = places(&disk);
    let file = segments(&disk)[0].clone();
    disk.rename(&file, "torn/elsewhere.seg").expect("renames");
    let diagnosis = check(&disk, &history, &Harm::default(), &before);
    assert!(diagnosis.findings.iter().any(|f| f.kind == Kind::SegmentRenamed));
    assert!(diagnosis.lost.is_empty());
}

#[test]
fn a_foreign_segment_is_set_aside() {
    let (disk, history) = furnished(1, true);
    let (other, _) = furnished(2, true);
    let before = places(&disk);
    let name = segments(&other)[0].clone();
    let file = other.open(&name).expect("there");
    let bytes = nuthatch_log::env::read_exact_at(&*file, 0, len(&other, &name) as usize);
    let stray = disk.create("0000000000000063-00000000000000000001.seg").expect("creates");
    stray.write_at(&bytes.expect("reads"), 0).expect("writes");
    let diagnosis = check(&disk, &history, &Harm::default(), &before);
    assert!(diagnosis.findings.iter().any(|f| f.kind == Kind::SegmentForeign), "{diagnosis:#?}");
    let kept = disk.list("doctor/now").expect("lists");
    assert!(kept.contains(&"0000000000000063-00000000000000000001.seg".to_owned()), "{kept:?}");
}

/// The record that created a stream lies in a lost frame, and no checkpoint knows it: its messages
/// come back in a stream with another name.
#[test]
fn messages_of_a_stream_whose_configuration_is_lost_are_kept() {
    let disk = MemDisk::default();
    let mut history = History::new(4);
    let mut rig = Rig::open(&disk, 1).expect("opens");
    rig.create(PLAIN);
    for _ in 0..5 {
        history.publish_to(&mut rig, PLAIN);
    }
    drop(rig);
    disk.release_lock();
    let before = places(&disk);
    let first = segments(&disk)[0].clone();
    let mut chance = SeededEntropy::new(1);
    let harm = overwrite(&disk, &first, 512..1024, &mut chance);
    let diagnosis = check(&disk, &history, &harm, &before);
    assert!(diagnosis.findings.iter().any(|f| f.kind == Kind::StreamUnknown), "{diagnosis:#?}");
    let streams = diagnosis.streams.expect("opens");
    assert_eq!(streams[0].name, "RECOVERED_1");
    assert_eq!(streams[0].messages, 5);
}

/// Everything at once: nothing panics, and what is said to be mended opens.
#[test]
fn heaps_of_damage_are_survived() {
    for seed in seeds::seeds(0..SEEDS) {
        let (disk, _) = furnished(seed % 5, seed % 2 == 0);
        let mut chance = SeededEntropy::new(seed);
        for _ in 0..=chance.below(6) {
            let names: Vec<String> = disk.list("").expect("lists");
            let file = pick(&names, &mut chance);
            let len = len(&disk, &file);
            match chance.below(4) {
                0 => disk.remove(&file).expect("removes"),
                1 => disk.open(&file).and_then(|f| f.set_len(chance.below(len + 1))).expect("cuts"),
                _ => {
                    let start = chance.below(len.max(1));
                    overwrite(&disk, &file, start..start + chance.below(700), &mut chance);
                }
            }
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let Ok(diagnosis) = diagnose(&shared, &TestStateDecoder, DoctorOptions::default()) else {
            continue;
        };
        if diagnosis.is_mendable() {
            if !diagnosis.changes.is_empty() {
                diagnosis.apply(&disk, "now").expect("applies");
            }
            Rig::open(&disk, 1).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{diagnosis:#?}"));
        }
    }
}

#[test]
fn the_limited_stream_is_limited() {
    let (disk, history) = furnished(1, true);
    let mut rig = Rig::open(&disk, 1).expect("opens");
    let kept =
        history.acked.keys().filter(|(s, seq)| *s == LIMITED && rig.read(*s, *seq).is_some());
    assert_eq!(kept.count() as u64, KEPT);
}

/// Every file of a disk with its content.
fn content(disk: &MemDisk) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in ["", "torn", "doctor"] {
        for name in disk.list(dir).expect("lists") {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let Ok(file) = disk.open(&path) else { continue };
            let len = file.len().expect("a length") as usize;
            let mut bytes = vec![0; len];
            file.read_at(&mut bytes, 0).expect("reads");
            files.insert(path, bytes);
        }
    }
    files
}

/// A server meets a disk of which something fails: it refuses and names the file, or goes on without;
/// no file is gone or shorter afterwards.
fn meets(disk: &MemDisk, file: &str, failing: &Failing) {
    let before = content(disk);
    let failing =
        FailingDisk { inner: disk.clone(), file: file.to_owned(), failing: failing.clone() };
    if let Err(error) = Rig::open_on(Arc::new(failing), 98) {
        assert!(error.to_string().contains(file), "{file} is not named: {error}");
    }
    disk.release_lock();
    let after = content(disk);
    for (path, bytes) in before.iter().filter(|(path, _)| path.ends_with(".seg")) {
        assert!(after.get(path).is_some_and(|now| now.starts_with(bytes)), "{path} was touched");
    }
}

/// Pages that the medium does not give back any more: what is in them is lost and named, nothing
/// else; and before that nothing was deleted by a server that met them.
#[test]
fn pages_that_cannot_be_read_lose_only_their_frames() {
    for seed in seeds::seeds(0..SEEDS / 2) {
        let (disk, history) = furnished(seed, true);
        let before = places(&disk);
        let mut chance = SeededEntropy::new(seed);
        let file = pick(&segments(&disk), &mut chance);
        // The operating system reads pages: it says nothing of the sectors in one.
        let at = chance.below(len(&disk, &file)) / PAGE_BYTES * PAGE_BYTES;
        let bytes = at..at + PAGE_BYTES;
        meets(&disk, &file, &Failing::Bytes(bytes.clone()));
        let failing = FailingDisk {
            inner: disk.clone(),
            file: file.clone(),
            failing: Failing::Bytes(bytes.clone()),
        };
        let all = content(&disk);
        let as_seen: Arc<dyn Disk> = Arc::new(failing);
        let diagnosis = diagnose(&as_seen, &TestStateDecoder, DoctorOptions::default())
            .expect("can be examined");
        assert_eq!(content(&disk), all, "looking changed something");
        assert!(diagnosis.is_mendable(), "{diagnosis:#?}");
        let told = |kind: Kind| diagnosis.findings.iter().any(|finding| finding.kind == kind);
        assert!(told(Kind::ReadError) || told(Kind::Footer), "{:#?}", diagnosis.findings);
        // What is written anew is another place of the medium: mended through the failing disk.
        let kept = diagnosis.apply(&*as_seen, "then").expect("applies").kept;
        assert!(kept.contains(&file), "{kept:?}");
        check_mended(&disk, &history, &Harm(vec![(file, bytes)]), &before, diagnosis);
    }
}

/// Files that the operating system does not open: nothing is mended, nothing deleted, and the file and
/// the reason are named.
#[test]
fn files_that_cannot_be_opened_block_mending() {
    for (seed, errno) in [(1, PERMISSION_DENIED), (2, INPUT_OUTPUT_ERROR)] {
        let (disk, _) = furnished(seed, true);
        let file = segments(&disk)[1].clone();
        for file in [file, "catalog".to_owned()] {
            let failing = Failing::Opening(errno);
            meets(&disk, &file, &failing);
            let before = content(&disk);
            let seen: Arc<dyn Disk> =
                Arc::new(FailingDisk { inner: disk.clone(), file: file.clone(), failing });
            let diagnosis = diagnose(&seen, &TestStateDecoder, DoctorOptions::default())
                .expect("can be examined");
            assert!(!diagnosis.is_mendable(), "{file}: {diagnosis:#?}");
            let finding = diagnosis.findings.iter().find(|f| f.kind == Kind::Unreadable);
            let finding = finding.unwrap_or_else(|| panic!("{file}: {diagnosis:#?}"));
            let reason = std::io::Error::from_raw_os_error(errno).to_string();
            assert!(finding.file == file && finding.what.contains(&reason), "{finding}");
            assert_eq!(content(&disk), before, "{file}");
        }
        Rig::open(&disk, 97).expect("opens once the file can be read");
        disk.release_lock();
    }
}
