//! A directory whose log is trimmed, or replaced by what another node has made of it, with the power going at any
//! moment.

use super::*;
use crate::coding::payload_hash;
use crate::operation::{FileId, Operation, begin_payload};
use crate::replica::{Replica, file_name};
use nuthatch_log::env::{Fault, MemDisk};
use nuthatch_quorum::entry::{Base, Body, Chain};
use nuthatch_quorum::store::Identity;
use nuthatch_quorum::types::{BootCount, Position, Promise, Revision};
use nuthatch_quorum::types::{Epoch, Incarnation, NodeId, Sum, WallTime};

/// An entry of a log and its payload.
type Written = (Entry, Vec<u8>);

/// A log that writes its numbers to a file, each entry one.
fn history(count: u64) -> Vec<Written> {
    let mut all: Vec<Written> = vec![];
    for lsn in 1..=count {
        let mut to = begin_payload(Epoch(1), lsn);
        if lsn == 1 {
            Operation::Create { path: "a".to_owned(), file: FileId(1) }.encode(&mut to);
        }
        let bytes = lsn.to_le_bytes();
        Operation::Write { file: FileId(1), at: 8 * lsn, bytes: &bytes }.encode(&mut to);
        let prev = all.last().map_or(Sum(0), |(entry, _)| entry.sum);
        let len = to.0.len() as u32;
        let body = Body::Frame { payload: payload_hash(&to.0), len };
        let (lsn, commit) = (Lsn(lsn), Lsn(lsn - 1));
        all.push((Entry::new(lsn, Epoch(1), prev, commit, WallTime(0), body), to.0));
    }
    all
}

/// A disk in memory has all the bytes that a file sets aside.
const SMALL: Sizes = Sizes { file: 256 << 10, zero_ahead: 64 << 10, large_record: 32 << 10 };

fn opened(disk: &MemDisk) -> io::Result<(KeeperDir, Image)> {
    KeeperDir::open_with(Arc::new(disk.clone()), SMALL)
}

/// A directory with an identity and these entries.
fn keeping(all: &[Written]) -> MemDisk {
    let disk = MemDisk::default();
    let (mut dir, _) = opened(&disk).expect("opens");
    let identity = Identity {
        node: NodeId(1),
        incarnation: Incarnation(5),
        boots: BootCount(1),
        seen: Revision(0),
    };
    let promise = Promise { epoch: Epoch(1), owner: Incarnation(5) };
    let slot = |slot| StoreOp::Promise { slot, promise };
    dir.store(&[slot(0), slot(1), StoreOp::Identity(identity)], |_| Bytes::new()).expect("stored");
    let ops: Vec<StoreOp> = all.iter().map(|(entry, _)| StoreOp::Append(*entry)).collect();
    store(&mut dir, &ops, all).expect("stored");
    dir.journal.sync().expect("synced");
    disk
}

fn store(dir: &mut KeeperDir, ops: &[StoreOp], all: &[Written]) -> io::Result<()> {
    dir.store(ops, |entry| {
        let written = all.iter().find(|(of, _)| of == entry).expect("one of them");
        Bytes::from(written.1.clone())
    })
}

/// The files as they are durable after all of these.
fn apply(disk: &MemDisk, all: &[Written]) {
    let mut replica = Replica::open(Arc::new(disk.clone())).expect("opens");
    for (entry, payload) in all {
        replica.apply(entry.lsn, payload).expect("applied");
    }
    replica.mark().expect("marked");
}

fn base_at(all: &[Written], lsn: u64) -> Base {
    let (entry, _) = all[lsn as usize - 1];
    let start = Lsn(1);
    Base { lsn: entry.lsn, sum: entry.sum, epoch: entry.epoch, stamp: entry.stamp, start }
}

/// What the file holds: the numbers of the entries that were applied.
fn numbers(replica: &Replica) -> Vec<u64> {
    let Some(file) = replica.file(FileId(1)) else { return vec![] };
    let len = usize::try_from(file.len().expect("a length")).expect("small");
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, 0).expect("reads");
    bytes.chunks_exact(8).skip(1).map(|b| u64::from_le_bytes(b.try_into().expect("8"))).collect()
}

/// After a stop: the entries that can be read, behind the base, and what the files and these together make.
fn after(disk: &MemDisk, all: &[Written], what: &str) -> (Lsn, Chain, Vec<u64>) {
    let (dir, image) = opened(disk).expect("opens");
    assert!(matches!(image.identity, Record::Good(_)), "{what}");
    assert_ne!(image.base, Record::Damaged, "{what}");
    let base = image.begins();
    let mut chain = Chain::behind(base);
    let mut replica = Replica::open(Arc::new(disk.clone())).expect("opens");
    assert!(replica.applied() >= base.lsn, "{what}: the files have what is trimmed");
    for lsn in (base.lsn.0 + 1..=image.end().0).map(Lsn).filter(|lsn| image.is_good(*lsn)) {
        let (entry, payload) = &all[lsn.0 as usize - 1];
        assert_eq!(dir.payload(entry).expect("it is here"), payload[..], "{what}");
        chain.push(*entry);
        replica.apply(lsn, payload).expect("applied");
    }
    (base.lsn, chain, numbers(&replica))
}

/// After a sync that failed the system's cache shows what the medium does not have, and the next sync, which succeeds,
/// knows nothing of it. A process that began anew on what it read there said that lost entries were done.
#[test]
fn what_a_failed_sync_has_lost_is_not_there_for_the_next_process() {
    let all = history(7);
    let disk = keeping(&all[..6]);
    let (mut dir, _) = opened(&disk).expect("opens");
    store(&mut dir, &[StoreOp::Append(all[6].0)], &all).expect("written");
    disk.inject(Fault::SyncError(0));
    dir.journal.sync().expect_err("the sync fails");
    let (mut dir, image) = opened(&disk).expect("opens");
    assert!(image.is_good(Lsn(6)) && !image.is_good(Lsn(7)), "{image:?}");
    let promise = Promise { epoch: Epoch(2), owner: Incarnation(9) };
    disk.inject(Fault::SyncError(0));
    dir.store(&[StoreOp::Promise { slot: 0, promise }], |_| Bytes::new()).expect_err("as above");
    let (_, image) = opened(&disk).expect("opens");
    assert!(image.promises.iter().all(|slot| slot.good() != Some(promise)), "{image:?}");
}

/// A process that ended while it made a file of the journal has left a name that may not be durable. The next one
/// wrote to that file and synced it, and the power took the file with all that was said to be done.
#[test]
fn a_file_of_the_journal_that_an_earlier_process_made_has_a_durable_name() {
    let all = history(7);
    let disk = keeping(&all[..6]);
    disk.create("ops/00000001").expect("created, and then the process ended");
    let (mut dir, _) = opened(&disk).expect("opens");
    store(&mut dir, &[StoreOp::Append(all[6].0)], &all).expect("written");
    dir.journal.sync().expect("synced");
    for seed in 0..16 {
        let (_, image) = opened(&disk.crash(seed)).expect("opens");
        assert!(image.is_good(Lsn(7)), "seed {seed}");
    }
}

/// The power goes at each operation in turn: what is trimmed is in the files, or it is not trimmed.
#[test]
fn a_power_cut_while_a_log_is_trimmed_loses_nothing() {
    let all = history(9);
    let base = base_at(&all, 6);
    let ops = [
        StoreOp::Barrier,
        StoreOp::NoteBase(BaseNote::all(base)),
        StoreOp::Barrier,
        StoreOp::Drop { upto: base.lsn },
    ];
    let mut trimmed = 0;
    for cut in 1..40 {
        let disk = keeping(&all);
        apply(&disk, &all[..7]);
        let (mut dir, _) = opened(&disk).expect("opens");
        disk.inject(Fault::PowerCut(disk.operations() + cut));
        let _ = store(&mut dir, &ops, &all);
        let _ = dir.take_trim().expect("something is left to do").finish();
        let (base, chain, numbers) = after(&disk.crash(cut), &all, &format!("cut {cut}"));
        assert_eq!((chain.last(), numbers), (Lsn(9), (1..=9).collect()), "cut {cut}");
        trimmed += u32::from(base == Lsn(6));
    }
    assert!(trimmed > 0 && trimmed < 39, "before and after it: {trimmed}");
}

/// The power goes at each operation in turn while the files of another node replace a log that is behind: it is
/// what it was, or what the other one has made.
#[test]
fn a_power_cut_while_files_are_put_in_place_leaves_the_old_or_the_new() {
    let all = history(9);
    let base = base_at(&all, 7);
    let (mut old, mut new) = (0, 0);
    for cut in 1..60 {
        let disk = keeping(&all[..3]);
        apply(&disk, &all[..2]);
        let (mut dir, _) = opened(&disk).expect("opens");
        come(&disk, &all[..7]);
        disk.inject(Fault::PowerCut(disk.operations() + cut));
        let installed =
            store(&mut dir, &[StoreOp::Install { note: BaseNote::all(base), keep: false }], &all);
        let (begins, chain, numbers) = after(&disk.crash(cut), &all, &format!("cut {cut}"));
        match begins {
            Lsn(0) => {
                assert!(installed.is_err(), "cut {cut}: it was said to be done");
                assert_eq!((chain.last(), numbers), (Lsn(3), vec![1, 2, 3]), "cut {cut}");
                old += 1;
            }
            begins => {
                assert_eq!((begins, chain.last()), (Lsn(7), Lsn(7)), "cut {cut}");
                assert_eq!(numbers, (1..=7).collect::<Vec<_>>(), "cut {cut}");
                new += 1;
            }
        }
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

/// What another node has made of entries comes into `incoming/`, durably.
fn come(disk: &MemDisk, all: &[Written]) {
    let theirs = MemDisk::default();
    theirs.create_dir("tmp").expect("made");
    apply(&theirs, all);
    let snapshot = Replica::open(Arc::new(theirs)).expect("opens").snapshot().expect("taken");
    let put = |name: &str, bytes: &[u8]| {
        let file = disk.create(&format!("{INCOMING_DIR}/{name}")).expect("created");
        file.write_at(bytes, 0).expect("written");
        file.sync().expect("synced");
    };
    for (file, (open, len)) in &snapshot.files {
        let bytes = open.read_shared(0, usize::try_from(*len).expect("small")).expect("reads");
        put(&file_name(*file), &bytes);
    }
    put(STATE, &snapshot.state);
    disk.sync_dir(INCOMING_DIR).expect("synced");
}

fn trim(dir: &mut KeeperDir, base: Base) {
    let ops = [
        StoreOp::Barrier,
        StoreOp::NoteBase(BaseNote::all(base)),
        StoreOp::Barrier,
        StoreOp::Drop { upto: base.lsn },
    ];
    dir.store(&ops, |_| Bytes::new()).expect("stored");
    dir.take_trim().expect("something is left to do").finish().expect("done");
}

/// What is left to do of a trim is void when the directory has begun anew meanwhile, or got other files.
#[test]
fn a_trim_that_comes_late_changes_nothing_of_what_came_in_its_place() {
    for installed in [false, true] {
        let all = history(9);
        let disk = keeping(&all);
        apply(&disk, &all[..7]);
        let (mut dir, _) = opened(&disk).expect("opens");
        let ops =
            [StoreOp::NoteBase(BaseNote::all(base_at(&all, 6))), StoreOp::Drop { upto: Lsn(6) }];
        dir.store(&ops, |_| Bytes::new()).expect("stored");
        let late = dir.take_trim().expect("something is left to do");
        if installed {
            come(&disk, &all[..8]);
            let install = StoreOp::Install { note: BaseNote::all(base_at(&all, 8)), keep: true };
            dir.store(&[install], |_| Bytes::new()).expect("stored");
        } else {
            dir.store(&[StoreOp::BeginAnew], |_| Bytes::new()).expect("stored");
        }
        late.finish().expect("nothing is done");
        let expected =
            if installed { Record::Good(BaseNote::all(base_at(&all, 8))) } else { Record::Absent };
        assert_eq!(small_files::load_base(&disk).expect("read"), expected);
    }
}

/// A file that is missing is made again of the journal, where that has all; otherwise the directory counts for
/// nothing, and the others bring the log.
#[test]
fn a_directory_without_one_of_its_files_is_opened() {
    let all = history(9);
    for trims in [false, true] {
        let disk = keeping(&all);
        apply(&disk, &all[..7]);
        let (mut dir, _) = opened(&disk).expect("opens");
        if trims {
            trim(&mut dir, base_at(&all, 6));
        }
        disk.remove(&format!("{FILES_DIR}/{}", file_name(FileId(1)))).expect("removed");
        let (_, image) = opened(&disk).expect("opens");
        if trims {
            assert_eq!(image.base, Record::Damaged);
        } else {
            assert_eq!(after(&disk, &all, "untrimmed").2, (1..=9).collect::<Vec<_>>());
        }
    }
}

/// How far the log reached when it was trimmed is read again; a note of an earlier program does not say it.
#[test]
fn a_note_of_what_is_trimmed_says_how_far_the_log_reached() {
    let base = base_at(&history(9), 6);
    let disk = MemDisk::default();
    disk.create_dir("tmp").expect("made");
    let note = BaseNote { base, reach: Position { accepted: Epoch(1), lsn: Lsn(9) } };
    small_files::store_base(&disk, note).expect("stored");
    assert_eq!(small_files::load_base(&disk).expect("read"), Record::Good(note));
    let installing = Installing { note, keep: true };
    small_files::store_installing(&disk, installing).expect("stored");
    assert_eq!(small_files::load_installing(&disk).expect("read"), Record::Good(installing));
    small_files::store_base_without_reach(&disk, &base).expect("stored");
    assert_eq!(small_files::load_base(&disk).expect("read"), Record::Good(BaseNote::all(base)));
}

/// Without what says where the entries begin, and without what trimmed ones have made, nothing counts.
#[test]
fn a_trimmed_directory_that_lost_its_base_or_its_state_counts_for_nothing() {
    for lost in [BASE, STATE] {
        let all = history(9);
        let disk = keeping(&all);
        apply(&disk, &all[..7]);
        let (mut dir, _) = opened(&disk).expect("opens");
        trim(&mut dir, base_at(&all, 6));
        let (_, image) = opened(&disk).expect("opens");
        assert_eq!(image.base, Record::Good(BaseNote::all(base_at(&all, 6))));
        let file = disk.open(lost).expect("it is there");
        file.write_at(&[0xff], 20).expect("written");
        let (_, image) = opened(&disk).expect("opens");
        assert_eq!(image.base, Record::Damaged, "{lost}");
    }
}

/// Where nothing says any more where the entries of a long log begin, no places are made for those that were trimmed.
#[test]
fn a_long_log_that_lost_its_base_is_not_counted_from_its_beginning() {
    let all = history(7);
    let far = Lsn(1_000_000_000_000);
    let base = Base { lsn: far, ..base_at(&all, 7) };
    let payload = begin_payload(Epoch(1), far.0).0;
    let body = Body::Frame { payload: payload_hash(&payload), len: payload.len() as u32 };
    let next = Entry::new(far.next(), Epoch(1), base.sum, far, WallTime(0), body);
    for is_removed in [true, false] {
        let disk = keeping(&all[..3]);
        let (mut dir, _) = opened(&disk).expect("opens");
        come(&disk, &all);
        let ops =
            [StoreOp::Install { note: BaseNote::all(base), keep: false }, StoreOp::Append(next)];
        store(&mut dir, &ops, &[(next, payload.clone())]).expect("stored");
        dir.journal.sync().expect("synced");
        if is_removed {
            disk.remove(BASE).expect("removed");
        } else {
            disk.open(BASE).expect("it is there").write_at(&[0xff], 20).expect("written");
        }
        let (_, image) = opened(&disk).expect("opens");
        assert_eq!((image.base, image.log.len()), (Record::Damaged, 0), "{is_removed}");
    }
}
