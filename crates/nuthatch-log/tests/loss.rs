//! What is gone is told: a file that became shorter, a log that ends before its checkpoint does, a
//! directory that is another log's. What cannot be used is kept.

mod common;

use common::bytes::{checkpoints, content, frames, read, resum, segments, u32_at, u64_at, write};
use common::{Outcome, Rig, tiny};
use nuthatch_log::doctor::{
    DecodedState, Diagnosis, DoctorOptions, Kind, StateDecoder, StreamPreview, diagnose,
};
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{DamageKind, Disk, LogOptions, OpenError, OwnableDisk, StreamId};
use std::sync::Arc;
use std::time::Duration;

const IDENTITY: &str = "identity";

fn options() -> LogOptions {
    LogOptions { compact_below_percent: 0, ..tiny() }
}

fn open(disk: &MemDisk) -> Result<Rig, OpenError> {
    Rig::open(options(), Arc::new(disk.clone()))
}

/// A log that was killed, and how many messages of stream 1 were acknowledged.
fn killed(messages: u64) -> MemDisk {
    let disk = MemDisk::default();
    let mut rig = open(&disk).expect("opens");
    rig.create(1, 0);
    for n in 1..=messages {
        assert_eq!(rig.publish(1, &[n as u8; 200]), Outcome::Acked(n));
        if n % 7 == 0 {
            rig.advance(Duration::from_millis(60));
        }
    }
    drop(rig);
    disk.survive()
}

fn closed(messages: u64) -> MemDisk {
    let disk = killed(messages);
    open(&disk).expect("opens").core.close().expect("closes");
    disk.survive()
}

/// The newest segment: open, if the log was killed.
fn newest(disk: &MemDisk) -> String {
    segments(disk).pop().expect("a segment")
}

#[test]
fn an_open_segment_that_became_shorter_is_refused() {
    let whole = killed(40);
    let name = newest(&whole);
    let len = read(&whole, &name).len();
    let mut chance = SeededEntropy::new(1);
    let cuts = (0..100).map(|_| chance.below(len as u64) as usize).chain([0, len - 1, len - 512]);
    for cut in cuts {
        let disk = whole.survive();
        let mut bytes = read(&disk, &name);
        bytes.truncate(cut);
        write(&disk, &name, &bytes);
        let before = content(&disk);
        let error = open(&disk).err().unwrap_or_else(|| panic!("cut at {cut}: it opens"));
        let OpenError::Damaged { segment, kind, .. } = &error else { panic!("{cut}: {error}") };
        assert_eq!(*segment, name);
        let header = cut < 64;
        assert_eq!(*kind == DamageKind::SegmentHeader, header, "cut at {cut}: {error}");
        assert!(error.is_damage());
        disk.release_lock();
        assert!(content(&disk) == before, "cut at {cut}: files were changed");
    }
    assert!(open(&whole).is_ok());
}

/// A frame that a later one vouches for was durable: damage to it is no torn tail.
#[test]
fn damage_below_a_later_frame_is_refused() {
    let whole = killed(40);
    let name = newest(&whole);
    let all = frames(&read(&whole, &name));
    assert!(all.len() > 3);
    for (at, _) in &all[..all.len() - 2] {
        let disk = whole.survive();
        disk.flip_bit(&name, at + 20, 1);
        let error = open(&disk).err().expect("refused");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

/// A whole frame of the same segment in the place of another one.
#[test]
fn a_frame_in_the_wrong_place_is_refused() {
    let whole = killed(40);
    let name = newest(&whole);
    let bytes = read(&whole, &name);
    let all = frames(&bytes);
    let (last, len) = all[all.len() - 1];
    for (at, _) in &all[..all.len() - 2] {
        let mut changed = bytes.clone();
        changed.copy_within(last..last + len, *at);
        let disk = whole.survive();
        write(&disk, &name, &changed);
        let error = open(&disk).err().expect("refused");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

/// What an earlier file left on the medium is no frame of this one, whatever it vouches for.
#[test]
fn old_bytes_of_the_medium_are_no_frames() {
    let whole = killed(40);
    let name = newest(&whole);
    let mut bytes = read(&whole, &name);
    let (last, len) = *frames(&bytes).last().expect("frames");
    let end = (last + len).next_multiple_of(512);
    let other = killed(300);
    let old = read(&other, &newest(&other));
    let (at, old_len) = *frames(&old).last().expect("frames");
    assert!(end + 512 + old_len <= bytes.len(), "there is room behind the end");
    bytes[end + 512..end + 512 + old_len].copy_from_slice(&old[at..at + old_len]);
    write(&whole, &name, &bytes);
    let rig = open(&whole).expect("opens");
    assert_eq!(rig.core.machine().streams[&nuthatch_log::StreamId(1)].last, 40);
}

/// A segment that was ended is cut behind its footer only when the catalog has it as sealed: a crash
/// at any step of that is not taken for a loss.
#[test]
fn ending_a_segment_is_no_loss_at_any_step() {
    let work = |disk: &MemDisk| {
        let mut acked = 0;
        let Ok(mut rig) = open(disk) else { return acked };
        rig.create(1, 0);
        for n in 1..=60 {
            if rig.publish(1, &[n as u8; 400]) == Outcome::Acked(n) {
                acked = n;
            }
        }
        let _ = rig.core.close();
        acked
    };
    let whole = MemDisk::default();
    work(&whole);
    for cut in 1..whole.operations() {
        let disk = MemDisk::default();
        disk.inject(Fault::PowerCut(cut));
        let acked = work(&disk);
        for after in [disk.survive(), disk.crash(cut), disk.crash(cut ^ 1 << 40)] {
            let mut rig = open(&after).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
            for seq in 1..=acked {
                assert_eq!(rig.read(1, seq), Outcome::Body(vec![seq as u8; 400]), "cut {cut}");
            }
        }
    }
}

/// Room that a crash left behind a sealed segment is given back.
#[test]
fn what_a_crash_left_uncut_is_cut() {
    let disk = killed(40);
    drop(open(&disk).expect("opens"));
    let name = newest(&disk);
    let sealed = read(&disk, &name);
    let mut long = sealed.clone();
    long.resize(sealed.len() + 8192, 0);
    write(&disk, &name, &long);
    let mut rig = open(&disk).expect("opens");
    assert_eq!(rig.publish(1, b"x"), Outcome::Acked(41));
    drop(rig);
    assert!(open(&disk).is_ok());
    assert_eq!(read(&disk, &name), sealed);
}

#[test]
fn a_checkpoint_behind_the_end_of_the_log_proves_a_loss() {
    for clean in [true, false] {
        let long = if clean { closed(300) } else { killed(300) };
        let newest = checkpoints(&long).pop().expect("a checkpoint");
        let covers = u64_at(&read(&long, &newest), 24);
        // The same log as it was earlier: everything but its newest checkpoint went back.
        let short = if clean { closed(60) } else { killed(60) };
        short.create(&newest).expect("creates");
        write(&short, &newest, &read(&long, &newest));
        let mut bytes = read(&short, &newest);
        let log_id = u64_at(&read(&short, "catalog"), 16);
        bytes[16..24].copy_from_slice(&log_id.to_le_bytes());
        let epoch = u32_at(&read(&short, "catalog"), 24);
        bytes[32..36].copy_from_slice(&epoch.to_le_bytes());
        let len = bytes.len();
        resum(&mut bytes, len);
        write(&short, &newest, &bytes);
        let before = content(&short);
        match open(&short).err().expect("refused") {
            error @ OpenError::Ahead { .. } => {
                let text = error.to_string();
                assert!(error.is_damage() && text.contains("nuthatch doctor"), "{text}");
                assert!(text.contains(&newest) && text.contains(&covers.to_string()), "{text}");
            }
            error => panic!("{error}"),
        }
        short.release_lock();
        assert!(content(&short) == before, "files were changed");
        // One that became damaged says it by its name.
        short.flip_bit(&newest, 60, 1);
        let error = open(&short).err().expect("refused");
        assert!(matches!(error, OpenError::Ahead { .. }), "{error}");
        short.release_lock();
    }
}

/// Knows nothing of what records mean, and tells whether the log opens.
struct Ignorant;

impl StateDecoder for Ignorant {
    fn state(&self, _body: &[u8]) -> Option<DecodedState> {
        None
    }
    fn log_state(&self, _body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        None
    }
    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
        (snapshot.len() > 100).then(Vec::new)
    }
    fn is_later(&self, snapshot: &[u8]) -> bool {
        snapshot.get(7).is_some_and(|version| *version > 0)
    }
    fn advance(&self) -> Vec<u8> {
        Vec::new()
    }
    fn orphan(&self, stream: StreamId, _last: u64) -> (String, Vec<u8>) {
        (stream.to_string(), Vec::new())
    }
    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String> {
        Rig::open(options(), disk).map(|_| Vec::new()).map_err(|error| error.to_string())
    }
}

fn examine(disk: &MemDisk) -> Diagnosis {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    diagnose(&disk, &Ignorant, DoctorOptions::default()).expect("examines")
}

/// What a start refuses, or does without, the doctor mends.
#[test]
fn the_doctor_mends_checkpoints_and_identities_and_a_catalog_that_was_lost() {
    let whole = closed(300);
    let names = checkpoints(&whole);
    let kinds = |diagnosis: &Diagnosis| -> Vec<Kind> {
        diagnosis.findings.iter().map(|finding| finding.kind).collect()
    };
    // A snapshot that makes no sense, one of a later version.
    for later in [false, true] {
        let disk = whole.survive();
        let mut bytes = read(&disk, &names[1]);
        bytes.truncate(48 + 20);
        bytes[40..48].copy_from_slice(&20u64.to_le_bytes());
        bytes[48 + 7] = u8::from(later);
        let len = bytes.len();
        resum(&mut bytes, len);
        write(&disk, &names[1], &bytes);
        let diagnosis = examine(&disk);
        assert_eq!(diagnosis.is_mendable(), !later, "{:#?}", diagnosis.findings);
        let kind = if later { Kind::LaterVersion } else { Kind::Checkpoint };
        assert!(kinds(&diagnosis).contains(&kind), "{:#?}", diagnosis.findings);
    }
    // A damaged one whose name is behind the end.
    let disk = whole.survive();
    let ahead = "checkpoint-00000000000000009000";
    disk.create(ahead).expect("creates");
    write(&disk, ahead, b"nothing");
    assert!(matches!(open(&disk).err(), Some(OpenError::Ahead { .. })));
    disk.release_lock();
    let diagnosis = examine(&disk);
    assert!(kinds(&diagnosis).contains(&Kind::CheckpointAhead), "{:#?}", diagnosis.findings);
    assert!(diagnosis.is_mendable(), "{:?}", diagnosis.streams);
    diagnosis.apply(&disk, "now").expect("applies");
    assert!(open(&disk).expect("opens").report.last >= nuthatch_log::Lsn(9000));
    // Nothing but an identity and checkpoints.
    let disk = whole.survive();
    for name in segments(&disk).iter().map(String::as_str).chain(["catalog"]) {
        disk.remove(name).expect("removes");
    }
    let identity = read(&disk, IDENTITY);
    let diagnosis = examine(&disk);
    assert!(kinds(&diagnosis).contains(&Kind::CatalogMissing), "{:#?}", diagnosis.findings);
    assert!(diagnosis.is_mendable(), "{:?}", diagnosis.streams);
    diagnosis.apply(&disk, "now").expect("applies");
    drop(open(&disk).expect("opens"));
    assert_eq!(read(&disk, IDENTITY), identity);
}

/// Any file of a log without a catalog says that it was lost: no other log begins there.
#[test]
fn a_directory_that_lost_its_catalog_is_refused() {
    let whole = closed(300);
    let checkpoint = checkpoints(&whole).pop().expect("a checkpoint");
    for left in [IDENTITY, &checkpoint, "tier", &newest(&whole)] {
        let disk = whole.survive();
        for name in disk.list("").expect("lists") {
            disk.remove(&name).expect("removes");
        }
        disk.create(left).expect("creates");
        let bytes = if left == "tier" { b"moved".to_vec() } else { read(&whole, left) };
        write(&disk, left, &bytes);
        let before = content(&disk);
        let error = open(&disk).err().unwrap_or_else(|| panic!("{left} alone: it opens"));
        assert!(matches!(error, OpenError::Catalog { .. }) && error.is_damage(), "{left}: {error}");
        disk.release_lock();
        assert!(content(&disk) == before, "{left}: files were changed");
    }
}

/// A checkpoint that cannot be used is not deleted, and the log opens without it.
#[test]
fn an_unusable_checkpoint_is_kept() {
    let whole = closed(300);
    for name in checkpoints(&whole) {
        let disk = whole.survive();
        let damaged = {
            disk.flip_bit(&name, 60, 1);
            read(&disk, &name)
        };
        let rig = open(&disk).expect("opens");
        let used = checkpoints(&whole).pop() != Some(name.clone());
        assert_eq!(
            (rig.report.unusable, rig.handle.stats().unusable_files),
            if used { (0, 0) } else { (1, 1) }
        );
        assert_eq!(rig.core.machine().streams[&nuthatch_log::StreamId(1)].last, 300);
        drop(rig);
        let now = if used { name } else { format!("torn/{name}") };
        assert_eq!(read(&disk, &now), damaged);
    }
}

/// A snapshot that does not decode although its sums are right, and the one before it is used; one
/// of a later version is refused.
#[test]
fn a_snapshot_that_makes_no_sense_is_kept_and_one_of_a_later_version_is_refused() {
    let whole = closed(300);
    let all = checkpoints(&whole);
    assert_eq!(all.len(), 2);
    let spoil = |disk: &MemDisk, name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = read(disk, name);
        change(&mut bytes);
        let snapshot = (bytes.len() - 48) as u64;
        bytes[40..48].copy_from_slice(&snapshot.to_le_bytes());
        let len = bytes.len();
        resum(&mut bytes, len);
        write(disk, name, &bytes);
        bytes
    };
    for spoilt in [&all[1..], &all[..]] {
        let disk = whole.survive();
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 3);
        let kept: Vec<_> = spoilt.iter().map(|name| spoil(&disk, name, &cut)).collect();
        let rig = open(&disk).expect("opens");
        assert_eq!(rig.report.unusable, spoilt.len() as u64);
        assert_eq!(rig.report.checkpoint.is_some(), spoilt.len() == 1);
        assert_eq!(rig.core.machine().streams[&nuthatch_log::StreamId(1)].last, 300);
        drop(rig);
        for (name, bytes) in spoilt.iter().zip(kept) {
            assert_eq!(read(&disk, &format!("torn/{name}")), bytes);
        }
    }
    spoil(&whole, &all[1], &|bytes| bytes[48 + 7] = 1);
    let before = content(&whole);
    let error = open(&whole).err().expect("refused");
    assert!(matches!(error, OpenError::Unknown { .. }), "{error}");
    whole.release_lock();
    assert!(content(&whole) == before);
}

/// A footer that cannot be used is kept before another one is written over it.
#[test]
fn an_unusable_footer_is_kept() {
    let whole = closed(60);
    for name in segments(&whole) {
        let disk = whole.survive();
        let intact = read(&disk, &name);
        disk.flip_bit(&name, intact.len() - 30, 1);
        let rig = open(&disk).expect("opens");
        assert_eq!(rig.report.unusable, 1);
        drop(rig);
        assert_eq!(read(&disk, &name), intact, "it is made anew");
        let kept: Vec<_> = disk.list("torn").expect("lists");
        assert!(matches!(&kept[..], [one] if *one == format!("{name}-footer")), "{kept:?}");
    }
}

#[test]
fn a_directory_keeps_its_identity() {
    let disk = closed(3);
    let first = read(&disk, IDENTITY);
    assert_eq!(first.len(), 64);
    assert_eq!(u64_at(&first, 32), u64_at(&read(&disk, "catalog"), 16), "the log's id");
    drop(open(&disk).expect("opens"));
    assert_eq!(read(&disk, IDENTITY), first);
    // Another log's, a damaged one, a later one.
    let mut foreign = first.clone();
    foreign[32] ^= 1;
    resum(&mut foreign, 64);
    let mut damaged = first.clone();
    damaged[45] ^= 1;
    let mut later = first.clone();
    later[8] = 2;
    resum(&mut later, 64);
    for (bytes, is_later) in [(foreign, false), (damaged, false), (later, true)] {
        let disk = disk.survive();
        write(&disk, IDENTITY, &bytes);
        let before = content(&disk);
        let error = open(&disk).err().expect("refused");
        assert_eq!(matches!(error, OpenError::Unknown { .. }), is_later, "{error}");
        assert_eq!(matches!(error, OpenError::Identity { .. }), !is_later, "{error}");
        assert_eq!(error.is_damage(), !is_later, "the doctor takes away what is wrong: {error}");
        disk.release_lock();
        assert!(content(&disk) == before);
    }
    // A directory without one (of 0.1.0) gets it.
    disk.remove(IDENTITY).expect("removes");
    drop(open(&disk).expect("opens"));
    assert_eq!(read(&disk, IDENTITY).len(), 64);
}

/// A sync that fails leaves bytes in a cache that are not on the medium, and the next sync succeeds. A
/// start that believed them would answer reads with, and number on from, what a power cut takes away.
#[test]
fn what_only_a_cache_shows_after_a_failed_sync_is_not_believed() {
    let whole = MemDisk::default();
    let work = |disk: &MemDisk| {
        let mut acked = 0;
        let Ok(mut rig) = open(disk) else { return acked };
        rig.create(1, 0);
        for n in 1..=30 {
            if rig.publish(1, &[n as u8; 200]) == Outcome::Acked(n) {
                acked = n;
            }
        }
        acked
    };
    work(&whole);
    for at in 1..whole.operations() {
        let disk = MemDisk::default();
        disk.inject(Fault::SyncError(at));
        let acked = work(&disk);
        let disk = disk.survive();
        let mut rig = open(&disk).unwrap_or_else(|error| panic!("sync {at}: {error}"));
        let shown =
            rig.core.machine().streams.get(&nuthatch_log::StreamId(1)).map_or(0, |s| s.last);
        assert!(shown >= acked, "sync {at}");
        if !rig.core.machine().streams.is_empty() {
            assert_eq!(rig.publish(1, b"next"), Outcome::Acked(shown + 1), "sync {at}");
        }
        drop(rig);
        let mut after = open(&disk.crash(at)).unwrap_or_else(|error| panic!("sync {at}: {error}"));
        for seq in 1..=shown {
            let body = Outcome::Body(vec![seq as u8; 200]);
            assert_eq!(after.read(1, seq), body, "sync {at}: message {seq} of {shown}");
        }
    }
}
