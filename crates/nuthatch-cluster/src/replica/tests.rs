use super::*;
use crate::operation::begin_payload;
use nuthatch_log::env::{Entropy as _, Fault, MemDisk, SeededEntropy};
use nuthatch_quorum::types::Epoch;

fn payload(serial: u64, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut to = begin_payload(Epoch(7), serial);
    for operation in operations {
        operation.encode(&mut to);
    }
    to.0
}

/// A history of creations, writes, cuts, renames and removals that makes sense.
fn history(seed: u64) -> Vec<Vec<u8>> {
    let mut random = SeededEntropy::new(seed);
    let mut names: Vec<(String, FileId)> = vec![];
    let mut all = vec![];
    for serial in 1..60u64 {
        let pick = (random.next() % names.len().max(1) as u64) as usize;
        let bytes = vec![serial as u8; 1 + (random.next() % 3000) as usize];
        let operation = match random.next() % 8 {
            _ if names.is_empty() => 0,
            kind => kind,
        };
        let name = format!("f{}", random.next() % 6);
        let encoded = match operation {
            0 | 1 => {
                names.retain(|(known, _)| *known != name);
                names.push((name.clone(), FileId(serial)));
                payload(serial, &[Operation::Create { path: name, file: FileId(serial) }])
            }
            2 => {
                let (path, _) = names.remove(pick);
                payload(serial, &[Operation::Remove { path }])
            }
            3 => {
                let (from, file) = names.remove(pick);
                names.retain(|(known, _)| *known != name);
                names.push((name.clone(), file));
                payload(serial, &[Operation::Rename { from, to: name }])
            }
            4 => {
                let len = random.next() % 4000;
                payload(serial, &[Operation::SetLen { file: names[pick].1, len }])
            }
            _ => {
                let (file, at) = (names[pick].1, random.next() % 5000);
                payload(serial, &[Operation::Write { file, at, bytes: &bytes }])
            }
        };
        all.push(encoded);
    }
    all
}

/// Names and contents.
fn content(replica: &Replica) -> BTreeMap<String, Vec<u8>> {
    let read = |(name, file): (&String, FileId)| {
        let file = replica.file(file).expect("open");
        let len = usize::try_from(file.len().expect("a length")).expect("small");
        (name.clone(), read_exact_at(&**file, 0, len).expect("reads"))
    };
    replica.names().map(read).collect()
}

fn apply_all(replica: &mut Replica, history: &[Vec<u8>]) {
    for (number, payload) in history.iter().enumerate() {
        replica.apply(Lsn(number as u64 + 1), payload).expect("applied");
    }
}

fn open(disk: &MemDisk) -> Replica {
    disk.create_dir("tmp").expect("made");
    Replica::open(Arc::new(disk.clone())).expect("opens")
}

/// After a power cut at any place, with any part of what was not durable, applying the journal again
/// makes the same directory.
#[test]
fn applying_again_after_a_power_cut_makes_the_same_directory() {
    for seed in 0..200 {
        let history = history(seed);
        let mut wanted = open(&MemDisk::default());
        apply_all(&mut wanted, &history);
        let mut random = SeededEntropy::new(seed ^ 0xABC);
        let (marked, cut) = (random.next() as usize % 50, random.next() as usize % 59);
        let disk = MemDisk::default();
        let mut replica = open(&disk);
        disk.sync_dir("").expect("synced");
        for (number, payload) in history[..cut.max(marked)].iter().enumerate() {
            if number == marked {
                replica.mark().expect("marked");
            }
            replica.apply(Lsn(number as u64 + 1), payload).expect("applied");
        }
        let disk = disk.crash(seed);
        let mut again = open(&disk);
        let is_marked = cut > marked;
        assert_eq!(again.applied().0 as usize, if is_marked { marked } else { 0 }, "seed {seed}");
        apply_all(&mut again, &history);
        assert_eq!(content(&again), content(&wanted), "seed {seed}");
        again.mark().expect("marked");
        assert_eq!(content(&open(&disk)), content(&wanted), "seed {seed}");
    }
}

/// A cut that was applied behind a mark is durable by chance, and the file then shorter than it was marked. Taken for
/// the loss of a file's end that cost the whole directory, where entries before the mark were trimmed: on all nodes at
/// once, when all lost their power.
#[test]
fn a_file_that_was_cut_behind_a_mark_is_not_lost() {
    let (file, bytes) = (FileId(1), [7; 100]);
    let made = Operation::Create { path: "a".to_owned(), file };
    let made = payload(1, &[made, Operation::Write { file, at: 0, bytes: &bytes }]);
    let cut = |len| payload(2, &[Operation::SetLen { file, len }]);
    let disk = MemDisk::default();
    let mut replica = open(&disk);
    disk.sync_dir("").expect("synced");
    replica.apply(Lsn(1), &made).expect("applied");
    replica.mark().expect("marked");
    replica.apply(Lsn(2), &cut(60)).expect("applied");
    let under_way = replica.begin_mark().expect("begins");
    replica.apply(Lsn(3), &cut(20)).expect("applied");
    let lengths = |marked: Lsn| {
        let after = (0..32).map(|seed| {
            let crashed = disk.crash(seed);
            let found = crashed.file_len("files/0000000000000001").expect("it is there");
            assert!(is_durable_to(&crashed, marked).expect("reads"), "seed {seed}");
            let mut again = open(&crashed);
            assert_eq!(again.applied(), marked);
            for (lsn, len) in [(2, 60), (3, 20)] {
                again.apply(Lsn(lsn), &cut(len)).expect("applied");
            }
            assert_eq!(content(&again)["a"], bytes[..20]);
            found
        });
        after.collect::<BTreeSet<usize>>()
    };
    assert!(lengths(Lsn(1)).len() > 1, "it is cut, or not");
    under_way.make_durable(&disk).expect("durable");
    lengths(Lsn(2));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let nameless = payload(1, &[Operation::Remove { path: "nobody".to_owned() }]);
    let future = payload(1, &[Operation::Write { file: FileId(99), at: 0, bytes: b"x" }]);
    for bad in [nameless, future, vec![1, 2, 3]] {
        let mut replica = open(&MemDisk::default());
        assert!(replica.apply(Lsn(1), &bad).is_err());
        assert_eq!(replica.applied(), Lsn(0));
    }
}

/// Entries of several changes each, as the owner of a log makes them.
fn in_groups(history: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let header = begin_payload(Epoch(7), 0).0.len();
    let group = |those: &[Vec<u8>]| {
        let mut all = begin_payload(Epoch(7), 0);
        those.iter().for_each(|payload| all.0.extend_from_slice(&payload[header..]));
        all.0
    };
    history.chunks(5).map(group).collect()
}

/// An entry of which a part was applied when the disk had no room, or failed, is not applied on top of that part:
/// the directory says so until it is opened anew, and then is what the entries make.
#[test]
fn an_entry_that_was_applied_in_part_is_applied_to_what_was_marked() {
    let mut failed = 0;
    for seed in 0..12 {
        let history = in_groups(&history(seed));
        let mut wanted = open(&MemDisk::default());
        apply_all(&mut wanted, &history);
        let kinds = [Fault::WriteError, Fault::NoSpace];
        for (at, fault) in (1..40).flat_map(|at| kinds.map(|kind| (at, kind))) {
            let disk = MemDisk::default();
            let mut replica = open(&disk);
            replica.mark().expect("marked");
            disk.inject(fault(disk.operations() + at));
            let mut entries = (1..).map(Lsn).zip(&history);
            let broken = entries.find(|(lsn, payload)| replica.apply(*lsn, payload).is_err());
            disk.heal();
            if let Some((lsn, payload)) = broken {
                failed += 1;
                assert!(
                    replica.has_failed() && replica.apply(lsn, payload).is_err(),
                    "seed {seed}"
                );
                assert!(replica.mark().is_err() && replica.snapshot().is_err(), "seed {seed}");
            }
            let mut again = open(&disk);
            apply_all(&mut again, &history);
            again.mark().expect("marked");
            let again = open(&disk.crash(seed));
            assert_eq!(content(&again), content(&wanted), "seed {seed} operation {at}");
        }
    }
    assert!(failed > 300, "faults hit something: {failed}");
}
