//! Frames that are torn, damaged, replaced.

use super::*;
use nuthatch_log::env::{Fault, MemDisk};

fn disk() -> (MemDisk, Arc<dyn Disk>) {
    let disk = MemDisk::default();
    crate::identity::prepare(&disk).expect("an empty disk");
    (disk.clone(), Arc::new(disk))
}

fn entries(first: u64, count: u64, term: u64) -> Vec<Entry> {
    let entry = |index| Entry { index, term, data: vec![7; 40].into(), ..Entry::default() };
    (first..first + count).map(entry).collect()
}

fn hard(term: u64) -> HardState {
    HardState { term, vote: 3, ..HardState::default() }
}

fn snapshot(index: u64, term: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (index, term);
    snapshot
}

fn open(disk: &Arc<dyn Disk>) -> io::Result<Store> {
    Store::open(Arc::clone(disk), || snapshot(0, 0))
}

fn terms(store: &Store) -> Vec<u64> {
    store.entries.iter().map(|entry| entry.term).collect()
}

#[test]
fn what_is_committed_is_known_at_a_start_when_it_must_be() {
    let (memory, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 3, 1)).expect("appends");
    store.committed(2);
    assert_eq!(open(&disk).expect("opens").hard().commit, 0, "it is told again");
    store.keep_committed(2).expect("writes");
    let power_cut: Arc<dyn Disk> = Arc::new(memory.crash(1));
    let again = open(&power_cut).expect("opens");
    assert_eq!((again.hard().commit, again.hard().term, again.last()), (2, 1, 3));
    // What is written already costs nothing.
    let before = memory.operations();
    store.keep_committed(1).expect("nothing to do");
    store.keep_committed(2).expect("nothing to do");
    assert_eq!(memory.operations(), before);
}

#[test]
fn what_was_appended_is_there_again_and_a_later_suffix_takes_the_place_of_an_earlier_one() {
    let (_, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 3, 1)).expect("appends");
    store.append(Some(&hard(2)), entries(2, 1, 2)).expect("appends");
    let again = open(&disk).expect("opens again");
    assert_eq!((terms(&again), again.hard.term, again.hard.vote), (vec![1, 2], 2, 3));
}

/// After a sync that failed the system's cache shows what the medium does not have. A member that began anew on that
/// counted a vote which a power cut took back.
#[test]
fn what_a_failed_sync_has_lost_is_not_there_for_the_next_process() {
    let (memory, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 2, 1)).expect("appends");
    memory.inject(Fault::SyncError(0));
    store.append(Some(&hard(2)), vec![]).expect_err("the sync fails");
    let again = open(&disk).expect("opens again");
    assert_eq!((terms(&again), again.hard.term), (vec![1, 1], 1));
}

#[test]
fn a_torn_frame_is_set_aside_and_a_damaged_one_refused() {
    let (memory, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 1, 1)).expect("appends");
    let whole = store.len;
    store.append(None, entries(2, 1, 1)).expect("appends");
    let end = usize::try_from(store.len).expect("small");
    memory.flip_bit(LOG, end - 5, 1);
    let torn = open(&disk).expect("the last frame is torn");
    assert_eq!((torn.last(), torn.len), (1, whole));
    assert_eq!(disk.list("catalog").expect("lists"), ["log", "torn-2"]);
    drop(torn);
    let mut store = open(&disk).expect("opens");
    store.append(None, entries(2, 1, 1)).expect("appends");
    memory.flip_bit(LOG, usize::try_from(whole).expect("small") - 5, 1);
    let error = open(&disk).err().expect("a frame with another one behind it");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("joins the catalog with a new disk"), "{error}");
}

#[test]
fn a_snapshot_keeps_the_entries_behind_it() {
    let (_, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 5, 1)).expect("appends");
    store.compact(snapshot(3, 1)).expect("begins anew");
    assert_eq!((store.index(), store.last()), (3, 5));
    store.append(None, entries(6, 1, 1)).expect("appends");
    let again = open(&disk).expect("opens again");
    assert_eq!((again.index(), again.last(), again.hard.term), (3, 6, 1));
    store.restore(snapshot(9, 4), Some(&hard(4))).expect("another one's");
    let again = open(&disk).expect("opens again");
    assert_eq!((again.index(), again.last(), again.hard.term), (9, 9, 4));
}

/// The library has let them go: with some left it would begin further than it is now.
#[test]
fn a_snapshot_of_the_leader_keeps_no_entries() {
    let (_, disk) = disk();
    let mut store = open(&disk).expect("opens");
    store.append(Some(&hard(1)), entries(1, 5, 1)).expect("appends");
    store.restore(snapshot(3, 1), Some(&hard(2))).expect("begins anew");
    assert_eq!((store.index(), store.last()), (3, 3));
    let again = open(&disk).expect("opens again");
    assert_eq!((again.index(), again.last(), again.hard.term), (3, 3, 2));
}
