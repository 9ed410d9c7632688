use super::*;
use nuthatch_log::env::{Fault, MemDisk};
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
    remove_files(&disk, &journal.forget_to(Lsn(3))).expect("removed");
    assert_eq!(files(), 2);
    assert!(journal.payload(&all[2].0).is_err(), "what is trimmed is not given");
    assert_eq!(&journal.payload(&all[3].0).expect("here")[..], &all[3].1[..]);
    let (journal, slots) = Journal::open(Arc::new(disk.clone()), Lsn(3)).expect("opens");
    assert_eq!(slots, slots_of(&all[3..]));
    assert_eq!(journal.trim_point(0), Lsn(4));
    assert_eq!(Journal::first_file(&disk).expect("listed"), Some(1));
    let mut journal = journal;
    journal.cut(Lsn(4)).expect("cut");
    remove_files(&disk, &journal.forget_to(Lsn(4))).expect("removed");
    assert_eq!(files(), 1);
    let again = Entry::new(Lsn(5), Epoch(2), all[3].0.sum, Lsn(4), WallTime(0), all[4].0.body);
    journal.append(&again, &all[4].1).expect("written");
    journal.sync().expect("synced");
    let (journal, slots) = Journal::open(Arc::new(disk.clone()), Lsn(4)).expect("opens");
    assert_eq!(slots, [Slot::Bytes(again)]);
    assert_eq!(&journal.payload(&again).expect("here")[..], &all[4].1[..]);
}

/// A file that was made beside is gone on with, and one that came too late is in nobody's way.
#[test]
fn a_file_that_was_made_for_later_is_written_to_next() {
    let all = entries(&[33 << 20; 7]);
    let disk = MemDisk::default();
    let mut journal = journal_of(&disk, &all[..1]);
    let number = journal.wants_spare().expect("half a file is written");
    assert_eq!((number, journal.wants_spare()), (1, None), "it is asked for once");
    let file = make_file(&disk, number, FILE_BYTES).expect("made");
    journal.give_spare(number, file);
    for (entry, payload) in &all[1..3] {
        journal.append(entry, payload).expect("written");
    }
    assert_eq!(journal.written(), Some(1));
    // While one is being made the open file grows on, but not without end.
    let late = journal.wants_spare().expect("half a file is written");
    for (entry, payload) in &all[3..] {
        journal.append(entry, payload).expect("written");
    }
    assert_eq!((late, journal.written()), (2, Some(3)));
    journal.sync().expect("synced");
    journal.give_spare(late, make_file(&disk, late, FILE_BYTES).expect("made"));
    assert_eq!(reopened(&disk).1, slots_of(&all));
    remove_files(&disk, &journal.forget_to(Lsn(6))).expect("removed");
    // It goes with the next one, which tells that nothing of it is needed.
    assert_eq!(disk.list(OPS_DIR).expect("listed"), ["00000002", "00000003"]);
}

/// What an ended file has is durable when what follows is said to be.
#[test]
fn a_sync_takes_in_the_file_before() {
    let all = entries(&[33 << 20; 3]);
    let disk = MemDisk::default();
    let mut journal = journal_of(&disk, &[]);
    for (entry, payload) in &all {
        journal.append(entry, payload).expect("written");
    }
    let to_sync = journal.to_sync();
    assert_eq!(to_sync.files.len(), 2);
    journal.gate().sync(&to_sync).expect("synced");
    assert_eq!(journal.to_sync().files.len(), 1);
    assert_eq!(reopened(&disk.crash(1)).1, slots_of(&all));
}

/// A sector that cannot be read is damage, behind which what can be read counts.
#[test]
fn a_journal_with_a_sector_that_cannot_be_read_is_opened() {
    let all = entries(&[10, 5000, 300_000, 4000]);
    let disk = MemDisk::default();
    journal_of(&disk, &all);
    let before = disk.reads();
    drop(reopened(&disk));
    let reads = disk.reads() - before;
    let mut damaged = 0;
    for number in 1..reads {
        // It is read twice.
        let at = disk.reads() + number;
        disk.inject(Fault::ReadError(at));
        disk.inject(Fault::ReadError(at + 1));
        let (mut journal, slots) = reopened(&disk);
        disk.heal();
        let good = slots.iter().filter(|slot| matches!(slot, Slot::Bytes(_))).count();
        damaged += usize::from(good < all.len());
        if slots.last() != Some(&Slot::Garbage) {
            continue;
        }
        // The end is cut, and what could not be read stays on the disk.
        let last = Lsn(slots
            .iter()
            .rposition(|slot| *slot != Slot::Garbage)
            .map_or(0, |at| at as u64 + 1));
        let aside = disk.create("aside").expect("made");
        journal.copy_behind(last, &*aside).expect("copied");
        let kept = disk.file_len("ops/00000000");
        journal.cut(last).expect("cut");
        assert!(!journal.unreadable);
        journal.sync().expect("synced");
        assert!(disk.file_len("ops/00000000") >= kept, "read {number}");
        break;
    }
    assert!(damaged > 0);
}
