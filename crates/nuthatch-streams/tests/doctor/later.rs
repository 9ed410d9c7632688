//! Files, records and snapshots of a later version: refused, named, and nothing is touched.

use super::rig::{History, PLAIN, Rig};
use super::{content, examine, furnished, len, segments};
use nuthatch_log::doctor::{Finding, Kind, Seen, walk_segment};
use nuthatch_log::env::{MemDisk, read_exact_at};
use nuthatch_log::{Disk, RecordKind};

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0x82F6_3B78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// Gives a file's header, `sum_len` bytes long for its checksum, another version.
fn make_newer(disk: &MemDisk, file: &str, sum_len: usize) {
    let handle = disk.open(file).expect("there");
    let mut head = read_exact_at(&*handle, 0, sum_len).expect("reads");
    head[8..12].copy_from_slice(&9u32.to_le_bytes());
    head[12..16].fill(0);
    let sum = crc(&head);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
    handle.write_at(&head, 0).expect("writes");
}

/// Files of a later version are named, and nothing is touched.
#[test]
fn files_of_a_later_version_block_mending() {
    for file in ["catalog", "segment"] {
        let (disk, _) = furnished(1, true);
        let (name, sum_len) = match file {
            "catalog" => ("catalog".to_owned(), len(&disk, "catalog") as usize),
            _ => (segments(&disk)[0].clone(), 64),
        };
        make_newer(&disk, &name, sum_len);
        let diagnosis = examine(&disk);
        let is = |f: &Finding| f.kind == Kind::LaterVersion && f.file == name;
        assert!(diagnosis.findings.iter().any(is), "{:#?}", diagnosis.findings);
        assert!(!diagnosis.is_mendable());
        assert!(Rig::open(&disk, 1).is_err());
    }
}

/// Bytes of a frame's header.
const FRAME_HEADER: usize = 48;

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Sets the sums of all frames of a segment right.
fn rechain(segment: &mut [u8]) {
    let (salt, block) = (number_at(segment, 40), number_at(segment, 44) as usize);
    let (mut before, mut at) = (number_at(segment, 12), block);
    while at + FRAME_HEADER <= segment.len() && number_at(segment, at + 12) == salt {
        let end = at + number_at(segment, at) as usize;
        let body = crc(&segment[at + FRAME_HEADER..end]);
        put(segment, at + 8, body);
        put(segment, at + 40, before);
        put(segment, at + 4, 0);
        before = crc(&segment[at..at + FRAME_HEADER]);
        put(segment, at + 4, before);
        at = end.next_multiple_of(block);
    }
}

/// The content of the record that created the stream gets a later version, with all sums right.
fn make_creation_newer(disk: &MemDisk, file: &str) {
    let mut body = Vec::new();
    let _ = walk_segment(disk, file, &mut |seen| {
        if let Seen::Record(_, record) = seen
            && record.kind == RecordKind::StreamCreate
        {
            body = record.body.to_vec();
        }
        Ok(())
    });
    let handle = disk.open(file).expect("there");
    let all = len(disk, file) as usize;
    let mut bytes = read_exact_at(&*handle, 0, all).expect("reads");
    let at = bytes.windows(body.len()).position(|window| window == body).expect("its body");
    bytes[at] = 9;
    rechain(&mut bytes);
    handle.write_at(&bytes, 0).expect("writes");
}

/// The snapshot in a checkpoint gets a later version, with its sum right.
fn make_snapshot_newer(disk: &MemDisk, file: &str) {
    let handle = disk.open(file).expect("there");
    let all = len(disk, file) as usize;
    let mut bytes = read_exact_at(&*handle, 0, all).expect("reads");
    bytes[FRAME_HEADER] = 9;
    put(&mut bytes, 12, 0);
    let sum = crc(&bytes);
    put(&mut bytes, 12, sum);
    handle.write_at(&bytes, 0).expect("writes");
}

/// What only the engine can tell to be of a later version: a start refuses it, names the file and has
/// changed nothing, a torn tail included; the doctor mends nothing.
#[test]
fn content_of_a_later_version_is_refused_and_nothing_is_changed() {
    for in_checkpoint in [false, true] {
        let disk = MemDisk::default();
        let mut history = History::new(4);
        let mut rig = Rig::open(&disk, 2).expect("opens");
        rig.create(PLAIN);
        for _ in 0..5 {
            history.publish_to(&mut rig, PLAIN);
        }
        if in_checkpoint {
            rig.core.close().expect("closes");
        }
        drop(rig);
        disk.release_lock();
        let is_checkpoint = |name: &String| name.starts_with("checkpoint-");
        let named = if in_checkpoint {
            let name = disk.list("").expect("lists").into_iter().find(is_checkpoint);
            let name = name.expect("a checkpoint");
            make_snapshot_newer(&disk, &name);
            name
        } else {
            let name = segments(&disk)[0].clone();
            make_creation_newer(&disk, &name);
            name
        };
        let before = content(&disk);
        let error = Rig::open(&disk, 1).err().expect("is refused").to_string();
        assert!(error.contains(&named) && error.contains("later version"), "{error}");
        disk.release_lock();
        assert_eq!(content(&disk), before, "the start changed something");
        let diagnosis = examine(&disk);
        assert!(!diagnosis.is_mendable(), "{diagnosis:#?}");
        let is = |f: &Finding| f.kind == Kind::LaterVersion && f.file == named;
        let refused = diagnosis.streams.as_ref().is_err_and(|why| *why == error);
        assert!(diagnosis.findings.iter().any(is) || refused, "{diagnosis:#?}");
    }
}
