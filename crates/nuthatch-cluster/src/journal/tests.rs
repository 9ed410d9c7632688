use super::*;
use nuthatch_log::env::MemDisk;
use nuthatch_quorum::entry::{Body, Chain};
use nuthatch_quorum::types::{Epoch, Sum, WallTime};

/// Entries behind each other, each with a payload of so many bytes.
fn entries(sizes: &[usize]) -> Vec<(Entry, Vec<u8>)> {
    let (mut prev, mut all) = (Sum(0), vec![]);
    for (number, size) in sizes.iter().enumerate() {
        let payload = vec![number as u8 + 1; *size];
        let len = payload.len() as u32;
        let body = Body::Frame { payload: payload_hash(&payload), len };
        let entry = Entry::new(Lsn(number as u64 + 1), Epoch(1), prev, Lsn(0), WallTime(0), body);
        prev = entry.sum;
        all.push((entry, payload));
    }
    all
}

fn journal_of(disk: &MemDisk, all: &[(Entry, Vec<u8>)]) -> Journal {
    disk.create_dir(OPS_DIR).expect("made");
    disk.sync_dir("").expect("synced");
    let (mut journal, slots) = Journal::open(Arc::new(disk.clone()), Lsn(0)).expect("opens");
    assert!(slots.is_empty());
    for (entry, payload) in all {
        journal.append(entry, payload).expect("written");
    }
    journal.sync().expect("synced");
    journal
}

fn reopened(disk: &MemDisk) -> (Journal, Vec<Slot>) {
    Journal::open(Arc::new(disk.clone()), Lsn(0)).expect("opens")
}

fn slots_of(all: &[(Entry, Vec<u8>)]) -> Vec<Slot> {
    all.iter().map(|(entry, _)| Slot::Bytes(*entry)).collect()
}

#[test]
fn what_was_synced_is_there_after_a_power_cut() {
    let all = entries(&[10, 0, 5000, 300_000, 1, 4000]);
    for seed in 0..20 {
        let disk = MemDisk::default();
        let mut journal = journal_of(&disk, &all[..3]);
        for (entry, payload) in &all[3..] {
            journal.append(entry, payload).expect("written, and not synced");
        }
        let (journal, slots) = reopened(&disk.crash(seed));
        assert!(slots.starts_with(&slots_of(&all[..3])), "seed {seed}");
        for (number, slot) in slots.iter().enumerate() {
            let fits = matches!(slot, Slot::Garbage) || *slot == Slot::Bytes(all[number].0);
            assert!(fits, "seed {seed}: entry {}", number + 1);
        }
        for (entry, payload) in &all[..3] {
            assert_eq!(&journal.payload(entry).expect("here")[..], &payload[..]);
        }
    }
}

#[test]
fn damage_is_told_from_a_torn_tail() {
    let all = entries(&[100, 100, 100, 100]);
    let disk = MemDisk::default();
    journal_of(&disk, &all);
    // A byte of the second record's payload, and of the third one's header.
    disk.flip_bit("ops/00000000", 4096 + RECORD_HEADER + 7, 3);
    disk.flip_bit("ops/00000000", 2 * 4096 + 20, 3);
    let (journal, slots) = reopened(&disk);
    let [first, _, _, last] = slots_of(&all)[..] else { unreachable!("four") };
    assert_eq!(slots, [first, Slot::Garbage, Slot::Garbage, last]);
    assert!(!journal.torn, "a later record vouches for what is before it");
    assert!(journal.payload(&all[1].0).is_err() && journal.payload(&all[3].0).is_ok());
    disk.flip_bit("ops/00000000", 3 * 4096 + 20, 3);
    let (journal, slots) = reopened(&disk);
    assert_eq!(slots, [first, Slot::Garbage, Slot::Garbage], "nothing behind the first vouches");
    assert!(journal.torn);
}

#[test]
fn what_was_healed_is_read() {
    let all = entries(&[100, 200, 300]);
    let disk = MemDisk::default();
    journal_of(&disk, &all);
    disk.flip_bit("ops/00000000", 4096 + RECORD_HEADER, 0);
    let (mut journal, slots) = reopened(&disk);
    assert_eq!(slots[1], Slot::Garbage);
    journal.heal(&all[1].0, &all[1].1).expect("written");
    journal.sync().expect("synced");
    let (journal, slots) = reopened(&disk);
    assert_eq!(slots, slots_of(&all));
    assert_eq!(&journal.payload(&all[1].0).expect("here")[..], &all[1].1[..]);
}

#[test]
fn what_was_cut_stays_cut_and_is_kept_aside() {
    let all = entries(&[100, 200, 300, 400]);
    let disk = MemDisk::default();
    let mut journal = journal_of(&disk, &all);
    let aside = disk.create("aside").expect("made");
    journal.copy_behind(Lsn(1), &*aside).expect("copied");
    assert_eq!(aside.len().expect("a length"), 3 * 4096);
    journal.cut(Lsn(1)).expect("cut");
    let (mut other, payload) = (all[1].0, b"another second");
    other.body = Body::Frame { payload: payload_hash(payload), len: payload.len() as u32 };
    let other = Entry::new(other.lsn, Epoch(2), other.prev, Lsn(1), WallTime(0), other.body);
    journal.append(&other, payload).expect("written");
    journal.sync().expect("synced");
    let (journal, slots) = reopened(&disk);
    assert_eq!(slots, [Slot::Bytes(all[0].0), Slot::Bytes(other)]);
    assert_eq!(&journal.payload(&other).expect("here")[..], payload);
    let mut chain = Chain::default();
    chain.push(all[0].0);
    chain.push(other);
}

#[test]
fn a_torn_tail_is_cut_before_anything_is_written() {
    let all = entries(&[100, 20_000, 30]);
    let disk = MemDisk::default();
    journal_of(&disk, &all[..2]);
    disk.flip_bit("ops/00000000", 4096 + 9000, 0);
    disk.flip_bit("ops/00000000", 4096 + 20, 0);
    let (mut journal, slots) = reopened(&disk);
    assert_eq!(slots, [Slot::Bytes(all[0].0), Slot::Garbage]);
    let aside = disk.create("aside").expect("made");
    journal.copy_behind(Lsn(1), &*aside).expect("copied");
    assert!(aside.len().expect("a length") > 20_000, "what is cut is kept");
    journal.cut(Lsn(1)).expect("cut");
    journal.append(&all[1].0, &all[1].1).expect("written again");
    journal.sync().expect("synced");
    assert_eq!(reopened(&disk).1, slots_of(&all[..2]));
}

#[test]
fn a_journal_goes_over_several_files() {
    let all = entries(&[30 << 20, 30 << 20, 30 << 20, 10, 40 << 20, 10]);
    let disk = MemDisk::default();
    let journal = journal_of(&disk, &all);
    assert_eq!(journal.files.len(), 2);
    assert_eq!(reopened(&disk).1, slots_of(&all));
}

/// Whole files whose entries are all trimmed go, what was cut in them included, and the rest is read as before.
#[test]
fn trimmed_files_go_and_the_rest_is_read() {
    // Two of these fill a file.
    let all = entries(&[33 << 20; 5]);
    let disk = MemDisk::default();
    let mut journal = journal_of(&disk, &all);
    let files = || disk.list(OPS_DIR).expect("listed").len();
    assert_eq!((files(), journal.trim_point(0), journal.trim_point(1)), (3, Lsn(4), Lsn(2)));
    assert_eq!(journal.trim_point(9), Lsn(0));
    // Half a file is left as it is.
    journal.drop_to(Lsn(3)).expect("dropped");
    assert_eq!(files(), 2);
    assert!(journal.payload(&all[2].0).is_err(), "what is trimmed is not given");
    assert_eq!(&journal.payload(&all[3].0).expect("here")[..], &all[3].1[..]);
    let (journal, slots) = Journal::open(Arc::new(disk.clone()), Lsn(3)).expect("opens");
    assert_eq!(slots, slots_of(&all[3..]));
    assert_eq!(journal.trim_point(0), Lsn(4));
    assert_eq!(Journal::first_file(&disk).expect("listed"), Some(1));
    let mut journal = journal;
    journal.cut(Lsn(4)).expect("cut");
    journal.drop_to(Lsn(4)).expect("dropped");
    assert_eq!(files(), 1);
    let again = Entry::new(Lsn(5), Epoch(2), all[3].0.sum, Lsn(4), WallTime(0), all[4].0.body);
    journal.append(&again, &all[4].1).expect("written");
    journal.sync().expect("synced");
    let (journal, slots) = Journal::open(Arc::new(disk.clone()), Lsn(4)).expect("opens");
    assert_eq!(slots, [Slot::Bytes(again)]);
    assert_eq!(&journal.payload(&again).expect("here")[..], &all[4].1[..]);
}
