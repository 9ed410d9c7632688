//! Whatever a later version wrote is refused by a start, named, and left as it is; the doctor calls
//! it the same. Damage is not taken for it.

mod common;

use common::bytes::{
    checkpoints, content, footer_at, frames, put_u32, read, rechain, resum, resum_footer, segments,
    u32_at, write,
};
use common::{Outcome, Rig, tiny};
use nuthatch_log::env::{MemDisk, SeededEntropy};
use nuthatch_log::{DamageKind, Inspection, LogOptions, OpenError};
use std::sync::Arc;
use std::time::Duration;

/// Nothing is compacted: whatever a start needs of a compacted segment is in its footer.
fn options() -> LogOptions {
    LogOptions { compact_below_percent: 0, ..tiny() }
}

/// A log of a few segments with checkpoints, closed or not.
fn furnished(clean: bool) -> MemDisk {
    let disk = MemDisk::default();
    let mut rig = Rig::open(options(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    rig.create(2, 0);
    for n in 0..90u8 {
        assert!(matches!(rig.publish(1, &[n; 300]), Outcome::Acked(_)));
        rig.publish(2, &[n; 100]);
        rig.advance(Duration::from_millis(60));
    }
    if clean {
        rig.core.close().expect("closes");
    }
    drop(rig);
    let disk = disk.survive();
    assert!(segments(&disk).len() > 2 && !checkpoints(&disk).is_empty());
    disk
}

fn without_checkpoints(disk: &MemDisk) {
    use nuthatch_log::Disk;
    checkpoints(disk).iter().for_each(|name| disk.remove(name).expect("removes"));
    disk.sync_dir("").expect("syncs");
}

/// A start refuses the disk as one of a later version and changes nothing on it.
fn refused(disk: &MemDisk, what: &str) {
    let before = content(disk);
    match Rig::open(options(), Arc::new(disk.clone())) {
        Err(error @ OpenError::Unknown { .. }) => {
            let text = error.to_string();
            assert!(text.contains("later version"), "{what}: {text}");
        }
        Err(error) => panic!("{what}: refused for another reason: {error}"),
        Ok(rig) => panic!("{what}: it opened with {:?}", rig.report),
    }
    disk.release_lock();
    assert!(content(disk) == before, "{what}: files were changed");
    assert!(!Inspection::of(disk).is_ok_and(|found| found.is_sound()), "{what}: called sound");
}

/// Gives a record in the middle of a segment another first byte (its kind) or second (its flags).
fn change_record(disk: &MemDisk, segment: &str, at: usize, byte: u8) {
    let mut bytes = read(disk, segment);
    let mut all = frames(&bytes);
    all.retain(|(_, len)| *len > 48);
    let (frame, _) = all[all.len() / 2];
    bytes[frame + 48 + at] = byte;
    rechain(&mut bytes);
    write(disk, segment, &bytes);
}

#[test]
fn a_record_of_a_later_kind_is_refused_in_any_segment() {
    for clean in [true, false] {
        let whole = furnished(clean);
        for segment in segments(&whole) {
            for (at, byte) in [(0, 18), (0, 200), (0, 255), (1, 1)] {
                let disk = whole.crash(1);
                without_checkpoints(&disk);
                change_record(&disk, &segment, at, byte);
                refused(&disk, &format!("{segment}: byte {at} of a record is {byte}"));
            }
        }
    }
}

/// Sets the byte of the first record's content that tells its version to the machine.
fn change_body(disk: &MemDisk, segment: &str) {
    let mut bytes = read(disk, segment);
    let (frame, _) = frames(&bytes)[0];
    bytes[frame + 48 + 32 + 7] = 1;
    rechain(&mut bytes);
    write(disk, segment, &bytes);
}

/// Of a record whose kind is known and whose content is not only the machine can tell: it is asked
/// before a torn tail is sealed and before the catalog is written.
#[test]
fn content_of_a_later_version_is_refused_before_anything_is_changed() {
    for clean in [true, false] {
        let disk = furnished(clean).crash(1);
        without_checkpoints(&disk);
        let first = segments(&disk)[0].clone();
        change_body(&disk, &first);
        if !clean {
            let last = segments(&disk).pop().expect("a segment");
            let mut bytes = read(&disk, &last);
            let (at, len) = *frames(&bytes).last().expect("a frame");
            bytes[at + len.next_multiple_of(512)..][..100].fill(7);
            write(&disk, &last, &bytes);
        }
        let before = content(&disk);
        let error = Rig::open(options(), Arc::new(disk.clone())).err().expect("refused");
        assert!(matches!(&error, OpenError::Unknown { file, .. } if *file == first), "{error}");
        disk.release_lock();
        assert!(content(&disk) == before, "files were changed");
    }
}

#[test]
fn a_frame_or_a_segment_of_a_later_version_is_refused() {
    for clean in [true, false] {
        let whole = furnished(clean);
        for segment in segments(&whole) {
            // A flag of a frame, the version of the segment (one that has a key, without it), its flags,
            // a key in one that has none, what is zero today.
            for (at, byte, in_frame) in [
                (16, 8, true),
                (8, 9, false),
                (8, 3, false),
                (48, 2, false),
                (52, 1, false),
                (56, 1, false),
            ] {
                let disk = whole.crash(1);
                without_checkpoints(&disk);
                let mut bytes = read(&disk, &segment);
                if in_frame {
                    let all = frames(&bytes);
                    bytes[all[all.len() / 2].0 + at] |= byte;
                } else {
                    bytes[at] = byte;
                    resum(&mut bytes, 64);
                }
                rechain(&mut bytes);
                write(&disk, &segment, &bytes);
                refused(&disk, &format!("{segment}: byte {at} (in a frame: {in_frame})"));
            }
        }
    }
}

#[test]
fn a_footer_of_a_later_version_is_refused() {
    let whole = furnished(true);
    for segment in segments(&whole) {
        let disk = whole.crash(1);
        let mut bytes = read(&disk, &segment);
        let at = footer_at(&bytes);
        put_u32(&mut bytes, at + 8, 3);
        resum_footer(&mut bytes, at);
        write(&disk, &segment, &bytes);
        refused(&disk, &segment);
    }
}

#[test]
fn a_checkpoint_of_a_later_version_is_refused() {
    for clean in [true, false] {
        let whole = furnished(clean);
        for name in checkpoints(&whole) {
            let disk = whole.crash(1);
            let mut bytes = read(&disk, &name);
            put_u32(&mut bytes, 8, 3);
            let len = bytes.len();
            resum(&mut bytes, len);
            write(&disk, &name, &bytes);
            refused(&disk, &name);
        }
    }
}

/// Records whose sizes make no sense, with all sums right, are of no version: damage, with its place.
#[test]
fn records_of_no_version_are_damage() {
    let whole = furnished(true);
    let disk = whole.crash(1);
    without_checkpoints(&disk);
    let segment = segments(&disk)[0].clone();
    change_record(&disk, &segment, 8, 1);
    let before = content(&disk);
    let error = Rig::open(options(), Arc::new(disk.clone())).err().expect("refused");
    let damaged = |kind: &DamageKind| *kind == DamageKind::Record;
    assert!(
        matches!(&error, OpenError::Damaged { segment: at, kind, .. } if *at == segment && damaged(kind)),
        "{error}"
    );
    disk.release_lock();
    assert!(content(&disk) == before, "files were changed");
}

/// Damage that looks like a later version, by chance, is still damage: the checksum does not fit.
#[test]
fn a_version_without_its_checksum_is_damage() {
    let whole = furnished(true);
    let mut chance = SeededEntropy::new(1);
    for _ in 0..50 {
        let disk = whole.crash(1);
        let names = segments(&disk);
        let segment = &names[chance.below(names.len() as u64) as usize];
        let byte = 8 + chance.below(4) as usize;
        disk.flip_bit(segment, byte, chance.below(8) as u8);
        let error = Rig::open(options(), Arc::new(disk.clone())).err().expect("refused");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    assert!(u32_at(&read(&whole, &segments(&whole)[0]), 8) >= 1);
}
